//! Converts addresses to 128-bit numbers, and tests whether networks contain them.

use ir::Prefix;
use std::net::IpAddr;

/// True if the address is in the network. An IPv4 address is compared as an address in `::ffff:0:0/96`.
pub(super) fn is_in(address: IpAddr, net: Prefix) -> bool {
    let bits = u32::from(net.bits()) + if net.is_v4() { 96 } else { 0 };
    (wide(address) ^ wide(net.address())).checked_shr(128 - bits).unwrap_or(0) == 0
}

/// The address as a 128-bit number; IPv4 addresses are mapped to IPv6 (RFC 4291 §2.5.5.2).
pub(super) fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => 0xffff_0000_0000 | u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}
