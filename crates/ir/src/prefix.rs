//! A network prefix: an address and a length in bits, for IPv4 and IPv6. An IPv4 address is stored as the IPv6 address
//! of [`crate::mapped`].

use crate::mapped;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network prefix. The bits after the prefix length are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: u128,
    /// Prefix length in bits of the 128-bit form.
    len: u8,
    v4: bool,
}

impl Prefix {
    /// The network of `address` with the prefix length `len`; `None` if `len` exceeds the length of the address.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let (address, len, v4) = match address {
            IpAddr::V4(a) if len <= 32 => (mapped(a), len + 96, true),
            IpAddr::V6(a) if len <= 128 => (a.to_bits(), len, false),
            _ => return None,
        };
        Some(Self { address: address & mask(len), len, v4 })
    }

    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, len) = match text.split_once('/') {
            Some((a, l)) if l.bytes().all(|b| b.is_ascii_digit()) => (a.parse().ok()?, l.parse().ok()?),
            Some(_) => return None,
            None => {
                let a: IpAddr = text.parse().ok()?;
                (a, if a.is_ipv4() { 32 } else { 128 })
            }
        };
        Self::new(address, len)
    }

    /// True for an IPv4 network.
    pub const fn is_v4(self) -> bool {
        self.v4
    }

    /// The first and the last address of the network.
    pub const fn range(self) -> (u128, u128) {
        (self.address, self.address | !mask(self.len))
    }

    /// Address and mask, each as two 64-bit words, the high word first.
    pub const fn words(self) -> ([u64; 2], [u64; 2]) {
        let mask = mask(self.len);
        ([(self.address >> 64) as u64, self.address as u64], [(mask >> 64) as u64, mask as u64])
    }

    /// The prefix length as users write it: up to 32 for IPv4, up to 128 for IPv6.
    pub const fn bits(self) -> u8 {
        if self.v4 { self.len - 96 } else { self.len }
    }

    /// Prints the address without the prefix length.
    pub fn address(self) -> IpAddr {
        if self.v4 { Ipv4Addr::from_bits(self.address as u32).into() } else { Ipv6Addr::from_bits(self.address).into() }
    }
}

const fn mask(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - len) }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.bits())
    }
}
