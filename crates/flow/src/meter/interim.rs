//! The state of a flow with compact counters that continues after an interim record. The initial packets of the flow
//! are in that record, so the words of the flow's packet list are reused for the values that the next records need.
//!
//! ```text
//! word  0                  1                  2                         3
//!       | last packet of 0 | last packet of 1 | first packet of 0       | earlier records |
//! ```
//! The words are: timestamps of the last packet of both directions before this record, timestamp of the first packet of
//! direction 0 in this record, and the number of earlier records.
//!
//! The inter-arrival time between the last packet of a record and the first packet of the next belongs to the later
//! record, so a direction needs both timestamps. The first timestamp of direction 1 is in its counters
//! ([`crate::compact_counters`]).

use super::Meter;
use crate::compact_counters::{CompactCounters, CompactDirection};
use crate::config::Packet;
use crate::entry::{Entry, bit};
use crate::packet_fields::PacketFields;
use crate::packet_list::PacketList;
use crate::pool::NONE;
use crate::record::{EndReason, Sink};
use crate::wide_counters::NEVER;
use base::memory::Hints;

/// The values that connect a record to the earlier records of its flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordContinuation {
    /// Timestamp of each direction's last packet before this record; [`NEVER`] if there was none.
    pub before: [u64; 2],
    /// Timestamp of the first packet of direction 0 in this record.
    pub first: u64,
    /// The number of earlier records.
    pub part: u32,
}

/// The value for a flow without an earlier record.
pub(crate) const NO_CONTINUATION: RecordContinuation = RecordContinuation { before: [NEVER; 2], first: NEVER, part: 0 };

impl RecordContinuation {
    fn of(chunk: &PacketList) -> Self {
        let [a, b, first, part, ..] = chunk.log;
        Self { before: [a, b], first, part: part as u32 }
    }

    pub fn chunk(&self) -> PacketList {
        let mut chunk = PacketList::default();
        chunk.log[..4].copy_from_slice(&[self.before[0], self.before[1], self.first, self.part.into()]);
        chunk
    }
}

impl<H: Hints> Meter<H> {
    /// The values for the next record ([`RecordContinuation`]) of the flow with these compact counters.
    #[inline(always)]
    pub(crate) fn continuation(&self, bits: u16, pair: &CompactCounters) -> RecordContinuation {
        if bits & bit::HAS_INTERIM_RECORD == 0 {
            NO_CONTINUATION
        } else {
            RecordContinuation::of(&self.chunks[pair.chunk()])
        }
    }

    /// Timestamp of each direction's first packet in this record.
    #[inline(always)]
    pub(crate) fn firsts(&self, flow: u32, pair: &CompactCounters, continuation: &RecordContinuation) -> [u64; 2] {
        let Entry { hot, body } = &self.flows[flow];
        [if hot.has(bit::HAS_INTERIM_RECORD) { continuation.first } else { body.start }, pair.first_back()]
    }

    /// Makes an interim record; the flow continues.
    pub(crate) fn make_interim_record(&mut self, flow: u32, id: u64, sink: &mut dyn Sink) {
        let hot = &self.flows[flow].hot;
        if hot.bits & (bit::FULL | bit::PAIR) == 0 {
            self.pair(flow);
        }
        self.emit(flow, id, EndReason::ActiveTimeout, sink);
        if self.flows[flow].hot.tunnel > 0 {
            self.numbers.begin(flow);
        }
        if self.flows[flow].hot.has(bit::FULL) {
            return self.begin_wide_record(flow);
        }
        let Entry { hot, body } = &mut self.flows[flow];
        let pair = self.pairs[hot.more];
        let continuation = if hot.has(bit::HAS_INTERIM_RECORD) {
            RecordContinuation::of(&self.chunks[pair.chunk()])
        } else {
            NO_CONTINUATION
        };
        let before = |side: usize| {
            let line = &pair.sides[side];
            if line.packets > 0 { line.last } else { continuation.before[side] }
        };
        let chunk =
            RecordContinuation { before: [before(0), before(1)], first: NEVER, part: continuation.part + 1 }.chunk();
        let place = match pair.chunk() {
            NONE => self.chunks.put(chunk).expect("the pool has a packet list for every flow"),
            place => {
                self.chunks[place] = chunk;
                place
            }
        };
        let mut empty = CompactCounters::new();
        empty.set_owner(flow, place);
        self.pairs[hot.more] = empty;
        hot.bits |= bit::HAS_INTERIM_RECORD;
        body.sums.iter_mut().for_each(|sums| *sums = sums.continued());
    }

    fn begin_wide_record(&mut self, flow: u32) {
        let full = &mut self.fulls[self.flows[flow].hot.more];
        full.sides = [full.sides[0].continued(), full.sides[1].continued()];
        full.part += 1;
        full.more = Vec::new();
        let chunk = std::mem::replace(&mut full.chunk, NONE);
        if chunk != NONE {
            self.chunks.free(chunk);
        }
    }

    /// Counts the first packet of a direction since an interim record. Returns two booleans: true if the packet fits
    /// the compact counters, and true if it is the first packet of the new record.
    #[inline(never)]
    pub(crate) fn add_again(&mut self, flow: u32, packet: &Packet, seen: &PacketFields) -> (bool, bool) {
        let Entry { hot, body } = &mut self.flows[flow];
        let pair = &mut self.pairs[hot.more];
        let place = pair.chunk();
        let mut continuation = RecordContinuation::of(&self.chunks[place]);
        let before = continuation.before[seen.side];
        let gap = if before == NEVER { 0 } else { seen.at - before };
        if !CompactDirection::fits_gap(gap) || !body.sums[seen.side].take(seen, true) {
            return (false, false);
        }
        let is_first = pair.sides[0].packets == 0 && pair.sides[1].packets == 0;
        pair.sides[seen.side].count(seen.at, seen.length as u16, seen.flags);
        if before != NEVER {
            pair.sides[seen.side].count_gap(gap);
        }
        if seen.side == 0 {
            pair.set_owner(flow, place);
            continuation.first = seen.at;
            self.chunks[place] = continuation.chunk();
        }
        if is_first {
            hot.begin_record(packet);
            body.positions = [packet.position; 2];
        } else {
            body.reach(packet, hot.queue);
        }
        (true, is_first)
    }
}
