//! Values: addresses, networks, ports, protocols, numbers; and what to say when a word is none.

use super::error::{FilterCause, FilterError};
use super::test::Network;
use super::token::Token;
use crate::{EtherType, IpProtocol, MacAddr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port names that everyone knows; the same on every machine, unlike `/etc/services`.
const PORTS: [(&str, u16); 21] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("dns", 53),
    ("tftp", 69),
    ("http", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("imaps", 993),
    ("mdns", 5353),
    ("sip", 5060),
    ("sips", 5061),
];

fn wrong(token: &Token<'_>, what: &'static str, write: impl Into<String>) -> FilterError {
    match token.text {
        "" => token.error(FilterCause::Expected { what }),
        _ => token.error(FilterCause::Value { what, write: write.into() }),
    }
}

/// A number up to `most`, decimal or `0x…`.
pub fn number(token: &Token<'_>, most: u32, what: &'static str, example: &str) -> Result<u32, FilterError> {
    parse_number(token.text)
        .filter(|n| *n <= most)
        .ok_or_else(|| wrong(token, what, format!("`{example}`, at most {most}")))
}

fn parse_number(text: &str) -> Option<u32> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u32::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+'));
    }
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

pub fn mac(token: &Token<'_>) -> Result<MacAddr, FilterError> {
    token.text.parse().map_err(|_| wrong(token, "a link address", "six bytes such as `ether host 00:1b:21:0a:0b:0c`"))
}

pub fn host(token: &Token<'_>) -> Result<Network, FilterError> {
    let text = token.text;
    match text.parse() {
        Ok(IpAddr::V4(a)) => Ok(Network::V4 { address: a.into(), mask: u32::MAX }),
        Ok(IpAddr::V6(a)) => Ok(Network::V6 { address: a.into(), mask: u128::MAX }),
        Err(_) if text.contains('/') => Err(wrong(token, "a single address", format!("`net {text}`"))),
        Err(_) if text.parse::<MacAddr>().is_ok() => Err(wrong(token, "an IP address", format!("`ether host {text}`"))),
        Err(_) if parse_number(text).is_some() => {
            Err(wrong(token, "an address", format!("`port {text}` if it is a port")))
        }
        Err(_) => Err(wrong(
            token,
            "an address",
            "it as numbers, such as `host 10.0.0.1` or `host 2001:db8::1` (names are not looked up)",
        )),
    }
}

/// `10.0.0.0/8`, `10` (as many bytes as are written), `10.0.0.0 mask 255.0.0.0`, `2001:db8::/32`.
pub fn net(token: &Token<'_>, mask: Option<&Token<'_>>) -> Result<Network, FilterError> {
    const EXAMPLE: &str = "`net 10.0.0.0/8` or `net 2001:db8::/32`";
    let not_a_net = || wrong(token, "a network", EXAMPLE);
    let (text, len) = match token.text.split_once('/') {
        Some((text, len)) => (text, Some(parse_number(len).ok_or_else(not_a_net)?)),
        None => (token.text, None),
    };
    let net = if let Ok(address) = text.parse::<Ipv6Addr>() {
        let len = len.unwrap_or(128);
        if len > 128 || mask.is_some() {
            return Err(not_a_net());
        }
        Network::V6 { address: address.into(), mask: high_bits_128(len) }
    } else {
        let (address, written) = partial_v4(text).ok_or_else(not_a_net)?;
        let mask = match (len, mask) {
            (Some(_), Some(mask)) => {
                return Err(mask.error(FilterCause::Expected { what: "either `/` or `mask`, not both" }));
            }
            (Some(len), None) if len <= 32 => high_bits_32(len),
            (Some(_), None) => return Err(not_a_net()),
            (None, Some(mask)) => {
                mask.text.parse::<Ipv4Addr>().map_err(|_| wrong(mask, "a mask", "`mask 255.255.0.0`"))?.into()
            }
            (None, None) => high_bits_32(written),
        };
        Network::V4 { address, mask }
    };
    let (inside, exact) = match net {
        Network::V4 { address, mask } => (Network::V4 { address: address & mask, mask }, address & mask == address),
        Network::V6 { address, mask } => (Network::V6 { address: address & mask, mask }, address & mask == address),
    };
    if exact { Ok(net) } else { Err(token.error(FilterCause::HostBits { write: inside.to_string() })) }
}

/// One to four bytes with dots, and how many bits were written.
fn partial_v4(text: &str) -> Option<(u32, u32)> {
    let mut bytes = [0; 4];
    let mut written = 0;
    for part in text.split('.') {
        *bytes.get_mut(written)? = part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()))?;
        written += 1;
    }
    Some((u32::from_be_bytes(bytes), written as u32 * 8))
}

const fn high_bits_32(len: u32) -> u32 {
    if len == 0 { 0 } else { u32::MAX << (32 - len) }
}

const fn high_bits_128(len: u32) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - len) }
}

pub fn port(token: &Token<'_>) -> Result<(u16, u16), FilterError> {
    if let Some(port) = port_number(token.text) {
        return Ok((port, port));
    }
    let range = token.text.split_once('-').is_some_and(|(a, b)| port_number(a).is_some() && port_number(b).is_some());
    Err(if range {
        wrong(token, "one port", format!("`portrange {}`", token.text))
    } else {
        wrong(token, "a port", "a number from 0 to 65535, or a name such as `http`")
    })
}

pub fn ports(token: &Token<'_>) -> Result<(u16, u16), FilterError> {
    let text = token.text;
    if let Some(port) = port_number(text) {
        return Ok((port, port));
    }
    // Some port names have a hyphen themselves, so each one is tried.
    let mut cuts = text.match_indices('-').map(|(at, _)| (&text[..at], &text[at + 1..]));
    match cuts.find_map(|(a, b)| Some((port_number(a)?, port_number(b)?))) {
        Some((first, last)) if first <= last => Ok((first, last)),
        Some((first, last)) => Err(wrong(token, "a range upwards", format!("`portrange {last}-{first}`"))),
        None => Err(wrong(token, "a range of ports", "`portrange 80-90`")),
    }
}

fn port_number(text: &str) -> Option<u16> {
    let named = PORTS.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
    named.or_else(|| parse_number(text).and_then(|n| u16::try_from(n).ok()))
}

/// A name may have the backslash that tcpdump asks for.
pub fn protocol(token: &Token<'_>) -> Result<IpProtocol, FilterError> {
    let name = token.text.strip_prefix('\\').unwrap_or(token.text);
    IpProtocol::from_name(name)
        .or_else(|| parse_number(name).and_then(|n| u8::try_from(n).ok()).map(IpProtocol))
        .ok_or_else(|| {
            wrong(token, "an IP protocol", "a number from 0 to 255, or tcp, udp, sctp, icmp, icmp6, igmp, gre, esp, ah")
        })
}

pub fn ethertype(token: &Token<'_>) -> Result<EtherType, FilterError> {
    match token.text.strip_prefix('\\').unwrap_or(token.text) {
        "ip" => Ok(EtherType::IPV4),
        "ip6" => Ok(EtherType::IPV6),
        "arp" => Ok(EtherType::ARP),
        other => parse_number(other)
            .and_then(|n| u16::try_from(n).ok())
            .map(EtherType)
            .ok_or_else(|| wrong(token, "an ethertype", "ip, ip6, arp, or a number such as 0x88cc")),
    }
}

/// The error for a value that stands alone: with the words it lacks, if its shape tells them, else for `otherwise`.
pub fn bare(token: &Token<'_>, otherwise: FilterCause) -> FilterError {
    let text = token.text;
    let word = if text.parse::<IpAddr>().is_ok() {
        "host"
    } else if text.parse::<MacAddr>().is_ok() {
        "ether host"
    } else if net(token, None).is_ok() && text.contains(['/', '.']) {
        "net"
    } else if port_number(text).is_some() {
        "port"
    } else if ports(token).is_ok() {
        "portrange"
    } else {
        return token.error(otherwise);
    };
    token.error(FilterCause::Bare { write: format!("{word} {text}") })
}

/// Whether it could be meant as a word of the language at all.
pub fn looks_like_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// The candidate that differs least from `text`, if by no more than a slip: one letter in a short word, two in a longer.
pub fn nearest(text: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // A word much longer than any of ours is no slip, and need not be measured.
    if text.len() > 16 {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let near = candidates.map(|c| (distance(lower.as_bytes(), c.as_bytes()), c)).min_by_key(|(d, _)| *d)?;
    let most = match text.len() {
        0..=2 => 0,
        3 => 1,
        _ => 2,
    };
    (near.0 <= most).then_some(near.1)
}

/// Insertions, deletions, changes and swaps of neighbours between two words (Damerau 1964, the restricted form).
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        (before, last) = (last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        assert_eq!(distance(b"hots", b"host"), 1);
        assert_eq!(distance(b"", b"port"), 4);
        let words = || ["host", "port", "portrange", "net"].into_iter();
        assert_eq!(nearest("hots", words()), Some("host"));
        assert_eq!(nearest("PORT", words()), Some("port"));
        assert_eq!(nearest("prtrang", words()), Some("portrange"));
        assert_eq!(nearest("ne", words()), None);
        assert_eq!(nearest("ethernet", words()), None);
    }
}
