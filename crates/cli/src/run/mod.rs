//! `netgrain run` and `netgrain record`: capture of interfaces, capture files or a simulation. `run` makes all data
//! types: packets, flow records and one series row each second. `record` makes packets alone: it is `run` without a
//! meter. Both verbs use the same code. The arguments ([`args`], [`verb`]) determine the plans ([`plan`]), the captures
//! are started by their plans ([`captures`]), and the loop in this module runs until they end.

pub mod args;
mod captures;
mod output;
mod plan;
mod reload;
mod sinks;
pub mod sources;
mod verb;

use crate::outcome::{self, Failure, Outcome};
use crate::privileges;
use crate::screen::PERIOD;
use crate::service::Service;
use crate::signals::CaptureSignals;
use args::{RecordArgs, RunArgs};
use captures::RunningCaptures;
use engine::Report;
use output::StatusOutput;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use verb::Verb;

/// Interval at which the loop checks for signals and for the end of the captures.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `netgrain run`; returns `No` if packets were lost, or the data types contradict each other.
pub fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    capture(Verb::Run(args))
}

/// Runs `netgrain record`; returns `No` if packets were lost.
pub fn record(args: &RecordArgs) -> Result<Outcome, Failure> {
    capture(Verb::Record(args))
}

fn capture(verb: Verb<'_>) -> Result<Outcome, Failure> {
    let signals = CaptureSignals::install(verb.can_reload());
    let mut captures = RunningCaptures::start(verb, &signals.stop)?;
    let metrics = captures.serve_metrics()?;
    let mut service = Service::begin();
    service.ready();
    privileges::keep_calls_of_capture()?;
    let args = verb.capture();
    let mut output = StatusOutput::new(args.json, args.quiet);
    let started = Instant::now();
    let mut due = started + PERIOD;
    while !signals.stop.load(Ordering::Relaxed) && !captures.are_finished() {
        // The replay of a small capture may take less time than CHECK_INTERVAL, so the first checks follow each other
        // faster.
        std::thread::sleep(CHECK_INTERVAL.min(started.elapsed() / 8));
        if signals.hangup.swap(false, Ordering::Relaxed) {
            reload::reload(verb, &mut captures);
        }
        if due <= Instant::now() {
            due += PERIOD;
            let reports = captures.reports();
            service.notify(&reports);
            output.show(&captures.interfaces, &reports);
        }
    }
    service.stopping();
    let mut printed = output.done();
    captures.interfaces.iter().for_each(|i| i.capture.stop());
    let ends: Vec<_> = captures.interfaces.iter_mut().map(|i| i.capture.wait()).collect();
    drop(metrics);
    let memory_bytes = Some(sys::cpu::resident_bytes());
    let reports = captures.reports().into_iter().map(|report| Report { memory_bytes, ..report });
    let reports: Vec<Report> = reports.collect();
    for (interface, report) in captures.interfaces.iter_mut().zip(&reports) {
        printed = printed.and(output::finish(interface, report, args.json));
    }
    let mut healthy = reports.iter().all(Report::is_healthy);
    for (end, report) in ends.into_iter().zip(&reports) {
        healthy &= outcome::ended(end, report)?;
    }
    printed?;
    Ok(Outcome::of(healthy))
}
