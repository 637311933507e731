//! `netgrain check`: the independent checker over files on disk.

use crate::args::CheckArgs;
use crate::outcome::{Failure, Outcome};
use std::io::Write;

/// Runs the verb. No if anything is missing, duplicated, reordered or damaged.
pub fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    let options = checker::Options { sent: args.sent, ..checker::Options::default() };
    let report = checker::check(&args.paths, options).map_err(Failure::say)?;
    let text = if args.json { report.to_json() } else { report.to_string() };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(Outcome::of(report.is_complete()))
}
