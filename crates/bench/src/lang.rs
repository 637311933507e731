//! Measures the packet language alone: programs over frames in memory, on one core, as machine code and interpreted;
//! and filters compared with those of libpcap.
//!
//! Each frame is in its own cache line, and the frames need more memory than the caches hold (64 MB for a million
//! frames). Machine code and interpreter read the same frames. The cost of a packet is that of a packet from a ring:
//! the loop makes the descriptor, locates the headers if the program needs them, runs the program and writes the
//! verdict. The *floor* is a hand-written loop with the least possible work: it makes the descriptor, loads addresses
//! and ports, multiplies them instead of hashing, and writes the verdict.

mod libpcap;

use crate::output::{MedianRange, Output, Stop};
use crate::volume::ScratchDir;
use ::ir::Facts;
use ::ir::{Program, VerdictKind};
use base::hash::mix64;
use base::units::show_count;
use clap::Args;
use jit::{Executable, Matcher, Packet, Verdict, Worker};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use wire::build::Frame;
use wire::link;

/// `FRAME` is the length of a frame, and `PLACE` the distance between the starts of two frames in memory, in bytes.
const FRAME: usize = 60;
const PLACE: usize = 64;

/// A program and its required rate in millions of packets per second. The output shows this rate and the measured rate.
struct Case {
    name: &'static str,
    source: &'static str,
    flows: u32,
    least: f64,
}

const CASES: [Case; 4] = [
    Case { name: "filter, steer", source: "main = ip >-> steer_flow", flows: 100_000, least: 30.0 },
    Case { name: "mark, steer", source: "main = when is_tcp (mark 42) >-> steer_p2p", flows: 100_000, least: 25.0 },
    Case {
        name: "count per flow",
        source: "flows = flow_map 0 key_5tuple\nmain = incr_fstate flows",
        flows: 1_000,
        least: 15.0,
    },
    Case {
        name: "count per flow",
        source: "flows = up_to 2000000 (flow_map 0 key_5tuple)\nmain = incr_fstate flows",
        flows: 2_000_000,
        least: 11.0,
    },
];

const FILTERS: [&str; 6] = [
    "tcp",
    "udp and dst port 53",
    "tcp port 80 or tcp port 443",
    "src net 10.0.0.0/24 and tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "host 10.0.0.7 or host 10.0.1.9 or host 10.0.2.200",
    "ip and (udp portrange 1000-2000 or icmp) and not net 192.168.0.0/16",
];

/// Number of frames for the comparison of filters, and number of passes over them in each run.
const NEAR: u64 = 8192;
const ROUNDS: usize = 50;

/// Flags of `netgrain-bench lang`.
#[derive(Args, Clone, Debug)]
pub struct LangArgs {
    /// Number of frames to generate; a program with more flows uses more frames
    #[arg(long, value_name = "N", default_value = "1M", value_parser = base::units::parse_count)]
    pub frames: u64,
    /// Frames per batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = base::units::whole::<u32>(1..=4096))]
    pub batch: u32,
    /// Number of runs for each program and filter; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Directory for the files of the comparison with libpcap, which are removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Omit libpcap
    #[arg(long)]
    pub no_baselines: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result of one program.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    flows: u32,
    native_mpps: MedianRange,
    interpreter_mpps: MedianRange,
    ratio: f64,
    /// Nanoseconds per packet of the program alone: packets are decoded before the measurement.
    native_alone_ns: MedianRange,
    /// The same with the interpreter.
    interpreter_alone_ns: MedianRange,
    ratio_alone: f64,
    least_mpps: f64,
    compile_ms: f64,
    code_bytes: usize,
}

/// The result of one filter.
#[derive(Debug, Serialize)]
struct FilterRow {
    filter: String,
    matched: u64,
    native_ns: MedianRange,
    libpcap_ns: MedianRange,
    ratio: f64,
}

/// The cost of one way to evaluate packets, in nanoseconds per packet.
#[derive(Debug, Serialize)]
struct Variant {
    way: String,
    ns: MedianRange,
}

/// Measures and prints the results.
pub fn run(args: &LangArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "lang")?;
    sheet.head(format_args!(
        "{FRAME} B frames in memory ({} in {} MB) -> descriptor, headers, program, verdict; one core, batches of {}; \
         {} runs, medians",
        show_count(args.frames),
        args.frames * PLACE as u64 / 1_000_000,
        args.batch,
        args.repeat
    ))?;
    let frames = Frames::make(args.frames, 100_000)?;
    variants(args, &frames, &mut sheet)?;
    sheet.head("                          with header parsing: Mpps                       without parsing: ns")?;
    sheet.head(
        "program             flows               native  least  interpreted  ratio    native  interpr.  ratio  \
     compiled",
    )?;
    for case in &CASES {
        self::case(args, case, &frames, &mut sheet)?;
    }
    if args.no_baselines {
        return Ok(());
    }
    let work = ScratchDir::below(&args.dir)?;
    // The frames fit the second-level cache. With more frames, the speed of both filters would depend on the memory.
    let near = Frames::make(NEAR, 100_000)?;
    let Some(baseline) = libpcap::LibpcapFilter::build(&work, &near.bytes)? else {
        return sheet.note("libpcap or a C compiler is not installed: the comparison is omitted");
    };
    sheet.head(
        "filter                                                                 matched  native ns  libpcap ns  ratio",
    )?;
    FILTERS.iter().try_for_each(|text| filter(args, text, &baseline, &near, &mut sheet))
}

/// Measures the hand-written loop (the floor), and one program that evaluates a batch of packets or a single packet per
/// call.
fn variants(args: &LangArgs, frames: &Frames, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let floor = MedianRange::of((0..args.repeat).map(|_| frames.minimum(args.batch as usize)));
    let mut row = |way: &str, ns: MedianRange| {
        let way = Variant { way: way.to_owned(), ns };
        let line = format!("{:<44} {:.1} ns per packet", way.way, way.ns);
        sheet.row("way", &way, line)
    };
    row("the floor: least possible loads and stores", floor)?;
    let executable = native(compile(CASES[0].source)?)?;
    for (name, batch) in [
        ("main = ip >-> steer_flow, a batch per call", args.batch as usize),
        ("main = ip >-> steer_flow, a packet per call", 1),
    ] {
        let mut worker = executable.worker(KEY).map_err(Stop::error)?;
        row(name, MedianRange::of((0..args.repeat).map(|_| frames.evaluate(&mut worker, batch, frames.count).ns)))?;
    }
    Ok(())
}

fn case(args: &LangArgs, case: &Case, default_frames: &Frames, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let own;
    let frames = if case.flows == default_frames.flows {
        default_frames
    } else {
        own = Frames::make(args.frames.max(2 * u64::from(case.flows)), case.flows)?;
        &own
    };
    let program = compile(case.source)?;
    let executable = native(program.clone())?;
    let report = executable.report();
    let interpreted = Executable::interpreted(program).map_err(Stop::error)?;
    let (mut native_worker, mut interpreter_worker) =
        (executable.worker(KEY).map_err(Stop::error)?, interpreted.worker(KEY).map_err(Stop::error)?);
    let batch = args.batch as usize;
    // This first evaluation fills the flow maps and is not counted. The interpreter is slow, so it evaluates only a
    // part of the frames.
    let part = frames.count.min(1 << 20);
    frames.evaluate(&mut native_worker, batch, frames.count);
    frames.evaluate(&mut interpreter_worker, batch, part);
    let [mut native, mut interpreter, mut native_alone, mut interpreter_alone] = [const { Vec::new() }; 4];
    for _ in 0..args.repeat {
        native.push(1e3 / frames.evaluate(&mut native_worker, batch, frames.count).ns);
        interpreter.push(1e3 / frames.evaluate(&mut interpreter_worker, batch, part).ns);
        native_alone.push(frames.evaluate_alone(&mut native_worker, batch));
        interpreter_alone.push(frames.evaluate_alone(&mut interpreter_worker, batch));
    }
    if native_worker.refused().iter().any(|refused| *refused > 0) {
        return Err(Stop::error(format_args!(
            "the flow map of {:?} has no room for {} flows; please report this",
            case.source, case.flows
        )));
    }
    let (native_alone_ns, interpreter_alone_ns) = (MedianRange::of(native_alone), MedianRange::of(interpreter_alone));
    let (native_mpps, interpreter_mpps) = (MedianRange::of(native), MedianRange::of(interpreter));
    let row = Row {
        program: case.source.to_owned(),
        flows: case.flows,
        native_mpps,
        interpreter_mpps,
        ratio: native_mpps.median / interpreter_mpps.median,
        native_alone_ns,
        interpreter_alone_ns,
        ratio_alone: interpreter_alone_ns.median / native_alone_ns.median,
        least_mpps: case.least,
        compile_ms: report.compile_time.as_secs_f64() * 1e3,
        code_bytes: report.code_bytes,
    };
    let line = format!(
        "{:<15} {:>9} {:>20} {:>6} {:>12.2} {:>6.1} {:>9.1} {:>9.1} {:>6.1} {:>6.1} ms {} B",
        case.name,
        show_count(case.flows.into()),
        format!("{:.1}", row.native_mpps),
        row.least_mpps,
        row.interpreter_mpps.median,
        row.ratio,
        row.native_alone_ns.median,
        row.interpreter_alone_ns.median,
        row.ratio_alone,
        row.compile_ms,
        row.code_bytes
    );
    sheet.row("program", &row, line)
}

fn filter(
    args: &LangArgs,
    text: &str,
    baseline: &libpcap::LibpcapFilter,
    frames: &Frames,
    sheet: &mut Output<'_>,
) -> Result<(), Stop> {
    let parsed = ::filter::LinkFilter::parse(text, wire::link::ETHERNET).map_err(Stop::error)?;
    let matcher = Matcher::of(&::lang::packet_filter::program(&parsed).map_err(Stop::error)?).map_err(Stop::error)?;
    let (mut ns, mut matched) = (Vec::new(), 0);
    let (mut theirs, mut theirs_matched) = (Vec::new(), 0);
    for _ in 0..args.repeat {
        let rounds: Vec<EvaluatedFrames> =
            (0..=ROUNDS).map(|_| frames.filter(&matcher, args.batch as usize)).skip(1).collect();
        let evaluated = EvaluatedFrames {
            ns: rounds.iter().map(|j| j.ns).sum::<f64>() / ROUNDS as f64,
            passed: rounds.first().map_or(0, |j| j.passed),
        };
        (matched, theirs_matched) = (evaluated.passed, baseline.run(text, &mut theirs)?);
        ns.push(evaluated.ns);
    }
    if matched != theirs_matched {
        return Err(Stop::error(format_args!(
            "{text:?} matches {matched} frames, with libpcap {theirs_matched}; please report this"
        )));
    }
    let (native_ns, libpcap_ns) = (MedianRange::of(ns), MedianRange::of(theirs));
    let ratio = libpcap_ns.median / native_ns.median;
    let row = FilterRow { filter: text.to_owned(), matched, native_ns, libpcap_ns, ratio };
    let line = format!(
        "{text:<68} {:>9} {:>10.1} {:>11.1} {ratio:>6.1}",
        show_count(matched),
        native_ns.median,
        libpcap_ns.median
    );
    sheet.row("filter", &row, line)
}

/// The key of the hash functions in the measured programs.
const KEY: u64 = 0x6e67;

fn compile(source: &str) -> Result<Program, Stop> {
    ::lang::compile(source).map(|c| c.program).map_err(|e| Stop::error(format_args!("{source:?}: {e:?}")))
}

fn native(program: Program) -> Result<Executable, Stop> {
    let begun = Instant::now();
    Executable::native(program, || begun.elapsed()).map_err(Stop::error)
}

/// Frames in memory, their flows in random order.
struct Frames {
    bytes: Vec<u8>,
    count: usize,
    flows: u32,
}

struct EvaluatedFrames {
    ns: f64,
    passed: u64,
}

impl Frames {
    fn make(count: u64, flows: u32) -> Result<Self, Stop> {
        let count = usize::try_from(count.max(1)).map_err(Stop::error)?;
        let mut bytes = vec![0; count * PLACE];
        let mut prng = base::Prng::new(1);
        for (i, place) in bytes.chunks_exact_mut(PLACE).enumerate() {
            // The first frames contain one frame of each flow; each of the other frames belongs to a random flow.
            let flow = if i < flows as usize { i as u64 } else { prng.below(flows.into()) };
            let n = mix64(flow);
            let (src, dst) = (0x0a00_0000 | (n as u32 & 0xffff), [172, 16, (n >> 16) as u8, (n >> 24) as u8]);
            let (from, to) = ((n >> 32) as u16 | 1024, [80, 443, 53, 1500][(n >> 48) as usize & 3]);
            let frame = match n >> 62 {
                0 => Frame::udp4(src, from, dst, to),
                _ => Frame::tcp4(src, from, dst, to).tcp((n >> 50) as u8 & 0x3f, 1, 1),
            };
            frame.fill(&mut place[..FRAME]);
        }
        Ok(Self { bytes, count, flows })
    }

    #[inline]
    fn packet(place: &[u8], time: u64) -> Packet<'_> {
        Packet::new(&place[..FRAME], link::ETHERNET, Facts { time, wire_len: FRAME as u32, ..Facts::default() })
    }

    /// Evaluates the program of `worker` for the first `count` frames.
    fn evaluate(&self, worker: &mut Worker, batch: usize, count: usize) -> EvaluatedFrames {
        let mut packets = vec![Self::packet(&self.bytes, 0); batch];
        let mut verdicts = vec![Verdict::default(); batch];
        let (mut passed, mut time) = (0, 0);
        let begun = Instant::now();
        for places in self.bytes[..count * PLACE].chunks(batch * PLACE) {
            let packets = &mut packets[..places.len() / PLACE];
            for (packet, place) in packets.iter_mut().zip(places.chunks_exact(PLACE)) {
                *packet = Self::packet(place, time);
            }
            time += 1000;
            let verdicts = &mut verdicts[..packets.len()];
            worker.evaluate(packets, verdicts);
            passed += verdicts.iter().filter(|v| v.kind() != VerdictKind::Drop).count() as u64;
        }
        EvaluatedFrames { ns: begun.elapsed().as_secs_f64() * 1e9 / count as f64, passed }
    }

    /// Measures the program alone: evaluates decoded packets repeatedly. For the interpreter all headers are located
    /// beforehand; machine code still recognizes packets with a plain header layout by their bytes.
    fn evaluate_alone(&self, worker: &mut Worker, batch: usize) -> f64 {
        const READY: usize = 4096;
        let places = self.bytes.chunks_exact(PLACE).take(READY);
        let mut packets: Vec<_> = places.map(|place| Self::packet(place, 0)).collect();
        let mut verdicts = vec![Verdict::default(); batch];
        let rounds = (self.count / packets.len() / 4).max(2);
        let mut begun = Instant::now();
        for round in 0..=rounds {
            if round == 1 {
                begun = Instant::now();
            }
            for packets in packets.chunks_mut(batch) {
                let verdicts = &mut verdicts[..packets.len()];
                worker.evaluate(packets, verdicts);
                std::hint::black_box(verdicts);
            }
        }
        begun.elapsed().as_secs_f64() * 1e9 / (rounds * packets.len()) as f64
    }

    /// Runs a filter over the first `count` frames; returns nanoseconds per frame and the number of matches.
    fn filter(&self, matcher: &Matcher, batch: usize) -> EvaluatedFrames {
        let mut frames = vec![jit::Frame::new(&self.bytes[..FRAME], 0); batch];
        let mut matched = vec![0; batch];
        let mut passed = 0;
        let begun = Instant::now();
        for places in self.bytes.chunks(batch * PLACE) {
            let frames = &mut frames[..places.len() / PLACE];
            for (frame, place) in frames.iter_mut().zip(places.chunks_exact(PLACE)) {
                *frame = jit::Frame::new(&place[..FRAME], FRAME as u32);
            }
            let matched = &mut matched[..frames.len()];
            matcher.matches(frames, matched);
            passed += matched.iter().map(|m| u64::from(*m)).sum::<u64>();
        }
        EvaluatedFrames { ns: begun.elapsed().as_secs_f64() * 1e9 / self.count as f64, passed }
    }

    /// Measures the floor: a hand-written loop that does the least possible work for each packet.
    fn minimum(&self, batch: usize) -> f64 {
        let mut packets = vec![Self::packet(&self.bytes, 0); batch];
        let mut verdicts = vec![Verdict::default(); batch];
        let begun = Instant::now();
        for places in self.bytes.chunks(batch * PLACE) {
            let packets = &mut packets[..places.len() / PLACE];
            for (packet, place) in packets.iter_mut().zip(places.chunks_exact(PLACE)) {
                *packet = Self::packet(place, 0);
            }
            for (packet, verdict) in packets.iter().zip(&mut verdicts) {
                let word = |at: usize| packet.bytes()[at..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
                let addresses = u64::from(word(26)) << 32 | u64::from(word(30));
                let hash = (addresses ^ u64::from(word(34))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *verdict = Verdict::default();
                (verdict.classes, verdict.hash) = (1, (hash >> 32) as u32);
            }
            std::hint::black_box(&mut verdicts);
        }
        begun.elapsed().as_secs_f64() * 1e9 / self.count as f64
    }
}
