//! Measures a group alone: the benchmark fills a ring from memory, a dispatcher steers packets by flow, and members in
//! separate processes attach through the ring socket as in production.
//!
//! The producer waits for the dispatcher, so the dispatcher loses no packet; members may still be too slow, and the
//! benchmark counts the copies lost that way. The results are processor times: of the dispatcher per packet, of the
//! members per record, and records per second of processor time of dispatcher and members together. Records per second
//! of real time are not measured, because that number means nothing if there are more members than processors.
//! Dispatcher and members count the copies independently, and the counts must agree.

use crate::member_processes::{MemberProcesses, Run, Workload};
use crate::output::{MedianRange, Output, Stop};
use crate::stats::percentile;
use base::units::{show_bytes, show_count};
use clap::Args;
use group::Request;
use serde::Serialize;
use std::io::Write;
use std::time::{Duration, Instant};

/// Flags of `netgrain-bench group`.
#[derive(Args, Clone, Debug)]
pub struct GroupArgs {
    /// Numbers of members in the group; the benchmark runs with each of them
    #[arg(long, value_name = "LIST", default_value = "1,4", value_delimiter = ',',
          value_parser = base::units::whole::<u8>(1..=64))]
    pub members: Vec<u8>,
    /// Number of flows, all with equal numbers of packets
    #[arg(long, value_name = "N", default_value = "100k", value_parser = base::units::parse_count)]
    pub flows: u64,
    /// Program of the group: copy, steer, or a program of the packet language
    #[arg(long, value_name = "PROGRAM", default_value = "steer")]
    pub program: String,
    /// Swap the program N times while packets flow, and measure the swaps
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = base::units::whole::<u32>(0..=1_000_000))]
    pub swaps: u32,
    /// Duration of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of runs for each number of members; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Memory of the ring
    #[arg(long, value_name = "SIZE", value_parser = base::units::parse_bytes, default_value = "256MiB")]
    pub ring: u64,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

impl GroupArgs {
    fn workload(&self) -> Workload {
        Workload { ring: self.ring, flows: self.flows, program: self.program.clone() }
    }
}

/// The result of the runs with one number of members.
#[derive(Debug, Serialize)]
struct Row {
    members: u8,
    program: String,
    flows: u64,
    seconds: f64,
    repeat: u32,
    /// Millions of packets per second that the dispatcher evaluated.
    evaluated_mpps: MedianRange,
    /// The dispatcher's processor time per packet.
    dispatcher_ns: MedianRange,
    /// Processor time of the members per record.
    member_ns: MedianRange,
    /// Millions of records per second of the processor time of dispatcher and members together.
    records_per_core_m: MedianRange,
    /// The largest deviation of a member's number of packets from an equal share of all packets, in percent.
    uneven_percent: MedianRange,
    /// Copies of all runs.
    copies: u64,
    lost: u64,
}

/// Measures and prints the results.
pub fn run(args: &GroupArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "group")?;
    sheet.head(format_args!(
        "60 B frames of {} flows from memory -> ring of {} -> dispatcher ({}) -> members in other processes; {} runs \
         of {} s, medians",
        show_count(args.flows),
        show_bytes(args.ring),
        args.program,
        args.repeat,
        args.seconds
    ))?;
    sheet.head(
        "members   Mpps (min..max)          dispatcher ns   member ns   M records/core-second   uneven %      \
     lost of copies",
    )?;
    // Runs with different numbers of members alternate, so that other load of the machine affects all of them equally.
    let mut runs = vec![Vec::new(); args.members.len()];
    for _ in 0..args.repeat {
        for (members, runs) in args.members.iter().zip(&mut runs) {
            runs.push(once(args, *members)?);
        }
    }
    for (members, runs) in args.members.iter().zip(&runs) {
        let row = Row::of(args, *members, runs);
        let line = row.line();
        sheet.row("group", &row, line)?;
    }
    if args.swaps > 0 {
        swaps(args, &mut sheet)?;
    }
    Ok(())
}

fn once(args: &GroupArgs, members: u8) -> Result<Run, Stop> {
    let mut processes = MemberProcesses::start(&args.workload(), members, false)?;
    let (span, started) = (Duration::from_secs_f64(args.seconds), Instant::now());
    let seconds = processes.write(&args.workload(), || started.elapsed() < span);
    processes.finish(seconds)
}

/// Measures program swaps while packets flow. Each swap compiles the program again, and the new program takes over the
/// state of the old program.
fn swaps(args: &GroupArgs, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let members = args.members.iter().copied().max().unwrap_or(1);
    let mut processes = MemberProcesses::start(&args.workload(), members, true)?;
    let (client, program, wanted) = (processes.another_client()?, args.program.clone(), args.swaps);
    let swapping = std::thread::spawn(move || {
        let mut durations: [Vec<f64>; 3] = Default::default();
        for n in 0..u64::from(wanted) {
            let begun = Instant::now();
            let swap = Request::Swap { group: crate::member_processes::GROUP.into(), program: Some(program.clone()) };
            let (answer, _) = client.request(&swap).map_err(Stop::error)?;
            if answer.generation != Some(n + 2) {
                return Err(Stop::error(format_args!("generation {:?} after {} swaps", answer.generation, n + 1)));
            }
            let about = answer.about.unwrap_or_default();
            let all = begun.elapsed().as_secs_f64() * 1e6;
            let each = [answer.took_us.unwrap_or_default() as f64, about.compile_us as f64, all];
            durations.iter_mut().zip(each).for_each(|(durations, us)| durations.push(us));
        }
        Ok(durations)
    });
    let seconds = processes.write(&args.workload(), || !swapping.is_finished());
    let durations = swapping.join().map_err(|_| Stop::error("the thread that swaps panicked"))??;
    let run = processes.finish(seconds)?;
    let row = SwapRow {
        swaps: wanted,
        members,
        program: args.program.clone(),
        packets: run.evaluated,
        seconds,
        swap_us: Tail::of(&durations[0]),
        compile_us: Tail::of(&durations[1]),
        answer_us: Tail::of(&durations[2]),
        copies: run.parts.iter().sum::<u64>() + run.lost(),
        lost: run.lost(),
    };
    sheet.head(
        "swaps of packets (in s)   swap us: median p99 max   compile us: median p99 max   request to answer \
     us: median p99 max",
    )?;
    let line = format!(
        "{:>5} of {} ({:.1})   {}   {}   {}   (every packet is accounted for, and generations only increased; members \
         lost {} of {})",
        row.swaps,
        show_count(row.packets),
        row.seconds,
        row.swap_us,
        row.compile_us,
        row.answer_us,
        show_count(row.lost),
        show_count(row.copies)
    );
    sheet.row("swaps", &row, line)
}

/// The results of all swaps.
#[derive(Debug, Serialize)]
struct SwapRow {
    swaps: u32,
    members: u8,
    program: String,
    packets: u64,
    seconds: f64,
    /// The time from the swap command until the last queue runs the new program.
    swap_us: Tail,
    /// Compilation to machine code.
    compile_us: Tail,
    /// Both, including request and answer.
    answer_us: Tail,
    copies: u64,
    lost: u64,
}

/// Median and high percentiles of a duration.
#[derive(Clone, Copy, Debug, Serialize)]
struct Tail {
    median: f64,
    p99: f64,
    max: f64,
}

impl Tail {
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { median: percentile(&sorted, 50.0), p99: percentile(&sorted, 99.0), max: percentile(&sorted, 100.0) }
    }
}

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>7.0} {:>7.0} {:>7.0}", self.median, self.p99, self.max)
    }
}

impl Row {
    fn of(args: &GroupArgs, members: u8, runs: &[Run]) -> Self {
        let delivered = |r: &Run| r.parts.iter().sum::<u64>();
        let readers = |r: &Run| r.result.iter().map(|t| t.cpu_seconds).sum::<f64>();
        let uneven = |r: &Run| {
            let even = delivered(r).max(1) as f64 / r.parts.len() as f64;
            r.parts.iter().map(|n| (*n as f64 / even - 1.0).abs() * 100.0).fold(0.0, f64::max)
        };
        Self {
            members,
            program: args.program.clone(),
            flows: args.flows,
            seconds: args.seconds,
            repeat: args.repeat,
            evaluated_mpps: MedianRange::of(runs.iter().map(|r| r.evaluated as f64 / r.seconds / 1e6)),
            dispatcher_ns: MedianRange::of(runs.iter().map(|r| r.dispatcher * 1e9 / r.evaluated.max(1) as f64)),
            member_ns: MedianRange::of(runs.iter().map(|r| readers(r) * 1e9 / delivered(r).max(1) as f64)),
            records_per_core_m: MedianRange::of(
                runs.iter().map(|r| delivered(r) as f64 / (r.dispatcher + readers(r)) / 1e6),
            ),
            uneven_percent: MedianRange::of(runs.iter().map(uneven)),
            copies: runs.iter().map(|r| delivered(r) + r.lost()).sum(),
            lost: runs.iter().map(Run::lost).sum(),
        }
    }

    fn line(&self) -> String {
        let (evaluated, core) = (format!("{:.1}", self.evaluated_mpps), format!("{:.1}", self.records_per_core_m));
        format!(
            "{:>7}   {evaluated:<22}   {:>13.1}   {:>9.1}   {core:<22}   {:>8.2}      {} of {}",
            self.members,
            self.dispatcher_ns.median,
            self.member_ns.median,
            self.uneven_percent.median,
            show_count(self.lost),
            show_count(self.copies)
        )
    }
}
