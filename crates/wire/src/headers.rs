//! Where the headers of a frame are, in one pass without allocation: what the packet path knows of every packet.
//!
//! Invariants, whatever the bytes are: an offset that is not 0 lies inside the captured bytes and within 255 (it fits the
//! ring's descriptor); [`Headers::family`] is not [`Family::Other`] only if the whole fixed network header was captured;
//! [`Headers::l4`] is 0 for later fragments, which have no transport header.
//!
//! The pass looks through VLAN tags, MPLS labels (under them also Ethernet, in a pseudowire), PPPoE sessions and SNAP, and along the
//! extension headers of IPv6, each up to a bound; it does not look into tunnels. Where there is none, it goes as
//! [`crate::Decoded`] does, so filter and index see the packet that the meter sees. The views ([`crate::Ipv4`] and its like) say the same with more words, and the tests hold
//! this pass against them.

use crate::bytes::{be16, be32, chunk};
use crate::shim::{self, LabelPayload};
use crate::{EtherType, IpProtocol, ethernet, ipv4, ipv6, mpls, tcp, udp, vlan};

/// Link types that are understood, as pcap numbers them. Of any other a frame has no headers.
pub mod link {
    /// Ethernet.
    pub const ETHERNET: u16 = 1;
    /// IPv4 or IPv6 without a link header; the first half-byte says which.
    pub const RAW_IP: u16 = 101;
    /// IPv4 without a link header.
    pub const RAW_IPV4: u16 = 228;
    /// IPv6 without a link header.
    pub const RAW_IPV6: u16 = 229;
    /// BSD loopback: the address family in four bytes of the capturing host's order.
    pub const NULL: u16 = 0;
    /// OpenBSD loopback: the same in network order.
    pub const LOOP: u16 = 108;
    /// Linux "cooked" capture, 16 bytes, protocol last.
    pub const LINUX_SLL: u16 = 113;
    /// Linux "cooked" capture version 2, 20 bytes, protocol first.
    pub const LINUX_SLL2: u16 = 276;

    /// All of these. [`crate::Headers::link`] is an index of this list.
    pub const UNDERSTOOD: [u16; 8] = [ETHERNET, RAW_IP, RAW_IPV4, RAW_IPV6, NULL, LOOP, LINUX_SLL, LINUX_SLL2];

    /// Not a link type: stands for all that are not understood.
    pub const UNKNOWN: u16 = u16::MAX;

    /// Its place among those that are understood; of all others, behind them.
    pub(crate) const fn index(link_type: u16) -> u8 {
        let mut i = 0;
        while i < UNDERSTOOD.len() && UNDERSTOOD[i] != link_type {
            i += 1;
        }
        i as u8
    }

    /// Whether it is one of these.
    pub const fn is_understood(link_type: u16) -> bool {
        (index(link_type) as usize) < UNDERSTOOD.len()
    }

    /// Its name for people, if it is one of these.
    pub const fn name(link_type: u16) -> Option<&'static str> {
        Some(match link_type {
            ETHERNET => "Ethernet",
            RAW_IP | RAW_IPV4 | RAW_IPV6 => "IP without a link header",
            NULL | LOOP => "BSD loopback",
            LINUX_SLL => "Linux cooked",
            LINUX_SLL2 => "Linux cooked, version 2",
            _ => return None,
        })
    }

    pub(crate) const LOOP_LEN: usize = 4;
    pub(crate) const SLL_PROTOCOL: usize = 14;
    pub(crate) const SLL_LEN: usize = 16;
    pub(crate) const SLL2_PROTOCOL: usize = 0;
    pub(crate) const SLL2_LEN: usize = 20;

    /// The ethertype of an address family as the head of a loopback frame holds it, 0 for none of IP. That of IPv6 is
    /// another on each system: 10 Linux, 24 NetBSD and OpenBSD, 28 FreeBSD, 30 Darwin (pcap-linktype, `LINKTYPE_NULL`).
    pub(crate) fn of_family(head: [u8; LOOP_LEN]) -> crate::EtherType {
        // A family is small: whichever order makes it so is that of the host.
        match u32::from_be_bytes(head).min(u32::from_le_bytes(head)) {
            2 => crate::EtherType::IPV4,
            10 | 24 | 28 | 30 => crate::EtherType::IPV6,
            _ => crate::EtherType::default(),
        }
    }
}

/// What the network layer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Something else, or cut before its fixed header ended.
    #[default]
    Other,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragment {
    /// All of it.
    #[default]
    Whole,
    /// The first of several parts, with the transport header.
    First,
    /// Another part, without a transport header.
    Later,
}

/// The answer of [`Headers::of`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    ethertype: EtherType,
    vlan: u16,
    protocol: IpProtocol,
    l3: u8,
    l4: u8,
    family: Family,
    fragment: Fragment,
    tags_at: u8,
    inner_tags_at: u8,
    bits: u8,
}

/// Bits of `Headers::bits`.
mod bit {
    pub const MALFORMED: u8 = 1 << 0;
    pub const ETHERNET: u8 = 1 << 1;
    /// From here on the index of the link type: that of Ethernet is 0.
    pub const LINK: u32 = 4;
}

const _: () = assert!(link::UNDERSTOOD[0] == link::ETHERNET && link::UNDERSTOOD.len() < 1 << (8 - bit::LINK));

/// A transport header that begins after this byte is not reported.
const FARTHEST: usize = u8::MAX as usize;

// The network header begins before, unless pseudowires lie in each other: behind the longest link header and the most tags
// and labels.
const _: () = assert!(link::SLL2_LEN + vlan::MAX_TAGS * vlan::at::END + mpls::MAX_LABELS * mpls::LABEL_LEN <= FARTHEST);

/// The ethertype of IPv4 and the version and IHL of a header without options, as they follow each other.
const PLAIN_IPV4: u32 = 0x0008_0045;

impl Headers {
    // PERF: 3.3 ns for UDP over IPv4 (60 B), 4.4 ns with a tag, 3.3 ns over IPv6; 13 ns where the walk is needed. Least of
    // 400 runs over 1024 frames in cache, on two cores shared with other builds.
    /// Finds the headers of a frame of which `frame` was captured and `wire_len` bytes were sent (at least the former).
    ///
    /// ```
    /// use netgrain_wire::{Headers, IpProtocol, build::Frame, link};
    /// let mut bytes = [0; 60];
    /// let frame = Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes);
    /// let headers = Headers::of(frame, 60, link::ETHERNET);
    /// assert_eq!((headers.l3(), headers.l4()), (14, 34));
    /// assert_eq!(headers.protocol(), Some(IpProtocol::UDP));
    /// ```
    #[inline]
    pub fn of(frame: &[u8], wire_len: u32, link_type: u16) -> Self {
        if link_type == link::ETHERNET
            && let Some(common) = Self::common(frame, frame.len().max(wire_len as usize))
        {
            return common;
        }
        HeaderParser::new(frame, wire_len).headers(link_type)
    }

    /// The common cases over Ethernet, each with one bounds check: TCP or UDP over plain IPv4 with at most one tag, or over
    /// plain IPv6. `None` sends the frame to the walk.
    #[inline(always)]
    pub(crate) fn common(frame: &[u8], wire: usize) -> Option<Self> {
        const TYPE: usize = ethernet::at::ETHERTYPE;
        const UNTAGGED: usize = ethernet::at::END;
        const TAGGED: usize = ethernet::at::END + vlan::at::END;
        let head: &[u8; UNTAGGED + ipv4::at::END + udp::at::END] = frame.first_chunk()?;
        // Ethertype, version and IHL are neighbours: one comparison says IPv4 without options.
        let word = be32(head, TYPE);
        if word >> 8 == PLAIN_IPV4 {
            return Self::plain_v4::<UNTAGGED>(frame, wire);
        }
        match EtherType((word >> 16) as u16) {
            EtherType::IPV6 => Self::plain_v6::<UNTAGGED>(frame, wire),
            EtherType::VLAN if be32(head, TYPE + vlan::at::END) >> 8 == PLAIN_IPV4 => {
                let id = be16(head, UNTAGGED + vlan::at::TCI) & vlan::at::ID_MASK;
                let inner = Self::plain_v4::<TAGGED>(frame, wire)?;
                Some(Self { vlan: id, tags_at: UNTAGGED as u8, ..inner })
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn plain_v4<const L3: usize>(frame: &[u8], wire: usize) -> Option<Self> {
        let head: &[u8; ipv4::at::END] = chunk(frame, L3)?;
        let total = usize::from(be16(head, ipv4::at::TOTAL_LEN));
        let parts = be16(head, ipv4::at::FRAGMENT) & (ipv4::at::OFFSET_MASK | ipv4::at::MORE_FRAGMENTS);
        let protocol = IpProtocol(head[ipv4::at::PROTOCOL]);
        let l4 = L3 + ipv4::at::END;
        if parts != 0 || L3 + total > wire || l4 + plain_transport(frame, l4, protocol)? > L3 + total {
            return None;
        }
        Some(Self::plain(EtherType::IPV4, Family::V4, protocol, L3, l4))
    }

    #[inline(always)]
    fn plain_v6<const L3: usize>(frame: &[u8], wire: usize) -> Option<Self> {
        let head: &[u8; ipv6::at::END] = chunk(frame, L3)?;
        let protocol = IpProtocol(head[ipv6::at::NEXT]);
        let l4 = L3 + ipv6::at::END;
        let end = l4 + usize::from(be16(head, ipv6::at::PAYLOAD_LEN));
        if head[ipv6::at::VERSION] >> 4 != 6 || end > wire || l4 + plain_transport(frame, l4, protocol)? > end {
            return None;
        }
        Some(Self::plain(EtherType::IPV6, Family::V6, protocol, L3, l4))
    }

    #[inline(always)]
    const fn plain(ethertype: EtherType, family: Family, protocol: IpProtocol, l3: usize, l4: usize) -> Self {
        let (vlan, tags_at, inner_tags_at, fragment, bits) = (0, 0, 0, Fragment::Whole, bit::ETHERNET);
        Self { ethertype, vlan, protocol, l3: l3 as u8, l4: l4 as u8, family, fragment, tags_at, inner_tags_at, bits }
    }

    /// Offset of the network header, whatever its protocol; 0 where there is none (or where it begins the frame: raw
    /// IP, with a [`Headers::family`]).
    #[inline]
    pub const fn l3(&self) -> u8 {
        self.l3
    }

    /// Offset of the transport header; 0 where there is none: not IP, a later fragment, cut, or beyond 255. Of a first fragment
    /// that is shorter than the header, only the ports need be there.
    #[inline]
    pub const fn l4(&self) -> u8 {
        self.l4
    }

    /// What the network layer is.
    #[inline]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The protocol above IP. Where the walk along IPv6 extensions could not go on, the number it stopped at; for
    /// fragments, the one that all of them name.
    #[inline]
    pub const fn protocol(&self) -> Option<IpProtocol> {
        match self.family {
            Family::Other => None,
            Family::V4 | Family::V6 => Some(self.protocol),
        }
    }

    /// Which part of a datagram this is.
    #[inline]
    pub const fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// The ethertype under all tags, labels and sessions; 0 where there is none. Of a session that carries something else than
    /// IP that of PPPoE, of labels over something unknown that of MPLS.
    #[inline]
    pub const fn ethertype(&self) -> EtherType {
        self.ethertype
    }

    /// The id of the outermost VLAN tag, which may be in a pseudowire.
    #[inline]
    pub const fn vlan(&self) -> Option<u16> {
        if self.tags_at != 0 { Some(self.vlan) } else { None }
    }

    /// Whether a header contradicts its length. Being cut by the capture is no contradiction.
    #[inline]
    pub const fn malformed(&self) -> bool {
        self.bits & bit::MALFORMED != 0
    }

    /// The index in [`link::UNDERSTOOD`] of the link type; its length for every other type.
    #[inline]
    pub const fn link(&self) -> usize {
        (self.bits >> bit::LINK) as usize
    }

    /// Whether the frame begins with a whole Ethernet header.
    #[inline]
    pub const fn is_ethernet(&self) -> bool {
        self.bits & bit::ETHERNET != 0
    }

    /// The ids of the VLAN tags from the outside inwards: of the outermost Ethernet header that has any, and of the innermost.
    /// They are read again here, since hardly any frame has two.
    #[inline]
    pub fn vlans<'a>(&self, frame: &'a [u8]) -> impl Iterator<Item = u16> + use<'a> {
        let (mut at, mut inner) = (usize::from(self.tags_at), usize::from(self.inner_tags_at));
        let next = move || {
            let tag: &[u8; vlan::at::END] = if at == 0 { None } else { chunk(frame, at) }?;
            let follows = EtherType(be16(tag, vlan::at::ETHERTYPE)).is_vlan();
            at = if follows { at + vlan::at::END } else { std::mem::take(&mut inner) };
            Some(be16(tag, vlan::at::TCI) & vlan::at::ID_MASK)
        };
        std::iter::from_fn(next).take(vlan::MAX_TAGS)
    }

    /// The four bytes of source and destination port as one number, source first; `None` where the protocol has none,
    /// or they were not captured, or this is a later fragment.
    #[inline]
    pub(crate) fn port_word(&self, frame: &[u8]) -> Option<u32> {
        if self.l4 == 0 || !self.protocol.has_ports() {
            return None;
        }
        chunk(frame, usize::from(self.l4)).map(|b| u32::from_be_bytes(*b))
    }
}

/// How many bytes a TCP header or a UDP datagram says it has; `None` if it is neither, or says what cannot be.
#[inline(always)]
fn plain_transport(frame: &[u8], at: usize, protocol: IpProtocol) -> Option<usize> {
    match protocol {
        IpProtocol::UDP => {
            let len = usize::from(u16::from_be_bytes(*chunk(frame, at + udp::at::LEN)?));
            (len >= udp::at::END).then_some(len)
        }
        IpProtocol::TCP => {
            let len = usize::from(frame.get(at + tcp::at::OFFSET)? >> 4) * 4;
            (len >= tcp::at::END).then_some(len)
        }
        _ => None,
    }
}

/// The general case: one step per header, each of which says either where the next begins or that there is none.
struct HeaderParser<'a> {
    frame: &'a [u8],
    /// Where what is looked at ends: the frame, or a session in it.
    wire: usize,
    /// Whether the next tag is the outermost of its Ethernet header.
    first_tag: bool,
    out: Headers,
}

impl<'a> HeaderParser<'a> {
    fn new(frame: &'a [u8], wire_len: u32) -> Self {
        Self { frame, wire: frame.len().max(wire_len as usize), first_tag: true, out: Headers::default() }
    }

    #[inline(never)]
    fn headers(mut self, link_type: u16) -> Headers {
        self.out.bits |= link::index(link_type) << bit::LINK;
        let at = self.link(link_type).and_then(|at| self.below(at));
        if let Some((at, l3)) = at.and_then(|at| Some((at, u8::try_from(at).ok()?))) {
            if at < self.frame.len() {
                self.out.l3 = l3;
            }
            match self.out.ethertype {
                EtherType::IPV4 => _ = self.ipv4(at),
                EtherType::IPV6 => _ = self.ipv6(at),
                _ => (),
            }
        }
        self.out
    }

    /// Looks through all that is below the network layer; what bounds the loop is said in `decode/below.rs`.
    fn below(&mut self, mut at: usize) -> Option<usize> {
        let (mut tags, mut labels) = (0, 0);
        loop {
            at = match self.out.ethertype {
                EtherType::IPV4 | EtherType::IPV6 => return Some(at),
                tag if tag.is_vlan() && tags < vlan::MAX_TAGS => {
                    tags += 1;
                    self.tag(at)?
                }
                label if label.is_mpls() => {
                    let (at, is_bottom) = self.labels(at, &mut labels)?;
                    if !is_bottom {
                        return Some(at);
                    }
                    match shim::under_labels(*self.frame.get(at)?, self.frame, at, self.wire) {
                        LabelPayload::Network(EtherType::MPLS) => return Some(at),
                        LabelPayload::Network(known) => {
                            self.out.ethertype = known;
                            at
                        }
                        LabelPayload::Ethernet(at) => {
                            let head: &[u8; ethernet::at::END] = self.need(at, self.wire)?;
                            self.first_tag = true;
                            self.out.ethertype = EtherType(be16(head, ethernet::at::ETHERTYPE));
                            at + ethernet::at::END
                        }
                    }
                }
                EtherType::PPPOE => match shim::pppoe(self.frame, at, self.wire) {
                    // What is not IP stays a frame of its session.
                    Ok((EtherType(0), ..)) => return Some(at),
                    Ok((inside, at, end)) => {
                        (self.out.ethertype, self.wire) = (inside, end);
                        at
                    }
                    Err(odd) => {
                        if odd.is_malformed() {
                            self.malformed();
                        }
                        return None;
                    }
                },
                length => match shim::snap(length, self.frame, at) {
                    Some((announced, at)) => {
                        self.out.ethertype = announced;
                        at
                    }
                    None => return Some(at),
                },
            };
        }
    }

    /// `N` bytes at `at`, where a header must be that ends by `end` (on the wire). If they are not there, says whether
    /// that is the fault of the capture or of the sender.
    fn need<const N: usize>(&mut self, at: usize, end: usize) -> Option<&'a [u8; N]> {
        if at + N > end {
            self.malformed();
            return None;
        }
        chunk(self.frame, at)
    }

    fn malformed(&mut self) {
        self.out.bits |= bit::MALFORMED;
    }

    fn link(&mut self, link_type: u16) -> Option<usize> {
        let (ethertype, after) = match link_type {
            link::ETHERNET => {
                let head: &[u8; ethernet::at::END] = self.need(0, self.wire)?;
                self.out.bits |= bit::ETHERNET;
                (be16(head, ethernet::at::ETHERTYPE), ethernet::at::END)
            }
            link::RAW_IP | link::RAW_IPV4 | link::RAW_IPV6 => match self.need::<1>(0, self.wire)?[0] >> 4 {
                4 => (EtherType::IPV4.0, 0),
                6 => (EtherType::IPV6.0, 0),
                _ => {
                    self.malformed();
                    return None;
                }
            },
            link::NULL | link::LOOP => {
                let head: &[u8; link::LOOP_LEN] = self.need(0, self.wire)?;
                (link::of_family(*head).0, link::LOOP_LEN)
            }
            link::LINUX_SLL => {
                let head: &[u8; link::SLL_LEN] = self.need(0, self.wire)?;
                (be16(head, link::SLL_PROTOCOL), link::SLL_LEN)
            }
            link::LINUX_SLL2 => {
                let head: &[u8; link::SLL2_LEN] = self.need(0, self.wire)?;
                (be16(head, link::SLL2_PROTOCOL), link::SLL2_LEN)
            }
            _ => return None,
        };
        self.out.ethertype = EtherType(ethertype);
        Some(after)
    }

    fn tag(&mut self, at: usize) -> Option<usize> {
        let tag: &[u8; vlan::at::END] = self.need(at, self.wire)?;
        let here = u8::try_from(at).ok()?;
        if self.out.tags_at == 0 {
            (self.out.tags_at, self.out.vlan) = (here, be16(tag, vlan::at::TCI) & vlan::at::ID_MASK);
        } else if self.first_tag {
            self.out.inner_tags_at = here;
        }
        self.first_tag = false;
        self.out.ethertype = EtherType(be16(tag, vlan::at::ETHERTYPE));
        Some(at + vlan::at::END)
    }

    /// Behind the bottom of the stack, or as far as it is looked through; and which of the two.
    fn labels(&mut self, mut at: usize, labels: &mut usize) -> Option<(usize, bool)> {
        while *labels < mpls::MAX_LABELS {
            *labels += 1;
            let entry: &[u8; mpls::LABEL_LEN] = self.need(at, self.wire)?;
            at += mpls::LABEL_LEN;
            if mpls::Label::from_word(be32(entry, 0)).bottom {
                return Some((at, true));
            }
        }
        Some((at, false))
    }

    fn ipv4(&mut self, at: usize) -> Option<()> {
        let head: &[u8; ipv4::at::END] = self.need(at, self.wire)?;
        let first = head[ipv4::at::VERSION_IHL];
        if first >> 4 != 4 {
            self.malformed();
            return None;
        }
        self.out.family = Family::V4;
        self.out.protocol = IpProtocol(head[ipv4::at::PROTOCOL]);
        self.out.fragment = ipv4::fragment(be16(head, ipv4::at::FRAGMENT));
        let (len, total) = (usize::from(first & 15) * 4, usize::from(be16(head, ipv4::at::TOTAL_LEN)));
        if len < ipv4::at::END {
            self.malformed();
            return None;
        }
        // A frame that the card or kernel merged may be longer than the field can say, and then says 0.
        let end =
            if total == 0 && self.wire - at > usize::from(u16::MAX) { self.wire } else { self.bounded(at, total, len) };
        self.transport(at + len, end)
    }

    fn ipv6(&mut self, at: usize) -> Option<()> {
        let head: &[u8; ipv6::at::END] = self.need(at, self.wire)?;
        if head[ipv6::at::VERSION] >> 4 != 6 {
            self.malformed();
            return None;
        }
        self.out.family = Family::V6;
        self.out.protocol = IpProtocol(head[ipv6::at::NEXT]);
        let mut next = at + ipv6::at::END;
        let end = match usize::from(be16(head, ipv6::at::PAYLOAD_LEN)) {
            // A jumbogram (RFC 2675), or a frame that the card or kernel merged.
            0 if self.out.protocol == IpProtocol::HOP_BY_HOP || self.wire - at > usize::from(u16::MAX) => self.wire,
            len => self.bounded(at, ipv6::at::END + len, ipv6::at::END),
        };
        for _ in 0..ipv6::MAX_EXTENSIONS {
            let kind = self.out.protocol;
            if !kind.is_extension() || self.out.fragment != Fragment::Whole {
                break;
            }
            let ext: &[u8; ipv6::at::EXT_MIN] = self.need(next, end)?;
            let len = ipv6::extension_len(kind, ext[ipv6::at::EXT_LEN]);
            if next + len > end {
                self.malformed();
                return None;
            }
            if kind == IpProtocol::FRAGMENT {
                self.out.fragment = ipv6::fragment(be16(ext, ipv6::at::FRAGMENT));
            }
            self.out.protocol = IpProtocol(ext[ipv6::at::EXT_NEXT]);
            next += len;
        }
        if self.out.protocol.is_extension() {
            return None;
        }
        self.transport(next, end)
    }

    /// Where the packet at `at` ends if its header of `header` bytes says `len`; where the frame ends if that cannot be.
    fn bounded(&mut self, at: usize, len: usize, header: usize) -> usize {
        if len < header || at + len > self.wire {
            self.malformed();
            return self.wire;
        }
        at + len
    }

    fn transport(&mut self, at: usize, end: usize) -> Option<()> {
        if self.out.fragment == Fragment::Later {
            return None;
        }
        let whole = self.out.fragment == Fragment::Whole;
        let least = match self.out.protocol {
            IpProtocol::TCP => tcp::at::END,
            IpProtocol::UDP | IpProtocol::ICMP | IpProtocol::ICMPV6 => udp::at::END,
            IpProtocol::SCTP => crate::sctp::at::END,
            // Of the others we know no least length, only that there is something.
            _ if at >= end => return None,
            _ => 1,
        };
        // The first fragment of a datagram may be shorter than the header, and has ports then if they fit; a whole datagram may not.
        let fits = at + least <= end;
        if !fits {
            if whole {
                self.malformed();
            }
            if whole || !self.out.protocol.has_ports() || at + udp::at::LEN > end {
                return None;
            }
        }
        if at >= self.frame.len() || at > FARTHEST {
            return None;
        }
        self.out.l4 = at as u8;
        let contradicts = match self.out.protocol {
            IpProtocol::TCP => self.frame.get(at + tcp::at::OFFSET).is_some_and(|b| {
                let len = usize::from(b >> 4) * 4;
                len < tcp::at::END || whole && at + len > end
            }),
            IpProtocol::UDP => chunk(self.frame, at + udp::at::LEN).is_some_and(|b| {
                let len = usize::from(u16::from_be_bytes(*b));
                // 0 stands for "longer than the field can say" in a jumbogram.
                let jumbo = len == 0 && end - at > usize::from(u16::MAX);
                !jumbo && (len < udp::at::END || whole && at + len > end)
            }),
            _ => false,
        };
        if contradicts && fits {
            self.malformed();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Frame;
    use base::Prng;

    #[test]
    fn the_common_case_and_the_walk_agree_on_every_value_of_every_header_byte() {
        let udp4 = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2);
        let tcp4 = Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2);
        let (udp6, tcp6) = (Frame::udp6([1; 8], 1, [2; 8], 2), Frame::tcp6([1; 8], 1, [2; 8], 2));
        let frames = [udp4, tcp4, udp6, tcp6, udp4.tag(EtherType::VLAN, 5), tcp4.tag(EtherType::VLAN, 5)];
        let mut short = 0;
        for frame in frames {
            for extra in [0, 6, 200] {
                let mut bytes = vec![0; frame.header_len() + extra];
                frame.fill(&mut bytes);
                for at in 12..frame.header_len() {
                    for value in 0..=255 {
                        let before = std::mem::replace(&mut bytes[at], value);
                        short += compare(&bytes);
                        bytes[at] = before;
                    }
                }
            }
        }
        assert!(short > 10_000, "only {short} frames took the common case");
    }

    #[test]
    fn the_common_case_and_the_walk_agree_on_several_changes_at_once() {
        let seed = testkit::seed("the_common_case_and_the_walk_agree_on_several_changes_at_once");
        let mut prng = Prng::new(seed);
        for round in 0..100_000 {
            let mut bytes = [0; 64];
            Frame::tcp4(1, 2, 3, 4).payload(b"12345").fill(&mut bytes);
            bytes[23] = [6, 17][prng.below(2) as usize];
            for _ in 0..3 {
                bytes[12 + prng.below(36) as usize] = prng.below(80) as u8;
            }
            let cut = prng.below(65) as usize;
            assert!(compare(&bytes[..cut]) < 2, "seed {seed}, round {round}");
        }
    }

    /// Compares both ways and says (as 0 or 1) whether the common case took the frame.
    fn compare(bytes: &[u8]) -> usize {
        let mut taken = 0;
        for wire in [bytes.len() as u32, bytes.len() as u32 + 4] {
            let walked = HeaderParser::new(bytes, wire).headers(link::ETHERNET);
            assert_eq!(Headers::of(bytes, wire, link::ETHERNET), walked, "{bytes:02x?}");
            taken = usize::from(Headers::common(bytes, wire as usize).is_some());
        }
        taken
    }
}
