//! The flags of `netgrain alarms test`.

use crate::values::ValueError;
use crate::zone::Zone;
use base::units;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain alarms test --csv load.csv --value bits
  netgrain alarms test --csv load.csv --value bits --json
  netgrain alarms test --csv load.csv --value bits --detector threshold --upper 8e9 --clear-upper 7e9 --duration 10s
  netgrain alarms test --csv tcp.csv --value syn --fin fin --detector syn-flood
  netgrain alarms test --csv year.csv --value bits --detector long-term
  netgrain series --store /data -i eth1 --csv | netgrain alarms test --csv - --value packets --where direction=in

The first line of the file has the names of the columns. The detectors expect one line per second; seconds without a \
    line are missing. An empty field is a missing value.

The detector adaptive needs 15 minutes before its first verdict, and finds slow changes after a day.")]
pub struct TestArgs {
    /// CSV file with the time series; - for standard input
    #[arg(long, value_name = "FILE")]
    pub csv: PathBuf,
    /// Column with the values
    #[arg(long, value_name = "COLUMN")]
    pub value: String,
    /// Column with the time: seconds since 1970 or 2026-11-21T10:42:00Z [default: the column time or second; without
    /// it, each line is a second]
    #[arg(long, value_name = "COLUMN")]
    pub time: Option<String>,
    /// Only lines with this text in this column, for files with several series; repeat for several conditions
    #[arg(long = "where", value_name = "COLUMN=TEXT", value_parser = condition)]
    pub conditions: Vec<(String, String)>,
    /// Column that marks seconds whose value is not trusted, such as a count of lost packets: any text but 0 and false
    #[arg(long, value_name = "COLUMN")]
    pub untrusted: Option<String>,
    /// Delimiter of the fields
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    pub delimiter: u8,
    /// Detector
    #[arg(long, value_enum, default_value_t = DetectorArg::Adaptive)]
    pub detector: DetectorArg,
    /// Column with the numbers of FIN, for the detector syn-flood
    #[arg(long, value_name = "COLUMN", required_if_eq("detector", "syn-flood"))]
    pub fin: Option<String>,
    /// For the detector threshold: an alarm begins at this value and above
    #[arg(long, value_name = "NUMBER", value_parser = number, allow_negative_numbers = true)]
    pub upper: Option<f64>,
    /// Values below this level are normal again [default: the upper limit]
    #[arg(long, value_name = "NUMBER", value_parser = number, allow_negative_numbers = true, requires = "upper")]
    pub clear_upper: Option<f64>,
    /// For the detector threshold: an alarm begins at this value and below
    #[arg(long, value_name = "NUMBER", value_parser = number, allow_negative_numbers = true)]
    pub lower: Option<f64>,
    /// Values above this level are normal again [default: the lower limit]
    #[arg(long, value_name = "NUMBER", value_parser = number, allow_negative_numbers = true, requires = "lower")]
    pub clear_lower: Option<f64>,
    /// Shortest change that raises an alarm [default: 3s; threshold: 5s]
    #[arg(long, value_name = "SPAN", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Time with normal values after which an alarm ends [default: 15s; threshold: 30s]
    #[arg(long = "return", value_name = "SPAN", value_parser = seconds)]
    pub return_time: Option<Duration>,
    /// For the detector adaptive: smallest change to detect, in standard deviations of the series
    #[arg(long, value_name = "NUMBER", default_value = "4", value_parser = number)]
    pub strength: f64,
    /// For the detector adaptive: designed mean time between two false alarms
    #[arg(long, value_name = "SPAN", default_value = "84d", value_parser = units::parse_span)]
    pub false_alarm_interval: Duration,
    /// For the detector adaptive: time after which a new level is normal
    #[arg(long, value_name = "SPAN", default_value = "1h", value_parser = seconds)]
    pub adopt: Duration,
    /// For the detector syn-flood: observation period
    #[arg(long, value_name = "SPAN", default_value = "20s", value_parser = seconds)]
    pub period: Duration,
    /// Print one JSON object per event, and one with the totals
    #[arg(long)]
    pub json: bool,
    /// Time zone of the output
    #[arg(long, value_name = "ZONE", value_parser = Zone::parse, default_value = "UTC", conflicts_with = "json")]
    pub tz: Zone,
}

/// The value of `--detector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DetectorArg {
    /// An expected level by time of week and recent values, and CUSUM
    Adaptive,
    /// Fixed limits: --upper, --lower
    Threshold,
    /// CUSUM of SYN minus FIN: --value is the column with the SYN, --fin that with the FIN
    SynFlood,
    /// Stationary and significant changes of the daily load, after some weeks
    LongTerm,
}

impl DetectorArg {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Threshold => "threshold",
            Self::SynFlood => "syn_flood",
            Self::LongTerm => "long_term",
        }
    }
}

fn condition(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((column, value)) if !column.is_empty() => Ok((column.to_owned(), value.to_owned())),
        _ => Err(ValueError::new(format!("{text:?} is no condition: write COLUMN=TEXT, such as direction=in"))),
    }
}

fn delimiter(text: &str) -> Result<u8, ValueError> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() && *byte != b'"' => Ok(*byte),
        b"\\t" | b"tab" => Ok(b'\t'),
        _ => Err(ValueError::new(format!("{text:?} is no delimiter: write one character, such as ; or tab"))),
    }
}

fn number(text: &str) -> Result<f64, ValueError> {
    let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| ValueError::new(format!("{text:?} is no number: write 4, 2.5 or 8e9")))
}

fn seconds(text: &str) -> Result<Duration, ValueError> {
    let span = units::parse_span(text)?;
    if span.as_secs() == 0 || span.subsec_nanos() > 0 {
        return Err(ValueError::new(format!("{text} is not a number of whole seconds, at least 1s")));
    }
    Ok(span)
}
