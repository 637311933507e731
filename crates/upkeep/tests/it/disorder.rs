//! Files that are not in the order of time: their notes after a crash, in verification and repair, and in the archive.

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

/// Three files: the second begins an hour before the first, and the third has a packet from before its beginning.
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

/// What a recorder leaves that was killed at call `at`.
fn record_until(stream: &Stream, at: u64) -> Surviving {
    let device = MemoryDevice::new(1);
    device.set_fault(Fault { crash_at: Some(at), ..Fault::default() });
    run(stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| !device.crashed());
    device.files()
}

fn notes(files: &Surviving, interface: &Path) -> OutOfOrderMarkers {
    let folder = interface.join(names::OUT_OF_ORDER);
    OutOfOrderMarkers::of(files.keys().filter(|p| p.starts_with(&folder)).filter_map(|p| p.file_name()?.to_str()))
}

/// The published files that are not where their names say, with the span of their packets, as their indexes have it.
fn astray(files: &Surviving) -> Vec<(String, (Timestamp, Timestamp))> {
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
        let last = with_packets.iter().map(|e| e.last).max().expect("as many");
        if first < index.header.start || index.header.start < latest {
            out.push((stem, (first, last)));
        } else {
            latest = last;
        }
    }
    out
}

#[test]
fn a_recorder_killed_at_any_call_and_recovered_has_a_note_of_every_file_that_is_not_in_order() {
    let stream = set_back(&mut Prng::new(2));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let calls = device.calls();
    let (mut most, mut whole) = (0, 0);
    for at in 0..=calls {
        let device = MemoryDevice::with(1, record_until(&stream, at));
        recover(device.clone());
        let files = device.files();
        let notes = notes(&files, &root());
        let found = astray(&files);
        for (stem, (first, last)) in &found {
            let span = notes.get(parse_stem(stem).expect("a name")).unwrap_or_else(|| panic!("call {at}: {stem}"));
            assert!(span.first <= *first && *last <= span.last && span != Span::UNKNOWN, "call {at}: {stem} {span:?}");
        }
        most = most.max(found.len());
        whole += usize::from(found.len() == notes.iter().count());
    }
    assert!(most > 0 && whole > 0, "no crash left a file that is not in order");
}

fn verify(files: &Surviving) -> Vec<Finding> {
    let mut findings = Vec::new();
    Verify::new(MemoryDevice::with(1, files.clone()), false, |f: &Finding, _| findings.push(f.clone()))
        .path(Path::new("store"));
    findings
}

#[test]
fn disorder_is_a_note_and_what_has_lost_its_note_is_told_and_noted_again() {
    let stream = set_back(&mut Prng::new(3));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let recorded = device.files();
    let findings = verify(&recorded);
    assert!(findings.iter().all(|f| f.kind.level() == Level::Note), "{findings:#?}");
    assert!(findings.iter().any(|f| f.kind == FindingKind::Order), "{findings:#?}");
    let (before, astray) = (notes(&recorded, &root()), astray(&recorded));
    assert!(!astray.is_empty());
    // Copied file by file, without what begins with a dot.
    let mut copied = recorded.clone();
    copied.retain(|path, _| !path.starts_with(root().join(names::OUT_OF_ORDER)));
    let unnoted = |files: &Surviving| verify(files).iter().filter(|f| f.kind == FindingKind::Unmarked).count();
    assert_eq!(unnoted(&copied), astray.len());
    let device = MemoryDevice::with(1, copied);
    let mut reported = Vec::new();
    Repair::new(|| device.clone(), |did: RepairEvent| reported.push(did.to_string())).path(Path::new("store"));
    let noted = reported.iter().filter(|t| t.contains("questions find them now")).count();
    assert_eq!(noted, astray.len(), "{reported:#?}");
    assert_eq!(unnoted(&device.files()), 0);
    for (stem, _) in &astray {
        let which = parse_stem(stem).expect("a name");
        let (was, is) = (before.get(which).expect("a note"), notes(&device.files(), &root()).get(which).expect(stem));
        assert!(was.first <= is.first && is.last <= was.last, "{stem}: {is:?} {was:?}");
    }
}

#[test]
fn notes_go_to_the_archive_with_their_files_and_those_of_removed_files_are_forgotten() {
    let stream = set_back(&mut Prng::new(4));
    for fault in [Fault { second_volume: Some("archive"), ..Fault::default() }, Fault::default()] {
        let device = MemoryDevice::new(1);
        assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
        let expected = notes(&device.files(), &root());
        let mut there = device.clone();
        let readme = there.create(Path::new("archive/README"), Content::Index).expect("a file");
        there.close(readme);
        device.set_fault(fault);
        let charge = RetentionScope {
            store: "store".into(),
            interfaces: vec!["eth1".into()],
            beside_others: false,
            folders_after: Duration::ZERO,
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
        assert_eq!(left, 0, "everything has gone to the archive");
        assert_eq!(notes(&files, Path::new("archive/eth1")), expected);
        assert!(notes(&files, &root()).is_empty(), "of files that are there no more");
    }
}

#[test]
fn the_note_of_a_file_goes_when_retention_removes_it_and_the_others_stay() {
    let stream = set_back(&mut Prng::new(5));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let mut left = notes(&device.files(), &root()).iter().count();
    assert_eq!(left, 2);
    let charge = RetentionScope {
        store: "store".into(),
        interfaces: vec!["eth1".into()],
        beside_others: false,
        folders_after: Duration::MAX,
    };
    let mut worker = RetentionWorker::new(device.clone(), charge, Rules { max_size: Some(1), ..Rules::default() });
    let moment = ClockReading { now: Timestamp::from_nanos(stream.now), up: Duration::ZERO };
    for _ in 0..100 {
        let progress = worker.step(moment, true);
        let files = device.files();
        let notes = notes(&files, &root());
        let packets = |stem: &str| files.keys().any(|p| p.file_name().is_some_and(|n| *n == *format!("{stem}.pcap")));
        assert!(notes.iter().all(|(_, _, stem)| packets(stem)), "a note without its file: {notes:?}");
        assert!(notes.iter().count() + 1 >= left, "one file at a time");
        left = notes.iter().count();
        if progress == Progress::Idle {
            break;
        }
    }
    assert_eq!(left, 0);
}

#[test]
fn a_note_whose_file_somebody_removed_is_forgotten_at_the_next_start() {
    let mut device = MemoryDevice::new(1);
    let stem = names::stem(Timestamp::from_secs_nanos(1_795_290_000, 0), None, 0);
    for span in [None, Some(Span::out_of_order((Timestamp::ZERO, Timestamp::MAX)))] {
        out_of_order::write_marker(&mut device, &root(), &stem, span).expect("a note");
    }
    recover(device.clone());
    assert!(notes(&device.files(), &root()).is_empty());
}

/// Three files in order; one that begins an hour before; three that follow the third in time.
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
fn a_file_that_is_missing_is_told_although_another_of_the_queue_is_not_in_order() {
    let stream = set_back_and_right_again(&mut Prng::new(6));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let recorded = device.files();
    let reported = |files: &Surviving, kind| -> Vec<String> {
        verify(files).iter().filter(|f| f.kind == kind).map(ToString::to_string).collect()
    };
    assert_eq!(notes(&recorded, &root()).iter().count(), 1);
    // By name the one that was set back comes first, and in the stream it lies between the third and the fifth.
    assert_eq!(reported(&recorded, FindingKind::Missing), Vec::<String>::new());
    let unasked = reported(&recorded, FindingKind::GapUnchecked);
    assert_eq!(unasked.len(), 1);
    assert!(unasked[0].contains("between 2 of 6 pairs"), "{unasked:?}");
    let mut packets: Vec<_> = recorded.keys().filter(|p| p.extension().is_some_and(|e| e == "pcap")).collect();
    packets.sort();
    // The second and the sixth of the stream.
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
fn repair_says_noted_only_where_it_noted() {
    let stream = set_back(&mut Prng::new(7));
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
    let mut without_notes = device.files();
    without_notes.retain(|path, _| !path.starts_with(root().join(names::OUT_OF_ORDER)));
    let repair = |first: &Surviving, others: &Surviving| {
        let (first, others) = (MemoryDevice::with(1, first.clone()), MemoryDevice::with(1, others.clone()));
        let asked = Cell::new(0);
        let another = || if asked.replace(asked.get() + 1) == 0 { first.clone() } else { others.clone() };
        let (mut noted, mut refused) = (0, 0);
        let tell = |did: RepairEvent| match did {
            RepairEvent::Noted(_) => noted += 1,
            RepairEvent::Refused { why, .. } if why.contains("not noted") => refused += 1,
            _ => {}
        };
        Repair::new(another, tell).path(Path::new("store"));
        (noted, refused, notes(&first.files(), &root()).iter().count())
    };
    let astray = astray(&without_notes).len();
    assert_eq!(repair(&without_notes, &without_notes), (astray, 0, astray));
    // Somebody removes the indexes once verification has read them.
    let is_index = |path: &Path| path.extension().is_some_and(|e| e == names::INDEX);
    let mut without_indexes = without_notes.clone();
    without_indexes.retain(|path, _| !is_index(path));
    assert_eq!(repair(&without_indexes, &without_notes), (0, astray, 0));
    // Indexes may also be named after the whole name of the packet file.
    let renamed = without_notes.iter().map(|(path, bytes)| {
        (if is_index(path) { path.with_extension("pcap.ngi") } else { path.clone() }, bytes.clone())
    });
    let renamed: Surviving = renamed.collect();
    assert_eq!(repair(&renamed, &renamed), (astray, 0, astray));
}
