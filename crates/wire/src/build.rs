//! Frames with correct lengths and checksums, for tests, the simulator and the generator.
//!
//! A [`Frame`] is a description of a frame. [`Frame::write`] encodes it with its natural length, [`Frame::fill`] with
//! the length of the buffer. Both are deterministic and allocate nothing. To build a tunnel packet, build the inner
//! frame first: a header of [`tunnel`] and the inner frame are the payload of the outer frame.
//!
//! ```
//! use netgrain_wire::{Ipv4, Udp, build::Frame};
//! let mut buffer = [0; 128];
//! let frame = Frame::udp4([10, 0, 0, 1], 4000, [10, 0, 0, 2], 53).payload(b"hello").write(&mut buffer).unwrap();
//! assert_eq!(Ipv4::parse(frame, 14).unwrap().dst().octets(), [10, 0, 0, 2]);
//! assert_eq!(Udp::parse(frame, 34).unwrap().payload(), b"hello");
//! ```

pub mod tunnel;

use crate::checksum::Checksum;
use crate::{EtherType, IpProtocol, MacAddr, ethernet, icmp, ipv4, ipv6, mpls, tcp, udp, vlan};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum number of VLAN tags, and of MPLS labels, of one frame.
pub const MAX_STACK: usize = 4;

/// Maximum length in bytes of the options of IPv4 and of TCP.
pub const MAX_OPTIONS: usize = 40;

/// The description of a frame. Begin with [`Frame::udp4`] or a similar constructor, then change the fields that differ
/// from its defaults.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    link: Option<(MacAddr, MacAddr)>,
    tags: Stack<(EtherType, u16)>,
    labels: Stack<u32>,
    network: Network<'a>,
    transport: Transport<'a>,
    hops: u8,
    payload: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Network<'a> {
    None(EtherType),
    V4 { src: Ipv4Addr, dst: Ipv4Addr, id: u16, fragment: u16, options: &'a [u8] },
    V6 { src: Ipv6Addr, dst: Ipv6Addr, extensions: &'a [(IpProtocol, &'a [u8])] },
}

#[derive(Clone, Copy, Debug)]
enum Transport<'a> {
    None(IpProtocol),
    Udp { src: u16, dst: u16 },
    Tcp { src: u16, dst: u16, flags: u8, seq: u32, ack: u32, options: &'a [u8] },
    Icmp { v6: bool, kind: u8, code: u8, rest: [u8; 4] },
}

/// The buffer is shorter than the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferTooSmall {
    /// Length of the frame in bytes.
    pub need: usize,
    /// Length of the buffer in bytes.
    pub have: usize,
}

impl fmt::Display for BufferTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the frame needs {} bytes, the buffer has {}", self.need, self.have)
    }
}

impl std::error::Error for BufferTooSmall {}

impl<'a> Frame<'a> {
    const MACS: (MacAddr, MacAddr) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));

    const fn new(network: Network<'a>, transport: Transport<'a>) -> Self {
        let (tags, labels) = (Stack::new((EtherType::VLAN, 0)), Stack::new(0));
        Self { link: Some(Self::MACS), tags, labels, network, transport, hops: 64, payload: &[] }
    }

    /// An Ethernet frame with this ethertype.
    pub const fn ethernet(ethertype: EtherType) -> Self {
        Self::new(Network::None(ethertype), Transport::None(IpProtocol::NONE))
    }

    /// An IPv4 packet with this protocol number, in Ethernet.
    pub fn ip4(src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>, protocol: IpProtocol) -> Self {
        Self::new(Self::v4(src, dst), Transport::None(protocol))
    }

    /// An IPv6 packet with this protocol number, in Ethernet.
    pub fn ip6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>, protocol: IpProtocol) -> Self {
        Self::new(Self::v6(src, dst), Transport::None(protocol))
    }

    /// UDP over IPv4.
    pub fn udp4(src: impl Into<Ipv4Addr>, src_port: u16, dst: impl Into<Ipv4Addr>, dst_port: u16) -> Self {
        Self::new(Self::v4(src, dst), Transport::Udp { src: src_port, dst: dst_port })
    }

    /// UDP over IPv6.
    pub fn udp6(src: impl Into<Ipv6Addr>, src_port: u16, dst: impl Into<Ipv6Addr>, dst_port: u16) -> Self {
        Self::new(Self::v6(src, dst), Transport::Udp { src: src_port, dst: dst_port })
    }

    /// TCP over IPv4, with the ACK flag.
    pub fn tcp4(src: impl Into<Ipv4Addr>, src_port: u16, dst: impl Into<Ipv4Addr>, dst_port: u16) -> Self {
        Self::new(Self::v4(src, dst), Self::plain_tcp(src_port, dst_port))
    }

    /// TCP over IPv6, with the ACK flag.
    pub fn tcp6(src: impl Into<Ipv6Addr>, src_port: u16, dst: impl Into<Ipv6Addr>, dst_port: u16) -> Self {
        Self::new(Self::v6(src, dst), Self::plain_tcp(src_port, dst_port))
    }

    /// ICMP over IPv4; `rest` is the last four bytes of the header, which depend on the type.
    pub fn icmp4(src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>, kind: u8, code: u8, rest: [u8; 4]) -> Self {
        Self::new(Self::v4(src, dst), Transport::Icmp { v6: false, kind, code, rest })
    }

    /// ICMPv6; `rest` is the last four bytes of the header, which depend on the type.
    pub fn icmp6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>, kind: u8, code: u8, rest: [u8; 4]) -> Self {
        Self::new(Self::v6(src, dst), Transport::Icmp { v6: true, kind, code, rest })
    }

    fn v4(src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> Network<'a> {
        Network::V4 { src: src.into(), dst: dst.into(), id: 0, fragment: ipv4::at::DONT_FRAGMENT, options: &[] }
    }

    fn v6(src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> Network<'a> {
        Network::V6 { src: src.into(), dst: dst.into(), extensions: &[] }
    }

    const fn plain_tcp(src: u16, dst: u16) -> Transport<'a> {
        Transport::Tcp { src, dst, flags: tcp::flags::ACK, seq: 0, ack: 0, options: &[] }
    }

    /// Sets the MAC addresses.
    #[must_use]
    pub const fn macs(mut self, src: MacAddr, dst: MacAddr) -> Self {
        self.link = Some((src, dst));
        self
    }

    /// Removes the link header, tags and labels: the frame has link type 101.
    #[must_use]
    pub const fn raw(mut self) -> Self {
        self.link = None;
        self
    }

    /// Adds a VLAN tag. The first tag added is the outermost.
    ///
    /// # Panics
    /// Beyond [`MAX_STACK`] tags.
    #[must_use]
    pub fn tag(mut self, tpid: EtherType, tci: u16) -> Self {
        self.tags.push((tpid, tci));
        self
    }

    /// Adds an MPLS label (20 bits). The first label added is the top of the stack.
    ///
    /// # Panics
    /// Beyond [`MAX_STACK`] labels.
    #[must_use]
    pub fn label(mut self, label: u32) -> Self {
        self.labels.push(label);
        self
    }

    /// Sets the TTL or hop limit; the default is 64.
    #[must_use]
    pub const fn hops(mut self, hops: u8) -> Self {
        self.hops = hops;
        self
    }

    /// Sets the IPv4 options, padded with zeros to a multiple of 4 bytes. No effect on other frames.
    ///
    /// # Panics
    /// Beyond [`MAX_OPTIONS`] bytes.
    #[must_use]
    pub fn ip_options(mut self, bytes: &'a [u8]) -> Self {
        assert!(bytes.len() <= MAX_OPTIONS, "{} bytes of options, at most {MAX_OPTIONS} fit", bytes.len());
        if let Network::V4 { options, .. } = &mut self.network {
            *options = bytes;
        }
        self
    }

    /// Makes the packet the fragment at byte `offset` (a multiple of 8) of the IPv4 datagram `id`. No effect on other
    /// frames.
    #[must_use]
    pub const fn fragment(mut self, identification: u16, offset: u16, more: bool) -> Self {
        if let Network::V4 { id, fragment, .. } = &mut self.network {
            *id = identification;
            *fragment = (offset / 8) | if more { ipv4::at::MORE_FRAGMENTS } else { 0 };
        }
        self
    }

    /// Sets the IPv6 extension headers, each given by its number and its bytes from the third byte on, padded with
    /// zeros to a multiple of 8. A fragment header has the bytes `[offset, offset | more, id, id, id, id]`. No effect
    /// on other frames.
    #[must_use]
    pub const fn extensions(mut self, headers: &'a [(IpProtocol, &'a [u8])]) -> Self {
        if let Network::V6 { extensions, .. } = &mut self.network {
            *extensions = headers;
        }
        self
    }

    /// Sets the TCP flags, sequence number and acknowledgement number. No effect on other frames.
    #[must_use]
    pub const fn tcp(mut self, new_flags: u8, new_seq: u32, new_ack: u32) -> Self {
        if let Transport::Tcp { flags, seq, ack, .. } = &mut self.transport {
            (*flags, *seq, *ack) = (new_flags, new_seq, new_ack);
        }
        self
    }

    /// Sets the TCP options, padded with zeros to a multiple of 4 bytes. No effect on other frames.
    ///
    /// # Panics
    /// Beyond [`MAX_OPTIONS`] bytes.
    #[must_use]
    pub fn tcp_options(mut self, bytes: &'a [u8]) -> Self {
        assert!(bytes.len() <= MAX_OPTIONS, "{} bytes of options, at most {MAX_OPTIONS} fit", bytes.len());
        if let Transport::Tcp { options, .. } = &mut self.transport {
            *options = bytes;
        }
        self
    }

    /// Sets the payload after all headers.
    #[must_use]
    pub const fn payload(mut self, bytes: &'a [u8]) -> Self {
        self.payload = bytes;
        self
    }

    /// Length of all headers in bytes, which is the offset of the payload.
    pub fn header_len(&self) -> usize {
        self.link_len() + self.network_len() + self.transport_len()
    }

    /// Writes the frame to the beginning of `out` and returns it.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; nothing was written then.
    pub fn write<'b>(&self, out: &'b mut [u8]) -> Result<&'b [u8], BufferTooSmall> {
        let need = self.header_len() + self.payload.len();
        let have = out.len();
        let out = out.get_mut(..need).ok_or(BufferTooSmall { need, have })?;
        Ok(self.fill(out))
    }

    /// Writes a frame of exactly the length of `out` and returns it. The payload is truncated, or padded with zeros
    /// that count as payload. If `out` is too short for all headers, the result is an Ethernet header of the
    /// experimental ethertype (truncated below 14 bytes) and zeros. If the packet is too long for the length field of
    /// its IP header, the field is 0, as in frames that the kernel merged (GRO).
    pub fn fill<'b>(&self, out: &'b mut [u8]) -> &'b [u8] {
        out.fill(0);
        if out.len() < self.header_len() {
            let (src, dst) = self.link.unwrap_or(Self::MACS);
            let mut head = [0; ethernet::at::END];
            write_ethernet(&mut head, src, dst, EtherType::EXPERIMENTAL);
            let n = out.len().min(head.len());
            out[..n].copy_from_slice(&head[..n]);
            return out;
        }
        let (link, packet) = out.split_at_mut(self.link_len());
        self.write_link(link);
        let (network, segment) = packet.split_at_mut(self.network_len());
        self.write_network(network, segment.len());
        let (transport, payload) = segment.split_at_mut(self.transport_len());
        let n = self.payload.len().min(payload.len());
        payload[..n].copy_from_slice(&self.payload[..n]);
        self.write_transport(transport, payload);
        out
    }

    fn link_len(&self) -> usize {
        match self.link {
            Some(_) => ethernet::at::END + self.tags.len * vlan::at::END + self.labels.len * mpls::LABEL_LEN,
            None => 0,
        }
    }

    fn network_len(&self) -> usize {
        match self.network {
            Network::None(_) => 0,
            Network::V4 { options, .. } => ipv4::at::END + options.len().next_multiple_of(4),
            Network::V6 { extensions, .. } => {
                ipv6::at::END + extensions.iter().map(|(_, body)| padded_extension(body)).sum::<usize>()
            }
        }
    }

    const fn transport_len(&self) -> usize {
        match self.transport {
            Transport::None(_) => 0,
            Transport::Udp { .. } => udp::at::END,
            Transport::Tcp { options, .. } => tcp::at::END + options.len().next_multiple_of(4),
            Transport::Icmp { .. } => icmp::at::END,
        }
    }

    const fn protocol(&self) -> IpProtocol {
        match self.transport {
            Transport::None(protocol) => protocol,
            Transport::Udp { .. } => IpProtocol::UDP,
            Transport::Tcp { .. } => IpProtocol::TCP,
            Transport::Icmp { v6: false, .. } => IpProtocol::ICMP,
            Transport::Icmp { v6: true, .. } => IpProtocol::ICMPV6,
        }
    }

    fn write_link(&self, out: &mut [u8]) {
        let Some((src, dst)) = self.link else { return };
        let network = match self.network {
            Network::None(ethertype) => ethertype,
            Network::V4 { .. } => EtherType::IPV4,
            Network::V6 { .. } => EtherType::IPV6,
        };
        let inner = if self.labels.len > 0 { EtherType::MPLS } else { network };
        // Each ethertype announces the next header, so the ethertype that announces a tag is in the header before the
        // tag.
        let mut types = self.tags.items().iter().map(|(tpid, _)| *tpid).chain([inner]);
        let mut next = || types.next().unwrap_or(inner);
        let (head, mut rest) = out.split_at_mut(ethernet::at::END);
        write_ethernet(head, src, dst, next());
        for (_, tci) in self.tags.items() {
            let (tag, after) = rest.split_at_mut(vlan::at::END);
            put16(tag, vlan::at::TCI, *tci);
            put16(tag, vlan::at::ETHERTYPE, next().0);
            rest = after;
        }
        for (i, label) in self.labels.items().iter().enumerate() {
            let bottom = u32::from(i + 1 == self.labels.len);
            put32(rest, i * mpls::LABEL_LEN, label << 12 | bottom << 8 | u32::from(self.hops));
        }
    }

    fn write_network(&self, out: &mut [u8], segment: usize) {
        match self.network {
            Network::None(_) => (),
            Network::V4 { src, dst, id, fragment, options } => {
                out[ipv4::at::VERSION_IHL] = 0x40 | (out.len() / 4) as u8;
                put16(out, ipv4::at::TOTAL_LEN, or_zero(out.len() + segment));
                put16(out, ipv4::at::ID, id);
                put16(out, ipv4::at::FRAGMENT, fragment);
                out[ipv4::at::TTL] = self.hops;
                out[ipv4::at::PROTOCOL] = self.protocol().0;
                out[ipv4::at::SRC..ipv4::at::DST].copy_from_slice(&src.octets());
                out[ipv4::at::DST..ipv4::at::END].copy_from_slice(&dst.octets());
                out[ipv4::at::END..][..options.len()].copy_from_slice(options);
                put16(out, ipv4::at::CHECKSUM, crate::checksum(out));
            }
            Network::V6 { src, dst, extensions } => {
                let mut kinds = extensions.iter().map(|(kind, _)| *kind).chain([self.protocol()]);
                let mut next = || kinds.next().unwrap_or(IpProtocol::NONE).0;
                out[ipv6::at::VERSION] = 0x60;
                put16(out, ipv6::at::PAYLOAD_LEN, or_zero(out.len() - ipv6::at::END + segment));
                out[ipv6::at::NEXT] = next();
                out[ipv6::at::HOPS] = self.hops;
                out[ipv6::at::SRC..ipv6::at::DST].copy_from_slice(&src.octets());
                out[ipv6::at::DST..ipv6::at::END].copy_from_slice(&dst.octets());
                let mut rest = &mut out[ipv6::at::END..];
                for (kind, body) in extensions {
                    let (ext, after) = rest.split_at_mut(padded_extension(body));
                    ext[ipv6::at::EXT_NEXT] = next();
                    ext[ipv6::at::EXT_LEN] = match *kind {
                        IpProtocol::FRAGMENT => 0,
                        IpProtocol::AH => (ext.len() / 4 - 2) as u8,
                        _ => (ext.len() / 8 - 1) as u8,
                    };
                    ext[2..][..body.len()].copy_from_slice(body);
                    rest = after;
                }
            }
        }
    }

    fn write_transport(&self, out: &mut [u8], payload: &[u8]) {
        let length = out.len() + payload.len();
        let at = match self.transport {
            Transport::None(_) => return,
            Transport::Udp { src, dst } => {
                put16(out, udp::at::SRC, src);
                put16(out, udp::at::DST, dst);
                put16(out, udp::at::LEN, or_zero(length));
                udp::at::CHECKSUM
            }
            Transport::Tcp { src, dst, flags, seq, ack, options } => {
                put16(out, tcp::at::SRC, src);
                put16(out, tcp::at::DST, dst);
                put32(out, tcp::at::SEQ, seq);
                put32(out, tcp::at::ACK, ack);
                out[tcp::at::OFFSET] = ((out.len() / 4) << 4) as u8;
                out[tcp::at::FLAGS] = flags;
                put16(out, tcp::at::WINDOW, u16::MAX);
                out[tcp::at::END..][..options.len()].copy_from_slice(options);
                tcp::at::CHECKSUM
            }
            Transport::Icmp { kind, code, rest, .. } => {
                out[icmp::at::TYPE] = kind;
                out[icmp::at::CODE] = code;
                out[icmp::at::REST..].copy_from_slice(&rest);
                icmp::at::CHECKSUM
            }
        };
        let sum = self.pseudo_header(length).bytes(out).bytes(payload).finish();
        // In UDP a checksum of 0 means "no checksum" (RFC 768); 0xffff is the other representation of zero.
        put16(out, at, if sum == 0 && matches!(self.transport, Transport::Udp { .. }) { 0xffff } else { sum });
    }

    /// The sum of the pseudo header (RFC 9293 §3.1, RFC 8200 §8.1); zero for ICMP over IPv4, which has none.
    fn pseudo_header(&self, length: usize) -> Checksum {
        let protocol = u16::from(self.protocol().0);
        let length = Checksum::new().bytes(&(length as u32).to_be_bytes());
        match self.network {
            Network::V4 { src, dst, .. } if !matches!(self.transport, Transport::Icmp { .. }) => {
                length.word(protocol).bytes(&src.octets()).bytes(&dst.octets())
            }
            Network::V6 { src, dst, .. } => length.word(protocol).bytes(&src.octets()).bytes(&dst.octets()),
            Network::V4 { .. } | Network::None(_) => Checksum::new(),
        }
    }
}

/// A list with a small fixed capacity, without allocation.
#[derive(Clone, Copy, Debug)]
struct Stack<T> {
    items: [T; MAX_STACK],
    len: usize,
}

impl<T: Copy> Stack<T> {
    const fn new(filler: T) -> Self {
        Self { items: [filler; MAX_STACK], len: 0 }
    }

    fn push(&mut self, item: T) {
        assert!(self.len < MAX_STACK, "a frame has at most {MAX_STACK} tags and {MAX_STACK} labels");
        self.items[self.len] = item;
        self.len += 1;
    }

    fn items(&self) -> &[T] {
        &self.items[..self.len]
    }
}

fn write_ethernet(out: &mut [u8], src: MacAddr, dst: MacAddr, ethertype: EtherType) {
    out[ethernet::at::DST..ethernet::at::SRC].copy_from_slice(&dst.0);
    out[ethernet::at::SRC..ethernet::at::ETHERTYPE].copy_from_slice(&src.0);
    put16(out, ethernet::at::ETHERTYPE, ethertype.0);
}

const fn padded_extension(body: &[u8]) -> usize {
    (body.len() + 2).next_multiple_of(8)
}

fn or_zero(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(0)
}

fn put16(out: &mut [u8], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn put32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
