//! `netgrain verify`.

use crate::outcome::{Failure, Outcome};
use clap::Args;

#[derive(Args)]
pub struct VerifyArgs {}

/// Runs the verb.
pub fn run(_args: &VerifyArgs) -> Result<Outcome, Failure> {
    Err(Failure::Said("verify: not there yet".into()))
}
