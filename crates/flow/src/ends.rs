//! Time passes: which flows are over, in which order their records are made, and what becomes of their places.

use crate::entry::{Hot, bit};
use crate::fetch::AHEAD;
use crate::memory::{Ask, Hints};
use crate::meter::{Meter, SECOND};
use crate::order::{self, Due};
use crate::pool::NONE;
use crate::record::{EndReason, Sink};
use crate::render;
use crate::tcp;

/// What can be known of a flow before it ends, and stays true as long as it is there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub id: u64,
    /// By which it is found in the table.
    pub hash: u64,
}

impl<H: Hints> Meter<H> {
    /// After how many nanoseconds without a packet a flow is over.
    #[inline(always)]
    pub(crate) fn timeout(&self, hot: &Hot) -> u64 {
        if tcp::is_over(hot.state) { self.linger } else { self.idle[usize::from(hot.protocol)] }
    }

    /// Puts a flow that is not on the wheel where it belongs.
    pub(crate) fn schedule(&mut self, flow: u32) {
        self.put_on_wheel(flow, self.deadline(flow));
    }

    /// Puts a flow on the wheel for which there is nothing to do before this moment.
    #[inline(always)]
    pub(crate) fn put_on_wheel(&mut self, flow: u32, due: u64) {
        let now = self.second.expect("a flow has had a packet, and the packet a second");
        self.wheel.put(flow, due.div_ceil(SECOND).max(now + 1), now);
    }

    /// When there will be something to do for a flow if no packet comes.
    fn deadline(&self, flow: u32) -> u64 {
        let hot = &self.flows[flow].hot;
        let idle = hot.last.saturating_add(self.timeout(hot));
        let active = self.active.filter(|_| !hot.has(bit::DETACHED)).zip(self.first(flow));
        // One that is over gets its last record after the linger, and none before it that says that it goes on; unless it does.
        let longer = if tcp::is_over(hot.state) { self.linger } else { 0 };
        active.map_or(idle, |(active, first)| idle.min(first.saturating_add(active).saturating_add(longer)))
    }

    /// When the record began that is being made; `None` if it has no packet yet.
    #[inline(always)]
    fn first(&self, flow: u32) -> Option<u64> {
        let hot = &self.flows[flow].hot;
        match hot.bits & (bit::FULL | bit::CUT) {
            0 => Some(self.flows[flow].body.start),
            bit::FULL => self.fulls[hot.more].first(),
            _ => {
                let pair = &self.pairs[hot.more];
                let firsts = self.firsts(flow, pair, &self.tie(hot.bits, pair));
                (0..2).filter(|side| pair.sides[*side].packets > 0).map(|side| firsts[side]).min()
            }
        }
    }

    /// Collects the flows whose time is over when `second` has come, in the order of their records.
    fn collect(&mut self, second: u64) {
        self.second = Some(second);
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        let mut next = self.wheel.open(second);
        while let Some(flow) = next {
            next = self.wheel.next(flow);
            let at = self.deadline(flow).div_ceil(SECOND);
            if at > second {
                self.wheel.put(flow, at, second);
            } else {
                due.push((self.flows[flow].hot.last, flow));
            }
        }
        self.sort(&mut due);
        self.due = due;
    }

    /// Brings flows into the order of their records: by the last packet, then by what only the flow decides.
    fn sort(&self, due: &mut [Due]) {
        order::by_time(due, self.hints);
        for run in due.chunk_by_mut(|a, b| a.0 == b.0).filter(|r| r.len() > 1) {
            run.sort_by_cached_key(|d| self.rank(d.1));
        }
    }

    /// Where a flow comes among those with the same last moment.
    fn rank(&self, flow: u32) -> (u64, u64) {
        (self.id(flow), self.flows[flow].body.positions[0])
    }

    /// What the end of a flow needs of it, made for several at once: each is one long chain of multiplications.
    #[inline(always)]
    pub(crate) fn known(&self, flow: u32) -> Known {
        Known { id: self.id(flow), hash: self.keys.hash(&self.flows[flow].hot.key()) }
    }

    /// Asks for what the record of this flow will be made of, as [`Meter::run`] does for packets.
    #[inline(always)]
    fn fetch_due(&self, flow: u32) {
        self.fetch_entry(flow);
    }

    /// The same for what that points to. Only of flows that leave the table one by one is the hash needed.
    #[inline(always)]
    fn fetch_due_rest(&self, flow: u32, leaves: bool) -> Known {
        let hot = &self.flows[flow].hot;
        if hot.has(bit::V6) {
            self.hints.fetch(&self.rares[flow as usize]);
        }
        match hot.bits & (bit::FULL | bit::PAIR) {
            0 if hot.more == NONE => (),
            0 => self.chunks[hot.more].fetch(self.hints, usize::from(hot.packets)),
            bit::FULL => self.fulls[hot.more].sides.iter().for_each(|side| side.fetch(self.hints)),
            _ => self.pairs[hot.more].sides.iter().for_each(|side| self.hints.fetch(side)),
        }
        if !leaves {
            return Known { id: self.id(flow), hash: 0 };
        }
        let known = self.known(flow);
        self.table.fetch(known.hash, self.hints);
        known
    }

    /// Makes the record of a flow that is due, and ends it or lets it go on.
    fn settle(&mut self, flow: u32, known: Known, second: u64, sink: &mut dyn Sink) {
        let hot = &self.flows[flow].hot;
        let idle = hot.last.saturating_add(self.timeout(hot));
        self.counts.lateness.count((second * SECOND).saturating_sub(self.deadline(flow)));
        if idle.div_ceil(SECOND) > second {
            self.cut(flow, known.id, sink);
            self.schedule(flow);
        } else {
            let reason = if tcp::is_over(hot.state) { EndReason::Ended } else { EndReason::Idle };
            self.release(flow, known, reason, sink);
        }
    }

    /// Ends a flow that is on the wheel.
    pub(crate) fn end(&mut self, flow: u32, known: Known, reason: EndReason, sink: &mut dyn Sink) {
        self.wheel.remove(flow);
        self.release(flow, known, reason, sink);
    }

    /// Ends a flow that is not on the wheel: makes its record, if there is anything to say, and gives back its places.
    fn release(&mut self, flow: u32, known: Known, reason: EndReason, sink: &mut dyn Sink) {
        self.conclude(flow, known.id, reason, sink);
        let hot = &self.flows[flow].hot;
        let (bits, more) = (hot.bits, hot.more);
        if bits & bit::DETACHED == 0 {
            self.table.remove(known.hash, flow);
        }
        self.flows[flow].hot.bits = 0;
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
        self.flows.free(flow);
        self.counts.active -= 1;
    }

    /// Makes the last record of a flow, if there is anything to say.
    #[inline(always)]
    fn conclude(&mut self, flow: u32, id: u64, reason: EndReason, sink: &mut dyn Sink) {
        if self.first(flow).is_some() {
            self.emit(flow, id, reason, sink);
        } else {
            self.counts.silent += 1;
        }
    }

    pub(crate) fn emit(&mut self, flow: u32, id: u64, reason: EndReason, sink: &mut dyn Sink) {
        let mut record = self.record.take().unwrap_or_else(|| Box::new(render::blank()));
        self.render(flow, id, reason, &mut record);
        self.counts.records[reason as usize] += 1;
        sink.record(&record);
        self.record = Some(record);
    }

    /// Gives back the places of all flows at once.
    fn forget(&mut self) {
        if self.counts.active > 0 {
            self.table.clear();
        }
        self.wheel.clear();
        self.flows.clear();
        self.chunks.clear();
        self.pairs.clear();
        self.fulls.clear();
        (self.hand, self.counts.active) = (0, 0);
    }
}

/// Time passes to `second` for the shards of one table, whose records are then made in one order.
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
    for each in now + 1..=second {
        // Over a gap of years there is nothing to do once the last flow is gone, which no timeout lets take long.
        if shards.iter().all(|s| s.counts.active == 0) {
            break;
        }
        shards.iter_mut().for_each(|s| s.collect(each));
        if shards.iter().any(|s| !s.due.is_empty()) {
            sink.second(each);
            in_order(shards, true, |shard, flow, known| shard.settle(flow, known, each, sink));
        }
    }
    shards.iter_mut().for_each(|s| s.second = Some(second));
}

/// Ends every flow: those that were over for what ended them, the others because there is no more.
pub(crate) fn end_all<H: Hints>(shards: &mut [Meter<H>], sink: &mut dyn Sink) {
    for shard in shards.iter_mut() {
        let used = (0..shard.flows.len() as u32).filter(|f| shard.flows[*f].hot.has(bit::USED));
        let mut due: Vec<Due> = shard.hints.room(shard.counts.active as usize);
        due.extend(used.map(|f| (shard.flows[f].hot.last, f)));
        shard.sort(&mut due);
        shard.due = due;
    }
    in_order(shards, false, |shard, flow, known| {
        let hot = &shard.flows[flow].hot;
        let reason = match (tcp::is_over(hot.state), hot.has(bit::DETACHED)) {
            (true, _) => EndReason::Ended,
            (false, true) => EndReason::Idle,
            (false, false) => EndReason::Forced,
        };
        shard.conclude(flow, known.id, reason, sink);
    });
    for shard in shards {
        shard.forget();
        shard.due = Vec::new();
    }
}

/// Calls `each` with all that is due and what is known of it, shards together in the order of the records. Only of flows that
/// leave the table one by one is the hash needed.
fn in_order<H: Hints>(shards: &mut [Meter<H>], leave: bool, mut each: impl FnMut(&mut Meter<H>, u32, Known)) {
    if let [shard] = shards {
        let due = std::mem::take(&mut shard.due);
        let mut known = [Known::default(); AHEAD];
        for step in 0..due.len() + 2 * AHEAD {
            if let Some((_, flow)) = due.get(step) {
                shard.fetch_due(*flow);
            }
            let place = &mut known[step % AHEAD];
            let now = *place;
            if let Some((_, flow)) = step.checked_sub(AHEAD).and_then(|at| due.get(at)) {
                *place = shard.fetch_due_rest(*flow, leave);
            }
            if let Some((_, flow)) = step.checked_sub(2 * AHEAD).and_then(|at| due.get(at)) {
                each(shard, *flow, now);
            }
        }
        shard.due = due;
        return;
    }
    let mut next = vec![0; shards.len()];
    let rank = |shard: &Meter<H>, at: usize| shard.due.get(at).map(|d| (d.0, shard.rank(d.1)));
    let mut heads: Vec<_> = shards.iter().map(|s| rank(s, 0)).collect();
    while let Some(first) = (0..shards.len()).filter(|i| heads[*i].is_some()).min_by_key(|i| heads[*i]) {
        let flow = shards[first].due[next[first]].1;
        let known = shards[first].known(flow);
        each(&mut shards[first], flow, known);
        next[first] += 1;
        heads[first] = rank(&shards[first], next[first]);
    }
}
