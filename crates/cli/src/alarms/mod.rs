//! `netgrain alarms`: the alarms of the detectors.

mod args;
mod csv_series;
mod detector;
mod document;
mod long_term;
mod summary;
mod test;
mod verdicts;

use crate::outcome::{Failure, Outcome};
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain alarms test --csv load.csv --value bits
  netgrain alarms test --csv load.csv --value bits --detector threshold --upper 8e9 --clear-upper 7e9")]
pub struct AlarmsArgs {
    #[command(subcommand)]
    verb: AlarmsVerb,
}

#[derive(Subcommand)]
enum AlarmsVerb {
    /// Print the alarms that a detector raises for a time series in a CSV file
    Test(Box<args::TestArgs>),
}

/// Runs the verb.
pub fn run(args: &AlarmsArgs) -> Result<Outcome, Failure> {
    match &args.verb {
        AlarmsVerb::Test(args) => test::run(args),
    }
}
