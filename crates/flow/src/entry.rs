//! How a flow lies in memory. The line that every packet needs is apart from what few need.
//!
//! ```text
//! hot, one cache line         0 ends of the conversation         32 last packet   40 VLANs, tunnel id   48 ports
//!                            52 chunk or full                    56 bits          58 protocol           59 tunnel kind
//!                            60 TCP state                        61 packets in the list                 62 -
//! cold, 80 bytes              0 first packet   8 its place, that of the last      24 handshake times    40 MPLS, queue, ICMP
//!                               MACs, what the first packet was; the sums of its direction
//! links of the wheel, 8       crate::wheel
//! place in a bucket, 11       crate::table
//! chunk, 88                   from the second packet on: the sums of the reverse direction, nine packets (crate::slim)
//! full, 448                   from the eleventh packet on, or from the first remarkable one: all counters (crate::full)
//! ```

use crate::key::Key;
use crate::pool::NONE;
use crate::record::TcpState;
use crate::slim::SlimSide;

/// Bits of [`Hot::bits`].
pub(crate) mod bit {
    pub const V6: u16 = 1 << 0;
    /// Whoever began is the greater end.
    pub const TURNED: u16 = 1 << 1;
    /// [`super::Hot::more`] names a full flow, else a chunk.
    pub const FULL: u16 = 1 << 2;
    /// Not found by packets any more; waits for its record.
    pub const DETACHED: u16 = 1 << 3;
    /// Not on the free list.
    pub const USED: u16 = 1 << 4;
    /// The reverse side has had a packet.
    pub const BACK: u16 = 1 << 5;
    /// [`super::Cold::shake`] holds spans instead of moments.
    pub const SYN_RTT: u16 = 1 << 6;
    pub const ACK_RTT: u16 = 1 << 7;
    pub const MAC: [u16; 2] = [1 << 8, 1 << 9];
    /// The record has a locator.
    pub const LOCATED: u16 = 1 << 10;
    /// Two bits: which sides have sent FIN.
    pub const FINS: u32 = 11;
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Hot {
    pub ends: [u64; 4],
    pub last: u64,
    pub around: u64,
    pub ports: u32,
    pub more: u32,
    pub bits: u16,
    pub protocol: u8,
    pub tunnel: u8,
    pub state: TcpState,
    pub packets: u8,
}

#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Cold {
    pub start: u64,
    pub positions: [u64; 2],
    pub shake: [u64; 2],
    pub mpls: u32,
    pub queue: u16,
    pub icmp: u16,
    pub macs: [[u8; 6]; 2],
    pub side: SlimSide,
    pub first_length: u16,
    pub first_flags: u8,
}

const _: () = assert!(size_of::<Hot>() == 64 && size_of::<Cold>() <= 80);

/// Stands for no label.
pub(crate) const NO_LABEL: u32 = u32::MAX;

impl Hot {
    pub fn new(key: &Key, last: u64) -> Self {
        let mut bits = bit::USED;
        bits |= if key.v6 { bit::V6 } else { 0 };
        bits |= if key.turned { bit::TURNED } else { 0 };
        Self {
            ends: key.ends,
            last,
            around: key.around,
            ports: key.ports,
            more: NONE,
            bits,
            protocol: key.protocol,
            tunnel: key.tunnel,
            state: TcpState::None,
            packets: 1,
        }
    }

    #[inline(always)]
    pub const fn has(&self, bit: u16) -> bool {
        self.bits & bit != 0
    }

    /// The key by which it is found.
    pub fn key(&self) -> Key {
        Key {
            ends: self.ends,
            ports: self.ports,
            protocol: self.protocol,
            v6: self.has(bit::V6),
            turned: self.has(bit::TURNED),
            tunnel: self.tunnel,
            around: self.around,
        }
    }

    /// Ends and ports as whoever began sees them.
    pub fn oriented(&self) -> ([u64; 4], [u16; 2]) {
        let [a, b, c, d] = self.ends;
        let [low, high] = [(self.ports >> 16) as u16, self.ports as u16];
        if self.has(bit::TURNED) { ([c, d, a, b], [high, low]) } else { ([a, b, c, d], [low, high]) }
    }
}
