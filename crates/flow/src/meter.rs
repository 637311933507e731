//! The flow table at work: packets in, records out, everything decided by the packets and their time.
//!
//! Time passes in whole seconds, when a packet or a tick of a later second comes: then records are made whose timeouts are
//! over, those of an earlier second first, within a second by the flow's last packet and then its id. So their order
//! has nothing to do with the order in the table, nor with when somebody looked. Whether a packet still belongs to
//! a flow is decided to the nanosecond by its own time, so a tick that comes late or not at all changes no record.
//!
//! A full table ends a flow for each that it cannot take ([`crate::begin`] has which). Work per packet is bounded whatever
//! comes: one search of at most eight buckets, one eviction. Memory is bounded by the capacity.

use crate::compact_counters::CompactCounters;
use crate::compressed::CompressedFlows;
use crate::config::{Config, Packet, nanos};
use crate::counts::Counts;
use crate::entry::Entry;
use crate::expiry::{StableFields, end_all, pass};
use crate::extra_fields::ExtraFields;
use crate::flow_packet::FlowPacket;
use crate::key::Keys;
use crate::losses::Losses;
use crate::memory::{Hints, HintsExt, NoHints};
use crate::order::Due;
use crate::packet_list::PacketList;
use crate::payload::Payloads;
use crate::pool::Pool;
use crate::prefetch::{AHEAD, Pipeline};
use crate::record::{Record, Sink};
use crate::table::Table;
use crate::tunnel_sequences::TunnelSequences;
use crate::wheel::Wheel;
use crate::wide_counters::{self, WideCounters};
use base::Timestamp;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// How far time may step back before the meter takes it for another clock: all flows are then ended
/// ([`crate::EndReason::ForcedEnd`]), and time begins anew. Within it, a packet that comes late counts as of its flow's last one.
pub const STEP_BACK: Duration = Duration::from_secs(60);

/// What a tick does for flows that want to rest, as if so many batches of so many packets had come: that there are few packets is
/// no reason to keep them awake.
const COMPRESS_BATCHES_PER_TICK: usize = 32;
const BATCH: usize = 256;

/// Nanoseconds in one second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Makes flow records of the packets of one interface. See the module.
pub struct Meter<H = NoHints> {
    pub(crate) config: Config,
    pub(crate) interface: u16,
    pub(crate) hints: H,
    pub(crate) keys: Keys,
    pub(crate) idle: Box<[u64; 256]>,
    pub(crate) active: Option<u64>,
    pub(crate) linger: u64,
    pub(crate) table: Table,
    pub(crate) flows: Pool<Entry>,
    /// One for each place of `flows` up to the last that had an IPv6 flow.
    pub(crate) rares: Vec<ExtraFields>,
    pub(crate) chunks: Pool<PacketList>,
    pub(crate) pairs: Pool<CompactCounters>,
    pub(crate) fulls: Pool<WideCounters>,
    pub(crate) payloads: Option<Payloads>,
    pub(crate) numbers: TunnelSequences,
    pub(crate) rest: CompressedFlows,
    pub(crate) wheel: Wheel,
    pub(crate) losses: Losses,
    /// The second that has begun, once there is one.
    pub(crate) second: Option<u64>,
    /// Where the search for a flow to end goes on.
    pub(crate) hand: u32,
    /// The same, as far as it was looked ahead.
    pub(crate) ahead: u32,
    /// Flows that will probably make room for those that begin in the packets at hand, the next one first.
    pub(crate) eviction_candidates: VecDeque<(u32, u64, StableFields)>,
    /// Flows whose timeouts are over in this second, in the order of their records.
    pub(crate) due: Due,
    pub(crate) counts: Counts,
    /// Most packets of one side in one record; a field, so that tests need not send 2^32.
    pub(crate) most_packets: u32,
    /// Lent to the sink, and written over.
    pub(crate) record: Option<Box<Record>>,
    /// Empty between two calls of [`Meter::push`], which takes it.
    pub(crate) pipeline: Option<Box<Pipeline>>,
}

impl Meter {
    /// A meter without flows.
    pub fn new(config: Config, interface: u16) -> Self {
        Self::with_hints(config, interface, NoHints)
    }
}

impl<H: Hints> Meter<H> {
    /// The same, for whoever can make memory quicker to reach.
    pub fn with_hints(config: Config, interface: u16, hints: H) -> Self {
        let capacity = config.capacity.clamp(1, Config::MAX_FLOWS);
        Self {
            keys: Keys::new(config.seed, config.key_fields),
            idle: config.idle_nanos(),
            active: config.active_timeout.map(nanos),
            linger: nanos(config.close_timeout),
            table: Table::new(capacity, hints),
            flows: Pool::new(capacity, hints),
            rares: hints.reserve(capacity),
            chunks: Pool::new(capacity, hints),
            pairs: Pool::new(capacity, hints),
            fulls: Pool::new(capacity, hints),
            payloads: (config.payload > 0).then(|| Payloads::new(config.payload)),
            numbers: TunnelSequences::default(),
            rest: CompressedFlows::new(nanos(config.compress_after), capacity, hints),
            wheel: Wheel::new(capacity, hints),
            losses: Losses::default(),
            second: None,
            hand: 0,
            ahead: 0,
            eviction_candidates: VecDeque::with_capacity(2 * AHEAD),
            due: Due::default(),
            counts: Counts::default(),
            most_packets: wide_counters::MAX_PACKETS,
            record: None,
            pipeline: Some(Box::new(Pipeline::new())),
            interface,
            config,
            hints,
        }
    }

    /// Time has passed, with or without packets: none before `now` will come.
    pub fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        if self.is_other_second(now.secs()) {
            pass(std::slice::from_mut(self), now.secs(), sink);
        }
        self.compress_idle_flows();
    }

    /// Lets flows rest, as if packets had come.
    pub(crate) fn compress_idle_flows(&mut self) {
        (0..COMPRESS_BATCHES_PER_TICK).for_each(|_| self.compress_idle(BATCH));
    }

    /// Makes the records of all flows and forgets them. Whatever packet comes next, time begins with it.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        end_all(std::slice::from_mut(self), sink);
        self.second = None;
    }

    /// The interface lost packets in a second: records that lie in it will say so.
    pub fn lost(&mut self, second: u64, packets: u64) {
        self.losses.add(second, packets);
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        let rares = self.rares.len() * size_of::<ExtraFields>();
        let tables = self.table.bytes() + self.flows.bytes() + rares + self.wheel.bytes();
        let pools = self.chunks.bytes() + self.pairs.bytes() + self.fulls.bytes() + self.rest.bytes();
        let rest = self.payloads.as_ref().map_or(0, Payloads::bytes) + self.numbers.bytes() + self.due.bytes();
        let held = self.table.bytes() + self.flows.held() + rares + Wheel::bytes_of(self.counts.active);
        let pools_held = self.chunks.held() + self.pairs.held() + self.fulls.held() + self.rest.held();
        Counts {
            bytes: (tables + pools + rest) as u64,
            held: (held + pools_held + rest) as u64,
            compressed: self.rest.count,
            ..self.counts
        }
    }

    /// Whether time passes with this second, or steps back too far.
    #[inline(always)]
    pub(crate) fn is_other_second(&self, second: u64) -> bool {
        self.second.is_none_or(|now| second > now || second + STEP_BACK.as_secs() < now)
    }

    /// The nanoseconds in which no other second begins; none before the first.
    #[inline(always)]
    pub(crate) fn calm(&self) -> Range<u64> {
        self.second.map_or(0..0, |now| now * SECOND..now.saturating_add(1).saturating_mul(SECOND))
    }

    /// Writes what a packet says into a lane; not if it is not IP.
    #[inline(always)]
    pub(crate) fn lane(&self, packet: &Packet, index: usize, lane: &mut FlowPacket) -> bool {
        lane.set(packet, index, &self.keys, self.config.bidirectional)
    }

    pub(crate) fn count_other(&mut self) {
        self.counts.other += 1;
    }
}
