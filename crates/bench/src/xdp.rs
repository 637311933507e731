//! Measures programs of the packet language in the kernel: their cost on an interface compared with a program that only
//! redirects, and the duration of program swaps under load.
//!
//! The benchmark uses veth pairs in a private network namespace. The generator makes frames inside the kernel
//! (`capture::live_frames`) and thereby runs the peer's receive loop, including program and copy to the AF_XDP socket,
//! on the generator's processor. A thread on another processor empties the receive ring. So the rate of the generator
//! equals the rate at which the kernel part can process frames. The programs run in turn (`rates`). The measured
//! swaps are those of a complete capture: the program is compiled from its source text, checked by the verifier of the
//! kernel, and replaces the former program.

mod rates;
mod settings;

use crate::cpu_placement::CpuPlacement;
use crate::output::{MedianRange, Output, Stop};
use crate::stats::percentile;
use capture::auto::SourceKind;
use capture::live_frames::{LiveFrames, LiveFramesConfig};
use engine::{Capture, InterfacePlan, Plan, SourcePlan};
use interface_program::ProgramPlan;
use serde::Serialize;
use settings::{FROM, TO, parts, pin};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub use settings::XdpArgs;

/// Time limit for every wait.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The greatest permitted duration of a swap in milliseconds. The duration begins when the new program is loaded and
/// verified beside the running program, and ends when the new program evaluates packets.
const MAX_SWAP: f64 = 5.0;

/// The results of all swaps.
#[derive(Debug, Serialize)]
struct Swaps {
    swaps: u32,
    offered: u64,
    lost: u64,
    unaccounted: i64,
    faults: usize,
    compile_ms: MedianRange,
    load_ms: MedianRange,
    exchange_ms: MedianRange,
    /// The 99th percentile of the duration of a swap in milliseconds.
    p99_ms: f64,
    most_ms: f64,
}

/// Measures and prints the results.
pub fn run(args: &XdpArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "xdp")?;
    engine::private_pair(FROM, TO, 1500).map_err(|e| {
        Stop::error(format_args!("cannot create a network namespace for the measurement: {e}; run as root"))
    })?;
    let places = CpuPlacement::find();
    sheet.head(format_args!(
        "60 B frames made in the kernel (processor {}) -> veth -> program -> AF_XDP socket (processor {}); {} rounds \
         of two slices of {} frames, over interfaces that were opened {} times; percent below the bare redirect in \
         the same round: median with its 95 % interval, and least and greatest median of the openings",
        places.other(0),
        places.engine(),
        args.repeat,
        args.frames,
        args.openings
    ))?;
    sheet.head(
        "program                                      in kernel  verified          Mpps (min..max)       % below (95 \
         %)   by opening  (at most)     lost",
    )?;
    rates::rates(args, &places, &mut sheet)?;
    if args.swaps > 0 {
        swaps(args, &places, &mut sheet)?;
    }
    Ok(())
}

fn swaps(args: &XdpArgs, places: &CpuPlacement, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let text = |n: u32| ProgramPlan {
        name: "bench".into(),
        // Programs with an even number increment a counter (`inc`), so they write their generation for each packet; the
        // other programs write their generation only until user space has read it.
        text: format!(
            "main = {}when (has_port {}) drop >-> mark {n} >-> steer_flow",
            if n.is_multiple_of(2) { "inc 1 >-> " } else { "" },
            n % 1000 + 1
        ),
    };
    let source = SourcePlan::Interface(InterfacePlan::new(TO, SourceKind::AfXdp));
    let plan = Plan { ring: Some(64 << 20), program: Some(text(1)), cpus: vec![places.engine()], ..Plan::new(source) };
    let mut capture = Capture::start(&plan).map_err(Stop::error)?;
    let mut sender = LiveFrames::open(&LiveFramesConfig::new(FROM), &parts()?).map_err(Stop::error)?;
    let stop = AtomicBool::new(false);
    let (mut compile, mut load, mut swap) = (Vec::new(), Vec::new(), Vec::new());
    let processor = places.other(0);
    let sent = std::thread::scope(|scope| {
        let rate = args.rate;
        let stop = &stop;
        let load_of = scope.spawn(move || -> Result<u64, Stop> {
            pin(processor);
            let (begun, mut made) = (Instant::now(), 0);
            while !stop.load(Relaxed) {
                let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
                match due.saturating_sub(made) {
                    0 => std::thread::sleep(Duration::from_micros(200)),
                    more => made += sender.send(more.min(4096)).map_err(Stop::error)?,
                }
            }
            sender.flush().map_err(Stop::error)?;
            Ok(sender.counts().map_err(Stop::error)?.sent)
        });
        let mut outcome = Ok(());
        for n in 2..=args.swaps + 1 {
            match capture.swap_program(&text(n)) {
                Ok(Some(report)) => {
                    compile.push(report.compile_ms);
                    load.push(report.load_ms);
                    swap.push(report.swap_ms);
                }
                Ok(None) => {}
                Err(e) => {
                    outcome = Err(Stop::error(e));
                    break;
                }
            }
        }
        stop.store(true, Relaxed);
        let sent = load_of.join().map_err(|_| Stop::error("the generator panicked; please report this"))?;
        outcome.and(sent)
    })?;
    let until = Instant::now() + TIMEOUT;
    while capture.report().counts.offered < sent && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    capture.stop();
    capture.wait().map_err(Stop::error)?;
    let report = capture.report();
    let mut sorted = swap.clone();
    sorted.sort_by(f64::total_cmp);
    let row = Swaps {
        swaps: swap.len() as u32,
        offered: report.counts.offered,
        lost: report.counts.lost_total,
        unaccounted: sent as i64 - report.counts.offered as i64 + report.counts.residue,
        faults: report.faults.len(),
        compile_ms: MedianRange::of(compile),
        load_ms: MedianRange::of(load),
        exchange_ms: MedianRange::of(swap),
        p99_ms: percentile(&sorted, 99.0),
        most_ms: MAX_SWAP,
    };
    let line = format!(
        "{} swaps over {} packets: {} lost, {} unaccounted, {} faults\n  machine code of the user part {:.2} ms; \
         maps, load, verifier {:.2} ms; the swap itself {:.3} ms, 99th percentile {:.3} ms (limit: {MAX_SWAP} ms)",
        row.swaps,
        row.offered,
        row.lost,
        row.unaccounted,
        row.faults,
        row.compile_ms,
        row.load_ms,
        row.exchange_ms,
        row.p99_ms
    );
    sheet.row("swaps", &row, line)
}
