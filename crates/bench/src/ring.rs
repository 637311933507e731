//! Measures the ring stage alone: one producer without timestamps and hashes, and listeners in other processes that
//! attach through the ring socket as in production.
//!
//! Listeners read descriptors in batches and nothing else, or (`--touch`) also copy the first bytes of each packet. The
//! producer never waits for listeners, so the output shows two values for each listener: the records read per second,
//! and the records missed. Producer and listeners count independently, and the counts must agree.

use crate::cpu_placement::CpuPlacement;
use crate::output::{MedianRange, Output, Stop};
use crate::process::Helper;
use base::Timestamp;
use base::units::{parse_rate, show_bytes, show_count};
use capture::sim;
use clap::Args;
use r#gen::{Pacer, Traffic};
use ring::{AttachPolicy, Mode, OfferedRing, Packet, Producer, Server};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of packets that the producer writes before it publishes them, as in the engine.
const BATCH: usize = engine::BATCH;

/// Descriptors that a listener reads at a time: 16 KiB, which fit a first-level cache.
const SCAN_TIME: usize = 512;

/// The sleep of a listener while the ring has no new records. A busy loop would take processor time from other
/// processes, and its own processor time would be counted in the results as a cost of the records.
const IDLE_SLEEP: Duration = Duration::from_micros(50);

/// Frames in the prepared table.
const TABLE: usize = 4096;

/// Time limit for listeners to attach and to detach.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a packet that `--touch` copies: the part of one cache line after the record header.
const TOUCHED: u16 = 48;

/// Flags of `netgrain-bench ring`.
#[derive(Args, Clone, Debug)]
pub struct RingArgs {
    /// Numbers of listeners; the benchmark measures each number
    #[arg(long, value_name = "LIST", default_value = "0,1,3", value_delimiter = ',',
          value_parser = base::units::whole::<u8>(0..=32))]
    pub listeners: Vec<u8>,
    /// Traffic to write, by size or name
    #[arg(long, value_name = "SPEC", default_value = "60")]
    pub traffic: String,
    /// Rate of the producer
    #[arg(long, value_name = "RATE", default_value = "flat", value_parser = parse_rate)]
    pub rate: base::units::Rate,
    /// Let listeners also copy the first bytes of each packet
    #[arg(long)]
    pub touch: bool,
    /// Duration of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of runs for each number of listeners; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Memory of the ring
    #[arg(long, value_name = "SIZE", value_parser = base::units::parse_bytes, default_value = "256MiB")]
    pub ring: u64,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Flags of a listener process, which `netgrain-bench ring` starts.
#[derive(Args, Clone, Debug)]
pub struct ListenerArgs {
    /// Ring socket
    pub socket: PathBuf,
    /// Processor to run on
    #[arg(long, value_parser = base::units::whole::<usize>(0..=4096))]
    pub cpu: usize,
    /// Copy the beginning of each packet
    #[arg(long)]
    pub touch: bool,
}

/// The result that a listener prints at its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct ListenerResult {
    published: u64,
    seen: u64,
    missed: u64,
    /// Seconds from the first record to the end of the stream.
    seconds: f64,
    cpu_seconds: f64,
}

/// The result for one number of listeners.
#[derive(Debug, Serialize)]
struct Row {
    traffic: String,
    listeners: u8,
    touch: bool,
    seconds: f64,
    repeat: u32,
    /// Millions of records per second that the producer published.
    producer_mrps: MedianRange,
    /// The producer's processor time per record.
    producer_ns: MedianRange,
    /// Millions of records per second that the slowest listener of each run read.
    slowest_mrps: MedianRange,
    /// Millions of records per second that all listeners of each run read together.
    together_mrps: MedianRange,
    /// Processor time of a listener per record.
    listener_ns: MedianRange,
    /// Number of published records, and number of records that listeners missed, in all runs together.
    published: u64,
    missed: u64,
}

/// Measures and prints the results.
pub fn run(args: &RingArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let spec: sim::Spec = args.traffic.parse().map_err(Stop::error)?;
    let places = CpuPlacement::find();
    let mut sheet = Output::begin(out, args.json, "ring")?;
    sheet.head(format_args!(
        "one producer (processor {}) -> ring of {} -> lossy listeners in other processes (processor {} and on), {}; \
         {} runs of {} s, medians",
        places.engine(),
        show_bytes(args.ring),
        places.other(0),
        if args.touch { "copying the beginning of each packet" } else { "descriptors only" },
        args.repeat,
        args.seconds
    ))?;
    sheet.head(
        "traffic    listeners  producer M/s (min..max)     ns   slowest listener M/s      all M/s   listener \
     ns      missed of published",
    )?;
    for listeners in &args.listeners {
        let runs = (0..args.repeat).map(|_| once(args, &spec, *listeners, &places)).collect::<Result<Vec<_>, _>>()?;
        let row = Row::of(args, *listeners, &runs);
        let line = row.line();
        sheet.row("ring", &row, line)?;
    }
    Ok(())
}

struct Run {
    published: u64,
    seconds: f64,
    cpu: f64,
    results: Vec<ListenerResult>,
}

impl Row {
    fn of(args: &RingArgs, listeners: u8, runs: &[Run]) -> Self {
        let million = |records: u64, seconds: f64| records as f64 / seconds.max(1e-9) / 1e6;
        let rate = |t: &ListenerResult| million(t.seen, t.seconds);
        Self {
            traffic: args.traffic.clone(),
            listeners,
            touch: args.touch,
            seconds: args.seconds,
            repeat: args.repeat,
            producer_mrps: MedianRange::of(runs.iter().map(|r| million(r.published, r.seconds))),
            producer_ns: MedianRange::of(runs.iter().map(|r| r.cpu * 1e9 / r.published.max(1) as f64)),
            slowest_mrps: MedianRange::of(
                runs.iter().filter_map(|r| r.results.iter().map(rate).min_by(f64::total_cmp)),
            ),
            together_mrps: MedianRange::of(
                runs.iter().filter(|r| !r.results.is_empty()).map(|r| r.results.iter().map(rate).sum()),
            ),
            listener_ns: MedianRange::of(
                runs.iter().flat_map(|r| &r.results).map(|t| t.cpu_seconds * 1e9 / t.seen.max(1) as f64),
            ),
            published: runs.iter().map(|r| r.published).sum(),
            missed: runs.iter().flat_map(|r| &r.results).map(|t| t.missed).sum(),
        }
    }

    fn line(&self) -> String {
        let (producer, slowest) = (format!("{:.1}", self.producer_mrps), format!("{:.1}", self.slowest_mrps));
        let mut line =
            format!("{:<10} {:>9}  {producer:<24} {:>5.1}", self.traffic, self.listeners, self.producer_ns.median);
        if self.listeners > 0 {
            line += &format!(
                "   {slowest:<22} {:>9.1} {:>13.1}      {} of {} x {}",
                self.together_mrps.median,
                self.listener_ns.median,
                show_count(self.missed),
                self.listeners,
                show_count(self.published)
            );
        }
        line
    }
}

fn once(args: &RingArgs, spec: &sim::Spec, listeners: u8, places: &CpuPlacement) -> Result<Run, Stop> {
    let config = ring::Config { name: "bench".into(), bytes: args.ring, ..ring::Config::default() };
    let mut producer = Producer::new(config).map_err(|e| {
        Stop::error(format_args!(
            "no memory for a ring of {}: {e}; choose a smaller ring with --ring",
            show_bytes(args.ring)
        ))
    })?;
    let socket = std::env::temp_dir().join(format!("netgrain-bench-{}.sock", std::process::id()));
    let server = serve(&producer, &socket)?;
    let mut clients = Vec::new();
    for i in 0..listeners {
        let cpu = places.other(usize::from(i)).to_string();
        let mut arguments = vec!["ring-listener".into(), socket.clone().into_os_string()];
        arguments.extend(["--cpu".into(), cpu.into()]);
        if args.touch {
            arguments.push("--touch".into());
        }
        clients.push(Helper::start_self(arguments)?);
    }
    for client in &mut clients {
        client.line()?;
    }
    let span = Duration::from_secs_f64(args.seconds);
    let place = places.engine();
    let written = std::thread::scope(|s| {
        s.spawn(|| {
            // If pinning fails, the thread runs on any processor.
            let _ = sys::cpu::pin(place);
            write(&mut producer, spec, args.rate, span)
        })
        .join()
    });
    let (seconds, cpu) = written.map_err(|_| Stop::error("the producer panicked"))?;
    let published = producer.tally().stored;
    let mut reported = Vec::new();
    for client in clients {
        let text = client.finish(TIMEOUT)?;
        let t: ListenerResult =
            serde_json::from_str(&text).map_err(|e| Stop::error(format_args!("a listener printed {text:?}: {e}")))?;
        if t.published != published || t.seen + t.missed != published {
            return Err(Stop::error(format_args!(
                "{published} records published, but a listener counts {t:?}; please report this"
            )));
        }
        reported.push(t);
    }
    drop(server);
    Ok(Run { published, seconds, cpu, results: reported })
}

fn serve(producer: &Producer, socket: &Path) -> Result<Server, Stop> {
    sys::unix::Listener::bind(socket, 0o600, None, None)
        .and_then(|l| Server::start(l, vec![OfferedRing::of(producer)], AttachPolicy::default()))
        .map_err(|e| Stop::error(format_args!("{}: the ring socket cannot be opened: {e}", socket.display())))
}

/// Writes packets into the ring for the given time; returns elapsed seconds and processor seconds.
fn write(producer: &mut Producer, spec: &sim::Spec, rate: base::units::Rate, span: Duration) -> (f64, f64) {
    let mut traffic = Traffic::new(spec);
    let mut frame = vec![0; traffic.max_len()];
    let table: Vec<Vec<u8>> = (0..TABLE)
        .map(|_| {
            let len = traffic.fill(&mut frame, Timestamp::ZERO);
            frame[..len].to_vec()
        })
        .collect();
    let start = sys::clock::realtime();
    let mut pacer = Pacer::new(rate, Timestamp::ZERO);
    let (started, before) = (Instant::now(), sys::cpu::thread_time());
    let mut batches = table.chunks(BATCH).cycle();
    loop {
        let elapsed = started.elapsed();
        if elapsed >= span {
            break;
        }
        let ts = start.after(elapsed);
        if pacer.due(Timestamp::ZERO.after(elapsed), frame.len()) < BATCH as u64 {
            std::hint::spin_loop();
            continue;
        }
        let mut bytes = 0;
        for frame in batches.next().unwrap_or_default() {
            bytes += frame.len() as u64;
            let packet = Packet { hash: 1, l3: 14, l4: 34, ..Packet::whole(frame, ts) };
            // Without a lossless reader the ring never rejects a packet.
            let _ = producer.push(&packet);
        }
        producer.publish();
        pacer.sent(BATCH as u64, bytes);
    }
    let figures = (started.elapsed().as_secs_f64(), (sys::cpu::thread_time() - before).as_secs_f64());
    // Without lossless readers the first call of `finish` succeeds.
    while !producer.finish(start.after(started.elapsed())) {}
    figures
}

/// The main function of a listener process.
pub fn listen(args: &ListenerArgs, out: &mut dyn Write) -> Result<(), Stop> {
    // If pinning fails, the process runs on any processor.
    let _ = sys::cpu::pin(args.cpu);
    let mut listener =
        ring::attach(&args.socket, Mode::Lossy, "bench").map_err(Stop::error)?.pop().ok_or(Stop::Closed)?;
    let (mut descs, mut buffer) = (Vec::with_capacity(SCAN_TIME), Vec::with_capacity(usize::from(TOUCHED)));
    // The producer begins after all listeners have printed this line.
    writeln!(out, "ready")?;
    out.flush()?;
    let mut started = None;
    let mut before = Duration::ZERO;
    let mut polls = 0u32;
    loop {
        listener.next(SCAN_TIME, &mut descs);
        if descs.is_empty() {
            if listener.ended() {
                break;
            }
            polls += 1;
            if polls.is_multiple_of(1 << 10) && !listener.connected() {
                return Err(Stop::error("the producer has ended"));
            }
            std::thread::sleep(IDLE_SLEEP);
            continue;
        }
        if started.is_none() {
            (started, before) = (Some(Instant::now()), sys::cpu::thread_time());
        }
        let mut sum = 0;
        for d in &descs {
            sum += u64::from(d.wire_len) + u64::from(d.hash);
            if args.touch && d.is_packet() {
                let head = ring::Desc { caplen: d.caplen.min(TOUCHED), ..*d };
                sum += listener.packet(&head, &mut buffer).map_or(0, |bytes| u64::from(bytes[0]));
            }
        }
        black_box(sum);
    }
    let counts = listener.counts();
    let reported = ListenerResult {
        published: counts.published,
        seen: counts.seen,
        missed: counts.missed,
        seconds: started.map_or(0.0, |s| s.elapsed().as_secs_f64()),
        cpu_seconds: (sys::cpu::thread_time() - before).as_secs_f64(),
    };
    writeln!(out, "{}", serde_json::to_string(&reported).map_err(Stop::error)?)?;
    Ok(())
}
