//! The capture filter, in the words of tcpdump (pcap-filter(7)); the same everywhere in the program.
//!
//! ```text
//! filter     = [ term { ("and" | "or") term } ]             and, or: equal, from the left; also &&, ||
//! term       = "not" term | "(" filter ")" | primitive      not (also !) binds most tightly
//! primitive  = [family] [direction] "host" address          family: ip ip6 arp
//!            | [family] [direction] "net" prefix            10.0.0.0/8, 10, 10.0.0.0 mask 255.0.0.0, 2001:db8::/32
//!            | [transport] [direction] "port" port          transport: tcp udp sctp
//!            | [transport] [direction] "portrange" a-b
//!            | "ether" [direction] ["host"] mac
//!            | ["ip" | "ip6" | "ether"] "proto" protocol
//!            | ip | ip6 | arp | tcp | udp | sctp | icmp | icmp6
//!            | "vlan" [id] | "less" n | "greater" n | "len" (< <= > >= = !=) n
//! direction  = "src" | "dst" | "src or dst" | "src and dst"
//! ```
//! Short forms as there: a value alone repeats the words before the last one (`port 80 or 443`, `src host a or b`), a
//! list may stand in parentheses (`port (80 or 443)`), `src a` is `src host a`. `host` and `net` also match the addresses
//! in ARP. The empty filter matches everything.
//!
//! Where we differ from tcpdump, on purpose:
//! * Tags are always looked through, as are labels, pseudowires, PPPoE and SNAP. `port 80` finds port 80 in any VLAN, and `vlan 5` only asks whether
//!   *some* tag of the frame has this id; it does not change what the words after it mean. tcpdump shifts its offsets at
//!   the word `vlan`, so that the order of words matters and an untagged filter misses tagged traffic.
//! * IPv6 extension headers are walked, so `tcp` is TCP behind any of them.
//! * Lengths (`less`, `greater`, `len`) are those on the wire, also where the capture cut the frame.
//! * Names are not looked up: addresses are numbers, and ports have the few names that everyone knows.
//!
//! A filter is compiled to a flat list of tests with two forward jumps each; matching walks it without allocation and
//! ends, because every jump goes forward.

mod error;
mod flow;
mod need;
mod program;
mod syntax;
mod test;
mod token;
mod value;

pub use error::{FilterCause, FilterError};
pub use flow::{FlowFilter, FlowTerms, Looks, NotOfFlows};
pub use need::Need;

use crate::Headers;
use program::Program;
use std::fmt;
use std::str::FromStr;

/// The most tests (`host a`, `port b`, …) in one filter.
pub const MAX_TESTS: usize = 1000;

/// The most parentheses and `not` inside one another.
pub const MAX_NESTING: usize = 100;

/// A filter, ready to match.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    program: Program,
    need: Need,
    canonical: String,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// [`FilterError`] says where, what is wrong, and what to write instead.
    ///
    /// ```
    /// use netgrain_wire::{Filter, Headers, build::Frame, link};
    /// let filter = Filter::parse("udp port 53 or 5353 and not host 10.0.0.9")?;
    /// let mut buffer = [0; 60];
    /// let frame = Frame::udp4([10, 0, 0, 1], 5353, [224, 0, 0, 251], 5353).fill(&mut buffer);
    /// assert!(filter.matches(frame, 60, &Headers::of(frame, 60, link::ETHERNET)));
    /// assert_eq!(filter.to_string(), "(udp port 53 or udp port 5353) and not host 10.0.0.9");
    /// assert_eq!(Filter::parse("hots 10.0.0.1").unwrap_err().to_string(), "`hots` at column 1: did you mean `host`?");
    /// # Ok::<(), netgrain_wire::FilterError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let expr = syntax::parse(text)?;
        let (program, need) = (Program::of(expr.as_ref()), Need::of(expr.as_ref()));
        Ok(Self { program, need, canonical: expr.map_or_else(String::new, |e| e.to_string()) })
    }

    /// Whether a frame matches. `headers` must be those of this frame; with others the answer is meaningless but no
    /// harm is done.
    #[inline]
    pub fn matches(&self, frame: &[u8], wire_len: u32, headers: &Headers) -> bool {
        self.program.run(&test::Subject { frame, wire_len, headers })
    }

    /// What every frame has that matches, for an index.
    ///
    /// ```
    /// use netgrain_wire::{Filter, filter::Need};
    /// let need = |text: &str| Filter::parse(text).unwrap().need();
    /// assert_eq!(need("port 53 and not host 10.0.0.9"), Need::Ports(53, 53));
    /// assert_eq!(need("port 53 or less 100"), Need::Anything);
    /// ```
    pub fn need(&self) -> Need {
        self.need.clone()
    }

    /// Whether it matches every frame because it says nothing.
    pub fn is_empty(&self) -> bool {
        self.canonical.is_empty()
    }
}

/// The empty filter.
impl Default for Filter {
    fn default() -> Self {
        Self { program: Program::of(None), need: Need::Anything, canonical: String::new() }
    }
}

/// The canonical text: every short form written out, parentheses where `and` and `or` meet. Parsing it gives an equal
/// filter.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}
