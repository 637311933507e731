//! The memory layout of a flow. Fields that every packet needs are stored apart from fields that few packets need.
//!
//! ```text
//! hot, one cache line         0 addresses, last 32 bits    8 last packet    16 VLANs, tunnel id or label   24 ports
//!                            28 chunk, pair or full       32 bits          34 protocol   35 tunnel kind   36 TCP state
//!                            37 packets in the list       38 queue         40 extra fields, or the other bits of IPv6
//! body, the next line         0 first packet   8 positions of the first and last packet   24 sums of both directions
//! rare, 24 bytes              IPv6 only: extra fields (crate::extra_fields)
//! links of the wheel, 8       crate::wheel
//! slot in a bucket, 11        crate::table
//! chunk, 72                   from the second packet on: nine packets (crate::packet_list)
//! pair, 128                   from the eleventh packet on: compact counters, a cache line for each direction
//! full, 448                   from the first irregular packet on: wide counters
//! encoding, 0 to 256          in place of chunk and pair or full: a compressed flow
//! ```
//! In this layout, *chunk* is the packet list, *pair* the compact counters ([`crate::compact_counters`]), *full* the
//! wide counters ([`crate::wide_counters`]) and *encoding* that of a compressed flow ([`crate::meter::compressed`]); the pools
//! in [`crate::Meter`] have these names. A flow has at most one of pair, full and encoding.
//!
//! So a regular packet of a long flow touches four cache lines: bucket, hot, body, and the compact counters of its
//! direction. If the flow still has a packet list, its packet touches the list instead of the compact counters.

use crate::config::Packet;
use crate::extra_fields::ExtraFields;
use crate::key::Key;
use crate::packet_fields::PacketFields;
use crate::packet_list::ListSums;
use crate::pool::NONE;
use crate::record::TcpState;
use crate::tcp::HandshakeUpdate;

/// Bits of [`Hot::bits`].
pub(crate) mod bit {
    pub const V6: u16 = 1 << 0;
    /// The source of the flow is the greater endpoint; the key has the lesser endpoint first.
    pub const TURNED: u16 = 1 << 1;
    /// [`super::Hot::more`] is the index of the flow's wide counters.
    pub const FULL: u16 = 1 << 2;
    /// The flow is no longer in the table, and waits for its record.
    pub const DETACHED: u16 = 1 << 3;
    /// The entry is not on the free list.
    pub const USED: u16 = 1 << 4;
    /// The reverse direction has had a packet.
    pub const BACK: u16 = 1 << 5;
    /// [`ExtraFields::handshake`](crate::extra_fields::ExtraFields::handshake) holds the durations of the handshake
    /// instead of timestamps.
    pub const SYN_RTT: u16 = 1 << 6;
    pub const ACK_RTT: u16 = 1 << 7;
    pub const MAC: [u16; 2] = [1 << 8, 1 << 9];
    /// The record has a packet location.
    pub const LOCATED: u16 = 1 << 10;
    /// Position of the first of two bits, which store the directions in which FIN was sent.
    pub const FINS: u32 = 11;
    /// [`super::Hot::more`] is the index of compact counters. If neither `PAIR` nor [`FULL`] is set, `more` is the
    /// index of the flow's packet list, if the flow has one; if both are set, see [`COMPRESSED`].
    pub const PAIR: u16 = 1 << 13;
    /// Both [`FULL`] and [`PAIR`]: the flow is compressed, and [`super::Hot::more`] is its slot in the slab, if it has
    /// one ([`crate::meter::compressed`]).
    pub const COMPRESSED: u16 = FULL | PAIR;
    /// The flow has had a packet besides its first since the eviction sweep last inspected it ([`crate::meter::insert`]).
    pub const SEEN_SINCE_SWEEP: u16 = 1 << 14;
    /// The flow has compact counters, compressed or not, and has had an interim record ([`crate::meter::interim`]).
    pub const HAS_INTERIM_RECORD: u16 = 1 << 15;
}

#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// The last 32 bits of both addresses, as in the key.
    pub low: u64,
    pub last: u64,
    /// The VLANs and the tunnel id of the key. For a flow without a tunnel, the lower half is 0 in the key; here it
    /// holds the topmost MPLS label plus one.
    pub around: u64,
    pub ports: u32,
    pub more: u32,
    pub bits: u16,
    pub protocol: u8,
    pub tunnel: u8,
    pub state: TcpState,
    pub packets: u8,
    pub queue: u16,
    /// For IPv6, further words of the key; the extra fields of such a flow are in [`crate::Meter`]'s `rares`.
    pub rare: ExtraFields,
}

#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Body {
    pub start: u64,
    /// Stream positions of the first and the last packet of the current record.
    pub positions: [u64; 2],
    pub sums: [ListSums; 2],
}

/// Two adjacent cache lines: the second costs a third of the access to a distant line (`docs/design/flow-metering.md`).
#[derive(Clone, Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Entry {
    pub hot: Hot,
    pub body: Body,
}

const _: () = assert!(size_of::<Entry>() == 128 && size_of::<ExtraFields>() == 24);

/// The bits of [`Hot::around`] that contain the MPLS label.
const LABEL: u64 = 0xffff_ffff;

impl Hot {
    #[inline(always)]
    pub fn new(key: &Key, last: u64, queue: u16) -> Self {
        let mut bits = bit::USED;
        bits |= if key.v6 { bit::V6 } else { 0 };
        bits |= if key.turned { bit::TURNED } else { 0 };
        Self {
            low: key.low,
            last,
            around: key.around,
            ports: key.ports,
            more: NONE,
            bits,
            protocol: key.protocol,
            tunnel: key.tunnel,
            state: TcpState::None,
            packets: 1,
            queue,
            rare: ExtraFields::of_words(key.wide),
        }
    }

    #[inline(always)]
    pub const fn has(&self, bit: u16) -> bool {
        self.bits & bit != 0
    }

    #[inline(always)]
    pub const fn is_compressed(&self) -> bool {
        self.bits & bit::COMPRESSED == bit::COMPRESSED
    }

    /// The direction, within this flow, of a packet with this key.
    #[inline(always)]
    pub const fn side(&self, key: &Key) -> usize {
        (key.turned != self.has(bit::TURNED)) as usize
    }

    /// The flow key.
    #[inline(always)]
    pub fn key(&self) -> Key {
        Key {
            low: self.low,
            wide: if self.has(bit::V6) { self.rare.words() } else { [0; 3] },
            ports: self.ports,
            protocol: self.protocol,
            v6: self.has(bit::V6),
            turned: self.has(bit::TURNED),
            tunnel: self.tunnel,
            around: self.around(),
        }
    }

    /// The VLANs and the tunnel id of the flow, as in the key.
    #[inline(always)]
    pub const fn around(&self) -> u64 {
        if self.tunnel == 0 { self.around & !LABEL } else { self.around }
    }

    /// True if the flow has no VLAN, no tunnel and no MPLS label.
    #[inline(always)]
    pub const fn is_bare(&self) -> bool {
        self.around == u64::MAX << 32 && self.tunnel == 0
    }

    /// Stores which timestamps of the handshake were replaced by durations.
    #[inline(always)]
    pub fn add_extra(&mut self, update: HandshakeUpdate) {
        let [syn, ack] = update.learned().map(u16::from);
        self.bits |= (syn * bit::SYN_RTT) | (ack * bit::ACK_RTT);
    }

    /// Begins the next record of the flow with this packet.
    pub fn begin_record(&mut self, packet: &Packet) {
        self.queue = packet.queue;
        let located = if packet.position == Packet::NOWHERE { 0 } else { bit::LOCATED };
        self.bits = self.bits & !bit::LOCATED | located;
    }

    /// The MPLS label of a flow without a tunnel.
    #[inline(always)]
    pub const fn label(&self) -> Option<u32> {
        if self.tunnel == 0 { (self.around as u32).checked_sub(1) } else { None }
    }

    pub const fn set_label(&mut self, label: u32) {
        self.around |= label as u64 + 1;
    }

    /// The two IPv6 addresses of the flow, that of the source first.
    pub fn oriented(&self) -> [u64; 4] {
        let [a, b, c, d] = self.key().ends();
        if self.has(bit::TURNED) { [c, d, a, b] } else { [a, b, c, d] }
    }
}

impl Body {
    /// Initialises the sums with the first packet of a flow; false if the packet list cannot hold this packet.
    #[inline(always)]
    pub fn begin(&mut self, seen: &PacketFields) -> bool {
        self.sums = [ListSums::default(); 2];
        self.sums[0].first_flags = seen.flags;
        self.sums[0].take(seen, true)
    }

    /// Sets the stream position of the record's last packet, if the packet is in the same queue as the record's first
    /// packet.
    #[inline(always)]
    pub fn reach(&mut self, packet: &Packet, queue: u16) {
        let is_there = (packet.queue == queue) & (packet.position != Packet::NOWHERE);
        self.positions[1] = if is_there { packet.position } else { self.positions[1] };
    }
}
