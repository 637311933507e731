//! What a field of an exported record means: information elements (RFC 7012), their types, semantics and units (RFC 5610).
//!
//! Elements of IANA are used wherever one says what ours says. The rest are ours, under [`PEN`]; they travel with their
//! names and types (RFC 5610), so that a collector can learn them from the stream. The reverse of an element (RFC 5103) is
//! the same number under [`REVERSE_PEN`], of one of ours the number with [`REVERSE_BIT`].

use base::Timestamp;
use std::borrow::Cow;
use wire::TunnelKind;

/// The private enterprise number under which our own elements stand: the letters `ngrn`. IANA has *not* assigned it; it
/// gives numbers out in order and is below 100 000, so that nobody else's elements can be taken for ours. Who has a number
/// of their own configures it.
pub const PEN: u32 = 0x6e67_726e;

/// The enterprise number of the reverse of IANA's elements (RFC 5103, section 6.1).
pub const REVERSE_PEN: u32 = 29305;

/// What makes one of our elements its reverse (RFC 5103, section 6.2: bit 14 of the number).
pub const REVERSE_BIT: u16 = 0x4000;

/// What stands for a length that each record tells (RFC 7011, section 7).
pub const VARIABLE: u16 = 65535;

/// Abstract data types, with their numbers in RFC 5610 and RFC 6313.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of RFC 7012")]
pub enum DataType {
    OctetArray = 0,
    Unsigned8 = 1,
    Unsigned16 = 2,
    Unsigned32 = 3,
    Unsigned64 = 4,
    Float64 = 10,
    MacAddress = 12,
    String = 13,
    DateTimeMilliseconds = 15,
    DateTimeNanoseconds = 17,
    Ipv4Address = 18,
    Ipv6Address = 19,
    BasicList = 20,
}

impl DataType {
    /// As RFC 7012 writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OctetArray => "octetArray",
            Self::Unsigned8 => "unsigned8",
            Self::Unsigned16 => "unsigned16",
            Self::Unsigned32 => "unsigned32",
            Self::Unsigned64 => "unsigned64",
            Self::Float64 => "float64",
            Self::MacAddress => "macAddress",
            Self::String => "string",
            Self::DateTimeMilliseconds => "dateTimeMilliseconds",
            Self::DateTimeNanoseconds => "dateTimeNanoseconds",
            Self::Ipv4Address => "ipv4Address",
            Self::Ipv6Address => "ipv6Address",
            Self::BasicList => "basicList",
        }
    }
}

/// What a number does, with its number in RFC 5610.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of RFC 7012")]
pub enum Semantics {
    Default = 0,
    Quantity = 1,
    TotalCounter = 2,
    DeltaCounter = 3,
    Identifier = 4,
    Flags = 5,
    List = 6,
}

/// What a number counts, with its number in RFC 5610.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are those of RFC 7012")]
pub enum Unit {
    None = 0,
    Octets = 2,
    Packets = 3,
    Flows = 4,
    Milliseconds = 6,
    Nanoseconds = 8,
    Hops = 11,
}

impl Unit {
    /// As RFC 7012 writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "–",
            Self::Octets => "octets",
            Self::Packets => "packets",
            Self::Flows => "flows",
            Self::Milliseconds => "milliseconds",
            Self::Nanoseconds => "nanoseconds",
            Self::Hops => "hops",
        }
    }
}

/// An information element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Ours, not IANA's.
    pub is_enterprise: bool,
    /// Its number, without enterprise and reverse bit.
    pub id: u16,
    /// Its name; IANA's, where it is theirs.
    pub name: Cow<'static, str>,
    /// Its type.
    pub data_type: DataType,
    /// What the number does.
    pub semantics: Semantics,
    /// And counts.
    pub unit: Unit,
    /// What it says here.
    pub description: Cow<'static, str>,
}

/// Seconds from 1900, where NTP begins, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;

/// As dateTimeNanoseconds (RFC 7011, section 6.1.10): seconds since 1900 modulo 2^32 and a binary fraction. The fraction is
/// rounded up, so that reading it back gives every nanosecond again.
pub(crate) fn to_ntp(t: Timestamp) -> u128 {
    let seconds = t.secs().wrapping_add(NTP_EPOCH) & 0xffff_ffff;
    let fraction = (u64::from(t.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    u128::from(seconds << 32 | fraction)
}

/// The inverse, for moments from 1970 until 2106: what would lie before 1970 lies behind the end of NTP's first era, 2036.
pub(crate) fn from_ntp(ntp: u128) -> Timestamp {
    let (seconds, fraction) = ((ntp >> 32) as u64 & 0xffff_ffff, ntp as u64 & 0xffff_ffff);
    let era = if seconds < NTP_EPOCH { 1 << 32 } else { 0 };
    Timestamp::from_secs_nanos(seconds + era - NTP_EPOCH, (fraction * 1_000_000_000) >> 32)
}

/// Value of layer2SegmentId (351): the kinds that IANA has numbers for, and what identifies the segment; 0 of others.
pub(crate) fn segment(tunnel: Option<(TunnelKind, u32)>) -> u128 {
    let id = |kind: u64, id: u32| u128::from(kind << 56 | u64::from(id & 0xff_ffff));
    match tunnel {
        Some((TunnelKind::Vxlan, vni)) => id(1, vni),
        Some((TunnelKind::Nvgre, vsid)) => id(2, vsid),
        _ => 0,
    }
}

/// The kind of tunnel with this number.
pub(crate) fn tunnel_kind(number: u128) -> Option<TunnelKind> {
    use TunnelKind::*;
    [Gre, Nvgre, Erspan1, Erspan2, Erspan3, Vxlan, Geneve, GtpU, IpInIp, Teredo]
        .into_iter()
        .find(|k| *k as u128 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nanosecond_until_2106_survives_ntp() {
        let seed = testkit::seed("every_nanosecond_until_2106_survives_ntp");
        let mut prng = base::Prng::new(seed);
        const SECONDS: u64 = (1 << 33) - NTP_EPOCH;
        let mut moments = vec![Timestamp::ZERO, Timestamp::from_secs_nanos(SECONDS - 1 - NTP_EPOCH, 999_999_999)];
        // Around the end of NTP's first era.
        moments.extend((0..3).map(|s| Timestamp::from_secs_nanos((1 << 32) - NTP_EPOCH - 1 + s, 1)));
        let any = |prng: &mut base::Prng| {
            Timestamp::from_secs_nanos(prng.below(SECONDS - NTP_EPOCH), prng.below(1_000_000_000))
        };
        moments.extend((0..100_000).map(|_| any(&mut prng)));
        for t in moments {
            assert_eq!(from_ntp(to_ntp(t)), t);
        }
        // RFC 5905, section 6: 1970 in NTP's seconds.
        assert_eq!(to_ntp(Timestamp::ZERO) >> 32, 2_208_988_800);
    }
}
