//! Defines the packet facts: the values that a program may read in addition to the bytes of a packet. The facts have a
//! fixed memory layout, from which generated code loads them directly.
//!
//! The outer layer of the facts is the result of [`wire::Headers`] for the frame. The inner layer is the result of
//! [`wire::Decoded`] if the frame contains a tunnel, and otherwise a copy of the outer layer, so an inner layer always
//! exists. If a first fragment contains a tunnel, as many inner headers are decoded as the fragment contains.

use crate::{Fact, Layer, Meta};
use wire::{Decoded, Family, Fragment, Headers, TUNNEL_PORTS};

/// The packet facts of one layer: of the outermost or of the innermost packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LayerFacts {
    /// See [`Fact::Ethertype`].
    pub ethertype: u16,
    /// See [`Fact::L3`].
    pub l3: u16,
    /// See [`Fact::L4`].
    pub l4: u16,
    /// See [`Fact::Family`].
    pub family: u8,
    /// See [`Fact::Protocol`].
    pub protocol: u8,
    /// See [`Fact::Fragment`].
    pub fragment: u8,
}

/// The facts of a packet. The capture source writes the fields for which it has values; [`Facts::of`] sets those fields
/// to 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Facts {
    /// See [`Meta::Time`].
    pub time: u64,
    /// See [`Meta::Sequence`].
    pub sequence: u64,
    /// See [`Meta::WireLen`].
    pub wire_len: u32,
    /// See [`Meta::Rss`].
    pub rss: u32,
    /// The mark that the packet has before the program runs.
    pub mark: u32,
    /// See [`Meta::Port`].
    pub port: u16,
    /// See [`Meta::Duplicate`].
    pub duplicate: u8,
    /// Always 0, so that the structure has no padding.
    pub reserved: u8,
    /// See [`Meta::Queue`].
    pub queue: u16,
    /// See [`Meta::Vlan`].
    pub vlan: u16,
    /// See [`Meta::Ingress`].
    pub ingress: u16,
    /// Offset of the network header of the fragment that [`Meta::Part`] describes.
    pub part_l3: u16,
    /// The outermost IP packet.
    pub outer: LayerFacts,
    /// The innermost IP packet.
    pub inner: LayerFacts,
    /// See [`Meta::Ethernet`].
    pub ethernet: u8,
    /// See [`Meta::Depth`].
    pub depth: u8,
    /// See [`Meta::Outgoing`].
    pub outgoing: u8,
    /// See [`Meta::Part`].
    pub part: u8,
}

// The structure occupies exactly one cache line and has no padding, because the producer of packets writes all its
// bytes.
const _: () = assert!(size_of::<Facts>() == 64);

impl LayerFacts {
    /// Converts the result of the header parser to the facts of the outer layer.
    #[inline]
    pub fn of_headers(headers: &Headers) -> Self {
        Self {
            ethertype: headers.ethertype().0,
            l3: headers.l3().into(),
            l4: headers.l4().into(),
            family: family(headers.family()),
            protocol: headers.protocol().map_or(0, |p| p.0),
            fragment: fragment(headers.fragment()),
        }
    }

    /// Converts the result of the decoder to the facts of the inner layer.
    pub fn of_decoded(decoded: &Decoded) -> Self {
        let is_ip = decoded.family != Family::Other;
        Self {
            ethertype: decoded.ethertype.0,
            l3: decoded.l3,
            l4: if decoded.fragment == Fragment::Later { 0 } else { decoded.l4 },
            family: family(decoded.family),
            protocol: if is_ip { decoded.protocol.0 } else { 0 },
            fragment: fragment(decoded.fragment),
        }
    }

    /// The value of a fact.
    pub fn get(&self, fact: Fact) -> u64 {
        match fact {
            Fact::Ethertype => self.ethertype.into(),
            Fact::Family => self.family.into(),
            Fact::Protocol => self.protocol.into(),
            Fact::Fragment => self.fragment.into(),
            Fact::L3 => self.l3.into(),
            Fact::L4 => self.l4.into(),
        }
    }
}

impl Facts {
    /// Computes the facts of a packet from its bytes: `frame` contains the captured bytes, and `wire_len` is the length
    /// on the wire.
    ///
    /// ```
    /// use netgrain_ir::Facts;
    /// use wire::{build::Frame, link};
    /// let mut bytes = [0; 60];
    /// let frame = Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes);
    /// let facts = Facts::of(frame, 60, link::ETHERNET);
    /// assert_eq!((facts.outer.family, facts.outer.protocol, facts.outer.l4), (4, 17, 34));
    /// assert_eq!(facts.inner, facts.outer);
    /// ```
    pub fn of(frame: &[u8], wire_len: u32, link_type: u16) -> Self {
        let mut facts = Self { wire_len: wire_len.max(frame.len() as u32), ..Self::default() };
        facts.look(frame, link_type, true);
        facts
    }

    /// Computes the facts that follow from the packet bytes. Facts that the capture source wrote are not changed;
    /// `wire_len` must be among them. If `innermost` is false, tunnels are not decoded, and the inner layer is a copy
    /// of the outer layer.
    #[inline]
    pub fn look(&mut self, frame: &[u8], link_type: u16, innermost: bool) {
        let headers = Headers::of(frame, self.wire_len, link_type);
        let outer = LayerFacts::of_headers(&headers);
        (self.outer, self.inner, self.depth) = (outer, outer, 0);
        (self.part, self.part_l3) = (outer.fragment, outer.l3);
        self.ethernet = headers.is_ethernet().into();
        self.vlan = headers.vlan().map_or(0, |id| id | 1 << 12);
        if innermost && may_be_tunnel(frame, &outer) {
            self.decode_inner(frame, link_type);
        }
    }

    #[inline(never)]
    fn decode_inner(&mut self, frame: &[u8], link_type: u16) {
        let (decoded, part) = Decoded::with_fragments(frame, self.wire_len, link_type);
        if decoded.depth > 0 || (self.outer.family == 0 && decoded.family != Family::Other) {
            self.inner = LayerFacts::of_decoded(&decoded);
            self.depth = decoded.depth;
            (self.part, self.part_l3) = (fragment(part.fragment), part.l3);
        }
    }

    /// The value of the packet fact `meta`. The caller passes `cap_len` and `hash_key`, because this structure does not
    /// store them.
    pub fn get(&self, meta: Meta, cap_len: usize, hash_key: u64) -> u64 {
        match meta {
            Meta::WireLen => self.wire_len.into(),
            Meta::CapLen => cap_len as u64,
            Meta::Time => self.time,
            Meta::Port => self.port.into(),
            Meta::Queue => self.queue.into(),
            Meta::Rss => self.rss.into(),
            Meta::Sequence => self.sequence,
            Meta::Duplicate => self.duplicate.into(),
            Meta::Outgoing => self.outgoing.into(),
            Meta::Ethernet => self.ethernet.into(),
            Meta::Vlan => self.vlan.into(),
            Meta::Depth => self.depth.into(),
            Meta::Part => self.part.into(),
            Meta::Ingress => self.ingress.into(),
            Meta::HashKey => hash_key,
        }
    }

    /// The facts of a layer.
    pub const fn layer(&self, layer: Layer) -> &LayerFacts {
        match layer {
            Layer::Outer => &self.outer,
            Layer::Inner => &self.inner,
        }
    }
}

/// True if the frame may contain a tunnel: for tunnel protocols, for UDP with tunnel ports, and for frames without IP
/// near the beginning, which may contain IP farther inside (nested pseudowires). The function also returns true for UDP
/// behind long IPv6 extension headers, because the UDP ports are not parsed there.
#[inline]
fn may_be_tunnel(frame: &[u8], outer: &LayerFacts) -> bool {
    const ARP: u16 = 0x0806;
    match (outer.family, outer.protocol) {
        (0, _) => outer.ethertype != ARP,
        (_, 4 | 41 | 47) => true,
        (_, 17) => {
            let at = usize::from(outer.l4);
            let port = |i: usize| frame.get(at + i..at + i + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
            if at == 0 {
                return outer.fragment != LATER;
            }
            TUNNEL_PORTS.contains(&port(0)) || TUNNEL_PORTS.contains(&port(2))
        }
        _ => false,
    }
}

const fn family(family: Family) -> u8 {
    match family {
        Family::Other => 0,
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

/// The value of [`Fact::Fragment`] for a later fragment.
const LATER: u8 = 2;

const fn fragment(fragment: Fragment) -> u8 {
    match fragment {
        Fragment::Whole => 0,
        Fragment::First => 1,
        Fragment::Later => LATER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::build::Frame;

    #[test]
    fn udp_with_a_tunnel_port_may_be_a_tunnel() {
        let may_be = |src, dst| {
            let mut bytes = [0; 60];
            let frame = Frame::udp4([10, 0, 0, 1], src, [10, 0, 0, 2], dst).fill(&mut bytes);
            may_be_tunnel(frame, &Facts::of(frame, 60, wire::link::ETHERNET).outer)
        };
        let ports = (1..=u16::MAX).filter(|p| may_be(*p, 1) || may_be(1, *p));
        assert_eq!(ports.collect::<Vec<_>>(), TUNNEL_PORTS);
    }
}
