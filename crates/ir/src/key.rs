//! Flow keys, and the common key of several flow keys.
//!
//! Workers need no common state if packets are distributed to them by a hash of only those fields that *all* flow keys
//! of the program's maps contain (the rule of the language Enif, Bonelli et al.). Then all packets of one map entry are
//! processed by the same worker. [`Key::common`] computes the key of these common fields.
//!
//! A key is built from the headers of the innermost packet or, after [`Key::outside`], of the outermost packet. If one
//! key uses the innermost packet and another key the outermost packet, they have only fields of the frame in common,
//! such as MAC addresses.

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
    /// All fields, in the order in which a key contains them.
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

    /// The name of the field in a program, without the prefix `key_`.
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

    /// The field of the other endpoint: for a source the destination, for a destination the source.
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

    /// The number of bits that the field has in a key.
    pub const fn bits(self) -> u32 {
        match self {
            Self::IpSrc | Self::IpDst => 128,
            Self::EthSrc | Self::EthDst => 48,
            Self::EthType | Self::Vlan | Self::SrcPort | Self::DstPort => 16,
            Self::IpProto | Self::IpEcn | Self::IpDscp | Self::IcmpType | Self::IcmpCode => 8,
        }
    }
}

/// A flow key: a set of fields; a flag that the key is symmetric, which means equal in both directions of a flow; and a
/// flag that selects the outermost packet instead of the innermost.
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

    /// Fields of the Ethernet frame; they are the same for the innermost and the outermost packet.
    const OF_THE_FRAME: u16 = Self::of(&[Field::EthSrc, Field::EthDst, Field::Vlan]).fields;

    /// The key of these fields of the innermost packet; the two directions of a flow have different keys.
    pub const fn of(fields: &[Field]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < fields.len() {
            bits |= 1 << fields[i] as u16;
            i += 1;
        }
        Self { fields: bits, symmetric: false, outside: false }
    }

    /// The union of the fields of both keys. The result is symmetric if either key is symmetric, and uses the outermost
    /// packet if either key does.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        let (symmetric, outside) = (self.symmetric || other.symmetric, self.outside || other.outside);
        Self { fields: self.fields | other.fields, symmetric, outside }
    }

    /// The same key, built from the outermost packet. A key that contains only fields of the frame is returned
    /// unchanged.
    #[must_use]
    pub const fn outside(self) -> Self {
        Self { outside: self.fields & !Self::OF_THE_FRAME != 0, ..self }
    }

    /// True if the key is built from the outermost packet.
    pub const fn is_outside(self) -> bool {
        self.outside
    }

    /// The same key, but equal for both directions of a flow: the two endpoints are sorted before they are combined.
    #[must_use]
    pub const fn both_ways(self) -> Self {
        Self { symmetric: true, ..self }
    }

    /// True if the key contains the field.
    pub const fn has(self, field: Field) -> bool {
        self.fields >> field as u16 & 1 == 1
    }

    /// True if both directions of a flow have the same key.
    pub const fn is_symmetric(self) -> bool {
        self.symmetric
    }

    /// True if the key has no fields.
    pub const fn is_empty(self) -> bool {
        self.fields == 0
    }

    /// The fields of the key, in the order of [`Field::ALL`].
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |f| self.has(*f))
    }

    /// The fields for which the key also contains the field of the other endpoint.
    pub fn paired(self) -> impl Iterator<Item = Field> {
        self.fields().filter(move |f| f.opposite().is_some_and(|o| self.has(o)))
    }

    /// Returns the largest key whose value can be computed from the value of `self` alone, and also from the value of
    /// `other` alone. So two packets with equal values of `self`, or with equal values of `other`, have equal values of
    /// the returned key.
    ///
    /// ```
    /// use netgrain_ir::{Field, Key};
    /// let (five, three) = (Key::FIVE_TUPLE.both_ways(), Key::THREE_TUPLE);
    /// assert_eq!(five.common(three), Key::THREE_TUPLE.both_ways());
    /// assert!(five.common(Key::of(&[Field::IpSrc])).is_empty());
    /// ```
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        // A key with only fields of the frame is the same for the innermost and for the outermost packet, so it has
        // common fields with keys of both kinds.
        let differ = self.outside != other.outside;
        let outside = self.outside && other.outside;
        let fields = self.fields & other.fields & if differ { Self::OF_THE_FRAME } else { u16::MAX };
        if !self.symmetric && !other.symmetric {
            return Self { fields, symmetric: false, outside }.settled();
        }
        // In a symmetric key the endpoints are interchangeable, so the value of a field of one endpoint, such as the
        // source address, does not follow from the value of the key.
        let both = Self { fields, symmetric: true, outside };
        let kept: Vec<Field> =
            both.fields().filter(|f| f.opposite().is_none_or(|opposite| both.has(opposite))).collect();
        let common = Self::of(&kept);
        Self { symmetric: common.paired().next().is_some(), outside, ..common }.settled()
    }

    /// Clears the flag for the outermost packet in a key that contains only fields of the frame.
    const fn settled(self) -> Self {
        if self.outside { self.outside() } else { self }
    }
}

/// Groups flow keys into clusters, such that one common key can spread the packets of all keys of a cluster. The result
/// contains, for each cluster, the common key and the indices of its keys. Each key joins the first cluster with which
/// it has common fields; if all keys have a common key, there is one cluster.
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

/// Prints a key like `ip_src, ip_dst, ip_proto (both directions)` or `outer ip_src`.
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
