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
use crate::entry::{Entry, Hot, bit};
use crate::expiry::{StableFields, pass};
use crate::flow_packet::FlowPacket;
use crate::key::Key;
use crate::memory::{Hints, HintsExt};
use crate::meter::Meter;
use crate::packet_list::LOG;
use crate::pool::NONE;
use crate::record::Sink;
use std::hint::select_unpredictable;

/// Packets from one stage to the next.
pub(crate) const AHEAD: usize = 8;
/// Packets that are between the first stage and the last, and a few more.
const RING: usize = 32;
const _: () = assert!(3 * AHEAD < RING);
/// Packets in which a handshake is expected, and the first of the other side.
const SHAKING: usize = 3;
/// Flows below which nobody is asked for early: a table so small is in cache.
const FEW: usize = 4 * AHEAD;

/// Packets that are on their way: so few that they stay in cache themselves.
pub(crate) struct Pipeline {
    lanes: [FlowPacket; RING],
    /// Which flow each probably belongs to.
    guesses: [u32; RING],
    /// Packets that have set out since the way was last empty.
    count: usize,
}

impl Pipeline {
    pub fn new() -> Self {
        Self { lanes: [FlowPacket::default(); RING], guesses: [NONE; RING], count: 0 }
    }
}

impl<H: Hints> Meter<H> {
    /// Takes packets in the order in which they came. Time passes with them.
    pub fn push(&mut self, packets: &[Packet], sink: &mut dyn Sink) {
        self.make_table(packets.len(), sink);
        let mut way = self.pipeline.take().expect("it is there between two calls");
        self.compress_idle(packets.len());
        let mut calm = self.calm();
        for (index, packet) in packets.iter().enumerate() {
            if !calm.contains(&packet.ts.nanos()) && self.is_other_second(packet.ts.secs()) {
                self.arrive(packets, &mut way, sink);
                pass(std::slice::from_mut(self), packet.ts.secs(), sink);
                calm = self.calm();
            }
            let lane = &mut way.lanes[way.count % RING];
            if lane.set(packet, index, &self.keys, self.config.bidirectional) {
                lane.bucket = self.table.bucket_hint(lane.hash);
                self.table.fetch(lane.bucket, self.hints);
                self.advance(packets, &mut way, sink);
            } else {
                self.counts.other += 1;
            }
        }
        self.arrive(packets, &mut way, sink);
        self.pipeline = Some(way);
    }

    /// Takes packets between which no second begins, and which are lanes already.
    pub(crate) fn run(&mut self, packets: &[Packet], lanes: &[FlowPacket], sink: &mut dyn Sink) {
        self.make_table(lanes.len(), sink);
        self.compress_idle(lanes.len());
        let mut way = self.pipeline.take().expect("it is there between two calls");
        for lane in lanes {
            let spot = self.table.bucket_hint(lane.hash);
            way.lanes[way.count % RING] = FlowPacket { bucket: spot, ..*lane };
            self.table.fetch(spot, self.hints);
            self.advance(packets, &mut way, sink);
        }
        self.arrive(packets, &mut way, sink);
        self.pipeline = Some(way);
    }

    /// Another packet has set out: those before it reach their next stages.
    #[inline(always)]
    fn advance(&mut self, packets: &[Packet], way: &mut Pipeline, sink: &mut dyn Sink) {
        let step = way.count;
        way.count += 1;
        if step < 3 * AHEAD {
            return self.set_out(packets, way, step, sink);
        }
        let [first, second, third] = [1, 2, 3].map(|stage| (step - stage * AHEAD) % RING);
        way.guesses[first] = self.fetch(&way.lanes[first]);
        self.fetch_rest(way.guesses[second], &way.lanes[second].key);
        let lane = &mut way.lanes[third];
        self.take(&packets[lane.index as usize], lane, way.guesses[third], sink);
    }

    /// The same of the first packets, before which there are none at every stage.
    #[inline(never)]
    fn set_out(&mut self, packets: &[Packet], way: &mut Pipeline, step: usize, sink: &mut dyn Sink) {
        self.stages(packets, way, step, sink);
    }

    /// Every packet that is on its way is counted.
    #[inline(never)]
    fn arrive(&mut self, packets: &[Packet], way: &mut Pipeline, sink: &mut dyn Sink) {
        for step in way.count..way.count + 3 * AHEAD {
            self.stages(packets, way, step, sink);
        }
        self.counts.packets += way.count as u64;
        way.count = 0;
        self.eviction_candidates.clear();
        self.ahead = self.hand;
    }

    #[inline(always)]
    fn stages(&mut self, packets: &[Packet], way: &mut Pipeline, step: usize, sink: &mut dyn Sink) {
        let at = |behind: usize| step.checked_sub(behind).filter(|at| *at < way.count).map(|at| at % RING);
        let (first, second, third) = (at(AHEAD), at(2 * AHEAD), at(3 * AHEAD));
        if let Some(at) = first {
            way.guesses[at] = self.fetch(&way.lanes[at]);
        }
        if let Some(at) = second {
            self.fetch_rest(way.guesses[at], &way.lanes[at].key);
        }
        if let Some(at) = third {
            let lane = &mut way.lanes[at];
            self.take(&packets[lane.index as usize], lane, way.guesses[at], sink);
        }
    }

    /// Which flow a packet probably belongs to; its lines are asked for. If to none, those of the flow that will
    /// have to go.
    #[inline(always)]
    fn fetch(&self, lane: &FlowPacket) -> u32 {
        match self.table.guess(lane.bucket) {
            Some(flow) => {
                self.fetch_entry(flow);
                flow
            }
            None => {
                if !self.flows.is_full() {
                    // Of a flow that has ended, or never used: written over line by line, which has to be there before.
                    let place = self.flows.upcoming(AHEAD).cast::<u8>();
                    self.hints.prefetch(place);
                    self.hints.prefetch(place.wrapping_add(size_of::<Hot>()));
                } else if self.flows.len() >= FEW {
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
            0 => {
                // The handshake is in the first packets, and the eleventh reads all that is known.
                if hot.has(bit::V6) && (packets < SHAKING || packets == LOG) {
                    self.hints.fetch(&self.rares[flow as usize]);
                }
                // Where the list is or will be, chosen without a branch: most second packets come among others.
                let (there, next) = (self.chunks.address(hot.more), self.chunks.upcoming(0));
                let chunk = select_unpredictable(hot.more == NONE, next, there).cast::<u8>();
                self.hints.prefetch(chunk.wrapping_add((packets.min(LOG - 1) - 1) * size_of::<u64>()));
                if packets == LOG {
                    self.hints.prefetch(chunk);
                }
            }
            _ => self.fetch_other(flow, hot.side(key)),
        }
    }

    /// The same of a full flow, or one at rest.
    #[inline(never)]
    fn fetch_other(&self, flow: u32, side: usize) {
        let hot = &self.flows[flow].hot;
        if hot.is_compressed() {
            self.prefetch_compressed(flow)
        } else {
            self.fulls[hot.more].sides[side].fetch(self.hints)
        }
    }

    /// The same of a flow at rest.
    pub(crate) fn prefetch_compressed(&self, flow: u32) {
        let hot = &self.flows[flow].hot;
        if hot.has(bit::V6) {
            self.hints.fetch(&self.rares[flow as usize]);
        }
        if hot.more != NONE {
            self.rest.slab.fetch(hot.more, self.hints);
        }
    }

    /// Which flow will probably be the next to end because one begins. What is found out about it is kept: as long as
    /// nothing else ends a flow, it is what it was.
    #[inline(always)]
    fn foresee(&mut self) {
        let flow = self.ahead;
        self.ahead = self.after(flow, 1);
        if self.flows[flow].hot.has(bit::SEEN_SINCE_SWEEP) {
            return;
        }
        let known = self.known(flow);
        self.table.fetch(known.bucket, self.hints);
        self.eviction_candidates.push_back((flow, self.flows[flow].body.start, known));
    }

    /// What is known of a flow that has to go.
    #[inline(always)]
    pub(crate) fn eviction_candidate(&mut self, victim: u32) -> StableFields {
        while let Some((flow, start, known)) = self.eviction_candidates.pop_front() {
            // In a small table a place may be foreseen twice, and be another flow's by now.
            if flow == victim && start == self.flows[victim].body.start {
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
