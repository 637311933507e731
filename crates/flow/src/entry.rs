//! How a flow lies in memory. What every packet needs is apart from what few need.
//!
//! ```text
//! hot, one cache line         0 addresses, last 32 bits    8 last packet    16 VLANs, tunnel id or label    24 ports
//!                            28 chunk, pair or full       32 bits          34 protocol    35 tunnel kind   36 TCP state
//!                            37 packets in the list       38 queue         40 what is rare (crate::rare), or the rest of IPv6
//! body, the line after it     0 first packet   8 places of the first and the last packet   24 sums of both directions
//! rare, 24                    of IPv6 only
//! links of the wheel, 8       crate::wheel
//! place in a bucket, 11       crate::table
//! chunk, 72                   from the second packet on: nine packets (crate::slim)
//! pair, 128                   from the eleventh packet on: counters, a cache line for each direction (crate::pair)
//! full, 448                   from the first remarkable packet on: counters for whatever comes (crate::full)
//! at rest, 0 to 256           in place of a pair or a full one, and its chunk (crate::rest)
//! ```
//! So a packet of a long flow that is nothing out of the ordinary touches four lines: bucket, hot, body, and its
//! direction's in the pair. One of the first ten touches that of the chunk instead of the last.

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
    /// Whoever began is the greater end.
    pub const TURNED: u16 = 1 << 1;
    /// [`super::Hot::more`] names a full flow.
    pub const FULL: u16 = 1 << 2;
    /// Not found by packets any more; waits for its record.
    pub const DETACHED: u16 = 1 << 3;
    /// Not on the free list.
    pub const USED: u16 = 1 << 4;
    /// The reverse side has had a packet.
    pub const BACK: u16 = 1 << 5;
    /// [`ExtraFields::shake`](crate::rare::ExtraFields::shake) holds spans instead of moments.
    pub const SYN_RTT: u16 = 1 << 6;
    pub const ACK_RTT: u16 = 1 << 7;
    pub const MAC: [u16; 2] = [1 << 8, 1 << 9];
    /// The record has a locator.
    pub const LOCATED: u16 = 1 << 10;
    /// Two bits: which sides have sent FIN.
    pub const FINS: u32 = 11;
    /// [`super::Hot::more`] names a pair. Neither this nor [`FULL`]: a chunk, or nothing; both: [`COMPRESSED`].
    pub const PAIR: u16 = 1 << 13;
    /// Both: at rest, and [`super::Hot::more`] names a place in the slab, or none ([`crate::rest`]).
    pub const COMPRESSED: u16 = FULL | PAIR;
    /// Has had a packet besides its first since a full table last looked at it ([`crate::begin`]).
    pub const SEEN_SINCE_SWEEP: u16 = 1 << 14;
    /// A pair, at rest or not, whose flow had an interim record ([`crate::cut`]).
    pub const HAS_INTERIM_RECORD: u16 = 1 << 15;
}

#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// As in the key.
    pub low: u64,
    pub last: u64,
    /// As in the key; in the lower half, which is 0 there without a tunnel, the topmost MPLS label and one.
    pub around: u64,
    pub ports: u32,
    pub more: u32,
    pub bits: u16,
    pub protocol: u8,
    pub tunnel: u8,
    pub state: TcpState,
    pub packets: u8,
    pub queue: u16,
    /// Of IPv6: what the key has besides; its rare things are elsewhere.
    pub rare: ExtraFields,
}

#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Body {
    pub start: u64,
    /// Of the record that is being made.
    pub positions: [u64; 2],
    pub sums: [ListSums; 2],
}

/// Two lines beside each other: the second costs a third of what a line elsewhere does (`docs/design/flow-metering.md`).
#[derive(Clone, Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Entry {
    pub hot: Hot,
    pub body: Body,
}

const _: () = assert!(size_of::<Entry>() == 128 && size_of::<ExtraFields>() == 24);

/// Where a label lies in [`Hot::around`].
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

    /// The side that sends a packet with this key.
    #[inline(always)]
    pub const fn side(&self, key: &Key) -> usize {
        (key.turned != self.has(bit::TURNED)) as usize
    }

    /// The key by which it is found.
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

    /// VLANs and tunnel, as the key has them.
    #[inline(always)]
    pub const fn around(&self) -> u64 {
        if self.tunnel == 0 { self.around & !LABEL } else { self.around }
    }

    /// Whether there is neither a VLAN nor a tunnel nor a label around it.
    #[inline(always)]
    pub const fn is_bare(&self) -> bool {
        self.around == u64::MAX << 32 && self.tunnel == 0
    }

    /// Notes which times of the handshake are spans now.
    #[inline(always)]
    pub fn add_extra(&mut self, shakes: HandshakeUpdate) {
        let [syn, ack] = shakes.learned().map(u16::from);
        self.bits |= (syn * bit::SYN_RTT) | (ack * bit::ACK_RTT);
    }

    /// Another record begins with a packet.
    pub fn begin_record(&mut self, packet: &Packet) {
        self.queue = packet.queue;
        let located = if packet.position == Packet::NOWHERE { 0 } else { bit::LOCATED };
        self.bits = self.bits & !bit::LOCATED | located;
    }

    /// The label beside which there is no tunnel.
    #[inline(always)]
    pub const fn label(&self) -> Option<u32> {
        if self.tunnel == 0 { (self.around as u32).checked_sub(1) } else { None }
    }

    pub const fn set_label(&mut self, label: u32) {
        self.around |= label as u64 + 1;
    }

    /// Ends of IPv6 as whoever began sees them.
    pub fn oriented(&self) -> [u64; 4] {
        let [a, b, c, d] = self.key().ends();
        if self.has(bit::TURNED) { [c, d, a, b] } else { [a, b, c, d] }
    }
}

impl Body {
    /// The sums of a flow that a packet begins, and whether they can count it.
    #[inline(always)]
    pub fn begin(&mut self, seen: &PacketFields) -> bool {
        self.sums = [ListSums::default(); 2];
        self.sums[0].first_flags = seen.flags;
        self.sums[0].take(seen, true)
    }

    /// The record reaches to this packet, if it lies in the same stream as its first.
    #[inline(always)]
    pub fn reach(&mut self, packet: &Packet, queue: u16) {
        let is_there = (packet.queue == queue) & (packet.position != Packet::NOWHERE);
        self.positions[1] = if is_there { packet.position } else { self.positions[1] };
    }
}
