//! The meter: packets in, flow records out. The records depend only on the packets and their timestamps.
//!
//! Time advances in whole seconds, when the first packet or tick of a later second arrives. Then the meter makes the
//! records of the flows whose timeouts have expired, ordered by the second in which the timeout expired, then by the
//! timestamp of the flow's last packet, then by the flow ID. So the order of the records depends neither on the
//! positions of the flows in the table nor on the times at which the meter is called. Whether a packet still belongs to
//! a flow depends on the packet's own timestamp, to the nanosecond, so a late or missing tick changes no record.
//!
//! A full table evicts one flow for each new flow ([`crate::meter::insert`] chooses the flow). The work per packet has an
//! upper limit for any traffic: one search of at most eight buckets, and one eviction. The capacity limits the memory.

pub(crate) mod compressed;
pub(crate) mod expiry;
mod id;
mod insert;
mod interim;
mod prefetch;
mod promote;
mod render;
mod update;

use crate::compact_counters::CompactCounters;
use crate::config::{Config, Packet, nanos};
use crate::counts::Counts;
use crate::entry::Entry;
use crate::extra_fields::ExtraFields;
use crate::flow_packet::FlowPacket;
use crate::key::Keys;
use crate::losses::Losses;
use crate::order::Due;
use crate::packet_list::PacketList;
use crate::payload::Payloads;
use crate::pool::Pool;
use crate::record::{Record, Sink};
use crate::table::Table;
use crate::tunnel_sequences::TunnelSequences;
use crate::wheel::Wheel;
use crate::wide_counters::{self, WideCounters};
use base::Timestamp;
use base::memory::{Hints, HintsExt, NoHints};
use compressed::CompressedFlows;
use expiry::{StableFields, end_all, pass};
use prefetch::Pipeline;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// If a timestamp is earlier than the meter's time by more than this duration, the meter assumes a clock step: all
/// flows end ([`crate::EndReason::ForcedEnd`]), and time restarts. After a smaller step, a packet that is earlier than
/// the last packet of its flow is counted with the timestamp of that last packet.
pub const STEP_BACK: Duration = Duration::from_secs(60);

/// A tick compresses as many idle flows as this number of batches of [`BATCH`] packets would compress, so that flows
/// are also compressed when few packets arrive.
const COMPRESS_BATCHES_PER_TICK: usize = 32;
const BATCH: usize = 256;

/// The number of steps in advance at which the memory of a packet or of a record is prefetched.
const AHEAD: usize = 8;

/// Nanoseconds in one second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Makes flow records from the packets of one interface.
pub struct Meter<H = NoHints> {
    pub(crate) config: Config,
    pub(crate) interface: u16,
    pub(crate) hints: H,
    pub(crate) keys: Keys,
    pub(crate) idle: Box<[u64; 256]>,
    pub(crate) active: Option<u64>,
    pub(crate) close_timeout: u64,
    pub(crate) table: Table,
    pub(crate) flows: Pool<Entry>,
    /// The extra fields of IPv6 flows, indexed like `flows`, up to the last entry that an IPv6 flow used.
    pub(crate) rares: Vec<ExtraFields>,
    pub(crate) chunks: Pool<PacketList>,
    pub(crate) pairs: Pool<CompactCounters>,
    pub(crate) fulls: Pool<WideCounters>,
    pub(crate) payloads: Option<Payloads>,
    pub(crate) numbers: TunnelSequences,
    pub(crate) compressed: CompressedFlows,
    pub(crate) wheel: Wheel,
    pub(crate) losses: Losses,
    /// The current second of packet time; `None` before the first packet or tick.
    pub(crate) second: Option<u64>,
    /// The index of the flow entry at which the eviction sweep continues.
    pub(crate) hand: u32,
    /// The index of the flow entry up to which the pipeline has inspected entries in advance, to find flows to evict.
    pub(crate) ahead: u32,
    /// The flows that the new flows of the current batch will probably evict, the next one first.
    pub(crate) eviction_candidates: VecDeque<(u32, u64, StableFields)>,
    /// The flows whose timeouts expire in this second, in the order of their records.
    pub(crate) due: Due,
    pub(crate) counts: Counts,
    /// The largest number of packets of one direction in one record. It is a field instead of a constant, so that tests
    /// need not send 2^32 packets.
    pub(crate) most_packets: u32,
    /// The record that the sink borrows, reused for each record.
    pub(crate) record: Option<Box<Record>>,
    /// The packets that are between the stages of metering ([`crate::meter::prefetch`]); `None` only while a batch is metered.
    pub(crate) pipeline: Option<Box<Pipeline>>,
}

impl Meter {
    /// A meter without flows.
    pub fn new(config: Config, interface: u16) -> Self {
        Self::with_hints(config, interface, NoHints)
    }
}

impl<H: Hints> Meter<H> {
    /// As [`Meter::new`], with memory hints.
    pub fn with_hints(config: Config, interface: u16, hints: H) -> Self {
        let capacity = config.capacity.clamp(1, Config::MAX_FLOWS);
        Self {
            keys: Keys::new(config.seed, config.key_fields),
            idle: config.idle_nanos(),
            active: config.active_timeout.map(nanos),
            close_timeout: nanos(config.close_timeout),
            table: Table::new(capacity, hints),
            flows: Pool::new(capacity, hints),
            rares: hints.reserve(capacity),
            chunks: Pool::new(capacity, hints),
            pairs: Pool::new(capacity, hints),
            fulls: Pool::new(capacity, hints),
            payloads: (config.payload > 0).then(|| Payloads::new(config.payload)),
            numbers: TunnelSequences::default(),
            compressed: CompressedFlows::new(nanos(config.compress_after), capacity, hints),
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

    /// Advances time to `now`, with or without packets. No earlier packet may follow.
    pub fn tick(&mut self, now: Timestamp, sink: &mut dyn Sink) {
        if self.is_other_second(now.secs()) {
            pass(std::slice::from_mut(self), now.secs(), sink);
        }
        self.compress_idle_flows();
    }

    /// Compresses idle flows at a tick: as many flows as [`COMPRESS_BATCHES_PER_TICK`] batches of packets would
    /// compress.
    pub(crate) fn compress_idle_flows(&mut self) {
        (0..COMPRESS_BATCHES_PER_TICK).for_each(|_| self.compress_idle(BATCH));
    }

    /// Ends all flows and makes their records. Afterwards, the timestamp of the next packet sets the meter's time anew.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        end_all(std::slice::from_mut(self), sink);
        self.second = None;
    }

    /// Reports packets that the interface lost in a second. The records of the flows that are active in this second
    /// will contain the number of these packets.
    pub fn lost(&mut self, second: u64, packets: u64) {
        self.losses.add(second, packets);
    }

    /// A second before which ticks make no record, if neither packets nor losses arrive in the meantime. `None` if no
    /// flow is active.
    pub fn next_due(&self) -> Option<u64> {
        let now = self.second.filter(|_| self.counts.active > 0)?;
        self.wheel.next_used(now).or(Some(now + 1))
    }

    /// The counters since the start.
    pub fn counts(&self) -> Counts {
        let rares = self.rares.len() * size_of::<ExtraFields>();
        let tables = self.table.bytes() + self.flows.bytes() + rares + self.wheel.bytes();
        let pools = self.chunks.bytes() + self.pairs.bytes() + self.fulls.bytes() + self.compressed.bytes();
        let rest = self.payloads.as_ref().map_or(0, Payloads::bytes) + self.numbers.bytes() + self.due.bytes();
        let held = self.table.bytes() + self.flows.held() + rares + Wheel::bytes_of(self.counts.active);
        let pools_held = self.chunks.held() + self.pairs.held() + self.fulls.held() + self.compressed.held();
        Counts {
            bytes: (tables + pools + rest) as u64,
            held: (held + pools_held + rest) as u64,
            compressed: self.compressed.count,
            ..self.counts
        }
    }

    /// True if the meter's time must change to this second: if the second is later, or so much earlier that there was a
    /// clock step.
    #[inline(always)]
    pub(crate) fn is_other_second(&self, second: u64) -> bool {
        self.second.is_none_or(|now| second > now || second + STEP_BACK.as_secs() < now)
    }

    /// The range of timestamps, in nanoseconds, that are in the current second; empty before the first second.
    #[inline(always)]
    pub(crate) fn current_second(&self) -> Range<u64> {
        self.second.map_or(0..0, |now| now * SECOND..now.saturating_add(1).saturating_mul(SECOND))
    }

    /// Writes the values of a packet that the flow table needs into `flow_packet`; returns false if the packet is not
    /// IP.
    #[inline(always)]
    pub(crate) fn prepare(&self, packet: &Packet, index: usize, flow_packet: &mut FlowPacket) -> bool {
        flow_packet.set(packet, index, &self.keys, self.config.bidirectional)
    }

    pub(crate) fn count_other(&mut self) {
        self.counts.other += 1;
    }
}
