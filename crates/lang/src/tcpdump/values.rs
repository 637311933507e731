//! Values behind the words of a filter: ports, protocols and addresses, and the tests that they make with the words.

use super::lex::{FilterError, Token};
use super::link::{ARP, IP, RARP};
use super::offsets::Dir;
use super::parse::{Kind, Parser, Words};
use super::test::Test;
use super::{names, services};
use std::net::{IpAddr, Ipv4Addr};

impl Parser<'_> {
    /// `of` is the protocol that a service's name stands for.
    pub(super) fn ports(
        &self,
        words: Words<'_>,
        t: Token<'_>,
        of: Option<u8>,
        low: u16,
        high: u16,
    ) -> Result<Test, FilterError> {
        let said = match words.protocol {
            None => None,
            Some("tcp") => Some(6),
            Some("udp") => Some(17),
            Some("sctp") => Some(132),
            Some(other) => {
                return Err(t.error(format!("`{other}` has no ports; write `{other} and port {}`", t.text)));
            }
        };
        let protocols = match (said, of) {
            (Some(said), Some(of)) if said != of => {
                let name = if of == 6 { "tcp" } else { "udp" };
                return Err(
                    t.error(format!("it is a service of {name}; write `{name} port {}`, or its number", t.text))
                );
            }
            (None, None) => vec![6, 17, 132],
            (said, of) => said.into_iter().chain(of).take(1).collect(),
        };
        self.at.ports(&protocols, words.dir, low, high).map_err(|why| t.error(why))
    }

    pub(super) fn proto(&self, words: Words<'_>, t: Token<'_>) -> Result<Test, FilterError> {
        if words.dir != Dir::Either {
            return Err(t.error("a protocol has no direction; leave out `src` or `dst`"));
        }
        let above = || names::protocol(t.text).ok_or_else(|| t.error("it is no protocol; write its number"));
        let test = match words.protocol {
            None => {
                let p = above()?;
                self.at.ip_protocol(p).and_then(|v4| Ok(v4.or(self.at.ip6_protocol(p)?)))
            }
            Some("ip") => self.at.ip_protocol(above()?),
            Some("ip6") => self.at.ip6_protocol(above()?),
            Some("iso") => self.at.iso_protocol(above()?),
            Some("isis" | "is-is") => match names::number(t.text).map(u8::try_from) {
                Some(Ok(kind)) => self.at.isis(&[kind]),
                _ => return Err(t.error("it is no kind of IS-IS; write a number up to 255")),
            },
            Some("ether" | "link") => {
                let ethertype = names::ethertype(t.text)
                    .ok_or_else(|| t.error("it is no ethertype; write a number such as `0x0806`"))?;
                self.at.carries(ethertype)
            }
            Some(other) => return Err(t.error(format!("`{other}` carries no protocols that a filter knows"))),
        };
        test.map_err(|why| t.error(why))
    }

    pub(super) fn address(&mut self, words: Words<'_>, t: Token<'_>) -> Result<Test, FilterError> {
        if matches!(words.protocol, Some("ether" | "link")) {
            let mac = names::mac(t.text).ok_or_else(|| t.error("it is no link address; write `00:1b:21:0a:0b:0c`"))?;
            return self.at.mac(words.dir, mac).map_err(|why| t.error(why));
        }
        if words.protocol == Some("decnet") {
            let (area, node) = names::decnet(t.text)
                .filter(|_| words.kind == Kind::Host)
                .ok_or_else(|| t.error("it is no address of DECnet; write `decnet host AREA.NODE`"))?;
            return self.at.decnet(words.dir, area, node).map_err(|why| t.error(why));
        }
        let length = if self.peek().text == "/" && !self.peek().escaped {
            self.take();
            let l = self.take();
            Some(names::number(l.text).ok_or_else(|| l.error("it is no length of a network"))?)
        } else {
            None
        };
        let result = if let Ok(IpAddr::V6(address)) = t.text.parse() {
            self.address6(words, t, address.to_bits(), length)?
        } else {
            self.address4(words, t, length)?
        };
        result.map_err(|why| t.error(why))
    }

    fn address6(
        &mut self,
        words: Words<'_>,
        t: Token<'_>,
        address: u128,
        length: Option<u32>,
    ) -> Result<Result<Test, &'static str>, FilterError> {
        let length = length.unwrap_or(128);
        if length > 128 {
            return Err(t.error("an address of IPv6 has 128 bits"));
        }
        let mask = if length == 0 { 0 } else { u128::MAX << (128 - length) };
        if address & !mask != 0 {
            let net = std::net::Ipv6Addr::from_bits(address & mask);
            return Err(t.error(format!("bits behind the prefix are set; write `net {net}/{length}`")));
        }
        match words.protocol {
            None | Some("ip6") => Ok(self.at.host6(words.dir, address, mask)),
            Some(other) => {
                Err(t.error(format!("`{other}` has no addresses of IPv6; write `{other} and host {}`", t.text)))
            }
        }
    }

    fn address4(
        &mut self,
        words: Words<'_>,
        t: Token<'_>,
        length: Option<u32>,
    ) -> Result<Result<Test, &'static str>, FilterError> {
        let (address, written) = match numbered(t.text, words.kind).or_else(|| dotted(t.text)) {
            Some(found) => found,
            None => {
                let hint = if names::mac(t.text).is_some() {
                    format!("write `ether host {}`", t.text)
                } else if services::find(t.text).is_some() {
                    format!("it is no address; for a port write `port {}`", t.text)
                } else {
                    "it is no address; names of hosts are not looked up".to_owned()
                };
                return Err(t.error(hint));
            }
        };
        let mut mask = high_bits(written);
        if let Some(length) = length {
            if length > 32 {
                return Err(t.error("an address of IPv4 has 32 bits"));
            }
            mask = high_bits(length);
        } else if self.takes(&["mask"]) {
            let m = self.take();
            let (m, bits) = dotted(m.text).ok_or_else(|| m.error("it is no mask; write `255.255.0.0`"))?;
            mask = m & high_bits(bits);
        }
        if address & !mask != 0 {
            let net = Ipv4Addr::from_bits(address & mask);
            return Err(t.error(format!("bits behind the prefix are set; write `net {net}/{}`", mask.count_ones())));
        }
        let at = self.at;
        let host = |carrier| at.host(carrier, words.dir, address, mask);
        match words.protocol {
            None => Ok(host(IP).map(|ip| match (host(ARP), host(RARP)) {
                (Ok(arp), Ok(rarp)) => ip.or(arp).or(rarp),
                // Under labels there is nothing but IP.
                _ => ip,
            })),
            Some("ip") => Ok(host(IP)),
            Some("arp") => Ok(host(ARP)),
            Some("rarp") => Ok(host(RARP)),
            Some(other) => {
                Err(t.error(format!("`{other}` has no addresses of IPv4; write `{other} and host {}`", t.text)))
            }
        }
    }
}

/// A port by number or by the name of a service, and the protocol of which the name is.
pub fn port(text: &str) -> Option<(u16, Option<u8>)> {
    services::find(text).or_else(|| Some((u16::try_from(names::number(text)?).ok()?, None)))
}

/// A number without dots: for `host` it is the address; for `net` it goes as far to the left as it can, so that `net 10` is 10.0.0.0/8.
fn numbered(text: &str, kind: Kind) -> Option<(u32, u32)> {
    let n = names::number(text)?;
    let left = if kind == Kind::Net && n != 0 { n.leading_zeros() / 8 * 8 } else { 0 };
    Some((n << left, 32 - left))
}

/// One to four decimal numbers with dots, left-aligned, and how many bits were written.
fn dotted(text: &str) -> Option<(u32, u32)> {
    let mut bytes = [0_u8; 4];
    let mut written = 0;
    for part in text.split('.') {
        *bytes.get_mut(written)? = part.parse().ok().filter(|_| !part.starts_with('+'))?;
        written += 1;
    }
    Some((u32::from_be_bytes(bytes), written as u32 * 8))
}

const fn high_bits(n: u32) -> u32 {
    if n == 0 { 0 } else { u32::MAX << (32 - n) }
}
