//! Measures flow metering alone: decodes and meters packets from memory on one core, with all fields of the flow
//! records. Other meters, which read the same packets from a file, are measured for comparison.
//!
//! The packets are in memory as in a pcap file, headers only. The cost of a packet consists of reading its record
//! header, decoding, and updating the flow table. The other meters read the same file from the page cache; their output
//! is discarded.

use crate::conversations::{ConversationModel, SNAPLEN};
use crate::idle;
use crate::output::{MedianRange, Output, Stop};
use crate::process::find;
use crate::volume::ScratchDir;
use base::Timestamp;
use base::units::{show_bytes, show_count};
use clap::Args;
use flow::{Config, Meter, Packet, Record, Sink};
use meter::MemoryHints;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use wire::Decoded;

/// Number of packets that are decoded and then metered together, as in the engine.
const BATCH: usize = 256;

/// Number of frames of the flood; each round repeats them with other source addresses.
const FLOOD: usize = 1 << 20;

/// Flags of `netgrain-bench flow`.
#[derive(Args, Clone, Debug)]
pub struct FlowArgs {
    /// Capture file (nanosecond or microsecond pcap) to read instead of generated conversations
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Packets to generate
    #[arg(long, value_name = "N", default_value = "4M", value_parser = base::units::parse_count)]
    pub packets: u64,
    /// Concurrent conversations among them
    #[arg(
        long,
        value_name = "LIST",
        default_value = "200k,2M",
        value_delimiter = ',',
        value_parser = base::units::parse_count
    )]
    pub conversations: Vec<u64>,
    /// Number of runs for each meter and load; the output shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = base::units::whole::<u32>(1..=1000))]
    pub repeat: u32,
    /// Directory for the file that the other meters read; the file is removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Omit nfpcapd, softflowd and argus
    #[arg(long)]
    pub no_baselines: bool,
    /// Measure only the memory of N idle flows of 20 packets, and the time to compress and decompress them
    #[arg(long, value_name = "N", value_parser = base::units::parse_count)]
    pub idle: Option<u64>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

impl FlowArgs {
    /// The greatest number of conversations. The benchmark assumes that a capture file has no more than these.
    fn most_conversations(&self) -> usize {
        self.conversations.iter().max().map_or(0, |most| *most as usize)
    }
}

/// The result of one meter for one load.
#[derive(Debug, Serialize)]
struct Row {
    meter: &'static str,
    traffic: String,
    packets: u64,
    records: Option<u64>,
    mpps: MedianRange,
    /// Bytes of memory (tables and pools) divided by the number of flows that were active at the end.
    bytes_per_flow: Option<f64>,
}

impl Row {
    fn line(&self) -> String {
        let records = self.records.map_or_else(|| "-".to_owned(), show_count);
        let bytes = self.bytes_per_flow.map_or_else(|| "-".to_owned(), |b| format!("{b:.0}"));
        let mpps = format!("{:.2}", self.mpps);
        format!(
            "{:<10} {:<24} {:>12} {mpps:>22} {records:>12} {bytes:>11}",
            self.meter,
            self.traffic,
            show_count(self.packets)
        )
    }
}

/// Measures all loads and prints the results.
pub fn run(args: &FlowArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let mut sheet = Output::begin(out, args.json, "flow")?;
    if let Some(flows) = args.idle {
        return idle::run(flows, &mut sheet);
    }
    let work = ScratchDir::below(&args.dir)?;
    sheet.head(format_args!(
        "packets of {SNAPLEN} bytes in memory -> decoded, metered (bidirectional, full record), one core; {} runs, \
         medians",
        args.repeat
    ))?;
    sheet.head("meter      traffic                       packets        Mpps (min..max)      records  bytes/flow")?;
    match &args.file {
        Some(file) => compare(args, file, args.most_conversations(), &file.display().to_string(), &mut sheet)?,
        None => {
            for conversations in &args.conversations {
                let conversations = u32::try_from(*conversations).map_err(|_| Stop::error("too many conversations"))?;
                let file = work.path().join("talk.pcap");
                let packets = args.packets.max(2 * u64::from(conversations));
                let conversation_model =
                    ConversationModel { packets, conversations, step: 20_000_000_000 / packets, seed: 1 };
                conversation_model.write(BufWriter::new(File::create(&file).map_err(Stop::error)?))?;
                compare(
                    args,
                    &file,
                    conversations as usize,
                    &format!("{} conversations", show_count(conversations.into())),
                    &mut sheet,
                )?;
            }
            flood(args, &mut sheet)?;
        }
    }
    Ok(())
}

/// Measures one capture with our meter, then with the other meters.
fn compare(args: &FlowArgs, file: &Path, most: usize, traffic: &str, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let memory = Memory::load(file)?;
    let mut mpps = Vec::new();
    let mut counted = Counted::default();
    let mut bytes_per_flow = None;
    // The flow table has space for a quarter more flows than the capture contains, and at least the default capacity.
    let usual = Config::default();
    let capacity = usual.capacity.max(most * 5 / 4);
    let mut meter = Meter::with_hints(Config { capacity, ..usual }, 0, MemoryHints);
    for run in 0..=args.repeat {
        counted = Counted::default();
        let others = meter.counts().other;
        let begun = Instant::now();
        memory.meter(&mut meter, &mut counted);
        let counts = meter.counts();
        meter.finish(&mut counted);
        let elapsed = begun.elapsed();
        // The first run is not counted, because it accesses the memory of the flow table for the first time. A meter
        // that has run for a while does not have this cost.
        if run > 0 {
            mpps.push(memory.packets as f64 / elapsed.as_secs_f64() / 1e6);
        } else {
            bytes_per_flow = (counts.active > 0).then(|| counts.bytes as f64 / counts.active as f64);
        }
        let others = counts.other - others;
        if counted.packets + others != memory.packets {
            return Err(Stop::error(format_args!(
                "{} packets were metered, but {} are in flow records and {others} were not IP; please report this",
                memory.packets, counted.packets
            )));
        }
    }
    let ours = Row {
        meter: "netgrain",
        traffic: traffic.to_owned(),
        packets: memory.packets,
        records: Some(counted.records),
        mpps: MedianRange::of(mpps),
        bytes_per_flow,
    };
    sheet.row("flow", &ours, ours.line())?;
    let mut best: Option<Row> = None;
    for name in ["nfpcapd", "softflowd", "argus"].into_iter().filter(|_| !args.no_baselines) {
        let Some(program) = find(name) else {
            sheet.note(format_args!("{name} is not installed: its row is omitted"))?;
            continue;
        };
        let mut mpps = Vec::new();
        for _ in 0..args.repeat {
            let seconds = baseline(name, &program, file, &args.dir)?;
            mpps.push(memory.packets as f64 / seconds / 1e6);
        }
        let row = Row {
            meter: name,
            traffic: traffic.to_owned(),
            packets: memory.packets,
            records: None,
            mpps: MedianRange::of(mpps),
            bytes_per_flow: None,
        };
        sheet.row("flow", &row, row.line())?;
        if best.as_ref().is_none_or(|b| b.mpps.median < row.mpps.median) {
            best = Some(row);
        }
    }
    let Some(best) = best else { return Ok(()) };
    let ratio = ours.mpps.median / best.mpps.median;
    sheet.verdict(format_args!("{traffic}: {ratio:.1} times as fast as {}, the fastest other meter", best.meter))
}

/// Each packet is the first of a new flow, and the table is full.
fn flood(args: &FlowArgs, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let capacity = 1 << 20;
    let mut frames = Vec::with_capacity(FLOOD);
    for i in 0..FLOOD as u32 {
        let mut bytes = [0; 54];
        wire::build::Frame::tcp4(i, 1, [10, 0, 0, 1], 80).tcp(wire::tcp_flags::SYN, i, 0).fill(&mut bytes);
        frames.push(bytes);
    }
    let mut mpps = Vec::new();
    let (mut records, mut grown) = (0, 0);
    let rounds = args.packets.div_ceil(FLOOD as u64).max(2);
    for _ in 0..args.repeat {
        let mut counted = Counted::default();
        let mut meter = Meter::with_hints(Config { capacity, ..Config::default() }, 0, MemoryHints);
        let mut ts = Timestamp::from_secs_nanos(1_700_000_000, 0);
        let (mut elapsed, mut full) = (0.0, 0);
        for round in 0..rounds + 1 {
            for (i, frame) in frames.iter_mut().enumerate() {
                // The first octet is the number of the round, so that no source address repeats.
                frame[26..30].copy_from_slice(&((round as u32) << 24 | i as u32).to_be_bytes());
            }
            let begun = Instant::now();
            let mut decoded = [Decoded::default(); BATCH];
            for batch in frames.chunks(BATCH) {
                let mut packets = Vec::with_capacity(BATCH);
                for (decoded, data) in decoded.iter_mut().zip(batch) {
                    decoded.read(data, 60, wire::link::ETHERNET);
                    packets.push(Packet { ts, wire_len: 60, data, decoded, position: 0, queue: 0 });
                    ts = Timestamp::from_nanos(ts.nanos() + 200);
                }
                meter.push(&packets, &mut counted);
            }
            // The first round fills the flow table and is not counted.
            if round == 0 {
                full = meter.counts().bytes;
            } else {
                elapsed += begun.elapsed().as_secs_f64();
            }
        }
        grown = meter.counts().bytes - full;
        meter.finish(&mut counted);
        let offered = (rounds + 1) * FLOOD as u64;
        if counted.packets != offered {
            return Err(Stop::error(format_args!(
                "{offered} packets were metered, but {} are in flow records; please report this",
                counted.packets
            )));
        }
        records = counted.records;
        mpps.push((rounds * FLOOD as u64) as f64 / elapsed / 1e6);
    }
    let row = Row {
        meter: "netgrain",
        traffic: format!("flood, table of {}", show_count(capacity as u64)),
        packets: rounds * FLOOD as u64,
        records: Some(records),
        mpps: MedianRange::of(mpps),
        bytes_per_flow: None,
    };
    sheet.row("flow", &row, row.line())?;
    sheet.verdict(format_args!(
        "flood: after the table was full, memory grew by {}; every packet is in a record",
        show_bytes(grown)
    ))
}

/// A classic pcap file in memory.
struct Memory {
    bytes: Vec<u8>,
    link_type: u16,
    packets: u64,
    /// Nanoseconds per unit of the timestamp's fraction.
    unit: u32,
}

impl Memory {
    const FILE_HEADER: usize = 24;
    const RECORD_HEADER: usize = 16;

    fn load(path: &Path) -> Result<Self, Stop> {
        let fail = |what: &dyn std::fmt::Display| Stop::error(format_args!("{}: {what}", path.display()));
        let mut file = File::open(path).map_err(|e| fail(&e))?;
        let mut bytes = Vec::with_capacity(file.metadata().map_err(|e| fail(&e))?.len() as usize + 1);
        // The packet bytes use huge pages, as the memory of the ring does.
        let room = bytes.spare_capacity_mut().as_ptr_range();
        sys::memory::prefer_huge_pages(room.start.cast()..room.end.cast());
        file.read_to_end(&mut bytes).map_err(|e| fail(&e))?;
        let unit = match bytes.first_chunk::<4>() {
            Some([0x4d, 0x3c, 0xb2, 0xa1]) => 1,
            Some([0xd4, 0xc3, 0xb2, 0xa1]) => 1000,
            _ => return Err(fail(&"the file is not little-endian pcap; convert it with netgrain convert")),
        };
        let mut memory = Self { bytes, link_type: 0, packets: 0, unit };
        memory.link_type = memory.word(20) as u16;
        let mut at = Self::FILE_HEADER;
        while at + Self::RECORD_HEADER <= memory.bytes.len() {
            at += Self::RECORD_HEADER + memory.word(at + 8) as usize;
            memory.packets += 1;
        }
        if at != memory.bytes.len() {
            return Err(fail(&"the file ends within a record"));
        }
        Ok(memory)
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        self.bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
    }

    /// Passes all packets through a meter; the packets' timestamps advance the meter's clock.
    fn meter(&self, meter: &mut Meter<MemoryHints>, sink: &mut Counted) {
        let mut at = Self::FILE_HEADER;
        let mut decoded = [Decoded::default(); BATCH];
        while at < self.bytes.len() {
            let mut packets = Vec::with_capacity(BATCH);
            for decoded in &mut decoded {
                let Some((record, rest)) = self.bytes[at..].split_first_chunk::<{ Self::RECORD_HEADER }>() else {
                    break;
                };
                let word = |i: usize| u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
                let ts = Timestamp::from_secs_nanos(word(0).into(), u64::from(word(4) * self.unit));
                let (wire_len, data) = (word(12), &rest[..word(8) as usize]);
                decoded.read(data, wire_len, self.link_type);
                packets.push(Packet { ts, wire_len, data, decoded, position: at as u64, queue: 0 });
                at += Self::RECORD_HEADER + data.len();
            }
            meter.push(&packets, sink);
        }
    }
}

/// A sink that counts the records and retains none.
#[derive(Default)]
struct Counted {
    records: u64,
    packets: u64,
}

impl Sink for Counted {
    fn record(&mut self, record: &Record) {
        self.records += 1;
        self.packets += record.packets();
    }
}

/// Seconds that another meter takes for a file.
fn baseline(name: &str, program: &Path, file: &Path, dir: &Path) -> Result<f64, Stop> {
    let mut command = Command::new(program);
    let out = dir.join("baseline-flows");
    match name {
        "nfpcapd" => {
            std::fs::create_dir_all(&out).map_err(Stop::error)?;
            command.arg("-r").arg(file).arg("-l").arg(&out).args(["-s", "1514"])
        }
        // softflowd exports to a port without a collector.
        "softflowd" => command.arg("-r").arg(file).args(["-n", "127.0.0.1:9", "-v", "9", "-m", "4000000", "-d"]),
        _ => command.arg("-r").arg(file).args(["-w", "/dev/null"]),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status().map_err(|e| Stop::error(format_args!("{name}: {e}")))?;
    let seconds = begun.elapsed().as_secs_f64();
    let _ = std::fs::remove_dir_all(&out);
    if !status.success() {
        return Err(Stop::error(format_args!("{name} failed: {status}")));
    }
    Ok(seconds)
}
