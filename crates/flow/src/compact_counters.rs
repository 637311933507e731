//! Compact counters of a flow with more packets than the packet list can hold. They take one cache line for each
//! direction. A flow has compact counters until its first irregular packet (retransmitted, out of order, zero window).
//!
//! Invariant: a cache line holds exactly the values that [`crate::wide_counters::WideDirection`] would have. If a
//! packet would make a field overflow, [`CompactDirection::fits`] returns false and the flow gets wide counters. The
//! sums that are not in a cache line are in the flow's [`crate::packet_list::ListSums`], which short flows also have.
//!
//! ```text
//! byte  0      8                16                24               40       48      52     54     56    60    64
//!       | last | chunk or first | length² (sum)   | gap² (sum, 96) | flags… | length | pkts | min  max | gap min, max
//! ```
//! *chunk or first* is the index of the packet list or the timestamp of the first packet, *gap* the inter-arrival time.
//!
//! The flag counters share one word: sixteen bits each for ACK and PSH, which most packets have, and five bits for each
//! other flag. So counting the flags is one addition of a word from a table indexed by the flag byte.

use crate::packet_list::ListSums;
use crate::pool::NONE;
use crate::record;
use crate::wide_counters::{self, NEVER};
use base::Timestamp;
use wire::MacAddr;

/// The largest number of packets that a [`CompactDirection`] counts.
pub(crate) const MAX_PACKETS: u16 = u16::MAX;

/// The largest inter-arrival time that a [`CompactDirection`] holds, in nanoseconds: 18 minutes.
const MAX_GAP: u64 = (1 << 40) - 1;

/// First bit and width of the counter of each flag, in the order of the flag bits.
const LANES: [(u32, u32); 8] = [(32, 5), (37, 5), (42, 5), (0, 16), (16, 16), (47, 5), (52, 5), (57, 5)];

/// The flags with counters of five bits, and the highest bit of each of these counters.
const NARROW_FLAGS: u8 = 0b1110_0111;
const NEARLY_FULL: u64 = 1 << 36 | 1 << 41 | 1 << 46 | 1 << 51 | 1 << 56 | 1 << 61;

/// The increments of the flag counters for each flag byte.
static SPREAD: [u64; 256] = spread();

const fn spread() -> [u64; 256] {
    let mut all = [0; 256];
    let mut flags = 0;
    while flags < 256 {
        let mut bit = 0;
        while bit < 8 {
            all[flags] |= (flags as u64 >> bit & 1) << LANES[bit].0;
            bit += 1;
        }
        flags += 1;
    }
    all
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct CompactDirection {
    pub last: u64,
    /// The timestamp of the direction's first packet. In the forward direction of a stored [`CompactCounters`], this
    /// field contains two indices instead: that of the packet list in the lower half, and that of the flow in the upper
    /// half.
    extra: u64,
    pub length_squares: u64,
    iat_squares: u64,
    flags: u64,
    gap_squares_high: u32,
    pub length: u32,
    gap_min: u32,
    gap_max: u32,
    gap_min_high: u8,
    gap_max_high: u8,
    pub packets: u16,
    pub length_min: u16,
    pub length_max: u16,
}

const _: () = assert!(size_of::<CompactDirection>() == 64);

impl CompactDirection {
    /// True if the counters can hold another packet with this timestamp and these flags.
    #[inline(always)]
    pub const fn fits(&self, at: u64, flags: u8) -> bool {
        let is_room = flags & NARROW_FLAGS == 0 || self.flags & NEARLY_FULL == 0;
        is_room && self.packets < MAX_PACKETS && (self.packets == 0 || at - self.last <= MAX_GAP)
    }

    /// Counts a packet that fits. The arguments are the values that a packet list stores: time, length and flags.
    #[inline(always)]
    pub fn count(&mut self, at: u64, length: u16, flags: u8) {
        if self.packets == 0 {
            (self.length_min, self.length_max) = (length, length);
            (self.gap_min, self.gap_min_high) = (u32::MAX, u8::MAX);
            self.extra = at;
        } else {
            self.count_gap(at - self.last);
            self.length_min = self.length_min.min(length);
            self.length_max = self.length_max.max(length);
        }
        self.last = at;
        self.packets += 1;
        self.length += u32::from(length);
        self.length_squares += u64::from(length) * u64::from(length);
        self.flags += SPREAD[usize::from(flags)];
    }

    /// Converts a direction of [`crate::wide_counters`] to compact counters. The caller ensures that all values of the
    /// direction fit, and sets the field `extra` afterwards.
    pub fn of(side: &wide_counters::WideDirection) -> Self {
        if side.packets == 0 {
            return EMPTY;
        }
        let spread = |all: u64, (count, (at, _)): (&u32, (u32, u32))| all | u64::from(*count) << at;
        // If the direction has no inter-arrival time, the minimum field contains [`MAX_GAP`].
        let gap_min = if side.gap_count() == 0 { MAX_GAP } else { side.gap_min };
        Self {
            last: side.last,
            extra: side.first,
            length_squares: side.length_squares[0],
            iat_squares: side.iat_squares[0],
            gap_squares_high: side.iat_squares[1] as u32,
            flags: side.flags.iter().zip(LANES).fold(0, spread),
            length: side.length as u32,
            gap_min: gap_min as u32,
            gap_min_high: (gap_min >> 32) as u8,
            gap_max: side.gap_max as u32,
            gap_max_high: (side.gap_max >> 32) as u8,
            packets: side.packets as u16,
            length_min: side.length_min as u16,
            length_max: side.length_max as u16,
        }
    }

    /// Returns wide counters with the values of these counters. `first` is the timestamp of the first packet of the
    /// current flow record, `before` that of the last packet before the current flow record.
    pub fn wide(&self, first: u64, before: u64) -> wide_counters::WideDirection {
        let mut side = wide_counters::WideDirection { before, ..wide_counters::WideDirection::default() };
        if self.packets == 0 {
            side.last = if before == NEVER { 0 } else { before };
            return side;
        }
        (side.first, side.last) = (first, self.last);
        (side.packets, side.length) = (self.packets.into(), self.length.into());
        (side.length_min, side.length_max) = (self.length_min.into(), self.length_max.into());
        side.length_squares = [self.length_squares, 0];
        side.gap_min = if side.gap_count() > 0 { self.gap_min() } else { 0 };
        side.gap_max = self.gap_max();
        side.iat_squares = [self.iat_squares, self.gap_squares_high.into()];
        side.flags = self.flags();
        side
    }

    /// Counts an inter-arrival time.
    #[inline(always)]
    pub fn count_gap(&mut self, gap: u64) {
        // The fields are written even if they are unchanged, because the CPU could not predict a branch here.
        let (min, max) = (self.gap_min().min(gap), self.gap_max().max(gap));
        (self.gap_min, self.gap_min_high) = (min as u32, (min >> 32) as u8);
        (self.gap_max, self.gap_max_high) = (max as u32, (max >> 32) as u8);
        let squares = self.iat_squares() + u128::from(gap) * u128::from(gap);
        (self.iat_squares, self.gap_squares_high) = (squares as u64, (squares >> 64) as u32);
    }

    /// True if the counters can hold this inter-arrival time.
    pub const fn fits_gap(gap: u64) -> bool {
        gap <= MAX_GAP
    }

    /// The minimum inter-arrival time; [`MAX_GAP`] if there is no inter-arrival time.
    #[inline(always)]
    pub fn gap_min(&self) -> u64 {
        u64::from(self.gap_min_high) << 32 | u64::from(self.gap_min)
    }

    #[inline(always)]
    pub fn gap_max(&self) -> u64 {
        u64::from(self.gap_max_high) << 32 | u64::from(self.gap_max)
    }

    #[inline(always)]
    pub fn iat_squares(&self) -> u128 {
        u128::from(self.gap_squares_high) << 64 | u128::from(self.iat_squares)
    }

    pub fn flags(&self) -> [u32; 8] {
        LANES.map(|(at, bits)| (self.flags >> at) as u32 & ((1 << bits) - 1))
    }

    /// Writes the counters of this direction into the flow record. `first` is the timestamp of the first packet of the
    /// flow record, `before` that of the last packet of the previous flow record.
    #[inline(always)]
    pub fn render(
        &self,
        sums: &ListSums,
        first: u64,
        before: u64,
        mac: Option<MacAddr>,
        out: &mut record::DirectionStats,
    ) {
        if self.packets == 0 {
            if out.packets > 0 {
                *out = record::DirectionStats::default();
            }
            return;
        }
        let gap_count = u64::from(self.packets) - u64::from(before == NEVER);
        sums.render(self.length.into(), mac, out);
        out.first = Timestamp::from_nanos(first);
        out.last = Timestamp::from_nanos(self.last);
        out.packets = self.packets.into();
        out.length.min = self.length_min.into();
        out.length.max = self.length_max.into();
        out.length.squares = self.length_squares.into();
        out.iat.min = if gap_count == 0 { 0 } else { self.gap_min() };
        out.iat.max = self.gap_max();
        // The timestamps of a flow never decrease, so the sum of the inter-arrival times is the last timestamp minus
        // the first.
        out.iat.sum = self.last - if before == NEVER { first } else { before };
        out.iat.squares = self.iat_squares();
        out.iat_count = gap_count;
        for (out, (at, bits)) in out.flags.iter_mut().zip(LANES) {
            *out = self.flags >> at & ((1 << bits) - 1);
        }
    }
}

/// Counters without a packet.
const EMPTY: CompactDirection = CompactDirection {
    last: 0,
    extra: NONE as u64,
    length_squares: 0,
    iat_squares: 0,
    flags: 0,
    gap_squares_high: 0,
    length: 0,
    gap_min: 0,
    gap_max: 0,
    gap_min_high: 0,
    gap_max_high: 0,
    packets: 0,
    length_min: 0,
    length_max: 0,
};

/// The counters of both directions. The first packet of the flow is in direction 0, so its timestamp (in the entry) is
/// not stored here again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompactCounters {
    pub sides: [CompactDirection; 2],
}

impl CompactCounters {
    /// Timestamp of the first packet of direction 1 in the current flow record.
    pub const fn first_back(&self) -> u64 {
        self.sides[1].extra
    }

    /// Index of the flow's packet list. The value is valid only after a call of [`CompactCounters::set_owner`].
    pub const fn chunk(&self) -> u32 {
        self.sides[0].extra as u32
    }

    /// Stores the index of the flow to which these counters belong, and the index of its packet list.
    pub const fn set_owner(&mut self, flow: u32, chunk: u32) {
        self.sides[0].extra = (flow as u64) << 32 | chunk as u64;
    }

    /// Index of the flow that these counters belong to, or belonged to before they were freed.
    pub const fn flow(&self) -> u32 {
        (self.sides[0].extra >> 32) as u32
    }

    /// Counters without a packet.
    pub const fn new() -> Self {
        Self { sides: [EMPTY; 2] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wide_counters::WideDirection;
    use base::Prng;

    #[test]
    fn compact_counters_equal_wide_counters_while_packets_fit() {
        let seed = testkit::seed("compact_counters_equal_wide_counters_while_packets_fit");
        let mut prng = Prng::new(seed);
        let mut refused = 0;
        for round in 0..200 {
            let (mut line, mut side) = (CompactDirection::default(), WideDirection::default());
            let mut at = prng.below(1 << 50);
            let seldom = prng.below(3) == 0;
            for _ in 0..1 + prng.below(300) {
                let flags = prng.next_u64() as u8 & if seldom { 0xff } else { 0x18 };
                at += prng.next_u64() >> (24 + prng.below(40));
                if !line.fits(at, flags) {
                    refused += 1;
                    break;
                }
                let length = (prng.next_u64() >> (48 + prng.below(16))) as u16;
                line.count(at, length, flags);
                side.count(at, length.into(), flags);
            }
            let widened = line.wide(side.first().unwrap_or(0), NEVER);
            assert_eq!(format!("{widened:?}"), format!("{side:?}"), "seed {seed}, round {round}");
        }
        assert!(refused > 20, "seed {seed}: only {refused} packets did not fit");
    }

    #[test]
    fn flag_counters_do_not_overflow_into_each_other() {
        let mut line = CompactDirection::default();
        let mut packets = 0;
        while line.fits(0, 0xff) {
            line.count(0, 0, 0xff);
            packets += 1;
        }
        assert_eq!((packets, line.flags()), (16, [16; 8]));
        while line.fits(0, 0x18) {
            line.count(0, u16::MAX, 0x18);
        }
        assert_eq!(line.packets, MAX_PACKETS);
        assert_eq!(line.flags(), [16, 16, 16, 65535, 65535, 16, 16, 16]);
        assert_eq!(line.length, 65519 * 65535);
    }
}
