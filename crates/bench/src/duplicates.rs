//! Measures the detection of duplicates: which share of planted duplicates is found by tables of each size (thesis
//! tables 4.6 and 4.7), the same for a window of 200 ms at the packet rate of a saturated 10 Gb/s link, and the packets
//! per second on one core, compared with `editcap -D 1000`.
//!
//! The traces of the thesis are not public. Two traces are generated with the shares of duplicates of table 4.6 and
//! with distances between a packet and its duplicate that have a heavy tail. Each trace is compared by netgrain's table
//! and by a model of HPCAP's table: `records / pools` rows, selected by a hash, of `pools` records each, of which the
//! oldest is replaced.

use crate::output::{MedianRange, Output, Stop};
use crate::process::find;
use crate::volume::ScratchDir;
use base::units::{show_bytes, show_count};
use base::{Prng, Timestamp, hash};
use clap::Args;
use duplicates::settings::WINDOW_HPCAP;
use duplicates::{Detector, Packet, Settings};
use meter::MemoryHints;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wire::{build::Frame, link};

/// Packets that the detector gets together, as in the engine.
const BATCH: usize = 256;

/// Nanoseconds from packet to packet of 64 bytes on a saturated link of 10 Gb/s: 14.88 Mpps.
const STEP_SATURATED: f64 = 67.2;

/// Nanoseconds from packet to packet of the traces.
const STEP_TRACE: u64 = 1000;

/// Flags of `netgrain-bench duplicates`.
#[derive(Args, Clone, Debug)]
pub struct DuplicatesArgs {
    /// Packets of each generated trace
    #[arg(long, value_name = "N", default_value = "4M", value_parser = base::units::parse_count)]
    pub packets: u64,
    /// Records of the table for the window of 200 ms at 14.88 Mpps
    #[arg(long, value_name = "N", default_value = "3M", value_parser = base::units::parse_count)]
    pub records: u64,
    /// Number of runs of each measurement of speed; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Directory for the file that editcap reads; the file is removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Omit editcap
    #[arg(long)]
    pub no_baselines: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The accuracy of one table for one trace.
#[derive(Debug, Serialize)]
struct Accuracy {
    table: &'static str,
    trace: &'static str,
    records: u64,
    pools: u64,
    packets: u64,
    duplicates: u64,
    /// True positive rate: the share of the planted duplicates that is found.
    tpr: f64,
    /// False positive rate: the share of the other packets that is reported.
    fpr: f64,
    memory_bytes: u64,
    /// The time that the table reaches back at the end, in nanoseconds.
    reach_ns: Option<u64>,
}

impl Accuracy {
    fn line(&self) -> String {
        let reach = self.reach_ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2} ms", ns as f64 / 1e6));
        format!(
            "{:<9} {:<10} {:>9} {:>5} {:>11} {:>10} {:>7.4} {:>7.4} {:>10} {reach:>10}",
            self.table,
            self.trace,
            show_count(self.records),
            self.pools,
            show_count(self.packets),
            show_count(self.duplicates),
            self.tpr,
            self.fpr,
            show_bytes(self.memory_bytes)
        )
    }
}

/// The speed for one frame length.
#[derive(Debug, Serialize)]
struct Speed {
    program: &'static str,
    frame_bytes: u64,
    records: u64,
    /// Million packets per second on one core.
    mpps: MedianRange,
    /// The share of the packets of a saturated 10 Gb/s link that one core compares.
    share_of_10g: f64,
}

impl Speed {
    fn line(&self) -> String {
        let mpps = format!("{:.2}", self.mpps);
        let share = format!("{:.1} %", self.share_of_10g * 100.0);
        format!("{:<9} {:>6} {:>9} {mpps:>24} {share:>9}", self.program, self.frame_bytes, show_count(self.records))
    }
}

/// Measures and prints the results.
pub fn run(args: &DuplicatesArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "duplicates")?;
    sheet.head("table     trace        records pools     packets duplicates     TPR     FPR     memory      reach")?;
    for (trace, share) in [("A, 32.1 %", 0.321), ("B, 0.014 %", 0.000_14)] {
        let packets = args.packets;
        for records in [1u64, 2, 4, 8, 16, 32].map(|k| k * 1024) {
            let ours = accuracy(trace, &Trace::heavy(packets, share), records)?;
            sheet.row("accuracy", &ours, ours.line())?;
            let mut pools = 1;
            while records / pools >= 1024 {
                let model = accuracy_of_model(trace, &Trace::heavy(packets, share), records, pools);
                sheet.row("accuracy", &model, model.line())?;
                pools *= 2;
            }
        }
    }
    // As many packets as two windows contain, so that the table is full for half of the time.
    let packets = (2.0 * 200e6 / STEP_SATURATED) as u64;
    let saturated = accuracy("14.88 Mpps", &Trace::window(packets, 0.1), args.records)?;
    sheet.row("accuracy", &saturated, saturated.line())?;
    sheet.head("")?;
    sheet.head("program    bytes   records            Mpps (min..max)   of 10G")?;
    let mut ours_64 = None;
    for len in [60u64, 128, 256, 512, 1024, 1514] {
        for records in [32_768, args.records] {
            let row = speed(args, len, records)?;
            if len == 60 && records == 32_768 {
                ours_64 = Some(row.mpps.median);
            }
            sheet.row("speed", &row, row.line())?;
        }
    }
    let Some(ours) = ours_64.filter(|_| !args.no_baselines) else { return Ok(()) };
    let Some(editcap) = find("editcap") else { return sheet.note("editcap is not installed: its row is omitted") };
    let theirs = baseline(args, &editcap)?;
    sheet.row("speed", &theirs, theirs.line())?;
    let ratio = ours / theirs.mpps.median;
    sheet.verdict(format_args!("{ratio:.0} times as fast as editcap -D 1000, which also reads and writes a file"))
}

/// A generated trace: unique datagrams, and copies of some of them.
struct Trace {
    packets: u64,
    share: f64,
    step: f64,
    /// True if the distances have a heavy tail; false if they are uniform in the window of 200 ms.
    is_heavy: bool,
}

/// A packet of a trace: the number of the datagram, and whether the packet is a copy.
#[derive(Clone, Copy)]
struct Planted {
    nanos: u64,
    number: u64,
    is_copy: bool,
}

/// Bytes of a datagram of a trace.
const DATAGRAM: usize = 60;

/// The largest distance of a copy in packets.
const FARTHEST: u64 = 32_000;

impl Trace {
    fn heavy(packets: u64, share: f64) -> Self {
        Self { packets, share, step: STEP_TRACE as f64, is_heavy: true }
    }

    fn window(packets: u64, share: f64) -> Self {
        Self { packets, share, step: STEP_SATURATED, is_heavy: false }
    }

    /// Calls `each` for each packet in order.
    fn each(&self, mut each: impl FnMut(Planted)) {
        let mut prng = Prng::new(1);
        let window = (200e6 / self.step) as u64;
        // The copies that are due at each of the next positions: a ring with the numbers of the datagrams.
        let size = window.max(FARTHEST) as usize + 1;
        let mut due: Vec<Vec<u64>> = vec![Vec::new(); size];
        let mut number = 0;
        let mut position = 0u64;
        while position < self.packets {
            let nanos = (position as f64 * self.step) as u64;
            let slot = (position % size as u64) as usize;
            if let Some(number) = due[slot].pop() {
                if !due[slot].is_empty() {
                    let next = (slot + 1) % size;
                    let rest = std::mem::take(&mut due[slot]);
                    due[next].extend(rest);
                }
                each(Planted { nanos, number, is_copy: true });
            } else {
                each(Planted { nanos, number, is_copy: false });
                // A copy takes the position of a packet, so the share of the originals with a copy is larger.
                if prng.unit() < self.share / (1.0 - self.share) {
                    let distance = if self.is_heavy {
                        // Two thirds follow within 100 packets; the others have a tail with exponent 1.
                        let tail = 100.0 / prng.unit().max(1e-9);
                        if prng.below(3) > 0 { 1 + prng.below(100) } else { (tail as u64).clamp(1, FARTHEST) }
                    } else {
                        1 + prng.below(window - 1)
                    };
                    due[((position + distance) % size as u64) as usize].push(number);
                }
                number += 1;
            }
            position += 1;
        }
    }
}

/// Writes a datagram that no other number has.
fn datagram(number: u64, bytes: &mut [u8]) {
    let source = (0x0a00_0000 | (number >> 4) as u32 & 0xff_ffff).to_be_bytes();
    let id = (number % 65_535) as u16 + 1;
    let payload = number.to_be_bytes();
    Frame::udp4(source, 4000, [10, 255, 0, 1], 53).fragment(id, 0, false).payload(&payload).fill(bytes);
}

/// The true and false positives.
#[derive(Default)]
struct Positives {
    planted: u64,
    others: u64,
    found: u64,
    wrong: u64,
}

impl Positives {
    fn add(&mut self, is_copy: bool, is_reported: bool) {
        self.planted += u64::from(is_copy);
        self.others += u64::from(!is_copy);
        self.found += u64::from(is_copy && is_reported);
        self.wrong += u64::from(!is_copy && is_reported);
    }

    fn rates(&self) -> (f64, f64) {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        (share(self.found, self.planted), share(self.wrong, self.others))
    }
}

/// The accuracy of netgrain's table.
fn accuracy(name: &'static str, trace: &Trace, records: u64) -> Result<Accuracy, Stop> {
    let settings = Settings { records: records as usize, window: WINDOW_HPCAP, ..Settings::default() };
    let memory_bytes = settings.memory();
    let mut detector = Detector::with_hints(settings, 1, MemoryHints).map_err(Stop::error)?;
    let mut positives = Positives::default();
    trace.each(|planted| {
        let mut data = [0; DATAGRAM];
        datagram(planted.number, &mut data);
        let ts = Timestamp::from_nanos(planted.nanos);
        let packet = Packet { ts, data: &data, wire_len: DATAGRAM as u32, link_type: link::ETHERNET, interface: 0 };
        positives.add(planted.is_copy, detector.inspect(&packet).is_some());
    });
    let (tpr, fpr) = positives.rates();
    Ok(Accuracy {
        table: "netgrain",
        trace: name,
        records,
        pools: 1,
        packets: trace.packets,
        duplicates: positives.planted,
        tpr,
        fpr,
        memory_bytes,
        reach_ns: u64::try_from(detector.reach().as_nanos()).ok(),
    })
}

/// Bytes of a record of HPCAP: 70 bytes, length and timestamp.
const HPCAP_RECORD: u64 = 80;

/// The accuracy of the model of HPCAP's table (thesis section 4.4).
fn accuracy_of_model(name: &'static str, trace: &Trace, records: u64, pools: u64) -> Accuracy {
    let rows = (records / pools).max(1);
    // The content of a record is the number of its datagram, which is different in different datagrams.
    let mut table = vec![None; (rows * pools) as usize];
    let mut positives = Positives::default();
    trace.each(|planted| {
        // The hash of HPCAP covers the addresses and ports; here the datagrams have different addresses.
        let row = (hash::mix64(planted.number) % rows) as usize;
        let row: &mut [Option<(u64, u64)>] = &mut table[row * pools as usize..(row + 1) * pools as usize];
        let is_equal = |record: &&Option<(u64, u64)>| {
            record.is_some_and(|(number, nanos)| number == planted.number && planted.nanos - nanos <= 200_000_000)
        };
        positives.add(planted.is_copy, row.iter().any(|record| is_equal(&record)));
        let oldest = row.iter_mut().min_by_key(|record| record.map_or(0, |(_, nanos)| nanos + 1));
        if let Some(oldest) = oldest {
            *oldest = Some((planted.number, planted.nanos));
        }
    });
    let (tpr, fpr) = positives.rates();
    let (duplicates, memory_bytes) = (positives.planted, records * HPCAP_RECORD);
    Accuracy {
        table: "HPCAP",
        trace: name,
        records,
        pools,
        packets: trace.packets,
        duplicates,
        tpr,
        fpr,
        memory_bytes,
        reach_ns: None,
    }
}

/// Packets per second of a saturated 10 Gb/s link: preamble, frame check sequence and gap add 24 bytes.
fn line_rate(len: u64) -> f64 {
    10e9 / ((len + 24) * 8) as f64
}

/// Packets in memory for a measurement of speed: 256 MiB.
fn speed_packets(len: u64) -> u64 {
    (256 << 20) / len.max(64)
}

fn arena(len: u64) -> Vec<u8> {
    let packets = speed_packets(len);
    let mut bytes = Vec::with_capacity((packets * len) as usize);
    let room = bytes.spare_capacity_mut().as_ptr_range();
    sys::memory::prefer_huge_pages(room.start.cast()..room.end.cast());
    bytes.resize((packets * len) as usize, 0);
    for (number, frame) in (0..).zip(bytes.chunks_mut(len as usize)) {
        datagram(number, frame);
    }
    bytes
}

/// Measures packets in memory, without duplicates.
fn speed(args: &DuplicatesArgs, len: u64, records: u64) -> Result<Speed, Stop> {
    let bytes = arena(len);
    let settings = Settings { records: records as usize, window: WINDOW_HPCAP, ..Settings::default() };
    let mut detector = Detector::with_hints(settings, 1, MemoryHints).map_err(Stop::error)?;
    let (mut nanos, mut mpps) = (0, Vec::new());
    let step = (1e9 / line_rate(len)) as u64;
    for run in 0..=args.repeat {
        let mut found = 0;
        let begun = Instant::now();
        for chunk in bytes.chunks(len as usize * BATCH) {
            let packet = |data| {
                nanos += step;
                let ts = Timestamp::from_nanos(nanos);
                Packet { ts, data, wire_len: len as u32, link_type: link::ETHERNET, interface: 0 }
            };
            let packets: Vec<Packet<'_>> = chunk.chunks(len as usize).map(packet).collect();
            detector.inspect_batch(&packets, |_, duplicate| found += u64::from(duplicate.is_some()));
        }
        let elapsed = begun.elapsed();
        if found > 0 {
            return Err(Stop::error(format_args!(
                "{found} unique packets are reported as duplicates; please report this"
            )));
        }
        // The first run accesses the memory of the table for the first time. A detector that has run for a while does
        // not have this cost.
        if run > 0 {
            mpps.push(speed_packets(len) as f64 / elapsed.as_secs_f64() / 1e6);
        }
        // The packets of the next run are not in the window of this run.
        nanos += Duration::from_secs(1).as_nanos() as u64;
    }
    let mpps = MedianRange::of(mpps);
    let share_of_10g = (mpps.median * 1e6 / line_rate(len)).min(1.0);
    Ok(Speed { program: "netgrain", frame_bytes: len, records, mpps, share_of_10g })
}

/// Packets of the file that editcap reads.
const BASELINE_PACKETS: u64 = 200_000;

/// Measures `editcap -D 1000` on a file of the same packets.
fn baseline(args: &DuplicatesArgs, editcap: &std::path::Path) -> Result<Speed, Stop> {
    let work = ScratchDir::below(&args.dir)?;
    let (file, out) = (work.path().join("in.pcap"), work.path().join("out.pcap"));
    let writer = BufWriter::new(File::create(&file).map_err(Stop::error)?);
    let mut writer = pcap::classic::Writer::new(writer, pcap::classic::Resolution::Nanos, link::ETHERNET)?;
    for number in 0..BASELINE_PACKETS {
        let mut data = [0; DATAGRAM];
        datagram(number, &mut data);
        writer.write(Timestamp::from_secs_nanos(1_700_000_000, number * 67), DATAGRAM as u32, &data)?;
    }
    writer.finish().and_then(|mut out| out.flush())?;
    let mut mpps = Vec::new();
    for _ in 0..args.repeat {
        let mut command = Command::new(editcap);
        command.args(["-D", "1000"]).arg(&file).arg(&out);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let status = command.status().map_err(|e| Stop::error(format_args!("editcap: {e}")))?;
        if !status.success() {
            return Err(Stop::error(format_args!("editcap failed: {status}")));
        }
        mpps.push(BASELINE_PACKETS as f64 / begun.elapsed().as_secs_f64() / 1e6);
    }
    let (mpps, frame_bytes) = (MedianRange::of(mpps), DATAGRAM as u64);
    let share_of_10g = (mpps.median * 1e6 / line_rate(frame_bytes)).min(1.0);
    Ok(Speed { program: "editcap", frame_bytes, records: 1000, mpps, share_of_10g })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_the_stated_share_of_copies_after_their_originals() {
        let trace = Trace::heavy(100_000, 0.321);
        let (mut next, mut copies, mut packets) = (0, 0, 0);
        trace.each(|planted| {
            packets += 1;
            if planted.is_copy {
                copies += 1;
                assert!(planted.number < next);
            } else {
                assert_eq!(planted.number, next);
                next += 1;
            }
        });
        assert_eq!(packets, 100_000);
        assert!((30_000..34_000).contains(&copies), "{copies}");
    }

    #[test]
    fn larger_tables_find_more_and_no_table_reports_another_packet() {
        let mut before = 0.0;
        for records in [1024, 4096, 32_768] {
            let ours = accuracy("A", &Trace::heavy(150_000, 0.321), records).unwrap();
            assert!(ours.tpr > before && ours.fpr == 0.0, "{ours:?}");
            before = ours.tpr;
            assert_eq!(accuracy_of_model("A", &Trace::heavy(150_000, 0.321), records, 1).fpr, 0.0);
        }
        assert_eq!(before, 1.0);
    }
}
