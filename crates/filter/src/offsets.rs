//! Computes the header offsets that apply at one point of a filter, and the tests to which primitives are translated
//! with these offsets. `vlan`, `mpls`, `pppoes` and `geneve` move the offsets for the primitives after them.

use crate::header_offset::{HeaderOffset, TunnelRef};
use crate::link::{IP, IP6, Link, MPLS, has_length};
use crate::test::{ByteLocation, Chain, Test, Tunnel};
use crate::tree::{Cmp, Dir, Version};

const FRAGMENT: u64 = 44;
const UDP: u8 = 17;
/// The UDP port of Geneve (IANA).
const GENEVE: u16 = 6081;
/// The ethertype of an Ethernet frame inside a tunnel (transparent Ethernet bridging).
pub const BRIDGED: u64 = 0x6558;
/// The value of the packet type in Linux cooked headers for a packet that the capturing host sent.
const SENT: u64 = 4;

impl Dir {
    fn join(self, src: Test, dst: Test) -> Test {
        match self {
            Self::Either => src.or(dst),
            Self::Src => src,
            Self::Dst => dst,
            Self::Both => src.and(dst),
        }
    }
}

/// The offsets of headers at one point of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offsets {
    /// The link layer whose headers follow; inside a PPPoE session or a tunnel, that of the session or tunnel.
    link: Link,
    /// Offset of the link header.
    header: HeaderOffset,
    /// Offset of the protocol field of the link header.
    kind: HeaderOffset,
    /// Offset of its payload.
    payload: HeaderOffset,
    /// Number of MPLS labels between the start of the link layer's payload and the network header.
    labels: u32,
    /// Number of bytes of the 802.2 header before the network header, in frames without an ethertype.
    llc: u32,
    /// Number of tunnel primitives before this point of the filter.
    tunnels: u16,
}

impl Default for Offsets {
    fn default() -> Self {
        Self::of(Link::Ethernet)
    }
}

impl Offsets {
    /// The offsets at the start of a filter.
    pub const fn of(link: Link) -> Self {
        let (kind, payload) = link.header_offsets();
        let llc = if matches!(link, Link::Ethernet) { 3 } else { 0 };
        let header = HeaderOffset::frame(0);
        Self {
            link,
            header,
            kind: HeaderOffset::frame(kind),
            payload: HeaderOffset::frame(payload),
            labels: 0,
            llc,
            tunnels: 0,
        }
    }

    /// True if frames begin with the network header.
    pub const fn is_raw(&self) -> bool {
        matches!(self.link, Link::Raw | Link::Ipv4 | Link::Ipv6)
    }

    /// The link header.
    pub const fn header(&self) -> HeaderOffset {
        self.header
    }

    /// The network header.
    pub const fn network(&self) -> HeaderOffset {
        self.payload.plus(4 * self.labels)
    }

    /// The test that the frame contains this ethertype or 802.2 service access point.
    pub fn carries(&self, ethertype: u32) -> Result<Test, &'static str> {
        if self.labels > 0 {
            let version = match ethertype {
                IP => 0x40,
                IP6 => 0x60,
                _ => return Err("behind an MPLS label only `ip` and `ip6` can be tested"),
            };
            let bottom = Test::masked(self.network().plus(2_u32.wrapping_neg()), 1, 1, 1);
            return Ok(bottom.and(Test::masked(self.network(), 1, 0xf0, version)));
        }
        self.link.carries(ethertype, self.kind, self.payload)
    }

    /// IPv4 with this protocol.
    pub fn ip_protocol(&self, protocol: u32) -> Result<Test, &'static str> {
        Ok(self.carries(IP)?.and(Test::equal(self.network().plus(9), 1, protocol.into())))
    }

    /// The test for IPv6 with this protocol, directly or behind one fragment header.
    pub fn ip6_protocol(&self, protocol: u32) -> Result<Test, &'static str> {
        let next = |at: u32, protocol| Test::equal(self.network().plus(at), 1, protocol);
        let behind = next(6, FRAGMENT).and(next(40, protocol.into()));
        Ok(self.carries(IP6)?.and(next(6, protocol.into()).or(behind)))
    }

    /// The test for IP of this version with this protocol anywhere in the chain of headers.
    pub fn chain(&self, version: Version, protocol: u32) -> Result<Test, &'static str> {
        if self.tunnels > 0 {
            return Err("the chain of headers inside a Geneve tunnel cannot be tested");
        }
        let (carrier, is_v6) = (if version == Version::V4 { IP } else { IP6 }, version == Version::V6);
        let chain = Test::Chain(Chain { header: self.network(), is_v6, protocol });
        Ok(self.carries(carrier)?.and(chain))
    }

    /// The test for IPv4 broadcast. The network mask is unknown, so only the two addresses match that are broadcast
    /// addresses in every network.
    pub fn ip_broadcast(&self) -> Result<Test, &'static str> {
        let to = |address| Test::equal(self.network().plus(16), 4, address);
        Ok(self.carries(IP)?.and(to(0).or(to(0xffff_ffff))))
    }

    /// The test for the ISO network layer with this protocol.
    pub fn iso_protocol(&self, protocol: u32) -> Result<Test, &'static str> {
        Ok(self.carries(0xfe)?.and(Test::equal(self.payload.plus(self.llc), 1, protocol.into())))
    }

    /// The test for IS-IS with one of these PDU types.
    pub fn isis(&self, kinds: &[u8]) -> Result<Test, &'static str> {
        const IS_IS: u32 = 0x83;
        let at = self.payload.plus(self.llc + 4);
        Ok(self.iso_protocol(IS_IS)?.and(Test::any(at, 1, kinds.iter().map(|k| u64::from(*k)))))
    }

    /// The test for an 802.2 header whose control field has this value under this mask.
    pub fn llc(&self, control: Option<(u64, u64)>) -> Result<Test, &'static str> {
        if self.link != Link::Ethernet {
            return Err("802.2 headers are not supported for this link type");
        }
        // Novell's raw 802.3 frames contain 0xff bytes where the 802.2 header of other frames begins.
        let is = has_length(self.kind).and(Test::equal(self.payload, 2, 0xffff).not());
        Ok(match control {
            Some((mask, value)) => is.and(Test::masked(self.payload.plus(2), 1, mask, value)),
            None => is,
        })
    }

    /// The test that the packet is not a later IPv4 fragment.
    pub fn not_later(&self) -> Test {
        Test::masked(self.network().plus(6), 2, 0x1fff, 0)
    }

    /// A test of IPv4 addresses.
    pub fn host(&self, carrier: u32, dir: Dir, address: u32, mask: u32) -> Result<Test, &'static str> {
        let (src, dst) = if carrier == IP { (12, 16) } else { (14, 24) };
        let carried = self.carries(carrier)?;
        let at = |offset| Test::masked(self.network().plus(offset), 4, mask.into(), address.into());
        Ok(carried.and(dir.join(at(src), at(dst))))
    }

    /// A test of IPv6 addresses.
    pub fn host6(&self, dir: Dir, address: u128, mask: u128) -> Result<Test, &'static str> {
        // The words of the address are compared one by one, as in libpcap: if the address is truncated, a mismatch in
        // the captured words decides the result.
        let words = |offset: u32| {
            let word = |n: u32| {
                let shift = 96 - 32 * n;
                let (mask, value) = ((mask >> shift) as u32, (address >> shift) as u32);
                let at = self.network().plus(offset + 4 * n);
                (mask != 0).then(|| Test::masked(at, 4, mask.into(), value.into()))
            };
            (0..4).filter_map(word).reduce(Test::and).unwrap_or(Test::Always(true))
        };
        Ok(self.carries(IP6)?.and(dir.join(words(8), words(24))))
    }

    /// The test for DECnet addresses in long and short headers, each with and without a padding byte.
    pub fn decnet(&self, dir: Dir, area: u16, node: u16) -> Result<Test, &'static str> {
        let address = u64::from((area << 10 | node).swap_bytes());
        let at = |offset: u32| self.payload.plus(offset);
        let one = |shifts: [u32; 4]| {
            let forms = [(1, 0x07, 0x02), (2, 0xff07, 0x8102), (1, 0x07, 0x06), (2, 0xff07, 0x8106)];
            let form = |((width, mask, value), to): ((u8, u64, u64), u32)| {
                Test::masked(at(2), width, mask, value).and(Test::equal(at(to), 2, address))
            };
            forms.into_iter().zip(shifts).map(form).reduce(Test::or).unwrap_or(Test::Always(false))
        };
        let carried = self.carries(0x6003)?;
        Ok(carried.and(dir.join(one([5, 6, 17, 18]), one([3, 4, 9, 10]))))
    }

    /// Restricts a test of MAC addresses to frames that contain MAC addresses.
    fn has_addresses(&self, of: Test) -> Result<Test, &'static str> {
        match (self.link, self.header.from) {
            (Link::Ethernet, None) => Ok(of),
            (Link::Ethernet, Some(inside)) => Ok(Test::HasLink(inside.tunnel()).and(of)),
            _ => Err("link addresses are not supported for this link type"),
        }
    }

    /// A test of MAC addresses.
    pub fn mac(&self, dir: Dir, mac: [u8; 6]) -> Result<Test, &'static str> {
        let value = mac.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let at = |offset| Test::equal(self.header.plus(offset), 6, value);
        self.has_addresses(dir.join(at(6), at(0)))
    }

    /// The test for ports of these protocols, over IPv4 and IPv6.
    pub fn ports(&self, protocols: &[u8], dir: Dir, low: u16, high: u16) -> Result<Test, &'static str> {
        let (v4, v6) = (self.carries(IP)?, self.carries(IP6)?);
        let header = self.network();
        let at = |place: ByteLocation| {
            let field = |cmp, value: u16| Test::Field { place, width: 2, mask: u64::MAX, cmp, value: value.into() };
            if low == high { field(Cmp::Eq, low) } else { field(Cmp::Ge, low).and(field(Cmp::Le, high)) }
        };
        let behind = |offset| at(ByteLocation::BehindIpv4 { header, offset });
        let fixed = |offset: u32| at(ByteLocation::At(header.plus(40 + offset)));
        let any = |at: u32| Test::any(header.plus(at), 1, protocols.iter().map(|p| u64::from(*p)));
        let four = v4.and(any(9)).and(self.not_later()).and(dir.join(behind(0), behind(2)));
        let six = v6.and(any(6)).and(dir.join(fixed(0), fixed(2)));
        Ok(four.or(six))
    }

    /// The test for multicast: on the link layer, in IPv4, or in IPv6.
    pub fn multicast(&self, of: Option<Version>) -> Result<Test, &'static str> {
        match of {
            None => self.has_addresses(Test::masked(self.header, 1, 1, 1)),
            Some(Version::V4) => {
                let place = ByteLocation::At(self.network().plus(16));
                let group = Test::Field { place, width: 1, mask: u64::MAX, cmp: Cmp::Ge, value: 224 };
                Ok(self.carries(IP)?.and(group))
            }
            Some(Version::V6) => Ok(self.carries(IP6)?.and(Test::equal(self.network().plus(24), 1, 255))),
        }
    }

    /// The test that this host sent the frame.
    pub fn outgoing(&self) -> Result<Test, &'static str> {
        match self.link {
            Link::Cooked => Ok(Test::equal(HeaderOffset::frame(0), 2, SENT)),
            Link::Cooked2 => Ok(Test::equal(HeaderOffset::frame(10), 1, SENT)),
            Link::Ethernet => Ok(Test::Outgoing),
            _ => Err("frames of this link type do not contain their direction"),
        }
    }

    /// The test that the frame was captured on the device with this number.
    pub fn device(&self, number: u32) -> Result<Test, &'static str> {
        match self.link {
            Link::Cooked2 => Ok(Test::equal(HeaderOffset::frame(4), 4, number.into())),
            _ => Err("frames of this link type do not contain their interface; select the interface when capturing"),
        }
    }

    /// Returns the test for a VLAN tag, and moves the offsets of later primitives behind the tag.
    pub fn vlan(&mut self, id: Option<u16>) -> Result<Test, &'static str> {
        if self.labels > 0 {
            return Err("there is no VLAN tag behind an MPLS label");
        }
        match self.link {
            Link::Ethernet => (),
            Link::Ppp => return Err("there is no VLAN tag in PPP"),
            _ => return Err("VLAN tags are not supported for this link type"),
        }
        let mut test = Test::any(self.kind, 2, [0x8100, 0x88a8, 0x9100]);
        if let Some(id) = id {
            test = test.and(Test::masked(self.payload, 2, 0xfff, id.into()));
        }
        (self.kind, self.payload) = (self.kind.plus(4), self.payload.plus(4));
        Ok(test)
    }

    /// Returns the test for an MPLS label, and moves the offsets of later primitives behind the label.
    pub fn mpls(&mut self, label: Option<u32>) -> Result<Test, &'static str> {
        if !matches!(self.link, Link::Ethernet | Link::Ppp) {
            return Err("MPLS labels are not supported for this link type");
        }
        let mut test = match self.labels {
            0 => self.carries(MPLS)?,
            _ => Test::masked(self.network().plus(2_u32.wrapping_neg()), 1, 1, 0),
        };
        if let Some(label) = label {
            test = test.and(Test::masked(self.network(), 4, 0xffff_f000, u64::from(label) << 12));
        }
        self.labels += 1;
        Ok(test)
    }

    /// Returns the test for a PPPoE session, and moves the offsets of later primitives to the headers inside the
    /// session.
    pub fn pppoes(&mut self, session: Option<u16>) -> Result<Test, &'static str> {
        let mut test = self.carries(0x8864)?;
        if let Some(session) = session {
            test = test.and(Test::equal(self.network().plus(2), 2, session.into()));
        }
        let inside = self.network().plus(6);
        (self.link, self.header, self.kind, self.payload) = (Link::Ppp, inside, inside, inside.plus(2));
        (self.labels, self.llc) = (0, 0);
        Ok(test)
    }

    /// Returns the test for a Geneve tunnel with this VNI (any VNI if `None`), and moves the offsets of later
    /// primitives to the headers inside the tunnel.
    pub fn geneve(&mut self, vni: Option<u32>) -> Result<Test, &'static str> {
        let network = self.network();
        let inside = |place: fn(HeaderOffset, u32) -> ByteLocation| {
            let port = Test::field(place(network, 2), 2, u64::MAX, GENEVE.into());
            let version = Test::field(place(network, 8), 1, 0xc0, 0);
            let vni = vni.map(|vni| Test::field(place(network, 12), 4, 0xffff_ff00, u64::from(vni) << 8));
            [Some(port), Some(version), vni].into_iter().flatten().reduce(Test::and).unwrap_or(Test::Always(true))
        };
        let over_ip = self.ip_protocol(UDP.into())?.and(self.not_later());
        let over_ip = over_ip.and(inside(|header, offset| ByteLocation::BehindIpv4 { header, offset }));
        let next = Test::equal(network.plus(6), 1, UDP.into());
        let over_ip6 =
            self.carries(IP6)?.and(next).and(inside(|header, offset| ByteLocation::At(header.plus(40 + offset))));
        let number = self.tunnels;
        let at = |inside: fn(u16) -> TunnelRef| HeaderOffset { from: Some(inside(number)), at: 0 };
        (self.header, self.kind, self.payload) = (at(TunnelRef::Link), at(TunnelRef::Kind), at(TunnelRef::Payload));
        (self.link, self.labels, self.tunnels) = (Link::Ethernet, 0, number + 1);
        Ok(Test::Tunnel(Box::new(Tunnel { number, network, over_ip, over_ip6 })))
    }
}
