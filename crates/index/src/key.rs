//! What can be asked of an index: a host, a port, a flow. Keys are hashed without a secret, so that a file written on one
//! machine can be asked on another.

use base::hash::combine;
use std::net::IpAddr;

const HOST: u64 = 0x6e67_2d68_6f73_7400;
const PORT: u64 = 0x6e67_2d70_6f72_7400;
const FLOW: u64 = 0x6e67_2d66_6c6f_7700;

/// One thing to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// An address, as source or destination (of ARP too).
    Host(IpAddr),
    /// A TCP, UDP, SCTP, DCCP or UDP-Lite port, as source or destination.
    Port(u16),
    /// Both ends of a conversation.
    Flow(FlowKey),
}

impl Key {
    /// The 64 bits that stand for it in a set.
    pub fn hash(self) -> u64 {
        match self {
            Self::Host(address) => host(words(address)),
            Self::Port(number) => port(number),
            Self::Flow(f) => flow(f.protocol, (host(words(f.a.0)), f.a.1), (host(words(f.b.0)), f.b.1)),
        }
    }
}

/// Two ends and a protocol; both directions are the same flow. Ports are 0 where the protocol has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    protocol: u8,
    a: (IpAddr, u16),
    b: (IpAddr, u16),
}

impl FlowKey {
    /// The flow between two ends, in either order.
    pub fn new(protocol: u8, one: (IpAddr, u16), other: (IpAddr, u16)) -> Self {
        Self { protocol, a: one.min(other), b: one.max(other) }
    }
}

/// An address as two big-endian words; IPv4 as the mapped IPv6 address (RFC 4291 section 2.5.5.2).
fn words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// The two words of an IPv4 address given as a number.
pub(crate) const fn v4_words(address: u32) -> [u64; 2] {
    [0, 0xffff_0000_0000 | address as u64]
}

pub(crate) fn host(w: [u64; 2]) -> u64 {
    combine(combine(HOST, w[0]), w[1])
}

pub(crate) fn port(number: u16) -> u64 {
    combine(PORT, u64::from(number))
}

/// From the hashes of both hosts, in either order.
pub(crate) fn flow(protocol: u8, a: (u64, u16), b: (u64, u16)) -> u64 {
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    let ports = u64::from(protocol) << 32 | u64::from(low.1) << 16 | u64::from(high.1);
    combine(combine(combine(FLOW, low.0), high.0), ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_one_flow_and_kinds_do_not_meet() {
        let (a, b) = (("10.0.0.1".parse().unwrap(), 80), ("2001:db8::1".parse().unwrap(), 4000));
        assert_eq!(Key::Flow(FlowKey::new(6, a, b)).hash(), Key::Flow(FlowKey::new(6, b, a)).hash());
        assert_ne!(Key::Flow(FlowKey::new(6, a, b)).hash(), Key::Flow(FlowKey::new(17, a, b)).hash());
        assert_eq!(Key::Host(a.0).hash(), host(v4_words(0x0a00_0001)));
        assert_ne!(Key::Port(80).hash(), Key::Host("0.0.0.80".parse().unwrap()).hash());
    }
}
