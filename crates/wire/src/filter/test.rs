//! The single tests: what each asks of a frame, and how it is written.

use crate::bytes::{be32, chunk};
use crate::{EtherType, Family, Headers, IpProtocol, MacAddr, arp, ethernet, ipv4, ipv6};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What is tested.
pub struct Subject<'a> {
    pub frame: &'a [u8],
    pub wire_len: u32,
    pub headers: &'a Headers,
}

/// Which end of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Source or destination.
    #[default]
    Either,
    Src,
    Dst,
    /// Source and destination.
    Both,
}

/// How a length is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// An address under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    V4 { address: u32, mask: u32 },
    V6 { address: u128, mask: u128 },
}

/// Where addresses are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// IPv4 and ARP, or IPv6, as the address says.
    Any,
    Ip,
    Arp,
    Ip6,
}

/// One test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    EtherType(EtherType),
    /// Of either family where none is given.
    Protocol(Option<Family>, IpProtocol),
    Address(Within, Direction, Network),
    /// Of TCP, UDP and SCTP where no protocol is given; from the first to the last port.
    Ports(Option<IpProtocol>, Direction, u16, u16),
    Mac(Direction, MacAddr),
    /// Any id where none is given.
    Vlan(Option<u16>),
    Length(Comparison, u32),
}

impl Direction {
    #[inline]
    pub fn holds<T>(self, src: T, dst: T, is: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Either => is(src) || is(dst),
            Self::Src => is(src),
            Self::Dst => is(dst),
            Self::Both => is(src) && is(dst),
        }
    }
}

impl Test {
    pub fn holds(&self, s: &Subject<'_>) -> bool {
        match *self {
            Self::EtherType(ethertype) => s.headers.ethertype() == ethertype,
            Self::Protocol(family, protocol) => {
                s.headers.protocol() == Some(protocol) && family.is_none_or(|f| f == s.headers.family())
            }
            Self::Address(within, direction, Network::V4 { address, mask }) => {
                s.v4_addresses(within).is_some_and(|(src, dst)| direction.holds(src, dst, |a| a & mask == address))
            }
            Self::Address(_, direction, Network::V6 { address, mask }) => {
                s.v6_addresses().is_some_and(|(src, dst)| direction.holds(src, dst, |a| a & mask == address))
            }
            Self::Ports(protocol, direction, first, last) => {
                s.ports(protocol).is_some_and(|(src, dst)| direction.holds(src, dst, |p| first <= p && p <= last))
            }
            Self::Mac(direction, mac) => {
                s.macs().is_some_and(|(src, dst)| direction.holds(src, dst, |m: &[u8]| m == mac.0))
            }
            Self::Vlan(None) => s.headers.vlan().is_some(),
            Self::Vlan(Some(id)) => s.headers.vlans(s.frame).any(|tag| tag == id),
            Self::Length(comparison, n) => comparison.holds(s.wire_len, n),
        }
    }
}

impl Comparison {
    const fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
            Self::Equal => a == b,
            Self::NotEqual => a != b,
        }
    }
}

impl Subject<'_> {
    fn l3(&self) -> usize {
        usize::from(self.headers.l3())
    }

    #[inline]
    fn v4_addresses(&self, within: Within) -> Option<(u32, u32)> {
        if self.headers.family() == Family::V4 && within != Within::Arp {
            let b: &[u8; 8] = chunk(self.frame, self.l3() + ipv4::at::SRC)?;
            return Some((be32(b, 0), be32(b, ipv4::at::DST - ipv4::at::SRC)));
        }
        if self.headers.ethertype() == EtherType::ARP && matches!(within, Within::Any | Within::Arp) {
            let b: &[u8; arp::at::END] = chunk(self.frame, self.l3())?;
            return Some((be32(b, arp::at::SENDER_IP), be32(b, arp::at::TARGET_IP)));
        }
        None
    }

    #[inline]
    fn v6_addresses(&self) -> Option<(u128, u128)> {
        if self.headers.family() != Family::V6 {
            return None;
        }
        let src = chunk(self.frame, self.l3() + ipv6::at::SRC)?;
        let dst = chunk(self.frame, self.l3() + ipv6::at::DST)?;
        Some((u128::from_be_bytes(*src), u128::from_be_bytes(*dst)))
    }

    #[inline]
    fn ports(&self, protocol: Option<IpProtocol>) -> Option<(u16, u16)> {
        let is = self.headers.protocol()?;
        let wanted = match protocol {
            Some(p) => is == p,
            None => matches!(is, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP),
        };
        let word = if wanted { self.headers.port_word(self.frame)? } else { return None };
        Some(((word >> 16) as u16, word as u16))
    }

    fn macs(&self) -> Option<(&[u8], &[u8])> {
        if !self.headers.is_ethernet() {
            return None;
        }
        let (dst, src) = self.frame.get(..ethernet::at::ETHERTYPE)?.split_at(ethernet::at::SRC);
        Some((src, dst))
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Either => "",
            Self::Src => "src ",
            Self::Dst => "dst ",
            Self::Both => "src and dst ",
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4 { address, mask: u32::MAX } => write!(f, "host {}", Ipv4Addr::from(address)),
            Self::V6 { address, mask: u128::MAX } => write!(f, "host {}", Ipv6Addr::from(address)),
            Self::V6 { address, mask } => write!(f, "net {}/{}", Ipv6Addr::from(address), mask.leading_ones()),
            Self::V4 { address, mask } if mask.leading_ones() == mask.count_ones() => {
                write!(f, "net {}/{}", Ipv4Addr::from(address), mask.leading_ones())
            }
            Self::V4 { address, mask } => write!(f, "net {} mask {}", Ipv4Addr::from(address), Ipv4Addr::from(mask)),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EtherType(e @ (EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP)) => write!(f, "{e}"),
            Self::EtherType(e) => write!(f, "ether proto {e}"),
            Self::Protocol(None, p @ (IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP))
            | Self::Protocol(Some(Family::V4), p @ IpProtocol::ICMP)
            | Self::Protocol(Some(Family::V6), p @ IpProtocol::ICMPV6) => write!(f, "{p}"),
            Self::Protocol(Some(Family::V4), p) => write!(f, "ip proto {}", p.0),
            Self::Protocol(Some(Family::V6), p) => write!(f, "ip6 proto {}", p.0),
            Self::Protocol(_, p) => write!(f, "proto {}", p.0),
            Self::Address(within, direction, network) => {
                let within = match within {
                    Within::Any => "",
                    Within::Ip => "ip ",
                    Within::Arp => "arp ",
                    Within::Ip6 => "ip6 ",
                };
                write!(f, "{within}{direction}{network}")
            }
            Self::Ports(protocol, direction, first, last) => {
                if let Some(protocol) = protocol {
                    write!(f, "{protocol} ")?;
                }
                if first == last {
                    write!(f, "{direction}port {first}")
                } else {
                    write!(f, "{direction}portrange {first}-{last}")
                }
            }
            Self::Mac(direction, mac) => write!(f, "ether {direction}host {mac}"),
            Self::Vlan(None) => f.write_str("vlan"),
            Self::Vlan(Some(id)) => write!(f, "vlan {id}"),
            Self::Length(Comparison::LessOrEqual, n) => write!(f, "less {n}"),
            Self::Length(Comparison::GreaterOrEqual, n) => write!(f, "greater {n}"),
            Self::Length(Comparison::Less, n) => write!(f, "len < {n}"),
            Self::Length(Comparison::Greater, n) => write!(f, "len > {n}"),
            Self::Length(Comparison::Equal, n) => write!(f, "len = {n}"),
            Self::Length(Comparison::NotEqual, n) => write!(f, "len != {n}"),
        }
    }
}
