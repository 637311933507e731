//! Parses values after the qualifiers of a filter (ports, protocols and addresses), and builds the tests that result.

use super::{Kind, Parser, Qualifiers};
use crate::error::FilterError;
use crate::lex::Token;
use crate::tree::{AddressProtocol, Dir, Primitive, Version};
use crate::unsupported::unknown;
use crate::{names, services};
use std::net::{IpAddr, Ipv4Addr};

impl Parser<'_> {
    /// The test for a port range; `of` is the protocol that follows from the service name.
    pub(super) fn ports(
        &self,
        words: Qualifiers,
        t: Token<'_>,
        of: Option<u8>,
        low: u16,
        high: u16,
    ) -> Result<Primitive, FilterError> {
        let named = match words.protocol {
            None => None,
            Some("tcp") => Some(6),
            Some("udp") => Some(17),
            Some("sctp") => Some(132),
            Some(other) => {
                return Err(t.error(format!("`{other}` has no ports; write `{other} and port {}`", t.text)));
            }
        };
        let of = match (named, of) {
            (Some(named), Some(of)) if named != of => {
                let name = if of == 6 { "tcp" } else { "udp" };
                return Err(t.error(format!(
                    "this service exists only over {name}; write `{name} port {}`, or its number",
                    t.text
                )));
            }
            (named, of) => named.or(of),
        };
        Ok(Primitive::Ports { of, dir: words.dir, low, high })
    }

    pub(super) fn proto(&self, words: Qualifiers, t: Token<'_>) -> Result<Primitive, FilterError> {
        if words.dir != Dir::Either {
            return Err(t.error("a protocol has no direction; leave out `src` or `dst`"));
        }
        let above = || names::protocol(t.text).ok_or_else(|| unknown_protocol(t));
        Ok(match words.protocol {
            None => Primitive::IpProto(None, above()?),
            Some("ip") => Primitive::IpProto(Some(Version::V4), above()?),
            Some("ip6") => Primitive::IpProto(Some(Version::V6), above()?),
            Some("iso") => Primitive::IsoProto(names::iso(t.text).map_or_else(above, Ok)?),
            Some("isis" | "is-is") => match names::number(t.text).map(u8::try_from) {
                Some(Ok(kind)) => Primitive::IsIs(vec![kind]),
                _ => return Err(t.error("not an IS-IS PDU type; write a number up to 255")),
            },
            Some("ether") => {
                let ethertype = names::ethertype(t.text)
                    .ok_or_else(|| t.error("not an ethertype; write a number such as `0x0806`"))?;
                Primitive::EtherProto(ethertype)
            }
            Some(other) => return Err(t.error(format!("`{other}` has no protocol field that a filter can test"))),
        })
    }

    pub(super) fn chain(&self, words: Qualifiers, t: Token<'_>) -> Result<Primitive, FilterError> {
        let p = names::protocol(t.text).ok_or_else(|| unknown_protocol(t))?;
        match words.protocol {
            None => Ok(Primitive::Chain(None, p)),
            Some("ip") => Ok(Primitive::Chain(Some(Version::V4), p)),
            Some("ip6") => Ok(Primitive::Chain(Some(Version::V6), p)),
            Some(other) => Err(t.error(format!("`{other}` has no chain of headers; write `protochain {}`", t.text))),
        }
    }

    pub(super) fn address(&mut self, words: Qualifiers, t: Token<'_>) -> Result<Primitive, FilterError> {
        if words.protocol == Some("ether") {
            let mac = names::mac(t.text).ok_or_else(|| t.error("not a link address; write `00:1b:21:0a:0b:0c`"))?;
            return Ok(Primitive::Mac(words.dir, mac));
        }
        if words.protocol == Some("decnet") {
            let (area, node) = names::decnet(t.text)
                .filter(|_| words.kind == Kind::Host)
                .ok_or_else(|| t.error("not a DECnet address; write `decnet host AREA.NODE`"))?;
            return Ok(Primitive::Decnet(words.dir, area, node));
        }
        let length = if self.peek().text == "/" && !self.peek().escaped {
            self.take();
            let l = self.take();
            Some(names::number(l.text).ok_or_else(|| match dotted(l.text).filter(|_| l.text.contains('.')) {
                Some((mask, _)) if mask.leading_ones() + mask.trailing_zeros() == 32 => {
                    l.error(format!("write `net {0}/{1}` or `net {0} mask {2}`", t.text, mask.leading_ones(), l.text))
                }
                Some(_) => l.error(format!("write `net {} mask {}`", t.text, l.text)),
                None => l.error("not a prefix length; write `/8`"),
            })?)
        } else {
            None
        };
        if let Ok(IpAddr::V6(address)) = t.text.parse() {
            return self.address6(words, t, address.to_bits(), length);
        }
        if let (Kind::Host, Some(length)) = (words.kind, length) {
            return Err(t.error(format!("a host has no prefix length; write `net {}/{length}`", t.text)));
        }
        self.address4(words, t, length)
    }

    fn address6(
        &mut self,
        words: Qualifiers,
        t: Token<'_>,
        address: u128,
        length: Option<u32>,
    ) -> Result<Primitive, FilterError> {
        let length = length.unwrap_or(128);
        if length > 128 {
            return Err(t.error("the prefix length of an IPv6 network is at most 128"));
        }
        let mask = if length == 0 { 0 } else { u128::MAX << (128 - length) };
        if address & !mask != 0 {
            let net = std::net::Ipv6Addr::from_bits(address & mask);
            return Err(t.error(format!("the address has bits behind the prefix; write `net {net}/{length}`")));
        }
        match words.protocol {
            None | Some("ip6") => Ok(Primitive::Host6 { dir: words.dir, address, mask }),
            Some(other) => {
                Err(t.error(format!("`{other}` has no IPv6 addresses; write `{other} and host {}`", t.text)))
            }
        }
    }

    fn address4(&mut self, words: Qualifiers, t: Token<'_>, length: Option<u32>) -> Result<Primitive, FilterError> {
        let (address, written) = match numbered(t.text, words.kind).or_else(|| dotted(t.text)) {
            Some(found) => found,
            None => {
                let hint = if names::mac(t.text).is_some() {
                    format!("write `ether host {}`", t.text)
                } else if services::find(t.text).is_some() {
                    format!("not an address; for a port write `port {}`", t.text)
                } else if let Some(near) = crate::unsupported::near(t.text) {
                    format!("did you mean `{near}`?")
                } else {
                    "not an address; host names are not resolved".to_owned()
                };
                return Err(t.error(hint));
            }
        };
        let mut mask = high_bits(written);
        if let Some(length) = length {
            if length > 32 {
                return Err(t.error("the prefix length of an IPv4 network is at most 32"));
            }
            mask = high_bits(length);
        } else if self.takes(&["mask"]) {
            let m = self.take();
            let (m, bits) = dotted(m.text).ok_or_else(|| m.error("not a mask; write `255.255.0.0`"))?;
            mask = m & high_bits(bits);
        }
        if address & !mask != 0 {
            let net = Ipv4Addr::from_bits(address & mask);
            return Err(
                t.error(format!("the address has bits behind the prefix; write `net {net}/{}`", mask.count_ones()))
            );
        }
        let host = |within| Ok(Primitive::Host4 { within, dir: words.dir, address, mask });
        match words.protocol {
            None => host(None),
            Some("ip") => host(Some(AddressProtocol::Ip)),
            Some("arp") => host(Some(AddressProtocol::Arp)),
            Some("rarp") => host(Some(AddressProtocol::Rarp)),
            Some(other) => {
                Err(t.error(format!("`{other}` has no IPv4 addresses; write `{other} and host {}`", t.text)))
            }
        }
    }
}

/// Parses a port number or a service name. The second result is the protocol that follows from the service name.
pub fn port(text: &str) -> Option<(u16, Option<u8>)> {
    services::find(text).or_else(|| Some((u16::try_from(names::number(text)?).ok()?, None)))
}

/// The correction of a text after `port` that is neither a port number nor a service name.
pub fn not_a_port(text: &str) -> String {
    let is_range = text.split_once('-').is_some_and(|(low, high)| port(low).is_some() && port(high).is_some());
    if is_range {
        format!("for a range of ports write `portrange {text}`")
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        "a port is a number up to 65535".to_owned()
    } else {
        unknown("service", services::near(text), "the port number, up to 65535")
    }
}

/// Parses an address without dots. For `host` the number is the address; for `net` it is shifted left by whole bytes as
/// far as possible, so `net 10` means 10.0.0.0/8.
fn numbered(text: &str, kind: Kind) -> Option<(u32, u32)> {
    let n = names::number(text)?;
    let left = if kind == Kind::Net && n != 0 { n.leading_zeros() / 8 * 8 } else { 0 };
    Some((n << left, 32 - left))
}

/// Parses one to four decimal numbers with dots. They become the high bytes of the address; the second result is the
/// number of bits that were written.
fn dotted(text: &str) -> Option<(u32, u32)> {
    let mut bytes = [0_u8; 4];
    let mut written = 0;
    for part in text.split('.') {
        *bytes.get_mut(written)? = part.parse().ok().filter(|_| !part.starts_with('+'))?;
        written += 1;
    }
    Some((u32::from_be_bytes(bytes), written as u32 * 8))
}

fn unknown_protocol(t: Token<'_>) -> FilterError {
    t.error(unknown("protocol", names::near_protocol(t.text), "its number"))
}

const fn high_bits(n: u32) -> u32 {
    if n == 0 { 0 } else { u32::MAX << (32 - n) }
}
