//! The packets of a batch, one after the other, and the lines of memory that each needs well before it is its turn.
//!
//! Of two million flows nothing is in cache; a core keeps some twenty misses in flight if it may, but only one where each
//! depends on the one before. So a packet goes through four stages: its bucket is asked for when its key is known, what the
//! bucket points to [`AHEAD`] packets later, what that points to as many later again, and once more as many
//! later it is counted. The stages of different packets are done in turn, so that lines come while others are
//! counted. A wrong guess costs a line and nothing else.
//!
//! The same for a flood into a full table: whom each new flow will probably end is looked at, and its bucket asked for,
//! before it is ended.

use crate::config::Packet;
use crate::ends::Known;
use crate::entry::{Entry, bit};
use crate::key::Key;
use crate::lane::Lane;
use crate::meter::{BATCH, Meter};
use crate::pool::NONE;
use crate::record::Sink;
use crate::slim::LOG;

/// Packets from one stage to the next.
pub(crate) const AHEAD: usize = 8;
/// Packets in which a handshake is expected, and the first of the other side.
const SHAKING: usize = 3;
/// Flows below which nobody is asked for early: a table so small is in cache.
const FEW: usize = 4 * AHEAD;

impl Meter {
    /// Takes packets between which no second begins. Their buckets were asked for when their hashes were made.
    pub(crate) fn run(&mut self, packets: &[Packet], lanes: &mut [Lane], sink: &mut dyn Sink) {
        self.counts.packets += lanes.len() as u64;
        for lanes in lanes.chunks_mut(BATCH) {
            self.victims.clear();
            self.ahead = self.hand;
            let mut guesses = [NONE; BATCH];
            for step in 0..lanes.len() + 2 * AHEAD {
                if step < lanes.len() {
                    guesses[step] = self.fetch(&lanes[step]);
                }
                if let Some(at) = step.checked_sub(AHEAD).filter(|at| *at < lanes.len()) {
                    self.fetch_rest(guesses[at], &lanes[at].key);
                }
                if let Some(at) = step.checked_sub(2 * AHEAD) {
                    let lane = &mut lanes[at];
                    self.take(&packets[lane.index as usize], lane, guesses[at], sink);
                }
            }
        }
    }

    /// Which flow a packet probably belongs to; its lines are asked for. If to none, those of the flow that will
    /// have to go.
    #[inline(always)]
    fn fetch(&self, lane: &Lane) -> u32 {
        match self.table.guess(lane.hash) {
            Some(flow) => {
                self.fetch_entry(flow);
                flow
            }
            None => {
                if self.flows.is_full() && self.flows.len() >= FEW {
                    let flow = self.after(self.ahead, AHEAD);
                    self.fetch_entry(flow);
                }
                NONE
            }
        }
    }

    #[inline(always)]
    pub(crate) fn fetch_entry(&self, flow: u32) {
        let Entry { hot, body } = &self.flows[flow];
        self.hints.fetch(hot);
        self.hints.fetch(body);
    }

    /// Asks for what a packet with this key needs of a flow besides its entry.
    #[inline(always)]
    fn fetch_rest(&mut self, flow: u32, key: &Key) {
        if flow == NONE {
            if self.flows.is_full() && self.flows.len() >= FEW {
                self.foresee();
            }
            return;
        }
        let hot = &self.flows[flow].hot;
        let packets = usize::from(hot.packets);
        match hot.bits & (bit::FULL | bit::PAIR) {
            bit::PAIR => self.hints.fetch(&self.pairs[hot.more].sides[hot.side(key)]),
            bit::FULL => self.fulls[hot.more].sides[hot.side(key)].fetch(&self.hints),
            _ => {
                // The handshake is in the first packets, and the eleventh reads all that is known.
                if hot.has(bit::V6) && (packets < SHAKING || packets == LOG) {
                    self.hints.fetch(&self.rares[flow as usize]);
                }
                if hot.more != NONE {
                    let chunk = &self.chunks[hot.more];
                    self.hints.fetch(&chunk.log[packets.min(LOG - 1) - 1]);
                    if packets == LOG {
                        self.hints.fetch(&chunk.log[0]);
                    }
                }
            }
        }
    }

    /// Which flow will probably be the next to end because one begins. What is found out about it is kept: as long as
    /// nothing else ends a flow, it is what it was.
    #[inline(always)]
    fn foresee(&mut self) {
        let flow = self.ahead;
        self.ahead = self.after(flow, 1);
        if self.flows[flow].hot.has(bit::AGAIN) {
            return;
        }
        let known = self.known(flow);
        self.table.fetch(known.hash, &self.hints);
        self.victims.push_back((flow, known));
    }

    /// What is known of a flow that has to go.
    #[inline(always)]
    pub(crate) fn known_victim(&mut self, victim: u32) -> Known {
        while let Some((flow, known)) = self.victims.pop_front() {
            if flow == victim {
                return known;
            }
        }
        self.known(victim)
    }

    /// The flow that lies so many places further on, the first following the last.
    #[inline(always)]
    pub(crate) fn after(&self, flow: u32, places: usize) -> u32 {
        let (at, all) = (flow as usize + places, self.flows.len());
        if at < all { at as u32 } else { (at - all) as u32 }
    }
}
