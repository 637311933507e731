//! Layer 0 of the crates: the filter language, which is that of tcpdump (pcap-filter(7)) with a few additional
//! primitives.
//!
//! There is one lexer, one parser, one syntax tree ([`tree`]), one table of services and one error type
//! ([`FilterError`]). The tree is applied to three kinds of data. For each of them, some primitives are supported and
//! the others are rejected:
//! * packets: [`Filter`] interprets the filter. `netgrain-lang` translates a [`LinkFilter`] to its intermediate
//!   representation, and from there to native code and to XDP programs;
//! * flow records: [`FlowFilter`] interprets the filter;
//! * key sets of an index: [`KeyCondition`] is a condition on the index keys that every matching packet (or flow
//!   record) fulfils.
//!
//! # Packets
//! The semantics are those of libpcap, including special cases, so that existing filters keep their results. Tests
//! compare the results with those of tcpdump, packet by packet:
//! * The filter is read from left to right; `vlan`, `mpls`, `pppoes` and `geneve` move the header offsets of the
//!   primitives *after* them.
//! * IPv6 extension headers are not skipped, except one fragment header in tests of the protocol; `protochain` follows
//!   all of them.
//! * A load of a byte that was not captured rejects the packet, even under `not`; so does a division by 0. (The
//!   optimiser of libpcap may remove a load whose value has no effect; the filter then accepts a packet without that
//!   byte. The semantics here are those without the optimiser, `tcpdump -O`.)
//! * Arithmetic has 32 bits, and an operator implies a test of the protocol of its left operand only. For example,
//!   `ip[0] + tcp[0]` does not test that the packet is TCP.
//!
//! `anylink` before a test or a parenthesis applies the test to the packet inside all VLAN tags, MPLS labels,
//! pseudowires and PPPoE sessions, and behind all IPv6 extension headers.
//!
//! The parser rejects, with the reason, primitives that need information about the host (host names, `gateway`,
//! firewall primitives) and primitives of link layers that [`wire`] does not decode (`type mgt`, `vpi`, …). `inbound`
//! and `outbound` are accepted for Ethernet files, although libpcap rejects them: if a file does not contain the
//! direction of frames, every frame counts as inbound.
#![forbid(unsafe_code)]

pub mod anylink;
mod arith;
mod error;
pub mod flow;
mod flow_words;
mod header_offset;
mod key_condition;
mod lex;
mod link;
mod lower;
mod names;
mod number;
mod offsets;
mod parse;
mod program;
mod protocol_test;
mod services;
pub mod test;
pub mod tree;
mod unsupported;

pub use error::FilterError;
pub use flow::{FlowFilter, FlowTerms, RequiredFields};
pub use flow_words::OF_FLOWS;
pub use key_condition::KeyCondition;
pub use names::mac;
pub use number::{Base, Number};
pub use offsets::BRIDGED;
pub use services::find as service;

use link::Link;
use program::{Frame, Program};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use test::Test;
use tree::Expr;
use wire::{Headers, link as wire_link};

/// The maximum nesting depth of parentheses and `not`.
pub const MAX_DEPTH: usize = 100;

/// The maximum number of tests, of further values (as in `port 80 or 443`) and of arithmetic operators in a filter. It
/// bounds recursion, because a chain of operands becomes a tree of that depth.
pub const MAX_TESTS: usize = 4000;

/// A packet filter, compiled for every link type.
///
/// If a filter is invalid for a link type (for example `vlan` for raw IP), no frame of that link type matches, even if
/// the invalid primitive is under `not`.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    /// The compiled programs, indexed by [`Headers::link`]; `None` for link types for which the filter is invalid.
    programs: Arc<[Option<Program>]>,
    need: KeyCondition,
}

impl Filter {
    /// Parses a filter. The empty filter matches every frame.
    ///
    /// # Errors
    /// The filter is invalid; the error contains the column, the cause and a correction. A primitive that is invalid
    /// for all link types is an error too.
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

    /// Checks that the filter is valid for frames of this link type.
    ///
    /// # Errors
    /// The filter is invalid for this link type; the error names the first invalid primitive and the reason.
    pub fn fits(&self, link_type: u16) -> Result<(), FilterError> {
        LinkFilter::parse(&self.text, link_type).map(|_| ())
    }

    /// True if the filter matches this received frame. `headers` must be those of this frame; with other headers the
    /// result is meaningless, but the call is safe.
    #[inline]
    pub fn matches(&self, frame: &[u8], wire_len: u32, headers: &Headers) -> bool {
        self.matches_direction(frame, wire_len, headers, false)
    }

    /// True if the filter matches this frame, as for [`Filter::matches`]; `outgoing` is true if this host sent the
    /// frame.
    #[inline]
    pub fn matches_direction(&self, frame: &[u8], wire_len: u32, headers: &Headers, outgoing: bool) -> bool {
        match self.programs.get(headers.link()) {
            Some(Some(program)) => program.run(&Frame { bytes: frame, wire_len, headers, outgoing }),
            _ => false,
        }
    }

    /// A condition on index keys that every matching frame fulfils. A query selects the blocks of an index by this
    /// condition.
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

    /// True for the empty filter, which matches every frame.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// The empty filter.
impl Default for Filter {
    fn default() -> Self {
        Self::parse("").unwrap_or_else(|e| unreachable!("the empty filter is valid: {e}"))
    }
}

/// Two filters are equal if their texts are equal.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The text of the filter as the user wrote it.
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

/// A filter for frames of one link type, as in libpcap. The crate `netgrain-lang` translates it to programs of its
/// intermediate representation.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFilter {
    text: String,
    link_type: u16,
    test: Test,
}

impl LinkFilter {
    /// Parses a filter for frames of this link type (a pcap `LINKTYPE_` number). The empty filter matches every frame.
    ///
    /// # Errors
    /// The filter is invalid; the error contains the column, the cause and a correction. A primitive that is invalid
    /// for this link type is an error too.
    ///
    /// ```
    /// use netgrain_filter::LinkFilter;
    /// assert!(LinkFilter::parse("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn and vlan 5", 1).is_ok());
    /// let error = LinkFilter::parse("gateway 10.0.0.1", 1).unwrap_err().to_string();
    /// assert_eq!(
    ///     error,
    ///     "`gateway` at column 1: it needs the names of hosts and their link addresses; write `ether host MAC and \
    ///      not host ADDRESS`"
    /// );
    /// ```
    pub fn parse(text: &str, link_type: u16) -> Result<Self, FilterError> {
        let test = lowered(text, parse::parse(text)?.as_ref(), link_type)?;
        Ok(Self { text: text.trim().to_owned(), link_type, test })
    }

    /// The size of the filter after lowering: the number of its tests, logical operators and arithmetic operands.
    /// Lowering expands for example `port 53` to one test for each protocol and IP version.
    pub fn node_count(&self) -> usize {
        self.test.node_count()
    }

    /// The text of the filter as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The link type of frames for which the filter is valid.
    pub fn link_type(&self) -> u16 {
        self.link_type
    }

    /// True if the filter matches this frame, whose link type must be that of the filter. This function is slower than
    /// [`Filter::matches`], which runs a compiled program.
    pub fn matches(&self, frame: &[u8], wire_len: u32, headers: &Headers, outgoing: bool) -> bool {
        program::holds(&self.test, &Frame { bytes: frame, wire_len, headers, outgoing })
    }

    /// The result of lowering: the test into which the filter was translated for its link type.
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
