//! The process that generates the traffic of measurements on a live interface: the loop of `netgrain gen`.

use crate::output::Stop;
use crate::process::Helper;
use base::units::{Rate, parse_rate, parse_span};
use clap::Args;
use engine::{Generator, Method};
use r#gen::Spec;
use serde::Deserialize;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Flags of the process.
#[derive(Args, Clone, Debug)]
pub struct GeneratorArgs {
    /// Interface to send on
    interface: String,
    /// Traffic specification of `netgrain gen`
    traffic: Spec,
    /// Frames or bits per second
    #[arg(long, value_parser = parse_rate)]
    rate: Rate,
    /// How long to send
    #[arg(long, value_parser = parse_span)]
    duration: Duration,
    /// Processor of the sending thread
    #[arg(long)]
    cpu: Option<usize>,
}

/// The counters that the process prints at its end.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Sent {
    /// Frames that the driver accepted.
    pub sent: u64,
    /// Number of frames that the driver dropped. Their sequence numbers are missing in every capture, because these
    /// frames were never on the wire.
    pub dropped: u64,
    /// Time from the first frame to the last frame, in nanoseconds.
    pub nanos: u64,
}

/// Starts the process in the network namespace of this thread.
pub fn start(
    interface: &str,
    traffic: &str,
    rate: &str,
    duration: Duration,
    cpu: Option<usize>,
) -> Result<Helper, Stop> {
    let duration = format!("{}ms", duration.as_millis());
    let mut arguments: Vec<String> =
        ["generator", interface, traffic, "--rate", rate, "--duration", &duration].map(str::to_owned).into();
    arguments.extend(cpu.into_iter().flat_map(|cpu| ["--cpu".to_owned(), cpu.to_string()]));
    Helper::start_self(arguments)
}

/// Sends frames with sequence numbers and checksums (`truth`), and prints the counters as one JSON object.
pub fn run(args: &GeneratorArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut spec = args.traffic.clone();
    (spec.signature, spec.rate, spec.duration) = (true, args.rate, Some(args.duration));
    if let Some(cpu) = args.cpu {
        sys::cpu::pin(cpu)
            .map_err(|e| Stop::error(format_args!("--cpu {cpu}: {e}; choose a processor of this machine")))?;
    }
    let generator = Generator::open(&spec, &args.interface, 0, Method::Auto).map_err(Stop::error)?;
    let sent = generator.run(&AtomicBool::new(false), |_| ()).map_err(Stop::error)?;
    writeln!(out, "{}", serde_json::to_string(&sent).map_err(Stop::error)?)?;
    Ok(())
}
