//! Community ID version 1 (github.com/corelight/community-id-spec): the flow hash of Zeek, Suricata and Arkime, by
//! which records of different programs can be joined.
//!
//! ```text
//! "1:" base64( SHA-1( seed, lesser address, greater address, protocol, 0, port of the lesser, port of the greater ) )
//! ```
//! The seed is 0. For ICMP, the hash uses the ICMP type as the source port. If another type is the answer to this type,
//! the hash uses that type as the destination port, so request and reply have the same ID. Otherwise the hash uses the
//! ICMP code as the destination port, and each direction has its own ID.

use crate::sha1::sha1;
use crate::{FlowKey, IpProtocol};
use std::net::IpAddr;

/// Pairs of ICMP types that answer each other, in either order (RFC 792, 950, 1256).
const ICMP_PAIRS: [(u16, u16); 5] = [(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)];

/// Pairs of ICMPv6 types that answer each other (RFC 4443, 2710, 4861, 4620, 8335).
const ICMPV6_PAIRS: [(u16, u16); 6] = [(128, 129), (133, 134), (135, 136), (130, 131), (139, 140), (144, 145)];

/// The Community ID of a flow. For ICMP the key must have type and code as its ports, as in [`crate::Decoded`].
///
/// ```
/// use netgrain_wire::{FlowKey, IpProtocol, Port, community_id};
/// let key = FlowKey {
///     src: "128.232.110.120".parse().unwrap(),
///     dst: "66.35.250.204".parse().unwrap(),
///     src_port: Port(34855),
///     dst_port: Port(80),
///     protocol: IpProtocol::TCP,
/// };
/// assert_eq!(community_id(&key), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
/// assert_eq!(community_id(&key), community_id(&key.reversed()));
/// ```
pub fn community_id(key: &FlowKey) -> String {
    let (mut src_port, mut dst_port, mut two_ways) = (key.src_port.0, key.dst_port.0, true);
    let pairs = match key.protocol {
        IpProtocol::ICMP => &ICMP_PAIRS[..],
        IpProtocol::ICMPV6 => &ICMPV6_PAIRS,
        _ => &[],
    };
    if !pairs.is_empty() {
        let answer = pairs.iter().find_map(|(a, b)| match src_port {
            kind if kind == *a => Some(*b),
            kind if kind == *b => Some(*a),
            _ => None,
        });
        two_ways = answer.is_some();
        dst_port = answer.unwrap_or(dst_port);
    } else if !matches!(key.protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP) {
        // For other protocols, the hashed message contains no ports and no bytes in their place.
        return encode(key.src.min(key.dst), key.src.max(key.dst), key.protocol, None);
    }
    let (mut src, mut dst) = (key.src, key.dst);
    if two_ways && (src, src_port) > (dst, dst_port) {
        (src, dst) = (dst, src);
        (src_port, dst_port) = (dst_port, src_port);
    }
    encode(src, dst, key.protocol, Some((src_port, dst_port)))
}

fn encode(first: IpAddr, second: IpAddr, protocol: IpProtocol, ports: Option<(u16, u16)>) -> String {
    let mut message = vec![0, 0];
    for address in [first, second] {
        match address {
            IpAddr::V4(a) => message.extend(a.octets()),
            IpAddr::V6(a) => message.extend(a.octets()),
        }
    }
    message.extend([protocol.0, 0]);
    for port in ports.into_iter().flat_map(|(a, b)| [a, b]) {
        message.extend(port.to_be_bytes());
    }
    format!("1:{}", base64(&sha1(&message)))
}

/// The base64 encoding of RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, i| word << 8 | usize::from(three.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            text.push(if i <= three.len() { DIGITS[word >> (18 - 6 * i) & 63].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
