//! Which conversation a frame belongs to, tunnels included: the pass that flow metering makes over every packet.
//!
//! [`Headers`] is what the capture thread knows of a packet: the outermost headers, in a few nanoseconds. [`Decoded`] goes
//! on inwards: the flow is the *inner* one, and what was around it (VLANs, labels, the tunnel's identity) is kept beside it.
//!
//! Invariants, whatever the bytes are: every offset lies inside the captured bytes or is 0; [`Decoded::family`] is not
//! [`Family::Other`] only if the whole fixed network header of the inner packet was captured.

use crate::bytes::chunk;
use crate::{EtherType, Family, Fragment, Headers, IpProtocol, Port, ipv4, ipv6};

/// What a tunnel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TunnelKind {
    /// GRE (RFC 2784, 2890); the id is the key, 0 without one.
    Gre = 1,
    /// NVGRE (RFC 7637); the id is the VSID.
    Nvgre,
    /// ERSPAN type I, which has neither session nor sequence of its own.
    Erspan1,
    /// ERSPAN type II; the id is the session, the sequence that of GRE.
    Erspan2,
    /// ERSPAN type III; the same.
    Erspan3,
    /// VXLAN (RFC 7348); the id is the VNI.
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

/// The identity of what is around a flow: of the innermost tunnel, where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What it is.
    pub kind: TunnelKind,
    /// Its number: VNI, VSID, TEID, session or key, as the kind says; 0 where it has none.
    pub id: u32,
    /// The sequence number of this packet in it, where it counts.
    pub sequence: Option<u32>,
    /// Offset of the network header that carries it.
    pub outer_l3: u16,
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
    /// Offset of what the transport header carries; 0 where that is not known.
    pub payload: u16,
    /// Bytes of what the transport header carries on the wire.
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
    /// Source port; type of ICMP; 0 where there is none (later fragments get theirs from [`crate::Fragments`]).
    pub src_port: Port,
    /// Destination port; code of ICMP.
    pub dst_port: Port,
    /// Ids of the outermost two VLAN tags nearest to the flow, outer first.
    pub vlans: [Option<u16>; 2],
    /// The topmost MPLS label nearest to the flow.
    pub mpls: Option<u32>,
    /// What is around it.
    pub tunnel: Option<Tunnel>,
    /// How many tunnels are around it.
    pub depth: u8,
    /// A header contradicts its length somewhere.
    pub malformed: bool,
}

impl Decoded {
    /// Decodes a frame of which `frame` was captured and `wire_len` bytes were sent.
    pub fn of(frame: &[u8], wire_len: u32, link_type: u16) -> Self {
        let headers = Headers::of(frame, wire_len, link_type);
        let l3 = usize::from(headers.l3());
        let half = |at| chunk(frame, at).map_or(0, |b: &[u8; 2]| u32::from(u16::from_be_bytes(*b)));
        let ip_len = match headers.family() {
            Family::V4 => half(l3 + ipv4::at::TOTAL_LEN),
            Family::V6 => half(l3 + ipv6::at::PAYLOAD_LEN) + 40,
            Family::Other => 0,
        };
        let ports = headers.port_word(frame).unwrap_or(0);
        Self {
            l2: headers.is_ethernet().then_some(0),
            l3: headers.l3().into(),
            l4: headers.l4().into(),
            ip_len,
            family: headers.family(),
            protocol: headers.protocol().unwrap_or_default(),
            fragment: headers.fragment(),
            ethertype: headers.ethertype(),
            src_port: Port((ports >> 16) as u16),
            dst_port: Port(ports as u16),
            vlans: [headers.vlan(), None],
            malformed: headers.malformed(),
            ..Self::default()
        }
    }
}
