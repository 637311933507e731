//! The time per packet of the flow table, including decoding, and the memory per flow: `cargo bench -p netgrain-flow`.
//! Packets are headers in memory, as in a capture with a small snaplen. Each load runs three times; the median is
//! printed. `cargo bench -p netgrain-flow -- 200k` runs the loads whose name contains the argument.
//!
//! The meters of this benchmark have no memory hints (`flow::Hints`), so the core waits for every cache miss. This
//! benchmark compares versions of the flow table. `netgrain-bench flow` measures the engine with hints.

use base::{Prng, Timestamp};
use netgrain_flow::{Config, EndReason, Meter, Packet, Record, Sink};
use std::time::Instant;
use wire::tcp_flags::{ACK, PSH, SYN};
use wire::{Decoded, build::Frame, link};

/// Captured bytes of each packet: the headers of Ethernet, IPv4 and TCP.
const SNAP: usize = 54;
/// Packets per batch: decoded together, then metered together.
const BATCH: usize = 64;

/// A sink that only counts records and their packets, so that its cost is small.
#[derive(Default)]
struct Count {
    records: u64,
    packets: u64,
}

impl Sink for Count {
    fn record(&mut self, record: &Record) {
        self.records += 1;
        self.packets += record.packets();
    }
}

/// Generates the packets of the benchmark load that has this name.
type Make = fn(&'static str) -> Load;

struct Load {
    name: &'static str,
    capacity: usize,
    frames: Vec<[u8; SNAP]>,
    /// Nanoseconds between packets.
    step: u64,
}

fn main() {
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    println!(
        "{:<44} {:>6} {:>9} {:>10} {:>10} {:>8} {:>10}",
        "load", "Mpps", "ns/packet", "records", "flows", "B/flow", "lack"
    );
    let loads: [(&str, Make); 4] = [
        ("4 M packets, 200k conversations", |n| talk(n, 4_000_000, 200_000)),
        ("4 M packets, 2M flows at once", |n| talk(n, 4_000_000, 2_000_000)),
        ("SYN flood, 4 M packets, full 200k-flow table", flood),
        ("200k flows, packets per flow as in a network", mix),
    ];
    for (name, load) in loads.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        run(&load(name));
    }
}

fn run(load: &Load) {
    let mut times = Vec::new();
    let (mut count, mut counts) = (Count::default(), Default::default());
    for _ in 0..3 {
        count = Count::default();
        let mut meter = Meter::new(Config { capacity: load.capacity, ..Config::default() }, 0);
        let start = Instant::now();
        meter_all(load, &mut meter, &mut count);
        times.push(start.elapsed().as_nanos() as f64 / load.frames.len() as f64);
        counts = meter.counts();
        meter.finish(&mut count);
    }
    assert_eq!(count.packets, load.frames.len() as u64, "every packet is in a record");
    times.sort_by(f64::total_cmp);
    let (ns, flows) = (times[1], counts.active);
    let (bytes, lack) = (counts.bytes / flows.max(1), counts.records[EndReason::LackOfResources as usize]);
    let mpps = 1000.0 / ns;
    println!("{:<44} {mpps:>6.2} {ns:>9.1} {:>10} {flows:>10} {bytes:>8} {lack:>10}", load.name, count.records);
}

fn meter_all(load: &Load, meter: &mut Meter, count: &mut Count) {
    let mut decoded = [Decoded::default(); BATCH];
    let mut ts = 1_700_000_000_000_000_000;
    for (n, frames) in load.frames.chunks(BATCH).enumerate() {
        for (decoded, frame) in decoded.iter_mut().zip(frames) {
            *decoded = Decoded::of(frame, length(frame), link::ETHERNET);
        }
        let mut packets: [Packet; BATCH] = std::array::from_fn(|i| Packet {
            ts: Timestamp::from_nanos(ts + i as u64 * load.step),
            wire_len: 0,
            data: &[],
            decoded: &decoded[i],
            position: (n * BATCH + i) as u64 * (16 + SNAP as u64),
            queue: 0,
        });
        for (packet, frame) in packets.iter_mut().zip(frames) {
            (packet.data, packet.wire_len) = (frame, length(frame));
        }
        ts += BATCH as u64 * load.step;
        meter.push(&packets[..frames.len()], count);
    }
}

/// Bytes of the whole frame, of which only the headers are in memory.
fn length(frame: &[u8; SNAP]) -> u32 {
    14 + u32::from(u16::from_be_bytes([frame[16], frame[17]]))
}

/// One packet of a conversation.
fn frame(conversation: u64, back: bool, flags: u8, seq: u32, payload: u16) -> [u8; SNAP] {
    let (client, server) = (0x0a00_0000 | (conversation >> 8) as u32, 0xc0a8_0000 | (conversation % 977) as u32);
    let port = 1024 + (conversation & 0xff) as u16 * 200 + (conversation % 199) as u16;
    let frame = if back { Frame::tcp4(server, 443, client, port) } else { Frame::tcp4(client, port, server, 443) };
    let mut bytes = [0; SNAP];
    frame.tcp(flags, seq, 0).fill(&mut bytes);
    bytes[16..18].copy_from_slice(&(40 + payload).to_be_bytes());
    bytes
}

/// Packets of conversations in both directions, in an order without any locality.
fn talk(name: &'static str, packets: usize, conversations: u64) -> Load {
    let mut prng = Prng::new(1);
    let mut sent = vec![[0_u32; 2]; conversations as usize];
    let frames = (0..packets as u64).map(|n| {
        // The first packets belong to one conversation each, so that all conversations exist; the others belong to
        // random conversations.
        let which = if n < conversations { n } else { prng.below(conversations) };
        let side = usize::from(n >= conversations && prng.below(2) == 1);
        let payload = if n < conversations { 0 } else { prng.below(1400) as u16 };
        let flags = if n < conversations { SYN } else { ACK | PSH };
        let seq = &mut sent[which as usize][side];
        let frame = frame(which, side == 1, flags, *seq, payload);
        *seq += u32::from(payload) + u32::from(flags & SYN != 0);
        frame
    });
    Load { name, capacity: conversations as usize, frames: frames.collect(), step: 1000 }
}

/// Every packet starts a flow.
fn flood(name: &'static str) -> Load {
    let frames = (0..4_000_000).map(|n| frame(n, false, SYN, n as u32, 0)).collect();
    Load { name, capacity: 200_000, frames, step: 200 }
}

/// Flows with the packet counts of an academic network (AGH, 2015: 48 % one packet, 84 % at most eight), all active at
/// the end.
fn mix(name: &'static str) -> Load {
    let mut prng = Prng::new(3);
    let mut frames = Vec::new();
    for flow in 0..200_000 {
        let packets = match prng.below(100) {
            0..48 => 1,
            48..84 => 2 + prng.below(7),
            _ => 9 + prng.below(60),
        };
        let mut sent = [0; 2];
        for n in 0..packets {
            let (side, payload) = ((n % 2) as usize, if n > 2 { 300 } else { 0 });
            frames.push((flow, prng.next_u64() >> 8 | n << 56, frame(flow, side == 1, ACK, sent[side], payload)));
            sent[side] += u32::from(payload);
        }
    }
    // The packets of each flow are in order; packets of different flows alternate.
    frames.sort_by_key(|f| f.1);
    Load { name, capacity: 200_000, frames: frames.into_iter().map(|f| f.2).collect(), step: 1000 }
}
