//! Time zones of queries and of printed times: UTC, the zone of this machine, or a named zone of the tz database of the
//! system.
//!
//! Only flags of the command line select a zone. Output for programs (JSON, CSV, Parquet, captures) is always in UTC.

use crate::outcome::Failure;
use crate::values::ValueError;
use base::{TimeSpec, Timestamp};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use std::fmt;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// A time zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Zone {
    /// RFC 3339 with `Z`.
    #[default]
    Utc,
    /// Any other zone.
    Other(TimeZone),
}

impl Zone {
    /// Reads `UTC`, `local` or the name of a zone such as `Europe/Madrid`.
    ///
    /// # Errors
    /// The machine does not have the zone; or, for `local`, no time zone is configured.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let zone = match text {
            "UTC" | "utc" | "Z" => return Ok(Self::Utc),
            "local" => TimeZone::try_system().map_err(|e| {
                ValueError::new(format!(
                    "the time zone of this machine is unknown ({e}): set TZ or /etc/localtime, or name a zone: \
                     Europe/Madrid"
                ))
            })?,
            name => TimeZone::get(name).map_err(|_| {
                ValueError::new(format!(
                    "{name:?} is not a time zone of this machine: write UTC, local, or a name as in \
                     /usr/share/zoneinfo (Europe/Madrid; the package tzdata installs the zones)"
                ))
            })?,
        };
        Ok(Self::Other(zone))
    }

    /// Returns the time that a specification denotes. A specification without an offset from UTC is in this zone.
    ///
    /// # Errors
    /// The time of day does not exist on that day, or occurs twice, because of a change of the clocks.
    pub fn at(&self, moment: TimeSpec, now: Timestamp, anchor: Option<Timestamp>) -> Result<Timestamp, Failure> {
        let (Self::Other(zone), TimeSpec::Civil { day, nanos, east: None }) = (self, moment) else {
            return Ok(moment.at(now, anchor));
        };
        let day = day.map_or_else(|| shown(zone, now).div_euclid(NANOS_PER_DAY), i128::from);
        let clock = civil(day * NANOS_PER_DAY + i128::from(nanos))?;
        let (why, before, after) = match zone.to_ambiguous_timestamp(clock).offset() {
            AmbiguousOffset::Unambiguous { offset } => return instant(clock, offset),
            // A day without midnight begins with its first instant; a day with two midnights begins at the first
            // midnight.
            AmbiguousOffset::Gap { before, .. } if nanos == 0 => return instant(clock, before),
            AmbiguousOffset::Fold { before, .. } if nanos == 0 => return instant(clock, before),
            AmbiguousOffset::Gap { before, after } => ("is skipped", before, after),
            AmbiguousOffset::Fold { before, after } => ("occurs twice", before, after),
        };
        let written = clock.strftime("%Y-%m-%dT%H:%M:%S");
        Err(Failure::Said(format!(
            "{written} {why} in {self} because of a clock change: write {written}{} or {written}{}",
            Colons(before),
            Colons(after)
        )))
    }

    /// Returns the last nanosecond of the unit that a written time denotes, such as the last nanosecond of a minute.
    /// The unit begins at `begin` and has the length `precision`.
    ///
    /// # Errors
    /// As [`Zone::at`].
    pub fn end(&self, moment: TimeSpec, begin: Timestamp, precision: Duration) -> Result<Timestamp, Failure> {
        let next = match (self, moment) {
            // A day with a change of the clocks has 23 or 25 hours.
            (Self::Other(_), TimeSpec::Civil { day: Some(day), east: None, .. }) if precision == DAY => {
                self.at(TimeSpec::Civil { day: Some(day + 1), nanos: 0, east: None }, begin, None)?
            }
            _ => begin.after(precision),
        };
        Ok(next.before(Duration::from_nanos(1)))
    }

    /// The time in the format of RFC 3339, with nine digits of fraction.
    pub fn show(&self, at: Timestamp) -> String {
        match self.local(at) {
            None => at.to_string(),
            Some(local) => local.strftime("%Y-%m-%dT%H:%M:%S%.9f%:z").to_string(),
        }
    }

    /// The time in the format of RFC 3339, without a fraction.
    pub fn show_second(&self, at: Timestamp) -> String {
        match self.local(at) {
            None => format!("{}Z", &at.to_string()[..19]),
            Some(local) => local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        }
    }

    /// Returns the date and the zone, which are printed above a list of times of day.
    pub fn show_date(&self, at: Timestamp) -> String {
        match self.local(at) {
            None => format!("{} UTC", &at.to_string()[..10]),
            Some(local) => local.strftime("%Y-%m-%d %:z").to_string(),
        }
    }

    /// The time of day with up to nine digits of fraction.
    pub fn show_clock(&self, at: Timestamp, digits: usize) -> String {
        let text = match self.local(at) {
            None => at.to_string()[11..29].to_owned(),
            Some(local) => local.strftime("%H:%M:%S%.9f").to_string(),
        };
        let end = if digits == 0 { 8 } else { 9 + digits.min(9) };
        text[..end].to_owned()
    }

    /// The offset to the east of UTC at this time, in seconds.
    pub fn east(&self, at: Timestamp) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Other(zone) => zone.to_offset(of(at)).seconds().into(),
        }
    }

    fn local(&self, at: Timestamp) -> Option<jiff::ZonedDateTime> {
        match self {
            Self::Utc => None,
            Self::Other(zone) => Some(of(at).to_zoned_datetime(zone.clone())),
        }
    }

    /// Returns the text `from … to …` with the two times, for messages.
    pub fn interval_in_words(&self, from: Timestamp, to: Timestamp) -> String {
        let begin = if from == Timestamp::ZERO { "the beginning".to_owned() } else { self.show(from) };
        let end = if to == Timestamp::MAX { "the end".to_owned() } else { self.show(to) };
        format!("from {begin} to {end}")
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utc => f.write_str("UTC"),
            Self::Other(zone) => f.write_str(zone.iana_name().unwrap_or("the zone of this machine")),
        }
    }
}

/// An offset in the form of RFC 3339.
struct Colons(Offset);

impl fmt::Display for Colons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.seconds();
        let sign = if seconds < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", seconds.abs() / 3600, seconds.abs() / 60 % 60)
    }
}

fn of(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(at.nanos().into()).unwrap_or(jiff::Timestamp::MAX)
}

/// The local time in nanoseconds since 1970-01-01T00:00:00 local time.
fn shown(zone: &TimeZone, at: Timestamp) -> i128 {
    i128::from(at.nanos()) + i128::from(zone.to_offset(of(at)).seconds()) * 1_000_000_000
}

fn civil(shown: i128) -> Result<DateTime, Failure> {
    let moment = jiff::Timestamp::from_nanosecond(shown).map_err(Failure::say)?;
    Ok(Offset::UTC.to_datetime(moment))
}

fn instant(clock: DateTime, offset: Offset) -> Result<Timestamp, Failure> {
    let moment = offset.to_timestamp(clock).map_err(Failure::say)?.as_nanosecond();
    Ok(Timestamp::from_nanos(u64::try_from(moment.max(0)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central European time without the tz database: it changes on the last Sundays of March and October, at 01:00
    /// UTC.
    fn berlin() -> Zone {
        Zone::Other(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule"))
    }

    fn at(zone: &Zone, text: &str) -> Result<String, String> {
        let now = Timestamp::parse("2026-11-23T23:30:00Z", Timestamp::ZERO).expect("a time");
        let moment = TimeSpec::parse(text).expect("a time");
        match zone.at(moment, now, None) {
            Ok(at) => Ok(at.to_string().trim_end_matches(".000000000Z").to_owned()),
            Err(Failure::Said(text)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_time_without_a_zone_is_in_the_requested_zone() {
        let zone = berlin();
        for (text, utc) in [
            ("2026-11-23T11:42", "2026-11-23T10:42:00"),
            ("2026-07-01T12:42:07", "2026-07-01T10:42:07"),
            ("2026-07-01", "2026-06-30T22:00:00"),
            // In this zone the local date is already 24 November.
            ("00:15", "2026-11-23T23:15:00"),
            ("11:42+02:00", "2026-11-24T09:42:00"),
            ("2026-11-23T11:42Z", "2026-11-23T11:42:00"),
            ("-10min", "2026-11-23T23:20:00"),
            ("1795257720", "2026-11-21T10:42:00"),
        ] {
            assert_eq!(at(&zone, text).as_deref(), Ok(utc), "{text}");
            let plain = TimeSpec::parse(text).expect("a time");
            let now = Timestamp::from_secs_nanos(1_795_257_720, 0);
            assert_eq!(Zone::Utc.at(plain, now, None).ok(), Some(plain.at(now, None)), "{text}");
        }
    }

    #[test]
    fn a_skipped_or_ambiguous_time_is_refused_with_both_offsets() {
        let zone = berlin();
        let skipped = at(&zone, "2026-03-29T02:30").expect_err("clocks go from two to three");
        assert!(skipped.contains("is skipped") && skipped.contains("02:30:00+01:00"), "{skipped}");
        let twice = at(&zone, "2026-10-25T02:30").expect_err("clocks go from three to two");
        assert!(twice.contains("+02:00 or 2026-10-25T02:30:00+01:00"), "{twice}");
        assert_eq!(at(&zone, "2026-10-25T03:00").as_deref(), Ok("2026-10-25T02:00:00"));
    }

    #[test]
    fn a_day_with_a_clock_change_has_23_or_25_hours() {
        let hours = |zone: &Zone, text: &str| {
            let (moment, precision) = TimeSpec::parse_with_precision(text).expect("a time");
            let begin = zone.at(moment, Timestamp::ZERO, None).expect("a moment");
            let end = zone.end(moment, begin, precision.expect("a date")).expect("a moment");
            end.since(begin).as_nanos() as u64 / 3_600_000_000_000 + 1
        };
        assert_eq!((hours(&berlin(), "2026-03-29"), hours(&Zone::Utc, "2026-03-29")), (23, 24));
        assert_eq!((hours(&berlin(), "2026-10-25"), hours(&berlin(), "2026-10-26")), (25, 24));
        assert_eq!((hours(&berlin(), "2026-10-25T01"), hours(&berlin(), "2026-10-25Z")), (1, 24));
    }

    #[test]
    fn a_printed_time_parses_to_the_same_instant() {
        let mut prng = base::Prng::new(11);
        for zone in [Zone::Utc, berlin(), Zone::Other(TimeZone::posix("<-1130>11:30").expect("a rule"))] {
            for _ in 0..2000 {
                let t = Timestamp::from_nanos(86_400_000_000_000 + prng.next_u64() % (18 << 60));
                assert_eq!(Timestamp::parse(&zone.show(t), Timestamp::ZERO), Ok(t), "{}", zone.show(t));
                let second = Timestamp::from_secs_nanos(t.secs(), 0);
                assert_eq!(Timestamp::parse(&zone.show_second(t), Timestamp::ZERO), Ok(second));
                let (date, clock) = (zone.show_date(t), zone.show_clock(t, 9));
                assert!(zone.show(t).starts_with(&format!("{}T{clock}", &date[..10])), "{date} {clock}");
                assert_eq!((zone.show_clock(t, 0).len(), zone.show_clock(t, 3).len()), (8, 12));
            }
        }
        assert_eq!(berlin().show(Timestamp::ZERO), "1970-01-01T01:00:00.000000000+01:00");
    }

    #[test]
    fn an_unknown_zone_is_an_error_with_advice() {
        let e = Zone::parse("Europe/Madird").expect_err("no such zone").to_string();
        assert!(e.contains("Europe/Madird") && e.contains("UTC, local"), "{e}");
        assert_eq!(Zone::parse("UTC"), Ok(Zone::Utc));
    }
}
