//! `netgrain packets`.

use crate::outcome::{Failure, Outcome};
use clap::Args;

#[derive(Args)]
pub struct PacketsArgs {}

/// Runs the verb.
pub fn run(_args: &PacketsArgs) -> Result<Outcome, Failure> {
    Err(Failure::Said("packets: not there yet".into()))
}
