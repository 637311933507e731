//! The flags of the benchmark, its interfaces and programs.

use crate::output::Stop;
use base::units::parse_count;
use clap::Args;
use r#gen::{Parts, Spec};

pub const FROM: &str = "ng-xdp0";

pub const TO: &str = "ng-xdp1";

/// The goal: the packet rate of a program is at most this many percent below that of the redirect alone.
pub const MAX_COST: f64 = 5.0;

/// The programs that are measured. Each is compared with an interface without a program, on which the XDP program only
/// counts and redirects frames and does not read their bytes.
pub const PROGRAMS: [&str; 2] = ["main = ip >-> steer_flow", "main = when is_tcp (mark 42) >-> steer_p2p"];

/// Flags of `netgrain-bench xdp`.
#[derive(Args, Clone, Debug)]
pub struct XdpArgs {
    /// Number of frames of one slice: a program processes these frames, then the next program runs
    #[arg(long, value_name = "N", default_value = "8k", value_parser = parse_count)]
    pub frames: u64,
    /// Number of rounds; in each round, every program runs for two slices; the output shows medians over the rounds
    #[arg(long, value_name = "N", default_value_t = 800, value_parser = base::units::whole::<u32>(1..=100_000))]
    pub repeat: u32,
    /// Number of times that the interfaces are opened, each time for a share of the rounds (the location of the socket
    /// memory affects the packet rate)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = base::units::whole::<u32>(1..=1000))]
    pub openings: u32,
    /// Number of program swaps under load
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = base::units::whole::<u32>(0..=100_000))]
    pub swaps: u32,
    /// Frames sent per second during the swaps
    #[arg(long, value_name = "N", default_value = "300k", value_parser = parse_count)]
    pub rate: u64,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

pub fn parts() -> Result<Parts, Stop> {
    let spec: Spec = "60,flows=1000,truth".parse().map_err(Stop::error)?;
    Parts::new(&spec).ok_or_else(|| Stop::error("the frames cannot be generated in the kernel; please report this"))
}

pub fn pin(processor: usize) {
    // If the thread cannot be pinned to the processor, the results are valid but vary more.
    let _ = sys::cpu::pin_to(&[processor]);
}
