//! Merges many cursors into one result, ordered by timestamp, then by interface and queue, then by the order in which
//! the cursors were added.
//!
//! The merge does not sort a cursor whose timestamps step back (a capture with out-of-order packets). An out-of-order
//! packet gets the sort key of the latest preceding packet of the same cursor (or of the start time in the file name).
//! So it is returned directly after its predecessor and does not delay other cursors.
//!
//! The merge opens a cursor of a [`CursorSource`] when the timestamp of the result reaches the begin of the cursor, or
//! earlier if all reads of the current cursor are in progress. Memory is needed only for cursors whose time ranges
//! overlap.

use crate::cursor::{Cursor, CursorSource, CursorState, Extent, Rank};
use crate::{FoundPacket, QueryContext, QueryError};
use base::Timestamp;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// The pause between two polls if all cursors wait for packets.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The largest number of cursors that are opened in advance; it is limited because each cursor has open files.
const MAX_AHEAD: usize = 16;

/// The sort key of a cursor: the packet of the cursor with the smallest key is returned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MergeKey {
    ts: Timestamp,
    rank: Rank,
    order: u64,
}

struct MergeEntry {
    key: MergeKey,
    cursor: Box<dyn Cursor>,
    /// The value of [`Disk::waited`](crate::disk::Disk::waited) at the time when the merge last opened other cursors
    /// because this cursor was near its end; `None` if the merge has not opened cursors for this reason.
    relieved: Option<u64>,
}

impl PartialEq for MergeEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for MergeEntry {}
impl PartialOrd for MergeEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for MergeEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// The merge of all cursors of a query.
#[derive(Default)]
pub struct Merge {
    /// The cursor whose current packet is the current packet of the result.
    top: Option<MergeEntry>,
    /// The other cursors that are at a packet.
    rest: BinaryHeap<Reverse<MergeEntry>>,
    /// Cursors that wait for a packet; the next packet of each is not earlier than its timestamp.
    waiting: Vec<(Timestamp, MergeEntry)>,
    sources: Vec<Box<dyn CursorSource>>,
    /// Cursors that were opened in advance and not yet advanced, with the earliest possible timestamp of their packets.
    ahead: Vec<(Timestamp, MergeEntry)>,
    order: u64,
    limit: Limit,
}

/// The limits up to which the current cursor may advance before the merge must test the other cursors.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    /// The smallest sort key of the other cursors.
    runner_up: Option<MergeKey>,
    /// The timestamp at which the next cursor may have to be opened, so the current cursor may advance only to earlier
    /// timestamps.
    opens: Option<Timestamp>,
    /// The latest timestamp to which the current cursor may advance before the waiting cursors must be polled.
    waits: Option<Timestamp>,
}

impl Limit {
    #[inline]
    fn allows(&self, key: &MergeKey) -> bool {
        self.runner_up.is_none_or(|rival| *key < rival)
            && self.opens.is_none_or(|at| key.ts < at)
            && self.waits.is_none_or(|until| key.ts <= until)
    }

    /// The latest timestamp to which a cursor with this key may advance; `None` if the cursor must not advance.
    fn until(&self, key: &MergeKey) -> Option<Timestamp> {
        let before = |ts: Timestamp| ts.nanos().checked_sub(1).map(Timestamp::from_nanos);
        let mut until = Timestamp::MAX;
        if let Some(rival) = self.runner_up {
            let first = (key.rank, key.order) < (rival.rank, rival.order);
            until = until.min(if first { rival.ts } else { before(rival.ts)? });
        }
        if let Some(at) = self.opens {
            until = until.min(before(at)?);
        }
        Some(self.waits.map_or(until, |waits| until.min(waits)))
    }
}

impl Merge {
    /// Adds a cursor whose first packet may have any timestamp.
    pub fn add(&mut self, rank: Rank, cursor: Box<dyn Cursor>) {
        let entry = self.place(Timestamp::ZERO, rank, cursor);
        self.ahead.push((Timestamp::ZERO, entry));
        self.limit.opens = Some(Timestamp::ZERO);
    }

    /// Adds a source of cursors, which the merge opens when it reaches their begin.
    pub fn add_source(&mut self, source: Box<dyn CursorSource>) {
        self.sources.push(source);
        self.limit.opens = Some(Timestamp::ZERO);
    }

    /// Moves to the next packet; returns false at the end.
    ///
    /// # Errors
    /// The errors of the cursors.
    pub fn advance(&mut self, context: &mut QueryContext) -> Result<bool, QueryError> {
        if let Some(mut top) = self.top.take() {
            match top.cursor.advance(context)? {
                CursorState::Packet(ts) => {
                    top.key.ts = top.key.ts.max(ts);
                    if top.cursor.is_ending() && top.relieved != Some(context.disk.waited()) {
                        self.open_ahead(top.relieved.is_none(), context)?;
                        top.relieved = Some(context.disk.waited());
                    }
                    if self.limit.allows(&top.key) {
                        self.top = Some(top);
                        return Ok(true);
                    }
                    self.rest.push(Reverse(top));
                }
                CursorState::Waiting(until) => self.waiting.push((until, top)),
                CursorState::End => {}
            }
        }
        self.choose(context)
    }

    /// The current packet.
    pub fn packet(&self) -> Option<FoundPacket<'_>> {
        self.top.as_ref().map(|top| top.cursor.packet())
    }

    /// Extends the current packet to a run of those packets of the current cursor that precede the packets of all other
    /// cursors; `None` if its packets are not contiguous records.
    ///
    /// # Errors
    /// The errors of the cursor.
    pub fn extend(&mut self, context: &mut QueryContext) -> Result<Option<Extent>, QueryError> {
        let Some(top) = &mut self.top else { return Ok(None) };
        // The current packet was already selected, so the limit `until` applies only to the packets after it.
        let until = self.limit.until(&top.key).unwrap_or(top.key.ts).max(top.key.ts);
        let extent = top.cursor.extend(until, context)?;
        if let Some(extent) = extent {
            top.key.ts = top.key.ts.max(extent.latest);
        }
        Ok(extent)
    }

    /// The bytes of the run that the last [`Merge::extend`] returned.
    pub fn records(&self) -> &[u8] {
        self.top.as_ref().map_or(&[], |top| top.cursor.records())
    }

    fn place(&mut self, at: Timestamp, rank: Rank, cursor: Box<dyn Cursor>) -> MergeEntry {
        self.order += 1;
        MergeEntry { key: MergeKey { ts: at, rank, order: self.order }, cursor, relieved: None }
    }

    /// Makes the cursor with the smallest key the current cursor.
    fn choose(&mut self, context: &mut QueryContext) -> Result<bool, QueryError> {
        loop {
            self.open_due(context)?;
            let head = self.rest.peek().map(|Reverse(first)| first.key.ts);
            let due = |until: &Timestamp| head.is_none_or(|ts| ts > *until);
            if self.waiting.iter().any(|(until, _)| due(until)) {
                if context.is_stopped() {
                    return Ok(false);
                }
                if !self.poll_waiting(context)? {
                    std::thread::sleep(POLL_INTERVAL);
                }
                continue;
            }
            let Some(Reverse(top)) = self.rest.pop() else { return Ok(false) };
            self.limit.runner_up = self.rest.peek().map(|Reverse(second)| second.key);
            self.limit.waits = self.waiting.iter().map(|(until, _)| *until).min();
            self.top = Some(top);
            return Ok(true);
        }
    }

    /// Polls the waiting cursors; returns true if the state of at least one cursor has changed.
    fn poll_waiting(&mut self, context: &mut QueryContext) -> Result<bool, QueryError> {
        let mut changed = false;
        for (until, entry) in std::mem::take(&mut self.waiting) {
            let now = self.poll_entry(entry, context)?;
            changed |= now != CursorState::Waiting(until);
        }
        Ok(changed)
    }

    /// Advances a cursor, and adds it to the cursors with a packet or to the waiting cursors; drops a cursor that has
    /// ended.
    fn poll_entry(&mut self, mut entry: MergeEntry, context: &mut QueryContext) -> Result<CursorState, QueryError> {
        let stand = entry.cursor.advance(context)?;
        match stand {
            CursorState::Packet(ts) => {
                entry.key.ts = entry.key.ts.max(ts);
                self.rest.push(Reverse(entry));
            }
            CursorState::Waiting(until) => self.waiting.push((until, entry)),
            CursorState::End => {}
        }
        Ok(stand)
    }

    /// Opens all cursors whose begin may be before the earliest packet of the open cursors.
    fn open_due(&mut self, context: &mut QueryContext) -> Result<(), QueryError> {
        if let Some(Reverse(first)) = self.rest.peek()
            && self.limit.opens.is_none_or(|at| first.key.ts < at)
        {
            return Ok(());
        }
        loop {
            let head = self.rest.peek().map(|Reverse(first)| first.key.ts);
            let is_due = |at: Timestamp| head.is_none_or(|ts| at <= ts);
            if let Some(i) = self.ahead.iter().position(|(at, _)| is_due(*at)) {
                let (_, entry) = self.ahead.remove(i);
                self.poll_entry(entry, context)?;
                continue;
            }
            match self.soonest(context)? {
                Some((at, i)) if is_due(at) => self.open(i, at, context)?,
                next => {
                    let ahead = self.ahead.iter().map(|(at, _)| *at);
                    self.limit.opens = ahead.chain(next.map(|(at, _)| at)).min();
                    return Ok(());
                }
            }
        }
    }

    /// Opens the next cursors when the current cursor is near its end, so that their reads start. It opens cursors as
    /// long as the disk can start further reads in advance and the opening does not block. If `first` is true, one
    /// cursor is opened even if the opening blocks.
    fn open_ahead(&mut self, first: bool, context: &mut QueryContext) -> Result<(), QueryError> {
        let mut forced = first;
        while let Some((at, i)) = self.soonest(context)? {
            let is_good = self.ahead.len() < MAX_AHEAD
                && self.ahead.iter().all(|(_, entry)| entry.cursor.is_ending())
                && context.disk.has_capacity()
                && self.sources[i].is_ready();
            if !is_good && !forced {
                break;
            }
            forced = false;
            self.open(i, at, context)?;
        }
        Ok(())
    }

    fn soonest(&mut self, context: &mut QueryContext) -> Result<Option<(Timestamp, usize)>, QueryError> {
        let mut soonest = None;
        for (i, source) in self.sources.iter_mut().enumerate() {
            if let Some(at) = source.begins(context)? {
                soonest = Some(soonest.map_or((at, i), |s: (Timestamp, usize)| s.min((at, i))));
            }
        }
        Ok(soonest)
    }

    fn open(&mut self, source: usize, at: Timestamp, context: &mut QueryContext) -> Result<(), QueryError> {
        if let Some((rank, cursor)) = self.sources[source].open(context)? {
            let entry = self.place(at, rank, cursor);
            self.ahead.push((at, entry));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Query;
    use crate::cursor::Ranked;
    use base::Prng;

    /// A cursor that returns packets with these timestamps one after the other; at `None` it returns the waiting state,
    /// with a time just before the next timestamp.
    struct Fake {
        stamps: Vec<Option<u64>>,
        at: usize,
        number: usize,
    }

    impl Cursor for Fake {
        fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError> {
            context.cost.packets += 1;
            self.at += 1;
            Ok(match self.stamps.get(self.at - 1) {
                None => CursorState::End,
                Some(Some(ts)) => CursorState::Packet(Timestamp::from_nanos(*ts)),
                Some(None) => {
                    let next = self.stamps[self.at..].iter().find_map(|s| *s).unwrap_or(u64::MAX);
                    CursorState::Waiting(Timestamp::from_nanos(next.saturating_sub(1)))
                }
            })
        }

        fn packet(&self) -> FoundPacket<'_> {
            let ts = Timestamp::from_nanos(self.stamps[self.at - 1].expect("the cursor must be at a packet"));
            FoundPacket { ts, wire_len: 0, data: &[], link_type: 1, origin: self.number, lost: 0, position: None }
        }

        fn extend(&mut self, until: Timestamp, _context: &mut QueryContext) -> Result<Option<Extent>, QueryError> {
            let mut extent = Extent { packets: 1, latest: self.packet().ts };
            while let Some(Some(ts)) = self.stamps.get(self.at).copied()
                && Timestamp::from_nanos(ts) <= until
            {
                self.at += 1;
                extent = Extent { packets: extent.packets + 1, latest: extent.latest.max(self.packet().ts) };
            }
            Ok(Some(extent))
        }
    }

    struct Later(Vec<(u64, Rank, Fake)>);

    impl CursorSource for Later {
        fn begins(&mut self, _context: &mut QueryContext) -> Result<Option<Timestamp>, QueryError> {
            Ok(self.0.first().map(|(at, ..)| Timestamp::from_nanos(*at)))
        }

        fn open(&mut self, _context: &mut QueryContext) -> Result<Option<Ranked>, QueryError> {
            let (_, rank, fake) = self.0.remove(0);
            Ok((fake.number % 5 != 4).then(|| (rank, Box::new(fake) as Box<dyn Cursor>)))
        }
    }

    /// Random cursors, each with its rank and the earliest possible timestamp of its packets; some of them sometimes
    /// return the waiting state.
    fn cursors(prng: &mut Prng, number: usize) -> Vec<(u64, Rank, Fake)> {
        let mut out: Vec<(u64, Rank, Fake)> = Vec::new();
        for number in 0..number {
            let begins = prng.below(60);
            let mut ts = begins;
            let mut stamps = Vec::new();
            for _ in 0..prng.below(20) {
                ts = (ts + prng.below(6)).saturating_sub(if prng.below(6) == 0 { prng.below(9) } else { 0 });
                if prng.below(8) == 0 {
                    stamps.push(None);
                }
                stamps.push(Some(ts));
            }
            // A waiting cursor returns a lower bound of its next timestamp, which is correct only for a cursor whose
            // packets are in order.
            if !stamps.iter().flatten().is_sorted() {
                stamps.retain(Option::is_some);
            }
            out.push((begins, (prng.below(2) as u32, prng.below(3) as u16), Fake { stamps, at: 0, number }));
        }
        out.sort_by_key(|(begins, ..)| *begins);
        out
    }

    #[test]
    fn cursors_are_merged_in_sort_order_singly_and_in_runs() {
        let seed = testkit::seed("cursors_are_merged_in_sort_order_singly_and_in_runs");
        let mut prng = Prng::new(seed);
        for round in 0..2000 {
            let count = prng.below(9) as usize;
            let all = cursors(&mut prng, count);
            let mut model = Vec::new();
            for (order, (begins, rank, fake)) in all.iter().enumerate().filter(|(_, (.., f))| f.number % 5 != 4) {
                let mut latest = *begins;
                for (i, ts) in fake.stamps.iter().flatten().enumerate() {
                    latest = latest.max(*ts);
                    model.push((latest, *rank, order, i, *ts, fake.number));
                }
            }
            model.sort();
            let expected: Vec<(u64, usize)> = model.iter().map(|m| (m.4, m.5)).collect();
            let (mut merge, mut context) = (Merge::default(), QueryContext::new(Query::default()));
            merge.add_source(Box::new(Later(all)));
            let (mut found, mut runs) = (Vec::new(), 0u64);
            while merge.advance(&mut context).expect("no error") {
                let first = merge.packet().map(|p| (p.ts.nanos(), p.origin)).expect("a packet");
                found.push(first);
                if prng.below(2) == 0 {
                    let extent = merge.extend(&mut context).expect("no error").expect("a run");
                    let known = expected[found.len()..].iter().take(extent.packets as usize - 1);
                    assert!(known.clone().all(|(_, origin)| *origin == first.1), "seed {seed} round {round}");
                    found.extend(known);
                    runs += extent.packets - 1;
                }
            }
            assert_eq!(found, expected, "seed {seed} round {round}, {runs} packets in runs");
        }
    }

    #[test]
    fn later_cursors_are_opened_only_when_the_merge_reaches_them() {
        let fake =
            |number: usize, stamps: &[u64]| Fake { stamps: stamps.iter().map(|s| Some(*s)).collect(), at: 0, number };
        let later = vec![(10, (0, 0), fake(0, &[10, 11])), (1000, (0, 0), fake(1, &[1000]))];
        let (mut merge, mut context) = (Merge::default(), QueryContext::new(Query::default()));
        merge.add_source(Box::new(Later(later)));
        merge.add((0, 1), Box::new(fake(2, &[12])));
        for reads in [2, 3, 4] {
            assert!(merge.advance(&mut context).expect("no error"));
            assert_eq!(context.cost.packets, reads, "a cursor that begins at 1000 must not be opened");
        }
        assert!(merge.advance(&mut context).expect("no error"));
        assert_eq!(merge.packet().map(|p| p.ts.nanos()), Some(1000));
        assert!(!merge.advance(&mut context).expect("no error"));
    }

    #[test]
    fn a_waiting_result_ends_when_it_is_stopped() {
        struct Waiting;
        impl Cursor for Waiting {
            fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError> {
                if let Some(stop) = &context.query.stop {
                    stop.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                Ok(CursorState::Waiting(Timestamp::ZERO))
            }

            fn packet(&self) -> FoundPacket<'_> {
                unreachable!("a cursor that never has a packet was read")
            }
        }
        let question = Query { stop: Some(Default::default()), ..Query::default() };
        let (mut merge, mut context) = (Merge::default(), QueryContext::new(question));
        merge.add((0, 0), Box::new(Waiting));
        assert!(!merge.advance(&mut context).expect("no error"));
    }
}
