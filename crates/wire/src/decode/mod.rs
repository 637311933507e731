//! Which conversation a frame belongs to, tunnels included: the pass that flow metering makes over every packet.
//!
//! [`crate::Headers`] is what the capture thread knows of a packet: the outermost headers, in a few nanoseconds. [`Decoded`] goes
//! on inwards: the flow is the *inner* one, and what was around it (VLANs, labels, the tunnel's identity) is kept beside it.
//!
//! Invariants, whatever the bytes are: every offset lies inside the captured bytes or is 0; [`Decoded::family`] is not
//! [`Family::Other`] only if the whole fixed network header of the inner packet was captured; every loop has a bound.
//!
//! A tunnel is entered only if an IP packet is found in it. What carries anything else (ARP in VXLAN, keepalives, a
//! packet of which the inner header was not captured) stays a packet of the tunnel's own conversation, so that every IP
//! packet belongs to one; [`Decoded::error`] then says why. So it is with the fragments of a tunnel's packets, which are
//! not looked into; only [`Decoded::through_parts`] goes on into first ones.
//!
//! Protocol numbers and ethertypes say for certain what follows; a UDP port does not. So on the port of a tunnel a
//! datagram is taken for it only if the fixed bits of its header are as they must be *and* an IP header follows whose
//! version, header length and total length fit into the datagram (`udp.rs` has the rule of each). Everything else on such a
//! port is ordinary UDP.

mod common_case;
mod decoder;
mod error;
mod gre;
mod link_layer;
mod network;
mod udp;

use crate::bytes::chunk;
use crate::{EtherType, Family, FlowKey, Fragment, IpProtocol, Port, ipv4, ipv6, link};
pub use error::DecodeError;
use std::net::IpAddr;
pub use udp::TUNNEL_PORTS;

/// The most tunnels in each other that are looked into; of a packet in more, the flow is that of the fourth.
pub const MAX_TUNNELS: u8 = 4;

/// What a tunnel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TunnelKind {
    /// GRE (RFC 2784, 2890, 8086), also as PPTP has it (RFC 2637); the id is the key (PPTP: the call), 0 without one.
    Gre = 1,
    /// NVGRE (RFC 7637): GRE around Ethernet with a key and nothing else; the id is the VSID.
    Nvgre,
    /// ERSPAN type I, which has neither session nor sequence of its own.
    Erspan1,
    /// ERSPAN type II; the id is the session, the sequence that of GRE.
    Erspan2,
    /// ERSPAN type III; the same.
    Erspan3,
    /// VXLAN (RFC 7348), also with group policy or a next protocol (drafts of its successors); the id is the VNI.
    Vxlan,
    /// GENEVE (RFC 8926); the id is the VNI.
    Geneve,
    /// GTP-U (3GPP TS 29.281); the id is the TEID, which each direction has its own of.
    GtpU,
    /// IPv4 or IPv6 in IPv4 or IPv6 (RFC 2003, 2473, 4213).
    IpInIp,
    /// Teredo (RFC 4380).
    Teredo,
}

impl TunnelKind {
    /// All of them, in the order of their numbers.
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

/// The identity of what is around a flow: of the innermost tunnel, where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What it is.
    pub kind: TunnelKind,
    /// Its number: VNI, VSID, TEID, session or key, as the kind says; 0 where it has none.
    pub id: u32,
    /// The sequence number of this packet in it, where it counts: 32 bits of GRE and ERSPAN, 16 of GTP-U.
    pub sequence: Option<u32>,
    /// Offset of the network header that carries it.
    pub outer_l3: u16,
}

/// What a packet, or one around it, is a part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentKey {
    /// Which part.
    pub fragment: Fragment,
    /// Offset of its network header.
    pub l3: u16,
}

/// The tunnels around a frame that number their packets, from the outside in: those that [`Decoded::of`] went into, and the one at
/// which it stopped because what is in there is no IP, if a protocol number or an ethertype says what it is. Walks once more;
/// [`Decoded::may_have_sequence`] says when it is worth it.
pub fn has_sequence(frame: &[u8], wire_len: u32, link_type: u16) -> impl Iterator<Item = Tunnel> {
    let mut walk = decoder::Decoder::new(frame, frame.len().max(wire_len as usize));
    walk.run(link_type);
    walk.numbered.into_iter().take(walk.count).flatten()
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Offset of the inner Ethernet header; `None` where the innermost packet has none.
    pub l2: Option<u16>,
    /// Offset of the inner network header.
    pub l3: u16,
    /// Offset of the inner transport header; 0 where there is none, or it was not captured.
    pub l4: u16,
    /// Offset of what the transport header carries; 0 where that is not known, or nothing of it was captured. Of later
    /// fragments and of protocols whose header is not known here, all that IP carries.
    pub payload: u16,
    /// Bytes of that on the wire.
    pub payload_len: u32,
    /// Bytes of the inner IP packet on the wire, header included; 0 if it is none.
    pub ip_len: u32,
    /// What the inner network layer is.
    pub family: Family,
    /// The protocol above the inner IP.
    pub protocol: IpProtocol,
    /// Which part of a datagram this is.
    pub fragment: Fragment,
    /// The innermost ethertype.
    pub ethertype: EtherType,
    /// Source port; type of ICMP and ICMPv6; 0 where there is none (later fragments get theirs from
    /// [`crate::Fragments`]).
    pub src_port: Port,
    /// Destination port; code of ICMP.
    pub dst_port: Port,
    /// Ids of the outermost two VLAN tags nearest to the flow, outer first: those of the innermost Ethernet header that
    /// has any.
    pub vlans: [Option<u16>; 2],
    /// The topmost MPLS label nearest to the flow.
    pub mpls: Option<u32>,
    /// What is around it.
    pub tunnel: Option<Tunnel>,
    /// How many tunnels are around it.
    pub depth: u8,
    /// Whether it is what most packets are: TCP or UDP, whole, over IPv4 without options and outside of tunnels, its transport
    /// header 20 bytes after [`Decoded::l3`]. It follows from the other fields, and is one question instead of six.
    pub is_common_case: bool,
    /// A header contradicts its length somewhere. Being cut by the capture is no contradiction.
    pub malformed: bool,
    /// What is odd about the frame.
    pub error: Option<DecodeError>,
}

// One cache line: the meter reads all of it for each packet.
const _: () = assert!(size_of::<Decoded>() <= 64);

impl Decoded {
    // PERF: 0.6 to 1.6 ns more than `Headers::of` for TCP and UDP over IPv4 and IPv6 (9 ns in all), 21 ns with two tags or
    // labels, 33 to 37 ns through a tunnel. Least of 400 runs over 1024 frames in cache, on two cores shared with other
    // builds (`cargo bench -p netgrain-wire`).
    /// Decodes a frame of which `frame` was captured and `wire_len` bytes were sent (at least the former).
    ///
    /// ```
    /// use netgrain_wire::build::{Frame, tunnel};
    /// use netgrain_wire::{Decoded, Port, TunnelKind, link};
    /// let mut inner = [0; 60];
    /// Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut inner);
    /// let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    /// let mut outer = [0; 110];
    /// let frame = Frame::udp4([192, 0, 2, 1], 50_000, [192, 0, 2, 2], 4789).payload(&payload).write(&mut outer).unwrap();
    /// let decoded = Decoded::of(frame, frame.len() as u32, link::ETHERNET);
    /// assert_eq!((decoded.src_port, decoded.dst_port), (Port(5353), Port(53)));
    /// assert_eq!(decoded.tunnel.map(|t| (t.kind, t.id)), Some((TunnelKind::Vxlan, 7)));
    /// ```
    #[inline]
    pub fn of(frame: &[u8], wire_len: u32, link_type: u16) -> Self {
        let mut decoded = Self::default();
        decoded.read(frame, wire_len, link_type);
        decoded
    }

    /// The same written over whatever was there, for who keeps many: putting the fields together to hand them over takes a
    /// third of the time that finding them does.
    #[inline(always)]
    pub fn read(&mut self, frame: &[u8], wire_len: u32, link_type: u16) {
        let wire = frame.len().max(wire_len as usize);
        if link_type != link::ETHERNET || !common_case::decode(frame, wire, self) {
            decoder::decode(frame, wire, link_type, self);
        }
    }

    /// The same, but that first fragments of tunnels' packets are looked into as well, as far as they go: a datagram of which no more
    /// was captured. Which fragment that is, or the outermost one if there are several, is told beside it; a
    /// [`Fragment::Whole`] if there is none.
    ///
    /// It is for who decides where packets go: in flow records, later fragments would be missing from the flow.
    pub fn for_each_fragment(frame: &[u8], wire_len: u32, link_type: u16) -> (Self, FragmentKey) {
        decoder::Decoder::through_parts(frame, frame.len().max(wire_len as usize), link_type)
    }

    /// What [`Decoded::is_common_case`] has to be, from the other fields: for who changes them.
    pub fn is_common_case(&self) -> bool {
        self.family == Family::V4
            && u32::from(self.l4) == u32::from(self.l3) + ipv4::at::END as u32
            && self.fragment == Fragment::Whole
            && self.tunnel.is_none()
            && matches!(self.protocol, IpProtocol::TCP | IpProtocol::UDP)
    }

    /// Whether there may be a tunnel around it that numbers its packets, be it the innermost or not, entered or not: [`numbered`] then
    /// knows. It follows from the other fields, since what is not entered is odd.
    #[inline(always)]
    pub fn may_have_sequence(&self) -> bool {
        !self.is_common_case && self.has_tunnel_or_error()
    }

    fn has_tunnel_or_error(&self) -> bool {
        let is_part = self.protocol == IpProtocol::GRE || self.fragment == Fragment::First;
        self.depth > 1 || self.tunnel.is_some_and(|t| t.sequence.is_some()) || self.error.is_some() && is_part
    }

    /// Who with whom, in the packet's direction; of ICMP with type and code as ports, as [`crate::community_id`] wants it.
    /// `None` if it is not IP.
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
