//! The complete recorder with its threads on real file systems; other programs check the written files.

use crate::common;

use base::Prng;
use common::{FakeFeed, Stream, check_published, config, read_all};
use filter::KeyCondition;
use index::Index;
use netgrain_recorder::{Config, Feed, Recorder, Summary, ThreadWaits, Wait};
use ring::Desc;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::bytes::Bytes;
use store::device::Fault;
use store::{DiskDevice, MemoryDevice};

fn record(stream: &Stream, store: &Path, device: DiskDevice) -> Summary {
    let mut feed = FakeFeed::new(stream);
    let config = Config { store: store.to_owned(), ..config() };
    let summary = Recorder::new(config, device).run(&mut feed, |event| eprintln!("{event}")).expect("a thread");
    assert_eq!(feed.released, (stream.segments.last().map_or(0, |s| s.end), stream.descs.len() as u64));
    summary
}

fn check(stream: &Stream, store: &Path, summary: &Summary) {
    let files = read_all(store);
    let found = check_published(stream, &files, "on disk");
    assert_eq!(found, (0..stream.segments.len()).collect::<Vec<_>>());
    assert_eq!(files.len(), 2 * found.len(), "unexpected files: {:?}", files.keys());
    assert_eq!(summary.ledger, stream.ledger());
    assert_eq!((summary.published, summary.hidden), (found.len() as u64, 0));
}

#[test]
fn io_uring_and_plain_writes_give_the_same_files() {
    let seed = testkit::seed("io_uring_and_plain_writes_give_the_same_files");
    let mut prng = Prng::new(seed);
    let stream = Stream::random(0, 3000, &mut prng);
    for (name, device) in [("uring", DiskDevice::new(32)), ("plain", DiskDevice::plain())] {
        let dir = testkit::TempDir::new(name);
        let summary = record(&stream, dir.path(), device);
        check(&stream, dir.path(), &summary);
    }
}

#[test]
fn a_file_system_without_direct_writes_is_written_through_the_cache() {
    let test = "a_file_system_without_direct_writes_is_written_through_the_cache";
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return testkit::skip(test, "no /dev/shm here");
    }
    let dir = memory.join(format!("netgrain-recorder-{}", std::process::id()));
    let stream = Stream::random(0, 500, &mut Prng::new(3));
    let mut feed = FakeFeed::new(&stream);
    let recorder = Recorder::new(Config { store: dir.clone(), ..config() }, DiskDevice::new(32));
    let handle = recorder.handle();
    let summary = recorder.run(&mut feed, |e| eprintln!("{e}")).expect("a thread");
    assert!(handle.device().contains("page cache"), "{}", handle.device());
    check(&stream, &dir, &summary);
    std::fs::remove_dir_all(&dir).expect("clean up");
}

#[test]
fn capinfos_and_tcpdump_read_what_was_recorded() {
    let test = "capinfos_and_tcpdump_read_what_was_recorded";
    let mut prng = Prng::new(12);
    let mut stream = Stream::new(0);
    for i in 0..5000 {
        stream.now += prng.below(400_000);
        stream.packet(&mut prng, 60 + (i % 1000) as u16, 0);
    }
    stream.tick();
    stream.end();
    let dir = testkit::TempDir::new(test);
    record(&stream, dir.path(), DiskDevice::new(32));
    let files = read_all(dir.path());
    let file = files.keys().find(|p| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    if let Some(mut capinfos) = testkit::tool(test, "capinfos") {
        let out = capinfos.args(["-T", "-r", "-m", "-t", "-c"]).arg(file).output().expect("capinfos");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("nsecpcap") && text.contains("5000"), "{text}");
    }
    if let Some(mut tcpdump) = testkit::tool(test, "tcpdump") {
        let out = tcpdump.args(["-nn", "--count", "-r"]).arg(file).output().expect("tcpdump");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("5000 packets"), "{text}");
    }
}

/// The number of packets of a file that match a filter, counted by tcpdump.
fn count(tcpdump: &mut std::process::Command, pcap: &Path, filter: &str) -> u64 {
    let out = tcpdump.args(["-nn", "--count", "-r"]).arg(pcap).arg(filter).output().expect("tcpdump");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{filter}: {text:?}"))
}

#[test]
fn blocks_that_the_index_rules_out_have_no_match_for_tcpdump() {
    let test = "blocks_that_the_index_rules_out_have_no_match_for_tcpdump";
    let Some(traces) = testkit::traces(test) else { return };
    let mut stream = Stream::new(0);
    let mut seen = std::collections::BTreeMap::<IpAddr, u64>::new();
    for (path, bytes) in read_all(&traces).into_iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "pcap")) {
        let Ok(mut reader) = pcap::Reader::open(&bytes[..]) else { continue };
        if reader.link_type() != pcap::ETHERNET || stream.bytes.len() > 24 << 20 {
            continue;
        }
        while let Some(packet) = reader.next().unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            stream.now += 1000;
            let data = &packet.data[..packet.data.len().min(65_535)];
            stream.real_packet(data);
            if data.len() >= 34 && data[12..14] == [8, 0] {
                *seen.entry(IpAddr::from([data[26], data[27], data[28], data[29]])).or_default() += 1;
            }
        }
    }
    stream.end();
    let dir = testkit::TempDir::new(test);
    record(&stream, dir.path(), DiskDevice::new(32));
    let files = read_all(dir.path());
    check_published(&stream, &files, test);
    let (path, bytes) = files.iter().find(|(p, _)| p.extension().is_some_and(|e| e == "pcap")).expect("a file");
    let index = Index::parse(&files[&path.with_extension("ngi")]).expect("an index");
    let step = (seen.len() / 6).max(1);
    let hosts = seen.keys().step_by(step).map(|a| (format!("host {a}"), KeyCondition::Host(*a)));
    let ports = [53u16, 80, 443, 5060, 9].map(|p| (format!("port {p}"), KeyCondition::Ports(p, p)));
    let mut ruled_out = 0;
    for (filter, key) in hosts.chain(ports) {
        // The content of a pcap file with only those records that start in a block that the index selects for this key.
        let mut part = bytes[..24].to_vec();
        let candidates: Vec<u32> = index.candidates(&key).collect();
        ruled_out += index.entries.len() - candidates.len();
        for d in stream.descs.iter().filter(|d| d.is_packet()) {
            if candidates.binary_search(&((d.pos() / ring::BLOCK) as u32)).is_ok() {
                part.extend(stream.at(d.pos(), d.end()));
            }
        }
        let narrowed = dir.join("narrowed.pcap");
        std::fs::write(&narrowed, part).expect("a file");
        let (Some(mut a), Some(mut b)) = (testkit::tool(test, "tcpdump"), testkit::tool(test, "tcpdump")) else {
            return;
        };
        assert_eq!(count(&mut a, &narrowed, &filter), count(&mut b, path, &filter), "{filter}: {candidates:?}");
    }
    assert!(ruled_out > 0, "the index ruled out no block");
}

#[test]
fn a_refusing_volume_is_reported_and_recording_resumes_when_freed() {
    let stream = Stream::random(0, 1000, &mut Prng::new(5));
    let device = MemoryDevice::new(5);
    device.set_fault(Fault { capacity: Some(3 << 20), slow: true, short: 100, ..Fault::default() });
    let recorder = Recorder::new(config(), device.clone());
    let handle = recorder.handle();
    let mut feed = FakeFeed::new(&stream);
    let volume = device.clone();
    let freeing = std::thread::spawn(move || {
        while !handle.is_refused() {
            std::thread::yield_now();
        }
        volume.set_fault(Fault { slow: true, ..Fault::default() });
        handle
    });
    let summary = recorder.run(&mut feed, |e| eprintln!("{e}")).expect("a thread");
    let handle = freeing.join().expect("the test thread ended");
    let found = check_published(&stream, &device.files(), "freed");
    assert_eq!(found.len(), stream.segments.len());
    assert_eq!((handle.is_refused(), handle.published(), handle.bytes()), (false, summary.published, summary.bytes));
    assert_eq!(summary.ledger, stream.ledger());
}

#[test]
fn a_stop_with_an_unwritable_store_counts_every_packet_as_lost() {
    let dir = testkit::TempDir::new("unwritable");
    let store = dir.join("a file, not a directory");
    std::fs::write(&store, "x").expect("a file");
    let stream = Stream::random(0, 200, &mut Prng::new(4));
    let mut feed = FakeFeed::new(&stream);
    let config = Config { store, grace: std::time::Duration::from_millis(50), ..config() };
    let recorder = Recorder::new(config, DiskDevice::plain());
    recorder.handle().stop();
    let mut reported = Vec::new();
    let summary = {
        let reported = std::sync::Mutex::new(&mut reported);
        recorder.run(&mut feed, |event| reported.lock().expect("the lock").push(event.to_string())).expect("a thread")
    };
    let (got, model) = (summary.ledger.total(), stream.ledger().total());
    assert_eq!((got.stored, got.residue(), got.offered), (0, 0, model.offered));
    assert!(reported.iter().any(|t| t.contains("cannot create a file in")), "{reported:?}");
    assert!(reported.iter().any(|t| t.contains(&format!("{} packets not written", model.stored))), "{reported:?}");
}

#[test]
fn the_handle_counts_hidden_files_while_the_recorder_runs() {
    let stream = Stream::random(0, 100, &mut Prng::new(6));
    let device = MemoryDevice::new(6);
    device.set_fault(Fault { sync_error: 1000, ..Fault::default() });
    let recorder = Recorder::new(config(), device);
    let handle = recorder.handle();
    let summary = recorder.run(&mut FakeFeed::new(&stream), |_| {}).expect("a thread");
    assert!(summary.hidden > 0);
    assert_eq!((handle.hidden(), handle.published()), (summary.hidden, 0));
}

/// A feed whose memory blocks the writer thread until `ready` is set, like a disk that blocks within a system call.
struct Stalled<'a> {
    feed: FakeFeed<'a>,
    ready: Arc<AtomicBool>,
}

struct SlowBytes {
    memory: Arc<dyn Bytes>,
    ready: Arc<AtomicBool>,
}

impl Bytes for SlowBytes {
    fn at(&self, pos: u64, len: usize) -> &[u8] {
        while std::thread::current().name() == Some("netgrain-write") && !self.ready.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.memory.at(pos, len)
    }

    fn regions(&self) -> Vec<sys::uring::Region> {
        self.memory.regions()
    }
}

impl Feed for Stalled<'_> {
    fn memory(&self) -> Arc<dyn Bytes> {
        Arc::new(SlowBytes { memory: self.feed.memory(), ready: Arc::clone(&self.ready) })
    }

    fn wait(&mut self, timeout: Duration) -> Wait {
        self.feed.wait(timeout)
    }

    fn descriptors(&mut self) -> &[Desc] {
        self.feed.descriptors()
    }

    fn release(&mut self, pos: u64, descriptors: u64) {
        self.feed.release(pos, descriptors);
    }
}

#[test]
fn both_threads_report_that_they_wait_while_the_disk_stalls() {
    let stream = Stream::random(0, 2000, &mut Prng::new(7));
    let device = MemoryDevice::new(7);
    let recorder = Recorder::new(config(), device.clone());
    let (handle, ready) = (recorder.handle(), Arc::new(AtomicBool::new(false)));
    let mut feed = Stalled { feed: FakeFeed::new(&stream), ready: Arc::clone(&ready) };
    assert_eq!(handle.waiting(), ThreadWaits::default());
    let watching = std::thread::spawn(move || {
        // The recorder is regarded as blocked if both of its threads wait and used no processor time since the previous
        // check.
        let mut used = handle.processor_time();
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut used, handle.processor_time());
            if used == before && handle.waiting() == (ThreadWaits { index: true, writer: true }) {
                break;
            }
        }
        ready.store(true, Relaxed);
        handle
    });
    let summary = recorder.run(&mut feed, |e| eprintln!("{e}")).expect("a thread");
    let handle = watching.join().expect("the test thread ended");
    assert_eq!(handle.waiting(), ThreadWaits::default());
    assert_eq!(check_published(&stream, &device.files(), "stalled").len(), stream.segments.len());
    assert_eq!(summary.ledger, stream.ledger());
}
