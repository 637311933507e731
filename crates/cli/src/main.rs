//! The binary: verbs, flags, and what people read. Everything else is in the rooms below.
#![forbid(unsafe_code)]

mod args;
mod check;
mod demo;
mod generate;
mod listen;
mod measure;
mod outcome;
mod record;
mod screen;
mod signals;

use args::{Command, Netgrain};
use clap::{CommandFactory, Parser};
use outcome::{Failure, Outcome};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Netgrain::try_parse() {
        Ok(netgrain) => run(netgrain.command),
        Err(e) => {
            // Help and version are answers, not failures.
            let code = if e.use_stderr() { outcome::FAILED } else { outcome::YES };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    match outcome {
        Ok(Outcome::Yes) => ExitCode::from(outcome::YES),
        Ok(Outcome::No) => ExitCode::from(outcome::NO),
        Err(Failure::ClosedPipe) => ExitCode::from(outcome::YES),
        Err(Failure::Said(text)) => {
            let _ = writeln!(std::io::stderr(), "netgrain: {text}");
            ExitCode::from(outcome::FAILED)
        }
    }
}

fn run(command: Command) -> Result<Outcome, Failure> {
    match command {
        Command::Record(args) => record::run(&args),
        Command::Listen(args) => listen::run(&args),
        Command::Gen(args) => generate::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => measure::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Netgrain::command(), "netgrain", &mut std::io::stdout());
            Ok(Outcome::Yes)
        }
        Command::Man { dir } => {
            std::fs::create_dir_all(&dir).map_err(|e| Failure::Said(format!("{}: {e}", dir.display())))?;
            clap_mangen::generate_to(Netgrain::command(), &dir)
                .map_err(|e| Failure::Said(format!("{}: {e}", dir.display())))?;
            Ok(Outcome::Yes)
        }
    }
}
