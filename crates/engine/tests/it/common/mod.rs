//! Helpers for tests of captures. They run a plan to its end and assert the accounting equation of every run.

#![allow(dead_code, reason = "each test program uses its own part")]

use base::{Cause, Prng, Tally, Timestamp};
use capture::auto::SourceKind;
use index::{Index, Tail};
use netgrain_engine::{Capture, EngineError, Format, InterfacePlan, Plan, Report, SourcePlan, StorePlan};
use pcap::Reader;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::TempDir;

/// The time after which a wait has failed. Tests assert no durations, so the time is long enough for a busy machine.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// The ring size of tests. It is so small that many tests can run in parallel and that a test can fill the ring.
pub const RING: u64 = 8 << 20;

/// One packet of a packet file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub ts: Timestamp,
    pub wire_len: u32,
    pub bytes: Vec<u8>,
}

/// A published file with its index and its packets.
#[derive(Debug)]
pub struct Stored {
    pub path: PathBuf,
    pub index: Index,
    pub packets: Vec<Packet>,
}

/// A capture that has ended.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Result<(), EngineError>,
    pub report: Report,
    pub files: Vec<Stored>,
}

impl Ended {
    /// Returns all packets in order of the stream.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.files.iter().flat_map(|f| &f.packets)
    }

    /// Returns the number of packets lost by this cause.
    pub fn lost(&self, cause: Cause) -> u64 {
        self.report.counts.lost.get(cause.name()).copied().unwrap_or(0)
    }

    /// Returns the number of packets with this note.
    pub fn note_count(&self, note: base::Note) -> u64 {
        self.report.counts.notes.get(note.name()).copied().unwrap_or(0)
    }

    /// True if a warning contains `text`.
    pub fn has_warning(&self, text: &str) -> bool {
        self.report.warnings.iter().any(|r| r.contains(text))
    }
}

/// Returns a plan with a small ring that records into `store`.
pub fn plan(source: SourcePlan, store: &Path) -> Plan {
    let store = Some(StorePlan { dir: store.to_owned(), format: Format::Pcap, depth: 8 });
    Plan { ring: Some(RING), store, ..Plan::new(source) }
}

/// Returns the plan of a live interface whose kernel rings are small enough for tests.
pub fn port(name: &str, kind: SourceKind) -> InterfacePlan {
    let mut plan = InterfacePlan::new(name, kind);
    (plan.afxdp.receive_ring, plan.afxdp.chunks) = (4096, 8192);
    plan.tpacket.blocks = 16;
    plan
}

/// Returns the plan of a capture file that is replayed at full speed.
pub fn file(path: &Path) -> SourcePlan {
    SourcePlan::File { path: path.to_owned(), options: capture::file::Options::default() }
}

/// Returns the plan of a simulation in real time.
pub fn sim(spec: &str) -> SourcePlan {
    SourcePlan::Sim { spec: spec.parse().expect("a specification"), start: None, name: None }
}

/// Starts a capture. An error fails the test.
pub fn start(plan: &Plan) -> Capture {
    Capture::start(plan).unwrap_or_else(|e| panic!("{e}"))
}

/// Waits until `done` returns true; panics after [`WAIT_MAX`].
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < WAIT_MAX, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `packets` packets were offered.
pub fn until_offered(capture: &Capture, packets: u64) {
    let begun = Instant::now();
    while capture.report().counts.offered < packets {
        assert!(begun.elapsed() < WAIT_MAX, "{packets} packets were not offered: {:?}", capture.report());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a plan until its source has ended, and returns the ended capture.
pub fn run(plan: &Plan) -> Ended {
    let capture = start(plan);
    end(capture, plan)
}

/// Stops a capture and reads its files.
pub fn stop(capture: Capture, plan: &Plan) -> Ended {
    capture.stop();
    end(capture, plan)
}

/// Waits for the end of a capture. Asserts that the accounting balances and that the engine, the files, their indexes
/// and the checker count the same packets.
pub fn end(mut capture: Capture, plan: &Plan) -> Ended {
    let outcome = capture.wait();
    let (report, ledger) = (capture.report(), capture.ledger());
    let counts = &report.counts;
    assert_eq!(counts.residue, 0, "{report:#?}");
    assert!(!report.warnings.iter().any(|r| r.contains("please report")), "{:#?}", report.warnings);
    for queue in &report.queues {
        assert_eq!(queue.counts.residue, 0, "{queue:#?}");
    }
    for row in ledger.rows() {
        assert_eq!(row.tally.residue(), 0, "{row:?}");
    }
    assert_eq!(
        terms(&ledger.total()),
        (counts.offered, counts.stored, counts.filtered, counts.lost_total),
        "totals of the ledger"
    );
    let files = plan.store.as_ref().map(|s| read_store(&s.dir)).unwrap_or_default();
    if let Some(store) = &plan.store {
        let recorded = report.queues.iter().map(|q| q.recorder.as_ref().and_then(|r| r.packets).expect("a recorder"));
        assert_eq!(recorded.sum::<u64>(), counts.stored, "packets counted by the recorders");
        assert_eq!(files.iter().map(|f| f.packets.len() as u64).sum::<u64>(), counts.stored, "packets in the files");
        if !files.is_empty() {
            let mut indexed = Tally::default();
            files.iter().flat_map(|f| &f.index.entries).for_each(|e| indexed += &e.tally());
            assert_eq!(
                terms(&indexed),
                (counts.offered, counts.stored, counts.filtered, counts.lost_total),
                "totals of the indexes"
            );
            assert_eq!(indexed.lost, ledger.total().lost, "losses by cause");
            // The checker supports only Ethernet.
            if files.iter().all(|f| f.index.header.link_type == u32::from(pcap::ETHERNET)) {
                let checked =
                    checker::check(std::slice::from_ref(&store.dir), checker::Options::default()).expect("a check");
                assert_eq!((checked.records, checked.broken), (counts.stored, 0), "{checked}");
            }
        }
    }
    Ended { outcome, report, files }
}

fn terms(t: &Tally) -> (u64, u64, u64, u64) {
    (t.offered, t.stored, t.filtered, t.lost_total())
}

/// Returns every published file of a store in order of its stream. Asserts that no hidden file remains.
pub fn read_store(store: &Path) -> Vec<Stored> {
    let mut files: Vec<Stored> = walk(store)
        .into_iter()
        .inspect(|p| assert!(!p.to_string_lossy().ends_with(".partial"), "a hidden file remains: {}", p.display()))
        .filter(|p| p.extension().is_some_and(|e| e == "pcap"))
        .map(read_stored)
        .collect();
    files.sort_by_key(|f| (f.index.header.queue, f.index.header.first_pos));
    files
}

fn read_stored(path: PathBuf) -> Stored {
    let bytes = std::fs::read(path.with_extension("ngi")).unwrap_or_else(|e| panic!("{}: index: {e}", path.display()));
    let index = Index::parse(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let Tail::Complete(footer) = &index.tail else { panic!("{}: the index is truncated", path.display()) };
    assert_eq!(footer.bytes, path.metadata().expect("the file").len(), "{}", path.display());
    let packets = read_capture(std::fs::File::open(&path).expect("a file"));
    let indexed: u64 = index.entries.iter().map(|e| e.tally().stored).sum();
    assert_eq!(indexed, packets.len() as u64, "{}", path.display());
    Stored { path, index, packets }
}

/// Returns every packet of a capture file.
pub fn read_capture(source: impl std::io::Read) -> Vec<Packet> {
    let mut reader = Reader::open(source).expect("a capture");
    let mut packets = Vec::new();
    while let Some(p) = reader.next().expect("a packet") {
        let (ts, wire_len) = (p.ts.unwrap_or(Timestamp::ZERO), p.wire_len - u32::from(p.fcs));
        let len = p.data.len().min(wire_len as usize).min(ring::CAPLEN_MAX);
        packets.push(Packet { ts, wire_len, bytes: p.data[..len].to_vec() });
    }
    packets
}

/// Returns all files below a directory except lock files, sorted by path.
pub fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            out.extend(walk(&path));
        } else if path.file_name().is_none_or(|name| name != store::hold::HOLD && name != store::hold::RETENTION_LOCK) {
            // Lock files have no content.
            out.push(path);
        }
    }
    out.sort();
    out
}

/// Writes a nanosecond pcap file with these packets.
pub fn write_capture(path: &Path, packets: impl IntoIterator<Item = (Timestamp, Vec<u8>)>) {
    let out = std::io::BufWriter::new(std::fs::File::create(path).expect("a file"));
    let mut out = pcap::classic::Writer::new(out, pcap::classic::Resolution::Nanos, pcap::ETHERNET).expect("a header");
    for (ts, bytes) in packets {
        out.write(ts, bytes.len() as u32, &bytes).expect("a record");
    }
    out.finish().expect("the end");
}

/// Returns an Ethernet frame of `len` bytes with VLAN tags (identifier, control information), outermost first. The
/// frame contains its number if it is long enough. It has a protocol to which no host responds.
pub fn frame(number: u32, len: usize, tags: &[(u16, u16)]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for (tpid, tci) in tags {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    // IEEE 802 local experimental EtherType 1.
    bytes.extend(0x88b5u16.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    let start = bytes.len();
    bytes.resize(len.max(start), 0);
    Prng::new(u64::from(number)).fill(&mut bytes[start..]);
    bytes.truncate(len);
    bytes
}

/// Returns frames of one length.
pub fn frames(range: std::ops::Range<u32>, len: usize) -> Vec<Vec<u8>> {
    range.map(|n| frame(n, len, &[])).collect()
}

/// A small file system in memory, which is unmounted when it is dropped.
pub struct Volume {
    pub path: PathBuf,
    /// The directory of the mount point, which is removed after the unmount.
    _dir: TempDir,
}

impl Volume {
    pub fn new(test: &str, size: &str) -> Option<Self> {
        let dir = TempDir::new(test);
        let path = dir.join("volume");
        std::fs::create_dir(&path).expect("a directory");
        let out = testkit::tool(test, "mount")?
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "netgrain-test"])
            .arg(&path)
            .output()
            .expect("mount");
        if !out.status.success() {
            let error = String::from_utf8_lossy(&out.stderr);
            testkit::skip(test, &format!("cannot mount a file system: {}; run as root", error.trim()));
            return None;
        }
        Some(Self { path, _dir: dir })
    }

    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Creates a file of `bytes` bytes in the volume.
    pub fn fill(&self, bytes: usize) -> PathBuf {
        let path = self.path.join("filling");
        std::fs::write(&path, vec![1; bytes]).expect("space for the file");
        path
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A lazy unmount also works for a failed test whose threads still write.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
