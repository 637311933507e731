//! A point in time in UTC with nanosecond resolution. [`crate::TimeSpec`] has the notation of the command line.
//!
//! The calendar is the proleptic Gregorian calendar without leap seconds, as in `CLOCK_REALTIME`.

use std::fmt;
use std::time::Duration;

/// Nanoseconds since 1970-01-01T00:00:00Z, as `CLOCK_REALTIME` counts them. The range ends in the year 2554.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// Nanoseconds in one second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

impl Timestamp {
    /// The epoch, 1970-01-01T00:00:00Z.
    pub const ZERO: Self = Self(0);
    /// The latest time that the type can hold.
    pub const MAX: Self = Self(u64::MAX);

    /// The time this number of nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time this number of seconds and nanoseconds after the epoch; saturates at [`Timestamp::MAX`].
    pub const fn from_secs_nanos(secs: u64, nanos: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SEC).saturating_add(nanos))
    }

    /// Nanoseconds since the epoch.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch.
    pub const fn secs(self) -> u64 {
        self.0 / NANOS_PER_SEC
    }

    /// The fraction below [`Timestamp::secs`], in nanoseconds.
    pub const fn subsec_nanos(self) -> u32 {
        (self.0 % NANOS_PER_SEC) as u32
    }

    /// `self - earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self + span`, saturating.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// `self - span`, or the epoch if the difference is negative.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the latest multiple of `period` (counted from the epoch) that is not after `self`. Returns `self` if
    /// `period` is zero.
    pub fn floor_to(self, period: Duration) -> Self {
        match u64::try_from(period.as_nanos()) {
            Ok(p) if p > 0 => Self(self.0 - self.0 % p),
            _ => self,
        }
    }

    /// Returns the year, month (1-12), day (1-31), hour, minute and second in UTC.
    pub fn civil(self) -> (u64, u8, u8, u8, u8, u8) {
        let (days, rest) = (self.secs() / 86_400, self.secs() % 86_400);
        let (year, month, day) = date_of(days);
        (year, month, day, (rest / 3600) as u8, (rest / 60 % 60) as u8, (rest % 60) as u8)
    }
}

/// Prints the time in the format of RFC 3339, with nine digits after the decimal point and the zone `Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, h, m, s) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:09}Z", self.subsec_nanos())
    }
}

fn date_of(days_since_epoch: u64) -> (u64, u8, u8) {
    // The algorithm counts in eras of 400 years that begin on 1 March, so that the leap day is the last day of its
    // year.
    let z = days_since_epoch + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month as u8, (doy - (153 * mp + 2) / 5 + 1) as u8)
}

/// Returns the number of days from 1970-01-01 to a valid year, month and day; the inverse of `date_of`.
pub(crate) fn days_to(year: u64, month: u64, day: u64) -> u64 {
    let y = year - u64::from(month <= 2);
    let (era, yoe) = (y / 400, y % 400);
    let doy = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    (era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy).saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_inverts_display_over_the_whole_range() {
        let mut prng = crate::Prng::new(7);
        for _ in 0..20_000 {
            let t = Timestamp::from_nanos(prng.next_u64() % (480 * 366 * 86_400 * NANOS_PER_SEC));
            assert_eq!(Timestamp::parse(&t.to_string(), Timestamp::ZERO), Ok(t));
        }
    }

    #[test]
    fn known_dates_are_displayed_correctly() {
        assert_eq!(Timestamp::from_secs_nanos(951_782_400, 0).to_string(), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(Timestamp::from_secs_nanos(1_795_290_000, 5).to_string(), "2026-11-21T19:40:00.000000005Z");
    }

    #[test]
    fn floor_to_returns_multiples_of_the_period_since_the_epoch() {
        let t = Timestamp::from_secs_nanos(125, 7);
        assert_eq!(t.floor_to(Duration::from_secs(60)).secs(), 120);
        assert_eq!(t.floor_to(Duration::ZERO), t);
    }
}
