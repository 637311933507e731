//! The conversion of the counters of a flow: from the packet list to compact counters, and from either to wide
//! counters. The conversion preserves all counts ([`crate::entry`] describes the three layouts).

use super::Meter;
use super::interim::RecordContinuation;
use crate::compact_counters::CompactCounters;
use crate::entry::{Entry, bit};
use crate::extra_fields::ExtraFields;
use crate::packet_fields::PacketFields;
use crate::packet_list;
use crate::pool::NONE;
use crate::wide_counters::{self, WideCounters};
use base::memory::Hints;

impl<H: Hints> Meter<H> {
    /// Converts a packet list to compact counters.
    #[inline(never)]
    pub(crate) fn pair(&mut self, flow: u32) {
        let mut pair = self.counters_of_list(flow);
        let hot = &mut self.flows[flow].hot;
        pair.set_owner(flow, hot.more);
        hot.more = self.pairs.put(pair).expect("the pool has compact counters for every flow");
        hot.bits |= bit::PAIR;
    }

    /// Converts a flow to wide counters if its first packet is irregular.
    #[inline(never)]
    pub(crate) fn widen_first(&mut self, flow: u32, seen: &PacketFields, label: Option<u32>) {
        self.widen(flow);
        let full = &mut self.fulls[self.flows[flow].hot.more];
        full.sides[0] = wide_counters::WideDirection::default();
        full.sides[0].add(seen);
        full.label = label;
    }

    /// Converts a flow to wide counters.
    #[inline(never)]
    pub(crate) fn widen(&mut self, flow: u32) {
        let hot = &self.flows[flow].hot;
        let (pair, mut chunk) = if hot.has(bit::PAIR) {
            let pair = self.pairs[hot.more];
            self.pairs.free(hot.more);
            (pair, pair.chunk())
        } else {
            (self.counters_of_list(flow), hot.more)
        };
        let continuation = self.continuation(hot.bits, &pair);
        let sides = self.widened(flow, &pair, &continuation);
        if hot.has(bit::HAS_INTERIM_RECORD) {
            self.chunks.free(chunk);
            chunk = NONE;
        }
        let full = WideCounters {
            sides,
            flow,
            chunk,
            part: continuation.part,
            handshake: self.rare(flow).handshake(),
            ..WideCounters::default()
        };
        let more = self.fulls.put(full).expect("the pool has wide counters for every flow");
        let hot = &mut self.flows[flow].hot;
        hot.more = more;
        hot.bits = hot.bits & !(bit::PAIR | bit::HAS_INTERIM_RECORD) | bit::FULL;
    }

    /// Returns wide counters with the values of these compact counters.
    pub(crate) fn widened(
        &self,
        flow: u32,
        pair: &CompactCounters,
        continuation: &RecordContinuation,
    ) -> [wide_counters::WideDirection; 2] {
        let firsts = self.firsts(flow, pair, continuation);
        let sums = &self.flows[flow].body.sums;
        [0, 1].map(|n| {
            let mut side = pair.sides[n].wide(firsts[n], continuation.before[n]);
            sums[n].complete(&mut side);
            side
        })
    }

    /// The [`ExtraFields`] of a flow. For an IPv6 flow they are in a separate list.
    #[inline(always)]
    pub(crate) fn rare(&self, flow: u32) -> &ExtraFields {
        let hot = &self.flows[flow].hot;
        if hot.has(bit::V6) { &self.rares[flow as usize] } else { &hot.rare }
    }

    #[inline(always)]
    pub(crate) fn rare_mut(&mut self, flow: u32) -> &mut ExtraFields {
        let hot = &mut self.flows[flow].hot;
        if hot.has(bit::V6) { &mut self.rares[flow as usize] } else { &mut hot.rare }
    }

    /// The times of the handshake.
    #[inline(always)]
    pub(crate) fn handshake(&self, flow: u32) -> [u64; 2] {
        let hot = &self.flows[flow].hot;
        if hot.has(bit::FULL) { self.fulls[hot.more].handshake } else { self.rare(flow).handshake() }
    }

    /// The compact counters that result from the packets of the flow's packet list.
    #[inline(always)]
    pub(crate) fn counters_of_list(&self, flow: u32) -> CompactCounters {
        let Entry { hot, body } = &self.flows[flow];
        let mut pair = CompactCounters::new();
        pair.sides[0].count(body.start, self.rare(flow).first_length(), body.sums[0].first_flags);
        if hot.more != NONE {
            for word in &self.chunks[hot.more].log[..usize::from(hot.packets) - 1] {
                let early = packet_list::unpack(*word);
                pair.sides[usize::from(early.reverse)].count(body.start + early.offset_ns, early.length, early.flags);
            }
        }
        pair
    }
}
