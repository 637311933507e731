//! What a key is made of, and what several keys have in common.
//!
//! Enif's rule: packets may be spread over workers by any hash of what *all* keys of the program's maps have in common; then two
//! packets of one entry always meet at one worker, and no state is shared. [`Key::common`] computes it.
//!
//! A key looks at the innermost packet, or ([`Key::outside`]) at the outermost: the two have nothing in common but what is not part of a
//! packet of IP.

use std::fmt;

/// A field of a packet that can be part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Field {
    /// The ethertype under all tags.
    EthType,
    /// The link address of the sender.
    EthSrc,
    /// The link address of the receiver.
    EthDst,
    /// The id of the outermost VLAN tag.
    Vlan,
    /// The address of the sender.
    IpSrc,
    /// The address of the receiver.
    IpDst,
    /// The protocol above IP.
    IpProto,
    /// Bits of congestion.
    IpEcn,
    /// Differentiated services.
    IpDscp,
    /// The port of the sender.
    SrcPort,
    /// The port of the receiver.
    DstPort,
    /// Type of ICMP.
    IcmpType,
    /// Code of ICMP.
    IcmpCode,
}

impl Field {
    /// All of them, in the order in which they stand in a key.
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

    /// The word that names it in a program, behind `key_`.
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

    /// The same of the other end.
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

    /// The bits it takes in a key.
    pub const fn bits(self) -> u32 {
        match self {
            Self::IpSrc | Self::IpDst => 128,
            Self::EthSrc | Self::EthDst => 48,
            Self::EthType | Self::Vlan | Self::SrcPort | Self::DstPort => 16,
            Self::IpProto | Self::IpEcn | Self::IpDscp | Self::IcmpType | Self::IcmpCode => 8,
        }
    }
}

/// A set of fields, whether the two ends of a packet may change places in it, and of which packet they are where there is a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    fields: u16,
    symmetric: bool,
    outside: bool,
}

impl Key {
    /// Address, address, port, port, protocol.
    pub const FIVE_TUPLE: Self =
        Self::of(&[Field::IpSrc, Field::IpDst, Field::SrcPort, Field::DstPort, Field::IpProto]);
    /// Address, address, protocol.
    pub const THREE_TUPLE: Self = Self::of(&[Field::IpSrc, Field::IpDst, Field::IpProto]);

    /// What a frame has once, however many packets are inside one another.
    const OF_THE_FRAME: u16 = Self::of(&[Field::EthSrc, Field::EthDst, Field::Vlan]).fields;

    /// Of these fields, in the packet's direction.
    pub const fn of(fields: &[Field]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < fields.len() {
            bits |= 1 << fields[i] as u16;
            i += 1;
        }
        Self { fields: bits, symmetric: false, outside: false }
    }

    /// The key with the fields of both; symmetric if either is, and of the outermost packet if either is.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        let (symmetric, outside) = (self.symmetric || other.symmetric, self.outside || other.outside);
        Self { fields: self.fields | other.fields, symmetric, outside }
    }

    /// The same of the outermost packet; the key itself if no tunnel can make a difference to it.
    #[must_use]
    pub const fn outside(self) -> Self {
        Self { outside: self.fields & !Self::OF_THE_FRAME != 0, ..self }
    }

    /// Whether it is of the outermost packet.
    pub const fn is_outside(self) -> bool {
        self.outside
    }

    /// The same for both directions: the two ends are put in order first.
    #[must_use]
    pub const fn both_ways(self) -> Self {
        Self { symmetric: true, ..self }
    }

    /// Whether a field is in it.
    pub const fn has(self, field: Field) -> bool {
        self.fields >> field as u16 & 1 == 1
    }

    /// Whether it is the same for both directions.
    pub const fn is_symmetric(self) -> bool {
        self.symmetric
    }

    /// Whether nothing is in it.
    pub const fn is_empty(self) -> bool {
        self.fields == 0
    }

    /// Its fields, in order.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |f| self.has(*f))
    }

    /// Fields of which the other end is in it too.
    pub fn paired(self) -> impl Iterator<Item = Field> {
        self.fields().filter(move |f| f.opposite().is_some_and(|o| self.has(o)))
    }

    /// The largest key that both determine: two packets with the same key of either kind have the same of this.
    ///
    /// ```
    /// use netgrain_lang::{Field, Key};
    /// let (five, three) = (Key::FIVE_TUPLE.both_ways(), Key::THREE_TUPLE);
    /// assert_eq!(five.common(three), Key::THREE_TUPLE.both_ways());
    /// assert!(five.common(Key::of(&[Field::IpSrc])).is_empty());
    /// ```
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        // Of a key of the frame alone nothing says which packet it would be of: it goes with either.
        let differ = self.outside != other.outside;
        let outside = self.outside && other.outside;
        let fields = self.fields & other.fields & if differ { Self::OF_THE_FRAME } else { u16::MAX };
        if !self.symmetric && !other.symmetric {
            return Self { fields, symmetric: false, outside }.settled();
        }
        // One of them does not know which end is which, so an end alone is no longer determined.
        let both = Self { fields, symmetric: true, outside };
        let kept: Vec<Field> =
            both.fields().filter(|f| f.opposite().is_none_or(|opposite| both.has(opposite))).collect();
        let common = Self::of(&kept);
        Self { symmetric: common.paired().next().is_some(), outside, ..common }.settled()
    }

    /// Of the outermost packet only where that makes a difference.
    const fn settled(self) -> Self {
        if self.outside { self.outside() } else { self }
    }
}

/// Groups of keys that can be spread together: each group with its common key, and the indices of its members. One group if all have
/// something in common; else each key joins the first group with which it has.
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
