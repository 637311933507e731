//! `netgrain stamp`: measures the round-trip delay, and the one-way delay of each direction, with STAMP (RFC 8762).

mod reflect;
mod send;

use crate::outcome::{Failure, Outcome};
use ::stamp::{KEY_LEN, Key};
use clap::{Args, Subcommand};
use std::io::Read;
use std::path::Path;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain stamp reflect                       answer on UDP port 862 until interrupted
  netgrain stamp send 10.0.0.2 --count 100 --interval 20ms
  netgrain stamp send [2001:db8::2]:8620 --size 1400 --json
  netgrain stamp reflect --listen 127.0.0.1:8620 --stateful --duration 1min
  netgrain stamp send 10.0.0.2 --key-file stamp.key      authenticated mode")]
pub struct StampArgs {
    #[command(subcommand)]
    verb: StampVerb,
}

#[derive(Subcommand)]
enum StampVerb {
    /// Send test packets to a reflector, and report delays, delay variation and losses
    Send(send::SendArgs),
    /// Answer the test packets of senders
    Reflect(reflect::ReflectArgs),
}

/// The key in a file; one line feed at the end of the file is not part of the key.
fn key(path: &Path) -> Result<Key, Failure> {
    let failed = |reason: &dyn std::fmt::Display| Failure::Said(format!("--key-file {}: {reason}", path.display()));
    let mut bytes = Vec::new();
    let limit = *KEY_LEN.end() as u64 + 2;
    let read = std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|e| failed(&sys::advice::unreadable(&e)))?;
    Key::new(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).map_err(|e| failed(&e))
}

/// Runs the verb.
pub fn run(args: &StampArgs) -> Result<Outcome, Failure> {
    match &args.verb {
        StampVerb::Send(args) => send::run(args),
        StampVerb::Reflect(args) => reflect::run(args),
    }
}
