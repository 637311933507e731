//! `netgrain gen train,…`: sends trains, or writes them into a capture with exact times.

use super::{GenArgs, SendMethod, open_capture};
use crate::distribution::{plot, show_nanos, to_json};
use crate::outcome::{Failure, Outcome, json, versioned};
use crate::overwrite;
use crate::privileges;
use crate::signals;
use crate::style::plural;
use base::units::{Rate, show_count, show_si};
use base::{Distribution, ErrorEstimate, Timestamp};
use clap::ValueEnum;
use engine::{LaunchMethod, TrainReport, TrainSender};
use r#gen::train::{DeparturePlace, Departures, TrainFrames, TrainSpec};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The timing of departures.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Timing {
    /// launch-time if the interface has the queueing discipline etf, otherwise busy-wait
    Auto,
    /// The sender waits for each departure
    BusyWait,
    /// The kernel or the NIC sends each packet at its launch time (SO_TXTIME and the queueing discipline etf)
    LaunchTime,
}

/// If the median of the gaps inside bursts exceeds the requested gap by more than this share, the sender prints a
/// warning.
const GAP_TOLERANCE: f64 = 0.1;

/// Sends or writes the trains of `args`.
pub fn run(args: &GenArgs) -> Result<Outcome, Failure> {
    let mut spec: TrainSpec = args.spec.parse().map_err(Failure::say)?;
    refuse_other_flags(args)?;
    spec.packets = args.packets.or(spec.packets);
    spec.duration = args.duration.or(spec.duration);
    let stop = signals::stop_flag();
    match (&args.interface, &args.write) {
        (Some(interface), _) => send(args, &spec, interface, &stop),
        (None, Some(path)) => {
            privileges::keep_calls_of_queries()?;
            write(args, &spec, path, &stop)
        }
        (None, None) => Err(Failure::Said("name an interface with -i, or a file with -w".into())),
    }
}

fn refuse_other_flags(args: &GenArgs) -> Result<(), Failure> {
    let refused = if args.rate.is_some_and(|rate| rate != Rate::Flat) {
        "--rate: a train has gaps instead of a rate; give gap=, burst-gap= and train-gap= in the specification"
    } else if args.method != SendMethod::Auto {
        "--method: trains are sent through a packet socket; choose the timing of departures with --launch"
    } else if args.queue != 0 {
        "--queue: trains are sent through a packet socket, and the kernel chooses the queue; leave --queue out"
    } else if args.truth.is_some() {
        super::TRUTH_OF_TCP
    } else {
        return Ok(());
    };
    Err(Failure::Said(refused.into()))
}

fn send(args: &GenArgs, spec: &TrainSpec, interface: &str, stop: &AtomicBool) -> Result<Outcome, Failure> {
    // Each run has a new session number, so that the receiver does not count its packets as duplicates of packets of an
    // earlier run.
    let session = spec.session.unwrap_or((sys::clock::realtime().nanos() / 1_000_000) as u32);
    let spec = &TrainSpec { session: Some(session), ..spec.clone() };
    let method = match args.launch {
        Timing::Auto => LaunchMethod::Auto,
        Timing::BusyWait => LaunchMethod::BusyWait,
        Timing::LaunchTime => LaunchMethod::LaunchTime,
    };
    let sender = TrainSender::open(spec, interface, method).map_err(Failure::say)?;
    let place = sender.place();
    sys::say!("netgrain: {}", sender.description());
    privileges::keep_calls_of_capture()?;
    let progress = |sent| {
        if !args.json {
            sys::say!("sent {}", plural(sent, "packet", "packets"));
        }
    };
    let report = sender.run(stop, progress).map_err(Failure::say)?;
    warn(spec, &report);
    finish(args, spec, &report, place)?;
    Ok(Outcome::of(report.refused == 0 && report.unlaunched == 0))
}

/// Writes the trains into a nanosecond pcap file. The timestamp of a packet is its planned departure.
fn write(args: &GenArgs, spec: &TrainSpec, path: &Path, stop: &AtomicBool) -> Result<Outcome, Failure> {
    let (mut out, fail) = open_capture(path, args.overwrite.force)?;
    let start = sys::clock::realtime();
    // The departure times in a file are the times of the schedule, which have no error.
    let error = ErrorEstimate::of(Duration::ZERO, true);
    let frames = TrainFrames::new(spec);
    let mut frame = vec![0; frames.max_len()];
    let mut report = TrainReport::default();
    for departure in Departures::new(spec) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let at: Timestamp = start.after(departure.at);
        let len = frames.fill(&mut frame, &departure, at, DeparturePlace::Schedule, error);
        out.write(at, len as u32, &frame[..len]).map_err(&fail)?;
        (report.made, report.sent, report.bytes) = (report.made + 1, report.sent + 1, report.bytes + len as u64);
        report.nanos = u64::try_from(departure.at.as_nanos()).unwrap_or(u64::MAX);
    }
    out.finish().map_err(&fail)?;
    report.clock = Some(error);
    finish(args, spec, &report, DeparturePlace::Schedule)?;
    Ok(Outcome::Yes)
}

/// Prints a warning if the sender did not keep the requested gaps, or if the system clock was set during the run.
fn warn(spec: &TrainSpec, report: &TrainReport) {
    let requested = spec.gap.as_nanos() as f64;
    if let Some((error, _)) = report.gaps.inside_bursts.quantile(0.5)
        && requested > 0.0
        && error as f64 > requested * GAP_TOLERANCE
    {
        sys::say!(
            "netgrain: the gap of {} is too short for this machine: the median of the gaps inside bursts was {}; \
             request a longer gap, or use gap=0 for packets as fast as possible",
            show_nanos(requested),
            show_nanos(requested + error as f64)
        );
    }
    if report.clock_steps > 0 {
        sys::say!(
            "netgrain: the system clock was set {} during the run; delays before and after the step do not fit \
             together: measure again while a time daemon slews the clock",
            plural(report.clock_steps, "time", "times")
        );
    }
}

fn finish(args: &GenArgs, spec: &TrainSpec, report: &TrainReport, place: DeparturePlace) -> Result<(), Failure> {
    let to_stderr = args.write.as_deref().is_some_and(overwrite::is_stdout);
    match (args.json, to_stderr) {
        (true, true) => sys::say!("{}", versioned(document(spec, report, place))),
        (true, false) => json(&document(spec, report, place))?,
        (false, true) => sys::say!("{}", text(spec, report).trim_end()),
        (false, false) => write!(std::io::stdout(), "{}", text(spec, report))?,
    }
    Ok(())
}

fn document(spec: &TrainSpec, report: &TrainReport, place: DeparturePlace) -> Value {
    serde_json::json!({
        "session": TrainFrames::new(spec).session(),
        "specification": spec.to_string(),
        "departure_place": place.name(),
        "made": report.made,
        "sent": report.sent,
        "refused": report.refused,
        "unlaunched": report.unlaunched,
        "bytes": report.bytes,
        "nanos": report.nanos,
        "clock_synchronised": report.clock.is_some_and(ErrorEstimate::is_synchronised),
        "clock_error_ns": report.clock.map(|clock| clock.error().as_nanos() as u64),
        "clock_steps": report.clock_steps,
        "gap_ns": spec.gap.as_nanos() as u64,
        "gap_error_inside_bursts_ns": to_json(&report.gaps.inside_bursts),
        "gap_error_between_bursts_ns": to_json(&report.gaps.between_bursts),
        "lateness_ns": to_json(&report.lateness),
    })
}

fn text(spec: &TrainSpec, report: &TrainReport) -> String {
    let seconds = (report.nanos as f64 / 1e9).max(1e-9);
    let mut out = format!(
        "session {}: {} in {}: {}, {} refused by the queue of the interface",
        TrainFrames::new(spec).session(),
        plural(report.sent, "packet", "packets"),
        show_nanos(report.nanos as f64),
        show_si(report.bytes as f64 * 8.0 / seconds, "b/s"),
        show_count(report.refused),
    );
    if report.unlaunched > 0 {
        let _ = write!(out, ", {} dropped after their launch time", show_count(report.unlaunched));
    }
    out.push('\n');
    if let Some(clock) = report.clock {
        let state = if clock.is_synchronised() { "synchronised" } else { "not synchronised" };
        let _ = writeln!(
            out,
            "clock of the sender: {state}, error at most {}",
            show_nanos(clock.error().as_nanos() as f64)
        );
    }
    gaps(&mut out, "inside bursts", &show_nanos(spec.gap.as_nanos() as f64), &report.gaps.inside_bursts);
    let between = format!(
        "{} and {}",
        show_nanos(spec.burst_gap.as_nanos() as f64),
        show_nanos(spec.train_gap.as_nanos() as f64)
    );
    gaps(&mut out, "between bursts and between trains", &between, &report.gaps.between_bursts);
    out
}

/// Appends the differences between the achieved gaps and the requested gaps to `out`, with a histogram.
fn gaps(out: &mut String, place: &str, requested: &str, errors: &Distribution) {
    let (Some((median, _)), Some((p99, _)), Some(max)) = (errors.quantile(0.5), errors.quantile(0.99), errors.max())
    else {
        return;
    };
    let _ = writeln!(
        out,
        "gaps {place}: requested {requested}; achieved minus requested: median {}, 99th percentile {}, largest {}",
        show_nanos(median as f64),
        show_nanos(p99 as f64),
        show_nanos(max as f64)
    );
    for row in plot(errors.histogram(), show_nanos) {
        let _ = writeln!(out, "{row}");
    }
}
