//! The flow table at work: packets in, records out, everything decided by the packets and their time.
//!
//! Time passes in whole seconds, when a packet or a tick of a later second comes: then records are made whose timeouts are
//! over, those of an earlier second first, within a second by the flow's last packet and then its id. So their order
//! has nothing to do with the order in the table, nor with when somebody looked. Whether a packet still belongs to
//! a flow is decided to the nanosecond by its own time, so a tick that comes late or not at all changes no record.
//!
//! A full table ends, for each flow that it cannot take, the one that has been idle longest among [`CANDIDATES`] that are
//! next in turn: what a flood brings is older than what talks. Work per packet is bounded whatever comes: one search of at
//! most eight buckets, one eviction. Memory is bounded by the capacity.

use crate::config::{Config, Packet, nanos};
use crate::counts::Counts;
use crate::entry::{Cold, Hot, NO_LABEL, bit};
use crate::full::{self, Full};
use crate::key::{self, Key, Keys};
use crate::losses::Losses;
use crate::payload::Payloads;
use crate::pool::{NONE, Pool};
use crate::record::{EndReason, Record, Sink, TcpState};
use crate::render;
use crate::seen::{self, Seen};
use crate::slim::{self, Chunk, LOG};
use crate::table::Table;
use crate::tcp;
use crate::wheel::Wheel;
use base::Timestamp;
use std::time::Duration;
use wire::tcp_flags::{ACK, SYN};

/// How far time may step back before the meter takes it for another clock: all flows are then ended
/// ([`EndReason::Forced`]), and time begins anew. Within it, a packet that comes late counts as of its flow's last one.
pub const STEP_BACK: Duration = Duration::from_secs(60);

/// Nanoseconds in one second.
const SECOND: u64 = 1_000_000_000;
/// Flows of which a full table ends one.
const CANDIDATES: usize = 8;
/// Packets whose lines are fetched together: as many misses as a core keeps in flight, a few times over.
pub(crate) const BATCH: usize = 32;

/// A packet with what is known of it before its flow is.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub index: u32,
    pub hash: u64,
    pub key: Key,
}

/// Makes flow records of the packets of one interface. See the module.
pub struct Meter {
    pub(crate) config: Config,
    pub(crate) interface: u16,
    pub(crate) keys: Keys,
    idle: Box<[u64; 256]>,
    active: Option<u64>,
    linger: u64,
    table: Table,
    pub(crate) hot: Pool<Hot>,
    pub(crate) cold: Vec<Cold>,
    pub(crate) chunks: Pool<Chunk>,
    pub(crate) fulls: Pool<Full>,
    pub(crate) payloads: Option<Payloads>,
    wheel: Wheel,
    pub(crate) losses: Losses,
    /// The second that has begun, once there is one.
    second: Option<u64>,
    /// Where the search for a flow to end goes on.
    hand: u32,
    /// Flows whose timeouts are over in this second, in the order of their records.
    due: Vec<(u64, u32)>,
    counts: Counts,
    /// Most packets of one side in one record; a field, so that tests need not send 2^32.
    pub(crate) most_packets: u32,
    /// Lent to the sink, and written over.
    record: Option<Record>,
}

impl Meter {
    /// A meter without flows.
    pub fn new(config: Config, interface: u16) -> Self {
        let capacity = config.capacity.clamp(1, Config::MOST_FLOWS);
        Self {
            keys: Keys::new(config.seed, config.levels),
            idle: config.idle_nanos(),
            active: config.active.map(nanos),
            linger: nanos(config.linger),
            table: Table::new(capacity),
            hot: Pool::new(capacity),
            cold: Vec::with_capacity(capacity),
            chunks: Pool::new(capacity),
            fulls: Pool::new(capacity),
            payloads: (config.payload > 0).then(|| Payloads::new(config.payload)),
            wheel: Wheel::new(capacity),
            losses: Losses::default(),
            second: None,
            hand: 0,
            due: Vec::new(),
            counts: Counts::default(),
            most_packets: full::MOST_PACKETS,
            record: None,
            interface,
            config,
        }
    }

    /// Takes packets in the order in which they came. Time passes with them.
    pub fn push(&mut self, packets: &[Packet], sink: &mut dyn Sink) {
        let mut lanes = Vec::with_capacity(BATCH);
        for (index, packet) in packets.iter().enumerate() {
            let second = packet.ts.secs();
            if self.is_other_second(second) {
                self.run(packets, &lanes, sink);
                lanes.clear();
                pass(std::slice::from_mut(self), second, sink);
            }
            match self.lane(packet, index) {
                Some(lane) => lanes.push(lane),
                None => self.counts.other += 1,
            }
            if lanes.len() == BATCH {
                self.run(packets, &lanes, sink);
                lanes.clear();
            }
        }
        self.run(packets, &lanes, sink);
    }

    /// Time has passed, with or without packets: none before `now` will come.
    pub fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        if self.is_other_second(now.secs()) {
            pass(std::slice::from_mut(self), now.secs(), sink);
        }
    }

    /// Makes the records of all flows and forgets them.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        end_all(std::slice::from_mut(self), sink);
    }

    /// The interface lost packets in a second: records that lie in it will say so.
    pub fn lost(&mut self, second: u64, packets: u64) {
        self.losses.add(second, packets);
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        let tables = self.table.bytes() + self.hot.bytes() + self.cold.len() * size_of::<Cold>();
        let pools = self.chunks.bytes() + self.fulls.bytes() + self.wheel.bytes();
        let rest = self.payloads.as_ref().map_or(0, Payloads::bytes) + self.due.capacity() * size_of::<(u64, u32)>();
        Counts { bytes: (tables + pools + rest) as u64, ..self.counts }
    }

    /// Whether time passes with this second, or steps back too far.
    #[inline(always)]
    pub(crate) fn is_other_second(&self, second: u64) -> bool {
        self.second.is_none_or(|now| second > now || second + STEP_BACK.as_secs() < now)
    }

    #[inline(always)]
    pub(crate) fn lane(&self, packet: &Packet, index: usize) -> Option<Lane> {
        let key = Key::of(packet, self.config.bidirectional)?;
        Some(Lane { index: index as u32, hash: self.keys.hash(&key), key })
    }

    pub(crate) fn count_other(&mut self) {
        self.counts.other += 1;
    }

    /// Takes packets between which no second begins.
    pub(crate) fn run(&mut self, packets: &[Packet], lanes: &[Lane], sink: &mut dyn Sink) {
        for lanes in lanes.chunks(BATCH) {
            self.fetch(lanes);
            for lane in lanes {
                self.take(&packets[lane.index as usize], lane, sink);
            }
        }
    }

    /// Reads the lines that the packets will need, level by level: the misses of one level are in flight together.
    fn fetch(&self, lanes: &[Lane]) {
        let mut touched = 0;
        for lane in lanes {
            touched ^= u64::from(self.table.touch(lane.hash));
        }
        let mut guesses = [NONE; BATCH];
        for (guess, lane) in guesses.iter_mut().zip(lanes) {
            *guess = self.table.guess(lane.hash).unwrap_or(NONE);
        }
        for guess in guesses.iter().filter(|g| **g != NONE) {
            let cold = &self.cold[*guess as usize];
            touched ^= self.hot[*guess].last ^ cold.start ^ u64::from(cold.first_flags);
        }
        for (guess, lane) in guesses.iter().zip(lanes).filter(|(g, _)| **g != NONE) {
            let hot = &self.hot[*guess];
            if hot.has(bit::FULL) {
                let side = usize::from(lane.key.turned != hot.has(bit::TURNED));
                touched ^= self.fulls[hot.more].touch(side);
            } else if hot.more != NONE {
                let chunk = &self.chunks[hot.more];
                touched ^= u64::from(chunk.back.payload) ^ chunk.log[usize::from(hot.packets).min(LOG - 1) - 1];
            }
        }
        std::hint::black_box(touched);
    }

    fn take(&mut self, packet: &Packet, lane: &Lane, sink: &mut dyn Sink) {
        self.counts.packets += 1;
        let mut seen = Seen::of(packet);
        seen.at = packet.ts.nanos();
        let found = self.table.find(lane.hash, |flow| self.is_same(&self.hot[flow], &lane.key));
        let Some(flow) = found else { return self.begin(packet, lane, seen, sink) };
        let hot = &self.hot[flow];
        let again = tcp::is_over(hot.state) && seen.flags & (SYN | ACK) == SYN;
        if again || seen.at.saturating_sub(hot.last) >= self.timeout(hot) {
            // Its record is made when its own time is over; until then it keeps its place in the pool and on the wheel.
            self.table.remove(lane.hash, flow);
            self.hot[flow].bits |= bit::DETACHED;
            return self.begin(packet, lane, seen, sink);
        }
        if seen.at < hot.last {
            self.counts.backward += 1;
            seen.at = hot.last;
        }
        seen.side = usize::from(lane.key.turned != hot.has(bit::TURNED));
        self.add(flow, packet, &seen, sink);
    }

    #[inline(always)]
    fn is_same(&self, hot: &Hot, key: &Key) -> bool {
        // No bit of the difference may be left, so one comparison is enough.
        let ends = hot.ends.iter().zip(key.ends).fold(0, |all, (a, b)| all | (a ^ b));
        let rest = u64::from(hot.ports ^ key.ports) | u64::from(hot.protocol ^ key.protocol);
        let around = (hot.around ^ key.around) & self.keys.mask(key.tunnel);
        ends | rest | around == 0 && hot.has(bit::V6) == key.v6 && self.keys.same_kind(hot.tunnel, key.tunnel)
    }

    /// After how many nanoseconds without a packet a flow is over.
    #[inline(always)]
    fn timeout(&self, hot: &Hot) -> u64 {
        if tcp::is_over(hot.state) { self.linger } else { self.idle[usize::from(hot.protocol)] }
    }

    fn begin(&mut self, packet: &Packet, lane: &Lane, mut seen: Seen, sink: &mut dyn Sink) {
        seen.side = 0;
        let flow = self.place(Hot::new(&lane.key, seen.at), sink);
        if self.table.insert(lane.hash, flow).is_err() {
            let idle = |f: &u32| self.hot[*f].last;
            let victim = self.table.neighbours(lane.hash).min_by_key(idle).expect("a bucket that is full has flows");
            self.counts.crowded += 1;
            self.end(victim, EndReason::Lack, sink);
            let entered = self.table.insert(lane.hash, flow);
            debug_assert!(entered.is_ok(), "the place that became free is in the bucket of this flow");
        }
        self.counts.begun += 1;
        self.counts.active += 1;
        let decoded = packet.decoded;
        let cold = &mut self.cold[flow as usize];
        *cold = Cold {
            start: seen.at,
            positions: [packet.position; 2],
            mpls: decoded.mpls.unwrap_or(NO_LABEL),
            queue: packet.queue,
            icmp: key::icmp_word(decoded),
            first_length: seen.length.min(u16::MAX.into()) as u16,
            first_flags: seen.flags,
            ..Cold::default()
        };
        let hot = &mut self.hot[flow];
        hot.bits |= if packet.position == Packet::NOWHERE { 0 } else { bit::LOCATED };
        if let Some(mac) = seen::mac(packet) {
            cold.macs[0] = mac.0;
            hot.bits |= bit::MAC[0];
        }
        let is_slim = cold.side.take(&seen, true);
        self.follow(flow, &seen);
        if !is_slim {
            self.widen(flow);
            let full = &mut self.fulls[self.hot[flow].more];
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
        loop {
            if let Some(flow) = self.hot.put(hot.clone()) {
                if self.cold.len() <= flow as usize {
                    self.cold.push(Cold::default());
                }
                return flow;
            }
            let all = self.hot.len() as u32;
            let turn = (0..all.min(CANDIDATES as u32)).map(|i| (self.hand + i) % all);
            let victim = turn.min_by_key(|f| self.hot[*f].last).expect("a capacity is at least 1");
            self.hand = (self.hand + CANDIDATES as u32) % all;
            self.end(victim, EndReason::Lack, sink);
        }
    }

    /// Counts another packet of a flow.
    #[inline(always)]
    fn add(&mut self, flow: u32, packet: &Packet, seen: &Seen, sink: &mut dyn Sink) {
        self.hot[flow].last = seen.at;
        let was_over = tcp::is_over(self.hot[flow].state);
        if seen.tcp {
            self.follow(flow, seen);
        }
        let is_reply = seen.side == 1 && !self.hot[flow].has(bit::BACK);
        if is_reply && let Some(mac) = seen::mac(packet) {
            self.cold[flow as usize].macs[1] = mac.0;
            self.hot[flow].bits |= bit::MAC[1];
        }
        let mut is_new_record = false;
        if self.hot[flow].has(bit::FULL) || !self.add_slim(flow, packet, seen, is_reply) {
            if !self.hot[flow].has(bit::FULL) {
                self.widen(flow);
            }
            is_new_record = self.add_full(flow, packet, seen, sink);
        }
        self.hot[flow].bits |= if seen.side == 1 { bit::BACK } else { 0 };
        if let Some(payloads) = &mut self.payloads {
            payloads.keep(flow, packet, seen.side);
        }
        if is_new_record || tcp::is_over(self.hot[flow].state) != was_over {
            self.wheel.remove(flow);
            self.schedule(flow);
        }
    }

    #[inline(always)]
    fn add_slim(&mut self, flow: u32, packet: &Packet, seen: &Seen, is_reply: bool) -> bool {
        let hot = &mut self.hot[flow];
        let cold = &mut self.cold[flow as usize];
        let after = seen.at - cold.start;
        if usize::from(hot.packets) >= LOG || !slim::is_exact(after) {
            return false;
        }
        if hot.more == NONE {
            hot.more = self.chunks.put(Chunk::default()).expect("there are as many chunks as flows");
        }
        let chunk = &mut self.chunks[hot.more];
        let side = if seen.side == 0 { &mut cold.side } else { &mut chunk.back };
        if !side.take(seen, is_reply) {
            return false;
        }
        chunk.log[usize::from(hot.packets) - 1] = slim::pack(after, seen);
        hot.packets += 1;
        locate(&mut cold.positions, packet, cold.queue);
        true
    }

    /// Counts a packet of a full flow; whether it is the first of its record.
    fn add_full(&mut self, flow: u32, packet: &Packet, seen: &Seen, sink: &mut dyn Sink) -> bool {
        if self.fulls[self.hot[flow].more].sides[seen.side].is_full(self.most_packets) {
            self.cut(flow, sink);
        }
        let hot = &mut self.hot[flow];
        let cold = &mut self.cold[flow as usize];
        let full = &mut self.fulls[hot.more];
        let is_first = full.sides[0].packets == 0 && full.sides[1].packets == 0;
        if is_first {
            full.positions = [packet.position; 2];
            cold.queue = packet.queue;
            let located = if packet.position == Packet::NOWHERE { 0 } else { bit::LOCATED };
            hot.bits = hot.bits & !bit::LOCATED | located;
        } else {
            locate(&mut full.positions, packet, cold.queue);
        }
        if full.part == 0 && usize::from(hot.packets) < self.config.early.min(u8::MAX.into()) {
            let word = slim::pack(seen.at - cold.start, seen);
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
    fn follow(&mut self, flow: u32, seen: &Seen) {
        let hot = &mut self.hot[flow];
        let mut fins = (hot.bits >> bit::FINS) as u8 & 3;
        let before = hot.state;
        hot.state = tcp::next(before, &mut fins, seen, self.config.bidirectional);
        hot.bits |= u16::from(fins) << bit::FINS;
        if before == TcpState::Established || before == TcpState::Midstream {
            return;
        }
        let shake = &mut self.cold[flow as usize].shake;
        match (before, hot.state) {
            // The last of several SYNs, so that a lost one is not taken for a long way.
            (_, TcpState::SynSent) if seen.side == 0 && seen.flags & SYN != 0 => shake[0] = seen.at,
            (TcpState::SynSent, TcpState::SynReceived) => {
                *shake = [seen.at - shake[0], seen.at];
                hot.bits |= bit::SYN_RTT;
            }
            (TcpState::SynReceived, TcpState::SynReceived) if seen.side == 1 && seen.flags & SYN != 0 => {
                shake[1] = seen.at;
            }
            (TcpState::SynReceived, TcpState::Established) => {
                shake[1] = seen.at - shake[1];
                hot.bits |= bit::ACK_RTT;
            }
            _ => (),
        }
    }

    /// Makes a slim flow a full one. What it counted stays.
    fn widen(&mut self, flow: u32) {
        let sides = self.unfold(flow);
        let chunk = self.hot[flow].more;
        let full = Full { sides, positions: self.cold[flow as usize].positions, part: 0, chunk, more: Vec::new() };
        self.hot[flow].more = self.fulls.put(full).expect("there are as many full flows as flows");
        self.hot[flow].bits |= bit::FULL;
    }

    /// The counters of a slim flow, as if it had been full from the beginning.
    pub(crate) fn unfold(&self, flow: u32) -> [full::Side; 2] {
        let (hot, cold) = (&self.hot[flow], &self.cold[flow as usize]);
        let mut sides = [full::Side::default(), full::Side::default()];
        sides[0].count(cold.start, cold.first_length.into(), cold.first_flags);
        let none = Chunk::default();
        let chunk = if hot.more == NONE { &none } else { &self.chunks[hot.more] };
        for word in &chunk.log[..usize::from(hot.packets) - 1] {
            let early = slim::unpack(*word);
            sides[usize::from(early.reverse)].count(cold.start + early.after, early.length.into(), early.flags);
        }
        for (side, slim) in sides.iter_mut().zip([&cold.side, &chunk.back]) {
            side.complete(slim);
        }
        sides
    }

    /// Puts a flow that is not on the wheel where it belongs.
    fn schedule(&mut self, flow: u32) {
        let now = self.second.expect("a flow has had a packet, and the packet a second");
        let due = self.deadline(flow).div_ceil(SECOND);
        self.wheel.put(flow, due.max(now + 1), now);
    }

    /// When there will be something to do for a flow if no packet comes.
    fn deadline(&self, flow: u32) -> u64 {
        let hot = &self.hot[flow];
        let idle = hot.last.saturating_add(self.timeout(hot));
        let active = self.active.filter(|_| !hot.has(bit::DETACHED)).zip(self.first(flow));
        active.map_or(idle, |(active, first)| idle.min(first.saturating_add(active)))
    }

    /// When the record began that is being made; `None` if it has no packet yet.
    fn first(&self, flow: u32) -> Option<u64> {
        let hot = &self.hot[flow];
        if hot.has(bit::FULL) { self.fulls[hot.more].first() } else { Some(self.cold[flow as usize].start) }
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
                due.push((self.hot[flow].last, flow));
            }
        }
        self.sort(&mut due);
        self.due = due;
    }

    /// Brings flows into the order of their records: by the last packet, then by what only the flow decides.
    fn sort(&self, due: &mut [(u64, u32)]) {
        due.sort_unstable_by_key(|d| d.0);
        for run in due.chunk_by_mut(|a, b| a.0 == b.0).filter(|r| r.len() > 1) {
            run.sort_by_cached_key(|d| self.rank(d.1));
        }
    }

    /// Where a flow comes among those with the same last moment.
    fn rank(&self, flow: u32) -> (u64, u64) {
        (self.id(flow), self.positions(flow)[0])
    }

    /// Where the first and the last packet of the record lie that is being made.
    pub(crate) fn positions(&self, flow: u32) -> [u64; 2] {
        let hot = &self.hot[flow];
        if hot.has(bit::FULL) { self.fulls[hot.more].positions } else { self.cold[flow as usize].positions }
    }

    /// Makes the record of a flow that is due, and ends it or lets it go on.
    fn settle(&mut self, flow: u32, second: u64, sink: &mut dyn Sink) {
        let hot = &self.hot[flow];
        let idle = hot.last.saturating_add(self.timeout(hot));
        self.counts.lateness.count((second * SECOND).saturating_sub(self.deadline(flow)));
        if idle.div_ceil(SECOND) > second {
            self.cut(flow, sink);
            self.schedule(flow);
        } else {
            let reason = if tcp::is_over(hot.state) { EndReason::Ended } else { EndReason::Idle };
            self.release(flow, reason, sink);
        }
    }

    /// Makes an interim record; the flow goes on.
    fn cut(&mut self, flow: u32, sink: &mut dyn Sink) {
        if !self.hot[flow].has(bit::FULL) {
            self.widen(flow);
        }
        self.emit(flow, EndReason::Active, sink);
        let full = &mut self.fulls[self.hot[flow].more];
        full.sides = [full.sides[0].continued(), full.sides[1].continued()];
        full.part += 1;
        full.more = Vec::new();
        let chunk = std::mem::replace(&mut full.chunk, NONE);
        if chunk != NONE {
            self.chunks.free(chunk);
        }
    }

    /// Ends a flow that is on the wheel.
    fn end(&mut self, flow: u32, reason: EndReason, sink: &mut dyn Sink) {
        self.wheel.remove(flow);
        self.release(flow, reason, sink);
    }

    /// Ends a flow that is not on the wheel: makes its record, if there is anything to say, and gives back its places.
    fn release(&mut self, flow: u32, reason: EndReason, sink: &mut dyn Sink) {
        if self.first(flow).is_some() {
            self.emit(flow, reason, sink);
        } else {
            self.counts.silent += 1;
        }
        let hot = &self.hot[flow];
        let (full, more) = (hot.has(bit::FULL), hot.more);
        if !hot.has(bit::DETACHED) {
            self.table.remove(self.keys.hash(&hot.key()), flow);
        }
        self.hot[flow].bits = 0;
        let chunk = if full { self.fulls[more].chunk } else { more };
        if chunk != NONE {
            self.chunks.free(chunk);
        }
        if full {
            self.fulls[more].more = Vec::new();
            self.fulls.free(more);
        }
        self.hot.free(flow);
        self.counts.active -= 1;
    }

    fn emit(&mut self, flow: u32, reason: EndReason, sink: &mut dyn Sink) {
        let mut record = self.record.take().unwrap_or_else(render::blank);
        self.render(flow, reason, &mut record);
        self.counts.records[reason as usize] += 1;
        sink.record(&record);
        self.record = Some(record);
    }
}

/// The record reaches to this packet, if it lies in the same stream as its first.
fn locate(positions: &mut [u64; 2], packet: &Packet, queue: u16) {
    if packet.queue == queue && packet.position != Packet::NOWHERE {
        positions[1] = packet.position;
    }
}

/// Time passes to `second` for the shards of one table, whose records are then made in one order.
pub(crate) fn pass(shards: &mut [Meter], second: u64, sink: &mut dyn Sink) {
    let Some(now) = shards[0].second else {
        return shards.iter_mut().for_each(|s| s.second = Some(second));
    };
    if second < now {
        end_all(shards, sink);
        for shard in shards {
            shard.second = Some(second);
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
            in_order(shards, |shard, flow| shard.settle(flow, each, sink));
        }
    }
    shards.iter_mut().for_each(|s| s.second = Some(second));
}

/// Ends every flow: those that were over for what ended them, the others because there is no more.
pub(crate) fn end_all(shards: &mut [Meter], sink: &mut dyn Sink) {
    for shard in shards.iter_mut() {
        let used = (0..shard.hot.len() as u32).filter(|f| shard.hot[*f].has(bit::USED));
        let mut due: Vec<(u64, u32)> = used.map(|f| (shard.hot[f].last, f)).collect();
        shard.sort(&mut due);
        shard.due = due;
    }
    in_order(shards, |shard, flow| {
        let hot = &shard.hot[flow];
        let reason = match (tcp::is_over(hot.state), hot.has(bit::DETACHED)) {
            (true, _) => EndReason::Ended,
            (false, true) => EndReason::Idle,
            (false, false) => EndReason::Forced,
        };
        shard.end(flow, reason, sink);
    });
    shards.iter_mut().for_each(|s| s.due = Vec::new());
}

/// Calls `each` for all that is due, shards together in the order of the records.
fn in_order(shards: &mut [Meter], mut each: impl FnMut(&mut Meter, u32)) {
    if let [shard] = shards {
        let due = std::mem::take(&mut shard.due);
        due.iter().for_each(|d| each(shard, d.1));
        shard.due = due;
        return;
    }
    let mut next = vec![0; shards.len()];
    let rank = |shard: &Meter, at: usize| shard.due.get(at).map(|d| (d.0, shard.rank(d.1)));
    let mut heads: Vec<_> = shards.iter().map(|s| rank(s, 0)).collect();
    while let Some(first) = (0..shards.len()).filter(|i| heads[*i].is_some()).min_by_key(|i| heads[*i]) {
        let flow = shards[first].due[next[first]].1;
        each(&mut shards[first], flow);
        next[first] += 1;
        heads[first] = rank(&shards[first], next[first]);
    }
}
