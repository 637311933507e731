//! The fields by which records can be grouped, and their values in a result.
//!
//! The key of a group consists of a few 64-bit words, whose layout the [plan](super::Plan) computes once. Each address
//! takes two words; all other fields are packed into the words after the addresses ([`Field::bits`]). Two groups are
//! equal if and only if all their words are equal; the key contains no hash.

use super::ReportError;
use flow::{Encapsulation, EndReason, Record, TcpState};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{IpProtocol, TunnelKind};

/// Prefix lengths of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Prefix length of IPv4 addresses.
    pub v4: u8,
    /// Prefix length of IPv6 addresses.
    pub v6: u8,
}

impl Prefix {
    /// Whole addresses.
    pub const WHOLE: Self = Self { v4: 32, v6: 128 };
}

/// A field by which flow records are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The flow itself: the records of one flow are one group.
    Flow,
    /// The source address.
    Src(Prefix),
    /// The destination address.
    Dst(Prefix),
    /// The address of either endpoint: a record counts for both endpoints.
    Host(Prefix),
    /// The source port.
    SrcPort,
    /// The destination port; for ICMP, type × 256 + code.
    DstPort,
    /// The port of either endpoint; with [`Field::Host`], the port of that host.
    Port,
    /// The protocol above IP.
    Protocol,
    /// The VLAN tags.
    Vlan,
    /// The topmost MPLS label.
    Mpls,
    /// The tunnel.
    Tunnel,
    /// The interface, by its number.
    Interface,
    /// The flow end reason.
    End,
    /// The TCP state.
    State,
}

/// The value of a field in the key of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// [`Record::id`].
    Flow(u64),
    /// An address and its prefix length.
    Address(IpAddr, u8),
    /// A port.
    Port(u16),
    /// A protocol.
    Protocol(IpProtocol),
    /// VLAN ids, the outer first.
    Vlan([Option<u16>; 2]),
    /// An MPLS label.
    Mpls(Option<u32>),
    /// A tunnel and its identifier.
    Tunnel(Option<(TunnelKind, u32)>),
    /// The number of an interface.
    Interface(u16),
    /// The flow end reason; `None` for an unknown number.
    End(Option<EndReason>),
    /// The TCP state; `None` for an unknown number.
    State(Option<TcpState>),
}

/// The fields without prefix lengths, by name.
const PLAIN: [(&str, Field); 11] = [
    ("flow", Field::Flow),
    ("sport", Field::SrcPort),
    ("dport", Field::DstPort),
    ("port", Field::Port),
    ("proto", Field::Protocol),
    ("vlan", Field::Vlan),
    ("mpls", Field::Mpls),
    ("tunnel", Field::Tunnel),
    ("interface", Field::Interface),
    ("end", Field::End),
    ("state", Field::State),
];

impl Field {
    /// The names of all fields, for messages and help.
    pub const WORDS: &str = "src, dst, host (each also src/24 or src/24/48: bits of IPv4 and of IPv6), sport, dport, \
                             port, proto, vlan, mpls, tunnel, interface, end, state, flow";

    /// The names without prefix lengths.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        ["src", "dst", "host"].into_iter().chain(PLAIN.iter().map(|(name, _)| *name))
    }

    /// Parses a field: `dport`, `src`, `src/24`, `src/24/48`, `src/48`; also the name of the column in machine-readable
    /// results, such as `dst_port`.
    ///
    /// # Errors
    /// If no field has this name, or a prefix length is too large.
    pub fn parse(word: &str) -> Result<Self, ReportError> {
        let has_name = |(name, field): &&(&str, Self)| *name == word || field.columns()[0] == word;
        if let Some((_, field)) = PLAIN.iter().find(has_name) {
            return Ok(*field);
        }
        let mut parts = word.split('/');
        let make = match parts.next() {
            Some("src") => Self::Src,
            Some("dst") => Self::Dst,
            Some("host") => Self::Host,
            _ => return Err(ReportError::UnknownField(word.to_owned())),
        };
        let bad = || ReportError::Prefix(word.to_owned());
        let bits = parts.map(|p| p.parse::<u8>().map_err(|_| bad())).collect::<Result<Vec<_>, _>>()?;
        let prefix = match bits[..] {
            [] => Prefix::WHOLE,
            [v4] if v4 <= 32 => Prefix { v4, ..Prefix::WHOLE },
            [v6] if v6 <= 128 => Prefix { v6, ..Prefix::WHOLE },
            [v4, v6] if v4 <= 32 && v6 <= 128 => Prefix { v4, v6 },
            _ => return Err(bad()),
        };
        Ok(make(prefix))
    }

    /// The name without prefix lengths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Src(_) => "src",
            Self::Dst(_) => "dst",
            Self::Host(_) => "host",
            plain => PLAIN.iter().find(|(_, f)| *f == plain).map_or("", |(name, _)| name),
        }
    }

    /// The names of the field in machine-readable results, from `flow::schema`. An address with a prefix length has the
    /// name of the complete address; `host` and `port` are not fields of a record.
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Flow => &["id"],
            Self::Src(_) => &["src"],
            Self::Dst(_) => &["dst"],
            Self::Host(_) => &["host"],
            Self::SrcPort => &["src_port"],
            Self::DstPort => &["dst_port"],
            Self::Port => &["port"],
            Self::Protocol => &["protocol"],
            Self::Vlan => &["vlan", "vlan_inner"],
            Self::Mpls => &["mpls"],
            Self::Tunnel => &["tunnel", "tunnel_id"],
            Self::Interface => &["interface"],
            Self::End => &["end_reason"],
            Self::State => &["tcp_state"],
        }
    }

    /// True if this field makes each record count for both of its endpoints.
    pub fn counts_both_ends(self) -> bool {
        matches!(self, Self::Host(_) | Self::Port)
    }

    /// True if the field is the address or port of one endpoint: of the source, or of the destination.
    pub fn is_of_one_end(self) -> bool {
        matches!(self, Self::Src(_) | Self::Dst(_) | Self::SrcPort | Self::DstPort)
    }

    /// The number of bits of the field in a key. An address takes two 64-bit words; one further bit of the key says
    /// whether all addresses of the key are IPv6.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Src(_) | Self::Dst(_) | Self::Host(_) => 128,
            Self::Flow => 64,
            Self::Tunnel => 40,
            Self::Vlan => 26,
            Self::Mpls => 21,
            Self::SrcPort | Self::DstPort | Self::Port | Self::Interface => 16,
            Self::Protocol | Self::End | Self::State => 8,
        }
    }

    /// Returns the two words of a key that contain the address of this field, and true if the address is IPv6. With
    /// `from_destination`, [`Field::Host`] is the destination.
    #[inline]
    pub(crate) fn address(self, record: &Record, from_destination: bool) -> ([u64; 2], bool) {
        let (address, prefix) = match self {
            Self::Dst(prefix) => (record.key.dst, prefix),
            Self::Host(prefix) if from_destination => (record.key.dst, prefix),
            Self::Src(prefix) | Self::Host(prefix) => (record.key.src, prefix),
            _ => return ([0; 2], false),
        };
        match address {
            IpAddr::V4(a) => ([0, u64::from(a.to_bits() & mask32(prefix.v4))], false),
            IpAddr::V6(a) => {
                let bits = a.to_bits() & mask128(prefix.v6);
                ([(bits >> 64) as u64, bits as u64], true)
            }
        }
    }

    /// Returns the value that the key stores for this field of the record; the field must not be an address.
    #[inline]
    pub(crate) fn packed_bits(self, record: &Record, from_destination: bool) -> u64 {
        let key = &record.key;
        match self {
            Self::Flow => record.id,
            Self::SrcPort => key.src_port.into(),
            Self::DstPort => key.dst_port.into(),
            // ICMP type and code are not the port of an endpoint.
            Self::Port if !key.protocol.has_ports() => 0,
            Self::Port if from_destination => key.dst_port.into(),
            Self::Port => key.src_port.into(),
            Self::Protocol => key.protocol.0.into(),
            Self::Vlan => {
                let one = |tag: Option<u16>| tag.map_or(0, |id| u64::from(id & 0xfff) + 1);
                one(record.encapsulation.vlans[0]) << 13 | one(record.encapsulation.vlans[1])
            }
            Self::Mpls => record.encapsulation.mpls.map_or(0, |label| u64::from(label & 0xf_ffff) + 1),
            Self::Tunnel => record.encapsulation.tunnel.map_or(0, |(kind, id)| (kind as u64) << 32 | u64::from(id)),
            Self::Interface => record.interface.into(),
            Self::End => record.end_reason as u64,
            Self::State => record.tcp_state as u64,
            Self::Src(_) | Self::Dst(_) | Self::Host(_) => 0,
        }
    }

    /// Returns the address that the two words of a key contain.
    pub(crate) fn address_value(self, words: [u64; 2], is_v6: bool) -> Value {
        let (Self::Src(prefix) | Self::Dst(prefix) | Self::Host(prefix)) = self else { return Value::Port(0) };
        match is_v6 {
            false => Value::Address(Ipv4Addr::from_bits(words[1] as u32).into(), prefix.v4),
            true => {
                let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
                Value::Address(Ipv6Addr::from_bits(bits).into(), prefix.v6)
            }
        }
    }

    /// Returns the value that the bits of a key contain for a field that is not an address.
    pub(crate) fn packed_value(self, bits: u64) -> Value {
        match self {
            Self::Flow => Value::Flow(bits),
            Self::Protocol => Value::Protocol(IpProtocol(bits as u8)),
            Self::Vlan => {
                let one = |tag: u64| (tag & 0x1fff).checked_sub(1).map(|id| id as u16);
                Value::Vlan([one(bits >> 13), one(bits)])
            }
            Self::Mpls => Value::Mpls(bits.checked_sub(1).map(|label| label as u32)),
            Self::Tunnel => {
                let kind = TunnelKind::ALL.iter().find(|k| **k as u64 == bits >> 32);
                Value::Tunnel(kind.map(|kind| (*kind, bits as u32)))
            }
            Self::Interface => Value::Interface(bits as u16),
            Self::End => Value::End(EndReason::ALL.into_iter().find(|e| *e as u64 == bits)),
            Self::State => Value::State(TcpState::ALL.into_iter().find(|s| *s as u64 == bits)),
            _ => Value::Port(bits as u16),
        }
    }
}

fn mask32(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0)
}

fn mask128(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0)
}

/// Writes the value as tables show it; `-` if the record has no value for the field.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Flow(id) => write!(f, "{id}"),
            Self::Address(a, bits) if bits == if a.is_ipv4() { 32 } else { 128 } => write!(f, "{a}"),
            Self::Address(a, bits) => write!(f, "{a}/{bits}"),
            Self::Port(port) => write!(f, "{port}"),
            Self::Protocol(protocol) => write!(f, "{protocol}"),
            Self::Vlan([None, None]) | Self::Mpls(None) | Self::Tunnel(None) => f.write_str("-"),
            Self::Vlan([Some(one), None]) | Self::Vlan([None, Some(one)]) => write!(f, "{one}"),
            Self::Vlan([Some(outer), Some(inner)]) => write!(f, "{outer}.{inner}"),
            Self::Mpls(Some(label)) => write!(f, "{label}"),
            Self::Tunnel(Some((kind, id))) => write!(f, "{}:{id}", flow::tunnel_name(kind)),
            Self::Interface(number) => write!(f, "{number}"),
            Self::End(end) => f.write_str(end.map_or("-", EndReason::name)),
            Self::State(state) => f.write_str(state.and_then(TcpState::name).unwrap_or("-")),
        }
    }
}

impl Value {
    /// The encapsulation of a record as in tables: `vlan 5.7 mpls 16 vxlan:5000`, or an empty text.
    pub fn encapsulation(around: &Encapsulation) -> String {
        let mut parts = Vec::new();
        if around.vlans != [None; 2] {
            parts.push(format!("vlan {}", Self::Vlan(around.vlans)));
        }
        if around.mpls.is_some() {
            parts.push(format!("mpls {}", Self::Mpls(around.mpls)));
        }
        if around.tunnel.is_some() {
            parts.push(Self::Tunnel(around.tunnel).to_string());
        }
        parts.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_rejected_with_the_list_of_fields() {
        assert!(matches!(Field::parse("source"), Err(ReportError::UnknownField(w)) if w == "source"));
        for bad in ["src/33/64", "src/129", "src/24/48/1", "src/", "dst/x", "host/-1"] {
            assert!(matches!(Field::parse(bad), Err(ReportError::Prefix(_))), "{bad}");
        }
        assert!(matches!(Field::parse("dport/8"), Err(ReportError::UnknownField(_))));
        assert!(ReportError::UnknownField("hots/24".into()).to_string().ends_with("did you mean host?"));
        assert!(ReportError::UnknownMeasure("byts".into()).to_string().ends_with("did you mean bytes?"));
        let said = ReportError::UnknownField("x".into()).to_string();
        for (name, field) in PLAIN {
            assert_eq!((Field::parse(name), field.name()), (Ok(field), name));
            assert_eq!(Field::parse(field.columns()[0]), Ok(field), "the column of {name}");
            assert!(said.contains(name), "{name} is missing in the message");
            for column in field.columns() {
                assert!(flow::schema::field(column).is_some() || *column == "port", "{name}: {column}");
            }
        }
    }

    #[test]
    fn a_single_prefix_length_applies_to_the_family_that_it_fits() {
        assert_eq!(Field::parse("src"), Ok(Field::Src(Prefix::WHOLE)));
        assert_eq!(Field::parse("src/24"), Ok(Field::Src(Prefix { v4: 24, v6: 128 })));
        assert_eq!(Field::parse("dst/48"), Ok(Field::Dst(Prefix { v4: 32, v6: 48 })));
        assert_eq!(Field::parse("host/0/0"), Ok(Field::Host(Prefix { v4: 0, v6: 0 })));
    }

    #[test]
    fn values_are_displayed_as_in_tables() {
        for (value, text) in [
            (Value::Address([10, 0, 0, 0].into(), 24), "10.0.0.0/24"),
            (Value::Address([10, 0, 0, 1].into(), 32), "10.0.0.1"),
            (Value::Vlan([Some(5), Some(7)]), "5.7"),
            (Value::Vlan([None; 2]), "-"),
            (Value::Tunnel(Some((TunnelKind::IpInIp, 0))), "ipip:0"),
            (Value::State(Some(TcpState::SynSent)), "syn_sent"),
            (Value::End(Some(EndReason::ActiveTimeout)), "active_timeout"),
            (Value::Protocol(IpProtocol::TCP), "tcp"),
        ] {
            assert_eq!(value.to_string(), text);
        }
    }
}
