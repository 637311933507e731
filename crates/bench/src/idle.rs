//! Measures the memory of idle flows: many conversations of twenty packets each begin one after the other and end
//! within seconds, so that the flow table then contains only idle flows. The measurement is repeated without
//! compression of idle flows ([`flow::Config::compress_after`]), and the time to compress and to decompress a flow is
//! measured.
//!
//! The packets are requests, replies in full segments, and acknowledgements. Packets of a burst are microseconds apart,
//! and the bursts as far apart as network latency or user input makes them. Each fifth conversation has a
//! retransmission, each fourth is IPv6.

use crate::output::{Output, Stop};
use base::units::show_count;
use base::{Prng, Timestamp};
use flow::{Config, Meter, Packet, Record, Sink};
use meter::MemoryHints;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};
use wire::tcp_flags::{ACK, PSH, SYN};
use wire::{Decoded, MacAddr, build::Frame, link};

/// Packets of a conversation.
const PACKETS: u32 = 20;
/// Nanoseconds within which all conversations begin.
const SPAN: u64 = 60_000_000_000;
const START: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// Greatest number of header bytes of a frame.
const HEADERS: usize = 74;
/// Packets that are metered together.
const BATCH: usize = 256;

/// The results.
#[derive(Debug, Serialize)]
struct Row {
    flows: u64,
    compressed: u64,
    /// `held` is the number of allocated bytes per flow, including all overhead. `touched` is the number of bytes per
    /// flow that were accessed at least once.
    held: f64,
    touched: f64,
    /// The values of `held` and `touched` if idle flows are not compressed.
    held_uncompressed: f64,
    touched_uncompressed: f64,
    /// The three fields are the nanoseconds to compress a flow, to process a packet of a compressed flow, and to
    /// process a packet of an uncompressed flow.
    compress_ns: f64,
    decompress_ns: f64,
    packet_ns: f64,
}

/// Measures and prints the results.
pub fn run(flows: u64, sheet: &mut Output<'_>) -> Result<(), Stop> {
    let count = u32::try_from(flows)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| Stop::error("--idle: the number of flows must be from 1 to 4294967295"))?;
    let uncompressed_meter = meter(count, Duration::ZERO);
    let uncompressed = uncompressed_meter.counts();
    drop(uncompressed_meter);
    let mut meter = meter(count, Duration::from_secs(5));
    let mut now = (START + SPAN) / SECOND + 30;
    let (before, begun) = (meter.counts().compressed, Instant::now());
    // Number of ticks after which all flows are compressed: the engine makes one tick each second.
    for _ in 0..12 {
        now += 1;
        (0..flows / 1000 + 1).for_each(|_| meter.tick(Timestamp::from_nanos(now * SECOND), &mut DiscardSink));
    }
    let elapsed = begun.elapsed().as_secs_f64();
    let compressed_counts = meter.counts();
    let (decompress, packet) =
        (meter_packet_of_each(&mut meter, count, now), meter_packet_of_each(&mut meter, count, now + 1));
    if (compressed_counts.active, meter.counts().compressed) != (flows, 0) {
        return Err(Stop::error(format_args!(
            "{flows} flows began and {} are in the table; please report this",
            compressed_counts.active
        )));
    }
    let each = |bytes: u64| bytes as f64 / flows as f64;
    let row = Row {
        flows,
        compressed: compressed_counts.compressed,
        held: each(compressed_counts.held),
        touched: each(compressed_counts.bytes),
        held_uncompressed: each(uncompressed.held),
        touched_uncompressed: each(uncompressed.bytes),
        compress_ns: elapsed * 1e9 / (compressed_counts.compressed - before).max(1) as f64,
        decompress_ns: decompress,
        packet_ns: packet,
    };
    let text = format!(
        "{} idle flows of {PACKETS} packets, {} compressed: {:.0} bytes per flow ({:.0} touched); without compression \
         {:.0} ({:.0})\n\
         compressing {:.0} ns per flow; a packet of a compressed flow {:.0} ns, of an uncompressed flow {:.0} ns",
        show_count(flows),
        show_count(row.compressed),
        row.held,
        row.touched,
        row.held_uncompressed,
        row.touched_uncompressed,
        row.compress_ns,
        row.decompress_ns,
        row.packet_ns,
    );
    sheet.row("idle", &row, text)
}

/// Returns a meter whose flow table contains all flows, none of which had a packet for some seconds.
fn meter(count: u32, compress_after: Duration) -> Meter<MemoryHints> {
    let idle = Duration::from_secs(3600);
    let config = Config {
        idle_timeout: idle,
        close_timeout: idle,
        active_timeout: None,
        compress_after,
        capacity: count as usize,
        ..Config::default()
    };
    let mut meter = Meter::with_hints(config, 0, MemoryHints);
    let mut prng = Prng::new(1);
    let mut states: Vec<State> = vec![State::default(); count as usize];
    let mut next: BinaryHeap<Reverse<(u64, u32)>> =
        (0..count).map(|n| Reverse((START + SPAN / u64::from(count) * u64::from(n), n))).collect();
    let mut batch = Batch::default();
    while let Some(Reverse((ts, n))) = next.pop() {
        let state = &mut states[n as usize];
        batch.add(n, state, ts, &mut prng);
        if state.packets < PACKETS {
            let spread = [20_000, 40_000_000, 400_000_000][prng.below(3) as usize];
            next.push(Reverse((ts + prng.below(spread), n)));
        }
        if batch.count == BATCH || next.is_empty() {
            batch.meter_batch(&mut meter);
        }
    }
    meter
}

/// Meters another packet of every flow in this second; returns nanoseconds per packet.
fn meter_packet_of_each(meter: &mut Meter<MemoryHints>, count: u32, second: u64) -> f64 {
    let (mut prng, mut batch, mut elapsed) = (Prng::new(2), Batch::default(), Duration::ZERO);
    for n in 0..count {
        // The sequence numbers of the conversation are no longer stored, and are not needed, because the packet has no
        // payload.
        batch.add(n, &mut State { packets: PACKETS, ..State::default() }, second * SECOND, &mut prng);
        if batch.count == BATCH || n == count - 1 {
            let begun = Instant::now();
            batch.meter_batch(meter);
            elapsed += begun.elapsed();
        }
    }
    elapsed.as_secs_f64() * 1e9 / f64::from(count)
}

/// Progress of a conversation.
#[derive(Clone, Copy, Default)]
struct State {
    packets: u32,
    next: [u32; 2],
    burst: u8,
}

/// Frames that are metered together.
struct Batch {
    frames: [[u8; HEADERS]; BATCH],
    /// Timestamp and wire length of each frame.
    timestamps: [(u64, u32); BATCH],
    decoded: [Decoded; BATCH],
    count: usize,
    position: u64,
}

impl Default for Batch {
    fn default() -> Self {
        let (frames, timestamps, decoded) = ([[0; HEADERS]; BATCH], [(0, 0); BATCH], [Decoded::default(); BATCH]);
        Self { frames, timestamps, decoded, count: 0, position: 24 }
    }
}

impl Batch {
    /// Adds the next packet of a conversation.
    fn add(&mut self, n: u32, state: &mut State, ts: u64, prng: &mut Prng) {
        let direction = match state.packets {
            0 | 2 | PACKETS => 0,
            1 => 1,
            _ if state.burst > 0 => 1,
            _ => usize::from(prng.below(3) > 0),
        };
        state.burst = if state.burst > 0 { state.burst - 1 } else { prng.below(4) as u8 };
        let payload = match (state.packets, direction) {
            (0..3 | PACKETS, _) => 0,
            (_, 0) => [0, 0, 100 + prng.below(500) as u32][prng.below(3) as usize],
            _ => [0, 1448, 1448, 1448, prng.below(1448) as u32][prng.below(5) as usize],
        };
        let flags = match state.packets {
            0 => SYN,
            1 => SYN | ACK,
            _ if payload > 0 && payload < 1448 => ACK | PSH,
            _ => ACK,
        };
        let is_retransmission = n.is_multiple_of(5) && payload > 0 && prng.below(6) == 0;
        let next = &mut state.next[direction];
        let seq = if is_retransmission { next.wrapping_sub(payload) } else { *next };
        *next = seq.wrapping_add(payload + u32::from(flags & SYN != 0));
        state.packets += 1;
        let ports = (1024 + (n % 60_000) as u16, 443);
        let (client, server) = (0x0a00_0000 + n, 0xac10_0000 + n % 5000);
        let frame = if n % 4 == 3 {
            let v6 = |host: u32| Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(host));
            let (client, server) = (v6(client), v6(server));
            match direction {
                0 => Frame::tcp6(client, ports.0, server, ports.1),
                _ => Frame::tcp6(server, ports.1, client, ports.0),
            }
        } else {
            match direction {
                0 => Frame::tcp4(client, ports.0, server, ports.1),
                _ => Frame::tcp4(server, ports.1, client, ports.0),
            }
        };
        let (client_mac, server_mac) = (MacAddr([2, 0, 0, 0, 1, (n % 50) as u8]), MacAddr([2, 0, 0, 0, 2, 1]));
        let frame =
            if direction == 0 { frame.macs(client_mac, server_mac) } else { frame.macs(server_mac, client_mac) }
                .tcp(flags, seq, 0);
        let headers = frame.header_len();
        let bytes = &mut self.frames[self.count];
        frame.fill(&mut bytes[..headers]);
        // The IP length field counts the payload, although the captured bytes end after the headers.
        let (at, reported) = if n % 4 == 3 { (18, headers - 54) } else { (16, headers - 14) };
        bytes[at..at + 2].copy_from_slice(&(reported as u16 + payload as u16).to_be_bytes());
        self.timestamps[self.count] = (ts, headers as u32 + payload);
        self.count += 1;
    }

    fn meter_batch(&mut self, meter: &mut Meter<MemoryHints>) {
        let all = self.frames.iter().zip(&self.timestamps).zip(&mut self.decoded).take(self.count);
        let mut packets = Vec::with_capacity(BATCH);
        for ((data, &(ts, wire_len)), decoded) in all {
            decoded.read(data, wire_len, link::ETHERNET);
            let ts = Timestamp::from_nanos(ts);
            packets.push(Packet { ts, wire_len, data, decoded, position: self.position, queue: 0 });
            self.position += 16 + u64::from(wire_len);
        }
        meter.push(&packets, &mut DiscardSink);
        self.count = 0;
    }
}

/// Discards records; none are expected, because the meter makes no record while a flow is active.
struct DiscardSink;

impl Sink for DiscardSink {
    fn record(&mut self, _: &Record) {}
}
