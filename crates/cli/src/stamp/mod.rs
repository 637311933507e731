//! `netgrain stamp`: measures the round-trip delay, and the one-way delay of each direction, with STAMP (RFC 8762).

mod reflect;
mod send;

use crate::outcome::{Failure, Outcome};
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain stamp reflect                       answer on UDP port 862 until interrupted
  netgrain stamp send 10.0.0.2 --count 100 --interval 20ms
  netgrain stamp send [2001:db8::2]:8620 --size 1400 --json
  netgrain stamp reflect --listen 127.0.0.1:8620 --stateful --duration 1min")]
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

/// Runs the verb.
pub fn run(args: &StampArgs) -> Result<Outcome, Failure> {
    match &args.verb {
        StampVerb::Send(args) => send::run(args),
        StampVerb::Reflect(args) => reflect::run(args),
    }
}
