//! The notation of points in time on the command line and in queries.
//!
//! ```text
//! moment   = "now" [signed] | signed | date "T" (clock | hour) [zone] | date [zone] | clock [zone] | number
//! signed   = ("-" | "+") span                 -10min, +5s, -1h30min; see [`crate::units::parse_span`]
//! date     = 2026-11-21 | 20261121            the second notation as in the names of a store's files
//! clock    = 10:42 | 10:42:07 | 10:42:07.25 | 104207.25
//! hour     = 10
//! zone     = "Z" | +01:00 | +0100 | +01       as in RFC 3339; without a zone: UTC, or the caller's default zone
//! number   = since 1970: seconds (to 11 digits), milli- (12-14), micro- (15-17), nanoseconds (18-20), with a fraction
//! ```
//! A blank may replace the `T`. A `clock` without a date is a time of the current day, in the zone of the text.
//! [`TimeSpec::at`] reads a text without a zone as UTC, as in the names of all files, so that a query has the same
//! meaning on every machine. A caller with another default zone evaluates the fields of [`TimeSpec::Civil`] itself.
//! [`TimeSpec::parse`] needs no clock; [`TimeSpec::at`] takes the current time as an argument.

use crate::Timestamp;
use crate::time::{NANOS_PER_SEC, days_to};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A parsed point in time. Some variants are relative to the current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSpec {
    /// An absolute time.
    At(Timestamp),
    /// The time this long before the current time.
    Ago(Duration),
    /// The time this long after the current time, or after the argument `anchor` of [`TimeSpec::at`] if it is present.
    FromNow(Duration),
    /// A date and a time of day, or a time of day alone.
    Civil {
        /// Days since 1970-01-01; `None`: the current day.
        day: Option<u64>,
        /// Nanoseconds since midnight.
        nanos: u64,
        /// Seconds to the east of UTC; `None`: the text has no zone.
        east: Option<i64>,
    },
}

/// The text is not a point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTimeError {
    text: String,
    why: Option<&'static str>,
}

impl fmt::Display for ParseTimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a time", self.text)?;
        if let Some(why) = self.why {
            write!(f, " ({why})")?;
        }
        f.write_str(": write 2026-11-21T10:42:00Z, 10:42 (today), seconds since 1970 (1795257720.25), now, or -10min")
    }
}

impl std::error::Error for ParseTimeError {}

impl Timestamp {
    /// Parses a [`TimeSpec`] and evaluates it at the time `now`.
    ///
    /// # Errors
    /// [`ParseTimeError`] has the text and the accepted forms.
    ///
    /// ```
    /// # use netgrain_base::Timestamp;
    /// let now = Timestamp::from_secs_nanos(1000, 0);
    /// assert_eq!(Timestamp::parse("-10s", now).unwrap().secs(), 990);
    /// assert_eq!(Timestamp::parse("1970-01-01T01:00:00+01:00", now).unwrap(), Timestamp::ZERO);
    /// ```
    pub fn parse(text: &str, now: Self) -> Result<Self, ParseTimeError> {
        Ok(TimeSpec::parse(text)?.at(now, None))
    }
}

impl TimeSpec {
    /// Parses a point in time.
    ///
    /// # Errors
    /// [`ParseTimeError`] has the text, the mistake if the parser can name it, and the accepted forms.
    ///
    /// ```
    /// # use netgrain_base::{TimeSpec, Timestamp};
    /// let now = Timestamp::parse("2026-11-21T10:42:00Z", Timestamp::ZERO)?;
    /// let at = |text: &str| TimeSpec::parse(text).map(|m| m.at(now, None).to_string());
    /// assert_eq!(at("-1h30min")?, "2026-11-21T09:12:00.000000000Z");
    /// assert_eq!(at("10:40:30.5")?, "2026-11-21T10:40:30.500000000Z");
    /// assert_eq!(at("2026-11-21 11:42+01:00")?, now.to_string());
    /// assert_eq!(at("1795257720250")?, "2026-11-21T10:42:00.250000000Z");
    /// # Ok::<(), netgrain_base::ParseTimeError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, ParseTimeError> {
        Self::parse_with_precision(text).map(|(moment, _)| moment)
    }

    /// As [`TimeSpec::parse`], with the length of the smallest unit in the text: a minute for `10:42`, a day for
    /// `2026-11-21`, 10 ms for `10:42:07.25`. `None` for times relative to the current time.
    ///
    /// # Errors
    /// As [`TimeSpec::parse`].
    ///
    /// ```
    /// # use netgrain_base::TimeSpec;
    /// # use std::time::Duration;
    /// let precision = |text: &str| TimeSpec::parse_with_precision(text).map(|(_, precision)| precision);
    /// assert_eq!(precision("10:42")?, Some(Duration::from_secs(60)));
    /// assert_eq!(precision("2026-11-21T10Z")?, Some(Duration::from_secs(3600)));
    /// assert_eq!(precision("-10min")?, None);
    /// # Ok::<(), netgrain_base::ParseTimeError>(())
    /// ```
    pub fn parse_with_precision(text: &str) -> Result<(Self, Option<Duration>), ParseTimeError> {
        let t = text.trim();
        read(t).map_err(|why| ParseTimeError { text: text.to_owned(), why })
    }

    /// Returns the absolute time that this value denotes if the wall clock is at `now`. If `anchor` is present, `+SPAN`
    /// is added to `anchor` instead of `now`. For the end of an interval, `anchor` is the beginning of the interval.
    pub fn at(self, now: Timestamp, anchor: Option<Timestamp>) -> Timestamp {
        const DAY: i128 = 86_400 * NANOS_PER_SEC as i128;
        match self {
            Self::At(moment) => moment,
            Self::Ago(span) => now.before(span),
            Self::FromNow(span) => anchor.unwrap_or(now).after(span),
            Self::Civil { day, nanos, east } => {
                let east = i128::from(east.unwrap_or(0)) * i128::from(NANOS_PER_SEC);
                let day = day.map_or_else(|| (i128::from(now.nanos()) + east).div_euclid(DAY), i128::from);
                let moment = day * DAY + i128::from(nanos) - east;
                Timestamp::from_nanos(u64::try_from(moment.max(0)).unwrap_or(u64::MAX))
            }
        }
    }
}

impl FromStr for TimeSpec {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        Self::parse(text)
    }
}

type Reason = Option<&'static str>;

/// A point in time, and the length of the smallest unit in the text.
type WithPrecision = (TimeSpec, Option<Duration>);

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn read(t: &str) -> Result<WithPrecision, Reason> {
    let relative = t.strip_prefix("now").unwrap_or(t).trim_start();
    if relative.is_empty() && !t.is_empty() {
        return Ok((TimeSpec::Ago(Duration::ZERO), None));
    }
    let span = |text: &str| {
        crate::units::parse_span(text).map_err(|_| match text.trim().parse::<f64>() {
            Ok(_) => Some("a span needs its unit: a span is 10s, 250ms, 5min or 1h30min"),
            Err(_) => Some("a span is 10s, 250ms, 5min or 1h30min"),
        })
    };
    if let Some(before) = relative.strip_prefix('-') {
        return span(before).map(|span| (TimeSpec::Ago(span), None));
    }
    if let Some(after) = relative.strip_prefix('+') {
        return span(after).map(|span| (TimeSpec::FromNow(span), None));
    }
    if !t.is_ascii() {
        return Err(None);
    }
    if let Some(why) = unclear(t) {
        return Err(Some(why));
    }
    match number(t) {
        Some((moment, precision)) => Ok((TimeSpec::At(moment), Some(precision))),
        None => civil(t),
    }
}

/// Returns advice for a number whose digits look like a year or like a date and a time of day. Such numbers are
/// rejected, because read as seconds since 1970 they would denote a time in the 1970s.
fn unclear(t: &str) -> Option<&'static str> {
    digits(t)?;
    match t.len() {
        4 => Some("four digits are ambiguous: write 2026-01-01 for a year, or 2026.0 for seconds since 1970"),
        12 | 14 => {
            let (_, left) = date(&t[..8]).ok()??;
            let seconds = if t.len() == 14 { &t[12..] } else { "00" };
            clock(&format!("{}{seconds}", &t[8..12])).ok().filter(|_| left == 0)?;
            Some("a date and a time of day need a T between them: 20261121T104200")
        }
        _ => None,
    }
}

/// Parses a number of seconds, milliseconds, microseconds or nanoseconds since 1970. The count of its digits determines
/// the unit.
fn number(t: &str) -> Option<(Timestamp, Duration)> {
    let (whole, part) = t.split_once('.').unwrap_or((t, ""));
    let unit = match whole.len() {
        // Eight digits are a date (20261121).
        8 if !t.contains('.') => return None,
        1..=11 => NANOS_PER_SEC,
        12..=14 => 1_000_000,
        15..=17 => 1000,
        18..=20 => 1,
        _ => return None,
    };
    let (part, precision) = match t.contains('.') {
        true => (fraction(part)?, precision_of(part)),
        false => (0, SECOND),
    };
    let count = u128::from(digits(whole)?) * u128::from(unit) + u128::from(part / (NANOS_PER_SEC / unit));
    let precision = (precision.as_nanos() as u64 / (NANOS_PER_SEC / unit)).max(1);
    Some((Timestamp::from_nanos(u64::try_from(count).ok()?), Duration::from_nanos(precision)))
}

/// Parses a date, a time of day, or both, with an optional zone.
fn civil(t: &str) -> Result<WithPrecision, Reason> {
    let (date, rest) = match date(t)? {
        Some((days, left)) => (Some(days), &t[t.len() - left..]),
        None => (None, t),
    };
    let (clock_at, rest) = match (date, rest.as_bytes().first()) {
        (None, _) => (true, rest),
        (Some(_), Some(b'T' | b't' | b' ')) => (true, &rest[1..]),
        (Some(_), _) => (false, rest),
    };
    let (nanos, precision, rest) = match (clock_at, date.and_then(|_| hour(rest))) {
        (true, Some((nanos, rest))) => (nanos, HOUR, rest),
        (true, None) => clock(rest)?,
        (false, _) => (0, 24 * HOUR, rest),
    };
    let east = zone(rest)?;
    let written = Some(precision);
    let Some(day) = date else { return Ok((TimeSpec::Civil { day: None, nanos, east }, written)) };
    let moment = i128::from(day) * 86_400 * i128::from(NANOS_PER_SEC) + i128::from(nanos)
        - i128::from(east.unwrap_or(0)) * i128::from(NANOS_PER_SEC);
    match u64::try_from(moment) {
        Ok(_) if east.is_none() => Ok((TimeSpec::Civil { day: Some(day), nanos, east }, written)),
        Ok(moment) => Ok((TimeSpec::At(Timestamp::from_nanos(moment)), written)),
        Err(_) if moment < 0 => Err(Some("before 1970")),
        Err(_) => Err(Some("after 2554")),
    }
}

/// Parses the date at the beginning of the text. Returns its number of days since 1970, and the number of bytes that
/// the date takes in the text.
fn date(t: &str) -> Result<Option<(u64, usize)>, Reason> {
    let b = t.as_bytes();
    let run = b.iter().take_while(|b| b.is_ascii_digit()).count();
    let parts = match run {
        4 if b.get(4) == Some(&b'-') && b.get(7) == Some(&b'-') => [t.get(..4), t.get(5..7), t.get(8..10)],
        8 => [t.get(..4), t.get(4..6), t.get(6..8)],
        _ => return Ok(None),
    };
    let [Some(year), Some(month), Some(day)] = parts.map(|p| p.and_then(digits)) else { return Err(None) };
    let days_in_month = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return Err(Some("no such month")),
    };
    if day == 0 || day > days_in_month {
        return Err(Some("no such day"));
    }
    if year < 1970 {
        return Err(Some("before 1970"));
    }
    Ok(Some((days_to(year, month, day), t.len() - if run == 8 { 8 } else { 10 })))
}

/// Parses an hour without minutes. Returns the nanoseconds since midnight, and the text after the hour. The caller
/// accepts such an hour only after a date, because without a date it is ambiguous.
fn hour(t: &str) -> Option<(u64, &str)> {
    let b = t.as_bytes();
    let is_alone = b.iter().take_while(|b| b.is_ascii_digit()).count() == 2 && b.get(2) != Some(&b':');
    let hour = digits(t.get(..2)?).filter(|h| is_alone && *h <= 23)?;
    Some((hour * 3600 * NANOS_PER_SEC, &t[2..]))
}

/// Parses the time of day at the beginning of the text. Returns the nanoseconds since midnight, the length of the
/// smallest unit in the text, and the text after the time of day.
fn clock(t: &str) -> Result<(u64, Duration, &str), Reason> {
    let b = t.as_bytes();
    let run = b.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut precision = SECOND;
    let (texts, mut rest) = match run {
        6 => ([t.get(..2), t.get(2..4), t.get(4..6)], &t[6..]),
        2 if b.get(2) == Some(&b':') && b.get(5) == Some(&b':') => {
            ([t.get(..2), t.get(3..5), t.get(6..8)], { t.get(8..).ok_or(None)? })
        }
        2 if b.get(2) == Some(&b':') => {
            precision = MINUTE;
            ([t.get(..2), t.get(3..5), Some("0")], t.get(5..).ok_or(None)?)
        }
        _ => return Err(None),
    };
    let [Some(h), Some(m), Some(s)] = texts.map(|p| p.and_then(digits)) else { return Err(None) };
    // A leap second (`:60`) becomes the first second of the next minute, as in `CLOCK_REALTIME`.
    if h > 23 || m > 59 || s > 60 {
        return Err(Some("no such time of day"));
    }
    let mut nanos = 0;
    if let Some(r) = rest.strip_prefix('.') {
        let end = r.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(r.len());
        nanos = fraction(&r[..end]).ok_or(None)?;
        precision = precision_of(&r[..end]);
        rest = &r[end..];
    }
    Ok(((h * 3600 + m * 60 + s) * NANOS_PER_SEC + nanos, precision, rest))
}

/// Parses the zone. Returns its offset in seconds to the east of UTC, or `None` if the text ends without a zone.
fn zone(t: &str) -> Result<Option<i64>, Reason> {
    let Some(sign) = t.chars().next() else { return Ok(None) };
    let rest = &t[1..];
    let east = match sign {
        'Z' | 'z' if rest.is_empty() => return Ok(Some(0)),
        '+' => 1,
        '-' => -1,
        _ => return Err(None),
    };
    let (h, m) = match rest.as_bytes() {
        [_, _] => (digits(rest), Some(0)),
        [_, _, _, _] => (digits(&rest[..2]), digits(&rest[2..])),
        [_, _, b':', _, _] => (digits(&rest[..2]), digits(&rest[3..])),
        _ => return Err(Some("a zone is Z, +01:00 or -05:00")),
    };
    match (h, m) {
        (Some(h @ 0..=23), Some(m @ 0..=59)) => Ok(Some(east * (h * 3600 + m * 60) as i64)),
        _ => Err(Some("a zone is Z, +01:00 or -05:00")),
    }
}

fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Returns the nanoseconds that the digits after a decimal point denote. Digits after the ninth are ignored.
fn fraction(text: &str) -> Option<u64> {
    digits(text)?;
    let nine: String = text.chars().chain(std::iter::repeat('0')).take(9).collect();
    digits(&nine)
}

/// Returns the value of one unit of the last digit of a fraction of a second, at least one nanosecond: 10 ms for `25`.
fn precision_of(fraction: &str) -> Duration {
    Duration::from_nanos(NANOS_PER_SEC / 10u64.pow(fraction.len().min(9) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    const NOW: Timestamp = Timestamp::from_secs_nanos(1_795_257_720, 250_000_000);

    fn at(text: &str) -> Timestamp {
        TimeSpec::parse(text).unwrap_or_else(|e| panic!("{e}")).at(NOW, None)
    }

    #[test]
    fn invalid_times_are_rejected_with_advice() {
        for (bad, why) in [
            ("", ""),
            ("yesterday", ""),
            ("nowish", ""),
            ("2026-02-30T00:00:00Z", "no such day"),
            ("2026-13-01T00:00:00Z", "no such month"),
            ("1969-12-31", "before 1970"),
            ("1970-01-01T00:30:00+01:00", "before 1970"),
            ("2555-01-01", "after 2554"),
            ("24:00", "no such time of day"),
            ("10:61", "no such time of day"),
            ("1.2.3", ""),
            ("1.", ""),
            (".5", ""),
            ("-", "a span is"),
            ("-10 fortnights", "a span is"),
            ("+", "a span is"),
            ("-10", "a span needs its unit"),
            ("+ 1.5", "a span needs its unit"),
            ("now-10", "a span needs its unit"),
            ("-1h30", "a span is"),
            ("2026-11-21T10:00:00+1:00", "a zone is"),
            ("2026-11-21T10:00:00 CET", ""),
            ("2026-11-21T", ""),
            ("2026-11-21T24", ""),
            ("2026-11-21T1042", ""),
            ("2026-11", ""),
            ("10:4", ""),
            ("１０:42", ""),
            ("123456789012345678901", ""),
            ("2026", "four digits are ambiguous"),
            ("202611211042", "need a T between them"),
            ("20261121104200", "need a T between them"),
        ] {
            let e = TimeSpec::parse(bad).expect_err(bad).to_string();
            assert!(e.contains(&format!("{bad:?}")) && e.contains(why) && e.contains("-10min"), "{bad}: {e}");
        }
    }

    #[test]
    fn each_form_has_its_documented_value() {
        let day = 1_795_257_720 / 86_400 * 86_400;
        for (text, secs, nanos) in [
            ("now", NOW.secs(), 250_000_000),
            ("-10min", NOW.secs() - 600, 250_000_000),
            ("now-1h30min", NOW.secs() - 5400, 250_000_000),
            ("now + 5s", NOW.secs() + 5, 250_000_000),
            ("+250ms", NOW.secs(), 500_000_000),
            ("2026-11-21T10:42:00Z", 1_795_257_720, 0),
            ("2026-11-21t10:42:00.5z", 1_795_257_720, 500_000_000),
            ("2026-11-21 10:42", 1_795_257_720, 0),
            ("2026-11-21T05:42-05:00", 1_795_257_720, 0),
            ("2026-11-21T10", day + 36_000, 0),
            ("20261121T10Z", day + 36_000, 0),
            ("2026-11-21 10+01:00", day + 32_400, 0),
            ("2026-11-21T16:12:00+0530", 1_795_257_720, 0),
            ("20261121T104200.000000007Z", 1_795_257_720, 7),
            ("2026-11-21", day, 0),
            ("2026-11-21+01", day - 3600, 0),
            ("20261121", day, 0),
            ("10:42", 1_795_257_720, 0),
            ("10:41:59.999999999", 1_795_257_719, 999_999_999),
            // At 10:42 UTC it is already the next day in UTC+14 (Kiribati), so `00:30+14:00` is a time of that day.
            ("00:30+14:00", day + 1800 + 86_400 - 14 * 3600, 0),
            ("23:30-11:00", day + 23 * 3600 + 1800 + 11 * 3600 - 86_400, 0),
            ("0", 0, 0),
            ("1795257720", 1_795_257_720, 0),
            ("1795257720.25", 1_795_257_720, 250_000_000),
            ("1795257720250", 1_795_257_720, 250_000_000),
            ("2026.0", 2026, 0),
            // `2026-13-21` is not a valid date, so the twelve digits are milliseconds since 1970.
            ("202613211042", 202_613_211, 42_000_000),
            ("1795257720250.5", 1_795_257_720, 250_500_000),
            ("1795257720250001", 1_795_257_720, 250_001_000),
            ("1795257720250000009", 1_795_257_720, 250_000_009),
        ] {
            assert_eq!(at(text), Timestamp::from_secs_nanos(secs, nanos), "{text}");
        }
    }

    #[test]
    fn the_precision_is_the_smallest_unit_in_the_text() {
        const MS: u64 = 1_000_000;
        for (text, nanos) in [
            ("2026-11-21", Some(86_400_000 * MS)),
            ("20261121+01", Some(86_400_000 * MS)),
            ("2026-11-21T10", Some(3_600_000 * MS)),
            ("2026-11-21T10:42", Some(60_000 * MS)),
            ("10:42", Some(60_000 * MS)),
            ("10:42+01:00", Some(60_000 * MS)),
            ("10:42:07", Some(1000 * MS)),
            ("20261121T104207Z", Some(1000 * MS)),
            ("10:42:07.2", Some(100 * MS)),
            ("10:42:07.250000001234", Some(1)),
            ("1795257720", Some(1000 * MS)),
            ("1795257720.25", Some(10 * MS)),
            ("1795257720250", Some(MS)),
            ("1795257720250.5", Some(MS / 10)),
            ("1795257720250001", Some(1000)),
            ("1795257720250000009", Some(1)),
            ("now", None),
            ("-10min", None),
            ("+5s", None),
        ] {
            let (_, precision) = TimeSpec::parse_with_precision(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(precision, nanos.map(Duration::from_nanos), "{text}");
        }
    }

    #[test]
    fn a_positive_span_counts_from_the_anchor_if_there_is_one() {
        let from = Timestamp::from_secs_nanos(100, 0);
        let later = TimeSpec::parse("+5min").expect("a span");
        assert_eq!(later.at(NOW, Some(from)).secs(), 400);
        assert_eq!(TimeSpec::parse("-10s").expect("a span").at(NOW, Some(from)), NOW.before(Duration::from_secs(10)));
    }

    /// Every notation of a random time, in any zone, is parsed to that time.
    #[test]
    fn all_notations_of_a_time_parse_to_that_time() {
        let seed = 7;
        let mut prng = Prng::new(seed);
        for round in 0..20_000 {
            let t =
                Timestamp::from_nanos(86_400 * NANOS_PER_SEC + prng.next_u64() % (480 * 366 * 86_400 * NANOS_PER_SEC));
            let east = prng.below(2 * 23 * 60 + 1) as i64 - 23 * 60;
            let there = Timestamp::from_nanos((t.nanos() as i128 + i128::from(east) * 60 * 1_000_000_000) as u64);
            let zone = format!(
                "{}{:02}{}{:02}",
                if east < 0 { '-' } else { '+' },
                east.abs() / 60,
                if round % 2 == 0 { ":" } else { "" },
                east.abs() % 60
            );
            let there_text = there.to_string();
            let local = there_text.trim_end_matches('Z');
            let (seconds, nanos) = (t.secs(), t.subsec_nanos());
            for text in [
                t.to_string(),
                t.to_string().replace('T', " "),
                t.to_string().trim_end_matches('Z').to_owned(),
                t.to_string().replace(['-', ':'], ""),
                format!("{local}{zone}"),
                format!("{seconds}.{nanos:09}"),
            ] {
                let got = TimeSpec::parse(&text).map(|m| m.at(NOW, None));
                assert_eq!(got, Ok(t), "seed {seed} round {round}: {text}");
            }
            let clock = &local[11..];
            let today = TimeSpec::parse(&format!("{clock}{zone}")).map(|m| m.at(t, None));
            assert_eq!(today, Ok(t), "seed {seed} round {round}: {clock}{zone}");
        }
    }

    #[test]
    fn any_text_is_parsed_or_rejected_without_panic() {
        let mut prng = Prng::new(9);
        let alphabet: Vec<char> = "0123456789-+:.TZ nowmsh䷀".chars().collect();
        for _ in 0..200_000 {
            let text: String =
                (0..prng.below(24)).map(|_| alphabet[prng.below(alphabet.len() as u64) as usize]).collect();
            if let Ok(moment) = TimeSpec::parse(&text) {
                moment.at(NOW, None);
            }
        }
    }
}
