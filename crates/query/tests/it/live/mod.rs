//! Tests of queries while a recorder runs. A query returns every packet that was recorded before the query exactly
//! once; with `follow`, it also returns all later packets. Generated frames contain their number, so gaps and
//! repetitions are detected.

mod damage;

use base::Timestamp;
use capture::auto::SourceKind;
use engine::{Capture, Format, InterfacePlan, Plan, Report, SocketPlan, SourcePlan, StorePlan};
use filter::Filter;
use netgrain_query::{Query, QuerySource, Results, run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{ChildTest, RawSender, Sandbox, TempDir, VethOptions};

/// A test fails if it waits for this time; no test asserts a shorter duration.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Name of the environment variable with the directory of store and socket; it is set only in a child process that
/// records.
const STORE: &str = "NETGRAIN_TEST_STORE";

fn socket(path: PathBuf) -> Option<SocketPlan> {
    Some(SocketPlan { path, mode: 0o600, uid: None, gid: None, allow_lossless: false, forward: Vec::new() })
}

/// The plan of a simulation in real time, with a new file every second.
fn sim(spec: &str, store: &Path) -> Plan {
    let source = SourcePlan::Sim { spec: spec.parse().expect("a specification"), start: None, name: None };
    Plan { rotate: Some(Duration::from_secs(1)), ..plan(source, store) }
}

fn plan(source: SourcePlan, store: &Path) -> Plan {
    let store = StorePlan { dir: store.to_owned(), format: Format::Pcap, depth: 8 };
    // The ring has enough memory for some seconds in which the volume is busy.
    Plan { ring: Some(64 << 20), store: Some(store), ..Plan::new(source) }
}

fn start(plan: &Plan) -> Capture {
    Capture::start(plan).unwrap_or_else(|e| panic!("{e}"))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < TIMEOUT, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stop(capture: Capture) -> u64 {
    let report = report_at_end(capture);
    assert_eq!((report.counts.residue, report.counts.lost_total), (0, 0), "{report:#?}");
    report.counts.stored
}

fn report_at_end(mut capture: Capture) -> Report {
    capture.stop();
    capture.wait().expect("a clean end");
    capture.report()
}

fn stored(capture: &Capture) -> u64 {
    capture.report().counts.stored
}

/// The sequence number that the generator wrote into the frame.
fn number(frame: &[u8]) -> u64 {
    frame[44..50].iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn begin(store: &Path, query: Query) -> Results {
    run(&QuerySource::Store(store.to_owned()), query).unwrap_or_else(|e| panic!("{e}"))
}

/// The sequence numbers of all packets of a result.
fn numbers(results: &mut Results) -> Vec<u64> {
    let mut out = Vec::new();
    while let Some(found) = results.next().expect("a packet") {
        out.push(number(found.data));
    }
    out
}

/// Asserts that every sequence number from 0 on occurs exactly once, in ascending order.
fn assert_whole(numbers: &[u64], at_least: u64, warnings: &[String], context: &str) {
    if let Some(i) = (0..numbers.len()).find(|i| numbers[*i] != *i as u64) {
        panic!("{context}: packet {} in place of {i}, of {}; {warnings:#?}", numbers[i], numbers.len());
    }
    assert!(
        numbers.len() as u64 >= at_least,
        "{context}: {} packets, {at_least} were published; {warnings:?}",
        numbers.len()
    );
}

/// This is not a test: it is the recording process that [`recorder_process`] starts.
#[test]
fn a_process_that_only_records() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let store = PathBuf::from(store);
    let plan = Plan { socket: socket(store.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    // The process runs until it is killed.
    let _ = start(&plan).wait();
}

fn recorder_process(store: &Path) -> ChildTest {
    ChildTest::start(module_path!(), "a_process_that_only_records", STORE, store)
}

#[test]
fn every_packet_is_found_once_up_to_the_moment_of_the_query() {
    let dir = TempDir::new("every_packet_is_found_once");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    let capture = start(&plan);
    until("the first file exists", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let (mut from_ring, begun) = (0, Instant::now());
    while begun.elapsed() < Duration::from_secs(5) {
        let before = stored(&capture);
        let mut results = begin(&store, Query::default());
        let found = numbers(&mut results);
        let context = format!("after {:?}", begun.elapsed());
        assert_whole(&found, before, &results.warnings(), &context);
        from_ring += results.cost().from_ring;
        // The number of stored packets in the ledger may be larger than the number of packets found: the ledger rows of
        // a block that grew during the query may count packets after the end of the query.
        let counted = results.tally(0).stored;
        assert!(counted >= found.len() as u64, "{context}: {} packets found, {counted} counted", found.len());
        assert_eq!(results.warnings(), [""; 0], "{context}");
        assert!(results.is_complete(), "{context}: a growing file is no damage");
        std::thread::sleep(Duration::from_millis(200));
    }
    let all = stop(capture);
    assert!(from_ring > 0, "the last packets came from the ring");
    let found = numbers(&mut begin(&store, Query::default()));
    assert_whole(&found, all, &[], "afterwards");
    assert_eq!(found.len() as u64, all);
}

#[test]
fn packets_in_the_ring_are_not_read_from_the_disk() {
    let dir = TempDir::new("packets_in_the_ring");
    let store = dir.join("store");
    let ring = Some(64 << 20);
    let socket = socket(dir.join("s"));
    // The ring has space for the packets of forty seconds, so that even a busy machine has indexed two blocks before
    // packets are overwritten.
    let plan = Plan { socket, ring, rotate: None, segment: 64 << 20, ..sim("300,rate=5kpps,truth", &store) };
    let capture = start(&plan);
    let indexed = |results: &Results| results.cost().blocks_read;
    until("two blocks of its first file are indexed", || {
        let mut results = begin(&store, Query::default());
        let found = numbers(&mut results);
        assert_eq!(results.cost().bytes_read, 0, "{} packets, {:?}", found.len(), results.cost());
        indexed(&results) >= 2
    });
    let hour = store::catalogue::Hours::back(&store.join("sim"), base::Timestamp::MAX).next();
    let hour = hour.expect("a directory").expect("an hour").list().expect("its files");
    let entry = &hour.unfinished[0];
    let file = std::fs::OpenOptions::new().write(true).open(&entry.path).expect("the growing file");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; 4096], 4096).expect("damage");
    let before = stored(&capture);
    let mut results = begin(&store, Query::default());
    let found = numbers(&mut results);
    assert_whole(&found, before, &results.warnings(), "the first block is damaged on disk and intact in the ring");
    assert_eq!(results.cost().from_ring, found.len() as u64);
    stop(capture);
}

#[test]
fn the_ring_of_a_recorder_that_just_started_is_read() {
    let dir = TempDir::new("just_begun");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    for round in 0..12 {
        let capture = start(&plan);
        let holder = store::Claim::holder(&store.join("sim")).expect("a claim");
        for _ in 0..10 {
            let before = stored(&capture);
            // The first recording creates the directory of the interface; before that, the store does not contain the
            // interface.
            let mut results = begin(&store, Query { from: holder.since, ..Query::default() });
            let found = numbers(&mut results);
            let least = if round > 0 { before } else { 0 };
            assert_whole(&found, least, &results.warnings(), &format!("round {round}"));
            std::thread::sleep(Duration::from_millis(7));
        }
        stop(capture);
    }
}

#[test]
fn without_the_ring_packets_are_found_on_disk_with_a_warning() {
    let dir = TempDir::new("without_the_ring");
    let store = dir.join("store");
    // No process may listen.
    let capture = start(&sim("300,rate=20kpps,truth", &store));
    until("the first file exists", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let begun = Instant::now();
    let mut last = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        let mut results = begin(&store, Query::default());
        let found = numbers(&mut results);
        assert_whole(&found, last, &results.warnings(), "packets found before are found again");
        last = found.len() as u64;
        assert_eq!(results.cost().from_ring, 0);
        assert!(results.warnings().iter().any(|r| r.contains("--socket none")), "{:?}", results.warnings());
        std::thread::sleep(Duration::from_millis(150));
    }
    let before = stored(&capture);
    until("the packets published before are on disk", || {
        numbers(&mut begin(&store, Query::default())).len() as u64 >= before
    });
    stop(capture);
}

#[test]
fn a_refusing_or_missing_socket_causes_a_warning() {
    let dir = TempDir::new("a_refusing_socket");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=5kpps,truth", &store) };
    let capture = start(&plan);
    let on_disk = || numbers(&mut begin(&store, Query { live: false, ..Query::default() })).len();
    until("a thousand packets are on disk", || stored(&capture) > 1000 && on_disk() >= 1000);
    std::fs::remove_file(dir.join("s")).expect("a socket");
    let mut results = begin(&store, Query::default());
    let found = numbers(&mut results);
    assert_whole(&found, 1000, &results.warnings(), "from files");
    assert!(
        results.warnings().iter().any(|r| r.contains("no engine listens on this socket")),
        "{:?}",
        results.warnings()
    );
    // A socket of another protocol.
    let other_socket = std::os::unix::net::UnixDatagram::bind(dir.join("s")).expect("a socket");
    let mut results = begin(&store, Query::default());
    assert_whole(&numbers(&mut results), 1000, &results.warnings(), "from files");
    assert_eq!(results.warnings().len(), 1, "{:?}", results.warnings());
    drop(other_socket);
    // A query without `live` must give no warning about the ring.
    let mut results = begin(&store, Query { live: false, ..Query::default() });
    assert_whole(&numbers(&mut results), 1000, &results.warnings(), "not live");
    assert_eq!(results.warnings(), [""; 0]);
    stop(capture);
}

/// Follows until the recorder has ended; returns the sequence numbers of the packets in order of arrival.
fn follow(store: &Path, query: Query) -> (Vec<u64>, Vec<String>) {
    let mut results = begin(store, Query { follow: true, ..query });
    let found = numbers(&mut results);
    (found, results.warnings())
}

#[test]
fn a_follower_gets_every_packet_across_rotations() {
    for listening in [true, false] {
        let dir = TempDir::new("a_follower");
        let store = dir.join("store");
        let plan = sim("300,rate=20kpps,truth", &store);
        let plan = Plan { socket: socket(dir.join("s")).filter(|_| listening), ..plan };
        let capture = start(&plan);
        until("the recorder is running", || stored(&capture) > 100);
        let (all, (found, warnings)) = std::thread::scope(|scope| {
            let follower = scope.spawn(|| follow(&store, Query::default()));
            std::thread::sleep(Duration::from_millis(4200));
            let all = stop(capture);
            (all, follower.join().expect("a result"))
        });
        assert_whole(&found, all, &warnings, &format!("listening: {listening}"));
        assert!(warnings.iter().any(|r| r.contains("has ended")), "{warnings:?}");
    }
}

#[test]
fn a_slow_reader_returns_to_the_files_and_misses_no_packet() {
    let dir = TempDir::new("a_slow_reader");
    let store = dir.join("store");
    // The ring has space for less than 16,800 of these packets.
    let plan = Plan { socket: socket(dir.join("s")), segment: 5 << 20, ..sim("1000,rate=10kpps,truth", &store) };
    let plan = Plan { ring: Some(16 << 20), ..plan };
    let capture = start(&plan);
    until("it is recording", || stored(&capture) > 100);
    let stop_it = Arc::new(AtomicBool::new(false));
    let mut results = begin(&store, Query { follow: true, stop: Some(Arc::clone(&stop_it)), ..Query::default() });
    // On a busy machine the recorder may lose packets, which are then absent from the result.
    let (mut found, mut next, mut absent) = (0, 0, 0);
    let mut check = |frame: &[u8]| {
        let number = number(frame);
        assert!(number >= next, "packet {number} after packet {}", next - 1);
        (absent, next) = (absent + number - next, number + 1);
    };
    for round in 0..3 {
        for _ in 0..15_000 {
            check(results.next().expect("a packet").expect("more packets").data);
            found += 1;
        }
        if round < 2 {
            let before = stored(&capture);
            until("the ring is overwritten", || stored(&capture) > before + 20_000);
        }
    }
    assert!(results.cost().from_ring > 0, "{:?}", results.cost());
    assert!(results.cost().from_ring < found, "the query did not return to the files: {:?}", results.cost());
    stop_it.store(true, Ordering::Relaxed);
    while let Some(packet) = results.next().expect("a packet") {
        check(packet.data);
    }
    let counts = report_at_end(capture).counts;
    assert_eq!(counts.residue, 0);
    assert!(absent <= counts.lost_total, "{absent} packets are absent, but the recorder lost {}", counts.lost_total);
}

#[test]
fn a_file_removed_before_it_is_read_is_reported_and_others_are_read() {
    let dir = TempDir::new("removed");
    let store = dir.join("store");
    let capture = start(&sim("300,rate=5kpps,truth", &store));
    until("the first file exists", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let mut results = begin(&store, Query { follow: true, ..Query::default() });
    let mut found = vec![number(results.next().expect("a packet").expect("at least one packet").data)];
    let sealed = || {
        let mut files: Vec<_> =
            all_files(&store).into_iter().filter(|p| p.extension().is_some_and(|e| e == "pcap")).collect();
        files.sort();
        files
    };
    until("four files are complete", || sealed().len() >= 4);
    let victim = sealed()[2].clone();
    std::fs::remove_file(&victim).expect("packets");
    std::fs::remove_file(victim.with_extension("ngi")).expect("an index");
    let all = stop(capture);
    found.extend(numbers(&mut results));
    assert!(found.windows(2).all(|w| w[0] < w[1]), "packets in order without duplicates");
    let missing = all - found.len() as u64;
    assert!((1..all / 2).contains(&missing), "{missing} of {all}");
    assert_eq!(found.last(), Some(&(all - 1)), "to the end");
    assert!(results.warnings().iter().any(|r| r.contains("removed")), "{:?}", results.warnings());
}

#[test]
fn a_follower_ends_with_a_killed_recorder_and_has_all_its_packets() {
    let dir = TempDir::new("a_follow_ends_with_a_killed_recorder");
    let store = dir.path().to_owned();
    let mut recorder = recorder_process(&store);
    until("the recorder is running", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let on_disk = || numbers(&mut begin(&store, Query { live: false, ..Query::default() })).len() as u64;
    let mut written = 0;
    let (found, warnings) = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&store, Query::default()));
        std::thread::sleep(Duration::from_millis(2300));
        until("a second of packets is on disk", || {
            written = on_disk();
            written >= 20_000
        });
        recorder.kill();
        follower.join().expect("a result")
    });
    assert_whole(&found, written, &warnings, "followed");
    assert!(warnings.iter().any(|r| r.contains("has ended")), "{warnings:?}");
    // A second query reads the unpublished file of the killed recorder as far as its index covers it. It returns the
    // packets that the first query returned, possibly without the last of them.
    let mut results = begin(&store, Query::default());
    let left = numbers(&mut results);
    assert_whole(&left, written, &results.warnings(), "only packets that were not written yet are missing");
    assert!(left.len() <= found.len(), "{} on disk, {} followed", left.len(), found.len());
    // A query that follows must end, because no recorder is running.
    let (again, warnings) = follow(&store, Query::default());
    assert_eq!(again.len(), left.len());
    assert!(warnings.iter().any(|r| r.contains("nothing to follow")), "{warnings:?}");
}

#[test]
fn a_follower_ends_with_its_interval_and_when_stopped() {
    let dir = TempDir::new("a_follow_ends");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=2kpps,truth", &store) };
    let capture = start(&plan);
    until("the recorder is running", || stored(&capture) > 100);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let to = Timestamp::ZERO.after(now + Duration::from_millis(1500));
    let mut results = begin(&store, Query { follow: true, to, ..Query::default() });
    let mut last = Timestamp::ZERO;
    while let Some(found) = results.next().expect("a packet") {
        assert!(found.ts <= to && found.ts >= last);
        last = found.ts;
    }
    // No packet matches the filter, so the query returns no packet, but it must end.
    let stop_it = Arc::new(AtomicBool::new(false));
    let filter = Filter::parse("host 203.0.113.77").expect("a filter");
    let query = Query { follow: true, filter, stop: Some(Arc::clone(&stop_it)), ..Query::default() };
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| numbers(&mut begin(&store, query)));
        std::thread::sleep(Duration::from_millis(300));
        stop_it.store(true, Ordering::Relaxed);
        assert!(follower.join().expect("a result").is_empty());
    });
    stop(capture);
    let mut results = begin(&store, Query { to, ..Query::default() });
    let mut end = Timestamp::ZERO;
    while let Some(found) = results.next().expect("a packet") {
        end = found.ts;
    }
    assert_eq!(last, end, "up to the end of the interval, {to}");
}

#[test]
fn raw_files_are_read_as_far_as_they_are_on_disk() {
    let dir = TempDir::new("raw_files_are_read");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    let plan = Plan { store: plan.store.map(|s| StorePlan { format: Format::Raw, ..s }), segment: 16 << 20, ..plan };
    let capture = start(&Plan { rotate: None, ..plan });
    until("the first file exists", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let (all, (found, _)) = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&store, Query::default()));
        let mut last = 0;
        for _ in 0..8 {
            let mut results = begin(&store, Query::default());
            let found = numbers(&mut results);
            assert_whole(&found, last, &results.warnings(), "queried");
            assert!(results.warnings().iter().any(|r| r.contains("RAW")), "{:?}", results.warnings());
            last = found.len() as u64;
            std::thread::sleep(Duration::from_millis(200));
        }
        // Over two rotations.
        until("more than two files are full", || stored(&capture) > 120_000);
        (stop(capture), follower.join().expect("a result"))
    });
    assert_whole(&found, all, &[], "followed");
}

#[test]
fn filter_and_interval_apply_to_the_growing_file_and_the_ring() {
    let dir = TempDir::new("a_filter_and_an_interval");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), rotate: None, ..sim("300,rate=20kpps,truth", &store) };
    let capture = start(&plan);
    until("the recorder is running", || stored(&capture) > 50_000);
    let mut all: BTreeMap<u64, (Timestamp, Vec<u8>)> = BTreeMap::new();
    let mut results = begin(&store, Query::default());
    while let Some(found) = results.next().expect("a packet") {
        all.insert(number(found.data), (found.ts, found.data.to_vec()));
    }
    let last = *all.keys().last().expect("packets");
    let (first, middle) = (all[&0].0, all[&(last / 2)].0);
    let one = Filter::parse(&format!("port {}", port_of(&all[&last].1))).expect("a filter");
    for filter in [Filter::default(), one] {
        for (from, to) in [(first, middle), (middle, all[&last].0), (middle, middle), (all[&last].0, Timestamp::MAX)] {
            let mut results = begin(&store, Query { from, to, filter: filter.clone(), ..Query::default() });
            let found: Vec<u64> = numbers(&mut results).into_iter().filter(|n| *n <= last).collect();
            let expected = all.iter().filter(|(_, (ts, bytes))| {
                let headers = wire::Headers::of(bytes, bytes.len() as u32, wire::link::ETHERNET);
                from <= *ts && *ts <= to && filter.matches(bytes, bytes.len() as u32, &headers)
            });
            let expected: Vec<u64> = expected.map(|(n, _)| *n).collect();
            assert_eq!(found.len(), expected.len(), "{filter} from {from} to {to}: {:?}", results.cost());
            assert!(found == expected, "{filter} from {from} to {to}");
        }
    }
    stop(capture);
}

/// Paths of the packet files in their hour directories, published or hidden.
fn files_of(store: &Path) -> usize {
    let names = all_files(store).into_iter().map(|p| p.file_name().unwrap_or_default().to_string_lossy().into_owned());
    names.filter(|name| name.contains("Z") && name.contains(".pcap")).count()
}

fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { out.extend(all_files(&path)) } else { out.push(path) }
    }
    out
}

/// The source port of a generated frame.
fn port_of(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

/// An Ethernet frame that contains this sequence number.
fn frame(number: u32) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    bytes.resize(44, 0);
    bytes.extend(u64::from(number).to_be_bytes()[2..].iter());
    // The frames have different addresses, so that a fanout by hash distributes them over the queues.
    bytes[26..34].copy_from_slice(&base::hash::mix64(number.into()).to_be_bytes());
    bytes.resize(60 + number as usize % 1000, 0);
    bytes
}

#[test]
fn live_queries_work_for_all_interface_sources_and_queue_counts() {
    let test = "live_queries_work_for_all_interface_sources_and_queue_counts";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for (i, (kind, queues)) in
        [(SourceKind::AfXdp, 1), (SourceKind::Tpacket, 1), (SourceKind::Tpacket, 2)].into_iter().enumerate()
    {
        // The name is short, because the path of a socket has a limited length.
        let dir = TempDir::new("ports");
        let store = dir.join("store");
        let options = VethOptions::default();
        let (a, b) = sandbox.veth_with(&format!("a{i}"), &format!("b{i}"), options);
        let mut port = InterfacePlan::new(&b.name, kind);
        (port.afxdp.receive_ring, port.afxdp.chunks, port.tpacket.blocks) = (4096, 8192, 16);
        port.queues = Some(queues);
        let plan = Plan {
            socket: socket(dir.join("s")),
            rotate: Some(Duration::from_secs(1)),
            ..{ plan(SourcePlan::Interface(port), &store) }
        };
        let capture = start(&plan);
        let wire = RawSender::new(&a);
        let (mut followed, warnings, sent) = std::thread::scope(|scope| {
            let mut sent = 0u32;
            let mut follower = None;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(3500) {
                let burst: Vec<_> = (sent..sent + 500).map(frame).collect();
                wire.send(&burst);
                sent += 500;
                let expected = u64::from(sent);
                until("all packets are stored", || stored(&capture) == expected);
                let mut results = begin(&store, Query::default());
                let mut found = numbers(&mut results);
                found.sort_unstable();
                assert_whole(&found, expected, &results.warnings(), &format!("{kind:?} with {queues}"));
                follower.get_or_insert_with(|| scope.spawn(|| follow(&store, Query::default())));
                std::thread::sleep(Duration::from_millis(100));
            }
            stop(capture);
            let (found, warnings) = follower.expect("a follower").join().expect("a result");
            (found, warnings, sent)
        });
        followed.sort_unstable();
        assert_whole(&followed, sent.into(), &warnings, &format!("{kind:?} with {queues}, followed"));
        assert_eq!(followed.len(), sent as usize);
    }
}

#[test]
fn a_quiet_queue_does_not_delay_the_packets_of_other_queues() {
    let test = "a_quiet_queue_does_not_delay_the_packets_of_other_queues";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for listening in [true, false] {
        let dir = TempDir::new("quiet");
        let store = dir.join("store");
        let (a, b) = if listening { sandbox.veth("qa", "qb") } else { sandbox.veth("qc", "qd") };
        let mut port = InterfacePlan::new(&b.name, SourceKind::Tpacket);
        (port.tpacket.blocks, port.queues) = (16, Some(2));
        let plan = Plan { rotate: Some(Duration::from_secs(1)), ..plan(SourcePlan::Interface(port), &store) };
        let capture = start(&Plan { socket: socket(dir.join("s")).filter(|_| listening), ..plan });
        let wire = RawSender::new(&a);
        until("the first files exist", || files_of(&store) >= 2);
        let arrived = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let mut results = begin(&store, Query { follow: true, ..Query::default() });
                let mut last = Timestamp::ZERO;
                while let Some(found) = results.next().expect("a packet") {
                    assert!(found.ts >= last, "{} after {last}", found.ts);
                    last = found.ts;
                    arrived.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut sent = 0;
            for round in 0..4 {
                // In the first half, all packets belong to one flow and so to one queue; in the second half, packets of
                // all queues are sent.
                let burst: Vec<_> = (0..100).map(|n| frame(if round < 2 { 7 } else { n })).collect();
                wire.send(&burst);
                sent += 100;
                until("the packets arrive although no others do", || arrived.load(Ordering::Relaxed) == sent);
            }
            stop(capture);
            follower.join().expect("a result");
        });
    }
}
