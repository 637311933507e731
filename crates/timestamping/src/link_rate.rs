//! The time that a frame occupies an Ethernet link.

use std::num::NonZeroU32;

/// Bytes that a frame occupies on the link in addition to its length without FCS: preamble, FCS and inter-frame gap
/// (thesis of HPCAP, equation 4.1).
pub const WIRE_OVERHEAD: u32 = 8 + 4 + 12;

/// The shortest Ethernet frame, without FCS, in bytes. Shorter frames are padded on the wire.
const FRAME_MIN: u32 = 60;

/// The rate of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRate {
    picoseconds_per_byte: NonZeroU32,
}

impl LinkRate {
    /// The rate of a link of this many megabits per second. `None` for 0 and for more than 8 Tb/s, because drivers that
    /// do not know the rate report such numbers.
    pub fn from_mbps(mbps: u32) -> Option<Self> {
        let picoseconds_per_byte = 8_000_000u32.checked_div(mbps).and_then(NonZeroU32::new)?;
        Some(Self { picoseconds_per_byte })
    }

    /// The time, in nanoseconds, for which `wire_bytes` bytes occupy the link.
    #[inline]
    pub fn nanos(self, wire_bytes: u64) -> u64 {
        wire_bytes.saturating_mul(self.picoseconds_per_byte.get().into()) / 1000
    }
}

/// Bytes that a frame of this length (without FCS) occupies on the link.
#[inline]
pub(crate) fn wire_bytes(len: u32) -> u64 {
    u64::from(len.max(FRAME_MIN)) + u64::from(WIRE_OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_occupy_a_link_for_the_times_of_the_thesis() {
        let ten = LinkRate::from_mbps(10_000).expect("a rate");
        // Equation 4.2 and the text before it.
        assert_eq!((ten.nanos(wire_bytes(60)), ten.nanos(wire_bytes(1514))), (67, 1230));
        assert_eq!(wire_bytes(20), wire_bytes(60), "a short frame is padded");
    }

    #[test]
    fn an_unknown_rate_is_no_rate() {
        assert_eq!(LinkRate::from_mbps(0), None);
        assert_eq!(LinkRate::from_mbps(u32::MAX), None);
        assert_eq!(LinkRate::from_mbps(8_000_000).map(|r| r.nanos(1000)), Some(1));
    }
}
