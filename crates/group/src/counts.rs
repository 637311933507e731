//! The books of a group, and the sums that must close.
//!
//! ```text
//! received = dropped + no_member + passed                 packets that the group's program judged
//! copies   = delivered + refused + lost                   over all members, those that have left included
//! forwards = forwarded + forward_lost + forward_own       over all ports
//! ```
//! Packets that the dispatcher let go because it was too far behind (`skipped`) were not received. What a reader was given
//! and did not get to is known to the reader alone ([`Seen`]).

use crate::steer::MEMBERS;
use crate::verdict::{CLASSES, class};
use serde::Serialize;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// One member's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemberCounts {
    /// Put into its branch.
    pub delivered: u64,
    /// Meant for it, but its own filter did not match.
    pub refused: u64,
    /// Meant for it, but it had left no room in its branch.
    pub lost: u64,
}

/// What a reader says of itself; for display, because it may say anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Packets it has taken from its branch.
    pub seen: u64,
    /// Among them, those whose bytes were overwritten before it looked.
    pub late: u64,
}

/// What became of the packets that were handed to a port; kept by its thread.
#[derive(Debug, Default)]
pub struct PortCounts {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl PortCounts {
    /// One was sent, or was not: refused by the port, overwritten before its turn, or captured in part only.
    pub fn count(&self, sent: bool) {
        let counter = if sent { &self.sent } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Packets sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Packets not sent.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Judged.
    pub received: u64,
    /// Dropped by the program.
    pub dropped: u64,
    /// For somebody, but nobody was there.
    pub no_member: u64,
    /// For at least one member.
    pub passed: u64,
    /// For how many members, over all packets.
    pub copies: u64,
    /// Published while the dispatcher was too far behind to judge.
    pub skipped: u64,
    /// Handed to ports.
    pub forwarded: u64,
    /// Meant for ports that were too slow, or that are not there.
    pub forward_lost: u64,
    /// Meant for ports, but this host had sent them itself: to send them on would let them circle between its ports.
    pub forward_own: u64,
    /// Meant for the ports, over all packets.
    pub forwards: u64,
    /// The host has them too.
    pub to_kernel: u64,
    /// Packets not dropped, by class that they were for.
    pub classes: [u64; CLASSES],
    /// Packets not dropped that were for every class.
    pub broadcast: u64,
    /// By place.
    pub members: [MemberCounts; MEMBERS],
    /// Members that have left.
    pub departed: MemberCounts,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            received: 0,
            dropped: 0,
            no_member: 0,
            passed: 0,
            copies: 0,
            skipped: 0,
            forwarded: 0,
            forward_lost: 0,
            forward_own: 0,
            forwards: 0,
            to_kernel: 0,
            classes: [0; CLASSES],
            broadcast: 0,
            members: [MemberCounts::default(); MEMBERS],
            departed: MemberCounts::default(),
        }
    }
}

impl AddAssign<&MemberCounts> for MemberCounts {
    fn add_assign(&mut self, o: &Self) {
        self.delivered += o.delivered;
        self.refused += o.refused;
        self.lost += o.lost;
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, o: &Self) {
        for (a, b) in [
            (&mut self.received, o.received),
            (&mut self.dropped, o.dropped),
            (&mut self.no_member, o.no_member),
            (&mut self.passed, o.passed),
            (&mut self.copies, o.copies),
            (&mut self.skipped, o.skipped),
            (&mut self.forwarded, o.forwarded),
            (&mut self.forward_lost, o.forward_lost),
            (&mut self.forward_own, o.forward_own),
            (&mut self.forwards, o.forwards),
            (&mut self.to_kernel, o.to_kernel),
            (&mut self.broadcast, o.broadcast),
        ] {
            *a += b;
        }
        self.classes.iter_mut().zip(o.classes).for_each(|(a, b)| *a += b);
        self.members.iter_mut().zip(&o.members).for_each(|(a, b)| *a += b);
        self.departed += &o.departed;
    }
}

impl Counts {
    /// Everybody's part together, whether still there or not.
    pub fn all_members(&self) -> MemberCounts {
        let mut all = self.departed;
        self.members.iter().for_each(|m| all += m);
        all
    }

    /// Somebody leaves this place.
    pub fn depart(&mut self, place: u8) {
        let part = std::mem::take(&mut self.members[usize::from(place)]);
        self.departed += &part;
    }

    /// Packets of a class, broadcasts included.
    pub fn of_class(&self, c: u8) -> u64 {
        self.classes[usize::from(c)] + if class::ANY >> c & 1 == 1 { self.broadcast } else { 0 }
    }

    /// What contradicts, in words; nothing, unless there is a bug.
    pub fn contradictions(&self) -> Vec<String> {
        let all = self.all_members();
        let sums = [
            ("received", self.received, "dropped + no_member + passed", self.dropped + self.no_member + self.passed),
            ("copies", self.copies, "delivered + refused + lost", all.delivered + all.refused + all.lost),
            (
                "forwards",
                self.forwards,
                "forwarded + forward_lost + forward_own",
                self.forwarded + self.forward_lost + self.forward_own,
            ),
        ];
        sums.into_iter()
            .filter(|(_, whole, _, parts)| whole != parts)
            .map(|(name, whole, of, parts)| format!("{name} is {whole}, but {of} is {parts}; please report this"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_residue_is_told_and_leaving_keeps_the_sums() {
        let mut c = Counts { received: 10, passed: 9, dropped: 1, copies: 9, ..Counts::default() };
        c.members[3] = MemberCounts { delivered: 5, refused: 3, lost: 1 };
        assert_eq!(c.contradictions(), Vec::<String>::new());
        c.depart(3);
        assert_eq!((c.contradictions().len(), c.members[3], c.departed.delivered), (0, MemberCounts::default(), 5));
        let mut twice = c.clone();
        twice += &c;
        assert_eq!((twice.received, twice.all_members().lost, twice.contradictions().len()), (20, 2, 0));
        c.passed += 1;
        assert!(c.contradictions()[0].starts_with("received is 10, but dropped + no_member + passed is 11"));
    }

    #[test]
    fn broadcasts_count_for_every_class_but_management() {
        let c = Counts { broadcast: 4, ..Counts::default() };
        assert_eq!((c.of_class(0), c.of_class(62), c.of_class(class::MANAGEMENT)), (4, 4, 0));
    }
}
