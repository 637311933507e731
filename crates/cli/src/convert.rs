//! `netgrain convert`.

use crate::outcome::{Failure, Outcome};
use clap::Args;

#[derive(Args)]
pub struct ConvertArgs {}

/// Runs the verb.
pub fn run(_args: &ConvertArgs) -> Result<Outcome, Failure> {
    Err(Failure::Said("convert: not there yet".into()))
}
