//! `netgrain index`.

use crate::outcome::{Failure, Outcome};
use clap::Args;

#[derive(Args)]
pub struct IndexArgs {}

/// Runs the verb.
pub fn run(_args: &IndexArgs) -> Result<Outcome, Failure> {
    Err(Failure::Said("index: not there yet".into()))
}
