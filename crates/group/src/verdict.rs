//! What a program is asked and what it answers. How programs come about is not this room's business.
//!
//! The words are PFQ's (Bonelli, Giordano, Procissi: functional processing of packets; PhD thesis 2017, chapter 4): an
//! action says who gets a packet, classes say whom it may go to, and marks, forwards and the way to the host are remarks
//! beside it. At the end of a program that decided nothing the packet is copied to the default class. What was remarked
//! before a drop happens all the same: a bridge forwards and keeps nothing.

use crate::engine_services::IngressInterface;
use ring::Desc;
use serde::{Deserialize, Serialize};
use std::any::Any;

/// Classes of a group.
pub const CLASSES: usize = 64;

/// Most ports that one packet is forwarded to; a port may be named more than once.
pub const FORWARDS: usize = 16;

/// Names of classes, and sets of them.
pub mod class {
    /// Everybody who did not say otherwise.
    pub const DEFAULT: u8 = 0;
    /// User plane.
    pub const USER: u8 = 1;
    /// Control plane.
    pub const CONTROL: u8 = 2;
    /// Who configures and never receives; no broadcast reaches it.
    pub const MANAGEMENT: u8 = 63;
    /// Every class that a broadcast reaches.
    pub const ANY: u64 = !(1 << MANAGEMENT);

    /// The class of this name or number.
    pub fn parse(text: &str) -> Option<u8> {
        match text {
            "default" => Some(DEFAULT),
            "user" => Some(USER),
            "control" => Some(CONTROL),
            "management" => Some(MANAGEMENT),
            _ => text.parse().ok().filter(|n| usize::from(*n) < super::CLASSES),
        }
    }

    /// What people call it.
    pub fn name(class: u8) -> String {
        match class {
            DEFAULT => "default".into(),
            USER => "user".into(),
            CONTROL => "control".into(),
            MANAGEMENT => "management".into(),
            n => n.to_string(),
        }
    }
}

/// One packet to judge.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its descriptor in the ring.
    pub desc: &'a Desc,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Length on the wire, exactly.
    pub wire_len: u32,
}

/// Who gets a packet, among the members of its classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Nobody.
    Drop,
    /// Everybody.
    #[default]
    Copy,
    /// One: always the same for the same hash, as long as it is a member.
    Steer(u32),
    /// One for each hash; a single copy where both are the same.
    DoubleSteer(u32, u32),
    /// The one with this number, modulo how many there are, in the order of their places.
    Pick(u32),
}

/// The ports that a packet goes out of, as indices into [`Compiled::ports`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwards {
    len: u8,
    ports: [u8; FORWARDS],
}

impl Forwards {
    /// One more; false if there are [`FORWARDS`] already.
    pub fn push(&mut self, port: u8) -> bool {
        let Some(slot) = self.ports.get_mut(usize::from(self.len)) else { return false };
        *slot = port;
        self.len += 1;
        true
    }

    /// All of them, in order.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.ports[..usize::from(self.len)]
    }
}

/// What a program decided about one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Who.
    pub delivery: Delivery,
    /// Among whom: a bit for each class.
    pub classes: u64,
    /// For the reader; other groups do not see it.
    pub mark: u32,
    /// The host shall have it too.
    pub kernel: bool,
    /// And these ports.
    pub forwards: Forwards,
}

impl Default for Verdict {
    fn default() -> Self {
        Self {
            delivery: Delivery::Copy,
            classes: 1 << class::DEFAULT,
            mark: 0,
            kernel: false,
            forwards: Forwards::default(),
        }
    }
}

/// A program with its state, for one queue.
pub trait Program: Any + Send {
    /// Judges a batch; `out` is as long, and every verdict in it is [`Verdict::default`] before.
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]);

    /// What it has counted itself, in the order of [`Compiled::counters`]; modulo 2^64, because programs count down too.
    fn counters(&self) -> Vec<u64> {
        Vec::new()
    }

    /// How full the maps are in which it remembers; of those that several queues share, only the first one tells.
    fn maps(&self) -> Vec<MapUsage> {
        Vec::new()
    }

    /// What it remembers of datagrams that were cut, if it does; all queues share that.
    fn datagrams(&self) -> Option<FragmentCounts> {
        None
    }

    /// Takes over what it can from the program that judged on this queue until now and judges no more. It is called between
    /// two batches, so it moves and does not copy; what is left behind is thrown away elsewhere.
    fn transfer_state(&mut self, before: &mut dyn Program) {
        let _ = before;
    }
}

/// How full a map of a program is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MapUsage {
    /// Its name.
    pub map: String,
    /// Entries, those that have expired and were not yet taken out included.
    pub used: u64,
    /// Entries that there is room for.
    pub capacity: u64,
    /// Entries that it refused because it was full.
    pub refused: u64,
}

/// What a program remembers of datagrams that were cut, so that their parts stay together. Each way of steering remembers by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FragmentCounts {
    /// Datagrams that were remembered; these are held, or were forgotten for one of the three reasons below.
    pub created: u64,
    /// Those that are held now, those whose time is over and whose place nobody needed included.
    pub entries: u64,
    /// Those that there is room for.
    pub capacity: u64,
    /// Those that had to make room before their time.
    pub evicted: u64,
    /// Those whose time was over.
    pub expired: u64,
    /// Those whose identification came again, on another datagram.
    pub replaced: u64,
    /// Later parts that went by what is remembered of their first.
    pub matched: u64,
    /// Later parts of which the first was not known.
    pub orphaned: u64,
}

/// How a program runs, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// In a word: `native`, `interpreted`, `built in`.
    pub execution: String,
    /// Why it does not run faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Microseconds that it took to make.
    #[serde(default)]
    pub compile_us: u64,
    /// What its packets can be spread by so that no state is shared: a line for each cluster of maps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<String>,
    /// What whoever loads it should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A program that was found sound: makes one instance for each queue of each port.
pub trait Compiled: Any + Send + Sync {
    /// Fresh instances, one for each queue, which are given by the ports that they are of, for a group of this name.
    ///
    /// # Errors
    /// In words, why there can be none: no memory for what it remembers, say.
    fn instances(&self, queues: &[IngressInterface], group: &str) -> Result<Vec<Box<dyn Program>>, String>;

    /// Its source.
    fn text(&self) -> &str;

    /// What a line about it shows of its source: the first line that says something.
    fn headline(&self) -> &str {
        self.text().lines().next().unwrap_or_default()
    }

    /// Names of the ports that it forwards to.
    fn ports(&self) -> &[String] {
        &[]
    }

    /// Names of its counters.
    fn counters(&self) -> &[String] {
        &[]
    }

    /// Whether it asks which way packets go. One that does not forwards only what arrived: what this host sends may be what
    /// another engine of its has forwarded, and the two would send it to and fro for ever.
    fn knows_direction(&self) -> bool {
        false
    }

    /// Bytes that the instances of a group may come to remember, at most.
    fn memory(&self) -> u64 {
        0
    }

    /// What to write instead where what they come to remember is to be no more than this.
    fn advice(&self, bytes: u64) -> String {
        let _ = bytes;
        "write `up_to N` at its maps".into()
    }

    /// What it will have taken over from the program that judges until now, in words; nothing where neither remembers anything.
    fn state_transfer(&self, before: &dyn Compiled) -> Option<String> {
        let _ = before;
        None
    }

    /// Whether it hands packets to the host.
    fn wants_kernel(&self) -> bool {
        false
    }

    /// How it runs on so many queues.
    fn about(&self, queues: usize) -> ProgramInfo {
        let _ = queues;
        ProgramInfo { execution: "built in".into(), ..ProgramInfo::default() }
    }
}

/// A member's own filter.
pub trait MemberFilter: Send + Sync {
    /// Whether the packet is for the member.
    fn matches(&self, packet: &Packet<'_>) -> bool;

    /// As it was written.
    fn text(&self) -> &str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names_and_numbers_and_management_hears_no_broadcast() {
        for c in 0..64 {
            assert_eq!(class::parse(&class::name(c)), Some(c));
        }
        assert_eq!(class::parse("64"), None);
        assert_eq!(class::parse("-1"), None);
        assert_eq!(class::ANY.count_zeros(), 1);
        assert_eq!(class::ANY >> class::MANAGEMENT, 0);
    }

    #[test]
    fn forwards_are_bounded_and_keep_their_order() {
        let mut f = Forwards::default();
        for port in 0..16 {
            assert!(f.push(port % 3));
        }
        assert!(!f.push(1));
        assert_eq!(f.as_slice(), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
    }
}
