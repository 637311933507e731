//! Repeats the storage study of two publications (PhD thesis, section 4.3; "Packet storage at multi-gigabit rates") on
//! the user's volume. The benchmark writes files one after the other with direct I/O. For each block size and queue
//! depth it prints the mean write rate, the 99 % confidence interval of the mean, and the 5th and 95th percentile. It
//! also prints the write rate over time, and the link speeds for which the write rate suffices.

use crate::output::{Output, Stop};
use crate::stats::SampleStats;
use crate::volume::{self, SERIES_STEP, ScratchDir, WriteMode};
use base::units::{parse_bytes, show_bytes};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Minimum number of files of each combination, so that a confidence interval can be computed.
const MIN: usize = 3;

/// Bytes that a packet occupies on the wire besides its frame: FCS, preamble, inter-frame gap.
const WIRE_EXTRA: f64 = 24.0;

/// The longest frame without jumbo frames. Of all frame sizes on a full link, this size produces the most bytes of
/// packet files.
const LEN_MAX: f64 = 1514.0;

/// Link speeds in gigabits per second.
const PORTS: [f64; 10] = [1.0, 2.5, 5.0, 10.0, 25.0, 40.0, 50.0, 100.0, 200.0, 400.0];

/// Flags of `netgrain-bench disk`.
#[derive(Args, Clone, Debug)]
pub struct DiskArgs {
    /// Directory on the volume to measure; the files written there are removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Block sizes to compare
    #[arg(
        long,
        value_name = "LIST",
        default_value = "64KiB,256KiB,1MiB,4MiB",
        value_delimiter = ',',
        value_parser = parse_bytes
    )]
    pub blocks: Vec<u64>,
    /// Numbers of writes in flight to compare
    #[arg(long, value_name = "LIST", default_value = "1,8,32", value_delimiter = ',',
          value_parser = base::units::whole::<u32>(1..=256))]
    pub depths: Vec<u32>,
    /// Size of each file
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub file: u64,
    /// Duration of the measurement of each combination of block size and queue depth (at least three files)
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5, value_parser = crate::arguments::seconds)]
    pub seconds: f64,
    /// Duration of the run with the recorder's block size and depth, on which the verdict is based
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = crate::arguments::seconds)]
    pub sustained: f64,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The result for one combination of block size and queue depth.
#[derive(Debug, Serialize)]
struct Row {
    writer: &'static str,
    block: u64,
    depth: u32,
    /// Statistics of the write rates of the files, in gigabits per second.
    #[serde(flatten)]
    study: SampleStats,
}

/// The long run over time.
#[derive(Debug, Serialize)]
struct ThroughputSeries {
    step_seconds: f64,
    /// Write rate in each step, in gigabits per second.
    gbps: Vec<f64>,
}

/// Measures all combinations of block size and queue depth, and prints the results.
pub fn run(args: &DiskArgs, out: &mut dyn Write) -> Result<(), Stop> {
    for block in &args.blocks {
        if *block == 0 || !block.is_multiple_of(4096) || *block > volume::NOISE_BYTES as u64 {
            return Err(Stop::error(format_args!(
                "{block} is not a valid block size: write a multiple of 4KiB up to 64MiB"
            )));
        }
    }
    let work = ScratchDir::below(&args.dir)?;
    let mut sheet = Output::begin(out, args.json, "disk")?;
    sheet.head(format_args!(
        "{}: files of {}, direct I/O, synced; Gb/s of each file",
        args.dir.display(),
        show_bytes(args.file)
    ))?;
    sheet.head("writer          block  depth  files     mean   99 % confidence     5th    95th percentile")?;
    for block in &args.blocks {
        for depth in &args.depths {
            let mode = WriteMode { block: *block, depth: *depth, file: args.file };
            let written = volume::write(work.path(), mode, Duration::from_secs_f64(args.seconds), MIN)?;
            row(&mut sheet, "direct", mode, SampleStats::of(&written.rates()))?;
        }
    }
    let mode = WriteMode { block: ring::BLOCK, depth: engine::WRITE_DEPTH, file: args.file };
    let written = volume::write(work.path(), mode, Duration::from_secs_f64(args.sustained), MIN)?;
    let study = SampleStats::of(&written.rates());
    row(&mut sheet, "as recorded", mode, study)?;
    // fio creates all of its files before it writes, so it writes only a few files.
    match volume::fio(work.path(), mode, &written)? {
        Some(gbps) => row(&mut sheet, "fio", mode, SampleStats::of(&[gbps]))?,
        None => sheet.note("fio is not installed: its row is omitted")?,
    }
    series(&mut sheet, &written.series)?;
    if !written.is_best {
        sheet.note(format_args!("written with {}", written.device))?;
    }
    sheet.verdict(verdict(&study))
}

fn row(sheet: &mut Output<'_>, writer: &'static str, mode: WriteMode, study: SampleStats) -> Result<(), Stop> {
    let interval = format!("({:.2}, {:.2})", study.ci99[0].max(0.0), study.ci99[1]);
    let line = format!(
        "{writer:<12} {:>8} {:>6} {:>6} {:>8.2}   {interval:>15} {:>7.2} {:>7.2}",
        show_bytes(mode.block).replace(".00 ", " ").replace(".0 ", " "),
        mode.depth,
        study.samples,
        study.mean,
        study.p5,
        study.p95
    );
    sheet.row("disk", &Row { writer, block: mode.block, depth: mode.depth, study }, line)
}

fn series(sheet: &mut Output<'_>, bytes: &[u64]) -> Result<(), Stop> {
    let step_seconds = SERIES_STEP.as_secs_f64();
    // The last step is incomplete.
    let whole = &bytes[..bytes.len().saturating_sub(1)];
    let series =
        ThroughputSeries { step_seconds, gbps: whole.iter().map(|b| volume::gbps(*b, step_seconds)).collect() };
    let text = format!("write rate over time, one bar for {step_seconds} s: {}", spark(&series.gbps));
    sheet.row("series", &series, text)
}

/// Draws the values as bars of eight heights, from zero to the maximum.
fn spark(values: &[f64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    values.iter().map(|v| HEIGHTS[((v / most.max(1e-9) * 8.0) as usize).min(7)]).collect()
}

/// The write rate, in Gb/s, that a volume needs for the pcap records of a full link of `gbps` whose frames all have
/// this size.
fn demand(gbps: f64, frame: f64) -> f64 {
    gbps * (frame + ring::RECORD_HEADER as f64) / (frame + WIRE_EXTRA)
}

/// As in the thesis, a volume suffices if the lower end of the confidence interval reaches the demand; the ring buffers
/// packets while a file is written more slowly.
fn verdict(study: &SampleStats) -> String {
    let lower_bound = study.ci99[0].max(0.0);
    let port = PORTS.iter().rev().find(|p| demand(**p, LEN_MAX) <= lower_bound);
    let enough = match port {
        Some(port) if demand(*port, LEN_MAX) <= study.p5 => {
            format!("enough for a full {port} Gb/s Ethernet port at any packet size")
        }
        Some(port) => format!(
            "enough for a full {port} Gb/s Ethernet port at any packet size if the ring holds the packets of slower \
             periods ({:.2} Gb/s)",
            study.p5
        ),
        None => format!("enough for {:.0} % of a 1 Gb/s Ethernet port", 100.0 * lower_bound / demand(1.0, LEN_MAX)),
    };
    format!("this volume sustains {:.2} Gb/s (99 % confidence: at least {lower_bound:.2}): {enough}", study.mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(mean: f64, low: f64, p5: f64) -> SampleStats {
        SampleStats { samples: 9, mean, ci99: [low, 2.0 * mean - low], p5, p95: mean }
    }

    #[test]
    fn the_demand_agrees_with_the_thesis() {
        // Table 4.3 of the thesis: pcap files of a 10 Gb/s link need a write rate of 9.05 to 9.95 Gb/s.
        assert_eq!(format!("{:.2} {:.2}", demand(10.0, 60.0), demand(10.0, 1514.0)), "9.05 9.95");
    }

    #[test]
    fn the_verdict_uses_the_lower_end_of_the_interval() {
        assert!(verdict(&study(0.5, 0.497, 0.4)).contains("50 % of a 1 Gb/s"));
        assert!(verdict(&study(10.0, 9.9, 9.9)).contains("full 5 Gb/s"));
        assert!(verdict(&study(10.1, 10.0, 10.0)).ends_with("full 10 Gb/s Ethernet port at any packet size"));
        assert!(verdict(&study(10.1, 10.0, 7.0)).contains("holds the packets of slower periods (7.00 Gb/s)"));
    }

    #[test]
    fn a_sparkline_has_one_bar_per_step() {
        assert_eq!(spark(&[0.0, 4.0, 8.0]), "▁▅█");
        assert_eq!(spark(&[]), "");
    }
}
