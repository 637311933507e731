//! From text to a tree of tests. The grammar stands in [the module above](super).
//!
//! The parser knows three kinds of words: those that begin a primitive, those that may follow in it, and values. A value
//! belongs to the *head*, the words that say what it is; a value without a head takes that of the primitive before it.

use super::error::{FilterCause, FilterError};
use super::test::{Comparison, Direction, Network, Test, Within};
use super::token::{self, Kind, Token};
use super::value;
use super::{MAX_NESTING, MAX_TESTS};
use crate::{EtherType, Family, IpProtocol};
use std::fmt;

/// A filter that says something.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Test(Test),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
}

/// The tree of a text; `None` for an empty one.
pub fn parse(text: &str) -> Result<Option<Expr>, FilterError> {
    let tokens = token::split(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, tests: 0, nesting: 0 };
    if parser.peek().kind == Kind::End {
        return Ok(None);
    }
    let expr = parser.expr(None)?.0;
    match parser.peek() {
        Token { kind: Kind::End, .. } => Ok(Some(expr)),
        token if token.kind == Kind::Word && !is_keyword(token.text) => {
            Err(value::bare(token, unknown(token, "`and`, `or`, or the end of the filter")))
        }
        token => Err(token.error(FilterCause::Expected { what: "`and`, `or`, or the end of the filter" })),
    }
}

/// The words that say what a value is.
#[derive(Clone, Copy)]
struct Head {
    scope: Option<Scope>,
    direction: Direction,
    what: What,
}

/// The protocol word before the others.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Ether,
    Network(Within),
    Transport(IpProtocol),
    Icmp(Family),
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

const SCOPES: [(&str, Scope); 9] = [
    ("ether", Scope::Ether),
    ("ip", Scope::Network(Within::Ip)),
    ("ip6", Scope::Network(Within::Ip6)),
    ("arp", Scope::Network(Within::Arp)),
    ("tcp", Scope::Transport(IpProtocol::TCP)),
    ("udp", Scope::Transport(IpProtocol::UDP)),
    ("sctp", Scope::Transport(IpProtocol::SCTP)),
    ("icmp", Scope::Icmp(Family::V4)),
    ("icmp6", Scope::Icmp(Family::V6)),
];

const WHATS: [(&str, What); 5] = [
    ("host", What::Host),
    ("net", What::Net),
    ("port", What::Port),
    ("portrange", What::PortRange),
    ("proto", What::Proto),
];

const DIRECTIONS: [(&str, Direction); 2] = [("src", Direction::Src), ("dst", Direction::Dst)];

const OTHERS: [&str; 8] = ["vlan", "less", "greater", "len", "mask", "and", "or", "not"];

fn find<T: Copy>(table: &[(&'static str, T)], word: &str) -> Option<(&'static str, T)> {
    table.iter().find(|(name, _)| *name == word).copied()
}

fn keywords() -> impl Iterator<Item = &'static str> {
    let names = SCOPES.iter().map(|(n, _)| *n).chain(WHATS.iter().map(|(n, _)| *n));
    names.chain(DIRECTIONS.iter().map(|(n, _)| *n)).chain(OTHERS)
}

fn is_keyword(word: &str) -> bool {
    keywords().any(|k| k == word)
}

/// A word that is no keyword where `what` should stand: a slip of the finger if one is near, else plainly wrong.
fn unknown(token: &Token<'_>, what: &'static str) -> FilterCause {
    match value::nearest(token.text, keywords()) {
        Some(near) => FilterCause::UnknownWord { near: Some(near) },
        None if value::looks_like_word(token.text) => FilterCause::UnknownWord { near: None },
        None => FilterCause::Expected { what },
    }
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    tests: usize,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a Token<'a> {
        // The last token is `End`, and nothing steps over it.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> &'a Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn next_if(&mut self, kind: Kind) -> bool {
        let found = self.peek().kind == kind;
        self.at += usize::from(found);
        found
    }

    fn next_word<T: Copy>(&mut self, table: &[(&'static str, T)]) -> Option<(&'static str, T)> {
        let found = find(table, self.peek().text);
        self.at += usize::from(found.is_some());
        found
    }

    /// Terms joined from the left. Also returns the head that a value after it would take.
    fn expr(&mut self, inherited: Option<Head>) -> Result<(Expr, Option<Head>), FilterError> {
        let (mut expr, mut head) = self.term(inherited)?;
        loop {
            let join: fn(Box<Expr>, Box<Expr>) -> Expr = match self.peek().kind {
                Kind::And => Expr::And,
                Kind::Or => Expr::Or,
                _ => return Ok((expr, head)),
            };
            self.next();
            let (right, next) = self.term(head)?;
            (expr, head) = (join(expr.into(), right.into()), next);
        }
    }

    fn term(&mut self, inherited: Option<Head>) -> Result<(Expr, Option<Head>), FilterError> {
        let token = self.peek();
        match token.kind {
            Kind::Not => {
                let (expr, head) = self.nested(|p| p.term(inherited))?;
                Ok((Expr::Not(expr.into()), head))
            }
            // What stands in parentheses does not change the head for what follows them.
            Kind::Open => {
                let (expr, _) = self.nested(|p| p.expr(inherited))?;
                if !self.next_if(Kind::Close) {
                    return Err(self.peek().error(FilterCause::Expected { what: "`)`, `and` or `or`" }));
                }
                Ok((expr, inherited))
            }
            Kind::Word if is_keyword(token.text) => self.primitive(),
            Kind::Word => match inherited {
                Some(head) => Ok((self.value(head)?, inherited)),
                None => Err(value::bare(token, unknown(token, "a filter word"))),
            },
            _ => Err(token.error(FilterCause::Expected { what: "a test such as `host 10.0.0.1`" })),
        }
    }

    /// Steps over `not` or `(` and goes one level down.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, FilterError>) -> Result<T, FilterError> {
        let token = self.next();
        if self.nesting == MAX_NESTING {
            return Err(token.error(FilterCause::TooDeep));
        }
        self.nesting += 1;
        let result = inner(self)?;
        self.nesting -= 1;
        Ok(result)
    }

    fn primitive(&mut self) -> Result<(Expr, Option<Head>), FilterError> {
        let first = self.peek();
        match first.text {
            "vlan" => {
                self.next();
                let is_number = self.peek().text.starts_with(|c: char| c.is_ascii_digit());
                let id = if is_number {
                    Some(value::number(self.next(), 4095, "a VLAN id", "vlan 100")? as u16)
                } else {
                    None
                };
                return Ok((self.test(first, Test::Vlan(id))?, None));
            }
            "less" => return self.length(Comparison::LessOrEqual, "less 64"),
            "greater" => return self.length(Comparison::GreaterOrEqual, "greater 1000"),
            "len" => return self.compared_length(),
            "mask" => return Err(first.error(FilterCause::Expected { what: "`mask` only after `net` and an address" })),
            _ => (),
        }
        let scope = self.next_word(&SCOPES);
        let direction = self.direction();
        let what = self.next_word(&WHATS);
        if let (Some((_, scope)), None, None) = (scope, direction, what)
            && let Some(test) = protocol_test(scope)
        {
            return Ok((self.test(first, test)?, None));
        }
        let head = Head {
            scope: scope.map(|(_, s)| s),
            direction: direction.unwrap_or_default(),
            what: what.map_or(What::Host, |(_, w)| w),
        };
        check(first, scope, direction, what)?;
        Ok((self.operand(head)?, Some(head)))
    }

    /// `src`, `dst`, `src or dst`, `src and dst`, and the last two turned round.
    fn direction(&mut self) -> Option<Direction> {
        let (_, first) = self.next_word(&DIRECTIONS)?;
        let joint = self.peek().kind;
        let second = self.tokens.get(self.at + 1).and_then(|t| find(&DIRECTIONS, t.text));
        match (joint, second) {
            (Kind::And | Kind::Or, Some((_, second))) if second != first => {
                self.at += 2;
                Some(if joint == Kind::And { Direction::Both } else { Direction::Either })
            }
            _ => Some(first),
        }
    }

    /// What follows a head: a value, or values in parentheses, or either after `not`.
    fn operand(&mut self, head: Head) -> Result<Expr, FilterError> {
        let token = self.peek();
        match token.kind {
            Kind::Not | Kind::Open => Ok(self.term(Some(head))?.0),
            Kind::Word => self.value(head),
            _ => {
                let what = match head {
                    Head { scope: Some(Scope::Ether), what: What::Host, .. } => {
                        "a link address such as 00:1b:21:0a:0b:0c"
                    }
                    Head { what: What::Host, .. } => "an address such as 10.0.0.1",
                    Head { what: What::Net, .. } => "a network such as 10.0.0.0/8",
                    Head { what: What::Port, .. } => "a port such as 80",
                    Head { what: What::PortRange, .. } => "ports such as 80-90",
                    Head { what: What::Proto, .. } => "a protocol such as tcp or 6",
                };
                Err(token.error(FilterCause::Expected { what }))
            }
        }
    }

    fn value(&mut self, head: Head) -> Result<Expr, FilterError> {
        let token = self.next();
        let test = match (head.what, head.scope) {
            (What::Host, Some(Scope::Ether)) => Test::Mac(head.direction, value::mac(token)?),
            (What::Host, scope) => address(token, scope, head.direction, value::host(token)?)?,
            (What::Net, scope) => {
                let mask = if self.peek().text == "mask" {
                    self.next();
                    Some(self.next())
                } else {
                    None
                };
                address(token, scope, head.direction, value::net(token, mask)?)?
            }
            (What::Port | What::PortRange, scope) => {
                let (first, last) = if head.what == What::Port { value::port(token)? } else { value::ports(token)? };
                let protocol = if let Some(Scope::Transport(p)) = scope { Some(p) } else { None };
                Test::Ports(protocol, head.direction, first, last)
            }
            (What::Proto, Some(Scope::Ether)) => Test::EtherType(value::ethertype(token)?),
            (What::Proto, scope) => Test::Protocol(family(scope), value::protocol(token)?),
        };
        self.test(token, test)
    }

    fn length(&mut self, comparison: Comparison, example: &str) -> Result<(Expr, Option<Head>), FilterError> {
        let first = self.next();
        let n = value::number(self.next(), u32::MAX, "a length in bytes", example)?;
        Ok((self.test(first, Test::Length(comparison, n))?, None))
    }

    fn compared_length(&mut self) -> Result<(Expr, Option<Head>), FilterError> {
        let first = self.next();
        let sign = self.next();
        let comparison = match sign.text {
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            "=" | "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            _ => return Err(sign.error(FilterCause::Expected { what: "a comparison such as `len <= 64`" })),
        };
        let n = value::number(self.next(), u32::MAX, "a length in bytes", "len <= 64")?;
        Ok((self.test(first, Test::Length(comparison, n))?, None))
    }

    fn test(&mut self, token: &Token<'_>, test: Test) -> Result<Expr, FilterError> {
        self.tests += 1;
        if self.tests > MAX_TESTS { Err(token.error(FilterCause::TooManyTests)) } else { Ok(Expr::Test(test)) }
    }
}

/// Refuses words that cannot stand together.
fn check(
    first: &Token<'_>,
    scope: Option<(&'static str, Scope)>,
    direction: Option<Direction>,
    what: Option<(&'static str, What)>,
) -> Result<(), FilterError> {
    let refuse = |word, write| Err(first.error(FilterCause::Conflict { word, write }));
    let (name, kind) = what.unwrap_or(("host", What::Host));
    if kind == What::Proto && direction.is_some() {
        return refuse(name, "proto 6".to_owned());
    }
    let Some((word, scope)) = scope else { return Ok(()) };
    let fits = match (scope, kind) {
        (Scope::Ether, kind) => matches!(kind, What::Host | What::Proto),
        (Scope::Network(within), What::Proto) => within != Within::Arp,
        (Scope::Network(_), kind) => matches!(kind, What::Host | What::Net),
        (Scope::Transport(_), kind) => matches!(kind, What::Port | What::PortRange),
        (Scope::Icmp(_), _) => false,
    };
    let example = match kind {
        What::Host => "10.0.0.1",
        What::Net => "10.0.0.0/8",
        What::Port => "80",
        What::PortRange => "80-90",
        What::Proto => "6",
    };
    match (scope, direction, what) {
        _ if fits => Ok(()),
        // Nobody writes `tcp src` and means a host.
        (Scope::Transport(_), Some(direction), None) => {
            refuse("src` or `dst` without `port", format!("{word} {direction}port 80"))
        }
        (Scope::Ether, ..) => refuse(name, format!("{name} {example}")),
        _ => refuse(name, format!("{word} and {name} {example}")),
    }
}

/// What a protocol word means alone; nothing for `ether`, which every frame would be.
fn protocol_test(scope: Scope) -> Option<Test> {
    Some(match scope {
        Scope::Ether => return None,
        Scope::Network(Within::Any | Within::Ip) => Test::EtherType(EtherType::IPV4),
        Scope::Network(Within::Ip6) => Test::EtherType(EtherType::IPV6),
        Scope::Network(Within::Arp) => Test::EtherType(EtherType::ARP),
        Scope::Transport(protocol) => Test::Protocol(None, protocol),
        Scope::Icmp(Family::V6) => Test::Protocol(Some(Family::V6), IpProtocol::ICMPV6),
        Scope::Icmp(_) => Test::Protocol(Some(Family::V4), IpProtocol::ICMP),
    })
}

fn family(scope: Option<Scope>) -> Option<Family> {
    match scope {
        Some(Scope::Network(Within::Ip)) => Some(Family::V4),
        Some(Scope::Network(Within::Ip6)) => Some(Family::V6),
        _ => None,
    }
}

fn address(token: &Token<'_>, scope: Option<Scope>, direction: Direction, net: Network) -> Result<Test, FilterError> {
    let within = if let Some(Scope::Network(within)) = scope { within } else { Within::Any };
    let wrong = |word, write: String| Err(token.error(FilterCause::Conflict { word, write }));
    match (within, net) {
        (Within::Ip6, Network::V4 { .. }) => wrong("ip6", format!("ip {direction}{net}")),
        (Within::Ip, Network::V6 { .. }) => wrong("ip", format!("ip6 {direction}{net}")),
        (Within::Arp, Network::V6 { .. }) => wrong("arp", format!("ip6 {direction}{net}")),
        // The address says it already; one way to write it is enough.
        (_, Network::V6 { .. }) => Ok(Test::Address(Within::Any, direction, net)),
        (Within::Any | Within::Ip | Within::Arp, _) => Ok(Test::Address(within, direction, net)),
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A joined operand stands bare only on the left of its own kind, where reading it from the left is the same.
        let left = |e: &Self, bare: bool, f: &mut fmt::Formatter<'_>| match e {
            Self::And(..) | Self::Or(..) if !bare => write!(f, "({e})"),
            _ => write!(f, "{e}"),
        };
        let (a, word, b) = match self {
            Self::Test(test) => return write!(f, "{test}"),
            Self::Not(inner) => {
                f.write_str("not ")?;
                return left(inner, false, f);
            }
            Self::And(a, b) => (a, "and", b),
            Self::Or(a, b) => (a, "or", b),
        };
        left(a, std::mem::discriminant(&**a) == std::mem::discriminant(self), f)?;
        write!(f, " {word} ")?;
        left(b, false, f)
    }
}
