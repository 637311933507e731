//! Errors of the methods of timestamping: tables 4.1 and 4.2 of the thesis of HPCAP, in a model in which the departure
//! times are known exactly.

mod card;
mod live;
mod machine;
mod methods;
mod model;
mod noise;
mod picoseconds;
mod thesis;
mod thread;

use crate::output::{Output, Stop};
use base::Prng;
use card::Card;
use clap::Args;
use methods::{InterArrivalError, Method, absolute_deviation};
use model::{Lengths, Link};
use noise::Noise;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;
use thread::Thread;

/// Traffic of the measurement on the veth pair: the rates are those that one core sends and receives with AF_XDP.
const LIVE_TRAFFIC: [&str; 2] = ["1514,rate=100kpps,packets=200k", "backbone,flows=1000,rate=81kpps,packets=160k"];

/// Flags of `netgrain-bench time`.
#[derive(Args, Clone, Debug)]
pub struct TimeArgs {
    /// Frames of each run of the model
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = base::units::whole::<u32>(1000..=100_000_000))]
    pub frames: u32,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also run the loads from 1 to 100 % of the link
    #[arg(long)]
    pub loads: bool,
    /// Time for which the interruptions of this machine are measured (0: not at all)
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = crate::arguments::seconds_or_none)]
    pub machine: f64,
    /// Also measure on a veth pair in a network namespace, against the departure times of the generator (root)
    #[arg(long)]
    pub live: bool,
    /// Traffic of the measurement on the veth pair
    #[arg(long, value_name = "SPEC", num_args = 1.., default_values = LIVE_TRAFFIC, requires = "live")]
    pub traffic: Vec<String>,
    /// Run the model without interruptions of the thread
    #[arg(long)]
    pub no_interruptions: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// One method in one scenario of the model.
#[derive(Debug, Serialize)]
struct Row {
    traffic: &'static str,
    /// Load of the link, from 0 to 1.
    load: f64,
    card: &'static str,
    thread: &'static str,
    method: &'static str,
    #[serde(flatten)]
    error: InterArrivalError,
    /// Standard deviation of the timestamps around their mean delay, in nanoseconds.
    absolute_deviation_ns: f64,
    /// The deviation that the method itself estimates, in nanoseconds.
    estimated_deviation_ns: f64,
    /// Mean number of packets of a poll.
    packets_per_poll: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    thesis_mean_ns: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thesis_deviation_ns: Option<u32>,
}

/// Runs the model and prints the errors of all methods.
pub fn run(args: &TimeArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "time")?;
    if args.machine > 0.0 {
        let measured = machine::interruptions(Duration::from_secs_f64(args.machine));
        sheet.row("interruptions", &measured, measured)?;
    }
    sheet.note(
        "the rows are results of a model of a 10 Gb/s link, NIC and polling thread, not measurements of this machine; \
         the thesis measured with a hardware generator",
    )?;
    sheet.head(format_args!(
        "{:<22} {:>5} {:<10} {:<9} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>14}",
        "traffic",
        "load",
        "card",
        "thread",
        "method",
        "mean ns",
        "dev ns",
        "p99.9 ns",
        "abs dev",
        "estimate",
        "batch",
        "thesis"
    ))?;
    for scenario in thesis::SCENARIOS {
        for card in [Card::Immediate, Card::Coalesced] {
            for thread in [Thread::Spinning, Thread::Sleeping] {
                rows(args, &mut sheet, &scenario, card, thread)?;
            }
        }
    }
    if args.loads {
        for percent in 1..=100 {
            for (traffic, lengths) in [("1514 B", Lengths::Constant(1514)), ("backbone", Lengths::Backbone)] {
                let scenario =
                    thesis::Scenario { traffic, lengths, load: thesis::Load::Share(percent), figures: |_| None };
                rows(args, &mut sheet, &scenario, Card::Immediate, Thread::Spinning)?;
            }
        }
    }
    if args.live {
        measure_live(args, &mut sheet)?;
    }
    Ok(())
}

fn measure_live(args: &TimeArgs, sheet: &mut Output<'_>) -> Result<(), Stop> {
    sheet.note(
        "on the veth pair the differences contain the path from the generator through the kernel; the generator writes \
         the departure time when it writes the frame into its transmit ring",
    )?;
    live::create_pair()?;
    for traffic in &args.traffic {
        for (method, kind) in live::METHODS {
            for spin in [false, true] {
                let row = live::measure(traffic, method, kind, spin)?;
                sheet.row("live", &row, &row)?;
            }
        }
    }
    Ok(())
}

fn rows(
    args: &TimeArgs,
    sheet: &mut Output<'_>,
    scenario: &thesis::Scenario,
    card: Card,
    thread: Thread,
) -> Result<(), Stop> {
    let mut prng = Prng::new(args.seed);
    let load = scenario.load.of(scenario.lengths);
    let link = Link::new(scenario.lengths, load, args.frames as usize, &mut prng);
    let noise = if args.no_interruptions { Noise::None } else { Noise::Host };
    let polls = model::run(&link, card, thread, noise, &mut prng);
    for method in Method::ALL {
        let (times, estimate) = method.timestamps(&link, &polls);
        let figures = (scenario.figures)(method);
        let row = Row {
            traffic: scenario.traffic,
            load,
            card: card.name(),
            thread: thread.name(),
            method: method.name(),
            error: InterArrivalError::of(&times, &link.departures),
            absolute_deviation_ns: absolute_deviation(&times, &link.departures),
            estimated_deviation_ns: estimate.standard_deviation().as_nanos() as f64,
            packets_per_poll: times.len() as f64 / polls.polls.len().max(1) as f64,
            thesis_mean_ns: figures.map(|f| f.mean_ns),
            thesis_deviation_ns: figures.map(|f| f.deviation_ns),
        };
        let thesis = figures.map_or("–".to_owned(), |f| format!("{} ± {}", f.mean_ns, f.deviation_ns));
        let text = format!(
            "{:<22} {:>4.0}% {:<10} {:<9} {:<9} {:>9.1} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>7.1} {:>14}",
            row.traffic,
            100.0 * load,
            row.card,
            row.thread,
            row.method,
            row.error.mean_ns,
            row.error.deviation_ns,
            row.error.p999_ns,
            row.absolute_deviation_ns,
            row.estimated_deviation_ns,
            row.packets_per_poll,
            thesis,
        );
        sheet.row("error", &row, text)?;
    }
    Ok(())
}
