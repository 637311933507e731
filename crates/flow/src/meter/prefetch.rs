//! The packets of a batch in order, and the prefetch of the memory that each packet will need.
//!
//! With two million flows nearly every access misses the caches. A core can wait for some twenty cache misses at the
//! same time, but only for one if each address depends on the previous access. So each packet passes four stages. The
//! first stage prefetches the bucket of the packet's key. The second stage, [`AHEAD`] packets later, prefetches the
//! entry that the bucket points to. The third stage, as many packets later, prefetches the counters that the entry
//! points to. The fourth stage counts the packet. The stages of different packets alternate, so that memory delivers
//! cache lines while other packets are counted. A wrong prediction costs a prefetched cache line and has no other
//! effect.
//!
//! The same method applies to evictions, if many new flows arrive at a full table. The meter determines in advance the
//! flow that each new flow will probably evict, and prefetches the bucket of that flow.

use super::expiry::{StableFields, pass};
use super::{AHEAD, Meter};
use crate::config::Packet;
use crate::entry::{Entry, Hot, bit};
use crate::flow_packet::FlowPacket;
use crate::key::Key;
use crate::packet_list::LOG;
use crate::pool::NONE;
use crate::record::Sink;
use base::memory::{Hints, HintsExt};
use std::hint::select_unpredictable;

/// Number of packets that the pipeline can hold: more than there are between its first and its last stage.
const RING: usize = 32;
const _: () = assert!(3 * AHEAD < RING);
/// The first packets of a flow, up to this number, include the handshake and the first packet of the reverse direction.
const HANDSHAKE_PACKETS: usize = 3;
/// Below this number of flows nothing is prefetched for evictions, because the table is in cache.
const FEW: usize = 4 * AHEAD;

/// The packets that have passed the first stage but not the last stage. They are so few that they stay in the cache.
pub(crate) struct Pipeline {
    flow_packets: [FlowPacket; RING],
    /// For each packet, the flow to which it probably belongs.
    guesses: [u32; RING],
    /// Number of packets that have entered the pipeline since it was last empty.
    count: usize,
}

impl Pipeline {
    pub fn new() -> Self {
        Self { flow_packets: [FlowPacket::default(); RING], guesses: [NONE; RING], count: 0 }
    }
}

impl<H: Hints> Meter<H> {
    /// Meters packets in the order of their arrival. Their timestamps advance the meter's time.
    pub fn push(&mut self, packets: &[Packet], sink: &mut dyn Sink) {
        self.make_table(packets.len(), sink);
        let mut pipeline = self.pipeline.take().expect("the pipeline is only missing during a call");
        self.compress_idle(packets.len());
        let mut current_second = self.current_second();
        for (index, packet) in packets.iter().enumerate() {
            if !current_second.contains(&packet.ts.nanos()) && self.is_other_second(packet.ts.secs()) {
                self.drain_pipeline(packets, &mut pipeline, sink);
                pass(std::slice::from_mut(self), packet.ts.secs(), sink);
                current_second = self.current_second();
            }
            let flow_packet = &mut pipeline.flow_packets[pipeline.count % RING];
            if flow_packet.set(packet, index, &self.keys, self.config.bidirectional) {
                flow_packet.bucket = self.table.bucket_hint(flow_packet.hash);
                self.table.fetch(flow_packet.bucket, self.hints);
                self.advance(packets, &mut pipeline, sink);
            } else {
                self.counts.other += 1;
            }
        }
        self.drain_pipeline(packets, &mut pipeline, sink);
        self.pipeline = Some(pipeline);
    }

    /// Like [`Meter::push`], but for packets of one second that are already converted to [`FlowPacket`]s.
    pub(crate) fn run(&mut self, packets: &[Packet], flow_packets: &[FlowPacket], sink: &mut dyn Sink) {
        self.make_table(flow_packets.len(), sink);
        self.compress_idle(flow_packets.len());
        let mut pipeline = self.pipeline.take().expect("the pipeline is only missing during a call");
        for flow_packet in flow_packets {
            let spot = self.table.bucket_hint(flow_packet.hash);
            pipeline.flow_packets[pipeline.count % RING] = FlowPacket { bucket: spot, ..*flow_packet };
            self.table.fetch(spot, self.hints);
            self.advance(packets, &mut pipeline, sink);
        }
        self.drain_pipeline(packets, &mut pipeline, sink);
        self.pipeline = Some(pipeline);
    }

    /// Advances the pipeline after a packet has entered.
    #[inline(always)]
    fn advance(&mut self, packets: &[Packet], pipeline: &mut Pipeline, sink: &mut dyn Sink) {
        let step = pipeline.count;
        pipeline.count += 1;
        if step < 3 * AHEAD {
            return self.fill_pipeline(packets, pipeline, step, sink);
        }
        let [first, second, third] = [1, 2, 3].map(|stage| (step - stage * AHEAD) % RING);
        pipeline.guesses[first] = self.fetch(&pipeline.flow_packets[first]);
        self.fetch_rest(pipeline.guesses[second], &pipeline.flow_packets[second].key);
        let flow_packet = &mut pipeline.flow_packets[third];
        self.take(&packets[flow_packet.index as usize], flow_packet, pipeline.guesses[third], sink);
    }

    /// Like `advance`, but for the first packets, while some stages are empty.
    #[inline(never)]
    fn fill_pipeline(&mut self, packets: &[Packet], pipeline: &mut Pipeline, step: usize, sink: &mut dyn Sink) {
        self.stages(packets, pipeline, step, sink);
    }

    /// Empties the pipeline: counts every packet in it.
    #[inline(never)]
    fn drain_pipeline(&mut self, packets: &[Packet], pipeline: &mut Pipeline, sink: &mut dyn Sink) {
        for step in pipeline.count..pipeline.count + 3 * AHEAD {
            self.stages(packets, pipeline, step, sink);
        }
        self.counts.packets += pipeline.count as u64;
        pipeline.count = 0;
        self.eviction_candidates.clear();
        self.ahead = self.hand;
    }

    #[inline(always)]
    fn stages(&mut self, packets: &[Packet], pipeline: &mut Pipeline, step: usize, sink: &mut dyn Sink) {
        let at = |behind: usize| step.checked_sub(behind).filter(|at| *at < pipeline.count).map(|at| at % RING);
        let (first, second, third) = (at(AHEAD), at(2 * AHEAD), at(3 * AHEAD));
        if let Some(at) = first {
            pipeline.guesses[at] = self.fetch(&pipeline.flow_packets[at]);
        }
        if let Some(at) = second {
            self.fetch_rest(pipeline.guesses[at], &pipeline.flow_packets[at].key);
        }
        if let Some(at) = third {
            let flow_packet = &mut pipeline.flow_packets[at];
            self.take(&packets[flow_packet.index as usize], flow_packet, pipeline.guesses[at], sink);
        }
    }

    /// The flow to which a packet probably belongs; prefetches its entry. Without such a flow, prefetches the memory of
    /// the new flow, or the entry of the flow that will be evicted.
    #[inline(always)]
    fn fetch(&self, flow_packet: &FlowPacket) -> u32 {
        match self.table.guess(flow_packet.bucket) {
            Some(flow) => {
                self.fetch_entry(flow);
                flow
            }
            None => {
                if !self.flows.is_full() {
                    // Prefetches the entry of the new flow: a write to a cache line also needs the line in the cache.
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

    /// Prefetches the memory, besides the entry, that a packet with this key needs.
    #[inline(always)]
    fn fetch_rest(&mut self, flow: u32, key: &Key) {
        if flow == NONE {
            if self.flows.is_full() && self.flows.len() >= FEW {
                self.predict_eviction();
            }
            return;
        }
        let hot = &self.flows[flow].hot;
        let packets = usize::from(hot.packets);
        match hot.bits & (bit::FULL | bit::PAIR) {
            bit::PAIR => self.hints.fetch(&self.pairs[hot.more].sides[hot.side(key)]),
            0 => {
                // An IPv6 flow has its extra fields in separate memory. They are needed for the first packets, with
                // which the times of the handshake are updated, and for the eleventh packet, with which the flow
                // changes to compact counters.
                if hot.has(bit::V6) && (packets < HANDSHAKE_PACKETS || packets == LOG) {
                    self.hints.fetch(&self.rares[flow as usize]);
                }
                // The address of the flow's packet list, or of the next list to be allocated. Chosen without a branch,
                // because the branch would be unpredictable.
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

    /// Like `fetch_rest`, but for a flow with wide counters or a compressed flow.
    #[inline(never)]
    fn fetch_other(&self, flow: u32, side: usize) {
        let hot = &self.flows[flow].hot;
        if hot.is_compressed() {
            self.prefetch_compressed(flow)
        } else {
            self.fulls[hot.more].sides[side].fetch(self.hints)
        }
    }

    /// Like `fetch_rest`, but for a compressed flow.
    pub(crate) fn prefetch_compressed(&self, flow: u32) {
        let hot = &self.flows[flow].hot;
        if hot.has(bit::V6) {
            self.hints.fetch(&self.rares[flow as usize]);
        }
        if hot.more != NONE {
            self.compressed.slab.fetch(hot.more, self.hints);
        }
    }

    /// Determines the flow that will probably be evicted next, and stores its [`StableFields`], which remain valid
    /// unless the flow ends for another reason.
    #[inline(always)]
    fn predict_eviction(&mut self) {
        let flow = self.ahead;
        self.ahead = self.after(flow, 1);
        if self.flows[flow].hot.has(bit::SEEN_SINCE_SWEEP) {
            return;
        }
        let known = self.known(flow);
        self.table.fetch(known.bucket, self.hints);
        self.eviction_candidates.push_back((flow, self.flows[flow].body.start, known));
    }

    /// The [`StableFields`] of the flow `victim`, which is to be evicted: those that [`Self::predict_eviction`] has
    /// stored for this flow, otherwise computed now.
    #[inline(always)]
    pub(crate) fn eviction_candidate(&mut self, victim: u32) -> StableFields {
        while let Some((flow, start, known)) = self.eviction_candidates.pop_front() {
            // In a small table the sweep may reach a slot twice, and the slot may hold another flow by now.
            if flow == victim && start == self.flows[victim].body.start {
                return known;
            }
        }
        self.known(victim)
    }

    /// The flow whose entry is `places` entries after the entry of this flow; after the last entry follows the first.
    #[inline(always)]
    pub(crate) fn after(&self, flow: u32, places: usize) -> u32 {
        let (at, all) = (flow as usize + places, self.flows.len());
        if at < all { at as u32 } else { (at - all) as u32 }
    }
}
