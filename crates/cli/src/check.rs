//! `netgrain check`: runs the independent checker on files.

use crate::outcome::{Failure, Outcome, json};
use crate::values::count;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
pub struct CheckArgs {
    /// Store directory or capture files
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Number of frames that were sent; with this number, missing frames after the last stored frame are found too
    #[arg(long, value_name = "N", value_parser = count)]
    pub sent: Option<u64>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb. The outcome is `No` (exit status 1) if packets are missing, duplicated, reordered or damaged.
pub fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    let options = checker::Options { sent: args.sent, ..checker::Options::default() };
    let report = checker::check(&args.paths, options).map_err(|e| match e {
        checker::CheckError::Io { path, error } => Failure::unreadable(&path, &error),
        other => Failure::say(other),
    })?;
    if args.json {
        json(&serde_json::from_str(&report.to_json()).map_err(Failure::say)?)?;
    } else {
        writeln!(std::io::stdout(), "{}", report.to_string().trim_end())?;
    }
    Ok(Outcome::of(report.is_complete()))
}
