//! The result of decoding a frame.

use super::error::DecodeError;
use crate::bytes::chunk;
use crate::{EtherType, Family, FlowKey, Fragment, IpProtocol, Port, ipv4, ipv6};
use std::net::IpAddr;

/// The largest number of nested tunnels that the decoder enters. A packet inside more than four tunnels belongs to the
/// flow of the packet in the fourth tunnel.
pub const MAX_TUNNELS: u8 = 4;

/// The protocol of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TunnelKind {
    /// GRE (RFC 2784, 2890, 8086), also the GRE of PPTP (RFC 2637); the id is the key (PPTP: the call ID), or 0 without
    /// key.
    Gre = 1,
    /// NVGRE (RFC 7637): GRE with Ethernet as payload and the key as its only optional field; the id is the VSID.
    Nvgre,
    /// ERSPAN type I, which has neither a session ID nor a sequence number.
    Erspan1,
    /// ERSPAN type II; the id is the session ID, the sequence number is that of GRE.
    Erspan2,
    /// ERSPAN type III; id and sequence number as in type II.
    Erspan3,
    /// VXLAN (RFC 7348), also with the group policy extension or VXLAN-GPE (Internet drafts); the id is the VNI.
    Vxlan,
    /// GENEVE (RFC 8926); the id is the VNI.
    Geneve,
    /// GTP-U (3GPP TS 29.281); the id is the TEID, which differs between the two directions.
    GtpU,
    /// IPv4 or IPv6 in IPv4 or IPv6 (RFC 2003, 2473, 4213).
    IpInIp,
    /// Teredo (RFC 4380).
    Teredo,
}

impl TunnelKind {
    /// All tunnel kinds, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Gre,
        Self::Nvgre,
        Self::Erspan1,
        Self::Erspan2,
        Self::Erspan3,
        Self::Vxlan,
        Self::Geneve,
        Self::GtpU,
        Self::IpInIp,
        Self::Teredo,
    ];
}

/// The identity of the innermost tunnel around a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The protocol of the tunnel.
    pub kind: TunnelKind,
    /// VNI, VSID, TEID, session ID or key, depending on the kind; 0 if the tunnel header has none.
    pub id: u32,
    /// The sequence number of this packet in the tunnel, if present: 32 bits in GRE and ERSPAN, 16 bits in GTP-U.
    pub sequence: Option<u32>,
    /// Offset of the outer network header, which carries the tunnel.
    pub outer_l3: u16,
}

/// The fragmentation state of a packet or of an outer packet around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentKey {
    /// The fragmentation state: whole packet, first fragment or later fragment.
    pub fragment: Fragment,
    /// Offset of the network header of the fragmented packet.
    pub l3: u16,
}

/// The offsets and fields of the innermost headers of a frame, with its encapsulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Offset of the inner Ethernet header; `None` if the innermost packet has no Ethernet header.
    pub l2: Option<u16>,
    /// Offset of the inner network header.
    pub l3: u16,
    /// Offset of the inner transport header; 0 if there is no such header or it was not captured.
    pub l4: u16,
    /// Offset of the payload of the transport header; 0 if it is unknown or no byte of it was captured. For later
    /// fragments and for protocols that the decoder does not support, the offset of the payload of IP.
    pub payload: u16,
    /// Number of bytes of the payload on the wire.
    pub payload_len: u32,
    /// Number of bytes of the inner IP packet on the wire, header included; 0 if the packet is not IP.
    pub ip_len: u32,
    /// The protocol of the inner network header.
    pub family: Family,
    /// The protocol above the inner IP.
    pub protocol: IpProtocol,
    /// The fragmentation state: whole packet, first fragment or later fragment.
    pub fragment: Fragment,
    /// The innermost ethertype.
    pub ethertype: EtherType,
    /// Source port; the type of ICMP and ICMPv6; 0 if there is none. [`crate::Fragments`] sets the ports of later
    /// fragments.
    pub src_port: Port,
    /// Destination port; the code of ICMP and ICMPv6; 0 if there is none.
    pub dst_port: Port,
    /// Ids of the two outermost VLAN tags of the innermost Ethernet header that has VLAN tags, outer first.
    pub vlans: [Option<u16>; 2],
    /// The topmost label of the innermost MPLS label stack.
    pub mpls: Option<u32>,
    /// The innermost tunnel around the flow.
    pub tunnel: Option<Tunnel>,
    /// The number of tunnels around the flow.
    pub depth: u8,
    /// True for the common case: TCP or UDP, not fragmented, over IPv4 without options, not in a tunnel, with the
    /// transport header 20 bytes after [`Decoded::l3`]. The value follows from the other fields; this field replaces
    /// six comparisons by one.
    pub is_common_case: bool,
    /// True if the packet ends within a header, the length in a PPPoE, IP, IPv6 extension, TCP or UDP header is below
    /// its minimum or beyond the end of the enclosing packet, or the IP version is not that of the ethertype.
    /// Truncation by the capture is no contradiction.
    pub malformed: bool,
    /// The reason why the frame was not decoded to its transport header.
    pub error: Option<DecodeError>,
}

// `Decoded` fits one cache line, because the meter reads all fields for each packet.
const _: () = assert!(size_of::<Decoded>() <= 64);

impl Decoded {
    /// The value of the field [`Decoded::is_common_case`] that follows from the other fields, for code that changes
    /// them.
    pub fn is_common_case(&self) -> bool {
        self.family == Family::V4
            && u32::from(self.l4) == u32::from(self.l3) + ipv4::at::END as u32
            && self.fragment == Fragment::Whole
            && self.tunnel.is_none()
            && matches!(self.protocol, IpProtocol::TCP | IpProtocol::UDP)
    }

    /// False if no tunnel around the packet has sequence numbers. If the result is true, `numbered_tunnels` gives the
    /// exact result for all tunnels, also for tunnels that the decoder did not enter. The function recognises a tunnel
    /// that the decoder did not enter by the stored decode error.
    #[inline(always)]
    pub fn may_have_sequence(&self) -> bool {
        !self.is_common_case && self.has_tunnel_or_error()
    }

    fn has_tunnel_or_error(&self) -> bool {
        let is_part = self.protocol == IpProtocol::GRE || self.fragment == Fragment::First;
        self.depth > 1 || self.tunnel.is_some_and(|t| t.sequence.is_some()) || self.error.is_some() && is_part
    }

    /// The flow key, in the direction of the packet, with type and code of ICMP as ports (as [`crate::community_id`]
    /// expects). `None` if the packet is not IP.
    pub fn key(&self, frame: &[u8]) -> Option<FlowKey> {
        let l3 = usize::from(self.l3);
        let v4 = |at| chunk(frame, l3 + at).map(|b: &[u8; 4]| IpAddr::from(*b));
        let v6 = |at| chunk(frame, l3 + at).map(|b: &[u8; 16]| IpAddr::from(*b));
        let (src, dst) = match self.family {
            Family::Other => return None,
            Family::V4 => (v4(ipv4::at::SRC)?, v4(ipv4::at::DST)?),
            Family::V6 => (v6(ipv6::at::SRC)?, v6(ipv6::at::DST)?),
        };
        Some(FlowKey { src, dst, src_port: self.src_port, dst_port: self.dst_port, protocol: self.protocol })
    }
}
