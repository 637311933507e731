//! Recognises notations of other tools, mainly of nfdump, in invalid filters, and suggests the equivalent expression of
//! this filter language.

use super::{Kind, Parser, Qualifiers};
use crate::error::FilterError;
use crate::lex::Token;
use crate::names;
use crate::tree::{Cmp, Dir};
use std::net::IpAddr;

/// Suggests an expression for `ip 10.0.0.1`, an address directly after the name of a protocol.
pub fn after_protocol(before: &str, t: Token<'_>) -> Option<String> {
    let is_address = matches!(before, "ip" | "ip6") && t.text.parse::<IpAddr>().is_ok();
    is_address.then(|| format!("write `host {}`", t.text))
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Host => "host",
        Kind::Net => "net",
        Kind::Port => "port",
        Kind::PortRange => "portrange",
        Kind::Proto => "proto",
        Kind::Chain => "protochain",
    }
}

impl Parser<'_> {
    /// Returns the error for a notation of other tools that stands where the parser expects a value, such as `src ip
    /// A`, `port in [80 443]` or `port > 1024`.
    pub(super) fn habit(&self, words: Qualifiers, t: Token<'_>) -> Option<FilterError> {
        if t.escaped {
            return None;
        }
        let dir = match words.dir {
            Dir::Src => "src ",
            Dir::Dst => "dst ",
            Dir::Either => "",
            Dir::Both => "src and dst ",
        };
        let before = words.protocol.map_or_else(String::new, |p| format!("{p} "));
        let write = |kind: &str, value: &str| format!("{before}{dir}{kind} {value}");
        let kind = kind_word(words.kind);
        let next = self.peek().text;
        let instead = match t.text {
            // The values are host addresses, unless an earlier word states another kind of value.
            "ip" | "ip6" | "ipv4" | "ipv6" | "addr" | "address" if words.kind == Kind::Host => match next {
                "in" => self.each_of(1, |value| write("host", value))?,
                _ => write("host", if next.parse::<IpAddr>().is_ok() { next } else { "ADDRESS" }),
            },
            "in" => self.each_of(0, |value| write(kind, value))?,
            sign => {
                let cmp = Cmp::of(sign)?;
                let number = names::number(next).and_then(|n| u16::try_from(n).ok());
                let range = |low: u16, high: u16| write("portrange", &format!("{low}-{high}"));
                match (words.kind, cmp, number) {
                    (_, Cmp::Eq, _) if !next.is_empty() => write(kind, next),
                    (_, Cmp::Ne, _) if !next.is_empty() => format!("not {}", write(kind, next)),
                    (Kind::Port, Cmp::Gt, Some(n)) if n < u16::MAX => range(n + 1, u16::MAX),
                    (Kind::Port, Cmp::Ge, Some(n)) => range(n, u16::MAX),
                    (Kind::Port, Cmp::Lt, Some(n)) if n > 0 => range(0, n - 1),
                    (Kind::Port, Cmp::Le, Some(n)) => range(0, n),
                    (Kind::Port, ..) => range(1024, u16::MAX),
                    _ => return None,
                }
            }
        };
        Some(t.error(format!("write `{instead}`")))
    }

    /// Suggests an expression for the values in brackets after `in`: one test for each value, joined by `or`. `ahead`
    /// is the number of tokens between the current token and the first token after `in`.
    fn each_of(&self, ahead: usize, one: impl Fn(&str) -> String) -> Option<String> {
        let values = (ahead..).map(|i| self.peek_at(i).text).skip_while(|text| *text == "[");
        let values: Vec<String> = values.take_while(|text| !matches!(*text, "]" | "")).map(one).collect();
        (!values.is_empty()).then(|| values.join(" or "))
    }
}
