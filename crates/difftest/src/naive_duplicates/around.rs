//! The tunnel or the labels around the innermost packet, for the naive detector.

use wire::{Decoded, EtherType, TunnelKind};

/// The headers around a packet that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// No tunnel and no labels, or only those that are not compared.
    Nothing,
    Labels {
        labels: Vec<u32>,
        ttl: u8,
    },
    Tunnel {
        kind: TunnelKind,
        id: u32,
        depth: u8,
        label: Option<u32>,
        addresses: Vec<u8>,
        /// The IPv4 identification of the packet with the tunnel; 0 if it has none.
        number: u16,
        /// The outermost TTL; `None` if the inner packet has an Ethernet header.
        ttl: Option<u8>,
    },
}

impl Around {
    pub fn of(data: &[u8], decoded: &Decoded) -> Self {
        let has_own_link = decoded.l2.unwrap_or(0) > 0;
        let mut at = 12;
        let ethertype = |at: usize| data.get(at..at + 2).map(|b| EtherType(u16::from_be_bytes([b[0], b[1]])));
        while ethertype(at).is_some_and(EtherType::is_vlan) {
            at += 4;
        }
        let mut labels = Vec::new();
        let (mut top, mut after) = (0, at + 2);
        if ethertype(at).is_some_and(EtherType::is_mpls) {
            top = data.get(after + 3).copied().unwrap_or(0);
            while let Some(&[a, b, c, _]) = data.get(after..after + 4) {
                labels.push(u32::from_be_bytes([0, a, b, c]) >> 4);
                after += 4;
                if c & 1 != 0 {
                    break;
                }
            }
        }
        match decoded.tunnel {
            Some(tunnel) if format!("{:?}", tunnel.kind).starts_with("Erspan") => Self::Nothing,
            Some(tunnel) => {
                let outer = &data[usize::from(tunnel.outer_l3)..];
                let is_v4 = outer[0] >> 4 == 4;
                let addresses = if is_v4 { outer[12..20].to_vec() } else { outer[8..40].to_vec() };
                let number = if is_v4 { u16::from_be_bytes([outer[4], outer[5]]) } else { 0 };
                let outermost = &data[after..];
                let ttl = outermost[if outermost[0] >> 4 == 4 { 8 } else { 7 }];
                let (kind, id, depth, label) = (tunnel.kind, tunnel.id, decoded.depth, decoded.mpls);
                Self::Tunnel { kind, id, depth, label, addresses, number, ttl: (!has_own_link).then_some(ttl) }
            }
            None if labels.is_empty() || has_own_link => Self::Nothing,
            None => Self::Labels { labels, ttl: top },
        }
    }

    fn ttl(&self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Labels { ttl, .. } => *ttl,
            Self::Tunnel { ttl, .. } => ttl.unwrap_or(0),
        }
    }

    /// The same tunnel without the fields that differ from packet to packet.
    fn identity(&self) -> Self {
        let mut out = self.clone();
        match &mut out {
            Self::Nothing => (),
            Self::Labels { ttl, .. } => *ttl = 0,
            Self::Tunnel { number, ttl, .. } => (*number, *ttl) = (0, ttl.map(|_| 0)),
        }
        out
    }

    fn number(&self) -> u16 {
        if let Self::Tunnel { number, .. } = self { *number } else { 0 }
    }

    fn has_own_link(&self) -> bool {
        matches!(self, Self::Tunnel { ttl: None, .. })
    }

    fn is_one_encapsulation(&self, other: &Self) -> bool {
        let (a, b) = (self.number(), other.number());
        a == b || a == 0 || b == 0
    }

    /// True if one frame on one link can have both headers.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_entry = *self == Self::Nothing && other.has_own_link() || *other == Self::Nothing && self.has_own_link();
        let is_equal = self.identity() == other.identity() && self.ttl() == other.ttl();
        (is_entry || is_equal) && self.is_one_encapsulation(other)
    }

    /// True if both are in a tunnel or below labels, and the TTL is lower in the other.
    pub fn is_lower(&self, other: &Self) -> bool {
        *self != Self::Nothing && *other != Self::Nothing && other.ttl() < self.ttl()
    }

    /// True if a router can have made the other headers from these.
    pub fn may_become(&self, other: &Self) -> bool {
        let is_path = match (self, other) {
            (Self::Nothing, Self::Nothing) => false,
            (Self::Nothing, _) | (_, Self::Nothing) => true,
            (Self::Labels { .. }, Self::Labels { .. }) => self.is_lower(other),
            _ => self.identity() == other.identity() && self.is_lower(other),
        };
        is_path && self.is_one_encapsulation(other)
    }
}
