//! The interval of a question, as the command line has it: the same words for packets, flows and series.

use crate::outcome::Failure;
use base::{Moment, Timestamp, units};
use clap::Args;
use std::time::{Duration, SystemTime};

/// How far `--around` reaches to both sides.
const WITHIN: Duration = Duration::from_secs(30);

/// What is said about times at the end of each help.
pub const HELP: &str = "Times: RFC 3339 (2026-11-21T10:42:00Z, +01:00), 10:42 (today), seconds, ms, us or ns since 1970, now, -10min; --to +5min
counts from --from. What has no zone is UTC.";

/// This moment.
pub fn now() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[derive(Args, Clone, Debug, Default)]
pub struct When {
    /// The first moment
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// The last moment, itself included; +5min counts from --from
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// A moment in the middle, instead of --from and --to
    #[arg(long, value_name = "TIME", value_parser = Moment::parse, allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub around: Option<Moment>,
    /// How far from that moment, before and after it [default: 30s]
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span, requires = "around")]
    pub within: Option<Duration>,
}

impl When {
    /// First and last moment, when it is `now`. Without a word, everything; of an answer that goes on (`follow`), from now.
    pub fn interval(&self, now: Timestamp, follow: bool) -> Result<(Timestamp, Timestamp), Failure> {
        if let Some(around) = self.around {
            let (middle, within) = (around.at(now, None), self.within.unwrap_or(WITHIN));
            return Ok((middle.before(within), middle.after(within)));
        }
        let from = match self.from {
            Some(moment) => moment.at(now, None),
            None if follow => now,
            None => Timestamp::ZERO,
        };
        let to = self.to.map_or(Timestamp::MAX, |moment| moment.at(now, self.from.map(|_| from)));
        if from > to {
            let hint = match self.to {
                Some(Moment::Today { .. }) => "; a time without a date is of today",
                _ => "",
            };
            return Err(Failure::Said(format!("--from {from} is after --to {to}: exchange them{hint}")));
        }
        Ok((from, to))
    }
}

/// `from … to …`, for messages.
pub fn in_words(from: Timestamp, to: Timestamp) -> String {
    let begin = if from == Timestamp::ZERO { "the beginning".to_owned() } else { from.to_string() };
    let end = if to == Timestamp::MAX { "the end".to_owned() } else { to.to_string() };
    format!("from {begin} to {end}")
}
