//! What records can be grouped by, and what stands in its place in an answer.
//!
//! A group's key is a few 64-bit words, laid out once by the [plan](super::Plan): addresses take two words each, all
//! else is packed behind them ([`Field::bits`]). Equal words are equal groups; nothing is hashed away.

use super::ReportError;
use flow::{Encapsulation, EndReason, Record, TcpState};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{IpProtocol, TunnelKind};

/// Bits of an address that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Of IPv4.
    pub v4: u8,
    /// Of IPv6.
    pub v6: u8,
}

impl Prefix {
    /// Whole addresses.
    pub const WHOLE: Self = Self { v4: 32, v6: 128 };
}

/// Something that records have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The flow itself: the records of one flow are one group.
    Flow,
    /// Who began.
    Src(Prefix),
    /// With whom.
    Dst(Prefix),
    /// Either end: a record counts for both.
    Host(Prefix),
    /// The port of who began.
    SrcPort,
    /// The other port; of ICMP type × 256 + code.
    DstPort,
    /// The port of either end; with [`Field::Host`], of that host.
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
    /// Why records were made.
    End,
    /// How far TCP got.
    State,
}

/// What a group has in the place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// [`Record::id`].
    Flow(u64),
    /// An address, and how many bits of it count.
    Address(IpAddr, u8),
    /// A port.
    Port(u16),
    /// A protocol.
    Protocol(IpProtocol),
    /// Tags, outer first.
    Vlan([Option<u16>; 2]),
    /// A label.
    Mpls(Option<u32>),
    /// A tunnel and its number.
    Tunnel(Option<(TunnelKind, u32)>),
    /// The number of an interface.
    Interface(u16),
    /// Why records were made; `None` for a number that is no reason.
    End(Option<EndReason>),
    /// How far TCP got; the same.
    State(Option<TcpState>),
}

/// Every plain field by its word; addresses take bits as well.
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
    /// All words, for messages and help.
    pub const WORDS: &str = "src, dst, host (each also src/24 or src/24/48: bits of IPv4 and of IPv6), sport, dport, port, proto, vlan, mpls, tunnel, \
                             interface, end, state, flow";

    /// The names without prefix lengths.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        ["src", "dst", "host"].into_iter().chain(PLAIN.iter().map(|(name, _)| *name))
    }

    /// Reads one word: `dport`, `src`, `src/24`, `src/24/48`, `src/48`.
    ///
    /// # Errors
    /// When it is no such word, or says more bits than there are.
    pub fn parse(word: &str) -> Result<Self, ReportError> {
        if let Some((_, field)) = PLAIN.iter().find(|(name, _)| *name == word) {
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

    /// Its word, without bits.
    pub fn name(self) -> &'static str {
        match self {
            Self::Src(_) => "src",
            Self::Dst(_) => "dst",
            Self::Host(_) => "host",
            plain => PLAIN.iter().find(|(_, f)| *f == plain).map_or("", |(name, _)| name),
        }
    }

    /// The names of `flow::schema` by which answers for programs have it. Addresses with fewer bits keep the name;
    /// `host` and `port` are of either end and of no field of a record.
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

    /// Whether a record counts for both of its ends.
    pub fn is_either(self) -> bool {
        matches!(self, Self::Host(_) | Self::Port)
    }

    /// Whether it is of one end.
    pub fn is_one_end(self) -> bool {
        matches!(self, Self::Src(_) | Self::Dst(_) | Self::SrcPort | Self::DstPort)
    }

    /// Bits of the key that it takes. Addresses: those of two words; their family is told by one bit for all.
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

    /// The two words of an address field, and whether it is IPv6; `turned` asks for the other end.
    #[inline]
    pub(crate) fn address(self, record: &Record, turned: bool) -> ([u64; 2], bool) {
        let (address, prefix) = match self {
            Self::Dst(prefix) => (record.key.dst, prefix),
            Self::Host(prefix) if turned => (record.key.dst, prefix),
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

    /// The bits of any other field.
    #[inline]
    pub(crate) fn small(self, record: &Record, turned: bool) -> u64 {
        let key = &record.key;
        match self {
            Self::Flow => record.id,
            Self::SrcPort => key.src_port.into(),
            Self::DstPort => key.dst_port.into(),
            // Type and code of ICMP are no port of anybody.
            Self::Port if !key.protocol.has_ports() => 0,
            Self::Port if turned => key.dst_port.into(),
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

    /// What the words of an address field say.
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

    /// What the bits of any other field say.
    pub(crate) fn small_value(self, bits: u64) -> Value {
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
            Self::End => Value::End(ENDS.into_iter().find(|e| *e as u64 == bits)),
            Self::State => Value::State(STATES.into_iter().find(|s| *s as u64 == bits)),
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

const ENDS: [EndReason; 5] = [
    EndReason::IdleTimeout,
    EndReason::ActiveTimeout,
    EndReason::EndOfFlow,
    EndReason::ForcedEnd,
    EndReason::LackOfResources,
];

const STATES: [TcpState; 8] = [
    TcpState::None,
    TcpState::Midstream,
    TcpState::SynSent,
    TcpState::SynReceived,
    TcpState::Established,
    TcpState::HalfClosed,
    TcpState::Closed,
    TcpState::Reset,
];

/// A name in the small letters of a table: `SynSent` is `syn-sent`.
fn small_letters(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    for (i, c) in name.chars().enumerate() {
        if i > 0 && c.is_ascii_uppercase() {
            f.write_str("-")?;
        }
        write!(f, "{}", c.to_ascii_lowercase())?;
    }
    Ok(())
}

/// As people read it; `-` for what is not there.
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
            Self::Tunnel(Some((kind, id))) => {
                small_letters(f, &format!("{kind:?}"))?;
                write!(f, ":{id}")
            }
            Self::Interface(number) => write!(f, "{number}"),
            Self::End(None) | Self::State(None | Some(TcpState::None)) => f.write_str("-"),
            Self::End(Some(end)) => small_letters(f, &format!("{end:?}")),
            Self::State(Some(state)) => small_letters(f, &format!("{state:?}")),
        }
    }
}

impl Value {
    /// What surrounds a record, as a table shows it: `vlan 5.7 mpls 16 vxlan:5000`, or nothing.
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
    fn words_that_name_nothing_are_refused_with_those_that_do() {
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
            assert!(said.contains(name), "{name} is not told");
            for column in field.columns() {
                assert!(flow::schema::field(column).is_some() || *column == "port", "{name}: {column}");
            }
        }
    }

    #[test]
    fn one_number_of_bits_is_of_the_family_that_it_fits() {
        assert_eq!(Field::parse("src"), Ok(Field::Src(Prefix::WHOLE)));
        assert_eq!(Field::parse("src/24"), Ok(Field::Src(Prefix { v4: 24, v6: 128 })));
        assert_eq!(Field::parse("dst/48"), Ok(Field::Dst(Prefix { v4: 32, v6: 48 })));
        assert_eq!(Field::parse("host/0/0"), Ok(Field::Host(Prefix { v4: 0, v6: 0 })));
    }

    #[test]
    fn values_are_read_by_people() {
        for (value, text) in [
            (Value::Address([10, 0, 0, 0].into(), 24), "10.0.0.0/24"),
            (Value::Address([10, 0, 0, 1].into(), 32), "10.0.0.1"),
            (Value::Vlan([Some(5), Some(7)]), "5.7"),
            (Value::Vlan([None; 2]), "-"),
            (Value::Tunnel(Some((TunnelKind::IpInIp, 0))), "ip-in-ip:0"),
            (Value::State(Some(TcpState::SynSent)), "syn-sent"),
            (Value::End(Some(EndReason::ActiveTimeout)), "active-timeout"),
            (Value::Protocol(IpProtocol::TCP), "tcp"),
        ] {
            assert_eq!(value.to_string(), text);
        }
    }
}
