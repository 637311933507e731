//! Idle-compressed flows: packet list and counters of a flow that had no packet for `compress_after` are encoded
//! ([`crate::compress`]) and their memory is freed, until a packet or a record needs them again. Only flows that have
//! counters (compact counters of 128 bytes, or wide counters of 448 bytes) are compressed.
//!
//! ```text
//! entry   key, last packet, state, first packet        unchanged
//!         position of the last packet, sums of both    replaced by the first 64 bytes of the encoding
//!         directions, handshake, MAC addresses
//! slab    16 to 256 bytes                              the remainder of the encoding: crate::slab; Hot::more is the
//! slot
//! ```
//! The fields that the table lookup, the timer wheel and the comparison of keys need stay in the entry, so these need
//! no decompression. The first part of the encoding takes the place of fields of the entry that the encoding contains.
//! The remainder of the encoding takes a slot of the slab.
//!
//! Compression changes no record. To find idle flows, the meter inspects the pools of compact and wide counters slot by
//! slot, in a cycle. With each batch of packets it inspects just enough slots that a complete cycle takes the time
//! `compress_after`, so no batch takes long. A flow stays uncompressed if the slab is full or the encoding of the flow
//! is too long.
//!
//! A short flow has only a packet list and is not compressed.

use super::interim::RecordContinuation;
use super::{Meter, SECOND};
use crate::compact_counters::{CompactCounters, CompactDirection};
use crate::compress::{self, CompressedHead, EntryFields, FlowState};
use crate::entry::{Entry, Hot, bit};
use crate::macs::Macs;
use crate::packet_list::{LOG, ListSums, PacketList};
use crate::pool::NONE;
use crate::slab::{MAX_WORDS, Slab};
use crate::wide_counters::{NEVER, WideCounters};
use base::memory::Hints;
use wire::IpProtocol;

/// Number of 64-bit words of the encoding that are stored in the flow's entry.
const INLINE: usize = 8;
/// Bytes of the slab for each flow of [`crate::Config::capacity`]: somewhat more than the encoding of a flow with
/// retransmissions takes.
const SLAB_BYTES: usize = 112;
/// The number of slots inspected for each packet of a batch, the least number of slots inspected for each batch, and
/// the number of packets per compressed flow. The last number bounds the cost if every flow is decompressed soon after
/// its compression: compression and decompression take some 11 000 instructions together, once per 16 packets.
const SWEEPS: usize = 2;
const SWEEP_MIN: usize = 256;
const PACKETS: usize = 16;
/// The largest number of flows that are compressed after one batch of packets.
const MAX: usize = 32;
/// The `last` timestamp of a free slot, which the sweep skips.
const NO_TIME: u64 = u64::MAX;

/// The state of the sweep: the repeated inspection of all slots of one pool, which finds idle flows.
#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    at: usize,
    /// Number of slots that the sweep still has to inspect in this second.
    left: usize,
}

impl Sweep {
    /// The next slot to inspect, in a pool of `all` slots.
    fn turn(&mut self, all: usize) -> usize {
        let at = if self.at < all { self.at } else { 0 };
        (self.at, self.left) = (at + 1, self.left - 1);
        at
    }
}

/// The meter's state for all compressed flows.
pub(crate) struct CompressedFlows {
    /// Nanoseconds without a packet after which a flow is compressed (0: never), and the same in whole seconds.
    after: u64,
    seconds: usize,
    pub slab: Slab,
    macs: Macs,
    /// The second for which the numbers of slots to inspect were computed.
    second: u64,
    pairs: Sweep,
    fulls: Sweep,
    /// Current number of compressed flows.
    pub count: u64,
}

impl CompressedFlows {
    pub fn new(after: u64, capacity: usize, hints: impl Hints) -> Self {
        let bytes = if after == 0 { 0 } else { capacity.saturating_mul(SLAB_BYTES).max(1 << 16) };
        let seconds = after.div_ceil(SECOND).max(1) as usize;
        let (pairs, fulls) = (Sweep::default(), Sweep::default());
        Self { after, seconds, slab: Slab::new(bytes, hints), macs: Macs::new(), second: 0, pairs, fulls, count: 0 }
    }

    /// Bytes touched so far.
    pub fn bytes(&self) -> usize {
        self.slab.bytes() + self.macs.bytes()
    }

    /// Bytes in use.
    pub fn held(&self) -> usize {
        self.slab.held() + self.macs.bytes()
    }

    pub fn clear(&mut self) {
        self.slab.clear();
        self.macs.clear();
        self.count = 0;
        // The pools are empty, so the meter has no slot left to inspect in this second.
        (self.pairs, self.fulls) = (Sweep::default(), Sweep::default());
    }
}

impl<H: Hints> Meter<H> {
    /// Compresses some of the idle flows. The number of packets in the batch limits how many slots the function
    /// inspects.
    #[inline(always)]
    pub(crate) fn compress_idle(&mut self, packets: usize) {
        let Some(second) = self.second else { return };
        let compressed = &mut self.compressed;
        if compressed.second != second && compressed.after > 0 {
            compressed.second = second;
            compressed.pairs.left = self.pairs.len().div_ceil(compressed.seconds);
            compressed.fulls.left = self.fulls.len().div_ceil(compressed.seconds);
        }
        if compressed.pairs.left + compressed.fulls.left > 0 {
            self.compress_some(packets, second);
        }
    }

    #[inline(never)]
    fn compress_some(&mut self, packets: usize, second: u64) {
        // A flow whose last packet is not later than `before` is idle.
        let Some(before) = (second * SECOND).checked_sub(self.compressed.after) else { return };
        let (mut found, mut count) = ([NONE; MAX], 0);
        let most = (1 + packets / PACKETS).min(MAX);
        let mut looks = SWEEP_MIN + packets * SWEEPS;
        let (pairs, fulls) = (self.pairs.len(), self.fulls.len());
        while looks > 0 && count < most && self.compressed.pairs.left > 0 {
            let place = self.compressed.pairs.turn(pairs) as u32;
            let pair = &mut self.pairs[place];
            if pair.sides[0].last <= before && pair.sides[1].last <= before {
                let flow = pair.flow();
                if !is_own(&self.flows[flow].hot, bit::PAIR, place) {
                    pair.sides[0].last = NO_TIME;
                } else if self.flows[flow].hot.last <= before {
                    (found[count], count) = (flow, count + 1);
                }
            }
            looks -= 1;
        }
        while looks > 0 && count < most && self.compressed.fulls.left > 0 {
            let place = self.compressed.fulls.turn(fulls) as u32;
            let full = &mut self.fulls[place];
            if full.sides[0].last <= before && full.sides[1].last <= before {
                if !is_own(&self.flows[full.flow].hot, bit::FULL, place) {
                    full.sides[0].last = NO_TIME;
                } else if self.flows[full.flow].hot.last <= before {
                    (found[count], count) = (full.flow, count + 1);
                }
            }
            looks -= 1;
        }
        for flow in &found[..count] {
            self.fetch_entry(*flow);
            let _ = self.fetch_due(*flow, false);
        }
        found[..count].iter().for_each(|flow| self.compress_flow(*flow));
    }

    /// Compresses a flow, if the slab has space.
    fn compress_flow(&mut self, flow: u32) {
        let Some(mut state) = self.flow_state(flow) else { return };
        let fields = self.entry_fields(flow);
        for side in (0..2).filter(|side| fields.has_mac[*side]) {
            state.macs[side] = self.compressed.macs.name(self.rare(flow).mac(side));
        }
        let writer = compress::compress(&state, &fields);
        let words = writer.finish().expect("`compress` uses the loose form if a prediction does not hold");
        debug_assert_eq!(state, compress::decompress(words, &fields), "decompression restores the state");
        let (inline, beyond) = words.split_at(words.len().min(INLINE));
        let place = match beyond.len() {
            0 => NONE,
            1..=MAX_WORDS => match self.compressed.slab.put(beyond) {
                Some(place) => place,
                None => return,
            },
            _ => return,
        };
        self.compress_entry(flow);
        let hot = &mut self.flows[flow].hot;
        hot.bits |= bit::COMPRESSED;
        hot.more = place;
        let mut words = [0; INLINE];
        words[..inline.len()].copy_from_slice(inline);
        self.set_inline(flow, words);
        self.compressed.count += 1;
    }

    /// Frees the packet list and the counters of a flow, after its compression or its last record.
    #[cold]
    #[inline(never)]
    pub(crate) fn compress_entry(&mut self, flow: u32) {
        let hot = &self.flows[flow].hot;
        self.free_memory(hot.bits, hot.more);
    }

    /// Decompresses a flow to exactly its former state.
    #[inline(never)]
    pub(crate) fn decompress(&mut self, flow: u32) {
        let (fields, words) = (self.entry_fields(flow), self.words(flow));
        let FlowState { head, position, handshake, macs, log, sides } = compress::decompress(&words, &fields);
        let macs = macs.map(|name| self.compressed.macs.of(name));
        for side in (0..2).filter(|side| fields.has_mac[*side]) {
            self.rare_mut(flow).set_mac(side, macs[side]);
        }
        if !head.is_full {
            self.rare_mut(flow).set_handshake(handshake);
        }
        let Entry { hot, body } = &mut self.flows[flow];
        if hot.more != NONE {
            self.compressed.slab.free(hot.more);
        }
        self.compressed.count -= 1;
        hot.bits &= !bit::COMPRESSED;
        body.positions[1] = position;
        let mut chunk = NONE;
        if head.part == 0 && fields.listed > 1 {
            chunk = self.chunks.put(PacketList { log }).expect("the pool has a packet list for every flow");
        }
        if head.is_full {
            body.sums = [ListSums::unused(fields.first_flags), ListSums::unused(0)];
            let full =
                WideCounters { sides, flow, part: head.part, chunk, more: Vec::new(), handshake, label: head.label };
            hot.more = self.fulls.put(full).expect("the pool has wide counters for every flow");
            hot.bits |= bit::FULL;
            return;
        }
        body.sums = [ListSums::of(&sides[0], fields.first_flags), ListSums::of(&sides[1], 0)];
        let mut pair = CompactCounters { sides: [CompactDirection::of(&sides[0]), CompactDirection::of(&sides[1])] };
        if hot.has(bit::HAS_INTERIM_RECORD) {
            // If this record has no packet of direction 0, it has no timestamp of a first packet of direction 0.
            let continuation = RecordContinuation {
                before: [sides[0].before, sides[1].before],
                first: if sides[0].packets > 0 { sides[0].first } else { NEVER },
                part: head.part,
            };
            chunk = self.chunks.put(continuation.chunk()).expect("the pool has a packet list for every flow");
        }
        pair.set_owner(flow, chunk);
        hot.more = self.pairs.put(pair).expect("the pool has compact counters for every flow");
        hot.bits |= bit::PAIR;
    }

    /// The beginning of the encoding of a compressed flow, decoded without decompressing the flow.
    pub(crate) fn head(&self, flow: u32) -> CompressedHead {
        compress::peek(&self.inline(flow), &self.entry_fields(flow))
    }

    /// The state of a flow with counters, as input of the encoding; `None` if the flow has more initial packets than
    /// the packet list holds.
    fn flow_state(&self, flow: u32) -> Option<FlowState> {
        let Entry { hot, body } = &self.flows[flow];
        let is_full = hot.has(bit::FULL);
        let (sides, chunk, part, label, handshake) = if is_full {
            let full = &self.fulls[hot.more];
            if !full.more.is_empty() {
                return None;
            }
            (full.sides.clone(), full.chunk, full.part, full.label, full.handshake)
        } else {
            let pair = &self.pairs[hot.more];
            let continuation = self.continuation(hot.bits, pair);
            (
                self.widened(flow, pair, &continuation),
                pair.chunk(),
                continuation.part,
                None,
                self.rare(flow).handshake(),
            )
        };
        let mut log = [0; LOG - 1];
        if part == 0 && chunk != NONE {
            let listed = usize::from(hot.packets).min(LOG) - 1;
            log[..listed].copy_from_slice(&self.chunks[chunk].log[..listed]);
        }
        let head = CompressedHead { is_full, part, first: self.first(flow), label };
        Some(FlowState { head, position: body.positions[1], handshake, macs: [0; 2], log, sides })
    }

    fn entry_fields(&self, flow: u32) -> EntryFields {
        let Entry { hot, body } = &self.flows[flow];
        EntryFields {
            start: body.start,
            last: hot.last,
            position: body.positions[0],
            first_length: self.rare(flow).first_length(),
            first_flags: body.sums[0].first_flags,
            listed: usize::from(hot.packets).min(LOG),
            has_mac: bit::MAC.map(|bit| hot.has(bit)),
            is_tcp: hot.protocol == IpProtocol::TCP.0,
            is_v6: hot.has(bit::V6),
        }
    }

    /// The encoding of a compressed flow.
    fn words(&self, flow: u32) -> [u64; INLINE + MAX_WORDS] {
        let hot = &self.flows[flow].hot;
        let mut words = [0; INLINE + MAX_WORDS];
        words[..INLINE].copy_from_slice(&self.inline(flow));
        if hot.more != NONE {
            let beyond = self.compressed.slab.of(hot.more);
            words[INLINE..INLINE + beyond.len()].copy_from_slice(beyond);
        }
        words
    }

    /// The part of the encoding that is in the flow's entry.
    fn inline(&self, flow: u32) -> [u64; INLINE] {
        let body = &self.flows[flow].body;
        let [([a, b], i), ([c, d], j)] = body.sums.each_ref().map(ListSums::words);
        let ([e, f], g) = self.rare(flow).inner();
        [body.positions[1], a, b, c, d, e, f, u64::from(g) | u64::from(i) << 32 | u64::from(j) << 48]
    }

    fn set_inline(&mut self, flow: u32, [position, a, b, c, d, e, f, g]: [u64; INLINE]) {
        let body = &mut self.flows[flow].body;
        body.positions[1] = position;
        body.sums[0].set_words(([a, b], (g >> 32) as u16));
        body.sums[1].set_words(([c, d], (g >> 48) as u16));
        self.rare_mut(flow).set_inner(([e, f], g as u32));
    }
}

/// True if the flow uses the counters of this kind in this slot.
fn is_own(hot: &Hot, kind: u16, place: u32) -> bool {
    hot.bits & (bit::USED | bit::COMPRESSED) == bit::USED | kind && hot.more == place
}
