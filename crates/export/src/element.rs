//! Information elements (RFC 7012) with their types, semantics and units (RFC 5610).
//!
//! A quantity is exported as an IANA element if there is one with the same meaning. The other elements are netgrain's
//! own, with the enterprise number [`PEN`]; their names and types are exported too (RFC 5610), so that a collector can
//! read them from the stream. The reverse of an IANA element (RFC 5103) has the same number under [`REVERSE_PEN`]; the
//! reverse of one of ours has the number with [`REVERSE_BIT`].

use base::Timestamp;
use std::borrow::Cow;
use wire::TunnelKind;

/// The private enterprise number of our own elements: the letters `ngrn`. IANA has *not* assigned it. No enterprise has
/// this number so far, because IANA assigns numbers in ascending order and has not reached 100 000. Users with their
/// own enterprise number can configure that number.
pub const PEN: u32 = 0x6e67_726e;

/// The enterprise number of reverse IANA elements (RFC 5103, section 6.1).
pub const REVERSE_PEN: u32 = 29305;

/// The bit that marks the reverse of one of our elements (RFC 5103, section 6.2: bit 14 of the number).
pub const REVERSE_BIT: u16 = 0x4000;

/// The field length that means variable length (RFC 7011, section 7).
pub const VARIABLE: u16 = 65535;

/// Abstract data types, numbered as in RFC 5610 and RFC 6313.
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
    /// The name in RFC 7012.
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

/// Data type semantics, numbered as in RFC 5610.
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

/// Units, numbered as in RFC 5610.
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
    /// The name in RFC 7012.
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
    /// True for our own elements, false for IANA elements.
    pub is_enterprise: bool,
    /// The number of the element, without enterprise number and reverse bit.
    pub id: u16,
    /// The name of the element; for IANA elements, the name in IANA's registry.
    pub name: Cow<'static, str>,
    /// Its type.
    pub data_type: DataType,
    /// Its semantics.
    pub semantics: Semantics,
    /// Its unit.
    pub unit: Unit,
    /// Its meaning in netgrain.
    pub description: Cow<'static, str>,
}

/// Seconds from 1900, the epoch of NTP, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;

/// Converts a timestamp to dateTimeNanoseconds (RFC 7011, section 6.1.10): seconds since 1900 modulo 2^32 and a binary
/// fraction. The fraction is rounded up, so that decoding yields the same nanosecond.
pub(crate) fn to_ntp(t: Timestamp) -> u128 {
    let seconds = t.secs().wrapping_add(NTP_EPOCH) & 0xffff_ffff;
    let fraction = (u64::from(t.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    u128::from(seconds << 32 | fraction)
}

/// Converts dateTimeNanoseconds to a timestamp from 1970 until 2106: values that would be before 1970 belong to NTP's
/// second era, which begins in 2036.
pub(crate) fn from_ntp(ntp: u128) -> Timestamp {
    let (seconds, fraction) = ((ntp >> 32) as u64 & 0xffff_ffff, ntp as u64 & 0xffff_ffff);
    let era = if seconds < NTP_EPOCH { 1 << 32 } else { 0 };
    Timestamp::from_secs_nanos(seconds + era - NTP_EPOCH, (fraction * 1_000_000_000) >> 32)
}

/// The value of layer2SegmentId (351): tunnel kind and identifier, for the tunnel kinds with an IANA number; 0 for
/// other tunnels.
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
        // Timestamps around the end of NTP's first era.
        moments.extend((0..3).map(|s| Timestamp::from_secs_nanos((1 << 32) - NTP_EPOCH - 1 + s, 1)));
        let any = |prng: &mut base::Prng| {
            Timestamp::from_secs_nanos(prng.below(SECONDS - NTP_EPOCH), prng.below(1_000_000_000))
        };
        moments.extend((0..100_000).map(|_| any(&mut prng)));
        for t in moments {
            assert_eq!(from_ntp(to_ntp(t)), t);
        }
        // The year 1970 in seconds of NTP, according to RFC 5905, section 6.
        assert_eq!(to_ntp(Timestamp::ZERO) >> 32, 2_208_988_800);
    }
}
