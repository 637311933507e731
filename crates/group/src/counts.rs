//! The accounting of a group, and the equations that it satisfies.
//!
//! ```text
//! received = dropped + no_member + passed                 packets that the group's program evaluated
//! copies   = delivered + refused + lost                   over all members, those that have left included
//! copies   = sum over the classes                         counted in the lowest class that packet and member share
//! forwards = forwarded + forward_lost + forward_own       over all egress interfaces
//! ```
//! A packet that the dispatcher skipped, because the dispatcher was too far behind the producer, is counted in
//! `skipped` and not in `received`. Only the reader can count the delivered packets that it has read
//! ([`ReaderCounts`]).

use crate::steering::MEMBERS;
use crate::verdict::{CLASSES, class};
use serde::Serialize;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemberCounts {
    /// Packets written to the member's branch.
    pub delivered: u64,
    /// Packets for this member that the filter of the member rejected.
    pub refused: u64,
    /// Packets for this member that were not delivered because the branch of the member was full.
    pub lost: u64,
}

/// Counters of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Packets that the program addressed to the class and did not drop.
    pub packets: u64,
    /// Number of copies for members of the class.
    pub copies: u64,
    /// Packets that the program addressed to the class while the class had no member.
    pub no_member: u64,
    /// Copies that were lost because the branch of the member was full.
    pub lost: u64,
}

/// Counters that the process of a member writes to shared memory. They are for display only, because a client may write
/// any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReaderCounts {
    /// Packets that the reader has taken from its branch.
    pub taken: u64,
    /// Packets that the reader has taken from its branch, but whose bytes were overwritten before the reader copied
    /// them.
    pub overwritten: u64,
}

/// The outcome of one packet at a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkResult {
    /// The packet is sent or written.
    Written,
    /// The packet is not sent or written. Either the interface refused the packet, the bytes of the packet were
    /// overwritten before the sink read them, the packet was captured only in part, or the file reached its size limit.
    Failed,
    /// The sink did not send or write the packet, because this host had sent it.
    OwnTraffic,
}

/// The counters of a sink; its thread updates them.
#[derive(Debug, Default)]
pub struct SinkCounts {
    sent: AtomicU64,
    failed: AtomicU64,
    own: AtomicU64,
}

/// A snapshot of `SinkCounts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkTotals {
    /// Packets sent or written.
    pub sent: u64,
    /// Packets that the sink failed to send or write.
    pub failed: u64,
    /// Packets that the sink did not send or write, because this host had sent them.
    pub own: u64,
}

/// The summed counters of closed sinks. The counters of a closed sink still grow until its thread has processed the
/// packets in its branches.
#[derive(Debug, Default)]
pub struct ClosedSinkTotals {
    sums: SinkTotals,
    at_work: Vec<Arc<SinkCounts>>,
}

impl SinkCounts {
    /// Counts one packet.
    pub fn count(&self, put: SinkResult) {
        let counter = match put {
            SinkResult::Written => &self.sent,
            SinkResult::Failed => &self.failed,
            SinkResult::OwnTraffic => &self.own,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current values.
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
    /// Adds the counters of a closed sink to this total.
    pub fn keep(&mut self, counts: Arc<SinkCounts>) {
        // The counters of an ended sink thread no longer change. They are added to the sum, so that the list contains
        // only the counters of running threads.
        let (ended, at_work) = self.at_work.drain(..).partition(|counts| Arc::strong_count(counts) == 1);
        self.at_work = at_work;
        self.at_work.push(counts);
        ended.iter().for_each(|counts: &Arc<SinkCounts>| self.sums += counts.sums());
    }

    /// Returns the current sum of the counters of all closed sinks.
    pub fn sums(&self) -> SinkTotals {
        let mut all = self.sums;
        self.at_work.iter().for_each(|counts| all += counts.sums());
        all
    }
}

/// The counters of a group; the module documentation gives the equations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Packets that the program evaluated.
    pub received: u64,
    /// Packets that the program dropped.
    pub dropped: u64,
    /// Packets that the program did not drop and for which no member was eligible.
    pub no_member: u64,
    /// Packets of which at least one member was to get a copy.
    pub passed: u64,
    /// Number of copies, summed over all packets and members.
    pub copies: u64,
    /// Packets that the dispatcher skipped because it was too far behind the producer.
    pub skipped: u64,
    /// Number of packets written to the branches of egress interfaces.
    pub forwarded: u64,
    /// Forwards that failed because the egress interface was too slow or does not exist.
    pub forward_lost: u64,
    /// Forwards that were omitted because this host had sent the packet. Such a packet could otherwise circulate
    /// between the interfaces of the host without end.
    pub forward_own: u64,
    /// Forwards that the program requested, over all packets and interfaces.
    pub forwards: u64,
    /// Packets that the program passed to the host.
    pub to_kernel: u64,
    /// Counters by class. Packets that the program addressed to every class are counted in `broadcast` instead.
    pub classes: [ClassCounts; CLASSES],
    /// Packets that the program addressed to every class and did not drop.
    pub broadcast: u64,
    /// Packets addressed to every class for which no member was eligible.
    pub broadcast_alone: u64,
    /// Counters by member slot.
    pub members: [MemberCounts; MEMBERS],
    /// The summed counters of members that have left.
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
    /// Returns the sum of the counters of all members, present and departed.
    pub fn all_members(&self) -> MemberCounts {
        let mut all = self.departed;
        self.members.iter().for_each(|m| all += m);
        all
    }

    /// Adds the counters of a member slot to the counters of the departed members, and sets the counters of the slot to
    /// zero.
    pub fn depart(&mut self, slot: u8) {
        let part = std::mem::take(&mut self.members[usize::from(slot)]);
        self.departed += &part;
    }

    /// Returns the counters of a class, broadcasts included.
    pub fn of_class(&self, c: u8) -> ClassCounts {
        let mut part = self.classes[usize::from(c)];
        if class::ANY >> c & 1 == 1 {
            part.packets += self.broadcast;
            part.no_member += self.broadcast_alone;
        }
        part
    }

    /// Returns a text for each equation of the module documentation that does not hold. A result that is not empty
    /// means a bug.
    pub fn contradictions(&self) -> Vec<String> {
        let all = self.all_members();
        let by_class = self.classes.iter().map(|c| c.copies).sum();
        let sums = [
            ("copies", self.copies, "the sum over the classes", by_class),
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
    fn a_residue_is_reported_and_a_departed_member_stays_in_the_sums() {
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
    fn totals_of_closed_sinks_include_what_their_threads_count_later() {
        let (mut closed, thread) = (ClosedSinkTotals::default(), Arc::<SinkCounts>::default());
        thread.count(SinkResult::Written);
        closed.keep(Arc::clone(&thread));
        [SinkResult::Failed, SinkResult::OwnTraffic].into_iter().for_each(|put| thread.count(put));
        let sums = SinkTotals { sent: 1, failed: 1, own: 1 };
        assert_eq!(closed.sums(), sums);
        drop(thread);
        closed.keep(Arc::default());
        assert_eq!((closed.sums(), closed.at_work.len()), (sums, 1), "the counters of the ended thread are summed");
    }

    #[test]
    fn broadcasts_count_for_every_class_except_management() {
        let c = Counts { broadcast: 4, broadcast_alone: 1, ..Counts::default() };
        let all = ClassCounts { packets: 4, no_member: 1, ..ClassCounts::default() };
        assert_eq!([0, 62, class::MANAGEMENT].map(|n| c.of_class(n)), [all, all, ClassCounts::default()]);
    }
}
