//! Computes how many packets are due at a given time, for a rate.
//!
//! Packet `k` is due at `start + k / rate`. This time is computed from `k` in integers for each packet, so errors do
//! not accumulate, and the schedule is exact for a run of any length. After a delay of the sender, all packets that are
//! overdue are due at once; the sender decides how many of them it sends in one burst.

use base::Timestamp;
use base::units::Rate;

/// The schedule of one generator.
#[derive(Clone, Debug)]
pub struct Pacer {
    unit: Unit,
    start: Timestamp,
    packets: u64,
    bits: u64,
}

/// Unit of the rates: thousandths of a packet (or bit) per second. The slowest rate is one packet in about a quarter of
/// an hour.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Flat,
    MilliPackets(u64),
    MilliBits(u64),
}

const MILLI_NANOS: u128 = 1_000_000_000_000;

impl Pacer {
    /// A schedule whose first packet is due at `start`. Rates are rounded to a thousandth of a packet or bit per
    /// second, but not to zero.
    pub fn new(rate: Rate, start: Timestamp) -> Self {
        let milli = |r: f64| (r * 1000.0).round().max(1.0) as u64;
        let unit = match rate {
            Rate::Flat => Unit::Flat,
            Rate::Packets(r) => Unit::MilliPackets(milli(r)),
            Rate::Bits(r) => Unit::MilliBits(milli(r)),
        };
        Self { unit, start, packets: 0, bits: 0 }
    }

    /// Number of frames of `len` bytes that are due at `now`; `u64::MAX` if no rate is set.
    pub fn due(&self, now: Timestamp, len: usize) -> u64 {
        if now < self.start && !matches!(self.unit, Unit::Flat) {
            return 0;
        }
        let elapsed = now.since(self.start).as_nanos();
        // A frame is due when the time of all earlier packets (or bits) has passed, so the first frame is due at once:
        // hence the `+ 1`.
        let due = match self.unit {
            Unit::Flat => return u64::MAX,
            Unit::MilliPackets(rate) => {
                (elapsed * u128::from(rate) / MILLI_NANOS + 1).saturating_sub(u128::from(self.packets))
            }
            Unit::MilliBits(rate) => {
                match (elapsed * u128::from(rate) / MILLI_NANOS).checked_sub(u128::from(self.bits)) {
                    Some(credit) => credit / (len.max(1) as u128 * 8) + 1,
                    None => 0,
                }
            }
        };
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Time at which the next frame is due; the start time if no rate is set.
    pub fn departure(&self) -> Timestamp {
        let (units, rate) = match self.unit {
            Unit::Flat => return self.start,
            Unit::MilliPackets(rate) => (self.packets, rate),
            Unit::MilliBits(rate) => (self.bits, rate),
        };
        let nanos = (u128::from(units) * MILLI_NANOS).div_ceil(u128::from(rate));
        Timestamp::from_nanos(self.start.nanos().saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Registers that `packets` frames with a sum of `bytes` bytes were sent.
    pub fn sent(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bits += bytes * 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::time::Duration;

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_123_456_789);

    #[test]
    fn no_frame_is_due_before_the_start() {
        for rate in [Rate::Packets(1e6), Rate::Bits(1e9)] {
            let pacer = Pacer::new(rate, START);
            assert_eq!(pacer.due(START.before(Duration::from_nanos(1)), 60), 0);
            assert_eq!(pacer.due(START, 60), 1);
        }
    }

    #[test]
    fn irregular_polling_over_hours_does_not_drift() {
        let mut prng = Prng::new(3);
        for rate in [0.001, 0.3, 7.0, 1e6 / 3.0, 1.6e6, 14_880_952.38] {
            let mut pacer = Pacer::new(Rate::Packets(rate), START);
            let (mut now, mut sent) = (START, 0);
            let end = START.after(Duration::from_hours(5));
            while now < end {
                let due = pacer.due(now, 60);
                pacer.sent(due, due * 60);
                sent += due;
                now = now.after(Duration::from_nanos(prng.below(200_000_000)));
            }
            let due = pacer.due(end, 60);
            pacer.sent(due, due * 60);
            let ideal = (rate * 1000.0).round() * 18.0;
            assert!(
                (sent + due) as f64 - ideal <= 1.0 + ideal * 1e-12,
                "{rate} packets/s: {} packets became due, expected {ideal}, seed 3",
                sent + due
            );
            assert!(
                ideal - (sent + due) as f64 <= ideal * 1e-12,
                "{rate} packets/s: {} packets became due, expected {ideal}, seed 3",
                sent + due
            );
        }
    }

    #[test]
    fn a_frame_is_due_from_its_departure_time_on_and_not_before() {
        let mut prng = Prng::new(4);
        for rate in [Rate::Packets(3.0), Rate::Packets(999_983.0), Rate::Bits(1e3), Rate::Bits(9.99e9)] {
            let mut pacer = Pacer::new(rate, START);
            for _ in 0..10_000 {
                let len = 60 + prng.below(1455) as usize;
                let at = pacer.departure();
                assert!(pacer.due(at, len) >= 1, "{rate:?}: no frame is due at {at}, seed 4");
                let early = pacer.due(at.before(Duration::from_nanos(1)), len);
                assert_eq!(early, 0, "{rate:?}: frames that are due before {at}, seed 4");
                pacer.sent(1, len as u64);
            }
        }
    }

    #[test]
    fn bits_per_second_count_frame_bytes() {
        let mut pacer = Pacer::new(Rate::Bits(8e9), START);
        let hour = START.after(Duration::from_hours(1));
        let due = pacer.due(hour, 1000);
        assert_eq!(due, 3600 * 1_000_000 + 1);
        pacer.sent(due, due * 1000);
        assert_eq!(pacer.due(hour, 1000), 0);
    }

    #[test]
    fn without_a_rate_frames_are_always_due() {
        let pacer = Pacer::new(Rate::Flat, START);
        assert_eq!(pacer.due(START, 60), u64::MAX);
        assert_eq!(pacer.departure(), START);
    }
}
