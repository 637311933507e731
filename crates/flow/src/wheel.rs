//! Stores the times at which flows are inspected, in a timing wheel (Varghese and Lauck, SOSP 1987, scheme 6). The
//! wheel has one slot per second of packet time. Each slot has a list of flows, which is linked through one pair of
//! links per flow.
//!
//! A packet never moves its flow to another slot. A flow is in a slot whose second is not later than the deadline of
//! the flow. At the second of the slot the meter computes the deadline, and if the deadline is later, moves the flow to
//! a later slot. A flow whose deadline is more than [`SECONDS`] away is in the farthest slot and is inspected once per
//! turn of the wheel. After a turn without a due flow, the meter assumes that time has jumped, computes the earliest
//! deadline of all flows and continues at that second.

use base::memory::{Hints, HintsExt};

/// Number of seconds in one turn of the wheel. It is greater than the default active timeout.
pub(crate) const SECONDS: u64 = 512;
/// The index of no flow.
const NONE: u32 = u32::MAX;
/// A bit of the link of a flow to the flow before it. If the bit is set, the flow is the first of its list, and the
/// other bits are the number of the slot.
const HEAD: u32 = 1 << 31;

pub(crate) struct Wheel {
    heads: Box<[u32; SECONDS as usize]>,
    /// For each flow, the flows before and after it in its list.
    links: Vec<[u32; 2]>,
}

impl Wheel {
    pub fn new(capacity: usize, hints: impl Hints) -> Self {
        Self { heads: Box::new([NONE; SECONDS as usize]), links: hints.reserve(capacity) }
    }

    pub fn bytes(&self) -> usize {
        self.links.len() * size_of::<[u32; 2]>()
    }

    /// Bytes for so many flows.
    pub const fn bytes_of(flows: u64) -> usize {
        flows as usize * size_of::<[u32; 2]>()
    }

    /// Puts a flow that is in no slot into the slot of `second`, or into the farthest slot if `second` is more than one
    /// turn away. `now` is the second that was inspected last; `second` must be later than `now`.
    #[inline(always)]
    pub fn put(&mut self, flow: u32, second: u64, now: u64) {
        let slot = (second.min(now + SECONDS - 1) % SECONDS) as u32;
        let next = std::mem::replace(&mut self.heads[slot as usize], flow);
        match self.links.get_mut(flow as usize) {
            Some(links) => *links = [HEAD | slot, next],
            None => self.grow(flow, [HEAD | slot, next]),
        }
        if next != NONE {
            self.links[next as usize][0] = flow;
        }
    }

    /// Sets the links of a flow whose index is larger than all indices so far.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, flow: u32, links: [u32; 2]) {
        // Adds some more links, which no flow uses yet.
        self.links.resize((flow as usize + 64).min(self.links.capacity()).max(flow as usize + 1), [NONE; 2]);
        self.links[flow as usize] = links;
    }

    /// Empties all slots.
    pub fn clear(&mut self) {
        self.heads.fill(NONE);
    }

    /// Removes a flow from its slot.
    #[inline(always)]
    pub fn remove(&mut self, flow: u32) {
        let [before, next] = self.links[flow as usize];
        if before & HEAD == 0 {
            self.links[before as usize][1] = next;
        } else {
            self.heads[(before & !HEAD) as usize] = next;
        }
        if next != NONE {
            self.links[next as usize][0] = before;
        }
    }

    /// Empties the slot of `second` and returns its first flow.
    pub fn open(&mut self, second: u64) -> Option<u32> {
        let head = std::mem::replace(&mut self.heads[(second % SECONDS) as usize], NONE);
        (head != NONE).then_some(head)
    }

    /// The first second after `now`, at most one turn later, whose slot contains a flow.
    pub fn next_used(&self, now: u64) -> Option<u64> {
        (1..=SECONDS).map(|ahead| now.saturating_add(ahead)).find(|s| self.heads[(s % SECONDS) as usize] != NONE)
    }

    /// The flow after this flow in the list that [`Wheel::open`] returned. The caller must call this function before it
    /// puts either of the two flows into a slot.
    pub fn next(&self, flow: u32) -> Option<u32> {
        let next = self.links[flow as usize][1];
        (next != NONE).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoHints;
    use base::Prng;
    use std::collections::BTreeMap;

    /// Removes all flows of a slot from the wheel, and returns them.
    fn opened(wheel: &mut Wheel, second: u64) -> Vec<u32> {
        let (mut all, mut next) = (Vec::new(), wheel.open(second));
        while let Some(flow) = next {
            next = wheel.next(flow);
            all.push(flow);
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn flows_are_inspected_no_later_than_their_second() {
        let seed = testkit::seed("flows_are_inspected_no_later_than_their_second");
        let mut prng = Prng::new(seed);
        let mut wheel = Wheel::new(100, NoHints);
        // For each flow, the second at which the flow is to be inspected.
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for now in 1000..4000 {
            let expected: Vec<u32> = model.iter().filter(|f| *f.1 == now).map(|f| *f.0).collect();
            let looked_at = opened(&mut wheel, now);
            assert!(expected.iter().all(|f| looked_at.contains(f)), "seed {seed}, second {now}");
            for flow in looked_at {
                let due = model[&flow];
                assert!(due >= now, "seed {seed}: flow {flow} was inspected too late");
                if due > now {
                    // The deadline was more than one turn of the wheel away.
                    wheel.put(flow, due, now);
                } else {
                    model.remove(&flow);
                }
            }
            for _ in 0..prng.below(4) {
                let flow = prng.below(100) as u32;
                let within = [5, 600, 2000][prng.below(3) as usize];
                let due = now + 1 + prng.below(within);
                if model.insert(flow, due).is_some() {
                    wheel.remove(flow);
                }
                wheel.put(flow, due, now);
            }
        }
        assert!(!model.is_empty());
        wheel.clear();
        assert!((0..SECONDS).all(|second| wheel.open(second).is_none()));
    }
}
