//! The books of a group, and the sums that must close.
//!
//! ```text
//! received = dropped + no_member + passed                 packets that the group's program judged
//! copies   = delivered + refused + lost                   over all members, those that have left included
//! copies   = those of the classes                         each copy is by the lowest class that packet and member share
//! forwards = forwarded + forward_lost + forward_own       over all ports
//! ```
//! Packets that the dispatcher let go because it was too far behind (`skipped`) were not received. What a reader was given
//! and did not get to is known to the reader alone ([`ReaderCounts`]).

use crate::steering::MEMBERS;
use crate::verdict::{CLASSES, class};
use serde::Serialize;
use std::ops::AddAssign;
use std::sync::Arc;
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

/// One class's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Packets for it that were not dropped.
    pub packets: u64,
    /// Copies for members that are in it.
    pub copies: u64,
    /// Packets for it, and nobody was there.
    pub no_member: u64,
    /// Copies that found no room.
    pub lost: u64,
}

/// What a reader says of itself; for display, because it may say anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReaderCounts {
    /// Packets it has taken from its branch.
    pub taken: u64,
    /// Among them, those whose bytes were overwritten before it looked.
    pub late: u64,
}

/// What became of a packet that was handed to an outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkResult {
    /// It is there.
    Written,
    /// It is not: refused by the port, overwritten before its turn, captured in part only, or more than the file was to have.
    Failed,
    /// It was not to be: this host had sent it itself.
    OwnTraffic,
}

/// What became of the packets that were handed to a port or a file; kept by its thread.
#[derive(Debug, Default)]
pub struct SinkCounts {
    sent: AtomicU64,
    failed: AtomicU64,
    own: AtomicU64,
}

/// The same at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkTotals {
    /// Packets sent or written.
    pub sent: u64,
    /// Packets that should have been.
    pub failed: u64,
    /// Packets that this host had sent itself.
    pub own: u64,
}

/// The books of outlets that were closed. Their threads still put away what is in their branches.
#[derive(Debug, Default)]
pub struct ClosedSinkTotals {
    sums: SinkTotals,
    at_work: Vec<Arc<SinkCounts>>,
}

impl SinkCounts {
    /// One more.
    pub fn count(&self, put: SinkResult) {
        let counter = match put {
            SinkResult::Written => &self.sent,
            SinkResult::Failed => &self.failed,
            SinkResult::OwnTraffic => &self.own,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// As of now.
    pub fn sums(&self) -> SinkTotals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SinkTotals { sent: load(&self.sent), failed: load(&self.failed), own: load(&self.own) }
    }
}

impl AddAssign for SinkTotals {
    fn add_assign(&mut self, o: Self) {
        self.sent += o.sent;
        self.failed += o.failed;
        self.own += o.own;
    }
}

impl ClosedSinkTotals {
    /// One more.
    pub fn keep(&mut self, counts: Arc<SinkCounts>) {
        // Who has ended counts no more, so that the list is as long as there are threads.
        let (ended, at_work) = self.at_work.drain(..).partition(|counts| Arc::strong_count(counts) == 1);
        self.at_work = at_work;
        self.at_work.push(counts);
        ended.iter().for_each(|counts: &Arc<SinkCounts>| self.sums += counts.sums());
    }

    /// All of them as of now.
    pub fn sums(&self) -> SinkTotals {
        let mut all = self.sums;
        self.at_work.iter().for_each(|counts| all += counts.sums());
        all
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
    /// By class; what was for every class is beside it.
    pub classes: [ClassCounts; CLASSES],
    /// Packets not dropped that were for every class.
    pub broadcast: u64,
    /// Those of them for which nobody was there.
    pub broadcast_alone: u64,
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
            classes: [ClassCounts::default(); CLASSES],
            broadcast: 0,
            broadcast_alone: 0,
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

impl AddAssign<&Self> for ClassCounts {
    fn add_assign(&mut self, o: &Self) {
        self.packets += o.packets;
        self.copies += o.copies;
        self.no_member += o.no_member;
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
            (&mut self.broadcast_alone, o.broadcast_alone),
        ] {
            *a += b;
        }
        self.classes.iter_mut().zip(&o.classes).for_each(|(a, b)| *a += b);
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

    /// A class's part, broadcasts included.
    pub fn of_class(&self, c: u8) -> ClassCounts {
        let mut part = self.classes[usize::from(c)];
        if class::ANY >> c & 1 == 1 {
            part.packets += self.broadcast;
            part.no_member += self.broadcast_alone;
        }
        part
    }

    /// What contradicts, in words; nothing, unless there is a bug.
    pub fn contradictions(&self) -> Vec<String> {
        let all = self.all_members();
        let by_class = self.classes.iter().map(|c| c.copies).sum();
        let sums = [
            ("copies", self.copies, "those of the classes", by_class),
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
        c.classes[2].copies = 9;
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
    fn what_a_closed_outlet_counts_is_kept_and_what_it_still_counts_too() {
        let (mut closed, thread) = (ClosedSinkTotals::default(), Arc::<SinkCounts>::default());
        thread.count(SinkResult::Written);
        closed.keep(Arc::clone(&thread));
        [SinkResult::Failed, SinkResult::OwnTraffic].into_iter().for_each(|put| thread.count(put));
        let sums = SinkTotals { sent: 1, failed: 1, own: 1 };
        assert_eq!(closed.sums(), sums);
        drop(thread);
        closed.keep(Arc::default());
        assert_eq!((closed.sums(), closed.at_work.len()), (sums, 1), "who has ended is a sum");
    }

    #[test]
    fn broadcasts_count_for_every_class_but_management() {
        let c = Counts { broadcast: 4, broadcast_alone: 1, ..Counts::default() };
        let all = ClassCounts { packets: 4, no_member: 1, ..ClassCounts::default() };
        assert_eq!([0, 62, class::MANAGEMENT].map(|n| c.of_class(n)), [all, all, ClassCounts::default()]);
    }
}
