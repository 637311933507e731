//! The error estimate of a clock, as OWAMP and STAMP send it (RFC 4656 §4.1.2, RFC 8186 §2.1, RFC 8762 §4.2.1).
//!
//! ```text
//!  bit  0   1   2                       8                               16
//!     +---+---+-----------------------+-------------------------------+
//!     | S | Z |        scale          |          multiplier           |
//!     +---+---+-----------------------+-------------------------------+
//! ```
//!
//! `S` is 1 if the clock is synchronised to UTC by an external source. `Z` is 1 if the timestamp beside the estimate
//! has the format of PTP instead of NTP. The error is `multiplier · 2^(scale - 32)` seconds. The multiplier of a valid
//! estimate is at least 1.

use std::time::Duration;

/// The error estimate of a clock; see the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    synchronised: bool,
    ptp: bool,
    scale: u8,
    multiplier: u8,
}

const SYNCHRONISED: u16 = 1 << 15;
const PTP: u16 = 1 << 14;
const SCALE_MAX: u8 = 63;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

impl ErrorEstimate {
    /// The smallest estimate that is not below `error`. The resolution is 1/128 of the value or 2^-32 seconds.
    pub fn of(error: Duration, synchronised: bool) -> Self {
        let mut units = (error.as_nanos() << 32).div_ceil(NANOS_PER_SECOND).max(1);
        let mut scale = 0;
        while units > u128::from(u8::MAX) && scale < SCALE_MAX {
            units = units.div_ceil(2);
            scale += 1;
        }
        Self { synchronised, ptp: false, scale, multiplier: u8::try_from(units).unwrap_or(u8::MAX) }
    }

    /// The same estimate, for a timestamp in the format of PTP.
    #[must_use]
    pub const fn with_ptp_timestamps(mut self) -> Self {
        self.ptp = true;
        self
    }

    /// Reads the two bytes of the field. Returns `None` if the multiplier is 0, which RFC 4656 forbids.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        let multiplier = (bits & 0xff) as u8;
        if multiplier == 0 {
            return None;
        }
        let scale = (bits >> 8) as u8 & SCALE_MAX;
        Some(Self { synchronised: bits & SYNCHRONISED != 0, ptp: bits & PTP != 0, scale, multiplier })
    }

    /// The two bytes of the field.
    pub const fn bits(self) -> u16 {
        let flags = if self.synchronised { SYNCHRONISED } else { 0 } | if self.ptp { PTP } else { 0 };
        flags | (self.scale as u16) << 8 | self.multiplier as u16
    }

    /// True if the clock is synchronised to UTC.
    pub const fn is_synchronised(self) -> bool {
        self.synchronised
    }

    /// True if the timestamp beside the estimate has the format of PTP.
    pub const fn has_ptp_timestamps(self) -> bool {
        self.ptp
    }

    /// The error, rounded up to a nanosecond. Errors of more than 584 years are lowered to 584 years.
    pub fn error(self) -> Duration {
        let units = u128::from(self.multiplier) << self.scale;
        // Above 2^96 units, the product with the nanoseconds of a second could exceed 128 bits.
        let nanos = match units.checked_mul(NANOS_PER_SECOND) {
            Some(product) => u64::try_from(product.div_ceil(1 << 32)).unwrap_or(u64::MAX),
            None => u64::MAX,
        };
        Duration::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn a_multiplier_of_zero_is_no_estimate() {
        assert_eq!(ErrorEstimate::from_bits(0x8300), None);
        assert_eq!(ErrorEstimate::from_bits(0), None);
    }

    #[test]
    fn every_valid_field_keeps_its_bits() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0xff != 0) {
            assert_eq!(ErrorEstimate::from_bits(bits).map(ErrorEstimate::bits), Some(bits));
        }
    }

    #[test]
    fn an_estimate_is_at_least_the_error_and_at_most_a_hundredth_and_a_nanosecond_above() {
        let mut prng = Prng::new(4656);
        for _ in 0..100_000 {
            let nanos = prng.next_u64() >> prng.below(64);
            let estimate = ErrorEstimate::of(Duration::from_nanos(nanos), true);
            let stated = estimate.error().as_nanos() as u64;
            assert!(stated >= nanos, "{nanos}, seed 4656");
            assert!(stated - nanos <= nanos / 100 + 1, "{nanos}: {stated}, seed 4656");
        }
    }

    #[test]
    fn the_estimates_of_the_formula_in_rfc_4656_have_their_error() {
        // Multiplier 1 and scale 32 are one second; multiplier 128 and scale 0 are 2^-25 seconds.
        let second = ErrorEstimate::from_bits(0x2001).expect("an estimate");
        assert_eq!((second.error(), second.is_synchronised()), (Duration::from_secs(1), false));
        let small = ErrorEstimate::from_bits(0xc080).expect("an estimate");
        assert_eq!((small.error(), small.is_synchronised()), (Duration::from_nanos(30), true));
        assert!(small.has_ptp_timestamps());
        assert_eq!(ErrorEstimate::from_bits(0x3fff).expect("an estimate").error(), Duration::from_nanos(u64::MAX));
    }
}
