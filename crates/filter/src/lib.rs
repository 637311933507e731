//! Floor 0: the filter language, which is that of tcpdump (pcap-filter(7)) with a few words more.
//!
//! One lexer, one parser and one syntax tree ([`tree`]), one table of services, one kind of error ([`FilterError`]). The tree is then
//! asked, each with its own words and refusals:
//! * of packets: [`Filter`] (an interpreter); `netgrain-lang` makes its intermediate form of a [`LinkFilter`], and with it machine code
//!   and programs for the kernel;
//! * of flow records: [`FlowFilter`];
//! * of the key sets of an index: [`KeyCondition`], what every packet (or record) has that matches.
//!
//! # Packets
//! The meaning is libpcap's down to its corners, because people bring filters that work for them, and the tests hold it against
//! tcpdump's own verdicts packet by packet:
//! * Words are read from left to right, and `vlan`, `mpls`, `pppoes` and `geneve` move what the words *after* them look at.
//! * IPv6 extension headers are not walked, but for one fragment header where a protocol is asked; `protochain` walks them.
//! * A byte that was not captured rejects the packet, whatever `not` may stand before; so does a division by 0. (libpcap's optimiser
//!   may leave out a load that decides nothing and then does not miss the byte; this is the meaning without it, `tcpdump -O`.)
//! * Arithmetic has 32 bits, and only the left operand of an operator asks for its protocol.
//!
//! `anylink` before a test, or before a parenthesis, asks the packet under all VLAN tags, MPLS labels, pseudowires and PPPoE sessions, and
//! behind all extension headers of IPv6.
//!
//! Refused, each with its reason: what needs a look at the machine (names of hosts, `gateway`, the words of firewalls), and words of
//! link layers that [`wire`] does not read (`type mgt`, `vpi`, …). `inbound` and `outbound` are read where libpcap refuses them, in files
//! of Ethernet: a file that does not say which way a frame went says "in".
#![forbid(unsafe_code)]

pub mod anylink;
mod arith;
mod error;
pub mod flow;
mod key_condition;
mod lex;
mod link;
mod lower;
mod names;
mod offsets;
mod parse;
mod program;
mod relation;
mod services;
mod suggest;
pub mod test;
pub mod tree;
mod unsupported;
mod values;

pub use arith::{Base, Number};
pub use error::FilterError;
pub use flow::{FlowFilter, FlowTerms, RequiredFields};
pub use key_condition::KeyCondition;
pub use names::mac;
pub use offsets::BRIDGED;
pub use parse::OF_FLOWS;
pub use services::find as service;
pub use suggest::nearest;

use link::Link;
use program::{Frame, Program};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use test::Test;
use tree::Expr;
use wire::{Headers, link as wire_link};

/// Most parentheses and `not` inside one another.
pub const MAX_DEPTH: usize = 100;

/// Most tests, values and numbers: trees of them are as deep as they are long.
pub const MAX_TESTS: usize = 4000;

/// A filter of packets, ready to match, of whatever link they are.
///
/// Of links that cannot answer it (`vlan` of raw IP), no frame matches, whatever `not` may stand before.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    /// By the number of the link in [`Headers::link`]; `None` where the filter cannot be asked.
    programs: Arc<[Option<Program>]>,
    need: KeyCondition,
}

impl Filter {
    /// Reads a filter. The empty one matches everything.
    ///
    /// # Errors
    /// Where, what is wrong, and what to write instead; also a word that frames of no link can answer.
    ///
    /// ```
    /// use netgrain_filter::Filter;
    /// use wire::{Headers, build::Frame, link};
    /// let filter = Filter::parse("udp port 53 or 5353 and not host 10.0.0.9")?;
    /// let mut buffer = [0; 60];
    /// let frame = Frame::udp4([10, 0, 0, 1], 5353, [224, 0, 0, 251], 5353).fill(&mut buffer);
    /// assert!(filter.matches(frame, 60, &Headers::of(frame, 60, link::ETHERNET)));
    /// assert_eq!(Filter::parse("hots 10.0.0.1").unwrap_err().to_string(), "`hots` at column 1: did you mean `host`?");
    /// # Ok::<(), netgrain_filter::FilterError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let expr = parse::parse(text)?;
        let of = |link_type| lowered(text, expr.as_ref(), link_type);
        let first = of(wire_link::ETHERNET);
        let mut programs: Vec<_> = wire_link::UNDERSTOOD.iter().map(|link| of(*link).ok()).collect();
        programs.push(of(wire_link::UNKNOWN).ok());
        if let (Err(e), true) = (first, programs.iter().all(Option::is_none)) {
            return Err(e);
        }
        let programs = programs.iter().map(|test| test.as_ref().map(Program::of)).collect();
        Ok(Self { text: text.trim().to_owned(), programs, need: KeyCondition::of(expr.as_ref()) })
    }

    /// Whether frames of this link type can be asked.
    ///
    /// # Errors
    /// The first word that they cannot answer, and why.
    pub fn fits(&self, link_type: u16) -> Result<(), FilterError> {
        LinkFilter::parse(&self.text, link_type).map(|_| ())
    }

    /// Whether a frame matches, which came in. `headers` must be those of this frame; with others the answer is meaningless but no
    /// harm is done.
    #[inline]
    pub fn matches(&self, frame: &[u8], wire_len: u32, headers: &Headers) -> bool {
        self.matches_way(frame, wire_len, headers, false)
    }

    /// The same of a frame that this host may have sent.
    #[inline]
    pub fn matches_way(&self, frame: &[u8], wire_len: u32, headers: &Headers, outgoing: bool) -> bool {
        match self.programs.get(headers.link()) {
            Some(Some(program)) => program.run(&Frame { bytes: frame, wire_len, headers, outgoing }),
            _ => false,
        }
    }

    /// What every frame has that matches, for an index.
    ///
    /// ```
    /// use netgrain_filter::{Filter, KeyCondition};
    /// let need = |text: &str| Filter::parse(text).unwrap().need();
    /// assert_eq!(need("port 53 and not host 10.0.0.9"), KeyCondition::Ports(53, 53));
    /// assert_eq!(need("port 53 or less 100"), KeyCondition::Anything);
    /// ```
    pub fn need(&self) -> KeyCondition {
        self.need.clone()
    }

    /// Whether it matches every frame because it says nothing.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// The empty filter.
impl Default for Filter {
    fn default() -> Self {
        Self::parse("").unwrap_or_else(|e| unreachable!("the empty filter is read: {e}"))
    }
}

/// Of the same words.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// As it was written.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

/// A filter for frames of one link, as libpcap's are: what `netgrain-lang` translates.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFilter {
    text: String,
    link_type: u16,
    test: Test,
}

impl LinkFilter {
    /// Reads a filter for frames of this link type, as pcap numbers it. The empty one matches everything.
    ///
    /// # Errors
    /// Where, what is wrong, and what to write instead; and where such frames have nothing of what is asked for.
    ///
    /// ```
    /// use netgrain_filter::LinkFilter;
    /// assert!(LinkFilter::parse("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn and vlan 5", 1).is_ok());
    /// let error = LinkFilter::parse("gateway 10.0.0.1", 1).unwrap_err().to_string();
    /// assert_eq!(error, "`gateway` at column 1: it needs the names of hosts and their link addresses; write `ether host MAC and not host ADDRESS`");
    /// ```
    pub fn parse(text: &str, link_type: u16) -> Result<Self, FilterError> {
        let test = lowered(text, parse::parse(text)?.as_ref(), link_type)?;
        Ok(Self { text: text.trim().to_owned(), link_type, test })
    }

    /// How many tests and numbers it is made of: what `port 53` says once is tested for each protocol and version.
    pub fn words(&self) -> usize {
        self.test.words()
    }

    /// As the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The link type of the frames that it is for.
    pub fn link_type(&self) -> u16 {
        self.link_type
    }

    /// Whether a frame of this link matches. Slower than [`Filter::matches`], which is made for many frames.
    pub fn matches(&self, frame: &[u8], wire_len: u32, headers: &Headers, outgoing: bool) -> bool {
        program::holds(&self.test, &Frame { bytes: frame, wire_len, headers, outgoing })
    }

    /// The test that the words stand for.
    pub fn test(&self) -> &Test {
        &self.test
    }
}

impl fmt::Display for LinkFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn lowered(text: &str, expr: Option<&Expr>, link_type: u16) -> Result<Test, FilterError> {
    let Some(expr) = expr else { return Ok(Test::Always(true)) };
    lower::lower(expr, Link::of(link_type)).map_err(|(span, why)| FilterError::of(text, span, why))
}
