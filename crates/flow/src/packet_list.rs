//! The packet list stores the packets of a new flow. The record of the flow is computed from the list and from a few
//! sums in the flow's entry.
//!
//! Nine of ten flows end within [`LOG`] packets. Each of their packets is stored as one word:
//!
//! ```text
//! bit 63       55      39   38       0
//!     | reverse | flags | length | coarse | time |    time after the flow's first packet, in ns; coarse: in 16 ns
//! ```
//! With the eleventh packet the flow changes to compact counters ([`crate::compact_counters`]). With an irregular
//! packet (longer than 65535 bytes, 2^38 ns or more after the first, with a window of zero, or not the next in sequence
//! of its direction) the flow changes to wide counters ([`crate::wide_counters`]), so that no value is ever rounded.

use crate::packet_fields::{PacketFields, widened};
use crate::record::{DirectionStats, InitialPacket};
use crate::tcp::{self, SequenceSpace};
use crate::wide_counters;
use base::memory::{Hints, HintsExt};
use wire::MacAddr;

/// The largest number of packets in a packet list, including the first packet of the flow.
pub(crate) const LOG: usize = 10;

/// The sums of one direction that cannot be computed from the packet list. A flow with compact counters continues to
/// use these sums.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ListSums {
    pub payload: u32,
    /// The TCP sequence number that is expected next in this direction, if `numbered` is true.
    seq: u32,
    /// Bytes of the frames that are outside of the IP packets.
    pub beyond: u32,
    pub payload_packets: u16,
    pub ttl: (u8, u8),
    pub dscp: (u8, u8),
    numbered: bool,
    /// In the sums of direction 0: the TCP flags of the first packet of the flow. In direction 1: 0.
    pub first_flags: u8,
}

impl ListSums {
    pub fn high(&self) -> Option<u32> {
        self.numbered.then_some(self.seq)
    }

    /// Returns the sums with which the next record of this direction begins.
    pub const fn continued(&self) -> Self {
        let Self { seq, numbered, first_flags, .. } = *self;
        Self { payload: 0, seq, beyond: 0, payload_packets: 0, ttl: (0, 0), dscp: (0, 0), numbered, first_flags }
    }

    /// Takes the sums from the wide counters of a direction that has had no irregular packet.
    pub fn of(side: &wide_counters::WideDirection, first_flags: u8) -> Self {
        let high = side.sent.high();
        Self {
            payload: side.payload as u32,
            seq: high.unwrap_or(0),
            beyond: side.bytes.wrapping_sub(side.length) as u32,
            payload_packets: side.payload_packets as u16,
            ttl: side.ttl,
            dscp: side.dscp,
            numbered: high.is_some(),
            first_flags,
        }
    }

    /// Adds these sums to wide counters that have the other values of the direction ([`crate::compact_counters`]).
    pub fn complete(&self, side: &mut wide_counters::WideDirection) {
        side.bytes = side.length + u64::from(self.beyond);
        side.payload = self.payload.into();
        side.payload_packets = self.payload_packets.into();
        (side.ttl, side.dscp) = (self.ttl, self.dscp);
        side.sent = SequenceSpace::up_to(self.high());
    }

    /// The value for a flow with wide counters: the wide counters contain the sums, so only the flags of the first
    /// packet are stored here.
    pub fn unused(first_flags: u8) -> Self {
        Self { first_flags, ..Self::default() }
    }

    /// The sums without `first_flags`, as two words and two bytes. In a compressed flow, the encoding contains these
    /// sums ([`crate::meter::compressed`]).
    pub fn words(&self) -> ([u64; 2], u16) {
        let [low, high] = self.ttl.into();
        let upper = u64::from(self.payload_packets) | u64::from(low) << 16 | u64::from(high) << 24;
        let words = [u64::from(self.payload) | u64::from(self.seq) << 32, u64::from(self.beyond) | upper << 32];
        (words, u16::from_le_bytes(self.dscp.into()))
    }

    /// Stores the words of [`ListSums::words`].
    pub fn set_words(&mut self, ([a, b], rest): ([u64; 2], u16)) {
        (self.payload, self.seq, self.beyond) = (a as u32, (a >> 32) as u32, b as u32);
        (self.payload_packets, self.ttl) = ((b >> 32) as u16, ((b >> 48) as u8, (b >> 56) as u8));
        self.dscp = rest.to_le_bytes().into();
    }

    /// Adds a packet; `first` is true for the first packet of this direction. Returns false, and changes nothing, if
    /// the packet is irregular. With at most 65535 packets, `beyond` is the only sum that can overflow; its overflow is
    /// checked.
    #[inline(always)]
    pub fn take(&mut self, seen: &PacketFields, first: bool) -> bool {
        let (beyond, is_shorter) = seen.wire.overflowing_sub(seen.length);
        let (beyond, is_much) = beyond.overflowing_add(self.beyond);
        let is_long = (seen.length | seen.payload) > u32::from(u16::MAX);
        if is_shorter | is_much | is_long | seen.zero_window {
            return false;
        }
        let Some(high) = tcp::in_order(self.seq, self.numbered, seen) else { return false };
        (self.seq, self.numbered) = high;
        self.beyond = beyond;
        self.payload += seen.payload;
        self.payload_packets += u16::from(seen.payload > 0);
        self.ttl = widened(self.ttl, seen.ttl, first);
        self.dscp = widened(self.dscp, seen.dscp, first);
        true
    }

    /// Writes the fields of a record for a direction with these sums, `ip_bytes` bytes of IP packets and no irregular
    /// packets.
    #[inline(always)]
    pub fn render(&self, ip_bytes: u64, mac: Option<MacAddr>, out: &mut DirectionStats) {
        out.bytes = ip_bytes + u64::from(self.beyond);
        out.ip_bytes = ip_bytes;
        out.length.sum = ip_bytes;
        out.payload_bytes = self.payload.into();
        out.payload_packets = self.payload_packets.into();
        (out.zero_window, out.out_of_order) = (0, 0);
        (out.retransmitted, out.retransmitted_bytes) = (0, 0);
        (out.ttl, out.dscp) = (self.ttl, self.dscp);
        out.mac = mac;
    }
}

/// For each value of the byte of TCP flags: the flag counters of one packet with these flags.
pub(crate) static SINGLE: [[u64; 8]; 256] = {
    let mut all = [[0; 8]; 256];
    let mut flags = 0;
    while flags < 256 {
        let mut bit = 0;
        while bit < 8 {
            all[flags][bit] = flags as u64 >> bit & 1;
            bit += 1;
        }
        flags += 1;
    }
    all
};

/// The second to the tenth packet of a flow. The list remains stored when the flow changes from the packet list to
/// counters, because the flow record contains the initial packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketList {
    pub log: [u64; LOG - 1],
}

impl PacketList {
    /// Prefetches the used part of the list, which may extend over two cache lines.
    #[inline(always)]
    pub fn fetch(&self, hints: impl Hints, packets: usize) {
        hints.fetch(&self.log[0]);
        hints.fetch(&self.log[packets.saturating_sub(2).min(LOG - 2)]);
    }
}

mod bit {
    pub const COARSE: u32 = 38;
    pub const LENGTH: u32 = 39;
    pub const FLAGS: u32 = 55;
    pub const REVERSE: u32 = 63;
}

/// The packet list stores times below this number of nanoseconds exactly.
const EXACT: u64 = 1 << bit::COARSE;
/// log2 of the number of nanoseconds in one unit of a coarse time.
const COARSE_SHIFT: u32 = 4;
/// The largest value of [`InitialPacket::offset_ns`].
const LAST: u64 = u32::MAX as u64 * 1000;

/// True if the packet list can store this time exactly.
#[inline(always)]
pub(crate) const fn is_exact(after: u64) -> bool {
    after < EXACT
}

/// The word of a packet.
#[inline(always)]
pub(crate) fn pack(after: u64, side: usize, seen: &PacketFields) -> u64 {
    let after = after.min(LAST);
    let time = if is_exact(after) { after } else { after >> COARSE_SHIFT | 1 << bit::COARSE };
    let length = u64::from(seen.length.min(u16::MAX.into()));
    time | length << bit::LENGTH | u64::from(seen.flags) << bit::FLAGS | (side as u64) << bit::REVERSE
}

/// The word of an initial packet whose time is stored exactly.
#[inline(always)]
pub(crate) fn join(early: &InitialPacket) -> u64 {
    let InitialPacket { offset_ns: after, length, flags, reverse } = *early;
    after | u64::from(length) << bit::LENGTH | u64::from(flags) << bit::FLAGS | u64::from(reverse) << bit::REVERSE
}

/// The packet of a word.
#[inline(always)]
pub(crate) fn unpack(word: u64) -> InitialPacket {
    let time = word & (EXACT - 1);
    let coarse = word >> bit::COARSE & 1 == 1;
    InitialPacket {
        offset_ns: if coarse { time << COARSE_SHIFT } else { time },
        length: (word >> bit::LENGTH) as u16,
        flags: (word >> bit::FLAGS) as u8,
        reverse: word >> bit::REVERSE == 1,
    }
}
