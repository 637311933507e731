//! The tests that words stand for, as libpcap makes them, and where they look: offsets that `vlan`, `mpls` and `pppoes` move.

use super::arith::Number;
use crate::ir::Cmp;

/// A question about the frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Always(bool),
    Not(Box<Test>),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
    /// The bytes at a place, with a mask, against a number.
    Field {
        place: Place,
        width: u8,
        mask: u64,
        cmp: Cmp,
        value: u64,
    },
    /// Two results of arithmetic, as 32-bit numbers.
    Relation(Number, Cmp, Number),
}

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// From the start of the frame.
    At(u32),
    /// Behind the IPv4 header that begins at `header`, however long it is.
    BehindIpv4 { header: u32, offset: u32 },
}

impl Test {
    /// How many tests and numbers it is made of.
    pub fn words(&self) -> usize {
        match self {
            Self::Always(_) | Self::Field { .. } => 1,
            Self::Not(t) => 1 + t.words(),
            Self::And(s, t) | Self::Or(s, t) => 1 + s.words() + t.words(),
            Self::Relation(a, _, b) => 1 + a.words() + b.words(),
        }
    }

    pub fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    pub fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }

    pub fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    fn equal(at: u32, width: u8, value: u64) -> Self {
        Self::masked(at, width, u64::MAX, value)
    }

    fn masked(at: u32, width: u8, mask: u64, value: u64) -> Self {
        // libpcap's optimiser sees this too, and then no byte is asked for.
        if mask == 0 {
            return Self::Always(value == 0);
        }
        Self::Field { place: Place::At(at), width, mask, cmp: Cmp::Eq, value }
    }
}

pub const IP: u16 = 0x0800;
pub const IP6: u16 = 0x86dd;
pub const ARP: u16 = 0x0806;
pub const RARP: u16 = 0x8035;
const ATALK: u16 = 0x809b;
const AARP: u16 = 0x80f3;
const IPX: u16 = 0xe0;
const IPX_TYPE: u16 = 0x8137;
const ISO: u16 = 0xfe;
const NETBEUI: u16 = 0xf0;
/// Ethertypes begin behind the longest length of 802.3.
const LONGEST: u64 = 1500;
const FRAGMENT: u8 = 44;

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    Either,
    Src,
    Dst,
    Both,
}

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

/// Where the words look at this point of the filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offsets {
    /// The ethertype, or the protocol of PPP.
    kind: u32,
    /// What the link layer carries.
    payload: u32,
    /// Labels between that and the network header.
    labels: u32,
    ppp: bool,
}

impl Default for Offsets {
    fn default() -> Self {
        Self { kind: 12, payload: 14, labels: 0, ppp: false }
    }
}

impl Offsets {
    /// The network header.
    pub const fn network(&self) -> u32 {
        self.payload + 4 * self.labels
    }

    /// The frame carries this ethertype, or this service access point of 802.2.
    pub fn carries(&self, ethertype: u16) -> Result<Test, &'static str> {
        if self.labels > 0 {
            let version = match ethertype {
                IP => 0x40,
                IP6 => 0x60,
                _ => return Err("under MPLS only `ip` and `ip6` can be told apart"),
            };
            let bottom = Test::masked(self.network() - 2, 1, 1, 1);
            return Ok(bottom.and(Test::masked(self.network(), 1, 0xf0, version)));
        }
        if self.ppp {
            let protocol = match ethertype {
                IP => 0x21,
                IP6 => 0x57,
                0x6003 => 0x27,
                ATALK => 0x29,
                ISO => 0x23,
                0x8847 => 0x281,
                other => other,
            };
            return Ok(Test::equal(self.kind, 2, protocol.into()));
        }
        let typed = |t: u16| Test::equal(self.kind, 2, t.into());
        let has_length =
            || Test::Field { place: Place::At(self.kind), width: 2, mask: u64::MAX, cmp: Cmp::Le, value: LONGEST };
        // Organisation and type behind the header of 802.2 with its SNAP extension: eight bytes, the first four and the last four.
        let snap = |organisation: u64, t: u16| {
            let word = 0xaaaa_0300_0000_0000 | organisation << 16 | u64::from(t);
            Test::equal(self.payload, 8, word)
        };
        Ok(match ethertype {
            ISO | NETBEUI => has_length().and(Test::equal(self.payload, 2, u64::from(ethertype) * 0x0101)),
            IPX => {
                let by_length = Test::equal(self.payload, 1, IPX.into())
                    .or(Test::equal(self.payload, 2, 0xffff))
                    .or(snap(0, IPX_TYPE));
                typed(IPX_TYPE).or(has_length().and(by_length))
            }
            ATALK => typed(ATALK).or(has_length().and(snap(0x08_0007, ATALK))),
            AARP => typed(AARP).or(has_length().and(snap(0, AARP))),
            sap if u64::from(sap) <= LONGEST => has_length().and(Test::equal(self.payload, 1, sap.into())),
            t => typed(t),
        })
    }

    /// IPv4 carries this protocol.
    pub fn ip_protocol(&self, protocol: u8) -> Result<Test, &'static str> {
        Ok(self.carries(IP)?.and(Test::equal(self.network() + 9, 1, protocol.into())))
    }

    /// IPv6 carries it, perhaps behind one fragment header.
    pub fn ip6_protocol(&self, protocol: u8) -> Result<Test, &'static str> {
        let fragment = Test::equal(self.network() + 6, 1, FRAGMENT.into());
        let behind = fragment.and(Test::equal(self.network() + 40, 1, protocol.into()));
        let next = Test::equal(self.network() + 6, 1, protocol.into());
        Ok(self.carries(IP6)?.and(next.or(behind)))
    }

    /// ISO's network layer carries it.
    pub fn iso_protocol(&self, protocol: u8) -> Result<Test, &'static str> {
        let header = if self.ppp { 0 } else { 3 };
        Ok(self.carries(ISO)?.and(Test::equal(self.payload + header, 1, protocol.into())))
    }

    /// Not a later fragment of IPv4.
    pub fn not_later(&self) -> Test {
        Test::masked(self.network() + 6, 2, 0x1fff, 0)
    }

    /// Addresses of IPv4.
    pub fn host(&self, carrier: u16, dir: Dir, address: u32, mask: u32) -> Result<Test, &'static str> {
        let (src, dst) = if carrier == IP { (12, 16) } else { (14, 24) };
        let carried = self.carries(carrier)?;
        let at = |offset| Test::masked(self.network() + offset, 4, mask.into(), address.into());
        Ok(carried.and(dir.join(at(src), at(dst))))
    }

    /// Addresses of IPv6.
    pub fn host6(&self, dir: Dir, address: u128, mask: u128) -> Result<Test, &'static str> {
        // Word by word, as libpcap does: of a frame that was cut, the words before the cut decide.
        let words = |offset: u32| {
            let word = |n: u32| {
                let shift = 96 - 32 * n;
                let (mask, value) = ((mask >> shift) as u32, (address >> shift) as u32);
                (mask != 0).then(|| Test::masked(self.network() + offset + 4 * n, 4, mask.into(), value.into()))
            };
            (0..4).filter_map(word).reduce(Test::and).unwrap_or(Test::Always(true))
        };
        Ok(self.carries(IP6)?.and(dir.join(words(8), words(24))))
    }

    /// Link addresses.
    pub fn mac(&self, dir: Dir, mac: [u8; 6]) -> Test {
        let value = mac.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        dir.join(Test::equal(6, 6, value), Test::equal(0, 6, value))
    }

    /// Ports of one of these protocols, over IPv4 and IPv6.
    pub fn ports(&self, protocols: &[u8], dir: Dir, low: u16, high: u16) -> Result<Test, &'static str> {
        let (v4, v6) = (self.carries(IP)?, self.carries(IP6)?);
        let header = self.network();
        let at = |place: Place| {
            let field = |cmp, value: u16| Test::Field { place, width: 2, mask: u64::MAX, cmp, value: value.into() };
            if low == high { field(Cmp::Eq, low) } else { field(Cmp::Ge, low).and(field(Cmp::Le, high)) }
        };
        let behind = |offset| at(Place::BehindIpv4 { header, offset });
        let fixed = |offset| at(Place::At(header + 40 + offset));
        let any = |at: u32| {
            let one = |p: &u8| Test::equal(at, 1, (*p).into());
            protocols.iter().map(one).reduce(Test::or).unwrap_or(Test::Always(false))
        };
        let four = v4.and(any(header + 9)).and(self.not_later()).and(dir.join(behind(0), behind(2)));
        let six = v6.and(any(header + 6)).and(dir.join(fixed(0), fixed(2)));
        Ok(four.or(six))
    }

    /// Sent to a group of the link, of IPv4, of IPv6.
    pub fn multicast(&self, of: Option<u16>) -> Result<Test, &'static str> {
        Ok(match of {
            None => Test::masked(0, 1, 1, 1),
            Some(IP) => {
                let place = Place::At(self.network() + 16);
                let group = Test::Field { place, width: 1, mask: u64::MAX, cmp: Cmp::Ge, value: 224 };
                self.carries(IP)?.and(group)
            }
            Some(_) => self.carries(IP6)?.and(Test::equal(self.network() + 24, 1, 255)),
        })
    }

    /// A VLAN tag; what follows looks behind it.
    pub fn vlan(&mut self, id: Option<u16>) -> Result<Test, &'static str> {
        if self.labels > 0 {
            return Err("there is no VLAN tag behind an MPLS label");
        }
        if self.ppp {
            return Err("there is no VLAN tag in PPP");
        }
        let typed = |t| Test::equal(self.kind, 2, t);
        let mut test = typed(0x8100).or(typed(0x88a8)).or(typed(0x9100));
        if let Some(id) = id {
            test = test.and(Test::masked(self.payload, 2, 0xfff, id.into()));
        }
        self.kind += 4;
        self.payload += 4;
        Ok(test)
    }

    /// An MPLS label; what follows looks behind it.
    pub fn mpls(&mut self, label: Option<u32>) -> Result<Test, &'static str> {
        let mut test = match self.labels {
            0 => self.carries(0x8847)?,
            _ => Test::masked(self.network() - 2, 1, 1, 0),
        };
        if let Some(label) = label {
            test = test.and(Test::masked(self.network(), 4, 0xffff_f000, u64::from(label) << 12));
        }
        self.labels += 1;
        Ok(test)
    }

    /// A session of PPPoE; what follows looks into it.
    pub fn pppoes(&mut self, session: Option<u16>) -> Result<Test, &'static str> {
        let mut test = self.carries(0x8864)?;
        if let Some(session) = session {
            test = test.and(Test::equal(self.network() + 2, 2, session.into()));
        }
        let inside = self.network() + 6;
        *self = Self { kind: inside, payload: inside + 2, labels: 0, ppp: true };
        Ok(test)
    }
}
