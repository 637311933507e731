//! `netgrain bench`.

use crate::outcome::{Failure, Outcome};
use clap::Args;

#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub stage: bench::Stage,
}

/// Runs the verb.
pub fn run(args: &BenchArgs) -> Result<Outcome, Failure> {
    args.stage.run(&mut std::io::stdout()).map_err(Failure::Said)?;
    Ok(Outcome::Yes)
}
