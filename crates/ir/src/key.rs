//! Flow keys, and the common part of several keys.
//!
//! The rule of Enif: packets may be spread over workers by any hash of the fields that *all* keys of the program's maps
//! have in common. Then all packets of one map entry reach the same worker, and workers share no state. [`Key::common`]
//! computes the common key.
//!
//! A key refers to the innermost packet or ([`Key::outside`]) to the outermost packet. Two keys that differ in this
//! have only fields in common that are not part of an IP packet.

use std::fmt;

/// A packet field that can be part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Field {
    /// The ethertype behind all tags.
    EthType,
    /// The source MAC address.
    EthSrc,
    /// The destination MAC address.
    EthDst,
    /// The ID of the outermost VLAN tag.
    Vlan,
    /// The source address.
    IpSrc,
    /// The destination address.
    IpDst,
    /// The protocol above IP.
    IpProto,
    /// The ECN bits.
    IpEcn,
    /// The DSCP (differentiated services).
    IpDscp,
    /// The source port.
    SrcPort,
    /// The destination port.
    DstPort,
    /// The ICMP type.
    IcmpType,
    /// The ICMP code.
    IcmpCode,
}

impl Field {
    /// All fields, in their order within a key.
    pub const ALL: [Self; 13] = [
        Self::EthType,
        Self::EthSrc,
        Self::EthDst,
        Self::Vlan,
        Self::IpSrc,
        Self::IpDst,
        Self::IpProto,
        Self::IpEcn,
        Self::IpDscp,
        Self::SrcPort,
        Self::DstPort,
        Self::IcmpType,
        Self::IcmpCode,
    ];

    /// The name in a program, without the prefix `key_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EthType => "eth_type",
            Self::EthSrc => "eth_src",
            Self::EthDst => "eth_dst",
            Self::Vlan => "vlan",
            Self::IpSrc => "ip_src",
            Self::IpDst => "ip_dst",
            Self::IpProto => "ip_proto",
            Self::IpEcn => "ip_ecn",
            Self::IpDscp => "ip_dscp",
            Self::SrcPort => "src_port",
            Self::DstPort => "dst_port",
            Self::IcmpType => "icmp_type",
            Self::IcmpCode => "icmp_code",
        }
    }

    /// The corresponding field of the other endpoint.
    pub const fn opposite(self) -> Option<Self> {
        Some(match self {
            Self::EthSrc => Self::EthDst,
            Self::EthDst => Self::EthSrc,
            Self::IpSrc => Self::IpDst,
            Self::IpDst => Self::IpSrc,
            Self::SrcPort => Self::DstPort,
            Self::DstPort => Self::SrcPort,
            _ => return None,
        })
    }

    /// The width in a key, in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::IpSrc | Self::IpDst => 128,
            Self::EthSrc | Self::EthDst => 48,
            Self::EthType | Self::Vlan | Self::SrcPort | Self::DstPort => 16,
            Self::IpProto | Self::IpEcn | Self::IpDscp | Self::IcmpType | Self::IcmpCode => 8,
        }
    }
}

/// A flow key: a set of fields, a flag for symmetry (both directions have the same key), and the choice of the
/// innermost or outermost packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    fields: u16,
    symmetric: bool,
    outside: bool,
}

impl Key {
    /// Addresses, ports and protocol.
    pub const FIVE_TUPLE: Self =
        Self::of(&[Field::IpSrc, Field::IpDst, Field::SrcPort, Field::DstPort, Field::IpProto]);
    /// Addresses and protocol.
    pub const THREE_TUPLE: Self = Self::of(&[Field::IpSrc, Field::IpDst, Field::IpProto]);

    /// Fields of the frame, which are the same for all nested packets.
    const OF_THE_FRAME: u16 = Self::of(&[Field::EthSrc, Field::EthDst, Field::Vlan]).fields;

    /// The key of these fields, for the packet's direction.
    pub const fn of(fields: &[Field]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < fields.len() {
            bits |= 1 << fields[i] as u16;
            i += 1;
        }
        Self { fields: bits, symmetric: false, outside: false }
    }

    /// The union of the fields of both keys; symmetric if either key is, and of the outermost packet if either key is.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        let (symmetric, outside) = (self.symmetric || other.symmetric, self.outside || other.outside);
        Self { fields: self.fields | other.fields, symmetric, outside }
    }

    /// The same key for the outermost packet; the key itself if tunnels make no difference to it.
    #[must_use]
    pub const fn outside(self) -> Self {
        Self { outside: self.fields & !Self::OF_THE_FRAME != 0, ..self }
    }

    /// True if the key refers to the outermost packet.
    pub const fn is_outside(self) -> bool {
        self.outside
    }

    /// The same key for both directions: the two endpoints are sorted first.
    #[must_use]
    pub const fn both_ways(self) -> Self {
        Self { symmetric: true, ..self }
    }

    /// True if the key contains the field.
    pub const fn has(self, field: Field) -> bool {
        self.fields >> field as u16 & 1 == 1
    }

    /// True if both directions have the same key.
    pub const fn is_symmetric(self) -> bool {
        self.symmetric
    }

    /// True if the key has no fields.
    pub const fn is_empty(self) -> bool {
        self.fields == 0
    }

    /// The fields of the key, in order.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |f| self.has(*f))
    }

    /// The fields whose opposite field is in the key too.
    pub fn paired(self) -> impl Iterator<Item = Field> {
        self.fields().filter(move |f| f.opposite().is_some_and(|o| self.has(o)))
    }

    /// The largest key that both keys determine: two packets that agree in either key also agree in the result.
    ///
    /// ```
    /// use netgrain_ir::{Field, Key};
    /// let (five, three) = (Key::FIVE_TUPLE.both_ways(), Key::THREE_TUPLE);
    /// assert_eq!(five.common(three), Key::THREE_TUPLE.both_ways());
    /// assert!(five.common(Key::of(&[Field::IpSrc])).is_empty());
    /// ```
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        // A key that has only fields of the frame is the same for the innermost and the outermost packet, so it can be
        // combined with either.
        let differ = self.outside != other.outside;
        let outside = self.outside && other.outside;
        let fields = self.fields & other.fields & if differ { Self::OF_THE_FRAME } else { u16::MAX };
        if !self.symmetric && !other.symmetric {
            return Self { fields, symmetric: false, outside }.settled();
        }
        // A symmetric key does not distinguish the endpoints, so it does not determine a field of a single endpoint.
        let both = Self { fields, symmetric: true, outside };
        let kept: Vec<Field> =
            both.fields().filter(|f| f.opposite().is_none_or(|opposite| both.has(opposite))).collect();
        let common = Self::of(&kept);
        Self { symmetric: common.paired().next().is_some(), outside, ..common }.settled()
    }

    /// Clears the flag for the outermost packet if it makes no difference.
    const fn settled(self) -> Self {
        if self.outside { self.outside() } else { self }
    }
}

/// Clusters of keys by which packets can be spread together: the common key of each cluster, and the indices of its
/// keys. If all keys have a common key, there is one cluster; otherwise each key joins the first cluster with which it
/// has fields in common.
pub fn clusters(keys: &[Key]) -> Vec<(Key, Vec<usize>)> {
    let mut groups: Vec<(Key, Vec<usize>)> = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        let fits = groups.iter_mut().find(|(common, _)| !common.common(*key).is_empty());
        match fits {
            Some((common, members)) => {
                *common = common.common(*key);
                members.push(i);
            }
            None => groups.push((*key, vec![i])),
        }
    }
    groups
}

/// `ip_src, ip_dst, ip_proto (both directions)`; `outer ip_src`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        f.write_str(if self.outside { "outer " } else { "" })?;
        let names: Vec<_> = self.fields().map(Field::name).collect();
        f.write_str(&names.join(", "))?;
        if self.symmetric { f.write_str(" (both directions)") } else { Ok(()) }
    }
}
