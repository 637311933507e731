//! The effects of the passage of packet time: which flows have ended, in which order their records are made, and when
//! their memory is freed.

use super::render;
use super::{AHEAD, Meter, SECOND};
use crate::entry::{Entry, Hot, bit};
use crate::order::Due;
use crate::pool::NONE;
use crate::record::{EndReason, Sink};
use crate::table::BucketHint;
use crate::tcp;
use crate::wheel;
use base::memory::{Hints, HintsExt};

/// Values of a flow that do not change until the flow ends, so that they can be computed before its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StableFields {
    pub id: u64,
    /// The bucket of the flow table that contains the flow.
    pub bucket: BucketHint,
}

impl<H: Hints> Meter<H> {
    /// Nanoseconds without a packet after which a flow ends.
    #[inline(always)]
    pub(crate) fn timeout(&self, hot: &Hot) -> u64 {
        if tcp::is_over(hot.state) { self.close_timeout } else { self.idle[usize::from(hot.protocol)] }
    }

    /// Puts a flow that is not on the wheel into the slot of its deadline.
    pub(crate) fn schedule(&mut self, flow: u32) {
        self.put_on_wheel(flow, self.deadline(flow));
    }

    /// Puts a flow on the wheel. The deadline of the flow is not before `due`.
    #[inline(always)]
    pub(crate) fn put_on_wheel(&mut self, flow: u32, due: u64) {
        let now = self.second.expect("a packet of the flow has set the current second");
        // The deadline is rounded up to a second. At the end of the time range the addition saturates and the result is
        // too early, which is harmless.
        self.wheel.put(flow, (due.saturating_add(SECOND - 1) / SECOND).max(now + 1), now);
    }

    /// The time at which the flow needs a record if no further packet arrives.
    fn deadline(&self, flow: u32) -> u64 {
        let hot = &self.flows[flow].hot;
        let idle = hot.last.saturating_add(self.timeout(hot));
        let active = self.active.filter(|_| !hot.has(bit::DETACHED)).zip(self.first(flow));
        // A closed flow gets its last record after the close timeout. Before that it gets no interim record, unless
        // packets continue to arrive.
        let longer = if tcp::is_over(hot.state) { self.close_timeout } else { 0 };
        active.map_or(idle, |(active, first)| idle.min(first.saturating_add(active).saturating_add(longer)))
    }

    /// Timestamp of the first packet of the current record; `None` if the record has no packet yet.
    #[inline(always)]
    pub(crate) fn first(&self, flow: u32) -> Option<u64> {
        let Entry { hot, body } = &self.flows[flow];
        if hot.bits & (bit::FULL | bit::HAS_INTERIM_RECORD) == 0 { Some(body.start) } else { self.first_of_later(flow) }
    }

    /// Like [`Meter::first`], but for a flow that may already have had a record.
    #[inline(never)]
    fn first_of_later(&self, flow: u32) -> Option<u64> {
        let hot = &self.flows[flow].hot;
        match hot.bits & bit::COMPRESSED {
            bit::COMPRESSED => self.head(flow).first,
            bit::FULL => self.fulls[hot.more].first(),
            _ => {
                let pair = &self.pairs[hot.more];
                let firsts = self.firsts(flow, pair, &self.continuation(hot.bits, pair));
                (0..2).filter(|side| pair.sides[*side].packets > 0).map(|side| firsts[side]).min()
            }
        }
    }

    /// Collects the flows whose deadline is not after `second`, in the order of their records.
    fn collect(&mut self, second: u64) {
        self.second = Some(second);
        let mut due = std::mem::take(&mut self.due).begin(0, second * SECOND, self.hints);
        let mut next = self.wheel.open(second);
        while let Some(flow) = next {
            next = self.wheel.next(flow);
            let at = self.deadline(flow).div_ceil(SECOND);
            if at > second {
                self.wheel.put(flow, at, second);
            } else {
                due.push(self.flows[flow].hot.last, flow);
            }
        }
        self.sort(&mut due);
        self.due = due;
    }

    /// The earliest deadline of all flows, in seconds, if no further packet arrives; `None` if no flow is active.
    fn earliest(&self) -> Option<u64> {
        let used = self.flows.taken().filter(|f| f.1.hot.has(bit::USED));
        used.map(|(flow, _)| self.deadline(flow).div_ceil(SECOND)).min()
    }

    /// Sets the time to `second` and skips the seconds up to it, in none of which a flow is due.
    fn turn_to(&mut self, second: u64) {
        self.second = Some(second);
        self.wheel.clear();
        let used: Vec<u32> = self.flows.taken().filter(|f| f.1.hot.has(bit::USED)).map(|f| f.0).collect();
        used.into_iter().for_each(|flow| self.schedule(flow));
    }

    /// Sorts flows in the order of their records: by the last packet, then by values that depend only on the flow.
    fn sort(&self, due: &mut Due) {
        due.sort(self.hints, |flow| self.flows[flow].hot.last, |flow| self.rank(flow));
    }

    /// The sort key among flows with the same last timestamp.
    fn rank(&self, flow: u32) -> (u64, u64) {
        (self.id(flow), self.flows[flow].body.positions[0])
    }

    /// Computes the flow ID and the hash table bucket of a flow, which are needed when the flow ends. Both need long
    /// chains of multiplications, so the caller computes them for several flows together.
    #[inline(always)]
    pub(crate) fn known(&self, flow: u32) -> StableFields {
        StableFields { id: self.id(flow), bucket: self.table.bucket_hint(self.keys.hash(&self.flows[flow].hot.key())) }
    }

    /// Prefetches the memory, besides the flow entry, from which the record of this flow is made. The bucket of the
    /// flow table is needed only if the flow leaves the table individually (`leaves`).
    #[inline(always)]
    pub(crate) fn fetch_due(&self, flow: u32, leaves: bool) -> StableFields {
        let hot = &self.flows[flow].hot;
        if hot.has(bit::V6) {
            self.hints.fetch(&self.rares[flow as usize]);
        }
        match hot.bits & (bit::FULL | bit::PAIR) {
            0 if hot.more == NONE => (),
            0 => self.chunks[hot.more].fetch(self.hints, usize::from(hot.packets)),
            bit::FULL => self.fulls[hot.more].sides.iter().for_each(|side| side.fetch(self.hints)),
            bit::COMPRESSED => self.prefetch_compressed(flow),
            _ => self.pairs[hot.more].sides.iter().for_each(|side| self.hints.fetch(side)),
        }
        if !leaves {
            return StableFields { id: self.id(flow), bucket: BucketHint::default() };
        }
        let known = self.known(flow);
        self.table.fetch(known.bucket, self.hints);
        known
    }

    /// Makes the record of a flow that is due, and ends or continues the flow.
    fn handle_due(&mut self, flow: u32, known: StableFields, second: u64, sink: &mut dyn Sink) {
        let hot = &self.flows[flow].hot;
        let idle = hot.last.saturating_add(self.timeout(hot));
        self.counts.expiry_delays.count((second * SECOND).saturating_sub(self.deadline(flow)));
        if idle.div_ceil(SECOND) > second {
            if self.flows[flow].hot.is_compressed() {
                self.decompress(flow);
            }
            self.make_interim_record(flow, known.id, sink);
            self.schedule(flow);
        } else {
            let reason = if tcp::is_over(hot.state) { EndReason::EndOfFlow } else { EndReason::IdleTimeout };
            self.release(flow, known, reason, sink);
        }
    }

    /// Ends a flow that is on the wheel.
    pub(crate) fn end(&mut self, flow: u32, known: StableFields, reason: EndReason, sink: &mut dyn Sink) {
        self.wheel.remove(flow);
        self.release(flow, known, reason, sink);
    }

    /// Ends a flow that is not on the wheel: makes its record if it has packets, and frees its memory.
    fn release(&mut self, flow: u32, known: StableFields, reason: EndReason, sink: &mut dyn Sink) {
        self.conclude(flow, known.id, reason, sink);
        let hot = &self.flows[flow].hot;
        let (bits, more) = (hot.bits, hot.more);
        if bits & bit::DETACHED == 0 {
            self.table.remove(known.bucket, flow);
        }
        self.flows[flow].hot.bits = 0;
        self.free_memory(bits, more);
        self.flows.free(flow);
        self.counts.active -= 1;
    }

    /// Frees the packet list and the counters of a flow that is not compressed. `bits` and `more` are the fields of the
    /// flow entry.
    #[inline(always)]
    pub(crate) fn free_memory(&mut self, bits: u16, more: u32) {
        let chunk = match bits & (bit::FULL | bit::PAIR) {
            0 => more,
            bit::FULL => {
                self.fulls[more].more = Vec::new();
                self.fulls.free(more);
                self.fulls[more].chunk
            }
            _ => {
                self.pairs.free(more);
                self.pairs[more].chunk()
            }
        };
        if chunk != NONE {
            self.chunks.free(chunk);
        }
    }

    /// Makes the last record of a flow, if it has packets since its previous record.
    #[inline(always)]
    fn conclude(&mut self, flow: u32, id: u64, reason: EndReason, sink: &mut dyn Sink) {
        let has_packets = self.flows[flow].hot.bits & (bit::FULL | bit::HAS_INTERIM_RECORD) == 0
            || self.has_packets_once_decompressed(flow);
        if has_packets {
            self.emit(flow, id, reason, sink);
        } else {
            self.counts.ended_without_record += 1;
        }
    }

    /// Decompresses a compressed flow; true if the flow has had a packet since its last record.
    #[inline(never)]
    fn has_packets_once_decompressed(&mut self, flow: u32) -> bool {
        if self.flows[flow].hot.is_compressed() {
            self.decompress(flow);
        }
        self.first(flow).is_some()
    }

    pub(crate) fn emit(&mut self, flow: u32, id: u64, reason: EndReason, sink: &mut dyn Sink) {
        let mut record = self.record.take().unwrap_or_else(|| Box::new(render::blank()));
        self.render(flow, id, reason, &mut record);
        self.counts.records[reason as usize] += 1;
        sink.record(&record);
        self.record = Some(record);
    }

    /// Frees the memory of all flows.
    fn free_all(&mut self) {
        if self.counts.active > 0 {
            self.table.clear();
        }
        self.wheel.clear();
        self.flows.clear();
        self.chunks.clear();
        self.pairs.clear();
        self.fulls.clear();
        self.compressed.clear();
        (self.hand, self.counts.active) = (0, 0);
    }
}

/// Advances time to `second` for all shards of one interface, and makes the records of all shards in the order of a
/// single meter.
pub(crate) fn pass<H: Hints>(shards: &mut [Meter<H>], second: u64, sink: &mut dyn Sink) {
    let Some(now) = shards[0].second else {
        return shards.iter_mut().for_each(|s| s.second = Some(second));
    };
    if second < now {
        end_all(shards, sink);
        for shard in shards {
            shard.second = Some(second);
            shard.losses.step_back(second);
            shard.counts.restarts += 1;
        }
        return;
    }
    let (mut each, mut idle) = (now, 0);
    // Once no flow is active, the remaining seconds need no work.
    while each < second && shards.iter().any(|s| s.counts.active > 0) {
        each += 1;
        idle += 1;
        shards.iter_mut().for_each(|s| s.collect(each));
        if shards.iter().any(|s| s.due.len() > 0) {
            idle = 0;
            sink.second(each);
            in_order(shards, true, |shard, flow, known| shard.handle_due(flow, known, each, sink));
        }
        if idle == wheel::SECONDS {
            idle = 0;
            each = skip_to_deadline(shards, each, second);
        }
    }
    shards.iter_mut().for_each(|s| s.second = Some(second));
}

/// Called after a whole turn of the wheel, in which each flow was inspected and none was due: advances time to the
/// second before the next deadline, at most to `until`. So the cost of a silent period does not depend on its length.
#[cold]
fn skip_to_deadline<H: Hints>(shards: &mut [Meter<H>], now: u64, until: u64) -> u64 {
    let due = shards.iter().filter_map(Meter::earliest).min().unwrap_or(until).min(until);
    let to = due.saturating_sub(1).max(now);
    if to > now {
        shards.iter_mut().for_each(|s| s.turn_to(to));
    }
    to
}

/// Ends every flow. The flow end reason is "end of flow" for a closed flow, "idle timeout" for a flow whose idle
/// timeout has passed, and "forced end" for any other flow.
pub(crate) fn end_all<H: Hints>(shards: &mut [Meter<H>], sink: &mut dyn Sink) {
    for shard in shards.iter_mut() {
        let end = shard.second.map_or(0, |second| second.saturating_add(1).saturating_mul(SECOND));
        let mut due = std::mem::take(&mut shard.due).begin(shard.counts.active as usize, end, shard.hints);
        for (flow, entry) in shard.flows.taken().filter(|f| f.1.hot.has(bit::USED)) {
            due.push(entry.hot.last, flow);
        }
        shard.sort(&mut due);
        shard.due = due;
    }
    in_order(shards, false, |shard, flow, known| {
        let hot = &shard.flows[flow].hot;
        let reason = match (tcp::is_over(hot.state), hot.has(bit::DETACHED)) {
            (true, _) => EndReason::EndOfFlow,
            (false, true) => EndReason::IdleTimeout,
            (false, false) => EndReason::ForcedEnd,
        };
        let rested = hot.is_compressed();
        shard.conclude(flow, known.id, reason, sink);
        if rested {
            shard.compress_entry(flow);
        }
    });
    for shard in shards {
        shard.free_all();
        shard.due = Due::default();
    }
}

/// Calls `each` with all flows that are due and their [`StableFields`], over all shards in the order of the records.
/// The bucket of the flow table is computed only if the flows leave the table individually (`leave`).
fn in_order<H: Hints>(shards: &mut [Meter<H>], leave: bool, mut each: impl FnMut(&mut Meter<H>, u32, StableFields)) {
    if let [shard] = shards {
        let due = std::mem::take(&mut shard.due);
        due.flows().take(2 * AHEAD).for_each(|flow| shard.fetch_entry(flow));
        let mut known = [StableFields::default(); AHEAD];
        for (place, flow) in known.iter_mut().zip(due.flows()) {
            *place = shard.fetch_due(flow, leave);
        }
        for (at, flow) in due.flows().enumerate() {
            if let Some(flow) = due.get(at + 2 * AHEAD) {
                shard.fetch_entry(flow);
            }
            let place = &mut known[at % AHEAD];
            let now = *place;
            if let Some(flow) = due.get(at + AHEAD) {
                *place = shard.fetch_due(flow, leave);
            }
            each(shard, flow, now);
        }
        shard.due = due;
        return;
    }
    let mut next = vec![0; shards.len()];
    let rank =
        |shard: &Meter<H>, at: usize| shard.due.get(at).map(|flow| (shard.flows[flow].hot.last, shard.rank(flow)));
    let mut heads: Vec<_> = shards.iter().map(|s| rank(s, 0)).collect();
    while let Some(first) = (0..shards.len()).filter(|i| heads[*i].is_some()).min_by_key(|i| heads[*i])
        && let Some(flow) = shards[first].due.get(next[first])
    {
        let known = shards[first].known(flow);
        each(&mut shards[first], flow, known);
        next[first] += 1;
        heads[first] = rank(&shards[first], next[first]);
    }
}
