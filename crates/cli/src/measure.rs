//! `netgrain bench`.

use crate::args::BenchArgs;
use crate::outcome::{Failure, Outcome};

/// Runs the verb.
pub fn run(args: &BenchArgs) -> Result<Outcome, Failure> {
    args.stage.run(&mut std::io::stdout()).map_err(Failure::Said)?;
    Ok(Outcome::Yes)
}
