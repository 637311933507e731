//! The interface between groups and programs. A program receives packets and returns a verdict for each. The programs
//! are compiled in other crates.
//!
//! The terms are those of PFQ (Bonelli, Giordano, Procissi: functional processing of packets; PhD thesis 2017, chapter
//! 4). The classes of a verdict define a set of members, and the delivery selects among these members. Mark, forward
//! and pass to host are independent of the delivery. A program that makes no decision copies the packet to the default
//! class. Actions that a program requests before it drops the packet still take effect. For example, a program that
//! acts as a bridge forwards each packet and then drops it.

use crate::ingress_interface::IngressInterface;
use crate::service_error::ServiceError;
use ring::Desc;
use serde::{Deserialize, Serialize};
use std::any::Any;

/// Number of classes of a group.
pub const CLASSES: usize = 64;

/// The maximum number of times that a program may forward one packet; several forwards may name the same interface.
pub const FORWARDS: usize = 16;

/// Names of classes, and sets of classes.
pub mod class {
    /// The default class. A member that names no class when it joins belongs to this class.
    pub const DEFAULT: u8 = 0;
    /// User plane.
    pub const USER: u8 = 1;
    /// Control plane.
    pub const CONTROL: u8 = 2;
    /// The class of members that only configure the group and receive no packets.
    pub const MANAGEMENT: u8 = 63;
    /// The set of all classes that receive a packet addressed to every class.
    pub const ANY: u64 = !(1 << MANAGEMENT);

    /// Returns the class with this name or number.
    pub fn parse(text: &str) -> Option<u8> {
        match text {
            "default" => Some(DEFAULT),
            "user" => Some(USER),
            "control" => Some(CONTROL),
            "management" => Some(MANAGEMENT),
            _ => text.parse().ok().filter(|n| usize::from(*n) < super::CLASSES),
        }
    }

    /// Returns the name, or the number of a class without a name.
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

/// A packet that a program evaluates.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The descriptor in the ring.
    pub desc: &'a Desc,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// The exact wire length of the packet.
    pub wire_len: u32,
}

/// The members that receive a packet, selected from the members of the packet's classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// No member.
    Drop,
    /// All members.
    #[default]
    Copy,
    /// Selects one member. The same hash selects the same member, as long as that member stays in the group.
    Steer(u32),
    /// Selects one member for each of the two hashes. If both hashes select the same member, it receives one copy.
    DoubleSteer(u32, u32),
    /// Selects the member with this index, modulo the number of eligible members, in the order of their slots.
    Pick(u32),
}

/// The egress interfaces of a packet, as indices into [`Compiled::ports`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwards {
    len: u8,
    ports: [u8; FORWARDS],
}

impl Forwards {
    /// Adds an egress interface; returns false if there are already [`FORWARDS`] of them.
    pub fn push(&mut self, port: u8) -> bool {
        let Some(slot) = self.ports.get_mut(usize::from(self.len)) else { return false };
        *slot = port;
        self.len += 1;
        true
    }

    /// Returns all interfaces in order.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.ports[..usize::from(self.len)]
    }
}

/// The decision of a program for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The members that get the packet.
    pub delivery: Delivery,
    /// The classes whose members can get the packet, one bit each.
    pub classes: u64,
    /// The mark that the members of this group receive in the descriptor of the packet. The members of other groups do
    /// not receive it.
    pub mark: u32,
    /// True if the packet also goes to the host.
    pub kernel: bool,
    /// The egress interfaces.
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
    /// Evaluates a batch. `out` has as many verdicts as the batch has packets, and each verdict in it is
    /// [`Verdict::default`] before the call.
    fn evaluate(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]);

    /// Returns the counters that the program defines, in the order of [`Compiled::counters`]. The values are modulo
    /// 2^64, because a program may decrement a counter.
    fn counters(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the fill levels of the flow maps. Maps that several queues share are reported by the first queue only.
    fn maps(&self) -> Vec<MapUsage> {
        Vec::new()
    }

    /// Returns the counters of the fragment tracking, which all queues share; `None` if the program does not use
    /// fragment tracking.
    fn datagrams(&self) -> Option<FragmentCounts> {
        None
    }

    /// Takes over the state of the previous program of this queue, as far as the maps of both programs agree. The call
    /// happens between two batches, so it must be fast: it moves state instead of copying it.
    fn transfer_state(&mut self, before: &mut dyn Program) {
        let _ = before;
    }
}

/// The fill level of a program's map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MapUsage {
    /// The map's name.
    pub map: String,
    /// Number of entries of the map, including expired entries that were not removed yet.
    pub used: u64,
    /// The maximum number of entries of the map.
    pub capacity: u64,
    /// Number of new entries that were refused because the map was full.
    pub refused: u64,
}

/// Counters of a program's fragment tracking, which keeps the fragments of a datagram together. Each steering function
/// tracks fragments separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FragmentCounts {
    /// Number of datagrams added to the table of fragment tracking. Each of them is still an entry of the table, or was
    /// removed for one of the reasons that `evicted`, `expired` and `replaced` count.
    pub created: u64,
    /// Number of datagrams in the table, including expired datagrams whose slot was not reused yet.
    pub entries: u64,
    /// The maximum number of datagrams in the table.
    pub capacity: u64,
    /// Number of datagrams removed before their timeout because the table was full.
    pub evicted: u64,
    /// Number of datagrams removed after their timeout.
    pub expired: u64,
    /// Number of datagrams that were replaced because another datagram with the same addresses, protocol and
    /// identification arrived.
    pub replaced: u64,
    /// Number of later fragments that got the steering or the ports of their first fragment.
    pub matched: u64,
    /// Number of orphan fragments: later fragments whose first fragment is not in the table.
    pub orphaned: u64,
}

/// A description of how a program runs, as text for users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// `native`, `interpreted` or `built in`.
    pub execution: String,
    /// The reason why the program is interpreted and does not run as machine code, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Microseconds of compilation.
    #[serde(default)]
    pub compile_us: u64,
    /// The packet keys (such as addresses) by which packets can be distributed over members so that no two members use
    /// the same map entry. Each line is one key, with the names of the maps for which it is sufficient.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<String>,
    /// Notes for the user who loads the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A compiled program; it makes an instance for each queue.
pub trait Compiled: Any + Send + Sync {
    /// Makes new instances of the program for a group of this name, one for each queue; `queues` gives the interface of
    /// each queue.
    ///
    /// # Errors
    /// The instances cannot be made, for example because there is not enough memory for the flow maps. The error text
    /// contains the reason.
    fn instances(&self, queues: &[IngressInterface], group: &str) -> Result<Vec<Box<dyn Program>>, ServiceError>;

    /// Returns the source.
    fn text(&self) -> &str;

    /// Returns the line of the source that tables show: the first line with content.
    fn headline(&self) -> &str {
        self.text().lines().next().unwrap_or_default()
    }

    /// Returns the names of the program's egress interfaces.
    fn ports(&self) -> &[String] {
        &[]
    }

    /// Returns the names of the counters that the program defines.
    fn counters(&self) -> &[String] {
        &[]
    }

    /// True if the program tests the direction of packets. For a program that does not test it, the group forwards only
    /// incoming packets. The reason is that another engine on this host may have forwarded an outgoing packet, and the
    /// two engines would then forward it to each other without end.
    fn reads_direction(&self) -> bool {
        false
    }

    /// Returns the largest number of bytes that the state of all instances of a group can take.
    fn memory(&self) -> u64 {
        0
    }

    /// Returns advice for the user on how to limit the state of the program to `bytes` bytes.
    fn advice(&self, bytes: u64) -> String {
        let _ = bytes;
        "write `up_to N` at the maps of the program".into()
    }

    /// Describes the state that this program takes over from `before`; `None` if neither has state.
    fn state_transfer(&self, before: &dyn Compiled) -> Option<String> {
        let _ = before;
        None
    }

    /// True if the program passes packets to the host.
    fn passes_to_host(&self) -> bool {
        false
    }

    /// Returns a description of how the program runs on this number of queues.
    fn about(&self, queues: usize) -> ProgramInfo {
        let _ = queues;
        ProgramInfo { execution: "built in".into(), ..ProgramInfo::default() }
    }
}

/// A member's filter.
pub trait MemberFilter: Send + Sync {
    /// True if the packet matches.
    fn matches(&self, packet: &Packet<'_>) -> bool;

    /// Returns the source text.
    fn text(&self) -> &str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_round_trip_and_broadcasts_exclude_management() {
        for c in 0..64 {
            assert_eq!(class::parse(&class::name(c)), Some(c));
        }
        assert_eq!(class::parse("64"), None);
        assert_eq!(class::parse("-1"), None);
        assert_eq!(class::ANY.count_zeros(), 1);
        assert_eq!(class::ANY >> class::MANAGEMENT, 0);
    }

    #[test]
    fn forwards_keep_their_order_up_to_the_limit() {
        let mut f = Forwards::default();
        for port in 0..16 {
            assert!(f.push(port % 3));
        }
        assert!(!f.push(1));
        assert_eq!(f.as_slice(), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
    }
}
