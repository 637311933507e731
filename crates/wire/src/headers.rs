//! The offsets of the outermost headers of a frame, found in one pass without allocation, for the capture path.
//!
//! Invariants for arbitrary bytes: an offset that is not 0 is inside the captured bytes and is at most 255 (it is one
//! byte in the descriptor of the ring). [`Headers::family`] differs from [`Family::Other`] only if the complete fixed
//! network header was captured. [`Headers::l4`] is 0 for later fragments, which have no transport header.
//!
//! The pass follows VLAN tags, MPLS labels (and after them Ethernet, in a pseudowire), PPPoE sessions, SNAP and the
//! IPv6 extension headers, each up to a limit. It does not enter tunnels. For packets outside tunnels it gives the same
//! offsets as [`crate::Decoded`], so filter, index and meter find the same headers in each packet. The tests compare it
//! with the header views ([`crate::Ipv4`] and others).

use crate::bytes::{be16, be32, chunk};
use crate::shim::{self, LabelPayload};
use crate::{EtherType, Fragment, IpProtocol, ethernet, ipv4, ipv6, mpls, tcp, udp, vlan};

/// The supported link types, by their pcap numbers. A frame of another link type has no headers.
pub mod link {
    /// Ethernet.
    pub const ETHERNET: u16 = 1;
    /// IPv4 or IPv6 without a link header; the version is in the first four bits.
    pub const RAW_IP: u16 = 101;
    /// IPv4 without a link header.
    pub const RAW_IPV4: u16 = 228;
    /// IPv6 without a link header.
    pub const RAW_IPV6: u16 = 229;
    /// BSD loopback: the address family in four bytes of the capturing host's byte order.
    pub const NULL: u16 = 0;
    /// OpenBSD loopback: the address family in four bytes of network byte order.
    pub const LOOP: u16 = 108;
    /// Linux "cooked" capture, 16 bytes, protocol last.
    pub const LINUX_SLL: u16 = 113;
    /// Linux "cooked" capture version 2, 20 bytes, protocol first.
    pub const LINUX_SLL2: u16 = 276;

    /// All supported link types. [`crate::Headers::link`] is an index of this list.
    pub const UNDERSTOOD: [u16; 8] = [ETHERNET, RAW_IP, RAW_IPV4, RAW_IPV6, NULL, LOOP, LINUX_SLL, LINUX_SLL2];

    /// Not a link type: a number that stands for every unsupported link type.
    pub const UNKNOWN: u16 = u16::MAX;

    /// The index in [`UNDERSTOOD`]; the length of this list for unsupported link types.
    pub(crate) const fn index(link_type: u16) -> u8 {
        let mut i = 0;
        while i < UNDERSTOOD.len() && UNDERSTOOD[i] != link_type {
            i += 1;
        }
        i as u8
    }

    /// True for a supported link type.
    pub const fn is_understood(link_type: u16) -> bool {
        (index(link_type) as usize) < UNDERSTOOD.len()
    }

    /// The name of a supported link type.
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

    /// The ethertype for the address family in a loopback header; 0 if the family is not IP. The number of the address
    /// family IPv6 depends on the system: 10 on Linux, 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on Darwin
    /// (pcap-linktype, `LINKTYPE_NULL`).
    pub(crate) fn of_family(head: [u8; LOOP_LEN]) -> crate::EtherType {
        // Address families are small numbers, so the byte order that gives the smaller number is the host's byte order.
        match u32::from_be_bytes(head).min(u32::from_le_bytes(head)) {
            2 => crate::EtherType::IPV4,
            10 | 24 | 28 | 30 => crate::EtherType::IPV6,
            _ => crate::EtherType::default(),
        }
    }
}

/// The protocol of the network layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Another protocol, or IP of which the fixed header was not captured completely.
    #[default]
    Other,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The headers of a frame; made by [`Headers::of`].
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

/// The bits of `Headers::bits`.
mod bit {
    pub const MALFORMED: u8 = 1 << 0;
    pub const ETHERNET: u8 = 1 << 1;
    /// The position of the lowest of the four bits that contain the index of the link type; the index of Ethernet is 0.
    pub const LINK: u32 = 4;
}

const _: () = assert!(link::UNDERSTOOD[0] == link::ETHERNET && link::UNDERSTOOD.len() < 1 << (8 - bit::LINK));

/// The largest offset of a transport header that fits the one-byte field of the descriptor. A transport header at a
/// larger offset is not reported.
const FARTHEST: usize = u8::MAX as usize;

// The longest link header, followed by the largest supported numbers of VLAN tags and MPLS labels, ends before this
// offset. Only nested pseudowires can exceed it.
const _: () = assert!(link::SLL2_LEN + vlan::MAX_TAGS * vlan::at::END + mpls::MAX_LABELS * mpls::LABEL_LEN <= FARTHEST);

/// The ethertype of IPv4 and the first byte of an IPv4 header without options, as three consecutive bytes.
const PLAIN_IPV4: u32 = 0x0008_0045;

impl Headers {
    // PERF: 3.3 ns for UDP over IPv4 (60 B), 4.4 ns with a tag, 3.3 ns over IPv6; 13 ns with the general parser. Least
    // of 400 runs over 1024 frames in cache, on two cores shared with other builds.
    /// Finds the headers of a frame. `frame` is the captured bytes; `wire_len` is the wire length, at least the length
    /// of `frame`.
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

    /// The common cases over Ethernet, each with one bounds check: TCP or UDP over IPv4 without options with at most
    /// one tag, or over IPv6 without extension headers. `None` means that the frame needs the general parser.
    #[inline(always)]
    pub(crate) fn common(frame: &[u8], wire: usize) -> Option<Self> {
        const TYPE: usize = ethernet::at::ETHERTYPE;
        const UNTAGGED: usize = ethernet::at::END;
        const TAGGED: usize = ethernet::at::END + vlan::at::END;
        let head: &[u8; UNTAGGED + ipv4::at::END + udp::at::END] = frame.first_chunk()?;
        // Ethertype, version and IHL are consecutive, so one comparison recognises IPv4 without options.
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

    /// Offset of the network header, for any protocol; 0 if there is no network header, or if the frame is raw IP and
    /// begins with the network header (then [`Headers::family`] is IP).
    #[inline]
    pub const fn l3(&self) -> u8 {
        self.l3
    }

    /// Offset of the transport header; 0 if there is none (a packet that is not IP, or a later fragment), if it was not
    /// captured, or if its offset is above 255. In a first fragment that is shorter than the transport header only the
    /// ports are certain to be present.
    #[inline]
    pub const fn l4(&self) -> u8 {
        self.l4
    }

    /// The protocol of the network layer.
    #[inline]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The protocol above IP. If the parser could not follow the IPv6 extension headers to the end, the number of the
    /// header at which it stopped; for fragments, the protocol in the fragment header.
    #[inline]
    pub const fn protocol(&self) -> Option<IpProtocol> {
        match self.family {
            Family::Other => None,
            Family::V4 | Family::V6 => Some(self.protocol),
        }
    }

    /// The fragmentation state.
    #[inline]
    pub const fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// The ethertype below all tags, labels and sessions; 0 if there is none. If a PPPoE session does not carry IP, the
    /// ethertype of PPPoE; if the payload of MPLS labels is unknown, the ethertype of MPLS.
    #[inline]
    pub const fn ethertype(&self) -> EtherType {
        self.ethertype
    }

    /// The ID of the outermost VLAN tag, which may be inside a pseudowire.
    #[inline]
    pub const fn vlan(&self) -> Option<u16> {
        if self.tags_at != 0 { Some(self.vlan) } else { None }
    }

    /// True if the packet ends within a header, the length in a PPPoE, IP, IPv6 extension, TCP or UDP header is below
    /// its minimum or beyond the end of the enclosing packet, or the IP version is not that of the ethertype.
    /// Truncation by the capture is no contradiction.
    #[inline]
    pub const fn malformed(&self) -> bool {
        self.bits & bit::MALFORMED != 0
    }

    /// The index of the link type in [`link::UNDERSTOOD`]; the length of this list for unsupported link types.
    #[inline]
    pub const fn link(&self) -> usize {
        (self.bits >> bit::LINK) as usize
    }

    /// True if the frame begins with a whole Ethernet header.
    #[inline]
    pub const fn is_ethernet(&self) -> bool {
        self.bits & bit::ETHERNET != 0
    }

    /// The IDs of the VLAN tags, outer first: those of the outermost Ethernet header with tags, then the innermost. The
    /// function reads them from the frame again, because few frames have two tags.
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

    /// Source and destination port as one 32-bit number, source port first; `None` if the protocol has no ports, if
    /// they were not captured, or for later fragments.
    #[inline]
    pub(crate) fn port_word(&self, frame: &[u8]) -> Option<u32> {
        if self.l4 == 0 || !self.protocol.has_ports() {
            return None;
        }
        chunk(frame, usize::from(self.l4)).map(|b| u32::from_be_bytes(*b))
    }
}

/// The length in bytes that a TCP header or a UDP datagram states; `None` for other protocols and for impossible
/// lengths.
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

/// The general parser: one step per header. Each step returns the offset of the next header, or `None` if there is
/// none.
struct HeaderParser<'a> {
    frame: &'a [u8],
    /// End of the current layer on the wire: the end of the frame, or of a PPPoE session in the frame.
    wire: usize,
    /// True if the next tag is the outermost of its Ethernet header.
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

    /// Follows all headers below the network layer. `decode/link_layer.rs` explains why the loop ends.
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
                    // If the PPPoE session does not carry IP, the ethertype remains that of PPPoE.
                    Ok((EtherType(0), ..)) => return Some(at),
                    Ok((inside, at, end)) => {
                        (self.out.ethertype, self.wire) = (inside, end);
                        at
                    }
                    Err(error) => {
                        if error.is_malformed() {
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

    /// `N` bytes of a header at `at`, which must end by `end` (on the wire). If they are missing, marks the frame as
    /// malformed when the packet ends there, and as truncated when only the capture ends there.
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

    /// The offset after the last label that the parser follows, and true if that label is the bottom of the stack.
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
        // A frame that the NIC or the kernel merged may be too long for the total length field, which is then 0.
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
            // The payload length is 0 in a jumbogram (RFC 2675) and in a frame that the NIC or the kernel merged.
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

    /// The end of the packet at `at` whose header of `header` bytes states the length `len`; the end of the frame if
    /// the length is impossible.
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
            // For other transport protocols the minimum header length is unknown; at least one byte must be present.
            _ if at >= end => return None,
            _ => 1,
        };
        // A datagram that is shorter than the transport header is malformed; its first fragment alone may be shorter,
        // and has ports if they fit.
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
                // A UDP length of 0 in a jumbogram means that the datagram is too long for the length field.
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
    fn the_common_case_and_the_general_parser_agree_on_every_value_of_every_header_byte() {
        let udp4 = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2);
        let tcp4 = Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2);
        let (udp6, tcp6) = (Frame::udp6([1; 8], 1, [2; 8], 2), Frame::tcp6([1; 8], 1, [2; 8], 2));
        let frames = [udp4, tcp4, udp6, tcp6, udp4.tag(EtherType::VLAN, 5), tcp4.tag(EtherType::VLAN, 5)];
        let mut accepted = 0;
        for frame in frames {
            for extra in [0, 6, 200] {
                let mut bytes = vec![0; frame.header_len() + extra];
                frame.fill(&mut bytes);
                for at in 12..frame.header_len() {
                    for value in 0..=255 {
                        let before = std::mem::replace(&mut bytes[at], value);
                        accepted += compare(&bytes);
                        bytes[at] = before;
                    }
                }
            }
        }
        assert!(accepted > 10_000, "the common case accepted only {accepted} frames");
    }

    #[test]
    fn the_common_case_and_the_general_parser_agree_on_several_changes_at_once() {
        let seed = testkit::seed("the_common_case_and_the_general_parser_agree_on_several_changes_at_once");
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

    /// Parses a frame with the common case and with the general parser, compares the results, and returns 1 if the
    /// common case accepted the frame, else 0.
    fn compare(bytes: &[u8]) -> usize {
        let mut accepted = 0;
        for wire in [bytes.len() as u32, bytes.len() as u32 + 4] {
            let general = HeaderParser::new(bytes, wire).headers(link::ETHERNET);
            assert_eq!(Headers::of(bytes, wire, link::ETHERNET), general, "{bytes:02x?}");
            accepted = usize::from(Headers::common(bytes, wire as usize).is_some());
        }
        accepted
    }
}
