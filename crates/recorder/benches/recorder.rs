//! Benchmark of recording: `cargo bench -p netgrain-recorder [-- DIRECTORY]`. The producer of the benchmark only copies
//! descriptors, so the measured rate is that of the cutter thread or of the disk, whichever is slower. The output also
//! gives the processor time of the cutter thread and of the writer thread. Compare the rate with that of `fio` on the
//! same volume, measured immediately before or after.

use base::Timestamp;
use index::Header;
use netgrain_recorder::cutter::Cutter;
use netgrain_recorder::{Config, Feed, Recorder, Wait};
use ring::{AnnotatedPosition, BLOCK, Control, Desc, FILE_HEADER};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::DiskDevice;
use store::bytes::Bytes;
use sys::uring::Region;

/// Size of the ring in bytes. A copy of its first `BEYOND` bytes follows its end, so that a record that wraps around is
/// contiguous.
const RING: usize = 64 << 20;
const BEYOND: usize = 1 << 17;

struct Ring {
    bytes: Vec<u8>,
    aligned: usize,
}

impl Bytes for Ring {
    fn at(&self, pos: u64, len: usize) -> &[u8] {
        let at = self.aligned + pos as usize % RING;
        &self.bytes[at..at + len]
    }

    fn regions(&self) -> Vec<Region> {
        vec![Region { address: self.bytes[self.aligned..].as_ptr() as usize, len: RING }]
    }
}

/// Fills the ring once with UDP packets of one size in `flows` flows; returns the ring and the descriptors of the
/// packets, which the benchmark repeats. The first packet follows the file header at the begin of the ring, and the
/// last packet ends where the next repetition of the sequence begins.
fn lap(caplen: u16, flows: u32) -> (Arc<Ring>, Vec<Desc>) {
    let mut bytes = vec![0u8; RING + BEYOND + 4096];
    let aligned = bytes.as_ptr().align_offset(4096);
    // The benchmark needs only the link type of the file header: Ethernet.
    bytes[aligned + 20] = 1;
    let mut descs = Vec::new();
    let mut at = FILE_HEADER;
    while at < RING + FILE_HEADER {
        let left = RING + FILE_HEADER - at;
        // The last packet fills the rest of the ring.
        let caplen = if left < 2 * (usize::from(caplen) + 16) { (left - 16) as u16 } else { caplen };
        let flow = descs.len() as u32 % flows;
        let packet = &mut bytes[aligned + at + 16..][..usize::from(caplen)];
        packet[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        packet[26..30].copy_from_slice(&(0x0a00_0000 | flow).to_be_bytes());
        packet[30..38].copy_from_slice(&[10, 1, 0, 1, 0x10, flow as u8, 0, 53]);
        let ts = descs.len() as u64 * 50;
        descs.push(Desc {
            annotated_pos: AnnotatedPosition::new(at as u64),
            ts,
            caplen,
            wire_len: caplen,
            l3: 14,
            l4: 34,
            ..Desc::default()
        });
        at += 16 + usize::from(caplen);
    }
    (Arc::new(Ring { bytes, aligned }), descs)
}

struct Laps {
    ring: Arc<Ring>,
    lap: Vec<Desc>,
    laps: u64,
    finished_laps: u64,
    at: usize,
    released: u64,
    batch: Vec<Desc>,
}

impl Feed for Laps {
    fn memory(&self) -> Arc<dyn Bytes> {
        Arc::clone(&self.ring) as Arc<dyn Bytes>
    }

    fn wait(&mut self, timeout: Duration) -> Wait {
        // The ring is full, so the producer waits for the recorder.
        if self.finished_laps * RING as u64 + self.at as u64 >= self.released + (RING as u64 - 2 * BLOCK)
            && self.at == 0
        {
            std::thread::sleep(timeout.min(Duration::from_micros(200)));
        }
        Wait::Ready
    }

    fn descriptors(&mut self) -> &[Desc] {
        self.batch.clear();
        let start = self.finished_laps * RING as u64;
        if self.finished_laps == 0 && self.at == 0 {
            self.batch.push(Desc::control(Control::Segment { pos: 0, gap: 0 }, Timestamp::ZERO));
        }
        if self.finished_laps == self.laps {
            self.batch.push(Desc::control(Control::End, Timestamp::ZERO));
            return &self.batch;
        }
        let limit = self.released + RING as u64 - 2 * BLOCK;
        let to = (self.at + 1024).min(self.lap.len());
        if start + self.lap[to - 1].end() <= limit {
            let rebased = self.lap[self.at..to].iter().map(|d| Desc {
                annotated_pos: AnnotatedPosition::new(d.pos() + start),
                ts: d.ts + start * 10,
                ..*d
            });
            self.batch.extend(rebased);
            self.at = to % self.lap.len();
            self.finished_laps += u64::from(self.at == 0);
        }
        &self.batch
    }

    fn release(&mut self, pos: u64, _: u64) {
        self.released = pos;
    }
}

fn header() -> Header {
    Header {
        interface: "bench".into(),
        queue: 0,
        link_type: 1,
        snaplen: 65_535,
        timestamp_source: "simulated".into(),
        timestamp_error: 0,
        filter: String::new(),
        first_pos: 0,
        start: Timestamp::ZERO,
        content: index::Content::Recorded,
    }
}

fn main() {
    let directory = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let store = directory.map_or_else(|| std::env::temp_dir().join("netgrain-bench-store"), PathBuf::from);
    println!(
        "{:>6} {:>6} {:>12} {:>10} {:>10} {:>12} {:>12}",
        "bytes", "flows", "index ns/pkt", "GB/s", "Mpps", "index core", "writer core"
    );
    for (caplen, flows, laps) in [(60, 16, 16), (60, 100_000, 16), (1000, 16, 32), (1000, 100_000, 32)] {
        let (ring, lap) = lap(caplen, flows);
        let per_packet = index_alone(&ring, &lap);
        let mut feed = Laps { ring, lap, laps, finished_laps: 0, at: 0, released: 0, batch: Vec::new() };
        let config = Config { allocate: laps * RING as u64, ..Config::new(store.clone(), header()) };
        let began = Instant::now();
        let summary = Recorder::new(config, DiskDevice::new(32))
            .run(&mut feed, |e| {
                if !matches!(e, netgrain_recorder::Event::Published { .. }) {
                    println!("{e}")
                }
            })
            .expect("a thread");
        let took = began.elapsed().as_secs_f64();
        let stored = summary.ledger.total().stored;
        println!(
            "{caplen:>6} {flows:>6} {per_packet:>12.1} {:>10.2} {:>10.2} {:>12.3} {:>12.3}",
            summary.bytes as f64 / took / 1e9,
            stored as f64 / took / 1e6,
            summary.index_time.as_secs_f64() / took,
            summary.write_time.as_secs_f64() / took,
        );
        let _ = std::fs::remove_dir_all(&store);
    }
}

/// The time that the cutter needs per packet, in nanoseconds, measured without a writer.
fn index_alone(ring: &Arc<Ring>, lap: &[Desc]) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let mut cutter = Cutter::new(Arc::clone(ring) as Arc<dyn Bytes>);
        let mut jobs = Vec::new();
        let segment = Desc::control(Control::Segment { pos: 0, gap: 0 }, Timestamp::ZERO);
        cutter.read_descriptors(&[segment], &mut jobs).expect("a segment");
        let began = Instant::now();
        for batch in lap.chunks(1024) {
            cutter.read_descriptors(batch, &mut jobs).expect("a valid stream");
            jobs.clear();
        }
        best = best.min(began.elapsed().as_nanos() as f64 / lap.len() as f64);
    }
    best
}
