//! The filter of tcpdump (pcap-filter(7)) as a second surface: word for word what libpcap makes of it.
//!
//! The meaning is libpcap's down to its corners, because people bring filters that work for them, and the tests hold it against
//! tcpdump's own verdicts packet by packet:
//! * Words are read from left to right, and `vlan`, `mpls`, `pppoes` and `geneve` move what the words *after* them look at.
//! * IPv6 extension headers are not walked, but for one fragment header where a protocol is asked.
//! * A byte that was not captured rejects the packet, whatever `not` may stand before; so does a division by 0. (libpcap's optimiser
//!   may leave out a load that decides nothing and then does not miss the byte; this is the meaning without it, `tcpdump -O`.)
//! * Arithmetic has 32 bits, and only the left operand of an operator asks for its protocol.
//!
//! A filter is made for frames of one link, as libpcap's are, and a program with one in it is for no other ([`Program::fits_link`]).
//!
//! Refused, each with its reason: what needs a look at the machine (names of hosts, `gateway`, `ip broadcast`, the words of firewalls),
//! link layers that [`wire`] does not read (`wlan`, `atm`, …), and `protochain`, which loops over the packet. `inbound` and `outbound`
//! are read where libpcap refuses them, in files of Ethernet: a file that does not say which way a frame went says "in".

mod arith;
mod emit;
mod lex;
mod link;
mod names;
mod offsets;
mod parse;
mod refused;
mod relation;
mod services;
mod test;
mod values;

use crate::ir::{Builder, Label, Program};
pub use lex::FilterError;
use link::Link;
pub(crate) use names::mac;
pub(crate) use services::find as service;
use std::fmt;
use test::Test;

/// Most parentheses and `not` inside one another, and most tests, values and numbers: trees of them are as deep as they are long.
const MAX_DEPTH: usize = 100;
const MAX_TESTS: usize = 4000;

/// A filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    text: String,
    link_type: u16,
    test: Test,
}

impl Filter {
    /// Reads a filter for Ethernet. The empty one matches everything.
    ///
    /// # Errors
    /// Where, what is wrong, and what to write instead.
    ///
    /// ```
    /// use netgrain_lang::tcpdump::Filter;
    /// assert!(Filter::parse("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn and vlan 5").is_ok());
    /// let error = Filter::parse("gateway 10.0.0.1").unwrap_err().to_string();
    /// assert_eq!(error, "`gateway` at column 1: it needs the names of hosts and their link addresses; write `ether host MAC and not host ADDRESS`");
    /// ```
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::of_link(text, wire::link::ETHERNET)
    }

    /// Reads a filter for frames of this link type, as pcap numbers it.
    ///
    /// # Errors
    /// As [`Filter::parse`]; and where such frames are not read, or have nothing of what is asked for.
    pub fn of_link(text: &str, link_type: u16) -> Result<Self, FilterError> {
        let link = Link::of(link_type).ok_or_else(|| FilterError {
            word: text.trim().to_owned(),
            at: 0,
            why: format!("frames of link type {link_type} are not read, so no filter can be made for them"),
        })?;
        Ok(Self { text: text.trim().to_owned(), link_type, test: parse::parse(text, link)? })
    }

    /// How many tests and numbers it is made of: what `port 53` says once is tested for each protocol and version.
    pub(crate) fn words(&self) -> usize {
        self.test.words()
    }

    /// As the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A program that passes what the filter matches and drops the rest.
    pub fn program(&self) -> Program {
        let mut b = Builder::default();
        b.stage(&self.text);
        let (yes, no) = (b.label(), b.label());
        self.emit(&mut b, yes, no);
        b.place(no);
        b.discard();
        b.place(yes);
        b.finish()
    }

    /// The filter as a predicate inside another program.
    pub(crate) fn emit(&self, b: &mut Builder, yes: Label, no: Label) {
        b.tables().filter.get_or_insert_with(|| (self.text.clone(), self.link_type));
        emit::emit(b, &self.test, yes, no);
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
