//! Compares the ways in which a program on a stock kernel can receive packets: the study of the thesis (section 3.4)
//! with the interfaces of today. A generator process sends at full rate over a veth pair in a private network
//! namespace. A receiving process counts the frames and reads one byte of each; it stores nothing, so that the
//! difference between two rows is the way to receive. The generator's count of sent frames is the reference.

mod plot;
mod reader;

use crate::cpu_placement::CpuPlacement;
use crate::generator;
use crate::live::{NamespaceGuard, sent};
use crate::output::{MedianRange, Output, Stop};
use crate::process::{Helper, find};
use base::units::{show_bytes, show_count};
use clap::Args;
use reader::Received;
pub use reader::{ReaderArgs, ReceiveMethod, read};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use sys::netns::Namespace;

/// The two ends of the veth pair.
const FROM: &str = "ng-bench0";
const TO: &str = "ng-bench1";

/// Time that the receiving process may take after the generator has ended.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Flags of `netgrain-bench engines`.
#[derive(Args, Clone, Debug)]
pub struct EnginesArgs {
    /// Traffic to send: frame sizes in bytes, or names of traffic (imix, backbone)
    #[arg(long, value_name = "LIST", default_value = "60,64,128,256,512,1024,1514,imix", value_delimiter = ',')]
    pub sizes: Vec<String>,
    /// Ways to receive; default: all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub methods: Vec<ReceiveMethod>,
    /// Numbers of receiving threads, each with a socket; AF_XDP has one socket per queue of the interface, and the
    /// veth pair has one queue
    #[arg(long, value_name = "LIST", default_value = "1", value_delimiter = ',',
          value_parser = base::units::whole::<u16>(1..=64))]
    pub threads: Vec<u16>,
    /// Rate: flat (as fast as possible), 500kpps, 5Gbit
    #[arg(long, value_name = "RATE", default_value = "flat")]
    pub rate: String,
    /// Number of flows, by whose hash frames are distributed among threads
    #[arg(long, value_name = "N", default_value = "1024")]
    pub flows: String,
    /// Duration of sending in each run (thesis: 1800)
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of runs of each row, in turn; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Write a plot of the received share by traffic to this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result of one way to receive with one load, over all runs.
#[derive(Clone, Debug, Serialize)]
struct Row {
    method: &'static str,
    traffic: String,
    threads: u16,
    seconds: f64,
    repeat: u32,
    /// Millions of frames per second that the generator sent.
    sent_mpps: MedianRange,
    /// Share of the sent frames that the process received.
    received_share: MedianRange,
    /// Processor seconds of the receiving process per second of sending. The kernel's work on a frame of a veth pair is
    /// done on the processor of the generator.
    cores: MedianRange,
    /// Physical memory of the receiving process.
    memory_bytes: u64,
    /// Sums over all runs. `reported_lost` is the number of frames that the method reported as lost.
    sent: u64,
    received: u64,
    reported_lost: u64,
}

/// Measures and prints the results.
pub fn run(args: &EnginesArgs, out: &mut dyn Write) -> Result<(), Stop> {
    for size in &args.sizes {
        size.parse::<r#gen::Spec>().map_err(Stop::error)?;
    }
    base::units::parse_rate(&args.rate).map_err(Stop::error)?;
    let mut sheet = Output::begin(out, args.json, "engines")?;
    let mut methods = if args.methods.is_empty() { ReceiveMethod::ALL.to_vec() } else { args.methods.clone() };
    if methods.contains(&ReceiveMethod::Libpcap) && find("tcpdump").is_none() {
        methods.retain(|method| *method != ReceiveMethod::Libpcap);
        sheet.note("tcpdump is not installed: the rows of libpcap are omitted")?;
    }
    let home = NamespaceGuard(Namespace::current().map_err(Stop::error)?);
    let outcome = measure(args, &methods, &mut sheet);
    drop(home);
    let rows = outcome?;
    if let Some(path) = &args.plot {
        plot::write(path, &args.sizes, &rows)?;
    }
    Ok(())
}

fn measure(args: &EnginesArgs, methods: &[ReceiveMethod], sheet: &mut Output<'_>) -> Result<Vec<Row>, Stop> {
    engine::private_pair(FROM, TO, 1500).map_err(|e| {
        Stop::error(format_args!("cannot create a network namespace for the measurement: {e}; run as root"))
    })?;
    let places = CpuPlacement::find();
    sheet.head(format_args!(
        "gen (processor {}) -> veth -> receiving process (processor {}), nothing stored; {} runs of {} s in turn, \
         medians",
        places.other(0),
        places.engine(),
        args.repeat,
        args.seconds
    ))?;
    sheet.head(
        "method             traffic  threads   sent Mpps   received %  (min..max)     cores     memory   lost of sent",
    )?;
    let mut rows = Vec::new();
    for traffic in &args.sizes {
        let combinations = args.threads.iter().flat_map(|threads| methods.iter().map(|method| (*method, *threads)));
        let combinations = combinations.filter(|(method, threads)| *threads == 1 || method.has_threads());
        let mut results: Vec<_> = combinations.map(|combination| (combination, Vec::new())).collect();
        for _ in 0..args.repeat {
            for ((method, threads), runs) in &mut results {
                runs.push(once(args, traffic, *method, *threads, &places)?);
            }
        }
        for ((method, threads), runs) in results {
            let row = Row::of(args, traffic, method, threads, &runs);
            let line = row.line();
            sheet.row("engines", &row, line)?;
            rows.push(row);
        }
    }
    Ok(rows)
}

fn once(
    args: &EnginesArgs,
    traffic: &str,
    method: ReceiveMethod,
    threads: u16,
    places: &CpuPlacement,
) -> Result<(generator::Sent, Received), Stop> {
    let receiving = reader::start(method, TO, threads)?;
    let duration = Duration::from_millis((args.seconds * 1e3).ceil() as u64);
    let spec = format!("{traffic},flows={}", args.flows);
    let sending: Helper = generator::start(FROM, &spec, &args.rate, duration, Some(places.other(0)))?;
    let sent = sent(sending, duration)?;
    Ok((sent, receiving.finish(TIMEOUT)?))
}

impl Row {
    fn of(
        args: &EnginesArgs,
        traffic: &str,
        method: ReceiveMethod,
        threads: u16,
        runs: &[(generator::Sent, Received)],
    ) -> Self {
        let seconds = |sent: &generator::Sent| sent.nanos.max(1) as f64 / 1e9;
        Self {
            method: method.name(),
            traffic: traffic.to_owned(),
            threads,
            seconds: args.seconds,
            repeat: args.repeat,
            sent_mpps: MedianRange::of(runs.iter().map(|(sent, _)| sent.sent as f64 / seconds(sent) / 1e6)),
            received_share: MedianRange::of(
                runs.iter().map(|(sent, received)| received.received as f64 / sent.sent.max(1) as f64),
            ),
            cores: MedianRange::of(runs.iter().map(|(sent, received)| received.cpu_seconds / seconds(sent))),
            memory_bytes: runs.iter().map(|(_, received)| received.memory_bytes).max().unwrap_or(0),
            sent: runs.iter().map(|(sent, _)| sent.sent).sum(),
            received: runs.iter().map(|(_, received)| received.received).sum(),
            reported_lost: runs.iter().map(|(_, received)| received.lost).sum(),
        }
    }

    fn line(&self) -> String {
        let share = self.received_share;
        let share = format!("{:.2} ({:.2}..{:.2})", 100.0 * share.median, 100.0 * share.min, 100.0 * share.max);
        format!(
            "{:<18} {:<8} {:>7} {:>11.3}   {share:<24} {:>7.2} {:>10}   {} of {}; the method reported {}",
            self.method,
            self.traffic,
            self.threads,
            self.sent_mpps.median,
            self.cores.median,
            show_bytes(self.memory_bytes),
            show_count(self.sent.saturating_sub(self.received)),
            show_count(self.sent),
            show_count(self.reported_lost)
        )
    }
}
