//! `netgrain demo`: records all data types on this machine in less than a minute and analyses one incident. With root
//! privileges it sends traffic through a veth pair in a new network namespace; otherwise it simulates the traffic. The
//! traffic consists of background traffic, which the checker can verify, and of a scan by one host. The pipeline is
//! that of `netgrain run`: packets, flow records and series rows are stored in one store. One query runs during the
//! recording. After the recording, other queries analyse the incident as a user would.

mod incident;
mod live;
mod queries;
mod scratch;
mod simulated;
mod walkthrough;

use crate::outcome::{Failure, Outcome, json};
use crate::screen::{PERIOD, StatusLine, Warnings, summary};
use crate::signals;
use base::units::{Rate, parse_rate, parse_span, show_count};
use checker::Options;
use clap::Args;
use engine::{Capture, EngineError, Format, Plan, Report, Sent, SocketPlan, SourcePlan, StorePlan};
use r#gen::Spec;
use incident::{SCANNER, Scan};
use meter::{MeterPlan, MeterReport, Sink, StoreSink};
use queries::{LiveQuery, QueryRun};
use scratch::Scratch;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use walkthrough::Walkthrough;

#[derive(Args)]
pub struct DemoArgs {
    /// Duration of the traffic
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "9s")]
    pub duration: Duration,
    /// Background traffic to send
    #[arg(long, value_name = "SPEC", default_value = "1000,flows=1k")]
    pub traffic: String,
    /// Rate of the traffic, such as 50kpps or 1Gbit; flat: as fast as the machine can send
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "50kpps")]
    pub rate: Rate,
    /// Keep the store in this directory, which must be new or empty, instead of removing it
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Use simulated traffic, which needs no privileges and no network
    #[arg(long)]
    pub sim: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// The size of the ring: it has space for the packets that arrive while the volume stalls for a second. A larger ring
/// would take longer to allocate.
const RING: u64 = 1 << 30;

/// The size of a packet file. Files are small, because each file is allocated in full before packets fill it.
const SEGMENT: u64 = 256 << 20;

/// The file name of the ring socket in the directory of the store.
const SOCKET: &str = ".listen";

/// The time of the query during capture, as a share of the duration of the traffic. The port scan is active at this
/// time.
const QUERIED_AT: f64 = 0.6;

/// The time between two checks for the end of the traffic.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The results of the capture and of the senders.
struct DemoResult {
    report: Report,
    /// The background traffic, which the checker verifies.
    sent: Sent,
    /// Number of frames of the scan that were sent.
    scanned: u64,
}

/// Runs the verb; returns `No` if a packet was lost, the checker reports an error, or two data types contradict each
/// other.
pub fn run(args: &DemoArgs) -> Result<Outcome, Failure> {
    let mut spec: Spec = args.traffic.parse().map_err(Failure::say)?;
    (spec.signature, spec.rate, spec.duration) = (true, args.rate, Some(args.duration));
    let scan = Scan::during(args.duration);
    let scratch = Scratch::new(args.keep.as_deref())?;
    let stop = signals::stop_flag();
    let mut live_query = LiveQuery::new(scratch.path(), SCANNER, args.duration.mul_f64(QUERIED_AT));
    let run = if !args.sim && live::enter(args.json) { live::run } else { simulated::run };
    let done = run(args, &spec, scan, scratch.path(), &mut live_query, &stop)?;
    // An interrupted demo sent only a part of the traffic, so the incident is not analysed; this is not an error.
    let whole = !stop.load(Ordering::Relaxed);
    let options = Options { sent: whole.then_some(done.sent.sent), ..Default::default() };
    let verdict = checker::check(&[scratch.path().to_owned()], options).map_err(Failure::say)?;
    let meter = done.report.meter.clone().unwrap_or_default();
    let mut walk = Walkthrough::default();
    if whole {
        walk = Walkthrough::through(scratch.path(), &meter, done.scanned);
        let counts = &done.report.counts;
        walk.same(
            "the numbers of offered packets and of sent packets differ",
            counts.offered,
            done.sent.sent + done.scanned,
        );
        walk.same(
            "the number of stored packets not from the generator differs from the number of frames of the scan",
            verdict.foreign,
            done.scanned,
        );
        walk.same("the numbers of stored packets and of packets in series rows differ", counts.stored, meter.in_rows);
        walk.same(
            "the number of stored packets differs from the sum of packets in flow records and packets without a flow",
            counts.stored,
            meter.in_records + meter.without_flow,
        );
        if live_query.result.as_ref().is_none_or(|result| !result.found) {
            walk.disagreements.push("the query during the recording had no result".into());
        }
    }
    let good = done.report.is_healthy() && verdict.is_complete() && walk.disagreements.is_empty();
    if args.json {
        let verdict: serde_json::Value = serde_json::from_str(&verdict.to_json()).map_err(Failure::say)?;
        json(&serde_json::json!({
            "report": done.report, "sent": done.sent, "scanned": done.scanned, "verdict": verdict,
            "query": live_query.result, "steps": walk.steps, "disagreements": walk.disagreements,
        }))?;
    } else {
        let mut out = std::io::stdout().lock();
        if let Some(result) = &live_query.result {
            print_live_query(result, &mut out)?;
        }
        walk.print(&mut out)?;
        writeln!(out, "\n{}", summary(&done.report))?;
        conservation(&done, &meter, &mut out)?;
        writeln!(out, "\nthe checker, which shares no code with the recorder:\n{verdict}")?;
        walk.disagreements.iter().try_for_each(|text| writeln!(out, "DISAGREEMENT: {text}"))?;
        let kept = match &args.keep {
            Some(dir) => format!("the store is in {}: any of these commands can be repeated", dir.display()),
            None => "the store was removed; with --keep DIR it is kept, and the commands can be repeated".to_owned(),
        };
        writeln!(out, "{kept}")?;
        let (sent, stored) = (done.sent.sent + done.scanned, done.report.counts.stored);
        let lost = show_count(done.report.counts.lost_total);
        writeln!(out, "{} packets sent, {} stored, {lost} lost", show_count(sent), show_count(stored))?;
    }
    Ok(Outcome::of(good))
}

/// Prints the progress until the end of the traffic, and runs the query during the recording when it is due.
fn watch(
    args: &DemoArgs,
    capture: &Capture,
    live_query: &mut LiveQuery,
    mut is_running: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (mut line, mut warnings) = (StatusLine::new(), Warnings::default());
    let mut due = Instant::now() + PERIOD;
    while is_running()? {
        std::thread::sleep(CHECK_INTERVAL);
        live_query.query_when_due();
        if due <= Instant::now() {
            due += PERIOD;
            if !args.json {
                let report = capture.report();
                warnings.print(&report);
                line.show(&[report]);
            }
        }
    }
    line.done();
    Ok(())
}

/// Starts the pipeline of `netgrain run`, which stores all data types in one store.
fn begin(source: SourcePlan, store: &Path, cpus: &[usize]) -> Result<Capture, EngineError> {
    let patient = !matches!(source, SourcePlan::Interface(_));
    let key = engine::random_key();
    let flows = flow::Config { seed: key, ..flow::Config::default() };
    let plan = Plan {
        store: Some(StorePlan { dir: store.to_owned(), format: Format::Pcap, depth: engine::WRITE_DEPTH }),
        meter: Some(MeterPlan { flows: Some(flows), key, ..MeterPlan::new(0) }),
        ring: Some(RING),
        segment: SEGMENT,
        cpus: cpus.to_vec(),
        // A query connects to this socket to read the packets of the last second from the ring.
        socket: Some(SocketPlan {
            path: store.join(SOCKET),
            mode: 0o600,
            uid: None,
            gid: None,
            allow_lossless: false,
            forward: Vec::new(),
        }),
        ..Plan::new(source)
    };
    let sinks = |label: &str| {
        let sink: Box<dyn Sink> = Box::new(StoreSink::new(store, label, patient)?);
        Ok(vec![sink])
    };
    Capture::claimed(&plan, &Some(store.to_owned()), sinks)
}

fn print_live_query(result: &QueryRun, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "\nquery during the recording, result after {:.0} ms:", result.ms)?;
    Ok(result.describe(out)?)
}

/// Prints the number of sent packets, and the number of packets that the capture counted in each data type.
fn conservation(done: &DemoResult, meter: &MeterReport, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "the same packets in every data type:")?;
    let mut row = |name: &str, packets: u64, more: String| {
        writeln!(out, "  {name:<14}{:>18}  {more}", show_count(packets)).map_err(Failure::from)
    };
    let (background, scanned) = (show_count(done.sent.sent), show_count(done.scanned));
    row("sent", done.sent.sent + done.scanned, format!("background traffic {background}, scan {scanned}"))?;
    row("stored", done.report.counts.stored, String::new())?;
    row("in the series", meter.in_rows, format!("{} rows", show_count(meter.rows)))?;
    let records: u64 = meter.records.values().sum();
    row("in flows", meter.in_records, format!("{} records", show_count(records)))?;
    row("in no flow", meter.without_flow, "not IP".into())
}
