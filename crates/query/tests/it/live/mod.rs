//! Questions asked while a recorder records: every packet once, up to the moment of the question, and beyond it for who
//! follows. Generated frames carry their number, so a gap and a repetition show.

mod damage;

use base::Timestamp;
use capture::auto::SourceKind;
use engine::{Capture, Format, InterfacePlan, Plan, SocketPlan, SourcePlan, StorePlan};
use filter::Filter;
use netgrain_query::{Query, QuerySource, Results, run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{ChildTest, RawSender, Sandbox, TempDir, VethOptions};

/// A test that waits this long has failed; nothing is asserted about how long things take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Set for a process that only records: store and socket.
const STORE: &str = "NETGRAIN_TEST_STORE";

fn socket(path: PathBuf) -> Option<SocketPlan> {
    Some(SocketPlan { path, mode: 0o600, uid: None, gid: None, allow_lossless: false, forward: Vec::new() })
}

/// A simulation in live time, with a file every second.
fn sim(spec: &str, store: &Path) -> Plan {
    let source = SourcePlan::Sim { spec: spec.parse().expect("a specification"), start: None, name: None };
    Plan { rotate: Some(Duration::from_secs(1)), ..plan(source, store) }
}

fn plan(source: SourcePlan, store: &Path) -> Plan {
    let store = StorePlan { dir: store.to_owned(), format: Format::Pcap, depth: 8 };
    // Enough for a volume that is busy for seconds.
    Plan { ring: Some(64 << 20), store: Some(store), ..Plan::new(source) }
}

fn start(plan: &Plan) -> Capture {
    Capture::start(plan).unwrap_or_else(|e| panic!("{e}"))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stop(mut capture: Capture) -> u64 {
    capture.stop();
    capture.wait().expect("a good end");
    let report = capture.report();
    assert_eq!((report.counts.residue, report.counts.lost_total), (0, 0), "{report:#?}");
    report.counts.stored
}

fn stored(capture: &Capture) -> u64 {
    capture.report().counts.stored
}

/// The generator's number in a frame with truth.
fn number(frame: &[u8]) -> u64 {
    frame[44..50].iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn begin(store: &Path, question: Query) -> Results {
    run(&QuerySource::Store(store.to_owned()), question).unwrap_or_else(|e| panic!("{e}"))
}

/// The numbers of all packets of an answer.
fn numbers(answer: &mut Results) -> Vec<u64> {
    let mut out = Vec::new();
    while let Some(found) = answer.next().expect("a packet") {
        out.push(number(found.data));
    }
    out
}

/// Every number from 0 on, once each and in order.
fn assert_whole(numbers: &[u64], at_least: u64, remarks: &[String], context: &str) {
    if let Some(i) = (0..numbers.len()).find(|i| numbers[*i] != *i as u64) {
        panic!("{context}: packet {} in place of {i}, of {}; {remarks:#?}", numbers[i], numbers.len());
    }
    assert!(
        numbers.len() as u64 >= at_least,
        "{context}: {} packets, {at_least} were published; {remarks:?}",
        numbers.len()
    );
}

/// Not a test of its own: the body of [`recorder_process`].
#[test]
fn a_process_that_only_records() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let store = PathBuf::from(store);
    let plan = Plan { socket: socket(store.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    // Until it is killed.
    let _ = start(&plan).wait();
}

fn recorder_process(store: &Path) -> ChildTest {
    ChildTest::start(module_path!(), "a_process_that_only_records", STORE, store)
}

#[test]
fn every_packet_is_found_once_up_to_the_moment_of_the_question() {
    let dir = TempDir::new("every_packet_is_found_once");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    let capture = start(&plan);
    until("its first file is there", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let (mut from_ring, begun) = (0, Instant::now());
    while begun.elapsed() < Duration::from_secs(5) {
        let before = stored(&capture);
        let mut answer = begin(&store, Query::default());
        let found = numbers(&mut answer);
        let context = format!("after {:?}", begun.elapsed());
        assert_whole(&found, before, &answer.warnings(), &context);
        from_ring += answer.cost().from_ring;
        // A block that grew since the query began may count packets behind the end of the query.
        let counted = answer.tally(0).stored;
        assert!(counted >= found.len() as u64, "{context}: {} packets found, {counted} counted", found.len());
        assert_eq!(answer.warnings(), [""; 0], "{context}");
        assert!(answer.is_complete(), "{context}: a file in work is no damage");
        std::thread::sleep(Duration::from_millis(200));
    }
    let all = stop(capture);
    assert!(from_ring > 0, "the last packets came out of the ring");
    let found = numbers(&mut begin(&store, Query::default()));
    assert_whole(&found, all, &[], "afterwards");
    assert_eq!(found.len() as u64, all);
}

#[test]
fn what_the_ring_still_has_is_not_read_from_the_disk_and_survives_damage_there() {
    let dir = TempDir::new("what_the_ring_still_has");
    let store = dir.join("store");
    let ring = Some(64 << 20);
    let socket = socket(dir.join("s"));
    // The ring holds the packets of forty seconds: a busy machine has indexed two blocks by then.
    let plan = Plan { socket, ring, rotate: None, segment: 64 << 20, ..sim("300,rate=5kpps,truth", &store) };
    let capture = start(&plan);
    let indexed = |answer: &Results| answer.cost().blocks_read;
    until("two blocks of its first file are indexed", || {
        let mut answer = begin(&store, Query::default());
        let found = numbers(&mut answer);
        assert_eq!(answer.cost().bytes_read, 0, "{} packets, {:?}", found.len(), answer.cost());
        indexed(&answer) >= 2
    });
    let hour = store::catalogue::Hours::back(&store.join("sim"), base::Timestamp::MAX).next();
    let hour = hour.expect("a folder").expect("an hour").list().expect("its files");
    let entry = &hour.unfinished[0];
    let file = std::fs::OpenOptions::new().write(true).open(&entry.path).expect("the file in work");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; 4096], 4096).expect("damage");
    let before = stored(&capture);
    let mut answer = begin(&store, Query::default());
    let found = numbers(&mut answer);
    assert_whole(&found, before, &answer.warnings(), "the first block is broken on disk and whole in the ring");
    assert_eq!(answer.cost().from_ring, found.len() as u64);
    stop(capture);
}

#[test]
fn a_recorder_that_has_just_begun_is_listened_to_and_not_mixed_up_with_the_one_before() {
    let dir = TempDir::new("just_begun");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    for round in 0..12 {
        let capture = start(&plan);
        let holder = store::Claim::holder(&store.join("sim")).expect("it has claimed the folder");
        for _ in 0..10 {
            let before = stored(&capture);
            // The first recording makes the first folder; until it has, the store has no such interface.
            let mut answer = begin(&store, Query { from: holder.since, ..Query::default() });
            let found = numbers(&mut answer);
            let least = if round > 0 { before } else { 0 };
            assert_whole(&found, least, &answer.warnings(), &format!("round {round}"));
            std::thread::sleep(Duration::from_millis(7));
        }
        stop(capture);
    }
}

#[test]
fn without_the_ring_a_packet_is_found_once_it_is_on_disk_and_the_reason_is_told() {
    let dir = TempDir::new("without_the_ring");
    let store = dir.join("store");
    // Nobody may listen.
    let capture = start(&sim("300,rate=20kpps,truth", &store));
    until("its first file is there", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let begun = Instant::now();
    let mut last = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        let mut answer = begin(&store, Query::default());
        let found = numbers(&mut answer);
        assert_whole(&found, last, &answer.warnings(), "what was found once is found again");
        last = found.len() as u64;
        assert_eq!(answer.cost().from_ring, 0);
        assert!(answer.warnings().iter().any(|r| r.contains("--socket none")), "{:?}", answer.warnings());
        std::thread::sleep(Duration::from_millis(150));
    }
    let before = stored(&capture);
    until("what was published then is on disk", || {
        numbers(&mut begin(&store, Query::default())).len() as u64 >= before
    });
    stop(capture);
}

#[test]
fn a_socket_that_refuses_and_one_that_has_gone_cost_a_remark_and_the_last_second() {
    let dir = TempDir::new("a_socket_that_refuses");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=5kpps,truth", &store) };
    let capture = start(&plan);
    let on_disk = || numbers(&mut begin(&store, Query { live: false, ..Query::default() })).len();
    until("a thousand packets are on disk", || stored(&capture) > 1000 && on_disk() >= 1000);
    std::fs::remove_file(dir.join("s")).expect("a socket");
    let mut answer = begin(&store, Query::default());
    let found = numbers(&mut answer);
    assert_whole(&found, 1000, &answer.warnings(), "from files");
    assert!(answer.warnings().iter().any(|r| r.contains("no engine listens on this socket")), "{:?}", answer.warnings());
    // A listener that talks another language: any other socket.
    let unknown_client = std::os::unix::net::UnixDatagram::bind(dir.join("s")).expect("a socket");
    let mut answer = begin(&store, Query::default());
    assert_whole(&numbers(&mut answer), 1000, &answer.warnings(), "from files");
    assert_eq!(answer.warnings().len(), 1, "{:?}", answer.warnings());
    drop(unknown_client);
    // Whoever does not want the ring is not told about it.
    let mut answer = begin(&store, Query { live: false, ..Query::default() });
    assert_whole(&numbers(&mut answer), 1000, &answer.warnings(), "not live");
    assert_eq!(answer.warnings(), [""; 0]);
    stop(capture);
}

/// Follows until the recorder has ended; the numbers in order of arrival.
fn follow(store: &Path, question: Query) -> (Vec<u64>, Vec<String>) {
    let mut answer = begin(store, Query { follow: true, ..question });
    let found = numbers(&mut answer);
    (found, answer.warnings())
}

#[test]
fn who_follows_gets_every_packet_through_all_rotations_with_the_ring_and_without() {
    for listening in [true, false] {
        let dir = TempDir::new("who_follows");
        let store = dir.join("store");
        let plan = sim("300,rate=20kpps,truth", &store);
        let plan = Plan { socket: socket(dir.join("s")).filter(|_| listening), ..plan };
        let capture = start(&plan);
        until("it is recording", || stored(&capture) > 100);
        let (all, (found, remarks)) = std::thread::scope(|scope| {
            let follower = scope.spawn(|| follow(&store, Query::default()));
            std::thread::sleep(Duration::from_millis(4200));
            let all = stop(capture);
            (all, follower.join().expect("an answer"))
        });
        assert_whole(&found, all, &remarks, &format!("listening: {listening}"));
        assert!(remarks.iter().any(|r| r.contains("has ended")), "{remarks:?}");
    }
}

#[test]
fn who_is_slower_than_the_recorder_goes_back_to_the_files_and_misses_nothing() {
    let dir = TempDir::new("who_is_slower");
    let store = dir.join("store");
    // In 1.6 seconds, the ring is written once over.
    let plan = Plan { socket: socket(dir.join("s")), segment: 5 << 20, ..sim("1000,rate=10kpps,truth", &store) };
    let plan = Plan { ring: Some(16 << 20), ..plan };
    let capture = start(&plan);
    until("it is recording", || stored(&capture) > 100);
    let stop_it = Arc::new(AtomicBool::new(false));
    let mut answer = begin(&store, Query { follow: true, stop: Some(Arc::clone(&stop_it)), ..Query::default() });
    let (mut next, mut pauses) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(7) {
        let found = answer.next().expect("a packet").expect("more packets");
        assert_eq!(number(found.data), next, "{:?}", answer.warnings());
        next += 1;
        if next.is_multiple_of(15_000) {
            pauses += 1;
            std::thread::sleep(Duration::from_millis(2500));
        }
    }
    assert!(pauses >= 2 && answer.cost().from_ring > 0, "{pauses} pauses, {:?}", answer.cost());
    assert!(answer.cost().from_ring < next, "the ring was overwritten meanwhile");
    stop_it.store(true, Ordering::Relaxed);
    while let Some(found) = answer.next().expect("a packet") {
        assert_eq!(number(found.data), next);
        next += 1;
    }
    stop(capture);
}

#[test]
fn a_file_that_is_removed_before_it_is_read_is_named_and_the_rest_still_comes() {
    let dir = TempDir::new("removed");
    let store = dir.join("store");
    let capture = start(&sim("300,rate=5kpps,truth", &store));
    until("its first file is there", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let mut answer = begin(&store, Query { follow: true, ..Query::default() });
    let mut found = vec![number(answer.next().expect("a packet").expect("one").data)];
    let sealed = || {
        let mut files: Vec<_> =
            walk(&store).into_iter().filter(|p| p.extension().is_some_and(|e| e == "pcap")).collect();
        files.sort();
        files
    };
    until("four files are whole", || sealed().len() >= 4);
    let victim = sealed()[2].clone();
    std::fs::remove_file(&victim).expect("packets");
    std::fs::remove_file(victim.with_extension("ngi")).expect("an index");
    let all = stop(capture);
    found.extend(numbers(&mut answer));
    assert!(found.windows(2).all(|w| w[0] < w[1]), "in order, and nothing twice");
    let missing = all - found.len() as u64;
    assert!((1..all / 2).contains(&missing), "{missing} of {all}");
    assert_eq!(found.last(), Some(&(all - 1)), "to the end");
    assert!(answer.warnings().iter().any(|r| r.contains("has gone")), "{:?}", answer.warnings());
}

#[test]
fn a_follow_ends_with_a_killed_recorder_and_has_everything_that_it_published() {
    let dir = TempDir::new("a_follow_ends_with_a_killed_recorder");
    let store = dir.path().to_owned();
    let mut recorder = recorder_process(&store);
    until("it records", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let on_disk = || numbers(&mut begin(&store, Query { live: false, ..Query::default() })).len() as u64;
    let mut written = 0;
    let (found, remarks) = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&store, Query::default()));
        std::thread::sleep(Duration::from_millis(2300));
        until("a second of packets is on disk", || {
            written = on_disk();
            written >= 20_000
        });
        recorder.kill();
        follower.join().expect("an answer")
    });
    assert_whole(&found, written, &remarks, "followed");
    assert!(remarks.iter().any(|r| r.contains("has ended")), "{remarks:?}");
    // What it has left behind is read as far as it goes, and is the beginning of the same.
    let mut answer = begin(&store, Query::default());
    let left = numbers(&mut answer);
    assert_whole(&left, written, &answer.warnings(), "left behind: no more than was not written yet is missing");
    assert!(left.len() <= found.len(), "{} on disk, {} followed", left.len(), found.len());
    // And there is nothing to follow any more.
    let (again, remarks) = follow(&store, Query::default());
    assert_eq!(again.len(), left.len());
    assert!(remarks.iter().any(|r| r.contains("nothing to follow")), "{remarks:?}");
}

#[test]
fn a_follow_ends_when_its_interval_does_and_when_it_is_told_to() {
    let dir = TempDir::new("a_follow_ends");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=2kpps,truth", &store) };
    let capture = start(&plan);
    until("it is recording", || stored(&capture) > 100);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let to = Timestamp::ZERO.after(now + Duration::from_millis(1500));
    let mut answer = begin(&store, Query { follow: true, to, ..Query::default() });
    let mut last = Timestamp::ZERO;
    while let Some(found) = answer.next().expect("a packet") {
        assert!(found.ts <= to && found.ts >= last);
        last = found.ts;
    }
    // Nothing matches, so nothing comes; it ends all the same.
    let stop_it = Arc::new(AtomicBool::new(false));
    let filter = Filter::parse("host 203.0.113.77").expect("a filter");
    let question = Query { follow: true, filter, stop: Some(Arc::clone(&stop_it)), ..Query::default() };
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| numbers(&mut begin(&store, question)));
        std::thread::sleep(Duration::from_millis(300));
        stop_it.store(true, Ordering::Relaxed);
        assert!(follower.join().expect("an answer").is_empty());
    });
    stop(capture);
    let mut answer = begin(&store, Query { to, ..Query::default() });
    let mut end = Timestamp::ZERO;
    while let Some(found) = answer.next().expect("a packet") {
        end = found.ts;
    }
    assert_eq!(last, end, "to the end of the interval, {to}");
}

#[test]
fn raw_files_are_read_as_far_as_they_are_on_disk() {
    let dir = TempDir::new("raw_files_are_read");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), ..sim("300,rate=20kpps,truth", &store) };
    let plan = Plan { store: plan.store.map(|s| StorePlan { format: Format::Raw, ..s }), segment: 16 << 20, ..plan };
    let capture = start(&Plan { rotate: None, ..plan });
    until("a file of it is there", || !numbers(&mut begin(&store, Query::default())).is_empty());
    let (all, (found, _)) = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&store, Query::default()));
        let mut last = 0;
        for _ in 0..8 {
            let mut answer = begin(&store, Query::default());
            let found = numbers(&mut answer);
            assert_whole(&found, last, &answer.warnings(), "asked");
            assert!(answer.warnings().iter().any(|r| r.contains("RAW")), "{:?}", answer.warnings());
            last = found.len() as u64;
            std::thread::sleep(Duration::from_millis(200));
        }
        // Over two ends of files.
        until("more than two files full", || stored(&capture) > 120_000);
        (stop(capture), follower.join().expect("an answer"))
    });
    assert_whole(&found, all, &[], "followed");
}

#[test]
fn a_filter_and_an_interval_hold_in_the_open_file_and_in_the_ring() {
    let dir = TempDir::new("a_filter_and_an_interval");
    let store = dir.join("store");
    let plan = Plan { socket: socket(dir.join("s")), rotate: None, ..sim("300,rate=20kpps,truth", &store) };
    let capture = start(&plan);
    until("it is recording", || stored(&capture) > 50_000);
    let mut all: BTreeMap<u64, (Timestamp, Vec<u8>)> = BTreeMap::new();
    let mut answer = begin(&store, Query::default());
    while let Some(found) = answer.next().expect("a packet") {
        all.insert(number(found.data), (found.ts, found.data.to_vec()));
    }
    let last = *all.keys().last().expect("packets");
    let (first, middle) = (all[&0].0, all[&(last / 2)].0);
    let one = Filter::parse(&format!("port {}", port_of(&all[&last].1))).expect("a filter");
    for filter in [Filter::default(), one] {
        for (from, to) in [(first, middle), (middle, all[&last].0), (middle, middle), (all[&last].0, Timestamp::MAX)] {
            let mut answer = begin(&store, Query { from, to, filter: filter.clone(), ..Query::default() });
            let found: Vec<u64> = numbers(&mut answer).into_iter().filter(|n| *n <= last).collect();
            let expected = all.iter().filter(|(_, (ts, bytes))| {
                let headers = wire::Headers::of(bytes, bytes.len() as u32, wire::link::ETHERNET);
                from <= *ts && *ts <= to && filter.matches(bytes, bytes.len() as u32, &headers)
            });
            let expected: Vec<u64> = expected.map(|(n, _)| *n).collect();
            assert_eq!(found.len(), expected.len(), "{filter} from {from} to {to}: {:?}", answer.cost());
            assert!(found == expected, "{filter} from {from} to {to}");
        }
    }
    stop(capture);
}

/// Packet files in their hours, finished or not.
fn files_of(store: &Path) -> usize {
    let names = walk(store).into_iter().map(|p| p.file_name().unwrap_or_default().to_string_lossy().into_owned());
    names.filter(|name| name.contains("Z") && name.contains(".pcap")).count()
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { out.extend(walk(&path)) } else { out.push(path) }
    }
    out
}

/// The source port of a generated frame.
fn port_of(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

/// An Ethernet frame with its number, for a port.
fn frame(number: u32) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    bytes.resize(44, 0);
    bytes.extend(u64::from(number).to_be_bytes()[2..].iter());
    // Different addresses, so that a fanout by hash spreads them.
    bytes[26..34].copy_from_slice(&base::hash::mix64(number.into()).to_be_bytes());
    bytes.resize(60 + number as usize % 1000, 0);
    bytes
}

#[test]
fn ports_of_either_kind_with_one_queue_and_with_two_are_found_live_and_followed() {
    let test = "ports_of_either_kind_with_one_queue_and_with_two_are_found_live_and_followed";
    let Some(sandbox) = Sandbox::new(test) else { return };
    for (i, (kind, queues)) in
        [(SourceKind::AfXdp, 1), (SourceKind::Tpacket, 1), (SourceKind::Tpacket, 2)].into_iter().enumerate()
    {
        // Short, as it has to hold the path of a socket.
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
        let (mut followed, remarks, sent) = std::thread::scope(|scope| {
            let mut sent = 0u32;
            let mut follower = None;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(3500) {
                let burst: Vec<_> = (sent..sent + 500).map(frame).collect();
                wire.send(&burst);
                sent += 500;
                let expected = u64::from(sent);
                until("all of it is taken", || stored(&capture) == expected);
                let mut answer = begin(&store, Query::default());
                let mut found = numbers(&mut answer);
                found.sort_unstable();
                assert_whole(&found, expected, &answer.warnings(), &format!("{kind:?} with {queues}"));
                follower.get_or_insert_with(|| scope.spawn(|| follow(&store, Query::default())));
                std::thread::sleep(Duration::from_millis(100));
            }
            stop(capture);
            let (found, remarks) = follower.expect("a follower").join().expect("an answer");
            (found, remarks, sent)
        });
        followed.sort_unstable();
        assert_whole(&followed, sent.into(), &remarks, &format!("{kind:?} with {queues}, followed"));
        assert_eq!(followed.len(), sent as usize);
    }
}

#[test]
fn a_quiet_queue_holds_up_nobody_and_what_comes_is_in_order() {
    let test = "a_quiet_queue_holds_up_nobody_and_what_comes_is_in_order";
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
        until("its first files are there", || files_of(&store) >= 2);
        let arrived = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let mut answer = begin(&store, Query { follow: true, ..Query::default() });
                let mut last = Timestamp::ZERO;
                while let Some(found) = answer.next().expect("a packet") {
                    assert!(found.ts >= last, "{} after {last}", found.ts);
                    last = found.ts;
                    arrived.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut sent = 0;
            for round in 0..4 {
                // One flow, so one queue; in the second half, all.
                let burst: Vec<_> = (0..100).map(|n| frame(if round < 2 { 7 } else { n })).collect();
                wire.send(&burst);
                sent += 100;
                until("it arrives, although nothing else does", || arrived.load(Ordering::Relaxed) == sent);
            }
            stop(capture);
            follower.join().expect("an answer");
        });
    }
}
