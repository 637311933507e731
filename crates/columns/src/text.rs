//! Formats and parses addresses as the text of columns.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use wire::MacAddr;

/// Writes an address like the `Display` of `IpAddr`, with faster code for IPv4, the most frequent case.
pub fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(four) => {
            for (i, part) in four.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                if part >= 100 {
                    out.push(b'0' + part / 100);
                }
                if part >= 10 {
                    out.push(b'0' + part / 10 % 10);
                }
                out.push(b'0' + part % 10);
            }
        }
        IpAddr::V6(six) => {
            // Writing into memory does not fail.
            let _ = write!(out, "{six}");
        }
    }
}

/// The inverse of [`write_address`].
pub fn read_address(text: &[u8]) -> Option<IpAddr> {
    let mut parts = [0u8; 4];
    let (mut at, mut value, mut digits) = (0, 0u32, 0);
    for byte in text {
        match byte {
            // Only an IPv6 address has more than three digits in a row.
            b'0'..=b'9' if digits < 3 => {
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b'.' if at < 3 && digits > 0 => {
                parts[at] = u8::try_from(value).ok()?;
                (at, value, digits) = (at + 1, 0, 0);
            }
            _ => return std::str::from_utf8(text).ok()?.parse().ok(),
        }
    }
    if at != 3 || digits == 0 {
        return None;
    }
    parts[3] = u8::try_from(value).ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(parts)))
}

/// A cache of parsed addresses, keyed by the address of the text in memory: equal texts of one dictionary are the same
/// slice. Colliding texts evict each other.
pub struct Memo(Vec<(usize, Option<IpAddr>)>);

impl Default for Memo {
    fn default() -> Self {
        Self(vec![(0, None); 1 << 12])
    }
}

impl Memo {
    /// Parses a text. All texts that are parsed with the same cache must be alive at the same time, because the cache
    /// identifies a text by its address in memory.
    pub fn address(&mut self, text: &[u8]) -> Option<IpAddr> {
        let at = text.as_ptr() as usize;
        let slot = &mut self.0[(at ^ at >> 12) & 0xfff];
        if slot.0 != at || slot.1.is_none() {
            *slot = (at, read_address(text));
        }
        slot.1
    }
}

/// Returns the number that represents a MAC address in memory.
pub fn mac_number(mac: MacAddr) -> i64 {
    let [a, b, c, d, e, f] = mac.0;
    i64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The inverse of [`mac_number`].
pub fn mac_of(number: i64) -> MacAddr {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    MacAddr([a, b, c, d, e, f])
}

/// Six pairs of digits.
pub fn write_mac(mac: MacAddr, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (i, byte) in mac.0.into_iter().enumerate() {
        if i > 0 {
            out.push(b':');
        }
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// The inverse of [`write_mac`].
pub fn read_mac(text: &[u8]) -> Option<MacAddr> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|n| n as u8);
    let mut mac = [0; 6];
    for (i, byte) in mac.iter_mut().enumerate() {
        let at = text.get(3 * i..3 * i + 2)?;
        *byte = digit(at[0])? << 4 | digit(at[1])?;
    }
    Some(MacAddr(mac))
}
