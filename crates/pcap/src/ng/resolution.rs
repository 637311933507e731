//! The timestamps of a pcapng interface are 64-bit counts of 10⁻ⁿ or 2⁻ⁿ seconds (`if_tsresol`), to which an offset in
//! seconds is added (`if_tsoffset`).

use base::Timestamp;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Converts the timestamps of an interface to nanoseconds, for any values of the options `if_tsresol` and
/// `if_tsoffset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    unit: Unit,
    offset_secs: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// One unit of the timestamps is this many nanoseconds.
    Nanos(u64),
    /// One nanosecond has this many units of the timestamps.
    PerNano(u64),
    /// One second has two to the power of this number units of the timestamps.
    Binary(u8),
}

impl Resolution {
    /// Derives the conversion from the byte of `if_tsresol` (its upper bit chooses between powers of two and of ten)
    /// and from the offset in seconds.
    pub fn new(tsresol: u8, offset_secs: i64) -> Self {
        let power = tsresol & 0x7f;
        let unit = if tsresol & 0x80 != 0 {
            Unit::Binary(power)
        } else if power <= 9 {
            Unit::Nanos(10u64.pow(u32::from(9 - power)))
        } else {
            // With a unit below 10⁻²⁸ s, a timestamp of 64 bits is always less than one nanosecond.
            Unit::PerNano(10u64.checked_pow(u32::from(power - 9)).unwrap_or(u64::MAX))
        };
        Self { unit, offset_secs }
    }

    /// The time of a timestamp in the file, limited to the range from 1970 to the last representable time in the year
    /// 2554.
    #[inline]
    pub fn timestamp(self, count: u64) -> Timestamp {
        let nanos = match self.unit {
            Unit::Nanos(1) => count,
            Unit::Nanos(n) => count.saturating_mul(n),
            Unit::PerNano(n) => count / n,
            Unit::Binary(power) => u64::try_from((u128::from(count) * NANOS_PER_SEC) >> power).unwrap_or(u64::MAX),
        };
        if self.offset_secs == 0 {
            return Timestamp::from_nanos(nanos);
        }
        let shifted = i128::from(nanos) + i128::from(self.offset_secs) * NANOS_PER_SEC as i128;
        Timestamp::from_nanos(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }
}

/// Microseconds since 1970, the default for interfaces without the option `if_tsresol`.
impl Default for Resolution {
    fn default() -> Self {
        Self::new(6, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_resolution_convert_to_the_nearest_nanosecond() {
        let mut prng = base::Prng::new(5);
        for byte in 0..=255u8 {
            for _ in 0..200 {
                let count = prng.next_u64() >> prng.below(64);
                let power = f64::from(byte & 0x7f);
                let unit = if byte & 0x80 != 0 { 2f64.powf(-power) } else { 10f64.powf(-power) };
                let exact = (count as f64 * unit * 1e9).min(u64::MAX as f64);
                let got = Resolution::new(byte, 0).timestamp(count).nanos() as f64;
                assert!((got - exact).abs() <= 1.0 + exact * 1e-12, "if_tsresol {byte:#x}, {count}: {got} {exact}");
            }
        }
    }

    #[test]
    fn offsets_of_both_signs_saturate_at_the_limits_of_timestamps() {
        let at = |offset| Resolution::new(9, offset).timestamp(5_000_000_001).nanos();
        assert_eq!((at(2), at(-5), at(-6)), (7_000_000_001, 1, 0));
        assert_eq!((at(i64::MAX), at(i64::MIN)), (u64::MAX, 0));
    }
}
