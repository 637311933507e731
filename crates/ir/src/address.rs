//! Addresses as 128-bit numbers.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The IPv6 form of an IPv4 address (RFC 4291 §2.5.5.2), in which sets and keys store it.
pub const fn mapped(address: Ipv4Addr) -> u128 {
    0xffff_0000_0000 | address.to_bits() as u128
}

/// The 128-bit number that sets and keys store for an IPv6 address.
pub const fn wide(address: Ipv6Addr) -> u128 {
    address.to_bits()
}
