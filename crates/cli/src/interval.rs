//! The interval of a query; packets, flows and series use the same flags.

use crate::outcome::Failure;
use crate::zone::Zone;
use base::{ParseTimeError, TimeSpec, Timestamp, units};
use clap::Args;
use std::time::{Duration, SystemTime};

/// The span before and after a time of `--around` that is relative to now, if `--within` is not given. The interval
/// begins this span before the time, and ends this span after it.
const WITHIN: Duration = Duration::from_secs(30);

/// The explanation of time formats at the end of the help of each query verb.
pub const HELP: &str = "Times: RFC 3339 (2026-11-21T10:42:00Z, +01:00), 2026-11-21T10, 10:42 (today), seconds, ms, \
    us or ns since 1970, now, -10min; --to +5min counts from --from. A time without a zone is in UTC, or in the zone \
    of --tz. --around 10:42 means that minute, 10:42:07 that second.";

/// The current time of the system clock.
pub fn now() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[derive(Args, Clone, Debug, Default)]
pub struct Interval {
    /// First time to include
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    pub from: Option<TimeSpec>,
    /// Last time to include; +5min is five minutes after --from
    #[arg(long, value_name = "TIME", value_parser = TimeSpec::parse, allow_hyphen_values = true)]
    pub to: Option<TimeSpec>,
    /// Interval given by one time, instead of --from and --to: the minute 10:42, the second
    /// 10:42:07, the hour 2026-11-21T10, the day 2026-11-21
    #[arg(
        long,
        value_name = "TIME",
        value_parser = AroundTime::parse,
        allow_hyphen_values = true,
        conflicts_with_all = ["from", "to"]
    )]
    pub around: Option<AroundTime>,
    /// With --around: use the interval from SPAN before to SPAN after the begin of TIME [default for a
    /// TIME relative to now, such as -10min: 30s]
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span, requires = "around")]
    pub within: Option<Duration>,
    #[command(flatten)]
    pub tz: TzArgs,
}

#[derive(Args, Clone, Debug, Default)]
pub struct TzArgs {
    /// Time zone of arguments without a zone, and of the times in printed lines and tables: UTC, local, or a name such
    /// as Europe/Madrid
    #[arg(long = "tz", value_name = "ZONE", value_parser = Zone::parse, default_value = "UTC")]
    pub zone: Zone,
}

/// A time, and the precision with which the user wrote it.
#[derive(Clone, Copy, Debug)]
pub struct AroundTime {
    moment: TimeSpec,
    /// The length of the smallest unit in the written time: a minute for `10:42`. `None` for a time relative to now.
    precision: Option<Duration>,
}

impl AroundTime {
    fn parse(text: &str) -> Result<Self, ParseTimeError> {
        let (moment, precision) = TimeSpec::parse_with_precision(text)?;
        Ok(Self { moment, precision })
    }
}

impl Interval {
    /// The interval from `from` to `to`.
    pub fn between(from: Timestamp, to: Timestamp, zone: Zone) -> Self {
        let (from, to) = (Some(TimeSpec::At(from)), Some(TimeSpec::At(to)));
        Self { from, to, tz: TzArgs { zone }, ..Self::default() }
    }

    /// The first and last time of the interval; relative times refer to `now`. Without flags it covers all times, or
    /// with `follow` all times from now on.
    pub fn interval(&self, now: Timestamp, follow: bool) -> Result<(Timestamp, Timestamp), Failure> {
        let zone = &self.tz.zone;
        if !follow {
            has_anchor(self.from, self.to)?;
        }
        if let Some(AroundTime { moment, precision }) = self.around {
            let begin = zone.at(moment, now, None)?;
            return Ok(match (self.within, precision) {
                (None, Some(precision)) => (begin, zone.end(moment, begin, precision)?),
                (within, _) => {
                    let within = within.unwrap_or(WITHIN);
                    (begin.before(within), begin.after(within))
                }
            });
        }
        let from = match self.from {
            Some(moment) => zone.at(moment, now, None)?,
            None if follow => now,
            None => Timestamp::ZERO,
        };
        let to = match self.to {
            Some(moment) => zone.at(moment, now, self.from.map(|_| from))?,
            None => Timestamp::MAX,
        };
        in_order(from, to, self.to, zone)?;
        if let (true, Some(hint)) = (self.from.is_some(), empty_hint(from, to)) {
            sys::say!(
                "netgrain: {hint}, or --around with this time, which covers the day, minute or second that it names"
            );
        }
        Ok((from, to))
    }
}

/// Checks that `--from` is given if `--to` is relative to it. Without `--from`, such an end would be relative to now.
/// The interval would then end in the future and cover all data.
///
/// # Errors
/// `--to` is relative to `--from`, and `--from` is missing.
pub fn has_anchor(from: Option<TimeSpec>, to: Option<TimeSpec>) -> Result<(), Failure> {
    match (from, to) {
        (None, Some(TimeSpec::FromNow(_))) => {
            let text = "--to +SPAN counts from --from, and there is no --from: add --from TIME, or write --to TIME";
            Err(Failure::Said(text.into()))
        }
        _ => Ok(()),
    }
}

/// A hint for an interval of one nanosecond at the begin of a second: the user probably means the day or the minute. A
/// time with a fraction of a second may be that of one packet.
pub fn empty_hint(from: Timestamp, to: Timestamp) -> Option<&'static str> {
    (from == to && from.floor_to(Duration::from_secs(1)) == from)
        .then_some("--from and --to are the same time, so the interval is one nanosecond: write a span, as in --to +1d")
}

/// Checks that an interval does not end before it begins; `last` is its end as written.
///
/// # Errors
/// The interval ends before it begins. The text of the error advises to swap the two times.
pub fn in_order(from: Timestamp, to: Timestamp, last: Option<TimeSpec>, zone: &Zone) -> Result<(), Failure> {
    if from <= to {
        return Ok(());
    }
    let hint = match last {
        Some(TimeSpec::Civil { day: None, .. }) => "; a time without a date means today",
        _ => "",
    };
    let (from, to) = (zone.show(from), zone.show(to));
    Err(Failure::Said(format!("--from {from} is after --to {to}: swap them{hint}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time 2026-11-21T10:42:07.25Z.
    const NOW: Timestamp = Timestamp::from_secs_nanos(1_795_257_727, 250_000_000);

    fn around(text: &str, within: Option<u64>) -> (String, String) {
        let around = Some(AroundTime::parse(text).expect("a time"));
        let when = Interval { around, within: within.map(Duration::from_secs), ..Interval::default() };
        let (from, to) = when.interval(NOW, false).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        (from.to_string(), to.to_string())
    }

    #[test]
    fn around_covers_the_smallest_written_unit() {
        for (text, from, to) in [
            ("10:42", "2026-11-21T10:42:00.000000000Z", "2026-11-21T10:42:59.999999999Z"),
            ("10:42:07", "2026-11-21T10:42:07.000000000Z", "2026-11-21T10:42:07.999999999Z"),
            ("10:42:07.2", "2026-11-21T10:42:07.200000000Z", "2026-11-21T10:42:07.299999999Z"),
            ("2026-11-20T10", "2026-11-20T10:00:00.000000000Z", "2026-11-20T10:59:59.999999999Z"),
            ("2026-11-20", "2026-11-20T00:00:00.000000000Z", "2026-11-20T23:59:59.999999999Z"),
            ("11:42+01:00", "2026-11-21T10:42:00.000000000Z", "2026-11-21T10:42:59.999999999Z"),
            ("1795257720", "2026-11-21T10:42:00.000000000Z", "2026-11-21T10:42:00.999999999Z"),
            ("2026-11-21T10:42:00.000000007Z", "2026-11-21T10:42:00.000000007Z", "2026-11-21T10:42:00.000000007Z"),
            // A time relative to now has no smallest unit: the interval begins 30 s before it and ends 30 s after it.
            ("now", "2026-11-21T10:41:37.250000000Z", "2026-11-21T10:42:37.250000000Z"),
            ("-10min", "2026-11-21T10:31:37.250000000Z", "2026-11-21T10:32:37.250000000Z"),
        ] {
            assert_eq!(around(text, None), (from.to_owned(), to.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_interval_of_one_nanosecond_has_a_hint_if_it_is_probably_a_day() {
        let day = Timestamp::from_secs_nanos(1_795_219_200, 0);
        assert!(empty_hint(day, day).is_some_and(|hint| hint.contains("--to +1d")));
        assert_eq!((empty_hint(NOW, NOW), empty_hint(day, NOW)), (None, None));
    }

    #[test]
    fn within_extends_around_to_both_sides() {
        let (from, to) = around("10:42", Some(90));
        assert_eq!((&from[..19], &to[..19]), ("2026-11-21T10:40:30", "2026-11-21T10:43:30"));
    }
}
