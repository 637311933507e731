//! The start of a flow: the allocation of its memory, and the choice of the flow to evict if the table is full.
//!
//! A full table inspects its flows in a cycle, and evicts the next flow that has had no packet besides its first since
//! it was last inspected (the clock algorithm of Corbató, 1968). If none of eight successive flows qualifies, the table
//! evicts the flow among them that has been idle longest. So a flood of single packets evicts its own flows and spares
//! active flows, mostly after one inspection. The inspection is fast, because successive flows are adjacent in memory.
//!
//! PERF: the cyclic inspection raised the packet rate of the meter in a flood from 2.3 to 4.9 million packets per
//! second, all other costs of a flow included (docs/design/flow-metering.md). Before, each eviction compared eight
//! flows.

use super::Meter;
use crate::config::Packet;
use crate::entry::{Entry, Hot, bit};
use crate::extra_fields::ExtraFields;
use crate::flow_packet::FlowPacket;
use crate::key;
use crate::packet_fields::{self, PacketFields};
use crate::record::{EndReason, Sink, TcpState};
use crate::table::BucketHint;
use crate::tcp;
use base::memory::Hints;
use wire::MacAddr;
use wire::tcp_flags::{ACK, SYN};

/// The largest number of flows inspected for one eviction.
const CANDIDATES: usize = 8;

impl<H: Hints> Meter<H> {
    /// Starts a flow with its first packet, and returns its index.
    #[inline(never)]
    pub(crate) fn begin(&mut self, packet: &Packet, flow_packet: &FlowPacket, sink: &mut dyn Sink) -> u32 {
        let seen = &flow_packet.seen;
        debug_assert_eq!(seen.side, 0, "the first packet has direction 0");
        if self.flows.is_full() {
            self.evict(sink);
        }
        let decoded = packet.decoded;
        let (state, fins) = tcp::first(seen, self.config.bidirectional);
        let is_v6 = flow_packet.key.v6;
        let label = decoded.mpls;
        let is_label_in_tunnel = label.is_some() && flow_packet.key.tunnel > 0;
        let idle =
            if tcp::is_over(state) { self.close_timeout } else { self.idle[usize::from(flow_packet.key.protocol)] };
        let timeout = idle.min(self.active.unwrap_or(u64::MAX));
        let icmp = if key::is_icmp(decoded.protocol) { key::icmp_word(decoded) } else { 0 };
        let mac = packet_fields::mac(packet);
        let rare = ExtraFields::first(icmp, mac.unwrap_or(MacAddr([0; 6])).0, seen.length);
        // The entry is written in place, field by field. If it were built first and then copied, building and copying
        // would take a third of the time of this function.
        let (flow, entry) = self.flows.place().expect("there is a free entry");
        entry.hot = Hot::new(&flow_packet.key, seen.at, packet.queue);
        entry.hot.bits |= if packet.position == Packet::NOWHERE { 0 } else { bit::LOCATED };
        entry.hot.bits |= u16::from(fins) << bit::FINS | if mac.is_some() { bit::MAC[0] } else { 0 };
        entry.hot.state = state;
        if let Some(label) = label.filter(|_| !is_label_in_tunnel) {
            entry.hot.set_label(label);
        }
        (entry.body.start, entry.body.positions) = (seen.at, [packet.position; 2]);
        let is_slim = entry.body.begin(seen);
        if !is_v6 {
            entry.hot.rare = rare;
        } else {
            if self.rares.len() <= flow as usize {
                self.rares.resize(flow as usize + 1, ExtraFields::default());
            }
            self.rares[flow as usize] = rare;
        }
        self.counts.started += 1;
        self.counts.active += 1;
        self.enter(flow, flow_packet.bucket, sink);
        if !is_slim || is_label_in_tunnel {
            self.widen_first(flow, seen, label.filter(|_| is_label_in_tunnel));
        }
        if let Some(payloads) = &mut self.payloads {
            payloads.begin(flow);
            payloads.keep(flow, packet, 0);
        }
        if flow_packet.key.tunnel > 0 {
            self.numbers.begin(flow);
        }
        self.put_on_wheel(flow, seen.at.saturating_add(timeout));
        flow
    }

    /// Grows the table if it would be too small for the flows that this many packets may start. The growth moves flows
    /// to other buckets, so no packet may be in the pipeline, where the bucket of each packet is already computed.
    ///
    /// A small table is faster: the lookups in a table for 1 Mi flows are spread over 11 MiB, and those in a table for
    /// 60 000 flows over 1 MiB, which stays in the second-level cache.
    #[inline(always)]
    pub(crate) fn make_table(&mut self, packets: usize, sink: &mut dyn Sink) {
        let flows = self.counts.active as usize + packets;
        if self.table.is_small_for(flows) {
            self.make_larger_table(flows, sink);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_larger_table(&mut self, flows: usize, sink: &mut dyn Sink) {
        self.table.grow(flows);
        let mut crowded = Vec::new();
        for (flow, Entry { hot, .. }) in self.flows.taken() {
            if hot.bits & (bit::USED | bit::DETACHED) == bit::USED {
                let spot = self.table.bucket_hint(self.keys.hash(&hot.key()));
                if self.table.insert(spot, flow).is_err() {
                    crowded.push((flow, spot));
                }
            }
        }
        crowded.into_iter().for_each(|(flow, spot)| self.enter(flow, spot, sink));
    }

    /// Inserts a flow into the table; if its buckets are full, evicts the flow of its bucket that has been idle
    /// longest.
    #[inline(always)]
    fn enter(&mut self, flow: u32, spot: BucketHint, sink: &mut dyn Sink) {
        if self.table.insert(spot, flow).is_ok() {
            return;
        }
        let idle = |f: &u32| self.flows[*f].hot.last;
        let victim = self.table.neighbours(spot).min_by_key(idle).expect("a full bucket has flows");
        self.counts.shard_full += 1;
        self.eviction_candidates.clear();
        self.end(victim, self.known(victim), EndReason::LackOfResources, sink);
        let entered = self.table.insert(spot, flow);
        debug_assert!(entered.is_ok(), "the freed slot is in the bucket of this flow");
    }

    /// Evicts a flow, so that another flow can take its memory.
    #[inline(always)]
    fn evict(&mut self, sink: &mut dyn Sink) {
        let victim = self.choose();
        let known = self.eviction_candidate(victim);
        self.end(victim, known, EndReason::LackOfResources, sink);
    }

    /// The flow to evict.
    #[inline(always)]
    fn choose(&mut self) -> u32 {
        let (mut oldest, mut last) = (self.hand, u64::MAX);
        for _ in 0..CANDIDATES.min(self.flows.len()) {
            let flow = self.hand;
            self.hand = self.after(flow, 1);
            let hot = &mut self.flows[flow].hot;
            if !hot.has(bit::SEEN_SINCE_SWEEP) {
                return flow;
            }
            hot.bits &= !bit::SEEN_SINCE_SWEEP;
            if hot.last < last {
                (oldest, last) = (flow, hot.last);
            }
        }
        oldest
    }
}

/// True if a packet starts a new flow, because the TCP connection of the flow with the same key is closed.
#[inline(always)]
pub(crate) fn is_another(state: TcpState, seen: &PacketFields) -> bool {
    tcp::is_over(state) & (seen.flags & (SYN | ACK) == SYN)
}
