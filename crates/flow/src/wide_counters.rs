//! Wide counters are for a flow with irregular or very many packets. They are wide enough for all values that can occur
//! in one record.
//!
//! The number of packets has 32 bits: before a direction has more packets, the meter makes an interim record
//! ([`WideDirection::is_full`]). The widths of the other counters follow from this largest number of packets.

use crate::packet_fields::{PacketFields, widened};
use crate::record::{self, Stats};
use crate::tcp::{SegmentOrder, SequenceSpace};
use base::Timestamp;
use base::memory::{Hints, HintsExt};
use wire::MacAddr;

/// The counters of one direction in the current record: three cache lines. A packet in order changes the first two and
/// reads the third.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct WideDirection {
    pub last: u64,
    pub bytes: u64,
    pub length: u64,
    pub payload: u64,
    pub packets: u32,
    pub payload_packets: u32,
    pub length_min: u32,
    pub length_max: u32,
    pub length_squares: [u64; 2],

    pub iat_squares: [u64; 2],
    pub gap_min: u64,
    pub gap_max: u64,
    pub flags: [u32; 8],

    pub first: u64,
    /// Timestamp of this direction's last packet before the current flow record; [`NEVER`] if there was none.
    pub before: u64,
    pub sent: SequenceSpace,
    pub retransmitted_bytes: u64,
    pub retransmitted: u32,
    pub out_of_order: u32,
    pub zero_window: u32,
    pub ttl: (u8, u8),
    pub dscp: (u8, u8),
}

const _: () = assert!(size_of::<WideDirection>() == 192);

/// A timestamp that stands for "none"; it equals the last possible timestamp.
pub(crate) const NEVER: u64 = u64::MAX;

impl Default for WideDirection {
    fn default() -> Self {
        Self {
            last: 0,
            bytes: 0,
            length: 0,
            payload: 0,
            packets: 0,
            payload_packets: 0,
            length_min: 0,
            length_max: 0,
            length_squares: [0; 2],
            iat_squares: [0; 2],
            gap_min: 0,
            gap_max: 0,
            flags: [0; 8],
            first: 0,
            before: NEVER,
            sent: SequenceSpace::default(),
            retransmitted_bytes: 0,
            retransmitted: 0,
            out_of_order: 0,
            zero_window: 0,
            ttl: (0, 0),
            dscp: (0, 0),
        }
    }
}

/// The largest number of packets of one direction in one record.
pub(crate) const MAX_PACKETS: u32 = u32::MAX;

impl WideDirection {
    /// Counts a packet. The arguments are the values that a packet list stores: time, length and flags.
    #[inline(always)]
    pub fn count(&mut self, at: u64, length: u32, flags: u8) {
        let first = self.packets == 0;
        if first {
            self.first = at;
        }
        if !first || self.before != NEVER {
            let gap = at - self.last;
            let no_gap_yet = self.gap_count() == 0;
            self.gap_min = if no_gap_yet { gap } else { self.gap_min.min(gap) };
            self.gap_max = self.gap_max.max(gap);
            add(&mut self.iat_squares, u128::from(gap) * u128::from(gap));
        }
        self.last = at;
        self.packets += 1;
        self.length += u64::from(length);
        self.length_min = if first { length } else { self.length_min.min(length) };
        self.length_max = self.length_max.max(length);
        add(&mut self.length_squares, u128::from(length) * u128::from(length));
        if flags != 0 {
            for (bit, count) in self.flags.iter_mut().enumerate() {
                *count += u32::from(flags >> bit & 1);
            }
        }
    }

    /// Adds all values of a packet to the counters.
    #[inline(always)]
    pub fn add(&mut self, seen: &PacketFields) {
        let first = self.packets == 0;
        self.count(seen.at, seen.length, seen.flags);
        self.bytes += u64::from(seen.wire);
        self.payload += u64::from(seen.payload);
        self.payload_packets += u32::from(seen.payload > 0);
        self.ttl = widened(self.ttl, seen.ttl, first);
        self.dscp = widened(self.dscp, seen.dscp, first);
        self.zero_window += u32::from(seen.zero_window);
        match self.sent.observe(seen) {
            SegmentOrder::New => (),
            SegmentOrder::Retransmitted => {
                self.retransmitted += 1;
                self.retransmitted_bytes += u64::from(seen.payload);
            }
            SegmentOrder::OutOfOrder => self.out_of_order += 1,
        }
    }

    /// Prefetches the cache lines that a packet changes or reads.
    #[inline(always)]
    pub fn fetch(&self, hints: impl Hints) {
        hints.fetch(&self.last);
        hints.fetch(&self.iat_squares);
        hints.fetch(&self.first);
    }

    /// True if a flow record must be made before the next packet is counted.
    #[inline(always)]
    pub const fn is_full(&self, most: u32) -> bool {
        self.packets >= most
    }

    /// The number of inter-arrival times in the current flow record.
    #[inline(always)]
    pub fn gap_count(&self) -> u32 {
        self.packets - u32::from(self.before == NEVER && self.packets > 0)
    }

    /// The sum of the inter-arrival times. The timestamps of a flow never decrease, so the sum is the last timestamp
    /// minus the first.
    #[inline(always)]
    pub fn gap_sum(&self) -> u64 {
        let from = if self.before == NEVER { self.first } else { self.before };
        if self.packets == 0 { 0 } else { self.last.wrapping_sub(from) }
    }

    /// Returns the counters with which the next record of this direction begins.
    pub fn continued(&self) -> Self {
        let before = if self.packets > 0 { self.last } else { self.before };
        Self { last: self.last, before, sent: self.sent, ..Self::default() }
    }

    pub fn first(&self) -> Option<u64> {
        (self.packets > 0).then_some(self.first)
    }

    pub fn render(&self, mac: Option<MacAddr>) -> record::DirectionStats {
        if self.packets == 0 {
            return record::DirectionStats::default();
        }
        let gap_count = self.gap_count();
        let gap = Stats { min: self.gap_min, max: self.gap_max, sum: self.gap_sum(), squares: total(self.iat_squares) };
        record::DirectionStats {
            first: Timestamp::from_nanos(self.first),
            last: Timestamp::from_nanos(self.last),
            packets: self.packets.into(),
            bytes: self.bytes,
            ip_bytes: self.length,
            payload_bytes: self.payload,
            payload_packets: self.payload_packets.into(),
            length: Stats {
                min: self.length_min.into(),
                max: self.length_max.into(),
                sum: self.length,
                squares: total(self.length_squares),
            },
            iat: if gap_count == 0 { Stats::default() } else { gap },
            iat_count: gap_count.into(),
            flags: self.flags.map(u64::from),
            zero_window: self.zero_window.into(),
            retransmitted: self.retransmitted.into(),
            retransmitted_bytes: self.retransmitted_bytes,
            out_of_order: self.out_of_order.into(),
            ttl: self.ttl,
            dscp: self.dscp,
            mac,
            // [`crate::tunnel_sequences`] has these values.
            tunnel_sequence: None,
        }
    }
}

#[inline(always)]
fn add(sum: &mut [u64; 2], value: u128) {
    let total = total(*sum).saturating_add(value);
    *sum = [total as u64, (total >> 64) as u64];
}

fn total(sum: [u64; 2]) -> u128 {
    u128::from(sum[1]) << 64 | u128::from(sum[0])
}

/// The state of a flow with wide counters, besides its entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct WideCounters {
    pub sides: [WideDirection; 2],
    /// Index of the flow that these counters belong to, or belonged to before they were freed.
    pub flow: u32,
    /// The number of earlier records.
    pub part: u32,
    /// Index of the packet list with the initial packets; [`crate::pool::NONE`] after the first record, or if there is
    /// no list.
    pub chunk: u32,
    /// Initial packets beyond the packet list, if the configuration requests more.
    pub more: Vec<u64>,
    /// The times of the handshake, as in [`crate::extra_fields`].
    pub handshake: [u64; 2],
    /// The topmost MPLS label of a flow in a tunnel; `None` without a label, and for a flow without a tunnel, whose
    /// label is in the flow's entry.
    pub label: Option<u32>,
}

const _: () = assert!(size_of::<WideCounters>() == 448);

impl WideCounters {
    /// Timestamp of the first packet of the current flow record.
    pub fn first(&self) -> Option<u64> {
        match [self.sides[0].first(), self.sides[1].first()] {
            [Some(a), Some(b)] => Some(a.min(b)),
            [a, b] => a.or(b),
        }
    }
}
