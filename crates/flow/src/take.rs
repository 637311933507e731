//! One packet after the other: which flow it belongs to, and what it adds to it.
//!
//! Packets are taken in batches, and for each batch lines are asked for level by level: the buckets, then what the buckets
//! point to, then what that points to. Of two million flows nothing is in cache; a core keeps some twenty misses in flight
//! if it may, but only one where each depends on the one before. A wrong guess costs a line and nothing else.
//!
//! PERF: 3.8 → 6.4 million packets per second with 200 000 conversations of 20 packets, 2.1 → 4.4 with 2 000 000 of two, records
//! included (records/2026-11-22-flow-metering.md; `docs/METER.md` has the bound, 8 to 10, and what it is made of). The plain
//! version is the model in the tests.

use crate::config::Packet;
use crate::entry::{Body, Entry, Hot, NO_LABEL, Rare, bit};
use crate::full::{self, Full};
use crate::key::{self, Key};
use crate::meter::{BATCH, Lane, Meter};
use crate::pair::Pair;
use crate::pool::NONE;
use crate::record::{EndReason, Sink, TcpState};
use crate::seen::{self, Seen};
use crate::slim::{self, Chunk, LOG};
use crate::tcp;
use wire::tcp_flags::{ACK, FIN, RST, SYN};

/// Flows of which a full table ends one.
const CANDIDATES: usize = 8;
/// Packets in which a handshake is expected, and the first of the other side.
const SHAKING: usize = 3;

impl Meter {
    /// Takes packets between which no second begins.
    pub(crate) fn run(&mut self, packets: &[Packet], lanes: &[Lane], sink: &mut dyn Sink) {
        for lanes in lanes.chunks(BATCH) {
            let mut guesses = [NONE; BATCH];
            let unknown = self.fetch(lanes, &mut guesses);
            self.victims.clear();
            if unknown > 0 && self.flows.is_full() {
                self.fetch_victims(unknown);
            }
            for (lane, guess) in lanes.iter().zip(guesses) {
                self.take(&packets[lane.index as usize], lane, guess, sink);
            }
        }
    }

    /// Asks for the lines that the packets will need, and notes which flow each probably belongs to; how many belong to
    /// none. Their buckets were asked for when their hashes were made.
    fn fetch(&self, lanes: &[Lane], guesses: &mut [u32; BATCH]) -> usize {
        let mut unknown = 0;
        for (guess, lane) in guesses.iter_mut().zip(lanes) {
            match self.table.guess(lane.hash) {
                Some(flow) => {
                    *guess = flow;
                    self.fetch_entry(flow);
                }
                None => unknown += 1,
            }
        }
        for (guess, lane) in guesses.iter().zip(lanes).filter(|(g, _)| **g != NONE) {
            self.fetch_rest(*guess, &lane.key);
        }
        unknown
    }

    #[inline(always)]
    pub(crate) fn fetch_entry(&self, flow: u32) {
        let Entry { hot, body } = &self.flows[flow];
        self.hints.fetch(hot);
        self.hints.fetch(body);
    }

    /// Asks for what a packet with this key needs of a flow besides its entry.
    #[inline(always)]
    fn fetch_rest(&self, flow: u32, key: &Key) {
        let hot = &self.flows[flow].hot;
        let packets = usize::from(hot.packets);
        match hot.bits & (bit::FULL | bit::PAIR) {
            bit::PAIR => self.hints.fetch(&self.pairs[hot.more].sides[hot.side(key)]),
            bit::FULL => self.fulls[hot.more].sides[hot.side(key)].fetch(&self.hints),
            _ => {
                // The handshake is in the first packets, and the eleventh reads all that is known.
                if packets < SHAKING || packets == LOG {
                    self.hints.fetch(&self.rares[flow as usize]);
                }
                if hot.more != NONE {
                    let chunk = &self.chunks[hot.more];
                    self.hints.fetch(&chunk.log[packets.min(LOG - 1) - 1]);
                    if packets == LOG {
                        self.hints.fetch(chunk);
                    }
                }
            }
        }
    }

    /// The same for the flows that will probably end because so many begin. What is found out about them is kept: as long
    /// as nothing else ends a flow, they are what they were.
    fn fetch_victims(&mut self, count: usize) {
        let all = self.flows.len() as u32;
        if all < (CANDIDATES * BATCH) as u32 {
            return;
        }
        let hand = |turn: u32| if self.hand + turn < all { self.hand + turn } else { self.hand + turn - all };
        for turn in 0..(count * CANDIDATES) as u32 {
            self.hints.fetch(&self.flows[hand(turn)].hot);
        }
        for turn in 0..count as u32 {
            let flow = self.oldest(hand(turn * CANDIDATES as u32));
            let known = self.known(flow);
            self.table.fetch(known.hash, &self.hints);
            self.hints.fetch(&self.flows[flow].body);
            self.victims.push((flow, known));
        }
        // The first is taken first.
        self.victims.reverse();
    }

    #[inline(always)]
    fn take(&mut self, packet: &Packet, lane: &Lane, guess: u32, sink: &mut dyn Sink) {
        self.counts.packets += 1;
        let mut seen = Seen::of(packet);
        // A packet before this one may have ended the flow, and given its place to another.
        let found = if guess != NONE && self.is_same(&self.flows[guess].hot, &lane.key) {
            Some(guess)
        } else {
            self.table.find(lane.hash, |flow| self.is_same(&self.flows[flow].hot, &lane.key))
        };
        let Some(flow) = found else { return self.begin(packet, lane, seen, sink) };
        let hot = &self.flows[flow].hot;
        let again = tcp::is_over(hot.state) && seen.flags & (SYN | ACK) == SYN;
        if again || seen.at.saturating_sub(hot.last) >= self.timeout(hot) {
            // Its record is made when its own time is over; until then it keeps its place in the pool and on the wheel.
            self.table.remove(lane.hash, flow);
            self.flows[flow].hot.bits |= bit::DETACHED;
            return self.begin(packet, lane, seen, sink);
        }
        if seen.at < hot.last {
            self.counts.backward += 1;
            seen.at = hot.last;
        }
        seen.side = hot.side(&lane.key);
        self.add(flow, packet, &seen, sink);
    }

    #[inline(always)]
    fn is_same(&self, hot: &Hot, key: &Key) -> bool {
        // No bit of the difference may be left, so one comparison is enough.
        let ends = hot.ends.iter().zip(key.ends).fold(0, |all, (a, b)| all | (a ^ b));
        let rest = u64::from(hot.ports ^ key.ports) | u64::from(hot.protocol ^ key.protocol);
        let around = (hot.around ^ key.around) & self.keys.mask(key.tunnel);
        let bits = (hot.bits ^ bit::USED ^ if key.v6 { bit::V6 } else { 0 }) & (bit::USED | bit::V6 | bit::DETACHED);
        ends | rest | around | u64::from(bits) == 0 && self.keys.same_kind(hot.tunnel, key.tunnel)
    }

    fn begin(&mut self, packet: &Packet, lane: &Lane, mut seen: Seen, sink: &mut dyn Sink) {
        seen.side = 0;
        let flow = self.place(Hot::new(&lane.key, seen.at, packet.queue), sink);
        if self.table.insert(lane.hash, flow).is_err() {
            let idle = |f: &u32| self.flows[*f].hot.last;
            let victim = self.table.neighbours(lane.hash).min_by_key(idle).expect("a bucket that is full has flows");
            self.counts.crowded += 1;
            self.victims.clear();
            self.end(victim, self.known(victim), EndReason::Lack, sink);
            let entered = self.table.insert(lane.hash, flow);
            debug_assert!(entered.is_ok(), "the place that became free is in the bucket of this flow");
        }
        self.counts.begun += 1;
        self.counts.active += 1;
        let decoded = packet.decoded;
        let mut rare = Rare {
            mpls: decoded.mpls.unwrap_or(NO_LABEL),
            icmp: key::icmp_word(decoded),
            first_length: seen.length.min(u16::MAX.into()) as u16,
            ..Rare::default()
        };
        let Entry { hot, body } = &mut self.flows[flow];
        hot.bits |= if packet.position == Packet::NOWHERE { 0 } else { bit::LOCATED };
        if let Some(mac) = seen::mac(packet) {
            rare.macs[0] = mac.0;
            hot.bits |= bit::MAC[0];
        }
        self.rares[flow as usize] = rare;
        (body.start, body.positions) = (seen.at, [packet.position; 2]);
        body.sums[0].first_flags = seen.flags;
        let is_slim = body.sums[0].take(&seen, true);
        if seen.tcp {
            self.follow(flow, &seen);
        }
        if !is_slim {
            self.widen(flow);
            let full = &mut self.fulls[self.flows[flow].hot.more];
            full.sides[0] = full::Side::default();
            full.sides[0].add(&seen);
        }
        if let Some(payloads) = &mut self.payloads {
            payloads.begin(flow);
            payloads.keep(flow, packet, 0);
        }
        self.schedule(flow);
    }

    /// A place in the pools; in full ones, that of another flow.
    fn place(&mut self, hot: Hot, sink: &mut dyn Sink) -> u32 {
        if self.flows.is_full() {
            let victim = self.oldest(self.hand);
            self.hand = (self.hand + CANDIDATES as u32) % self.flows.len() as u32;
            let known = match self.victims.pop() {
                Some((flow, known)) if flow == victim => known,
                _ => self.known(victim),
            };
            self.end(victim, known, EndReason::Lack, sink);
        }
        let flow = self.flows.put(Entry { hot, body: Body::default() }).expect("there is a place");
        if self.rares.len() <= flow as usize {
            self.rares.push(Rare::default());
        }
        flow
    }

    /// Which of the flows that are next in turn has been idle longest.
    #[inline(always)]
    fn oldest(&self, hand: u32) -> u32 {
        let all = self.flows.len() as u32;
        let (mut oldest, mut last) = (hand, u64::MAX);
        for turn in 0..all.min(CANDIDATES as u32) {
            let flow = if hand + turn < all { hand + turn } else { hand + turn - all };
            let its = self.flows[flow].hot.last;
            // Chosen, not branched to: which is the oldest cannot be predicted.
            (oldest, last) = (if its < last { flow } else { oldest }, its.min(last));
        }
        oldest
    }

    /// Counts another packet of a flow.
    #[inline(always)]
    fn add(&mut self, flow: u32, packet: &Packet, seen: &Seen, sink: &mut dyn Sink) {
        let hot = &mut self.flows[flow].hot;
        hot.last = seen.at;
        let (bits, was_over) = (hot.bits, tcp::is_over(hot.state));
        if seen.tcp & ((seen.flags & (SYN | FIN | RST) != 0) | !tcp::is_settled(hot.state)) {
            self.follow(flow, seen);
        }
        let is_reply = seen.side == 1 && bits & bit::BACK == 0;
        if is_reply {
            self.flows[flow].hot.bits |= bit::BACK;
            if let Some(mac) = seen::mac(packet) {
                self.rares[flow as usize].macs[1] = mac.0;
                self.flows[flow].hot.bits |= bit::MAC[1];
            }
        }
        let is_counted = match bits & (bit::FULL | bit::PAIR) {
            bit::PAIR => self.add_to_pair(flow, packet, seen, is_reply),
            0 => self.add_to_list(flow, packet, seen, is_reply),
            _ => false,
        };
        let is_new_record = !is_counted && self.add_full(flow, packet, seen, sink);
        if let Some(payloads) = &mut self.payloads {
            payloads.keep(flow, packet, seen.side);
        }
        if is_new_record || tcp::is_over(self.flows[flow].hot.state) != was_over {
            self.wheel.remove(flow);
            self.schedule(flow);
        }
    }

    #[inline(always)]
    fn add_to_list(&mut self, flow: u32, packet: &Packet, seen: &Seen, is_reply: bool) -> bool {
        let Entry { hot, body } = &mut self.flows[flow];
        let after = seen.at - body.start;
        if usize::from(hot.packets) >= LOG {
            return self.pair(flow) && self.add_to_pair(flow, packet, seen, is_reply);
        }
        if !slim::is_exact(after) || !body.sums[seen.side].take(seen, is_reply) {
            return false;
        }
        if hot.more == NONE {
            hot.more = self.chunks.put(Chunk::default()).expect("there are as many chunks as flows");
        }
        self.chunks[hot.more].log[usize::from(hot.packets) - 1] = slim::pack(after, seen);
        hot.packets += 1;
        locate(&mut body.positions, packet, hot.queue);
        true
    }

    #[inline(always)]
    fn add_to_pair(&mut self, flow: u32, packet: &Packet, seen: &Seen, is_reply: bool) -> bool {
        let Entry { hot, body } = &mut self.flows[flow];
        let pair = &mut self.pairs[hot.more];
        let line = &pair.sides[seen.side];
        let is_room = line.fits(seen.at, seen.flags) && u32::from(line.packets) < self.most_packets;
        if !is_room || !body.sums[seen.side].take(seen, is_reply) {
            return false;
        }
        pair.sides[seen.side].count(seen.at, seen.length as u16, seen.flags);
        locate(&mut body.positions, packet, hot.queue);
        true
    }

    /// Counts a packet of a full flow, or of one that becomes it; whether it is the first of its record.
    #[inline(never)]
    fn add_full(&mut self, flow: u32, packet: &Packet, seen: &Seen, sink: &mut dyn Sink) -> bool {
        if !self.flows[flow].hot.has(bit::FULL) {
            self.widen(flow);
        }
        if self.fulls[self.flows[flow].hot.more].sides[seen.side].is_full(self.most_packets) {
            self.cut(flow, self.id(flow), sink);
        }
        let Entry { hot, body } = &mut self.flows[flow];
        let full = &mut self.fulls[hot.more];
        let is_first = full.sides[0].packets == 0 && full.sides[1].packets == 0;
        if is_first {
            body.positions = [packet.position; 2];
            hot.queue = packet.queue;
            let located = if packet.position == Packet::NOWHERE { 0 } else { bit::LOCATED };
            hot.bits = hot.bits & !bit::LOCATED | located;
        } else {
            locate(&mut body.positions, packet, hot.queue);
        }
        if full.part == 0 && usize::from(hot.packets) < self.config.early.min(u8::MAX.into()) {
            let word = slim::pack(seen.at - body.start, seen);
            if usize::from(hot.packets) < LOG {
                if full.chunk == NONE {
                    full.chunk = self.chunks.put(Chunk::default()).expect("there are as many chunks as flows");
                }
                self.chunks[full.chunk].log[usize::from(hot.packets) - 1] = word;
            } else {
                full.more.push(word);
            }
            hot.packets += 1;
        }
        full.sides[seen.side].add(seen);
        is_first
    }

    /// Moves the state of TCP on, and takes the times of the handshake.
    #[inline(never)]
    fn follow(&mut self, flow: u32, seen: &Seen) {
        let hot = &mut self.flows[flow].hot;
        let mut fins = (hot.bits >> bit::FINS) as u8 & 3;
        let before = hot.state;
        hot.state = tcp::next(before, &mut fins, seen, self.config.bidirectional);
        hot.bits |= u16::from(fins) << bit::FINS;
        if before == TcpState::Established || before == TcpState::Midstream {
            return;
        }
        let rare = &mut self.rares[flow as usize];
        let mut shake = rare.shake;
        match (before, hot.state) {
            // The last of several SYNs, so that a lost one is not taken for a long way.
            (_, TcpState::SynSent) if seen.side == 0 && seen.flags & SYN != 0 => shake[0] = seen.at,
            (TcpState::SynSent, TcpState::SynReceived) => {
                shake = [seen.at - shake[0], seen.at];
                hot.bits |= bit::SYN_RTT;
            }
            (TcpState::SynReceived, TcpState::SynReceived) if seen.side == 1 && seen.flags & SYN != 0 => {
                shake[1] = seen.at;
            }
            (TcpState::SynReceived, TcpState::Established) => {
                shake[1] = seen.at - shake[1];
                hot.bits |= bit::ACK_RTT;
            }
            _ => return,
        }
        rare.shake = shake;
    }

    /// Lets a flow with a full list count in a pair; not if the list is to go on.
    #[inline(never)]
    fn pair(&mut self, flow: u32) -> bool {
        if self.config.early > LOG {
            return false;
        }
        let mut pair = self.unfold(flow);
        let hot = &mut self.flows[flow].hot;
        pair.set_chunk(hot.more);
        hot.more = self.pairs.put(pair).expect("there are as many pairs as flows");
        hot.bits |= bit::PAIR;
        true
    }

    /// Makes a flow a full one. What it counted stays.
    #[inline(never)]
    pub(crate) fn widen(&mut self, flow: u32) {
        let Entry { hot, body } = &self.flows[flow];
        let (pair, chunk) = if hot.has(bit::PAIR) {
            let pair = self.pairs[hot.more];
            self.pairs.free(hot.more);
            (pair, pair.chunk())
        } else {
            (self.unfold(flow), hot.more)
        };
        let mut full = Full { chunk, ..Full::default() };
        for (n, side) in full.sides.iter_mut().enumerate() {
            side.take_over(&pair.sides[n], pair.first(n, body.start));
            side.complete(&body.sums[n]);
        }
        let more = self.fulls.put(full).expect("there are as many full flows as flows");
        let hot = &mut self.flows[flow].hot;
        hot.more = more;
        hot.bits = hot.bits & !bit::PAIR | bit::FULL;
    }

    /// The counters of a slim flow, as if it had had them from the beginning.
    #[inline(always)]
    pub(crate) fn unfold(&self, flow: u32) -> Pair {
        let Entry { hot, body } = &self.flows[flow];
        let mut pair = Pair::new();
        pair.sides[0].count(body.start, self.rares[flow as usize].first_length, body.sums[0].first_flags);
        if hot.more != NONE {
            for word in &self.chunks[hot.more].log[..usize::from(hot.packets) - 1] {
                let early = slim::unpack(*word);
                pair.sides[usize::from(early.reverse)].count(body.start + early.after, early.length, early.flags);
            }
        }
        pair
    }
}

/// The record reaches to this packet, if it lies in the same stream as its first.
#[inline(always)]
fn locate(positions: &mut [u64; 2], packet: &Packet, queue: u16) {
    if packet.queue == queue && packet.position != Packet::NOWHERE {
        positions[1] = packet.position;
    }
}
