//! Tests of retention on a volume in memory: they check which files retention removes and keeps, and which files exist
//! after a crash at any step.

use base::{Prng, Timestamp};
use netgrain_upkeep::retention::{
    ClockReading, Event, Free, Progress, RemovalReason, RetentionScope, RetentionWorker, Rules,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::device::{Content, Device, Fault, MemoryDevice, Op, Surviving};
use store::names;

/// 2026-11-21T19:40:00Z.
const NOW: u64 = 1_795_290_000;
const HOUR: u64 = 3600;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs_nanos(seconds, 0)
}

/// Returns a reading of both clocks. The system clock always shows `NOW`, while the monotonic clock runs.
fn steady(up: u64) -> ClockReading {
    ClockReading { now: at(NOW), up: Duration::from_secs(up) }
}

fn scope(interfaces: &[&str]) -> RetentionScope {
    let interfaces = interfaces.iter().map(|i| (*i).to_owned()).collect();
    RetentionScope { store: "store".into(), interfaces, beside_others: false, directories_after: Duration::ZERO }
}

fn path(interface: &str, start: u64, ending: &str) -> PathBuf {
    let directory = names::hour_directory(&names::interface_directory(Path::new("store"), interface), at(start));
    directory.join(format!("{}.{ending}", names::stem(at(start), None, 0)))
}

/// Writes a file and syncs it.
fn put(device: &MemoryDevice, path: &Path, content: &[u8]) {
    let mut device = device.clone();
    let file = device.create(path, Content::Index).expect("a new file");
    device.put(file, 0, content).expect("enough space");
    let directory = device.open_directory(Path::new("store")).expect("a directory");
    for (id, token) in [(file, 1), (directory, 2)] {
        device.start(id, Op::Sync, token).expect("a sync");
    }
    device.reap(Duration::ZERO, &mut Vec::new()).expect("the completions");
    device.close(file);
}

/// A packet file of 1000 bytes and its index of 100 bytes; both contain their start time.
fn publish(device: &MemoryDevice, interface: &str, start: u64) {
    let fill = |len: usize| start.to_le_bytes().into_iter().cycle().take(len).collect::<Vec<u8>>();
    put(device, &path(interface, start, "ngi"), &fill(100));
    put(device, &path(interface, start, "pcap"), &fill(1000));
}

fn starts(device: &MemoryDevice, interface: &str, from: impl IntoIterator<Item = u64>) -> Vec<u64> {
    from.into_iter().filter(|start| device.files().contains_key(&path(interface, *start, "pcap"))).collect()
}

/// Performs steps until there is no work.
fn settle(worker: &mut RetentionWorker<MemoryDevice>, moment: ClockReading) {
    for _ in 0..100_000 {
        if worker.step(moment, true) == Progress::Idle {
            return;
        }
    }
    panic!("the worker did not become idle");
}

fn removed(events: &[Event]) -> Vec<(PathBuf, RemovalReason)> {
    let gone = |event: &Event| match event {
        Event::Removed { path, why, .. } => Some((path.clone(), *why)),
        _ => None,
    };
    events.iter().filter_map(gone).collect()
}

#[test]
fn held_files_are_skipped_until_the_query_ends() {
    let device = MemoryDevice::new(1);
    let all: Vec<u64> = (0..6).map(|i| NOW - 6 * HOUR + i * HOUR).collect();
    all.iter().for_each(|start| publish(&device, "eth1", *start));
    let held = device.hold(path("eth1", all[0], "pcap").parent().expect("an hour"));
    let rules = Rules { max_size: Some(3 * 1100), ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    settle(&mut worker, steady(0));
    assert_eq!(starts(&device, "eth1", all.clone()), all, "retention waits for the query");
    settle(&mut worker, steady(6));
    assert_eq!(starts(&device, "eth1", all.clone()), [all[0], all[4], all[5]]);
    let reported = |events: &[Event]| events.iter().filter(|e| matches!(e, Event::Held { .. })).count();
    let events = worker.take_events();
    assert_eq!((reported(&events), removed(&events).len()), (1, 3), "{events:?}");
    publish(&device, "eth1", NOW);
    settle(&mut worker, steady(10));
    assert_eq!(reported(&worker.take_events()), 0, "the hold is reported once");
    let strict = Rules { max_size: Some(0), ..Rules::default() };
    let mut other = RetentionWorker::new(device.clone(), scope(&["eth1"]), strict).dry_run();
    settle(&mut other, steady(0));
    assert_eq!((other.state().held, other.state().files), (1, 1), "all files but the held one would be removed");
    drop(held);
    publish(&device, "eth1", NOW + 1);
    settle(&mut worker, steady(20));
    assert_eq!(starts(&device, "eth1", all.clone()), [all[5]]);
}

#[test]
fn held_files_are_removed_after_the_wait_if_no_others_are_left() {
    let device = MemoryDevice::new(1);
    let all: Vec<u64> = (0..3).map(|i| NOW - 3 * HOUR + i).collect();
    all.iter().for_each(|start| publish(&device, "eth1", *start));
    let _held = device.hold(path("eth1", all[0], "pcap").parent().expect("an hour"));
    let wait = Duration::from_secs(60);
    let rules = Rules { max_size: Some(1100), wait, ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    for up in [0, 30, 59] {
        settle(&mut worker, steady(up));
        assert_eq!(starts(&device, "eth1", all.clone()), all, "after {up} s");
    }
    settle(&mut worker, steady(60));
    assert_eq!(starts(&device, "eth1", all.clone()), all[2..]);
    let events = worker.take_events();
    let overruled = events.iter().filter(|e| matches!(e, Event::Overruled { .. })).count();
    assert_eq!((overruled, removed(&events).len()), (1, 2), "{events:?}");
}

#[test]
fn with_very_little_space_retention_does_not_wait_for_a_query() {
    let device = MemoryDevice::new(1);
    let all: Vec<u64> = (0..4).map(|i| NOW - 3 * HOUR + i).collect();
    all.iter().for_each(|start| publish(&device, "eth1", *start));
    let _held = device.hold(path("eth1", all[0], "pcap").parent().expect("an hour"));
    let filling = device.clone();
    filling.set_fault(Fault { capacity: Some(5000), ..Fault::default() });
    // With this capacity 600 bytes are free, which is less than half of the required space.
    let rules = Rules { keep_free: Some(Free::Bytes(1500)), ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    settle(&mut worker, steady(0));
    assert_eq!(starts(&device, "eth1", all.clone()), all[1..], "one file is removed at once");
}

#[test]
fn a_dry_run_reports_each_file_once() {
    let device = MemoryDevice::new(1);
    (0..4).for_each(|i| publish(&device, "eth1", NOW - (4 - i) * HOUR));
    let rules = Rules { max_size: Some(0), ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules).dry_run();
    (0..30).for_each(|up| settle(&mut worker, steady(up)));
    assert_eq!((removed(&worker.take_events()).len(), worker.state().removed.files), (4, 4));
    assert_eq!(starts(&device, "eth1", (0..4).map(|i| NOW - (4 - i) * HOUR)).len(), 4, "a dry run removes nothing");
}

#[test]
fn the_age_rule_applies_only_after_the_clock_ran_in_step() {
    let device = MemoryDevice::new(1);
    let all = [NOW - 50 * HOUR, NOW - 30 * HOUR, NOW - HOUR];
    all.iter().for_each(|start| publish(&device, "eth1", *start));
    let rules = Rules { max_age: Some(Duration::from_secs(40 * HOUR)), ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    settle(&mut worker, steady(0));
    // The test sets the clock forward by ten years, and corrects it some minutes later.
    for minute in 0..5 {
        settle(
            &mut worker,
            ClockReading { now: at(NOW + 87_600 * HOUR + 60 * minute), up: Duration::from_secs(60 * minute) },
        );
    }
    assert_eq!(starts(&device, "eth1", all), all);
    for minute in 5..20 {
        settle(&mut worker, ClockReading { now: at(NOW + 60 * minute), up: Duration::from_secs(60 * minute) });
    }
    assert_eq!(starts(&device, "eth1", all), all[1..]);
    assert_eq!(removed(&worker.take_events()), [(path("eth1", all[0], "pcap"), RemovalReason::Age)]);
    assert_eq!(worker.state().oldest, Some(at(all[1])));
}

#[test]
fn free_space_removes_the_oldest_files_of_the_scope_only() {
    let device = MemoryDevice::new(1);
    let (a, b, c) = ([NOW - 9, NOW - 5], [NOW - 8, NOW - 7], [NOW - 100]);
    a.iter().for_each(|start| publish(&device, "a", *start));
    b.iter().for_each(|start| publish(&device, "b", *start));
    c.iter().for_each(|start| publish(&device, "not_ours", *start));
    device.set_fault(Fault { capacity: Some(5 * 1100 + 10), ..Fault::default() });
    let rules = Rules { keep_free: Some(Free::Bytes(1000)), ahead: 1200, ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["a", "b"]), rules);
    settle(&mut worker, steady(0));
    let gone = [path("a", a[0], "pcap"), path("b", b[0], "pcap")];
    assert_eq!(removed(&worker.take_events()), gone.map(|path| (path, RemovalReason::Space)));
    assert_eq!(starts(&device, "not_ours", c), c);
    assert!(worker.is_content(steady(0)));
}

#[test]
fn a_worker_waits_a_limited_time_for_workers_with_older_files() {
    let device = MemoryDevice::new(1);
    publish(&device, "ours", NOW - HOUR);
    publish(&device, "theirs", NOW - 5 * HOUR);
    device.set_fault(Fault { capacity: Some(2 * 1100 + 800), ..Fault::default() });
    let rules = Rules { keep_free: Some(Free::Bytes(1000)), ..Rules::default() };
    let beside = RetentionScope { beside_others: true, ..scope(&["ours"]) };
    let mut worker = RetentionWorker::new(device.clone(), beside, rules);
    settle(&mut worker, steady(0));
    assert_eq!(starts(&device, "ours", [NOW - HOUR]).len(), 1);
    settle(&mut worker, steady(2));
    assert_eq!(starts(&device, "ours", [NOW - HOUR]).len(), 0, "the other worker removed nothing");
}

#[test]
fn foreign_growing_and_half_published_files_are_never_removed() {
    let device = MemoryDevice::new(1);
    publish(&device, "eth1", NOW - HOUR);
    let beside = |name: &str| path("eth1", NOW - HOUR, "pcap").with_file_name(name);
    let stem = names::stem(at(NOW - HOUR + 1), None, 0);
    let stay = [
        PathBuf::from("store/notes.txt"),
        "store/eth1/.recorder".into(),
        "store/eth1/2026/11/21/notes".into(),
        "store/eth1/2026/13/01/00/20261121T194000.000000000Z.pcap".into(),
        beside("trace.pcap"),
        beside("20261121T174000.000000000Z.pcap"),
        beside("20261121T184000.000000000Z_01.pcap"),
        beside("20261121T184000.000000000Z.pcap.bak"),
        beside(&format!("{stem}.ngi")),
        beside(&names::hidden(&stem, "pcap")),
        beside(&names::hidden(&names::stem(at(NOW - HOUR + 2), None, 0), "ngi")),
        "store/eth1/.next-q0-0.pcap.partial".into(),
    ];
    stay.iter().for_each(|path| put(&device, path, b"something"));
    // An index whose packet file was removed by another process still belongs to the store, and is removed when it is
    // the oldest file.
    let orphan = path("eth1", NOW - 2 * HOUR, "ngi");
    put(&device, &orphan, b"something");
    let rules = Rules { max_age: Some(Duration::ZERO), max_size: Some(0), ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules).trusting_the_clock();
    settle(&mut worker, steady(0));
    let left: BTreeSet<PathBuf> = device.files().into_keys().collect();
    assert_eq!(left, stay.into_iter().collect());
    let gone = removed(&worker.take_events()).into_iter().map(|(path, _)| path);
    assert_eq!(gone.collect::<Vec<_>>(), [orphan, path("eth1", NOW - HOUR, "pcap")]);
}

#[test]
fn the_cost_of_a_listing_depends_on_directories_and_not_on_files() {
    let calls = |files: u64| {
        let device = MemoryDevice::new(1);
        for i in 0..files {
            publish(&device, "eth1", NOW - 24 * HOUR + i * 60);
        }
        let rules = Rules { max_size: Some(u64::MAX), ..Rules::default() };
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
        settle(&mut worker, steady(0));
        assert_eq!(worker.state().files, files);
        let before = device.calls();
        settle(&mut worker, steady(100));
        device.calls() - before
    };
    // The files of all interfaces begin in the same hours.
    let (few, many) = (calls(24), calls(240));
    assert!(few > 0 && many <= few + 8, "{few} calls for 24 files, {many} for 240");
}

const ARCHIVE: &str = "archive";

fn archiving() -> (Fault, Rules) {
    let fault = Fault { second_volume: Some(ARCHIVE), ..Fault::default() };
    (fault, Rules { max_size: Some(1500), archive: Some(ARCHIVE.into()), ..Rules::default() })
}

#[test]
fn a_full_or_missing_archive_is_reported_and_delays_removal() {
    let (fault, rules) = archiving();
    let absent = Fault { missing: Some(ARCHIVE), ..fault };
    let full = Fault { second_volume_capacity: Some(1000), ..fault };
    for (trouble, says) in [(absent, "mount it"), (full, "bytes in the archive, and")] {
        let device = MemoryDevice::new(1);
        let all: Vec<u64> = (0..4).map(|i| NOW - 10 + i).collect();
        all.iter().for_each(|start| publish(&device, "eth1", *start));
        let rules = Rules { keep_free: Some(Free::Bytes(1000)), ..rules.clone() };
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
        device.set_fault(Fault { capacity: Some(4 * 1100 + 600), ..trouble });
        settle(&mut worker, steady(0));
        assert_eq!(starts(&device, "eth1", all.clone()), all, "{says}: no file leaves the store");
        let events = worker.take_events();
        assert!(matches!(&events[..], [Event::Warning(text)] if text.contains(says)), "{events:?}");
        assert!(worker.state().trouble.is_some());
        device.set_fault(Fault { capacity: Some(4 * 1100 + 400), ..trouble });
        settle(&mut worker, steady(1));
        let events = worker.take_events();
        assert!(
            matches!(&events[..], [Event::Removed { unarchived: true, why: RemovalReason::Space, .. }]),
            "{events:?}"
        );
        // The archive is available again.
        device.set_fault(Fault { capacity: Some(4 * 1100 + 600), ..fault });
        settle(&mut worker, steady(60));
        let events = worker.take_events();
        assert!(events.iter().all(|e| matches!(e, Event::Archived { .. })) && events.len() == 2, "{events:?}");
        assert_eq!(starts(&device, "eth1", all.clone()), all[3..]);
    }
}

#[test]
fn copying_waits_while_the_writer_is_busy() {
    let (fault, rules) = archiving();
    let device = MemoryDevice::new(1);
    device.set_fault(fault);
    (0..3).for_each(|i| publish(&device, "eth1", NOW - 10 + i));
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    let progress: Vec<Progress> = (0..20).map(|_| worker.step(steady(0), false)).collect();
    assert_eq!(progress.last(), Some(&Progress::Waiting));
    assert!(device.files().keys().all(|path| !path.starts_with(ARCHIVE)));
    settle(&mut worker, steady(0));
    assert_eq!(worker.state().archived.files, 2);
}

/// Paths of the archived files, without the file README that the test creates.
fn archived(device: &MemoryDevice) -> Vec<PathBuf> {
    device.files().into_keys().filter(|path| path.starts_with(ARCHIVE) && !path.ends_with("README")).collect()
}

#[test]
fn while_a_copy_waits_later_files_are_removed_for_space() {
    let (fault, rules) = archiving();
    let device = MemoryDevice::new(1);
    device.set_fault(fault);
    let all: Vec<u64> = (0..4).map(|i| NOW - 10 + i).collect();
    all.iter().for_each(|start| publish(&device, "eth1", *start));
    let rules = Rules { keep_free: Some(Free::Bytes(1000)), ..rules };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    assert_eq!(worker.step(steady(0), false), Progress::More);
    let mut job = worker.send_out().expect("a job for the oldest file");
    let mut archive_device = device.clone();
    assert!((0..4).all(|_| job.step(&mut archive_device)), "the copy takes several steps");
    // The job is not continued, as if the volume of the archive did not respond: then no other file is archived, and no
    // file is removed that should be archived.
    assert_eq!((worker.step(steady(1), true), worker.send_out().is_none()), (Progress::Waiting, true));
    let used: u64 = 4 * 1100;
    device.set_fault(Fault { capacity: Some(used + 400), ..fault });
    let progress: Vec<Progress> = (0..10).map(|_| worker.step(steady(2), true)).collect();
    assert_eq!(progress.last(), Some(&Progress::Waiting));
    let gone = removed(&worker.take_events());
    assert_eq!(gone, [(path("eth1", all[1], "pcap"), RemovalReason::Space)], "the file being archived stays");
    assert!(job.is_cancelled() && !job.step(&mut archive_device));
    worker.take_back(job);
    assert_eq!(archived(&device).len(), 0);
    device.set_fault(fault);
    settle(&mut worker, steady(20));
    assert_eq!(worker.state().archived.files, 2);
    assert_eq!(starts(&device, "eth1", all.clone()), all[3..]);
}

#[test]
fn an_archive_on_another_volume_than_at_the_start_is_not_used() {
    let (fault, rules) = archiving();
    let device = MemoryDevice::new(1);
    put(&device, &Path::new(ARCHIVE).join("README"), b"cold");
    (0..3).for_each(|i| publish(&device, "eth1", NOW - 10 + i));
    device.set_fault(fault);
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    // The archive is unmounted before the first file is archived, so its directory is then on the store's volume.
    device.set_fault(Fault::default());
    settle(&mut worker, steady(0));
    let events = worker.take_events();
    assert!(matches!(&events[..], [Event::Warning(text)] if text.contains("another volume")), "{events:?}");
    assert_eq!(starts(&device, "eth1", NOW - 10..NOW).len(), 3);
}

#[test]
fn incomplete_copies_of_stopped_workers_are_removed() {
    let (fault, rules) = archiving();
    for steps in 0..20 {
        for killed in [false, true] {
            let note = format!("after {steps} steps, killed: {killed}");
            let device = MemoryDevice::new(1);
            device.set_fault(fault);
            (0..2).for_each(|i| publish(&device, "eth1", NOW - 10 + i));
            let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
            for _ in 0..steps {
                worker.step(steady(0), true);
            }
            if killed {
                std::mem::forget(worker);
                device.kill();
                // Before the next worker starts, the file of the interrupted move is removed and another file is
                // published.
                let mut gone = device.clone();
                for ending in ["ngi", "pcap"] {
                    let _ = gone.remove(&path("eth1", NOW - 10, ending));
                }
                publish(&device, "eth1", NOW - 5);
                let mut next = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
                settle(&mut next, steady(0));
            } else {
                drop(worker);
            }
            let left = archived(&device);
            assert!(left.iter().all(|path| !path.to_string_lossy().ends_with(".moving")), "{note}: {left:?}");
            let alone = |path: &&PathBuf| {
                path.extension().is_some_and(|e| e == "ngi") && !left.contains(&path.with_extension("pcap"))
            };
            assert!(killed || !left.iter().any(|path| alone(&path)), "{note}: {left:?}");
        }
    }
}

#[test]
fn an_index_without_packet_file_does_not_stay_in_the_archive() {
    let (copying, rules) = archiving();
    for (fault, ending) in [(copying, "pcap.moving"), (Fault::default(), "pcap")] {
        let device = MemoryDevice::new(1);
        put(&device, &Path::new(ARCHIVE).join("README"), b"cold");
        (0..2).for_each(|i| publish(&device, "eth1", NOW - 10 + i));
        let before = device.files();
        device.set_fault(Fault { no_rename: Some(ending), ..fault });
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
        settle(&mut worker, steady(0));
        assert_eq!(device.files(), before, "{ending}");
        assert!(matches!(&worker.take_events()[..], [Event::Warning(_)]), "{ending}");
        device.set_fault(fault);
        settle(&mut worker, steady(30));
        assert_eq!(archived(&device).len(), 2, "{ending}");
    }
}

/// Asserts that every file exists completely in the store or in the archive, and that all copies are equal to the
/// original.
fn check_nothing_is_lost(files: &Surviving, all: &BTreeMap<PathBuf, Vec<u8>>, note: &str) {
    let visible = |path: &Path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    for (path, content) in all {
        let in_archive = Path::new(ARCHIVE).join(path.strip_prefix("store").expect("in the store"));
        let copies: Vec<&Vec<u8>> = [path.clone(), in_archive].iter().filter_map(|p| files.get(p)).collect();
        let is_packets = path.extension().is_some_and(|e| e == "pcap");
        assert!(!copies.is_empty() || !is_packets, "{note}: {} is lost", path.display());
        assert!(copies.iter().all(|copy| *copy == content), "{note}: {} is changed", path.display());
    }
    for path in files.keys().filter(|path| visible(path) && path.extension().is_some_and(|e| e == "ngi")) {
        let beside = path.with_extension("pcap");
        // In the archive, an index may be published a moment before its packet file; in the store, no index remains
        // without it.
        assert!(
            path.starts_with(ARCHIVE) || files.contains_key(&beside),
            "{note}: {} has no packet file",
            path.display()
        );
    }
}

#[test]
fn archiving_is_completed_after_a_crash_at_any_step() {
    let test = "archiving_is_completed_after_a_crash_at_any_step";
    let mut prng = Prng::new(testkit::seed(test));
    let (copying, rules) = archiving();
    for (fault, how) in [(copying, "copied"), (Fault::default(), "renamed")] {
        let prepare = || {
            let device = MemoryDevice::new(prng_seed(how));
            (0..3).for_each(|i| publish(&device, "eth1", NOW - 10 + i));
            // The file README makes the directory of the archive exist, because retention never creates this directory.
            put(&device, &Path::new(ARCHIVE).join("README"), b"cold");
            device
        };
        let all: BTreeMap<PathBuf, Vec<u8>> =
            prepare().files().into_iter().filter(|(path, _)| path.starts_with("store")).collect();
        let mut finished = false;
        for crash in 0.. {
            let device = prepare();
            let crash_at = Some(device.calls() + crash);
            device.set_fault(Fault { crash_at, ..fault });
            let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
            for _ in 0..200 {
                worker.step(steady(0), true);
            }
            finished = !device.crashed();
            let note = format!("{how}, crash at call {crash}");
            let survivors = device.surviving(&mut prng);
            check_nothing_is_lost(&survivors, &all, &note);
            // The machine starts again.
            let device = MemoryDevice::with(crash, survivors);
            device.set_fault(fault);
            let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
            settle(&mut worker, steady(0));
            let files = device.files();
            check_nothing_is_lost(&files, &all, &note);
            assert_eq!(starts(&device, "eth1", NOW - 10..NOW), [NOW - 8], "{note}");
            let hidden: Vec<_> = files.keys().filter(|path| path.to_string_lossy().ends_with(".moving")).collect();
            assert!(hidden.is_empty(), "{note}: {hidden:?}");
            let copies = files.keys().filter(|path| path.to_string_lossy().contains('_')).count();
            assert_eq!(copies, 0, "{note}: a file was archived twice");
            if finished {
                break;
            }
        }
        assert!(finished);
    }
}

fn prng_seed(how: &str) -> u64 {
    how.len() as u64
}

#[test]
fn a_file_with_the_same_name_in_the_archive_is_not_replaced() {
    let (fault, rules) = archiving();
    for fault in [fault, Fault::default()] {
        let device = MemoryDevice::new(1);
        let there = |ending: &str, copy: u32| {
            let directory = names::hour_directory(&Path::new(ARCHIVE).join("eth1"), at(NOW - 10));
            directory.join(format!("{}.{ending}", names::stem(at(NOW - 10), None, copy)))
        };
        put(&device, &there("ngi", 0), b"another index");
        put(&device, &there("pcap", 0), b"other packets");
        (0..2).for_each(|i| publish(&device, "eth1", NOW - 10 + i));
        let before = device.files();
        device.set_fault(fault);
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
        settle(&mut worker, steady(0));
        let after = device.files();
        for ending in ["ngi", "pcap"] {
            assert_eq!(after[&there(ending, 0)], before[&there(ending, 0)]);
            assert_eq!(after[&there(ending, 1)], before[&path("eth1", NOW - 10, ending)]);
        }
    }
}

#[test]
fn a_crash_during_removal_leaves_no_index_without_packet_file() {
    let test = "a_crash_during_removal_leaves_no_index_without_packet_file";
    let mut prng = Prng::new(testkit::seed(test));
    let rules = Rules { max_size: Some(2500), ..Rules::default() };
    for crash in 0..60 {
        let device = MemoryDevice::new(crash);
        (0..5).for_each(|i| publish(&device, "eth1", NOW - 10 + i));
        let all = device.files();
        device.set_fault(Fault { crash_at: Some(device.calls() + crash), ..Fault::default() });
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
        for _ in 0..50 {
            worker.step(steady(0), true);
        }
        let survivors = device.surviving(&mut prng);
        for (path, content) in &survivors {
            assert_eq!(content, &all[path], "crash at call {crash}");
            assert!(survivors.contains_key(&path.with_extension("pcap")), "crash at call {crash}: {}", path.display());
        }
        let device = MemoryDevice::with(crash, survivors);
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules.clone());
        settle(&mut worker, steady(0));
        assert_eq!(starts(&device, "eth1", NOW - 10..NOW), [NOW - 7, NOW - 6], "crash at call {crash}");
    }
}

/// A plain implementation of the order of removal, with which the worker is compared.
fn order(start: u64) -> (bool, u64) {
    (start <= NOW + HOUR, start)
}

#[test]
fn a_random_walk_removes_exactly_the_files_of_the_model() {
    let test = "a_random_walk_removes_exactly_the_files_of_the_model";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    for round in 0..20 {
        let device = MemoryDevice::new(prng.next_u64());
        let most = 1100 * (3 + prng.below(10));
        let age = HOUR * (10 + prng.below(100));
        let rules = Rules {
            max_size: Some(most),
            max_age: (round % 2 == 0).then_some(Duration::from_secs(age)),
            wait: Duration::ZERO,
            ..Rules::default()
        };
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules).trusting_the_clock();
        let mut model: Vec<u64> = Vec::new();
        let mut holds = BTreeMap::new();
        for step in 0..60u64 {
            for _ in 0..prng.below(4) {
                // Sometimes the clock is wrong.
                let start = match prng.below(8) {
                    0 => prng.below(5) * HOUR,
                    1 => NOW + 2 * HOUR + prng.below(100) * HOUR,
                    _ => NOW - prng.below(120) * HOUR,
                } + prng.below(60);
                if !model.contains(&start) {
                    publish(&device, "eth1", start);
                    model.push(start);
                }
            }
            if prng.below(4) == 0 && !model.is_empty() {
                // In some steps another process removes a packet file and its index.
                let start = model.swap_remove(prng.below(model.len() as u64) as usize);
                let mut device = device.clone();
                device.remove(&path("eth1", start, "pcap")).expect("an existing file");
                device.remove(&path("eth1", start, "ngi")).expect("an existing file");
            }
            if prng.below(3) == 0 && !model.is_empty() {
                let hour = model[prng.below(model.len() as u64) as usize] / HOUR;
                let directory = path("eth1", hour * HOUR, "pcap").parent().expect("an hour").to_owned();
                holds.insert(hour, device.hold(&directory));
            } else if prng.below(2) == 0 {
                holds.clear();
            }
            settle(&mut worker, steady(20 * step));
            let is_held = |start: &u64| holds.contains_key(&(start / HOUR));
            if round % 2 == 0 {
                model.retain(|start| *start >= NOW - age);
            }
            model.sort_by_key(|start| order(*start));
            while model.len() as u64 * 1100 > most {
                // If no other file can be removed, a file of an hour directory that a query holds must be removed.
                model.remove(model.iter().position(|start| !is_held(start)).unwrap_or(0));
            }
            let mut found = starts(&device, "eth1", model.clone());
            found.sort_by_key(|start| order(*start));
            let note = format!("seed {seed}, round {round}, step {step}");
            assert_eq!(found, model, "{note}");
            assert_eq!(device.files().len(), 2 * model.len(), "{note}: unexpected files");
            assert_eq!((worker.state().files, worker.state().bytes), (model.len() as u64, model.len() as u64 * 1100));
        }
    }
}

#[test]
fn directories_are_removed_after_they_were_empty_for_a_while() {
    let dir = testkit::TempDir::new("retention-directories");
    let store = dir.join("store");
    let place = |start: u64| {
        let directory = names::hour_directory(&names::interface_directory(&store, "eth1"), at(start));
        std::fs::create_dir_all(&directory).expect("an hour");
        directory
    };
    let write = |start: u64, ending: &str| {
        let path = place(start).join(format!("{}.{ending}", names::stem(at(start), None, 0)));
        std::fs::write(&path, vec![1; 5000]).expect("a file");
    };
    let days = [NOW - 60 * 24 * HOUR, NOW - 24 * HOUR, NOW];
    for start in days {
        write(start, "ngi");
        write(start, "pcap");
    }
    std::fs::write(place(days[1]).join("notes"), "foreign").expect("a file");
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let moment = |up: u64| ClockReading { now: at(wall + up), up: Duration::from_secs(up) };
    let rules = Rules { max_size: Some(1), ..Rules::default() };
    let after = Duration::from_secs(60);
    let scope = RetentionScope { store: store.clone(), directories_after: after, ..scope(&["eth1"]) };
    let mut worker = RetentionWorker::new(store::DiskDevice::plain(), scope, rules);
    let run = |worker: &mut RetentionWorker<_>, up| while worker.step(moment(up), true) != Progress::Idle {};
    run(&mut worker, 0);
    assert_eq!((worker.state().files, worker.state().removed.files), (0, 3));
    run(&mut worker, 20);
    assert!(days.iter().all(|start| place(*start).is_dir()), "the directories are not empty for long enough");
    run(&mut worker, 200);
    let left = |start: u64| names::hour_directory(&store.join("eth1"), at(start)).is_dir();
    assert_eq!(days.map(left), [false, true, false]);
    assert!(!store.join("eth1/2026/09").exists(), "an empty month is removed");
    assert!(store.join("eth1").is_dir());
}

#[test]
fn removals_without_effect_are_limited_to_what_the_recorder_needs() {
    let gone = |free: u64, ahead: u64| {
        let device = MemoryDevice::new(1);
        (0..40).for_each(|i| publish(&device, "eth1", NOW - 100 + i));
        device.set_fault(Fault { capacity: Some(40 * 1100 + free), space_taken_by_others: true, ..Fault::default() });
        let rules = Rules { keep_free: Some(Free::Bytes(1)), ahead, ..Rules::default() };
        let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
        settle(&mut worker, steady(0));
        let at_once = worker.state().removed.files;
        settle(&mut worker, steady(1));
        let reported = worker.take_events();
        assert_eq!(reported.iter().filter(|e| matches!(e, Event::Warning(_))).count(), 1, "{reported:?}");
        (at_once, worker.state().removed.files - at_once)
    };
    // After three removals that free no space, the worker removes one file per second. If very little space is free, it
    // removes as many bytes per second as the recorder may need.
    assert_eq!(gone(9_000, 10_000), (3, 1));
    assert_eq!(gone(1_000, 10_000), (2 + 10, 10));
    assert_eq!(gone(0, 0), (3, 1), "no recorder runs");
}

#[test]
fn an_unlistable_directory_is_reported_once_and_others_follow_the_rules() {
    let device = MemoryDevice::new(1);
    // Files in the hours 17, 18 and 19 of one day, and one file of the day before.
    let all = [NOW - 24 * HOUR, NOW - 2 * HOUR, NOW - HOUR, NOW];
    all[1..].iter().for_each(|start| publish(&device, "eth1", *start));
    let rules = Rules { max_size: Some(1100), ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    for (bad, kept) in [("store/eth1/2026/11/20", all[0]), ("store/eth1/2026/11/21/17", all[1])] {
        if !device.files().contains_key(&path("eth1", kept, "pcap")) {
            publish(&device, "eth1", kept);
        }
        publish(&device, "eth1", NOW - 3 * HOUR);
        device.set_fault(Fault { unlistable: Some(bad), ..Fault::default() });
        let up = if kept == all[0] { 0 } else { 100 };
        settle(&mut worker, steady(up));
        settle(&mut worker, steady(up + 5));
        settle(&mut worker, steady(up + 15));
        let events = worker.take_events();
        let reported = |e: &&Event| matches!(e, Event::Warning(text) if text.contains(bad));
        assert_eq!(events.iter().filter(reported).count(), 1, "{events:?}");
        assert_eq!(starts(&device, "eth1", [all[0], all[1], NOW - 3 * HOUR, all[2], NOW]), [kept, NOW], "{bad}");
        device.set_fault(Fault::default());
        settle(&mut worker, steady(up + 50));
        assert_eq!(starts(&device, "eth1", [kept, NOW]), [NOW], "the directory can be listed again");
    }
}

#[test]
fn a_wrong_clock_does_not_empty_the_store_unless_it_is_synchronised() {
    let device = MemoryDevice::new(1);
    let all = [NOW - 50 * HOUR, NOW - HOUR];
    all.iter().for_each(|start| publish(&device, "eth1", *start));
    let rules = Rules { max_age: Some(Duration::from_secs(40 * HOUR)), ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope(&["eth1"]), rules);
    let wrong = NOW + 87_600 * HOUR;
    for minute in 0..30 {
        settle(&mut worker, ClockReading { now: at(wrong + 60 * minute), up: Duration::from_secs(60 * minute) });
        // A packet file that is recorded with the time of the wrong clock is no evidence that this clock is right.
        publish(&device, "eth1", wrong + 60 * minute);
    }
    assert_eq!(starts(&device, "eth1", all), all);
    let events = worker.take_events();
    let is_reported = |e: &Event| matches!(e, Event::Warning(text) if text.contains("clock"));
    assert!(!events.is_empty() && events.iter().all(is_reported), "{events:?}");
    worker.set_synchronised(true);
    settle(&mut worker, ClockReading { now: at(wrong + 1800), up: Duration::from_secs(1800) });
    assert_eq!(starts(&device, "eth1", all), [0; 0]);
}
