//! Measures the cost of a program on an interface, and separates it from the variation of the machine.
//!
//! On a shared machine the packet rate of a program varies by 40 % from one second to the next, while the benchmark
//! must detect a difference of 5 %. So the programs alternate every few milliseconds: a round runs each program for one
//! slice, in a new random order, and then again in the reverse order, so that slow changes affect all programs alike.
//! Each round gives one ratio; the output shows the median of the ratios with its 95 % confidence interval
//! ([`Paired`]).
//!
//! Depending on the memory pages that the sockets, rings and tables of two interfaces are allocated in, one interface
//! is up to 4 % faster than the other for as long as both are open. This difference would be measured as a cost of the
//! program, however many rounds are run. So the benchmark opens the interfaces several times, each time for a share of
//! the rounds, and also shows the median of each opening.
//!
//! The bare redirect, with which the programs are compared, is an interface opened without programs: frames without
//! metadata space, a socket whose reader reads only frames, and the attached XDP program alone. The programs run on a
//! second interface and are swapped as in a capture. The generators of both interfaces send the same traffic.
//! Afterwards the benchmark checks in the interface's counters that the programs decided all packets.

use super::settings::{FROM, MAX_COST, PROGRAMS, TO, XdpArgs, parts, pin};
use crate::cpu_placement::CpuPlacement;
use crate::output::{MedianRange, Output, Stop};
use capture::afxdp::{AfXdp, AfXdpConfig, PreparedProgram, XdpDispatcher, open};
use capture::live_frames::{LiveFrames, LiveFramesConfig};
use capture::{Polled, Source};
use kernel_programs::{Clock, EmitOptions, KernelVerdict, METADATA_BYTES, Metadata, ToUser};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The interface without programs and the interface with programs, each with its peer: (sending end, receiving end).
const BARE: (&str, &str) = (FROM, TO);
const PROGRAMMED: (&str, &str) = ("ng-xdp2", "ng-xdp3");

/// Number of frames at the start of each slice that are not timed, so that the program of the previous slice does not
/// affect the measurement.
const SETTLING: u64 = 1000;
/// Number of frames that are sent through each interface before the first round.
const WARMING: u64 = 200_000;

/// The median of repeated measurements of a difference, and an interval that holds the true median with 95 % confidence
/// for any distribution of the differences (order statistics: of n values about n/2 ± 0.98 √n lie below the true
/// median).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Paired {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Paired {
    /// Returns the median of the values, of which there must be at least one.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (middle, half) = (values.len() as f64 / 2.0, 0.98 * (values.len() as f64).sqrt());
        let at = |rank: f64| values[(rank.max(0.0) as usize).min(values.len() - 1)];
        Self {
            median: crate::stats::percentile(&values, 50.0),
            low: at((middle - half).floor() - 1.0),
            high: at((middle + half).ceil()),
        }
    }
}

/// The result of one program.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    stages_in_kernel: usize,
    verified_instructions: u32,
    mpps: MedianRange,
    /// Percent by which the packet rate of the program is below that of the bare redirect in the same round.
    below_percent: Paired,
    /// The benchmark opens the interfaces several times. For each time, the median of the percentage over its rounds
    /// is computed; these are the median and the range of these medians.
    by_opening: MedianRange,
    most_percent: f64,
    /// Frames that were lost because the interface's socket had no room, in all slices on this interface.
    lost: u64,
}

/// An interface and the generator that sends to it.
struct Port {
    dispatcher: Arc<XdpDispatcher>,
    sender: LiveFrames,
    /// Frames that the reader has received.
    received: Arc<AtomicU64>,
}

/// A program that is measured in turn with the other programs.
struct Candidate {
    name: &'static str,
    port: usize,
    /// `None` for the bare redirect.
    prepared: Option<PreparedProgram>,
    stages: usize,
    mpps: Vec<f64>,
    below: Vec<f64>,
    by_opening: Vec<f64>,
    lost: u64,
}

pub(super) fn rates(args: &XdpArgs, places: &CpuPlacement, sheet: &mut Output<'_>) -> Result<(), Stop> {
    engine::another_pair(PROGRAMMED.0, PROGRAMMED.1, 1500).map_err(Stop::error)?;
    let mut candidates = vec![Candidate::new("none: the bare redirect", 0)];
    candidates.extend(PROGRAMS.map(|text| Candidate::new(text, 1)));
    let mut left = args.repeat;
    for opening in 0..args.openings {
        let rounds = left.div_ceil(args.openings - opening);
        left -= rounds;
        if rounds > 0 {
            one_opening(args.frames, rounds, places, &mut candidates)?;
        }
    }
    candidates.into_iter().try_for_each(|c| show(c, sheet))
}

/// Opens the interfaces and runs `rounds` rounds of the measurement on them.
fn one_opening(frames: u64, rounds: u32, places: &CpuPlacement, candidates: &mut [Candidate]) -> Result<(), Stop> {
    let ((bare, bare_source), (programmed, source)) = (port(BARE, false)?, port(PROGRAMMED, true)?);
    for (number, candidate) in (0..).zip(&mut *candidates).filter(|(_, c)| c.port == 1) {
        let (prepared, stages) = prepare(&programmed.dispatcher, candidate.name, number)?;
        (candidate.prepared, candidate.stages) = (Some(prepared), stages);
    }
    let (mut ports, before) = ([bare, programmed], candidates[0].below.len());
    let stop = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        let readers = [(bare_source, Arc::clone(&ports[0].received)), (source, Arc::clone(&ports[1].received))];
        let readers = readers.map(|(source, received)| {
            let (stop, processor) = (&stop, places.engine());
            scope.spawn(move || {
                pin(processor);
                drain(source, stop, &received);
            })
        });
        pin(places.other(0));
        let outcome = run_rounds(frames, rounds, &mut ports, candidates).and_then(|()| accounting(&ports));
        stop.store(true, Relaxed);
        for reader in readers {
            reader.join().map_err(|_| Stop::error("a reader panicked; please report this"))?;
        }
        outcome
    })?;
    for candidate in candidates {
        candidate.by_opening.push(Paired::of(candidate.below[before..].to_vec()).median);
        candidate.lost += lost[candidate.port];
    }
    Ok(())
}

/// Opens an interface, the receiving end of a pair, and its only queue.
fn port((from, to): (&str, &str), programmed: bool) -> Result<(Port, AfXdp), Stop> {
    let config = AfXdpConfig { programmed, ..AfXdpConfig::new(to) };
    let mut sources = open(&config).map_err(Stop::error)?;
    let source = sources.pop().ok_or_else(|| Stop::error("the interface has no queue"))?;
    let sender = LiveFrames::open(&LiveFramesConfig::new(from), &parts()?).map_err(Stop::error)?;
    Ok((Port { dispatcher: Arc::clone(source.open_dispatcher()), sender, received: Arc::default() }, source))
}

/// The program as a capture would load it, and the number of its stages that run in the kernel.
fn prepare(dispatcher: &XdpDispatcher, text: &str, generation: u32) -> Result<(PreparedProgram, usize), Stop> {
    let program = lang::compile(text).map_err(|e| Stop::error(format_args!("{text}: {}", e.what)))?.program;
    let options = EmitOptions {
        link_type: wire::link::ETHERNET,
        hash_key: 7,
        generation,
        port: 0,
        ingress: 0,
        queues: dispatcher.queues(),
        clock: Clock::Running,
        to_user: ToUser::Sockets,
        metadata: Metadata::Compact,
    };
    let object = kernel_programs::emit(&program, &options).map_err(Stop::error)?;
    let prepared = dispatcher
        .prepare(&object, &[], sys::clock::since_monotonic())
        .map_err(|e| Stop::error(capture::afxdp::explain(PROGRAMMED.1, e)))?;
    Ok((prepared, object.stages))
}

/// Runs all rounds.
fn run_rounds(frames: u64, rounds: u32, ports: &mut [Port; 2], candidates: &mut [Candidate]) -> Result<(), Stop> {
    for port in &mut *ports {
        port.send(WARMING)?;
    }
    let mut prng = base::Prng::new(candidates[0].mpps.len() as u64);
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    for _ in 0..rounds {
        for last in (1..order.len()).rev() {
            order.swap(last, prng.below(last as u64 + 1) as usize);
        }
        let mut times = vec![0.0; candidates.len()];
        for &which in order.iter().chain(order.iter().rev()) {
            let candidate = &candidates[which];
            let port = &mut ports[candidate.port];
            if let Some(prepared) = &candidate.prepared {
                let exchanged = port.dispatcher.swap(prepared.clone());
                exchanged.map_err(|e| Stop::error(capture::afxdp::explain(PROGRAMMED.1, e)))?;
            }
            port.send(SETTLING)?;
            let begun = Instant::now();
            port.send(frames)?;
            times[which] += begun.elapsed().as_secs_f64();
        }
        for (candidate, time) in candidates.iter_mut().zip(&times) {
            candidate.mpps.push(2.0 * frames as f64 / time / 1e6);
            candidate.below.push((1.0 - times[0] / time) * 100.0);
        }
    }
    Ok(())
}

/// For each interface, the frames redirected to the socket but not received. An error if the programs left frames
/// undecided, since the results would then be invalid.
fn accounting(ports: &[Port; 2]) -> Result<Vec<u64>, Stop> {
    let one = |port: &Port| {
        port.warm_up();
        let steered = port.dispatcher.counts(0).map_err(Stop::error)?;
        if steered.undecided > 0 || steered.passed > 0 {
            let (left, passed) = (steered.undecided, steered.passed);
            return Err(Stop::error(format_args!(
                "the programs left {left} frames undecided, and the queues of {passed} frames had no socket; please \
                 report this"
            )));
        }
        Ok(steered.redirected - port.received.load(Relaxed).min(steered.redirected))
    };
    ports.iter().map(one).collect()
}

fn show(candidate: Candidate, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let Candidate { name, prepared, stages, mpps, below, by_opening, lost, .. } = candidate;
    let row = Row {
        program: name.to_owned(),
        stages_in_kernel: stages,
        verified_instructions: prepared.map_or(0, |p| p.verified()),
        mpps: MedianRange::of(mpps),
        below_percent: Paired::of(below),
        by_opening: MedianRange::of(by_opening),
        most_percent: MAX_COST,
        lost,
    };
    let Paired { median, low, high } = row.below_percent;
    let line = format!(
        "{name:<44} {stages:>9} {:>9} {:>24} {:>22} {:>12} {MAX_COST:>10} {:>8}",
        row.verified_instructions,
        format!("{:.3}", row.mpps),
        format!("{median:.2} ({low:.2}..{high:.2})"),
        format!("{:.1}..{:.1}", row.by_opening.min, row.by_opening.max),
        row.lost
    );
    sheet.row("program", &row, line)
}

impl Candidate {
    fn new(name: &'static str, port: usize) -> Self {
        Self { name, port, prepared: None, stages: 0, mpps: vec![], below: vec![], by_opening: vec![], lost: 0 }
    }
}

impl Port {
    /// Sends `frames` frames; each call also runs the peer's receive loop.
    fn send(&mut self, frames: u64) -> Result<(), Stop> {
        let mut sent = 0;
        while sent < frames {
            sent += self.sender.send(frames - sent).map_err(Stop::error)?;
        }
        Ok(())
    }

    /// Waits until the reader has received all frames.
    fn warm_up(&self) {
        let (mut last, mut quiet) = (self.received.load(Relaxed), Instant::now());
        while quiet.elapsed() < Duration::from_millis(30) {
            std::thread::sleep(Duration::from_millis(2));
            let now = self.received.load(Relaxed);
            if now != last {
                (last, quiet) = (now, Instant::now());
            }
        }
    }
}

/// Empties the receive ring, and reads the metadata of each frame as an engine would. By reading a program generation,
/// user space acknowledges it to the kernel part.
fn drain(mut source: AfXdp, stop: &AtomicBool, received: &AtomicU64) {
    let (dispatcher, mut last) = (Arc::clone(source.open_dispatcher()), 0);
    while !stop.load(Relaxed) {
        let polled = source.poll(256, Duration::from_millis(1), |frame| {
            let metadata =
                frame.metadata.first_chunk::<METADATA_BYTES>().and_then(|bytes| KernelVerdict::read(bytes, last));
            if let Some(metadata) = metadata.filter(|metadata| metadata.generation != last) {
                last = metadata.generation;
                // Without the acknowledgement, each frame would continue to carry the generation.
                let _ = dispatcher.acknowledge(0, last);
            }
        });
        match polled {
            Ok(Polled::Frames(n)) => _ = received.fetch_add(n as u64, Relaxed),
            Ok(Polled::Idle) => {}
            Ok(Polled::End) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_contains_the_true_median_at_the_stated_rate() {
        let seed = 23;
        let mut prng = base::Prng::new(seed);
        for n in [20, 101, 400] {
            let mut hits = 0;
            for _ in 0..1000 {
                // A skewed distribution: the square of a uniform number, whose median is a quarter.
                let values = (0..n).map(|_| (prng.below(1 << 20) as f64 / f64::from(1 << 20)).powi(2)).collect();
                let paired = Paired::of(values);
                assert!(paired.low <= paired.median && paired.median <= paired.high);
                hits += u32::from(paired.low <= 0.25 && 0.25 <= paired.high);
            }
            assert!(
                (930..=990).contains(&hits),
                "{hits} of 1000 intervals of {n} values contain the true median, seed {seed}"
            );
        }
    }

    #[test]
    fn one_value_is_its_own_interval() {
        assert_eq!(Paired::of(vec![3.0]), Paired { median: 3.0, low: 3.0, high: 3.0 });
    }
}
