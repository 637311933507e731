//! Measures the capture stage alone: simulated frames, the engine thread and the shared ring, without listeners.
//!
//! In addition to the engine, the benchmark runs loops that omit parts of the engine's work. They process the same
//! frames on the same processor in the same run. The differences between the loops give the cost of each part, and how
//! much slower the engine is than a plain copy. The thesis made the same comparison for timestamps (HPCAP at 60 B: 69.4
//! % of 10 Gb/s with timestamps, 82.9 % without).

use crate::cpu_placement::CpuPlacement;
use crate::output::{MedianRange, Output, Stop};
use base::Timestamp;
use base::units::show_bytes;
use capture::{Polled, Source, sim};
use clap::Args;
use engine::{BATCH, Capture, Plan, SourcePlan};
use ring::{Annotations, Packet, Producer};
use serde::Serialize;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};
use sys::clock::Clock;
use wire::{FlowHasher, Headers};

/// Frame sizes of the thesis (without the 4 bytes of FCS), the Internet mix, and backbone traffic.
const SIZES: &str = "60,64,128,256,512,750,1024,1250,1514,imix,backbone";

/// Bytes of the buffer into which the copy loop writes. The buffer fits into a second-level cache, and a ring does not.
/// So the measured cost is a lower limit of the cost of a copy into a ring.
const BARE: usize = 512 << 10;

/// Flags of `netgrain-bench capture`.
#[derive(Args, Clone, Debug)]
pub struct CaptureArgs {
    /// Traffic to measure, by size or name
    #[arg(long, value_name = "LIST", default_value = SIZES, value_delimiter = ',')]
    pub sizes: Vec<String>,
    /// Number of flows of the frames (the traffic `backbone` has its own number)
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = base::units::whole::<u32>(1..=1 << 24))]
    pub flows: u32,
    /// Duration of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Number of runs for each frame size; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Memory of the ring
    #[arg(long, value_name = "SIZE", value_parser = base::units::parse_bytes, default_value = "256MiB")]
    pub ring: u64,
    /// Measure the engine only, without the comparison loops
    #[arg(long)]
    pub engine_only: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result for one frame size.
#[derive(Debug, Serialize)]
struct Row {
    traffic: String,
    mean_bytes: f64,
    seconds: f64,
    repeat: u32,
    /// Millions of packets per second of real time that the engine thread timestamped, hashed and stored in the ring.
    mpps: MedianRange,
    /// Processor time of the engine thread in nanoseconds per packet. On a shared machine this value is more accurate
    /// than the packet rate.
    ns: MedianRange,
    /// Gigabits of frames per second.
    gbps: f64,
    /// Processor seconds of the engine thread per second of real time.
    cores: f64,
    /// Packets lost in all runs.
    lost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ladder: Option<CostBreakdown>,
}

/// Cost of each loop that omits parts of the engine's work, in nanoseconds of processor time per packet (medians).
#[derive(Clone, Copy, Debug, Serialize)]
struct CostBreakdown {
    /// Cost of the loop that only reads the simulated frames.
    source: f64,
    /// Cost of the loop that copies the frames with a record header and a descriptor into cached memory, without
    /// simulation and ring.
    copy: f64,
    /// Cost of the loop that simulates frames and writes them into the ring, without timestamps and hashes.
    plain: f64,
    /// Cost of the loop of `plain` if it also computes a hash for each packet.
    hashed: f64,
    /// Cost of the loop of `plain` if it also takes a timestamp for each packet.
    stamped: f64,
    /// Cost of the loop of `plain` if it also takes a timestamp and computes a hash for each packet: the work of the
    /// engine in a plain loop.
    both: f64,
}

/// Measures all frame sizes and prints the results.
pub fn run(args: &CaptureArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let specs = args.sizes.iter().map(|s| spec(s, args.flows)).collect::<Result<Vec<_>, _>>()?;
    let places = CpuPlacement::find();
    let mut sheet = Output::begin(out, args.json, "capture")?;
    sheet.head(format_args!(
        "sim -> engine thread (processor {}) -> ring of {} without listeners; {} runs of {} s each, medians",
        places.engine(),
        show_bytes(args.ring),
        args.repeat,
        args.seconds
    ))?;
    sheet.head(table_head())?;
    let mut ladder = if args.engine_only { None } else { Some(BareLoops::new(args.ring)?) };
    for (name, spec) in args.sizes.iter().zip(&specs) {
        let row = measure(args, name, spec, &places, ladder.as_mut())?;
        let line = row.line();
        sheet.row("capture", &row, line)?;
    }
    Ok(())
}

/// The head of the table, in the columns of [`Row::line`].
fn table_head() -> String {
    format!(
        "{:<10} {:<66}{}\n{:<10} {:>22} {:>7} {:>6} {:>5}  {:<20} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6}",
        "",
        "every packet stamped, hashed, in the ring",
        "CPU ns per packet, parts of the work alone",
        "traffic",
        "Mpps (min..max)",
        "Gb/s",
        "core",
        "lost",
        "ns (min..max)",
        "source",
        "copy",
        "plain",
        "+hash",
        "+stamp",
        "both"
    )
}

impl Row {
    fn line(&self) -> String {
        let (mpps, ns) = (format!("{:.2}", self.mpps), format!("{:.1}", self.ns));
        let mut line = format!(
            "{:<10} {mpps:>22} {:>7.2} {:>6.2} {:>5}  {ns:<20}",
            self.traffic, self.gbps, self.cores, self.lost
        );
        if let Some(l) = &self.ladder {
            line += &format!(
                " {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>7.1} {:>6.1}",
                l.source, l.copy, l.plain, l.hashed, l.stamped, l.both
            );
        }
        line
    }
}

fn spec(text: &str, flows: u32) -> Result<sim::Spec, Stop> {
    let mut spec: sim::Spec = text.parse().map_err(Stop::error)?;
    if spec.order == r#gen::Order::Even {
        spec.flows = flows;
    }
    Ok(spec)
}

fn measure(
    args: &CaptureArgs,
    name: &str,
    spec: &sim::Spec,
    places: &CpuPlacement,
    mut bare: Option<&mut BareLoops>,
) -> Result<Row, Stop> {
    let mut costs: [Vec<f64>; 6] = Default::default();
    let mut runs = Vec::new();
    // The engine and the loops run alternately, so that other load of the machine affects all of them equally.
    for _ in 0..args.repeat {
        runs.push(engine(args, spec, places)?);
        if let Some(bare) = bare.as_deref_mut() {
            let span = Duration::from_secs_f64(args.seconds / 2.0);
            let figures = std::thread::scope(|s| {
                s.spawn(|| {
                    // If pinning fails, the comparison loops run on any processor, and their results vary as much as
                    // those of the engine.
                    let _ = sys::cpu::pin(places.engine());
                    bare.run_all(spec, span)
                })
                .join()
            });
            let figures = figures.map_err(|_| Stop::error("a measuring loop panicked"))??;
            for (cost, ns) in costs.iter_mut().zip(figures) {
                cost.push(ns);
            }
        }
    }
    let median = |cost: &Vec<f64>| MedianRange::of(cost.iter().copied()).median;
    let ladder = bare.is_some().then(|| {
        let [source, copy, plain, hashed, stamped, both] = costs.each_ref().map(median);
        CostBreakdown { source, copy, plain, hashed, stamped, both }
    });
    let mpps = MedianRange::of(runs.iter().map(|r| r.stored as f64 / args.seconds / 1e6));
    let bytes: u64 = runs.iter().map(|r| r.bytes).sum();
    let stored: u64 = runs.iter().map(|r| r.stored).sum();
    let mean_bytes = bytes as f64 / stored.max(1) as f64;
    Ok(Row {
        traffic: name.to_owned(),
        mean_bytes,
        seconds: args.seconds,
        repeat: args.repeat,
        ns: MedianRange::of(runs.iter().map(|r| r.cpu * 1e9 / r.stored.max(1) as f64)),
        gbps: mpps.median * mean_bytes * 8.0 / 1e3,
        mpps,
        cores: MedianRange::of(runs.iter().map(|r| r.cpu / args.seconds)).median,
        lost: runs.iter().map(|r| r.lost).sum(),
        ladder,
    })
}

struct Run {
    stored: u64,
    bytes: u64,
    lost: u64,
    cpu: f64,
}

/// Runs the engine as `netgrain record` starts it, without a store and without a socket.
fn engine(args: &CaptureArgs, spec: &sim::Spec, places: &CpuPlacement) -> Result<Run, Stop> {
    let mut plan = Plan::new(SourcePlan::Sim { spec: spec.clone(), start: None, name: None });
    plan.ring = Some(args.ring);
    plan.cpus = vec![places.engine()];
    plan.duration = Some(Duration::from_secs_f64(args.seconds));
    let mut capture = Capture::start(&plan).map_err(Stop::error)?;
    capture.wait().map_err(Stop::error)?;
    let report = capture.report();
    if report.counts.residue != 0 {
        return Err(Stop::error(format_args!(
            "{} packets are unaccounted for; please report this",
            report.counts.residue
        )));
    }
    Ok(Run {
        stored: report.counts.stored,
        bytes: report.counts.stored_bytes,
        lost: report.counts.lost_total,
        cpu: report.queues.iter().map(|q| q.engine_cpu_seconds).sum(),
    })
}

/// The comparison loops and the ring that they share.
struct BareLoops {
    producer: Producer,
    clock: Clock,
    hasher: FlowHasher,
    target: Vec<u8>,
    descs: Vec<[u64; 4]>,
}

impl BareLoops {
    fn new(ring: u64) -> Result<Self, Stop> {
        let config = ring::Config { name: "bench".into(), bytes: ring, ..ring::Config::default() };
        let producer = Producer::new(config).map_err(|e| {
            Stop::error(format_args!(
                "no memory for a ring of {}: {e}; choose a smaller ring with --ring",
                show_bytes(ring)
            ))
        })?;
        Ok(Self {
            producer,
            clock: Clock::start(),
            hasher: FlowHasher::new(0x6e65_7467_7261_696e),
            target: vec![0; BARE],
            descs: vec![[0; 4]; BARE / 128],
        })
    }

    /// Runs every loop once; returns nanoseconds per packet in the order of [`CostBreakdown`].
    fn run_all(&mut self, spec: &sim::Spec, span: Duration) -> Result<[f64; 6], Stop> {
        Ok([
            self.source(spec, span)?,
            self.copy(spec, span),
            self.source_to_ring::<false, false>(spec, span)?,
            self.source_to_ring::<false, true>(spec, span)?,
            self.source_to_ring::<true, false>(spec, span)?,
            self.source_to_ring::<true, true>(spec, span)?,
        ])
    }

    fn source(&mut self, spec: &sim::Spec, span: Duration) -> Result<f64, Stop> {
        poll(spec, span, |source| {
            let mut sum = 0;
            let polled =
                source.poll(BATCH, Duration::ZERO, |frame| sum += u64::from(frame.bytes[0]) + frame.bytes.len() as u64);
            black_box(sum);
            polled
        })
    }

    /// Copies frames, whose lengths are those of the simulated traffic, into a buffer; returns nanoseconds per frame.
    /// Only the memory limits the rate of these copies.
    fn copy(&mut self, spec: &sim::Spec, span: Duration) -> f64 {
        let mut traffic = r#gen::Traffic::new(spec);
        let mut frame = vec![0; traffic.max_len()];
        let frames: Vec<Vec<u8>> = (0..256)
            .map(|_| {
                let len = traffic.fill(&mut frame, Timestamp::ZERO);
                frame[..len].to_vec()
            })
            .collect();
        let (mut at, mut slot, mut copied) = (0, 0, 0u64);
        let started = Instant::now();
        let before = sys::cpu::thread_time();
        while started.elapsed() < span {
            for frame in &frames {
                let need = ring::RECORD_HEADER + frame.len();
                if at + need > self.target.len() {
                    at = 0;
                }
                let to = &mut self.target[at..at + need];
                to[..8].copy_from_slice(&copied.to_le_bytes());
                to[8..16].copy_from_slice(&(frame.len() as u64).to_le_bytes());
                to[ring::RECORD_HEADER..].copy_from_slice(frame);
                self.descs[slot] = [at as u64, copied, 0, frame.len() as u64];
                slot = (slot + 1) % self.descs.len();
                at += need;
            }
            copied += frames.len() as u64;
            black_box((&mut self.target, &mut self.descs));
        }
        (sys::cpu::thread_time() - before).as_nanos() as f64 / copied as f64
    }

    /// Simulates frames and writes them into the ring, with or without a timestamp and a hash for each packet; returns
    /// nanoseconds per frame.
    fn source_to_ring<const STAMP: bool, const HASH: bool>(
        &mut self,
        spec: &sim::Spec,
        span: Duration,
    ) -> Result<f64, Stop> {
        let Self { producer, clock, hasher, .. } = self;
        poll(spec, span, |source| {
            clock.keep();
            let batch = clock.now();
            let polled = source.poll(BATCH, Duration::ZERO, |frame| {
                let ts = if STAMP { clock.now() } else { batch };
                let (mut hash, mut l3, mut l4) = (0, 0, 0);
                if HASH {
                    let headers = Headers::of(frame.bytes, frame.wire_len, 1);
                    hash = hasher.hash(frame.bytes, &headers);
                    (l3, l4) = (headers.l3(), headers.l4());
                }
                let packet = Packet {
                    bytes: frame.bytes,
                    wire_len: frame.wire_len,
                    ts,
                    hash,
                    mark: 0,
                    flags: 0,
                    annotations: Annotations::default(),
                    l3,
                    l4,
                    vlan: None,
                };
                // Without a lossless reader `push` never rejects a packet.
                let _ = producer.push(&packet);
            });
            producer.publish();
            polled
        })
    }
}

/// Polls the source of frames until the time `span` is over; returns nanoseconds of processor time per frame.
fn poll(
    spec: &sim::Spec,
    span: Duration,
    mut read_batch: impl FnMut(&mut sim::Sim) -> Result<Polled, capture::SourceError>,
) -> Result<f64, Stop> {
    let mut source = sim::Sim::open(spec, None).map_err(Stop::error)?;
    let mut frames = 0;
    let (started, before) = (Instant::now(), sys::cpu::thread_time());
    while started.elapsed() < span {
        if let Polled::Frames(n) = read_batch(&mut source).map_err(Stop::error)? {
            frames += n;
        }
    }
    Ok((sys::cpu::thread_time() - before).as_nanos() as f64 / frames.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_the_head_end_where_the_values_end() {
        let value = |value| MedianRange { median: value, min: value, max: value };
        let ladder = CostBreakdown { source: 1.5, copy: 2.0, plain: 3.0, hashed: 4.0, stamped: 5.0, both: 6.0 };
        let row = Row {
            traffic: "backbone".to_owned(),
            mean_bytes: 871.0,
            seconds: 1.0,
            repeat: 3,
            mpps: value(7.0),
            ns: value(8.0),
            gbps: 9.25,
            cores: 1.0,
            lost: 123,
            ladder: Some(ladder),
        };
        let (head, line) = (table_head(), row.line());
        let (above, names) = head.split_once('\n').expect("two lines");
        let end = |text: &str, part: &str| text.find(part).expect("a column") + part.len();
        let columns = [("Mpps (min..max)", "(7.00..7.00)"), ("Gb/s", "9.25"), ("lost", "123"), ("source", "1.5")];
        for (name, value) in columns {
            assert_eq!(end(names, name), end(&line, value), "{name}");
        }
        assert_eq!(names.len(), line.len());
        assert_eq!(above.find("every"), Some(11));
        assert!(above.ends_with("alone"));
    }
}
