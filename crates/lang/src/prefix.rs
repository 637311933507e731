//! A network: an address and how many of its bits count. Of either family; IPv4 is held among IPv6 as [`crate::ir::mapped`] says.

use crate::ir::mapped;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// See the module. Bits behind the prefix are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: u128,
    /// Of 128.
    len: u8,
    v4: bool,
}

impl Prefix {
    /// The network of `address` with `len` bits; `None` if that is more than the address has.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let (address, len, v4) = match address {
            IpAddr::V4(a) if len <= 32 => (mapped(a), len + 96, true),
            IpAddr::V6(a) if len <= 128 => (a.to_bits(), len, false),
            _ => return None,
        };
        Some(Self { address: address & mask(len), len, v4 })
    }

    /// `10.0.0.0/8`, `2001:db8::/32`, or an address alone.
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

    /// Whether it is one of IPv4.
    pub const fn is_v4(self) -> bool {
        self.v4
    }

    /// The first and the last address of it.
    pub const fn range(self) -> (u128, u128) {
        (self.address, self.address | !mask(self.len))
    }

    /// The address and the mask as two words each, high first.
    pub const fn words(self) -> ([u64; 2], [u64; 2]) {
        let mask = mask(self.len);
        ([(self.address >> 64) as u64, self.address as u64], [(mask >> 64) as u64, mask as u64])
    }

    /// The bits that count, as its family writes them.
    pub const fn bits(self) -> u8 {
        if self.v4 { self.len - 96 } else { self.len }
    }

    /// The address without the length.
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
