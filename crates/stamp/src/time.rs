//! The timestamps of STAMP packets: NTP (RFC 5905 §6) and truncated PTP (RFC 8186 §2.1.1).
//!
//! An NTP timestamp has 32 bits of seconds since 1900 and 32 bits of fraction. The seconds overflow in 2036. Seconds
//! whose highest bit is 0 are read as seconds after the overflow (RFC 4330 §3), so the range is 1968 to 2104. A
//! truncated PTP timestamp has 32 bits of seconds since 1970 and 32 bits of nanoseconds.

use base::Timestamp;

/// Seconds from 1900 to 1970.
const EPOCH: u64 = 2_208_988_800;
const NANOS: u64 = 1_000_000_000;

/// The NTP timestamp of a time, rounded down to 2^-32 seconds.
pub fn to_ntp(time: Timestamp) -> u64 {
    let seconds = time.secs().wrapping_add(EPOCH) & 0xffff_ffff;
    let fraction = (u64::from(time.subsec_nanos()) << 32) / NANOS;
    seconds << 32 | fraction
}

/// The time of an NTP timestamp, rounded to the nearest nanosecond. Times before 1970 become 1970.
pub fn from_ntp(ntp: u64) -> Timestamp {
    let (seconds, fraction) = (ntp >> 32, ntp & 0xffff_ffff);
    let seconds = if seconds >> 31 == 0 { seconds + (1 << 32) } else { seconds };
    let nanos = (fraction * NANOS + (1 << 31)) >> 32;
    match seconds.checked_sub(EPOCH) {
        Some(seconds) => Timestamp::from_secs_nanos(seconds, nanos),
        None => Timestamp::ZERO,
    }
}

/// The time of a truncated PTP timestamp; `None` if the nanoseconds are a second or more.
pub fn from_ptp(ptp: u64) -> Option<Timestamp> {
    let (seconds, nanos) = (ptp >> 32, ptp & 0xffff_ffff);
    (nanos < NANOS).then(|| Timestamp::from_secs_nanos(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn ptp_nanoseconds_of_a_second_or_more_are_invalid() {
        assert_eq!(from_ptp(5 << 32 | NANOS), None);
        assert_eq!(from_ptp(5 << 32 | (NANOS - 1)), Some(Timestamp::from_nanos(6 * NANOS - 1)));
    }

    #[test]
    fn a_time_that_is_written_and_read_is_unchanged() {
        let mut prng = Prng::new(5905);
        // The last second since 1970 that an NTP timestamp can represent.
        let last = 4_233_462_143;
        for _ in 0..100_000 {
            let time = Timestamp::from_secs_nanos(prng.below(last), prng.below(NANOS));
            assert_eq!(from_ntp(to_ntp(time)), time, "{time}, seed 5905");
        }
        for time in [Timestamp::ZERO, Timestamp::from_secs_nanos(last, NANOS - 1)] {
            assert_eq!(from_ntp(to_ntp(time)), time);
        }
    }

    #[test]
    fn the_year_1970_and_the_overflow_of_2036_have_their_ntp_timestamps() {
        assert_eq!(to_ntp(Timestamp::ZERO), 0x83aa_7e80 << 32);
        // 2036-02-07T06:28:16Z is the first second of the next era.
        assert_eq!(to_ntp(Timestamp::from_secs_nanos(2_085_978_496, 0)), 0);
        assert_eq!(from_ntp(1 << 31).nanos(), 2_085_978_496 * NANOS + NANOS / 2);
    }
}
