//! `netgrain config`: checks and prints a configuration.

use crate::outcome::{Failure, Outcome};
use clap::Args;
use config::Config;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain config --dump > netgrain.toml
  netgrain config --check netgrain.toml
  netgrain config --dump netgrain.toml         the values in effect with this file")]
pub struct ConfigArgs {
    /// Report every error in the file, with its line number
    #[arg(long, conflicts_with_all = ["dump", "manual"], requires = "file")]
    pub check: bool,
    /// Print each key with its description and its value: from the file, or the default
    #[arg(long, required_unless_present_any = ["check", "manual"])]
    pub dump: bool,
    /// Print the reference of all keys as Markdown, the text of docs/reference/configuration.md
    #[arg(long, conflicts_with = "dump")]
    pub manual: bool,
    /// Configuration of netgrain run
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Runs the verb; returns `No` if the file has an error.
pub fn run(args: &ConfigArgs) -> Result<Outcome, Failure> {
    let mut out = std::io::stdout().lock();
    if args.manual {
        out.write_all(config::manual().as_bytes())?;
        return Ok(Outcome::Yes);
    }
    let mut config = Config::default();
    if let Some(path) = &args.file {
        let errors = config::check_file(path, &mut config).map_err(Failure::say)?;
        if !errors.is_empty() {
            let mut err = std::io::stderr().lock();
            for error in &errors {
                // If standard error is closed, the exit status still reports the errors.
                let _ = writeln!(err, "netgrain: {}: {error}", path.display());
            }
            return Ok(Outcome::No);
        }
    }
    if args.dump {
        out.write_all(config::dump(&config).as_bytes())?;
    }
    Ok(Outcome::Yes)
}
