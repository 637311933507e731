//! What a program costs a port, told from how unsteady the machine is.
//!
//! On a shared machine one program's rate differs by 40 % from one second to the next, and what is asked is whether two differ by 5 %. So
//! they take turns every few milliseconds: a round has a slice of each in an order drawn anew, and then the same order backwards, so that what
//! changes slowly changes all of them alike. Each round gives one ratio; of the ratios the median is shown, with the interval
//! that holds the true one 95 times of 100 ([`Paired`]).
//!
//! Which pages the sockets, rings and tables of two ports get makes one of them up to 4 % faster than the other for as long as they are open, which no
//! number of rounds tells from what a program costs. So the ports are opened anew again and again, each time for a share of the rounds, and the
//! medians of the openings are shown as well.
//!
//! The bare redirect is what a port has that was opened without programs: frames without room before them, a socket whose reader looks at
//! nothing but frames, and the attached program alone. The programs are exchanged on a second port as they are in a capture. The generators are
//! the same. That packets were decided, and not left, is looked up afterwards in the port's books.

use super::{MAX_COST, PROGRAMS, XdpArgs, parts, pin};
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

/// The port without programs, and the one with them: where frames are made, and where they arrive.
const BARE: (&str, &str) = (super::FROM, super::TO);
const PROGRAMMED: (&str, &str) = ("ng-xdp2", "ng-xdp3");

/// Frames of each slice that are not timed, for the one before to be forgotten.
const SETTLING: u64 = 1000;
/// Frames through each port before the first round.
const WARMING: u64 = 200_000;

/// A difference that was found again and again: its median, and an interval that holds the true median with 95 % confidence whatever the
/// differences are distributed like (order statistics: of n values about n/2 ± 0.98 √n lie below the true median).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Paired {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Paired {
    /// Of at least one value.
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

/// One program's rate.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    stages_in_kernel: usize,
    verified_instructions: u32,
    mpps: MedianRange,
    /// Below the bare redirect in the same round, in percent.
    below_percent: Paired,
    /// The medians of each opening of the ports.
    by_opening: MedianRange,
    most_percent: f64,
    /// Frames that the port's socket had no room for, in all slices on this port.
    lost: u64,
}

/// A port and whoever sends to it.
struct Port {
    steer: Arc<XdpDispatcher>,
    sender: LiveFrames,
    /// Frames that the reader has taken.
    taken: Arc<AtomicU64>,
}

/// What takes turns.
struct Candidate {
    name: &'static str,
    port: usize,
    /// Nothing for the bare redirect.
    prepared: Option<PreparedProgram>,
    stages: usize,
    mpps: Vec<f64>,
    below: Vec<f64>,
    by_opening: Vec<f64>,
    lost: u64,
}

pub(super) fn rates(args: &XdpArgs, places: &CpuPlacement, sheet: &mut Output<'_>) -> Result<(), Stop> {
    engine::another_pair(PROGRAMMED.0, PROGRAMMED.1, 1500).map_err(Stop::say)?;
    let mut contestants = vec![Candidate::new("none: the bare redirect", 0)];
    contestants.extend(PROGRAMS.map(|text| Candidate::new(text, 1)));
    let mut left = args.repeat;
    for opening in 0..args.openings {
        let rounds = left.div_ceil(args.openings - opening);
        left -= rounds;
        if rounds > 0 {
            one_opening(args.frames, rounds, places, &mut contestants)?;
        }
    }
    contestants.into_iter().try_for_each(|c| show(c, sheet))
}

/// Some rounds over ports that are opened for them.
fn one_opening(frames: u64, rounds: u32, places: &CpuPlacement, contestants: &mut [Candidate]) -> Result<(), Stop> {
    let ((bare, bare_source), (programmed, source)) = (port(BARE, false)?, port(PROGRAMMED, true)?);
    for (nth, contestant) in (0..).zip(&mut *contestants).filter(|(_, c)| c.port == 1) {
        let (prepared, stages) = prepare(&programmed.steer, contestant.name, nth)?;
        (contestant.prepared, contestant.stages) = (Some(prepared), stages);
    }
    let (mut ports, before) = ([bare, programmed], contestants[0].below.len());
    let stop = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        let readers = [(bare_source, Arc::clone(&ports[0].taken)), (source, Arc::clone(&ports[1].taken))];
        let readers = readers.map(|(source, taken)| {
            let (stop, processor) = (&stop, places.engine());
            scope.spawn(move || {
                pin(processor);
                drain(source, stop, &taken);
            })
        });
        pin(places.other(0));
        let outcome = compete(frames, rounds, &mut ports, contestants).and_then(|()| accounting(&ports));
        stop.store(true, Relaxed);
        for reader in readers {
            reader.join().map_err(|_| Stop::say("a reader panicked; please report this"))?;
        }
        outcome
    })?;
    for contestant in contestants {
        contestant.by_opening.push(Paired::of(contestant.below[before..].to_vec()).median);
        contestant.lost += lost[contestant.port];
    }
    Ok(())
}

/// A port of its own end of a pair, and its only queue.
fn port((from, to): (&str, &str), programmed: bool) -> Result<(Port, AfXdp), Stop> {
    let config = AfXdpConfig { programmed, ..AfXdpConfig::new(to) };
    let mut sources = open(&config).map_err(Stop::say)?;
    let source = sources.pop().ok_or_else(|| Stop::say("the interface has no queue"))?;
    let sender = LiveFrames::open(&LiveFramesConfig::new(from), &parts()?).map_err(Stop::say)?;
    Ok((Port { steer: Arc::clone(source.open_dispatcher()), sender, taken: Arc::default() }, source))
}

/// The program as a capture would load it, and how many of its stages run in the kernel.
fn prepare(steer: &XdpDispatcher, text: &str, generation: u32) -> Result<(PreparedProgram, usize), Stop> {
    let program = lang::compile(text).map_err(|e| Stop::say(format_args!("{text}: {}", e.what)))?.program;
    let options = EmitOptions {
        link_type: wire::link::ETHERNET,
        hash_key: 7,
        generation,
        port: 0,
        ingress: 0,
        queues: steer.queues(),
        clock: Clock::Running,
        to_user: ToUser::Sockets,
        metadata: Metadata::Compact,
    };
    let object = kernel_programs::emit(&program, &options).map_err(Stop::say)?;
    let prepared = steer
        .prepare(&object, &[], sys::clock::since_monotonic())
        .map_err(|e| Stop::say(capture::afxdp::explain(PROGRAMMED.1, e)))?;
    Ok((prepared, object.stages))
}

/// All rounds.
fn compete(frames: u64, rounds: u32, ports: &mut [Port; 2], contestants: &mut [Candidate]) -> Result<(), Stop> {
    for port in &mut *ports {
        port.send(WARMING)?;
    }
    let mut prng = base::Prng::new(contestants[0].mpps.len() as u64);
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    for _ in 0..rounds {
        for last in (1..order.len()).rev() {
            order.swap(last, prng.below(last as u64 + 1) as usize);
        }
        let mut times = vec![0.0; contestants.len()];
        for &which in order.iter().chain(order.iter().rev()) {
            let contestant = &contestants[which];
            let port = &mut ports[contestant.port];
            if let Some(prepared) = &contestant.prepared {
                let exchanged = port.steer.exchange(prepared.clone());
                exchanged.map_err(|e| Stop::say(capture::afxdp::explain(PROGRAMMED.1, e)))?;
            }
            port.send(SETTLING)?;
            let begun = Instant::now();
            port.send(frames)?;
            times[which] += begun.elapsed().as_secs_f64();
        }
        for (contestant, time) in contestants.iter_mut().zip(&times) {
            contestant.mpps.push(2.0 * frames as f64 / time / 1e6);
            contestant.below.push((1.0 - times[0] / time) * 100.0);
        }
    }
    Ok(())
}

/// By port, the frames that were sent to the socket and not taken from it. The programs decided all frames, or the figures are none.
fn accounting(ports: &[Port; 2]) -> Result<Vec<u64>, Stop> {
    let one = |port: &Port| {
        port.warm_up();
        let steered = port.steer.counts(0).map_err(Stop::say)?;
        if steered.undecided > 0 || steered.passed > 0 {
            let (left, passed) = (steered.undecided, steered.passed);
            return Err(Stop::say(format_args!(
                "{left} frames were left undecided, {passed} had no socket; please report this"
            )));
        }
        Ok(steered.redirected - port.taken.load(Relaxed).min(steered.redirected))
    };
    ports.iter().map(one).collect()
}

fn show(contestant: Candidate, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let Candidate { name, prepared, stages, mpps, below, by_opening, lost, .. } = contestant;
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
    /// Sends so many frames; the other end's receive loop runs in between.
    fn send(&mut self, frames: u64) -> Result<(), Stop> {
        let mut sent = 0;
        while sent < frames {
            sent += self.sender.send(frames - sent).map_err(Stop::say)?;
        }
        Ok(())
    }

    /// Waits until the reader has taken what there is.
    fn warm_up(&self) {
        let (mut last, mut quiet) = (self.taken.load(Relaxed), Instant::now());
        while quiet.elapsed() < Duration::from_millis(30) {
            std::thread::sleep(Duration::from_millis(2));
            let now = self.taken.load(Relaxed);
            if now != last {
                (last, quiet) = (now, Instant::now());
            }
        }
    }
}

/// Empties the receive ring, and reads what stands before each frame as an engine would, which tells the kernel which program it saw last.
fn drain(mut source: AfXdp, stop: &AtomicBool, taken: &AtomicU64) {
    let (steer, mut last) = (Arc::clone(source.open_dispatcher()), 0);
    while !stop.load(Relaxed) {
        let polled = source.poll(256, Duration::from_millis(1), |frame| {
            let handed =
                frame.metadata.first_chunk::<METADATA_BYTES>().and_then(|bytes| KernelVerdict::read(bytes, last));
            if let Some(handed) = handed.filter(|handed| handed.generation != last) {
                last = handed.generation;
                // Otherwise each frame goes on saying it.
                let _ = steer.acknowledge(0, last);
            }
        });
        match polled {
            Ok(Polled::Frames(n)) => _ = taken.fetch_add(n as u64, Relaxed),
            Ok(Polled::Idle) => {}
            Ok(Polled::End) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_true_median_about_as_often_as_it_says() {
        let seed = 23;
        let mut prng = base::Prng::new(seed);
        for n in [20, 101, 400] {
            let mut hits = 0;
            for _ in 0..1000 {
                // Lopsided: the square of a uniform number, whose median is a quarter.
                let values = (0..n).map(|_| (prng.below(1 << 20) as f64 / f64::from(1 << 20)).powi(2)).collect();
                let paired = Paired::of(values);
                assert!(paired.low <= paired.median && paired.median <= paired.high);
                hits += u32::from(paired.low <= 0.25 && 0.25 <= paired.high);
            }
            assert!((930..=990).contains(&hits), "{hits} of 1000 with {n} values, seed {seed}");
        }
    }

    #[test]
    fn one_value_is_its_own_interval() {
        assert_eq!(Paired::of(vec![3.0]), Paired { median: 3.0, low: 3.0, high: 3.0 });
    }
}
