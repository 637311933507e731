//! The grammar of filters, by descent.
//!
//! ```text
//! filter    = [ term { ("and" | "or") (term | value) } ]         equal, from the left
//! term      = "not" term | "(" filter ")" | relation | primitive
//! primitive = [protocol] [direction] [kind] value | protocol | vlan … | less n | …
//! value     = number | address | network | name | "not" value | "(" value { ("and" | "or") value } ")"
//! relation  = sum compare sum;  sum = … "|" "^" "&" … "<<" ">>" … "+" "-" … "*" "/" "%" … "-" sum | "(" sum ")" | number | len | p[i:n]
//! ```
//! A value without words before it repeats those of the value before.

use super::arith::Number;
use super::lex::{FilterError, Token, tokens};
use super::link::{IP, IP6, Link};
use super::offsets::{Dir, Offsets};
use super::refused::{near, refused, suggestion};
use super::test::Test;
use super::values::port;
use super::{MAX_DEPTH, MAX_TESTS, names};
use crate::ir::Cmp;
use std::net::IpAddr;

pub fn parse(text: &str, link: Link) -> Result<Test, FilterError> {
    let tokens = tokens(text)?;
    let mut p = Parser { tokens: &tokens, next: 0, at: Offsets::of(link), said: None, depth: 0, tests: 0 };
    if p.peek().text.is_empty() {
        return Ok(Test::Always(true));
    }
    let test = p.filter()?;
    match p.peek() {
        t if t.text.is_empty() => Ok(test),
        t => match near(t.text) {
            Some(near) => Err(t.error(format!("a filter does not go on like this; did you mean `{near}`?"))),
            None => Err(t.error("a filter does not go on like this; join tests by `and` or `or`")),
        },
    }
}

/// Words that are tests by themselves, perhaps with a number or a kind behind them.
const BY_THEMSELVES: [&str; 20] = [
    "vlan",
    "mpls",
    "pppoed",
    "pppoes",
    "geneve",
    "less",
    "greater",
    "broadcast",
    "multicast",
    "inbound",
    "outbound",
    "ifindex",
    "llc",
    "l1",
    "l2",
    "iih",
    "lsp",
    "snp",
    "csnp",
    "psnp",
];

/// What a protocol's name alone stands for; `None` if it is not one.
pub fn abbreviation(name: &str, at: &Offsets) -> Option<Result<Test, &'static str>> {
    const IS_IS: u32 = 0x83;
    let either = |p| Ok::<_, &'static str>(at.ip_protocol(p)?.or(at.ip6_protocol(p)?));
    Some(match name {
        "tcp" => either(6),
        "udp" => either(17),
        "sctp" => either(132),
        "pim" => either(103),
        "ah" => either(51),
        "esp" => either(50),
        "icmp" => at.ip_protocol(1),
        "igmp" => at.ip_protocol(2),
        "igrp" => at.ip_protocol(9),
        "vrrp" | "carp" => at.ip_protocol(112),
        "icmp6" => at.ip6_protocol(58),
        "esis" | "es-is" => at.iso_protocol(0x82),
        "isis" | "is-is" => at.iso_protocol(IS_IS),
        "clnp" => at.iso_protocol(0x81),
        "ip" | "arp" | "rarp" | "ip6" | "atalk" | "aarp" | "decnet" | "lat" | "sca" | "moprc" | "mopdl" | "iso"
        | "stp" | "ipx" | "netbeui" => at.carries(names::ethertype(name)?),
        _ => return None,
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

/// The words before a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Words<'a> {
    pub protocol: Option<&'a str>,
    pub dir: Dir,
    pub kind: Kind,
}

pub(super) struct Parser<'a> {
    tokens: &'a [Token<'a>],
    next: usize,
    pub(super) at: Offsets,
    /// The words of the last value.
    said: Option<Words<'a>>,
    depth: usize,
    tests: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Token<'a> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Token<'a> {
        self.tokens.get(self.next + ahead).copied().unwrap_or(self.tokens[self.tokens.len() - 1])
    }

    pub(super) fn take(&mut self) -> Token<'a> {
        let t = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        t
    }

    pub(super) fn takes(&mut self, words: &[&str]) -> bool {
        let t = self.peek();
        let is = !t.escaped && words.contains(&t.text);
        if is {
            self.take();
        }
        is
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<(), FilterError> {
        if self.takes(&[word]) { Ok(()) } else { Err(self.peek().error(format!("`{word}` is missing before it"))) }
    }

    pub(super) fn deeper<T>(
        &mut self,
        what: impl FnOnce(&mut Self) -> Result<T, FilterError>,
    ) -> Result<T, FilterError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.peek().error(format!("more than {MAX_DEPTH} parentheses inside one another")));
        }
        self.depth += 1;
        let out = what(self);
        self.depth -= 1;
        out
    }

    /// One more test, value or number.
    pub(super) fn counted(&mut self) -> Result<(), FilterError> {
        self.tests += 1;
        if self.tests > MAX_TESTS {
            return Err(self.peek().error(format!("more than {MAX_TESTS} tests and numbers in one filter")));
        }
        Ok(())
    }

    fn filter(&mut self) -> Result<Test, FilterError> {
        let mut left = self.term()?;
        loop {
            let is_and = self.takes(&["and", "&&"]);
            if !is_and && !self.takes(&["or", "||"]) {
                return Ok(left);
            }
            let right = if self.begins_value() {
                self.counted()?;
                self.value_list()?
            } else {
                self.term()?
            };
            left = if is_and { left.and(right) } else { left.or(right) };
        }
    }

    /// Whether what follows is a value that repeats words. `not` belongs to it if a value follows.
    fn begins_value(&self) -> bool {
        if self.said.is_none() {
            return false;
        }
        let mut ahead = 0;
        while matches!(self.peek_at(ahead).text, "not" | "!") && !self.peek_at(ahead).escaped {
            ahead += 1;
        }
        let t = self.peek_at(ahead);
        t.escaped
            || (t.is_word() && !is_reserved(t.text) && !self.is_number_of_relation(ahead))
            || t.text.starts_with(':') && t.text.len() > 1
    }

    /// `1 < 2`, `tcp-syn != 0`: a number that arithmetic goes on with.
    fn is_number_of_relation(&self, ahead: usize) -> bool {
        const GOES_ON: [&str; 17] =
            [">", "<", ">=", "<=", "=", "==", "!=", "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
        let after = self.peek_at(ahead + 1);
        names::value(self.peek_at(ahead).text).is_some()
            && GOES_ON.contains(&after.text)
            // A slash after a number may also be the length of a network, behind which no number goes on.
            && (after.text != "/"
                || self.said.is_none_or(|w| w.kind != Kind::Net)
                || names::number(self.peek_at(ahead + 2).text).is_none()
                || GOES_ON.contains(&self.peek_at(ahead + 3).text))
    }

    fn term(&mut self) -> Result<Test, FilterError> {
        self.counted()?;
        if self.takes(&["not", "!"]) {
            return Ok(self.deeper(Self::term)?.not());
        }
        // A parenthesis may begin arithmetic as well as tests; arithmetic is the narrower of the two.
        let (start, said, at) = (self.next, self.said, self.at);
        if let Some(relation) = self.relation()? {
            return Ok(relation);
        }
        (self.next, self.said, self.at) = (start, said, at);
        if self.takes(&["("]) {
            let inner = self.deeper(Self::filter)?;
            self.expect(")")?;
            return Ok(inner);
        }
        self.primitive()
    }

    fn primitive(&mut self) -> Result<Test, FilterError> {
        let first = self.peek();
        if !first.escaped
            && let Some(why) = refused(first.text)
        {
            return Err(first.error(why));
        }
        match (first.escaped, first.text) {
            (false, word) if BY_THEMSELVES.contains(&word) => {
                self.take();
                return self.other(first, None);
            }
            (false, "") => return Err(first.error("a test is missing, such as `tcp` or `port 80`")),
            _ => (),
        }
        if first.text == "len" || self.peek_at(1).text == "[" && first.is_word() {
            return Err(first.error("it begins a number; compare it with another: `len > 100`, `tcp[13] & 7 != 0`"));
        }
        let protocol = self.protocol_word();
        let dir = self.direction()?;
        let kind = self.kind();
        let bare = dir.is_none() && kind.is_none();
        if bare {
            let Some(name) = protocol else {
                let hint = match first.text.parse::<IpAddr>() {
                    Ok(_) => format!("write `host {}`", first.text),
                    Err(_) if names::number(first.text).is_some() => {
                        format!("write `port {0}` or `net {0}`", first.text)
                    }
                    Err(_) => suggestion(first.text),
                };
                return Err(first.error(hint));
            };
            if matches!(self.peek().text, "broadcast" | "multicast") {
                let word = self.take();
                return self.other(word, Some(name));
            }
            if let Some(why) = refused(self.peek().text).filter(|_| !self.peek().escaped) {
                return Err(self.peek().error(why));
            }
            if name == "ether" || name == "link" {
                return Err(self
                    .peek()
                    .error("`ether` is followed by `host`, `src`, `dst`, `proto`, `broadcast` or `multicast`"));
            }
            let test = abbreviation(name, &self.at).unwrap_or(Err("it is no protocol"));
            self.said = Some(Words { protocol: Some(name), dir: Dir::Either, kind: Kind::Host });
            return test.map_err(|why| first.error(why));
        }
        self.said = Some(Words { protocol, dir: dir.unwrap_or(Dir::Either), kind: kind.unwrap_or(Kind::Host) });
        self.value_list()
    }

    fn protocol_word(&mut self) -> Option<&'a str> {
        let t = self.peek();
        let is =
            !t.escaped && (matches!(t.text, "ether" | "link") || abbreviation(t.text, &Offsets::default()).is_some());
        is.then(|| self.take().text)
    }

    fn direction(&mut self) -> Result<Option<Dir>, FilterError> {
        let one = |p: &mut Self| {
            if p.takes(&["src"]) { Some(Dir::Src) } else { p.takes(&["dst"]).then_some(Dir::Dst) }
        };
        let Some(first) = one(self) else { return Ok(None) };
        let other = if first == Dir::Src { "dst" } else { "src" };
        let joined = |text| matches!(text, "and" | "or" | "&&" | "||");
        if joined(self.peek().text) && self.peek_at(1).text == other {
            let and = matches!(self.take().text, "and" | "&&");
            self.take();
            return Ok(Some(if and { Dir::Both } else { Dir::Either }));
        }
        Ok(Some(first))
    }

    fn kind(&mut self) -> Option<Kind> {
        let kind = match self.peek().text {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            "proto" => Kind::Proto,
            _ => return None,
        };
        self.take();
        Some(kind)
    }

    /// One value, or several in parentheses.
    fn value_list(&mut self) -> Result<Test, FilterError> {
        if self.takes(&["not", "!"]) {
            return Ok(self.deeper(Self::value_list)?.not());
        }
        if !self.takes(&["("]) {
            return self.value();
        }
        let mut left = self.deeper(Self::value_list)?;
        loop {
            let is_and = self.takes(&["and", "&&"]);
            if !is_and && !self.takes(&["or", "||"]) {
                break;
            }
            self.counted()?;
            let right = self.deeper(Self::value_list)?;
            left = if is_and { left.and(right) } else { left.or(right) };
        }
        self.expect(")")?;
        Ok(left)
    }

    fn value(&mut self) -> Result<Test, FilterError> {
        let words = self.said.unwrap_or(Words { protocol: None, dir: Dir::Either, kind: Kind::Host });
        let t = self.peek();
        if t.text.is_empty() {
            return Err(t.error("a value is missing, such as `10.0.0.1` or `80`"));
        }
        self.take();
        let test = match words.kind {
            Kind::Port => {
                let (port, of) = port(t.text).ok_or_else(|| {
                    t.error("it is no service that is known here; write the port's number, up to 65535")
                })?;
                self.ports(words, t, of, port, port)?
            }
            Kind::PortRange => {
                let range = t.text.split_once('-').and_then(|(a, b)| Some((port(a)?, port(b)?)));
                let one = || port(t.text).map(|p| (p, p));
                let ((a, of), (b, and_of)) =
                    range.or_else(one).ok_or_else(|| t.error("it is no range of ports; write `1000-2000`"))?;
                self.ports(words, t, of.filter(|_| of == and_of), a.min(b), a.max(b))?
            }
            Kind::Proto => self.proto(words, t)?,
            Kind::Host | Kind::Net => self.address(words, t)?,
        };
        Ok(test)
    }

    /// Words with rules of their own.
    fn other(&mut self, word: Token<'a>, protocol: Option<&str>) -> Result<Test, FilterError> {
        let say = |why: &'static str| word.error(why);
        let number = |p: &mut Self, most: u32| {
            let t = p.peek();
            let n = names::number(t.text).filter(|_| !t.escaped && !p.is_number_of_relation(0));
            match n {
                Some(n) if n > most => Err(t.error(format!("at most {most} is possible"))),
                Some(n) => {
                    p.take();
                    Ok(Some(n))
                }
                None => Ok(None),
            }
        };
        match word.text {
            "vlan" => {
                let id = number(self, 4095)?.map(|n| n as u16);
                self.at.vlan(id).map_err(say)
            }
            "mpls" => {
                let label = number(self, 0xf_ffff)?;
                self.at.mpls(label).map_err(say)
            }
            "pppoes" => {
                let session = number(self, 65_535)?.map(|n| n as u16);
                self.at.pppoes(session).map_err(say)
            }
            "pppoed" => self.at.carries(0x8863).map_err(say),
            "geneve" => {
                let vni = number(self, 0xff_ffff)?;
                self.at.geneve(vni).map_err(say)
            }
            "outbound" => self.at.outgoing().map_err(say),
            "inbound" => self.at.outgoing().map(Test::not).map_err(say),
            "ifindex" => {
                let n = number(self, u32::MAX)?.ok_or_else(|| self.peek().error("the number of a port is missing"))?;
                self.at.device(n).map_err(say)
            }
            "llc" => {
                let control = names::llc(self.peek().text);
                if control.is_some() {
                    self.take();
                } else if self.peek().is_word() && !is_reserved(self.peek().text) {
                    return Err(self.peek().error("it is no kind of 802.2; there are `i`, `s`, `u`, and those such as `rr` and `ui`"));
                }
                self.at.llc(control).map_err(say)
            }
            kind if names::isis(kind).is_some() => self.at.isis(names::isis(kind).unwrap_or_default()).map_err(say),
            "less" | "greater" => {
                let n = number(self, u32::MAX)?.ok_or_else(|| self.peek().error("a number of bytes is missing"))?;
                let cmp = if word.text == "less" { Cmp::Le } else { Cmp::Ge };
                Ok(Test::Relation(Number::Len, cmp, Number::Is(n)))
            }
            "broadcast" => match protocol {
                None | Some("ether" | "link") => self.at.mac(Dir::Dst, [0xff; 6]).map_err(say),
                Some("ip") => Err(word.error("it needs the mask of the port's network; write `dst host 255.255.255.255` or `dst host 10.0.0.255`")),
                Some(other) => Err(word.error(format!("`{other}` has no broadcast"))),
            },
            _ => {
                let of = match protocol {
                    None | Some("ether" | "link") => None,
                    Some("ip") => Some(IP),
                    Some("ip6") => Some(IP6),
                    Some(other) => return Err(word.error(format!("`{other}` has no multicast"))),
                };
                self.at.multicast(of).map_err(say)
            }
        }
    }
}

/// Words that begin a test of their own and so are no value.
fn is_reserved(word: &str) -> bool {
    matches!(
        word,
        "and"
            | "or"
            | "not"
            | "src"
            | "dst"
            | "host"
            | "net"
            | "port"
            | "portrange"
            | "proto"
            | "ether"
            | "link"
            | "len"
            | "mask"
    ) || BY_THEMSELVES.contains(&word)
        || abbreviation(word, &Offsets::default()).is_some()
        || refused(word).is_some()
}
