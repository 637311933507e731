//! Provides the parts of a frame that programs read: its bytes, its outermost IP packet and its innermost IP packet.

use crate::case::Packet;
use std::net::IpAddr;
use wire::{Decoded, Family, FlowKey, Fragment, Headers, IpProtocol, Port};

/// The parts of a frame that programs read.
pub(super) struct View<'a> {
    pub bytes: &'a [u8],
    /// Bytes on the wire.
    pub len: u32,
    /// Number of tunnels that enclose the innermost packet.
    pub tunnels: u8,
    /// VLAN ID of the outermost tag.
    pub vlan: Option<u16>,
    /// Source and destination MAC address of an Ethernet frame.
    pub macs: Option<[[u8; 6]; 2]>,
    pub outer: Layer,
    pub inner: Layer,
    /// Type and offset of the outermost IP packet that is a fragment; tunnelled packets are included.
    pub part: (Fragment, usize),
}

/// The ethertype and the IP header of the outermost or of the innermost packet.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    /// The ethertype; `None` if there is none, as in a frame of link type RAW that does not begin with IP.
    pub ethertype: Option<u16>,
    pub ip: Option<Ip>,
}

/// An IP packet whose fixed header was captured completely.
#[derive(Clone, Copy)]
pub(super) struct Ip {
    /// 4 or 6.
    pub version: u8,
    /// Offset of the IP header from the start of the frame.
    pub at: usize,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: u8,
    pub part: Fragment,
    /// Offset of the transport header, if it was captured; `None` in later fragments.
    pub above: Option<usize>,
}

impl<'a> View<'a> {
    pub fn of(packet: &'a Packet, link_type: u16) -> Self {
        let bytes = &packet.bytes[..];
        let len = packet.facts.wire_len.max(bytes.len() as u32);
        let headers = Headers::of(bytes, len, link_type);
        let (decoded, part) = Decoded::with_fragments(bytes, len, link_type);
        let found = |family, at: u16, protocol: Option<IpProtocol>, part, above: u16| {
            let above = (above > 0 && part != Fragment::Later).then_some(above.into());
            ip(bytes, family, at.into(), protocol?.0, part, above)
        };
        let some = |n: u16| (n > 0).then_some(n);
        let h = &headers;
        let outer = Layer {
            ethertype: some(h.ethertype().0),
            ip: found(h.family(), h.l3().into(), h.protocol(), h.fragment(), h.l4().into()),
        };
        let d = &decoded;
        let inner =
            Layer { ethertype: some(d.ethertype.0), ip: found(d.family, d.l3, Some(d.protocol), d.fragment, d.l4) };
        // Even without a tunnel there can be an inner packet and no outer packet: the decoder of the inner packet skips
        // more headers than the parser of the outer packet.
        let is_other = d.depth > 0 || outer.ip.is_none() && inner.ip.is_some();
        let macs = bytes.first_chunk::<12>().filter(|_| h.is_ethernet()).map(|b| {
            let mac = |at: usize| std::array::from_fn(|i| b[at + i]);
            [mac(6), mac(0)]
        });
        let of_outer = outer.ip.map_or((Fragment::Whole, 0), |ip| (ip.part, ip.at));
        let (inner, part) = if is_other { (inner, (part.fragment, part.l3.into())) } else { (outer, of_outer) };
        Self { bytes, len, tunnels: d.depth, vlan: h.vlan(), macs, outer, inner, part }
    }

    /// The number in `size` bytes at an offset of the frame, in network byte order.
    pub fn number(&self, at: usize, size: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at + size)?;
        Some(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// The number in `size` bytes at an offset from the start of the transport header.
    pub fn above(&self, ip: &Ip, at: usize, size: usize) -> Option<u64> {
        self.number(ip.above? + at, size)
    }

    /// The ports that predicates test. Only TCP, UDP and SCTP packets have ports, including first fragments of such
    /// packets.
    pub fn ports(&self, ip: &Ip) -> Option<[u16; 2]> {
        let has = matches!(ip.protocol, 6 | 17 | 132);
        let [src, dst] = [self.above(ip, 0, 2), self.above(ip, 2, 2)];
        has.then_some([src? as u16, dst? as u16])
    }

    /// The ports that are used in flow keys. For protocols without ports and for later fragments, the ports are 0.
    pub fn flow_ports(&self, ip: &Ip) -> [u16; 2] {
        let counts = IpProtocol(ip.protocol).has_ports();
        match [self.above(ip, 0, 2), self.above(ip, 2, 2)] {
            [Some(src), Some(dst)] if counts => [src as u16, dst as u16],
            _ => [0; 2],
        }
    }

    /// The flow key that the flow hash uses.
    pub fn flow(&self, ip: &Ip) -> FlowKey {
        let [src_port, dst_port] = self.flow_ports(ip).map(Port);
        FlowKey { src: ip.src, dst: ip.dst, src_port, dst_port, protocol: IpProtocol(ip.protocol) }
    }
}

/// The IP packet at offset `at`, if its addresses were captured.
pub(super) fn ip(
    bytes: &[u8],
    family: Family,
    at: usize,
    protocol: u8,
    part: Fragment,
    above: Option<usize>,
) -> Option<Ip> {
    let four = |at: usize| bytes.get(at..)?.first_chunk::<4>().map(|b| IpAddr::from(*b));
    let six = |at: usize| bytes.get(at..)?.first_chunk::<16>().map(|b| IpAddr::from(*b));
    let (version, src, dst) = match family {
        Family::Other => return None,
        Family::V4 => (4, four(at + 12)?, four(at + 16)?),
        Family::V6 => (6, six(at + 8)?, six(at + 24)?),
    };
    Some(Ip { version, at, src, dst, protocol, part, above })
}
