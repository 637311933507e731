//! Programs of the language in the kernel: what they cost a port beside a program that only redirects, and how they are swapped
//! under load.
//!
//! A veth pair in a network of its own; the generator makes frames inside the kernel (`capture::live_frames`) and thereby
//! runs the other end's receive loop, program and copy to the AF_XDP socket included, on its own processor. So the rate at which frames are
//! taken is that of the kernel's half, while a thread on the other processor empties the receive ring. The programs take turns
//! on the one socket. The swaps go through a whole capture: text, machine code, verifier, exchange.

use crate::place::Places;
use crate::sheet::{Sheet, Spread, Stop};
use crate::stats::percentile;
use base::units::parse_count;
use capture::afxdp::{AfXdp, AfXdpConfig, Steer, open};
use capture::auto::Kind;
use capture::live_frames::{LiveFrames, LiveFramesConfig};
use capture::{Polled, Source};
use clap::Args;
use engine::{Capture, InterfacePlan, Plan, ProgramPlan, SourcePlan};
use r#gen::{Parts, Spec};
use lang::ebpf::{Clock, Handed, METADATA, Metadata, ToUser, Wish};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const FROM: &str = "ng-xdp0";
const TO: &str = "ng-xdp1";

/// Nothing that is waited for takes so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most that a program may cost beside the bare redirect, in percent.
const MOST_COST: f64 = 5.0;
/// The most that a swap may take, in milliseconds: from a program that is made, loaded and verified, beside the one that runs, to one
/// that judges.
const MOST_SWAP: f64 = 5.0;

/// Programs, and what they are compared with: a port without one, where ours counts and redirects and knows nothing of packets.
const PROGRAMS: [&str; 2] = ["main = ip >-> steer_flow", "main = when is_tcp (mark 42) >-> steer_p2p"];

/// Flags of `netgrain bench xdp`.
#[derive(Args, Clone, Debug)]
pub struct XdpArgs {
    /// Frames of each run
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub frames: u64,
    /// Runs of each program, in turn; medians are shown
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Swaps under load
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub swaps: u32,
    /// Frames per second while programs are swapped
    #[arg(long, value_name = "N", default_value = "300k", value_parser = parse_count)]
    pub rate: u64,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// One program's rate.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    stages_in_kernel: usize,
    verified_instructions: u32,
    mpps: Spread,
    /// Beside the bare redirect, in percent; positive is slower.
    cost_percent: f64,
    most_percent: f64,
    /// Frames that the socket had no room for, of all runs.
    lost: u64,
}

/// All swaps together.
#[derive(Debug, Serialize)]
struct Swaps {
    swaps: u32,
    offered: u64,
    lost: u64,
    unaccounted: i64,
    faults: usize,
    compile_ms: Spread,
    load_ms: Spread,
    exchange_ms: Spread,
    /// The time within which 99 of 100 exchanges were done.
    p99_ms: f64,
    most_ms: f64,
}

/// Measures and prints.
pub fn run(args: &XdpArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Sheet::begin(out, args.json, "xdp")?;
    engine::private_pair(FROM, TO, 1500)
        .map_err(|e| Stop::say(format_args!("no network of its own for the measurement: {e}; run as root")))?;
    let places = Places::find();
    sheet.head(format_args!(
        "60 B frames made in the kernel (processor {}) -> veth -> program -> AF_XDP socket (processor {}); {} frames a run, {} \
         runs in turn, medians",
        places.other(0),
        places.engine(),
        args.frames,
        args.repeat
    ))?;
    sheet.head("program                                     in kernel  verified      Mpps (min..max)        cost %  (at most)     lost")?;
    rates(args, &places, &mut sheet)?;
    if args.swaps > 0 {
        swaps(args, &places, &mut sheet)?;
    }
    Ok(())
}

fn parts() -> Result<Parts, Stop> {
    let spec: Spec = "60,flows=1000,truth".parse().map_err(Stop::say)?;
    Parts::new(&spec).ok_or_else(|| Stop::say("these frames cannot be made in the kernel; please report this"))
}

fn pin(processor: usize) {
    // Elsewhere it is as right, and less even.
    let _ = sys::cpu::pin_to(&[processor]);
}

fn rates(args: &XdpArgs, places: &Places, sheet: &mut Sheet<'_>) -> Result<(), Stop> {
    let config = AfXdpConfig { programmed: true, ..AfXdpConfig::new(TO) };
    let mut sources = open(&config).map_err(Stop::say)?;
    let source = sources.pop().ok_or_else(|| Stop::say("the port has no queue"))?;
    let steer = Arc::clone(source.steer());
    let mut sender = LiveFrames::open(&LiveFramesConfig::new(FROM), &parts()?).map_err(Stop::say)?;
    let (stop, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rates = [const { Vec::new() }; PROGRAMS.len() + 1];
    let mut facts = [(0, 0); PROGRAMS.len() + 1];
    let mut losses = [0; PROGRAMS.len() + 1];
    let processor = places.engine();
    std::thread::scope(|scope| -> Result<(), Stop> {
        let reader = scope.spawn(|| {
            pin(processor);
            drain(source, &stop, &taken)
        });
        pin(places.other(0));
        let mut outcome = Ok(());
        'runs: for run in 0..args.repeat {
            // The order turns round each time, so that nobody always comes first.
            for nth in 0..=PROGRAMS.len() {
                let which = (nth + run as usize) % (PROGRAMS.len() + 1);
                let mut one = || -> Result<f64, Stop> {
                    facts[which] = exchange(&steer, which)?;
                    send(&mut sender, args.frames / 20)?;
                    let (before, begun) = (seen(&steer)?, Instant::now());
                    send(&mut sender, args.frames)?;
                    let time = begun.elapsed();
                    let passed = seen(&steer)? - before;
                    Ok(passed as f64 / time.as_secs_f64() / 1e6)
                };
                match one() {
                    Ok(mpps) => rates[which].push(mpps),
                    Err(e) => {
                        outcome = Err(e);
                        break 'runs;
                    }
                }
                settle(&steer, &taken, &mut losses[which])?;
            }
        }
        stop.store(true, Relaxed);
        reader.join().map_err(|_| Stop::say("the reader panicked; please report this"))?;
        outcome
    })?;
    let bare = Spread::of(rates[0].iter().copied());
    let names = std::iter::once("none: the bare redirect").chain(PROGRAMS);
    for (which, name) in names.enumerate() {
        let mpps = Spread::of(rates[which].iter().copied());
        let (stages_in_kernel, verified_instructions) = facts[which];
        let cost_percent = (bare.median - mpps.median) / bare.median * 100.0;
        let row = Row {
            program: name.to_owned(),
            stages_in_kernel,
            verified_instructions,
            mpps,
            cost_percent,
            most_percent: MOST_COST,
            lost: losses[which],
        };
        let line = format!(
            "{name:<44} {stages_in_kernel:>8} {verified_instructions:>9} {:>24} {cost_percent:>9.1} {MOST_COST:>10} {:>8}",
            format!("{:.3}", row.mpps),
            row.lost
        );
        sheet.row("program", &row, line)?;
    }
    Ok(())
}

/// Puts the program of this number on the port; number 0 is the bare redirect. Stages in the kernel, instructions verified.
fn exchange(steer: &Steer, which: usize) -> Result<(usize, u32), Stop> {
    let Some(text) = which.checked_sub(1).map(|i| PROGRAMS[i]) else {
        steer.relieve().map_err(|e| Stop::say(capture::afxdp::explain(TO, e)))?;
        return Ok((0, 0));
    };
    let program = lang::compile(text).map_err(|e| Stop::say(format_args!("{text}: {}", e.what)))?.program;
    let wish = Wish {
        link_type: wire::link::ETHERNET,
        hash_key: 7,
        generation: which as u32,
        port: 0,
        ingress: 0,
        queues: steer.queues(),
        clock: Clock::Running,
        to_user: ToUser::Sockets,
        metadata: Metadata::Least,
    };
    let object = lang::ebpf::emit(&program, &wish).map_err(Stop::say)?;
    let prepared = steer
        .prepare(&object, &[], sys::clock::since_monotonic())
        .map_err(|e| Stop::say(capture::afxdp::explain(TO, e)))?;
    let verified = prepared.verified();
    steer.exchange(prepared).map_err(|e| Stop::say(capture::afxdp::explain(TO, e)))?;
    Ok((object.stages, verified))
}

/// Sends so many frames, and waits until the other end has taken them all.
fn send(sender: &mut LiveFrames, frames: u64) -> Result<(), Stop> {
    let mut sent = 0;
    while sent < frames {
        sent += sender.send(frames - sent).map_err(Stop::say)?;
    }
    sender.flush().map_err(Stop::say).map(drop)
}

/// Frames that the port's programs have seen.
fn seen(steer: &Steer) -> Result<u64, Stop> {
    let steered = steer.steered(0).map_err(Stop::say)?;
    Ok(steered.redirected + steered.disposed.total() + steered.passed)
}

/// Waits until the reader has taken what was sent to the socket; what then is missing was lost.
fn settle(steer: &Steer, taken: &AtomicU64, lost: &mut u64) -> Result<(), Stop> {
    let (mut last, mut quiet) = (taken.load(Relaxed), Instant::now());
    while quiet.elapsed() < Duration::from_millis(30) {
        std::thread::sleep(Duration::from_millis(2));
        let now = taken.load(Relaxed);
        if now != last {
            (last, quiet) = (now, Instant::now());
        }
    }
    let redirected = steer.steered(0).map_err(Stop::say)?.redirected;
    let missing = redirected.saturating_sub(last);
    taken.fetch_add(missing, Relaxed);
    *lost += missing;
    Ok(())
}

/// Empties the receive ring, and reads what stands before each frame as an engine would.
fn drain(mut source: AfXdp, stop: &AtomicBool, taken: &AtomicU64) {
    while !stop.load(Relaxed) {
        let mut decided = 0u64;
        let polled = source.poll(256, Duration::from_millis(1), |frame| {
            let handed = frame.metadata.first_chunk::<METADATA>().and_then(|bytes| Handed::read(bytes, 0));
            decided += u64::from(handed.is_some());
        });
        std::hint::black_box(decided);
        match polled {
            Ok(Polled::Frames(n)) => _ = taken.fetch_add(n as u64, Relaxed),
            Ok(Polled::Idle) => {}
            Ok(Polled::End) | Err(_) => return,
        }
    }
}

fn swaps(args: &XdpArgs, places: &Places, sheet: &mut Sheet<'_>) -> Result<(), Stop> {
    let text = |n: u32| ProgramPlan {
        name: "bench".into(),
        text: format!("main = inc 1 >-> when (has_port {}) drop >-> mark {n} >-> steer_flow", n % 1000 + 1),
    };
    let source = SourcePlan::Interface(InterfacePlan::new(TO, Kind::AfXdp));
    let plan = Plan { ring: Some(64 << 20), program: Some(text(1)), cpus: vec![places.engine()], ..Plan::new(source) };
    let mut capture = Capture::start(&plan).map_err(Stop::say)?;
    let mut sender = LiveFrames::open(&LiveFramesConfig::new(FROM), &parts()?).map_err(Stop::say)?;
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
                    more => made += sender.send(more.min(4096)).map_err(Stop::say)?,
                }
            }
            sender.flush().map_err(Stop::say)?;
            Ok(sender.counts().map_err(Stop::say)?.sent)
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
                    outcome = Err(Stop::say(e));
                    break;
                }
            }
        }
        stop.store(true, Relaxed);
        let sent = load_of.join().map_err(|_| Stop::say("the generator panicked; please report this"))?;
        outcome.and(sent)
    })?;
    let until = Instant::now() + PATIENCE;
    while capture.report().counts.offered < sent && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    capture.stop();
    capture.wait().map_err(Stop::say)?;
    let report = capture.report();
    let mut sorted = swap.clone();
    sorted.sort_by(f64::total_cmp);
    let row = Swaps {
        swaps: swap.len() as u32,
        offered: report.counts.offered,
        lost: report.counts.lost_total,
        unaccounted: sent as i64 - report.counts.offered as i64 + report.counts.residue,
        faults: report.faults.len(),
        compile_ms: Spread::of(compile),
        load_ms: Spread::of(load),
        exchange_ms: Spread::of(swap),
        p99_ms: percentile(&sorted, 99.0),
        most_ms: MOST_SWAP,
    };
    let line = format!(
        "{} swaps over {} packets: {} lost, {} unaccounted, {} out of turn\n  machine code of the user half {:.2} ms; maps, load, \
         verifier {:.2} ms; the exchange itself {:.3} ms, within {:.3} ms in 99 of 100 (asked: {MOST_SWAP} ms)",
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
