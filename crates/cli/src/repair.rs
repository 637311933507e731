//! `netgrain repair`.

use crate::outcome::{Failure, Outcome};
use clap::Args;

#[derive(Args)]
pub struct RepairArgs {}

/// Runs the verb.
pub fn run(_args: &RepairArgs) -> Result<Outcome, Failure> {
    Err(Failure::Said("repair: not there yet".into()))
}
