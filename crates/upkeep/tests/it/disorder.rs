//! Tests of out-of-order files: their markers after a crash, in verification, in repair, and in the archive.

use crate::common;

use base::{Prng, Timestamp};
use common::{SECOND, Stream, config, recover, root, run};
use index::{Index, Tail};
use netgrain_upkeep::repair::{Repair, RepairEvent};
use netgrain_upkeep::retention::{ClockReading, Progress, RetentionScope, RetentionWorker, Rules};
use netgrain_upkeep::verify::{Finding, FindingKind, Level, Verify};
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;
use store::catalogue::parse_stem;
use store::device::{Content, Device, Fault, MemoryDevice, Surviving};
use store::names;
use store::out_of_order::{self, OutOfOrderMarkers, Span};

/// A stream of three files. The second file begins an hour before the first, after a step of the system clock. The
/// third file contains a packet that is earlier than its start.
fn set_back(prng: &mut Prng) -> Stream {
    let mut stream = Stream::new(0);
    let packets = |stream: &mut Stream, prng: &mut Prng| {
        for i in 0..24 {
            stream.now += SECOND / 5;
            stream.packet(prng, 60_000, 0);
            if i % 10 == 9 {
                stream.tick();
            }
        }
    };
    packets(&mut stream, prng);
    stream.now -= 3600 * SECOND;
    stream.clock_step(-3_600_000_000_000);
    stream.segment();
    packets(&mut stream, prng);
    stream.now += 7200 * SECOND;
    stream.segment();
    packets(&mut stream, prng);
    stream.now -= 60 * SECOND;
    stream.packet(prng, 60, 0);
    stream.now += 61 * SECOND;
    packets(&mut stream, prng);
    stream.end();
    stream
}

/// The volume after the recorder was killed at the device call with number `at`.
fn record_until(stream: &Stream, at: u64) -> Surviving {
    let device = MemoryDevice::new(1);
    device.set_fault(Fault { crash_at: Some(at), ..Fault::default() });
    run(stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| !device.crashed());
    device.files()
}

fn markers(files: &Surviving, interface: &Path) -> OutOfOrderMarkers {
    let directory = interface.join(names::OUT_OF_ORDER);
    OutOfOrderMarkers::of(files.keys().filter(|p| p.starts_with(&directory)).filter_map(|p| p.file_name()?.to_str()))
}

/// The published files with packets outside of the time range that their names imply, and the time range of their
/// packets according to their indexes.
fn out_of_order_files(files: &Surviving) -> Vec<(String, (Timestamp, Timestamp))> {
    let mut out = Vec::new();
    let mut latest = Timestamp::ZERO;
    for (path, bytes) in files.iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "ngi")) {
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name").to_owned();
        if stem.starts_with('.') {
            continue;
        }
        let index = Index::parse(bytes).expect("an index");
        assert!(matches!(index.tail, Tail::Complete(_)), "{stem}");
        let with_packets: Vec<_> = index.entries.iter().filter(|e| e.first_record.is_some()).collect();
        let Some(first) = with_packets.iter().map(|e| e.first).min() else { continue };
        let last = with_packets.iter().map(|e| e.last).max().expect("a packet");
        if first < index.header.start || index.header.start < latest {
            out.push((stem, (first, last)));
        } else {
            latest = last;
        }
    }
    out
}

#[test]
fn recovery_after_any_crash_leaves_markers_for_all_out_of_order_files() {
    let stream = set_back(&mut Prng::new(2));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let calls = device.calls();
    let (mut most, mut whole) = (0, 0);
    for at in 0..=calls {
        let device = MemoryDevice::with(1, record_until(&stream, at));
        recover(device.clone());
        let files = device.files();
        let markers = markers(&files, &root());
        let found = out_of_order_files(&files);
        for (stem, (first, last)) in &found {
            let span = markers.get(parse_stem(stem).expect("a name")).unwrap_or_else(|| panic!("call {at}: {stem}"));
            assert!(span.first <= *first && *last <= span.last && span != Span::UNKNOWN, "call {at}: {stem} {span:?}");
        }
        most = most.max(found.len());
        whole += usize::from(found.len() == markers.iter().count());
    }
    assert!(most > 0 && whole > 0, "no crash left an out-of-order file");
}

fn verify(files: &Surviving) -> Vec<Finding> {
    let mut findings = Vec::new();
    Verify::new(MemoryDevice::with(1, files.clone()), false, |f: &Finding, _| findings.push(f.clone()))
        .path(Path::new("store"));
    findings
}

#[test]
fn repair_writes_the_missing_markers_of_out_of_order_files() {
    let stream = set_back(&mut Prng::new(3));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let recorded = device.files();
    let findings = verify(&recorded);
    assert!(findings.iter().all(|f| f.kind.level() == Level::Note), "{findings:#?}");
    assert!(findings.iter().any(|f| f.kind == FindingKind::Order), "{findings:#?}");
    let (before, out_of_order_files) = (markers(&recorded, &root()), out_of_order_files(&recorded));
    assert!(!out_of_order_files.is_empty());
    // A copy of the store without files whose names begin with a dot.
    let mut copied = recorded.clone();
    copied.retain(|path, _| !path.starts_with(root().join(names::OUT_OF_ORDER)));
    let unmarked = |files: &Surviving| verify(files).iter().filter(|f| f.kind == FindingKind::Unmarked).count();
    assert_eq!(unmarked(&copied), out_of_order_files.len());
    let device = MemoryDevice::with(1, copied);
    let mut reported = Vec::new();
    Repair::new(|| device.clone(), |did: RepairEvent| reported.push(did.to_string())).path(Path::new("store"));
    let marked = reported.iter().filter(|t| t.contains("out-of-order marker written")).count();
    assert_eq!(marked, out_of_order_files.len(), "{reported:#?}");
    assert_eq!(unmarked(&device.files()), 0);
    for (stem, _) in &out_of_order_files {
        let which = parse_stem(stem).expect("a name");
        let (was, is) =
            (before.get(which).expect("a marker"), markers(&device.files(), &root()).get(which).expect(stem));
        assert!(was.first <= is.first && is.last <= was.last, "{stem}: {is:?} {was:?}");
    }
}

#[test]
fn markers_move_to_the_archive_with_their_files() {
    let stream = set_back(&mut Prng::new(4));
    for fault in [Fault { second_volume: Some("archive"), ..Fault::default() }, Fault::default()] {
        let device = MemoryDevice::new(1);
        assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
        let expected = markers(&device.files(), &root());
        let mut there = device.clone();
        let readme = there.create(Path::new("archive/README"), Content::Index).expect("a file");
        there.close(readme);
        device.set_fault(fault);
        let charge = RetentionScope {
            store: "store".into(),
            interfaces: vec!["eth1".into()],
            beside_others: false,
            directories_after: Duration::ZERO,
        };
        let rules = Rules { max_size: Some(1), archive: Some("archive".into()), ..Rules::default() };
        let mut worker = RetentionWorker::new(device.clone(), charge, rules);
        let moment = ClockReading { now: Timestamp::from_nanos(stream.now), up: Duration::ZERO };
        for _ in 0..100_000 {
            if worker.step(moment, true) == Progress::Idle {
                break;
            }
        }
        let files = device.files();
        let published = |p: &&std::path::PathBuf| p.extension().is_some_and(|e| e == "pcap");
        let left = files.keys().filter(published).filter(|p| p.starts_with("store")).count();
        assert_eq!(left, 0, "all files are in the archive");
        assert_eq!(markers(&files, Path::new("archive/eth1")), expected);
        assert!(markers(&files, &root()).is_empty(), "markers of files that left the store");
    }
}

#[test]
fn retention_removes_the_marker_of_each_removed_file_only() {
    let stream = set_back(&mut Prng::new(5));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let mut left = markers(&device.files(), &root()).iter().count();
    assert_eq!(left, 2);
    let charge = RetentionScope {
        store: "store".into(),
        interfaces: vec!["eth1".into()],
        beside_others: false,
        directories_after: Duration::MAX,
    };
    let mut worker = RetentionWorker::new(device.clone(), charge, Rules { max_size: Some(1), ..Rules::default() });
    let moment = ClockReading { now: Timestamp::from_nanos(stream.now), up: Duration::ZERO };
    for _ in 0..100 {
        let progress = worker.step(moment, true);
        let files = device.files();
        let markers = markers(&files, &root());
        let packets = |stem: &str| files.keys().any(|p| p.file_name().is_some_and(|n| *n == *format!("{stem}.pcap")));
        assert!(markers.iter().all(|(_, _, stem)| packets(stem)), "a marker without its file: {markers:?}");
        assert!(markers.iter().count() + 1 >= left, "one file is removed at a time");
        left = markers.iter().count();
        if progress == Progress::Idle {
            break;
        }
    }
    assert_eq!(left, 0);
}

#[test]
fn the_next_start_removes_markers_without_a_file() {
    let mut device = MemoryDevice::new(1);
    let stem = names::stem(Timestamp::from_secs_nanos(1_795_290_000, 0), None, 0);
    for span in [None, Some(Span::out_of_order((Timestamp::ZERO, Timestamp::MAX)))] {
        out_of_order::write_marker(&mut device, &root(), &stem, span).expect("a marker");
    }
    recover(device.clone());
    assert!(markers(&device.files(), &root()).is_empty());
}

/// A stream of seven files: three files in order, a file that begins an hour before them, and three files that follow
/// the third file in time.
fn set_back_and_right_again(prng: &mut Prng) -> Stream {
    let mut stream = Stream::new(0);
    for file in 0..7 {
        match file {
            0 => {}
            3 => stream.now -= 3600 * SECOND,
            4 => stream.now += 3600 * SECOND,
            _ => stream.now += SECOND,
        }
        if file > 0 {
            stream.segment();
        }
        for _ in 0..24 {
            stream.now += SECOND / 5;
            stream.packet(prng, 60_000, 0);
        }
        stream.tick();
    }
    stream.end();
    stream
}

#[test]
fn missing_files_are_found_beside_out_of_order_files() {
    let stream = set_back_and_right_again(&mut Prng::new(6));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let recorded = device.files();
    let reported = |files: &Surviving, kind| -> Vec<String> {
        verify(files).iter().filter(|f| f.kind == kind).map(ToString::to_string).collect()
    };
    assert_eq!(markers(&recorded, &root()).iter().count(), 1);
    // The file that begins an hour earlier is the first file in the order of names, but the fourth file of the stream.
    assert_eq!(reported(&recorded, FindingKind::Missing), Vec::<String>::new());
    let unchecked = reported(&recorded, FindingKind::GapUnchecked);
    assert_eq!(unchecked.len(), 1);
    assert!(unchecked[0].contains("2 of 6 pairs"), "{unchecked:?}");
    let mut packets: Vec<_> = recorded.keys().filter(|p| p.extension().is_some_and(|e| e == "pcap")).collect();
    packets.sort();
    // In the order of names, the files with the indexes 2 and 5 are the second and the sixth file of the stream.
    for gone in [2, 5] {
        let mut files = recorded.clone();
        files.remove(packets[gone]);
        files.remove(&packets[gone].with_extension(names::INDEX));
        let missing = reported(&files, FindingKind::Missing);
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].contains(packets[gone + 1].to_str().expect("a name")), "{missing:?}");
    }
}

#[test]
fn repair_reports_a_marker_only_if_it_wrote_the_marker() {
    let stream = set_back(&mut Prng::new(7));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let mut without_markers = device.files();
    without_markers.retain(|path, _| !path.starts_with(root().join(names::OUT_OF_ORDER)));
    let repair = |first: &Surviving, others: &Surviving| {
        let (first, others) = (MemoryDevice::with(1, first.clone()), MemoryDevice::with(1, others.clone()));
        let asked = Cell::new(0);
        let another = || if asked.replace(asked.get() + 1) == 0 { first.clone() } else { others.clone() };
        let (mut marked, mut refused) = (0, 0);
        let report = |did: RepairEvent| match did {
            RepairEvent::Marked(_) => marked += 1,
            RepairEvent::Refused { why, .. } if why.contains("no marker written") => refused += 1,
            _ => {}
        };
        Repair::new(another, report).path(Path::new("store"));
        (marked, refused, markers(&first.files(), &root()).iter().count())
    };
    let out_of_order_files = out_of_order_files(&without_markers).len();
    assert_eq!(repair(&without_markers, &without_markers), (out_of_order_files, 0, out_of_order_files));
    // Removes the indexes after verification has read them.
    let is_index = |path: &Path| path.extension().is_some_and(|e| e == names::INDEX);
    let mut without_indexes = without_markers.clone();
    without_indexes.retain(|path, _| !is_index(path));
    assert_eq!(repair(&without_indexes, &without_markers), (0, out_of_order_files, 0));
    // The name of an index may also consist of the complete name of the packet file and the suffix.
    let renamed = without_markers.iter().map(|(path, bytes)| {
        (if is_index(path) { path.with_extension("pcap.ngi") } else { path.clone() }, bytes.clone())
    });
    let renamed: Surviving = renamed.collect();
    assert_eq!(repair(&renamed, &renamed), (out_of_order_files, 0, out_of_order_files));
}
