//! `netgrain doctor`.

use crate::outcome::{Failure, Outcome};
use clap::Args;

#[derive(Args)]
pub struct DoctorArgs {}

/// Runs the verb.
pub fn run(_args: &DoctorArgs) -> Result<Outcome, Failure> {
    Err(Failure::Said("doctor: not there yet".into()))
}
