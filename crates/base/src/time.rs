//! A moment in UTC with nanosecond resolution, and the three ways people write one.
//!
//! The calendar is the proleptic Gregorian one; days are turned into dates by the era arithmetic that RFC 3339 users
//! expect (no leap seconds, as in `CLOCK_REALTIME`).

use std::fmt;
use std::time::Duration;

/// Nanoseconds since 1970-01-01T00:00:00Z, as `CLOCK_REALTIME` counts them. Reaches to the year 2554.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// Nanoseconds in one second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

impl Timestamp {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// The last moment that fits.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From whole seconds and a fraction in nanoseconds; saturates at [`Timestamp::MAX`].
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

    /// `self - span`, stopping at the epoch.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The latest multiple of `period` (counted from the epoch) that is not after `self`. A zero period changes nothing.
    pub fn floor_to(self, period: Duration) -> Self {
        match u64::try_from(period.as_nanos()) {
            Ok(p) if p > 0 => Self(self.0 - self.0 % p),
            _ => self,
        }
    }

    /// Year, month (1-12), day (1-31), hour, minute, second in UTC.
    pub fn civil(self) -> (u64, u8, u8, u8, u8, u8) {
        let (days, rest) = (self.secs() / 86_400, self.secs() % 86_400);
        let (year, month, day) = date_of(days);
        (year, month, day, (rest / 3600) as u8, (rest / 60 % 60) as u8, (rest % 60) as u8)
    }

    /// Reads `2026-11-21T10:42:00.5Z` (RFC 3339, any offset; a blank may stand for the `T`), `1795257720.5` (seconds
    /// since the epoch), `now`, or a span before now: `-10min`.
    ///
    /// # Errors
    /// [`ParseTimeError`] carries the text and says what would have been understood.
    ///
    /// ```
    /// # use netgrain_base::Timestamp;
    /// let now = Timestamp::from_secs_nanos(1000, 0);
    /// assert_eq!(Timestamp::parse("-10s", now).unwrap().secs(), 990);
    /// assert_eq!(Timestamp::parse("1970-01-01T01:00:00+01:00", now).unwrap(), Timestamp::ZERO);
    /// ```
    pub fn parse(text: &str, now: Self) -> Result<Self, ParseTimeError> {
        let t = text.trim();
        if t == "now" {
            return Ok(now);
        }
        if let Some(span) = t.strip_prefix('-')
            && let Ok(span) = crate::units::parse_span(span)
        {
            return Ok(now.before(span));
        }
        epoch(t).or_else(|| rfc3339(t)).ok_or_else(|| ParseTimeError(text.to_owned()))
    }
}

/// RFC 3339 with nine digits of fraction and `Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, h, m, s) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:09}Z", self.subsec_nanos())
    }
}

/// The text was not a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTimeError(String);

impl fmt::Display for ParseTimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a time: write 2026-11-21T10:42:00Z, seconds since 1970 (1795257720.25), now, or -10min",
            self.0
        )
    }
}

impl std::error::Error for ParseTimeError {}

fn date_of(days_since_epoch: u64) -> (u64, u8, u8) {
    // Eras of 400 years that begin on 1 March, so that the leap day is the last of its year.
    let z = days_since_epoch + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month as u8, (doy - (153 * mp + 2) / 5 + 1) as u8)
}

fn days_to(year: u64, month: u64, day: u64) -> u64 {
    let y = year - u64::from(month <= 2);
    let (era, yoe) = (y / 400, y % 400);
    let doy = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    (era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy).saturating_sub(719_468)
}

fn fraction(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nine: String = digits.chars().chain(std::iter::repeat('0')).take(9).collect();
    nine.parse().ok()
}

fn epoch(t: &str) -> Option<Timestamp> {
    let (secs, frac) = t.split_once('.').unwrap_or((t, "0"));
    if secs.is_empty() || !secs.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Timestamp::from_secs_nanos(secs.parse().ok()?, fraction(frac)?))
}

fn rfc3339(t: &str) -> Option<Timestamp> {
    if !t.is_ascii() {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let s = t.get(range)?;
        s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok())?
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (h, m, s) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let b = t.as_bytes();
    if b[4] != b'-' || b[7] != b'-' || !matches!(b[10], b'T' | b't' | b' ') || b[13] != b':' || b[16] != b':' {
        return None;
    }
    let days_in_month = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || day == 0 || day > days_in_month || h > 23 || m > 59 || s > 60 {
        return None;
    }
    let mut rest = &t[19..];
    let mut nanos = 0;
    if let Some(r) = rest.strip_prefix('.') {
        let end = r.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(r.len());
        nanos = fraction(&r[..end])?;
        rest = &r[end..];
    }
    let local = days_to(year, month, day) * 86_400 + h * 3600 + m * 60 + s;
    let utc = match rest.as_bytes() {
        b"Z" | b"z" => local,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) => {
            let d = |b: &u8| u64::from(b - b'0');
            let offset = (d(h1) * 10 + d(h2)) * 3600 + (d(m1) * 10 + d(m2)) * 60;
            if *sign == b'+' { local.checked_sub(offset)? } else { local + offset }
        }
        _ => return None,
    };
    Some(Timestamp::from_secs_nanos(utc, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_and_parse_are_inverse_over_four_centuries() {
        let mut prng = crate::Prng::new(7);
        for _ in 0..20_000 {
            let t = Timestamp::from_nanos(prng.next_u64() % (480 * 366 * 86_400 * NANOS_PER_SEC));
            assert_eq!(Timestamp::parse(&t.to_string(), Timestamp::ZERO), Ok(t));
        }
    }

    #[test]
    fn known_dates() {
        assert_eq!(Timestamp::from_secs_nanos(951_782_400, 0).to_string(), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(Timestamp::from_secs_nanos(1_795_290_000, 5).to_string(), "2026-11-21T19:40:00.000000005Z");
    }

    #[test]
    fn nonsense_is_refused_with_advice() {
        for bad in [
            "",
            "yesterday",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "12:30",
            "1.2.3",
            "-",
            "2026-11-21T10:00:00+1:00",
        ] {
            let e = Timestamp::parse(bad, Timestamp::ZERO).unwrap_err();
            assert!(e.to_string().contains("-10min"), "{bad}");
        }
    }

    #[test]
    fn floor_is_aligned_to_the_epoch() {
        let t = Timestamp::from_secs_nanos(125, 7);
        assert_eq!(t.floor_to(Duration::from_secs(60)).secs(), 120);
        assert_eq!(t.floor_to(Duration::ZERO), t);
    }
}
