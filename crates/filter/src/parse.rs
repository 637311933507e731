//! Parses the text of a filter with a recursive-descent parser.
//!
//! ```text
//! filter    = [ term { ("and" | "or") (term | value) } ]         equal, from the left
//! term      = "not" term | "anylink" term | "(" filter ")" | relation | primitive
//! primitive = [protocol] [direction] [kind] value | protocol | vlan … | less n | …
//!           | [direction] quantity compare amount | …
//! value     = number | address | network | name | "not" value | "(" value { ("and" | "or") value } ")"
//! relation  = sum compare sum
//! sum       = … "|" "^" "&" … "<<" ">>" … "+" "-" … "*" "/" "%" … "-" sum | "(" sum ")" | number | len | p[i:n]
//! ```
//! If a value has no qualifiers of its own, the qualifiers of the previous value apply to it: `port 53 or 80`.

mod habits;
mod relation;
mod values;

use crate::error::FilterError;
use crate::flow_words::OF_FLOWS;
use crate::lex::{Token, tokens};
use crate::tree::{ArithExpr, Cmp, Dir, Expr, FlowTest, Leaf, Primitive, Span, Version};
use crate::unsupported::{near, refused, suggestion};
use crate::{MAX_DEPTH, MAX_TESTS, flow_words, names};
use std::net::IpAddr;
use values::{not_a_port, port};

/// Returns the syntax tree of a filter text; `None` if the text is empty.
pub fn parse(text: &str) -> Result<Option<Expr>, FilterError> {
    let whole = |e: FilterError| FilterError { text: text.to_owned(), ..e };
    let tokens = tokens(text).map_err(whole)?;
    let mut p = Parser { tokens: &tokens, next: 0, last_qualifiers: None, any: false, depth: 0, tests: 0 };
    if p.peek().text.is_empty() {
        return Ok(None);
    }
    let expr = p.filter().map_err(whole)?;
    let t = p.peek();
    if t.text.is_empty() {
        return Ok(Some(expr));
    }
    let before = p.next.checked_sub(1).map_or("", |i| tokens[i].text);
    let near = |word| base::nearest(word, ["and", "or"]).or_else(|| near(word));
    let hint = habits::after_protocol(before, t).unwrap_or_else(|| match near(t.text) {
        Some(near) => format!("unexpected here; did you mean `{near}`?"),
        None => "unexpected here; join tests by `and` or `or`".to_owned(),
    });
    Err(whole(t.error(hint)))
}

/// Words that are tests without a qualifier; a number or a type may follow some of them.
const BY_THEMSELVES: [&str; 21] = [
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
    "byte",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
    Chain,
}

/// The qualifiers before a value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Qualifiers {
    pub protocol: Option<&'static str>,
    /// True below `anylink`.
    pub any: bool,
    pub dir: Dir,
    pub kind: Kind,
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    next: usize,
    /// The qualifiers of the last value, which a following value without qualifiers takes over.
    last_qualifiers: Option<Qualifiers>,
    /// True below `anylink`.
    any: bool,
    depth: usize,
    tests: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token<'a> {
        self.tokens.get(self.next + ahead).copied().unwrap_or(self.tokens[self.tokens.len() - 1])
    }

    fn take(&mut self) -> Token<'a> {
        let t = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        t
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let t = self.peek();
        let is = !t.escaped && words.contains(&t.text);
        if is {
            self.take();
        }
        is
    }

    fn expect(&mut self, word: &str) -> Result<(), FilterError> {
        if self.takes(&[word]) { Ok(()) } else { Err(self.peek().error(format!("`{word}` is missing here"))) }
    }

    fn deeper<T>(&mut self, what: impl FnOnce(&mut Self) -> Result<T, FilterError>) -> Result<T, FilterError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.peek().error(format!("more than {MAX_DEPTH} nested parentheses")));
        }
        self.depth += 1;
        let out = what(self);
        self.depth -= 1;
        out
    }

    /// Counts a test, a further value or an arithmetic operator, and checks the limit on their number.
    fn counted(&mut self) -> Result<(), FilterError> {
        self.tests += 1;
        if self.tests > MAX_TESTS {
            return Err(self
                .peek()
                .error(format!("more than {MAX_TESTS} tests, values and arithmetic operators in one filter")));
        }
        Ok(())
    }

    fn filter(&mut self) -> Result<Expr, FilterError> {
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
            left = joined(left, is_and, right);
        }
    }

    /// True if the next word is a value that takes over the qualifiers of the last value. A `not` before such a value
    /// belongs to the value.
    fn begins_value(&self) -> bool {
        if self.last_qualifiers.is_none() {
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

    /// True if the token is a number that an arithmetic operator or a comparison follows, as in `1 < 2` and `tcp-syn !=
    /// 0`.
    fn is_number_of_relation(&self, ahead: usize) -> bool {
        const GOES_ON: [&str; 17] =
            [">", "<", ">=", "<=", "=", "==", "!=", "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
        let after = self.peek_at(ahead + 1);
        names::value(self.peek_at(ahead).text).is_some()
            && GOES_ON.contains(&after.text)
            // A slash after a number is a division, or it begins a prefix length. It begins a prefix length if no
            // operator follows the number after the slash.
            && (after.text != "/"
                || self.last_qualifiers.is_none_or(|w| w.kind != Kind::Net)
                || names::number(self.peek_at(ahead + 2).text).is_none()
                || GOES_ON.contains(&self.peek_at(ahead + 3).text))
    }

    fn term(&mut self) -> Result<Expr, FilterError> {
        self.counted()?;
        if self.takes(&["not", "!"]) {
            return Ok(not(self.deeper(Self::term)?));
        }
        if self.takes(&["anylink"]) {
            let outside = std::mem::replace(&mut self.any, true);
            let inner = self.deeper(Self::term);
            self.any = outside;
            return inner;
        }
        // Both an arithmetic expression and a test may begin with a parenthesis. The parser tries arithmetic first,
        // because fewer filters contain arithmetic.
        let (start, last_qualifiers) = (self.next, self.last_qualifiers);
        if let Some(relation) = self.relation()? {
            let span = self.since(start);
            return Ok(self.leaf(relation, span));
        }
        (self.next, self.last_qualifiers) = (start, last_qualifiers);
        if self.takes(&["("]) {
            let inner = self.deeper(Self::filter)?;
            self.expect(")")?;
            return Ok(inner);
        }
        self.primitive()
    }

    fn leaf(&self, prim: Primitive, span: Span) -> Expr {
        Expr::Leaf(Leaf { prim, any: self.any, span })
    }

    /// The part of the filter from token `start` to the last token that was parsed.
    fn since(&self, start: usize) -> Span {
        let (first, last) = (self.tokens[start], self.tokens[self.next.max(start + 1) - 1]);
        Span { at: first.at, len: last.at + last.text.len() - first.at }
    }

    fn primitive(&mut self) -> Result<Expr, FilterError> {
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
            return Err(first.error("a number must be compared with another: `len > 100`, `tcp[13] & 7 != 0`"));
        }
        let start = self.next;
        let protocol = self.protocol_word();
        let dir = self.direction()?;
        if protocol.is_none() && OF_FLOWS.contains(&self.peek().text) && !self.peek().escaped {
            let test = self.of_flows(dir.unwrap_or(Dir::Either))?;
            let span = self.since(start);
            return Ok(self.leaf(Primitive::Flow(test), span));
        }
        let kind = self.kind();
        if dir.is_none() && kind.is_none() {
            return self.bare(first, protocol);
        }
        let (dir, kind) = (dir.unwrap_or(Dir::Either), kind.unwrap_or(Kind::Host));
        self.last_qualifiers = Some(Qualifiers { protocol, any: self.any, dir, kind });
        self.value_list()
    }

    /// Parses the name of a protocol that no value follows.
    fn bare(&mut self, first: Token<'a>, protocol: Option<&'static str>) -> Result<Expr, FilterError> {
        let Some(name) = protocol else {
            let hint = match first.text.parse::<IpAddr>() {
                Ok(_) => format!("write `host {}`", first.text),
                Err(_) if names::number(first.text).is_some() => format!("write `port {0}` or `net {0}`", first.text),
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
        if name == "ether" {
            let next = self.peek();
            return Err(next.error(format!(
                "`{}` is followed by `host`, `src`, `dst`, `proto`, `broadcast` or `multicast`",
                first.text
            )));
        }
        self.last_qualifiers = Some(Qualifiers { protocol, any: self.any, dir: Dir::Either, kind: Kind::Host });
        Ok(self.leaf(Primitive::Protocol(name), first.span()))
    }

    fn protocol_word(&mut self) -> Option<&'static str> {
        let t = self.peek();
        let word = names::protocol_word(t.text).filter(|_| !t.escaped)?;
        self.take();
        Some(word)
    }

    /// Parses a primitive for flow records; the next token is its first word.
    fn of_flows(&mut self, dir: Dir) -> Result<FlowTest, FilterError> {
        let word = self.take();
        let name_of = |t: Token<'a>, names: &[&str], what: &str| {
            // Names of TCP states are accepted with a hyphen, as in RFC 9293, and with an underscore. The name at index
            // 0 of `names` is empty and must not match.
            let given = t.text.replace('-', "_").to_ascii_lowercase();
            names.iter().position(|name| !name.is_empty() && *name == given).map(|i| i as u8).ok_or_else(|| {
                let known: Vec<_> = names.iter().filter(|n| !n.is_empty()).map(|n| format!("`{n}`")).collect();
                t.error(format!("not a {what}; possible values are {}", known.join(", ")))
            })
        };
        let only_whole = |test: FlowTest| match dir {
            Dir::Either => Ok(test),
            _ => Err(word.error("this test has no direction; leave out `src` or `dst`")),
        };
        if word.text == "state" {
            let t = self.take();
            return only_whole(FlowTest::State(name_of(t, &flow_words::TCP_STATES, "TCP state")?));
        }
        if word.text == "end" {
            let t = self.take();
            return only_whole(FlowTest::End(name_of(t, &flow_words::END_REASONS, "flow end reason")?));
        }
        if word.text == "flags" {
            let any = self.takes(&["any"]) || {
                self.takes(&["all"]);
                false
            };
            let t = self.take();
            let bits = flow_words::flags(t.text).ok_or_else(|| {
                t.error(match flow_words::dotted_flags(t.text) {
                    Some(letters) => format!("write the letters alone: `flags {letters}`"),
                    None => {
                        "not a set of TCP flags; write letters of FSRPAUEC, such as `flags SA` or `flags any RF`".into()
                    }
                })
            })?;
            return Ok(FlowTest::Flags { dir, all: !any, bits });
        }
        let quantity = flow_words::quantity(word.text).ok_or_else(|| word.error("not a quantity of flow records"))?;
        let sign = self.take();
        let cmp = Cmp::of(sign.text)
            .ok_or_else(|| sign.error(format!("a comparison is missing; write `{} > …`", word.text)))?;
        let t = self.take();
        let number = flow_words::amount(t.text, quantity).map_err(|why| t.error(why))?;
        let test = FlowTest::Count(quantity, dir, cmp, number);
        if flow_words::has_directions(quantity) { Ok(test) } else { only_whole(test) }
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
            "protochain" => Kind::Chain,
            _ => return None,
        };
        self.take();
        Some(kind)
    }

    /// Parses a single value, or several values in parentheses.
    fn value_list(&mut self) -> Result<Expr, FilterError> {
        if self.takes(&["not", "!"]) {
            return Ok(not(self.deeper(Self::value_list)?));
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
            left = joined(left, is_and, right);
        }
        self.expect(")")?;
        Ok(left)
    }

    fn value(&mut self) -> Result<Expr, FilterError> {
        let words = self.last_qualifiers.unwrap_or(Qualifiers {
            protocol: None,
            any: self.any,
            dir: Dir::Either,
            kind: Kind::Host,
        });
        let t = self.peek();
        if t.text.is_empty() {
            return Err(t.error("a value is missing, such as `10.0.0.1` or `80`"));
        }
        self.take();
        if let Some(e) = self.habit(words, t) {
            return Err(e);
        }
        let test = match words.kind {
            Kind::Port => {
                let (port, of) = port(t.text).ok_or_else(|| t.error(not_a_port(t.text)))?;
                self.ports(words, t, of, port, port)?
            }
            Kind::PortRange => {
                let range = t.text.split_once('-').and_then(|(a, b)| Some((port(a)?, port(b)?)));
                let one = || port(t.text).map(|p| (p, p));
                let ((a, of), (b, and_of)) = range
                    .or_else(one)
                    .ok_or_else(|| t.error("not a port range; write `1000-2000`, with ports up to 65535"))?;
                self.ports(words, t, of.filter(|_| of == and_of), a.min(b), a.max(b))?
            }
            Kind::Proto => self.proto(words, t)?,
            Kind::Chain => self.chain(words, t)?,
            Kind::Host | Kind::Net => self.address(words, t)?,
        };
        Ok(Expr::Leaf(Leaf { prim: test, any: words.any, span: t.span() }))
    }

    /// Parses primitives with a special grammar, such as `less 100`.
    fn other(&mut self, word: Token<'a>, protocol: Option<&str>) -> Result<Expr, FilterError> {
        let number = |p: &mut Self, most: u32| {
            let t = p.peek();
            let n = names::number(t.text).filter(|_| !t.escaped && !p.is_number_of_relation(0));
            match n {
                Some(n) if n > most => Err(t.error(format!("the greatest possible number is {most}"))),
                Some(n) => {
                    p.take();
                    Ok(Some(n))
                }
                None => Ok(None),
            }
        };
        let prim = match word.text {
            "vlan" => Primitive::Vlan(number(self, 4095)?.map(|n| n as u16)),
            "mpls" => Primitive::Mpls(number(self, 0xf_ffff)?),
            "pppoes" => Primitive::Pppoes(number(self, 65_535)?.map(|n| n as u16)),
            "pppoed" => Primitive::Pppoed,
            "geneve" => Primitive::Geneve(number(self, 0xff_ffff)?),
            "outbound" => Primitive::Outgoing(true),
            "inbound" => Primitive::Outgoing(false),
            "ifindex" => {
                let n = number(self, u32::MAX)?;
                Primitive::Device(
                    n.ok_or_else(|| self.peek().error("an interface number is missing; write `ifindex 2`"))?,
                )
            }
            "llc" => {
                let control = names::llc(self.peek().text);
                if control.is_some() {
                    self.take();
                } else if self.peek().is_word() && !is_reserved(self.peek().text) {
                    return Err(self.peek().error(
                        "not an 802.2 frame type; frame types are `i`, `s`, `u`, and names such as `rr` and `ui`",
                    ));
                }
                Primitive::Llc(control)
            }
            "byte" => {
                let at = number_of(self.take())?;
                let (sign, value) = (self.take(), number_of(self.take())?);
                byte(at, sign.text, value, word.span()).ok_or_else(|| {
                    sign.error("after `byte N` write `=`, `<` or `>`; for bits write `link[N] & M != 0`")
                })?
            }
            kind if names::isis(kind).is_some() => Primitive::IsIs(names::isis(kind).unwrap_or_default().to_vec()),
            "less" | "greater" => {
                let n = number(self, u32::MAX)?
                    .ok_or_else(|| self.peek().error("a number of bytes is missing; write one, such as `100`"))?;
                let cmp = if word.text == "less" { Cmp::Le } else { Cmp::Ge };
                Primitive::Relation(ArithExpr::Len, cmp, ArithExpr::Is(n))
            }
            "broadcast" => match protocol {
                None | Some("ether") => Primitive::Broadcast,
                Some("ip") => Primitive::IpBroadcast,
                Some(other) => return Err(word.error(format!("`{other}` has no broadcast"))),
            },
            _ => Primitive::Multicast(match protocol {
                None | Some("ether") => None,
                Some("ip") => Some(Version::V4),
                Some("ip6") => Some(Version::V6),
                Some(other) => return Err(word.error(format!("`{other}` has no multicast"))),
            }),
        };
        Ok(self.leaf(prim, word.span()))
    }
}

fn number_of(t: Token<'_>) -> Result<u32, FilterError> {
    names::number(t.text)
        .filter(|_| !t.escaped)
        .ok_or_else(|| t.error("a number is missing here; write one, such as `80` or `0x50`"))
}

/// The test for `byte 12 = 8`, an old form of `link[12] = 8`. The operators `&` and `|` are rejected, because libpcap
/// ignores the byte for them and compares 0.
fn byte(index: u32, sign: &str, value: u32, span: Span) -> Option<Primitive> {
    let cmp = Cmp::of(sign).filter(|_| matches!(sign, "<" | ">" | "="))?;
    let load = ArithExpr::Load { protocol: "ether", index: Box::new(ArithExpr::Is(index)), width: 1, span };
    Some(Primitive::Relation(load, cmp, ArithExpr::Is(value)))
}

fn not(of: Expr) -> Expr {
    Expr::Not(Box::new(of))
}

fn joined(left: Expr, is_and: bool, right: Expr) -> Expr {
    let (left, right) = (Box::new(left), Box::new(right));
    if is_and { Expr::And(left, right) } else { Expr::Or(left, right) }
}

/// True for words that begin a test and therefore are not values.
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
            | "len"
            | "mask"
            | "protochain"
            | "anylink"
    ) || BY_THEMSELVES.contains(&word)
        || OF_FLOWS.contains(&word)
        || names::protocol_word(word).is_some()
        || refused(word).is_some()
}
