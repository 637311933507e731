//! The `netgrain` binary: verbs, flags and text output. All other functions are in the library crates.
#![forbid(unsafe_code)]

mod alarms;
mod check;
mod config;
mod convert;
mod dedup;
mod demo;
mod distribution;
mod doctor;
mod file_arguments;
mod flow_records;
mod flows;
mod generate;
mod group;
mod index;
mod interval;
mod inventory;
mod lang;
mod listen;
mod man;
mod metrics;
mod outcome;
mod output;
mod overwrite;
mod owd;
mod packets;
mod parquet;
mod port;
mod privileges;
mod program;
mod repair;
mod replay;
mod replay_overlap;
mod retain;
mod run;
mod screen;
mod series;
mod service;
mod signals;
mod stamp;
mod style;
mod table_layout;
mod usage;
mod values;
mod verbs;
mod verify;
mod zone;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use outcome::{Failure, Outcome};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use sys::seccomp::Sockets;
use verbs::{Command, Netgrain};

fn main() -> ExitCode {
    sys::memory_limit::keep_heaps_within_limit();
    let outcome = match Netgrain::try_parse() {
        Ok(netgrain) => run(netgrain.command),
        Err(e) => {
            // Help and version texts arrive as errors, but they are results and belong on standard output.
            if !e.use_stderr() {
                let _ = e.print();
                return ExitCode::from(outcome::YES);
            }
            let _ = match e.kind() {
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.print(),
                _ => {
                    let words: Vec<String> = std::env::args_os().skip(1).map(|w| w.to_string_lossy().into()).collect();
                    writeln!(std::io::stderr(), "netgrain: {}", usage::message(&e, &words))
                }
            };
            return ExitCode::from(outcome::FAILED);
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
        Command::Run(args) => run::run(&args),
        Command::Record(args) => run::record(&args),
        Command::Config(args) => {
            privileges::for_queries(&[], &[], Sockets::Internet)?;
            config::run(&args)
        }
        Command::Group(args) => {
            privileges::keep_calls_of_queries()?;
            group::run(&args)
        }
        Command::Listen(args) => listen::run(&args),
        Command::Packets(args) => {
            privileges::for_reading(&paths([&args.write]), &privileges::sockets(args.store.as_deref()))?;
            packets::run(&args)
        }
        Command::Flows(args) => {
            let written = paths([&args.write, &args.parquet, &args.payload]);
            let sockets = privileges::sockets(args.store.as_deref());
            privileges::for_queries(&written, &sockets, network_access(args.from_multicast))?;
            flows::run(&args)
        }
        Command::Series(args) => {
            let sockets = privileges::sockets(args.store.as_deref());
            privileges::for_queries(&paths([&args.parquet]), &sockets, network_access(args.from_multicast))?;
            series::run(&args)
        }
        Command::Index(args) => {
            privileges::for_indexing(&args)?;
            index::run(&args)
        }
        Command::Retain(args) => {
            privileges::keep_calls_of_queries()?;
            retain::run(&args)
        }
        Command::Verify(args) => {
            privileges::for_reading(&[], &[])?;
            verify::run(&args)
        }
        Command::Repair(args) => {
            privileges::for_repair(&args)?;
            repair::run(&args)
        }
        Command::Convert(args) => {
            privileges::for_reading(&paths([&args.write, &args.new_key]), &[])?;
            convert::run(&args)
        }
        Command::Dedup(args) => {
            privileges::for_reading(&paths([&args.write]), &[])?;
            dedup::run(&args)
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Gen(args) => generate::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Owd(args) => {
            // With an interface alone, the privileges are dropped when the interface is open.
            if args.store.is_some() || !args.read.is_empty() {
                privileges::for_reading(&paths([&args.parquet]), &privileges::sockets(args.store.as_deref()))?;
            }
            owd::run(&args)
        }
        Command::Stamp(args) => stamp::run(&args),
        Command::Alarms(args) => {
            privileges::for_reading(&[], &[])?;
            alarms::run(&args)
        }
        Command::Check(args) => {
            privileges::for_reading(&[], &[])?;
            check::run(&args)
        }
        Command::Lang(args) => {
            privileges::for_reading(&paths([args.written()]), &[])?;
            lang::run(&args)
        }
        Command::Demo(args) => demo::run(&args),
        Command::Completions { shell } => {
            // The completion script is generated in memory first: the generator panics if a write fails, and the reader
            // of a pipe may close the pipe early.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Netgrain::command(), "netgrain", &mut script);
            let mut out = std::io::stdout().lock();
            out.write_all(&script)?;
            out.flush()?;
            Ok(Outcome::Yes)
        }
        Command::Man { dir } => {
            man::write(&dir)?;
            Ok(Outcome::Yes)
        }
    }
}

/// The sockets that a verb may open: local sockets only, or also network sockets to receive a multicast group.
fn network_access(group: Option<SocketAddr>) -> Sockets {
    if group.is_some() { Sockets::Internet } else { Sockets::Local }
}

/// Returns the paths from those flags that are present on the command line.
fn paths<const N: usize>(files: [&Option<PathBuf>; N]) -> Vec<&Path> {
    files.into_iter().flatten().map(PathBuf::as_path).collect()
}
