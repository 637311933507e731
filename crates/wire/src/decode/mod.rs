//! The decoder of the metering process: it finds the flow of a packet, also inside tunnels.
//!
//! [`crate::Headers`] contains the offsets of the outermost headers; the capture thread finds them in a few
//! nanoseconds. [`Decoded`] contains the offsets of the innermost headers, so its flow is the *inner* flow. Further
//! fields of [`Decoded`] contain the encapsulation (VLAN ids, MPLS label, identity of the tunnel).
//!
//! Invariants for arbitrary bytes: every offset is inside the captured bytes or 0. [`Decoded::family`] differs from
//! [`Family::Other`] only if the complete fixed network header of the inner packet was captured. Every loop has a limit
//! on its number of steps.
//!
//! The decoder enters a tunnel only if it finds an IP packet inside. A tunnel packet with another content (ARP in
//! VXLAN, a keepalive, an inner header that was not captured) belongs to the flow of the tunnel itself, so that every
//! IP packet belongs to a flow; [`Decoded::error`] has the reason. The same applies to fragments of tunnel packets;
//! only `Decoded::with_fragments` decodes the contents of first fragments.
//!
//! A protocol number or an ethertype determines the next header; a UDP port does not. Therefore the decoder accepts a
//! datagram on a tunnel port as a tunnel packet only if the fixed bits of the tunnel header are valid *and* the
//! version, header length and total length of the IP header after it fit the datagram (`udp.rs` has the rule of each
//! tunnel kind). Every other datagram on such a port is ordinary UDP.

mod common_case;
mod decoded;
mod decoder;
mod error;
mod gre;
mod link_layer;
mod network;
mod tunnel_ports;
mod udp;

use crate::link;
pub use decoded::{Decoded, FragmentKey, MAX_TUNNELS, Tunnel, TunnelKind};
pub use error::DecodeError;
pub use tunnel_ports::TUNNEL_PORTS;

impl Decoded {
    // PERF: 0.6 to 1.6 ns more than `Headers::of` for TCP and UDP over IPv4 and IPv6 (9 ns in all), 21 ns with two tags
    // or labels, 33 to 37 ns through a tunnel. Least of 400 runs over 1024 frames in cache, on two cores shared with
    // other builds (`cargo bench -p netgrain-wire`).
    /// Decodes a frame. `frame` is the captured bytes; `wire_len` is the wire length, at least the length of `frame`.
    ///
    /// ```
    /// use netgrain_wire::build::{Frame, tunnel};
    /// use netgrain_wire::{Decoded, Port, TunnelKind, link};
    /// let mut inner = [0; 60];
    /// Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut inner);
    /// let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    /// let mut outer = [0; 110];
    /// let frame = Frame::udp4([192, 0, 2, 1], 50_000, [192, 0, 2, 2], 4789).payload(&payload);
    /// let frame = frame.write(&mut outer).unwrap();
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

    /// As [`Decoded::of`], in place, for callers with an array of `Decoded`: returning the value by copy would add a
    /// third of the time of decoding.
    #[inline(always)]
    pub fn read(&mut self, frame: &[u8], wire_len: u32, link_type: u16) {
        let wire = frame.len().max(wire_len as usize);
        if link_type != link::ETHERNET || !common_case::decode(frame, wire, self) {
            decoder::decode(frame, wire, link_type, self);
        }
    }

    /// As [`Decoded::of`], but if a tunnel packet is fragmented, the decoder also decodes the content of its first
    /// fragment, and treats the end of this fragment like the end of the captured bytes. The second result is the
    /// fragmentation state of the tunnel packet (of the outermost, if several are fragmented). Its value is
    /// [`crate::Fragment::Whole`] if no packet is fragmented.
    ///
    /// Packet steering uses this function. Flow metering does not, because the inner flow would lack its later
    /// fragments.
    pub fn with_fragments(frame: &[u8], wire_len: u32, link_type: u16) -> (Self, FragmentKey) {
        decoder::Decoder::with_fragments(frame, frame.len().max(wire_len as usize), link_type)
    }
}

/// The tunnels of a frame that have sequence numbers, outermost first: the tunnels that [`Decoded::of`] entered, and
/// the tunnel that it did not enter because the content is not IP, if a protocol number or an ethertype identifies that
/// tunnel. The function decodes the frame again; call it only if [`Decoded::may_have_sequence`] is true.
pub fn numbered_tunnels(frame: &[u8], wire_len: u32, link_type: u16) -> impl Iterator<Item = Tunnel> {
    let mut decoder = decoder::Decoder::new(frame, frame.len().max(wire_len as usize));
    decoder.run(link_type);
    decoder.numbered.into_iter().take(decoder.count).flatten()
}
