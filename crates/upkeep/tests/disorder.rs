//! Files that are not in the order of time: their notes after a crash, in verification and repair, and in the archive.

mod common;

use base::{Prng, Timestamp};
use common::{SECOND, Stream, config, recover, root, run};
use index::{Index, Tail};
use netgrain_upkeep::repair::{Did, Repair};
use netgrain_upkeep::retention::{Charge, Keeper, Moment, Progress, Rules};
use netgrain_upkeep::verify::{Finding, Kind, Level, Verify};
use std::path::Path;
use std::time::Duration;
use store::catalogue::parse_stem;
use store::device::{Content, Device, Fault, MemoryDevice, Surviving};
use store::disorder::{Disorder, Span};
use store::names;

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

fn notes(files: &Surviving, interface: &Path) -> Disorder {
    let folder = interface.join(names::DISORDER);
    Disorder::of(files.keys().filter(|p| p.starts_with(&folder)).filter_map(|p| p.file_name()?.to_str()))
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
    assert!(findings.iter().any(|f| f.kind == Kind::Order), "{findings:#?}");
    let (before, astray) = (notes(&recorded, &root()), astray(&recorded));
    assert!(!astray.is_empty());
    // Copied file by file, without what begins with a dot.
    let mut copied = recorded.clone();
    copied.retain(|path, _| !path.starts_with(root().join(names::DISORDER)));
    let unnoted = |files: &Surviving| verify(files).iter().filter(|f| f.kind == Kind::Unnoted).count();
    assert_eq!(unnoted(&copied), astray.len());
    let device = MemoryDevice::with(1, copied);
    let mut told = Vec::new();
    Repair::new(|| device.clone(), |did: Did| told.push(did.to_string())).path(Path::new("store"));
    let noted = told.iter().filter(|t| t.contains("questions find them now")).count();
    assert_eq!(noted, astray.len(), "{told:#?}");
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
    for fault in [Fault { elsewhere: Some("archive"), ..Fault::default() }, Fault::default()] {
        let device = MemoryDevice::new(1);
        assert!(run(&stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true).done);
        let expected = notes(&device.files(), &root());
        let mut there = device.clone();
        let readme = there.create(Path::new("archive/README"), Content::Index).expect("a file");
        there.close(readme);
        device.set_fault(fault);
        let charge = Charge {
            store: "store".into(),
            interfaces: vec!["eth1".into()],
            beside_others: false,
            folders_after: Duration::ZERO,
        };
        let rules = Rules { max_size: Some(1), archive: Some("archive".into()), ..Rules::default() };
        let mut keeper = Keeper::new(device.clone(), charge, rules);
        let moment = Moment { now: Timestamp::from_nanos(stream.now), up: Duration::ZERO };
        for _ in 0..100_000 {
            if keeper.step(moment, true) == Progress::Idle {
                break;
            }
        }
        let files = device.files();
        let published = |p: &&std::path::PathBuf| p.extension().is_some_and(|e| e == "pcap");
        let left = files.keys().filter(published).filter(|p| p.starts_with("store")).count();
        assert_eq!(left, 0, "everything has gone to the archive");
        assert_eq!(notes(&files, Path::new("archive/eth1")), expected);
        device.set_fault(Fault::default());
        recover(device.clone());
        assert!(notes(&device.files(), &root()).is_empty(), "of files that are there no more");
    }
}
