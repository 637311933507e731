//! Measures `netgrain replay` beside tcpreplay (with each of its timers), trafgen and frames that the kernel makes, on
//! one veth pair in a network namespace of this measurement. All programs run in turn.
//!
//! Rate: each program sends the same number of frames of one size as fast as it can. The frames are counted at the
//! peer interface, and the time is that of the whole process.
//!
//! Timing: each program sends a capture with random (exponentially distributed) gaps and its original timing. A packet
//! socket at the peer interface receives the frames with the timestamps of the kernel. So all programs are measured by
//! the same clock, which is independent of them: the duration from the first to the last frame, and the difference of
//! each gap and the gap of the capture.

mod arrivals;
mod programs;

use crate::live::NamespaceGuard;
use crate::output::{MedianRange, Output, Stop};
use crate::stats::percentile;
use crate::volume::ScratchDir;
use arrivals::{Arrivals, TimingErrors};
use base::units::{parse_count, show_count};
use base::{Prng, Timestamp};
use clap::Args;
use r#gen::{Sizes, Spec, Traffic};
use pcap::classic::{Resolution, Writer};
use programs::{Kind, Program};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use sys::netns::Namespace;

/// The two ends of the veth pair.
const FROM: &str = "ng-bench0";
const TO: &str = "ng-bench1";

/// Frames in the capture that the rate is measured with; the programs repeat the capture.
const CAPTURE_FRAMES: u64 = 10_000;

/// Flags of `netgrain-bench send`.
#[derive(Args, Clone, Debug)]
pub struct SendArgs {
    /// Directory for the captures, which are removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Frame sizes in bytes without FCS, for the rate
    #[arg(long, value_name = "LIST", default_value = "60,1514", value_delimiter = ',',
          value_parser = base::units::whole::<u16>(60..=1514))]
    pub sizes: Vec<u16>,
    /// Frames that each program sends for the rate, rounded up to a multiple of 10000
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub frames: u64,
    /// Length of the capture with random gaps
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Mean frames per second of this capture
    #[arg(long, value_name = "N", default_value = "5k", value_parser = parse_count)]
    pub timed_rate: u64,
    /// Number of runs of each program, in turn; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Omit tcpreplay and trafgen
    #[arg(long)]
    pub no_baselines: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The rate of one program.
#[derive(Debug, Serialize)]
struct RateRow {
    program: String,
    frame_bytes: u16,
    /// Frames that the peer received in one run (median), and those that the program should have sent.
    received: MedianRange,
    asked: u64,
    seconds: MedianRange,
    mpps: MedianRange,
}

/// The timing of one program.
#[derive(Debug, Serialize)]
struct TimingRow {
    program: String,
    capture_seconds: f64,
    frames: u64,
    /// Frames that did not arrive, in all runs.
    missing: u64,
    /// Duration less that of the capture.
    duration_error_micros: MedianRange,
    gap_error_p50_micros: MedianRange,
    gap_error_p99_micros: MedianRange,
    gap_error_max_micros: MedianRange,
}

/// Measures and prints the results.
pub fn run(args: &SendArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let work = ScratchDir::below(&args.dir)?;
    let mut sheet = Output::begin(out, args.json, "send")?;
    let programs = Program::all(!args.no_baselines, &mut sheet)?;
    let home = NamespaceGuard(Namespace::current().map_err(Stop::error)?);
    let outcome = measure(args, &programs, work.path(), &mut sheet);
    drop(home);
    outcome
}

fn measure(args: &SendArgs, programs: &[Program], work: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    engine::private_pair(FROM, TO, 1500).map_err(|e| {
        Stop::error(format_args!("cannot create a network namespace for the measurement: {e}; run as root"))
    })?;
    sheet.head(format_args!("{} runs of each program in turn, medians (min..max)", args.repeat))?;
    sheet.head("\nrate, as fast as possible")?;
    sheet.head("program                        B   received of asked        s                      Mpps")?;
    for size in &args.sizes {
        rates(args, programs, *size, work, sheet)?;
    }
    sheet.head(
        "\ntiming of the capture\n\
         program                        missing   duration error µs          gap error µs: median   99 %             \
         \x20         largest",
    )?;
    timings(args, programs, work, sheet)
}

fn rates(args: &SendArgs, programs: &[Program], size: u16, work: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let passes = args.frames.div_ceil(CAPTURE_FRAMES).max(1);
    let asked = passes * CAPTURE_FRAMES;
    let path = work.join(format!("{size}.pcap"));
    write_capture(&path, size, (0..CAPTURE_FRAMES).map(|n| n * 1000))?;
    let wanted = programs.iter().filter(|program| program.kind() != Kind::Timing);
    let runs = in_turn(args, wanted, sheet, |program| {
        let before = arrivals::received(TO)?;
        let seconds = program.send_flat(FROM, &path, size, passes, CAPTURE_FRAMES)?;
        Ok((arrivals::received(TO)? - before, seconds))
    })?;
    for (program, runs) in runs {
        let row = RateRow {
            program: program.name(),
            frame_bytes: size,
            received: MedianRange::of(runs.iter().map(|(received, _)| *received as f64)),
            asked,
            seconds: MedianRange::of(runs.iter().map(|(_, seconds)| *seconds)),
            mpps: MedianRange::of(runs.iter().map(|(received, seconds)| *received as f64 / seconds / 1e6)),
        };
        let line = format!(
            "{:<30} {size:>4}   {} of {}   {:.3}   {:.3}",
            row.program,
            show_count(row.received.median as u64),
            show_count(asked),
            row.seconds,
            row.mpps
        );
        sheet.row("rate", &row, line)?;
    }
    Ok(())
}

fn timings(args: &SendArgs, programs: &[Program], work: &Path, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let path = work.join("timed.pcap");
    let times = random_times(args.seconds, args.timed_rate);
    write_capture(&path, 0, times.iter().copied())?;
    let wanted = programs.iter().filter(|program| program.kind() != Kind::Rate);
    let runs = in_turn(args, wanted, sheet, |program| {
        let arrivals = Arrivals::begin(TO)?;
        program.send_timed(FROM, &path, args.seconds)?;
        Ok(arrivals.end()?.errors(&times))
    })?;
    for (program, runs) in runs {
        let median = |value: &dyn Fn(&TimingErrors) -> f64| MedianRange::of(runs.iter().map(value));
        let gap = |percent| move |run: &TimingErrors| percentile(&run.gap_error_micros, percent);
        let row = TimingRow {
            program: program.name(),
            capture_seconds: args.seconds,
            frames: times.len() as u64,
            missing: runs.iter().map(|run| run.missing).sum(),
            duration_error_micros: median(&|run| run.duration_error_micros),
            gap_error_p50_micros: median(&gap(50.0)),
            gap_error_p99_micros: median(&gap(99.0)),
            gap_error_max_micros: median(&gap(100.0)),
        };
        let duration = format!("{:.1}", row.duration_error_micros);
        let [median, p99] = [row.gap_error_p50_micros, row.gap_error_p99_micros].map(|gap| format!("{gap:.2}"));
        let line = format!(
            "{:<30} {:>7}   {duration:<26} {median:<22} {p99:<26} {:.1}",
            row.program, row.missing, row.gap_error_max_micros,
        );
        sheet.row("timing", &row, line)?;
    }
    Ok(())
}

/// Runs the programs in turn and returns the results of each program. A program of others that fails is omitted, with a
/// note.
fn in_turn<'p, R>(
    args: &SendArgs,
    programs: impl Iterator<Item = &'p Program>,
    sheet: &mut Output<'_>,
    mut measure: impl FnMut(&Program) -> Result<R, Stop>,
) -> Result<Vec<(&'p Program, Vec<R>)>, Stop> {
    let mut all: Vec<(&Program, Vec<R>)> = programs.map(|program| (program, Vec::new())).collect();
    for _ in 0..args.repeat {
        let mut failed = None;
        for (index, (program, runs)) in all.iter_mut().enumerate() {
            match measure(program) {
                Ok(result) => runs.push(result),
                Err(Stop::Failed(text)) if program.is_baseline() => {
                    sheet.note(format_args!("{text}: its row is omitted"))?;
                    failed = Some(index);
                }
                Err(e) => return Err(e),
            }
        }
        failed.map(|index| all.remove(index));
    }
    Ok(all.into_iter().filter(|(_, runs)| runs.len() == args.repeat as usize).collect())
}

/// Times in nanoseconds with exponentially distributed gaps, from 0 to exactly `seconds`.
fn random_times(seconds: f64, rate: u64) -> Vec<u64> {
    let end = (seconds * 1e9) as u64;
    let (mut prng, mut times, mut now) = (Prng::new(18), vec![0], 0.0);
    let mean = 1e9 / rate.max(1) as f64;
    loop {
        now -= mean * (1.0 - prng.unit()).ln();
        if now as u64 >= end {
            times.push(end);
            return times;
        }
        times.push(now as u64);
    }
}

/// Writes a capture of numbered frames with these times. Frames have `size` bytes, or those of an internet mix if
/// `size` is 0.
fn write_capture(path: &Path, size: u16, times: impl Iterator<Item = u64>) -> Result<(), Stop> {
    /// The begin of the capture, in nanoseconds since 1970; any time is possible.
    const BEGIN: u64 = 1_795_000_000_000_000_000;
    let failed = |e: std::io::Error| Stop::error(format_args!("{}: {e}", path.display()));
    let sizes = if size == 0 { Sizes::IMIX } else { Sizes::Fixed(size) };
    let mut traffic = Traffic::new(&Spec { signature: true, ..Spec::new(sizes) });
    let file = BufWriter::new(File::create(path).map_err(failed)?);
    let mut writer = Writer::new(file, Resolution::Nanos, 1).map_err(failed)?;
    let mut frame = vec![0; traffic.max_len()];
    for time in times {
        let ts = Timestamp::from_nanos(BEGIN + time);
        let len = traffic.fill(&mut frame, ts);
        writer.write(ts, len as u32, &frame[..len]).map_err(failed)?;
    }
    writer.finish().map_err(failed)?.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_times_begin_at_zero_and_end_at_the_end() {
        let times = random_times(2.0, 1000);
        assert_eq!((times[0], times[times.len() - 1]), (0, 2_000_000_000));
        assert!(times.is_sorted() && (1800..2200).contains(&times.len()), "{}", times.len());
    }
}
