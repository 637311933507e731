//! Addresses as 128-bit numbers.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The IPv6 form of an IPv4 address (RFC 4291 §2.5.5.2), as stored in sets and keys.
pub const fn mapped(address: Ipv4Addr) -> u128 {
    0xffff_0000_0000 | address.to_bits() as u128
}

/// An IPv6 address as stored in sets and keys.
pub const fn wide(address: Ipv6Addr) -> u128 {
    address.to_bits()
}
