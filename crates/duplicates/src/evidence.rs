//! The evidence that a packet is a copy of an earlier packet. Every rule, and the false positives that it prevents, is
//! in the documentation of the crate.

use crate::chain::{Chain, distance};
use crate::rules::{Candidate, Macs, Relation, macs};
use crate::settings::{RETRANSMISSION_PACKETS, UNIDENTIFIED_WINDOW};
use crate::table::Head;
use crate::{Class, Settings, encapsulation};
use base::Timestamp;
use std::time::Duration;

/// The outcome for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet is another packet, or a copy of a class that is not enabled.
    Different,
    /// The packets are equal, but nothing shows that they are copies of one packet.
    Repeat,
    /// The packet is the original of the record, which is its copy after a router and was captured first.
    Reversed,
    /// The packet is a copy. `is_lower` is true if a TTL decreased.
    Copy { class: Class, is_lower: bool },
}

/// The facts about a record that do not follow from the record alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// True if the packet has an identification, and its sender did not send the same bytes with another
    /// identification in the window.
    pub is_identified: bool,
    /// True if the chain of the record contains a packet that is equal to the new packet at the same place, or if the
    /// table forgot packets of the chain.
    pub is_occupied: bool,
    /// The age of the record in packets.
    pub age: u64,
}

/// The place at which a packet was captured: the VLAN tags, and the interface if the interfaces are mirrors.
pub(crate) fn is_same_place(settings: &Settings, old: &Head, new: &Head) -> bool {
    old.vlans == new.vlans && (!settings.mirrored_interfaces || old.interface == new.interface)
}

/// True if both packets are the same frame, perhaps in other VLANs: the bytes, the MAC addresses and the tunnels are
/// equal.
pub(crate) fn is_same_frame(relation: Relation, old: &Head, new: &Head) -> bool {
    relation == Relation::Equal
        && old.has_macs == new.has_macs
        && matches!(macs(old, new), Macs::Equal | Macs::Unknown)
        && encapsulation::is_same(old, new)
}

/// The verdict for a record of the same hash.
pub(crate) fn verdict(
    settings: &Settings,
    relation: Relation,
    old: &Head,
    new: &Candidate<'_>,
    facts: Facts,
) -> Verdict {
    let verdict = match relation {
        Relation::Equal if is_same_frame(relation, old, &new.compared.head) => switching(settings, old, new, facts),
        Relation::Equal => encapsulated(old, new, facts),
        Relation::Hop { before, after, .. } => routing(settings, old, new, (before, after), facts),
        Relation::Different | Relation::Sibling => Verdict::Different,
    };
    match verdict {
        Verdict::Copy { class, .. } if !settings.classes.contains(class) => Verdict::Different,
        Verdict::Repeat if !settings.classes.contains(Class::Switching) => Verdict::Different,
        Verdict::Reversed if !settings.classes.contains(Class::Routing) => Verdict::Different,
        verdict => verdict,
    }
}

/// Two equal frames.
fn switching(settings: &Settings, old: &Head, new: &Candidate<'_>, facts: Facts) -> Verdict {
    let time = distance(Chain::of(old).first, new.compared.head.ts);
    let is_other_place = !facts.is_occupied && new.compared.is_complete() && new.compared.is_unicast(new.region);
    let is_copy = facts.is_identified
        || is_other_place
        || is_before_acknowledgement(settings, old, new, facts.age)
        || !settings.repeat_window.is_zero() && time <= settings.repeat_window;
    if is_copy { Verdict::Copy { class: Class::Switching, is_lower: false } } else { Verdict::Repeat }
}

/// True if an acknowledgement cannot have been missing yet when the second of two equal TCP segments was sent. A clock
/// that is coarse, was set back or does not run proves nothing.
fn is_before_acknowledgement(settings: &Settings, old: &Head, new: &Candidate<'_>, age: u64) -> bool {
    let (first, now) = (Chain::of(old).first, new.compared.head.ts);
    let is_coarse = |ts: Timestamp| ts.nanos().is_multiple_of(Duration::from_millis(1).as_nanos() as u64);
    let is_forward = old.ts <= now && first <= now;
    let is_clock_usable = old.ts != Timestamp::ZERO && !(old.ts == now && is_coarse(now));
    new.compared.awaits_acknowledgement(new.region)
        && age <= RETRANSMISSION_PACKETS
        && is_forward
        && is_clock_usable
        && distance(first, now) <= settings.retransmission_window
}

/// Two packets with equal bytes whose MAC addresses, tunnels or labels differ.
fn encapsulated(old: &Head, new: &Candidate<'_>, facts: Facts) -> Verdict {
    let head = &new.compared.head;
    if facts.is_identified && macs(old, head) == Macs::Differ && encapsulation::is_forwarded(old, head) {
        let is_lower = head.outer_ttl < old.outer_ttl && old.outer != 0 && head.outer != 0;
        Verdict::Copy { class: Class::Routing, is_lower }
    } else {
        Verdict::Different
    }
}

/// Two packets whose TTL differs.
fn routing(settings: &Settings, old: &Head, new: &Candidate<'_>, (before, after): (u8, u8), facts: Facts) -> Verdict {
    let head = &new.compared.head;
    if macs(old, head) != Macs::Differ {
        return Verdict::Different;
    }
    let copy = Verdict::Copy { class: Class::Routing, is_lower: true };
    if after > before {
        return match (facts.is_identified && old.interface != head.interface, settings.unordered_interfaces) {
            (true, true) => copy,
            (true, false) => Verdict::Reversed,
            (false, _) => Verdict::Different,
        };
    }
    let is_near = distance(Chain::of(old).first, head.ts) <= UNIDENTIFIED_WINDOW;
    if after < before && (facts.is_identified || is_near && !facts.is_occupied) { copy } else { Verdict::Different }
}
