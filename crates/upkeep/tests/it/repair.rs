//! The tests damage files deliberately, and check the findings of verify and the data that repair saves.

use crate::common;

use base::Prng;
use common::{Stream, check, config, path, read_all, recover, run, segments};
use index::{Builder, Header, Index, Tail};
use netgrain_upkeep::repair::{Repair, RepairEvent};
use netgrain_upkeep::verify::{Finding, FindingKind, Level, Verify};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::device::{Fault, MemoryDevice, Surviving};
use store::{Claim, Claimant, DiskDevice};
use testkit::TempDir;

/// The files of a store that contains the packets of the complete stream.
fn recorded(stream: &Stream) -> Surviving {
    let device = MemoryDevice::new(1);
    let outcome = run(stream, device.clone(), config(), &mut Prng::new(1), |_, _, _| true);
    assert!(outcome.done);
    device.files()
}

fn verify(files: &Surviving, quick: bool) -> (Vec<Finding>, u64) {
    let mut findings = Vec::new();
    let mut verify =
        Verify::new(MemoryDevice::with(1, files.clone()), quick, |f: &Finding, _| findings.push(f.clone()));
    verify.path(Path::new("store"));
    let packets = verify.totals().packets;
    (findings, packets)
}

fn kinds(files: &Surviving) -> Vec<FindingKind> {
    let found = verify(files, false).0.into_iter().filter(|f| f.kind.level() != Level::Note).map(|f| f.kind);
    let mut kinds: Vec<FindingKind> = found.collect();
    kinds.dedup();
    kinds
}

fn repair(files: Surviving, at: &Path) -> (Surviving, Vec<String>) {
    let device = MemoryDevice::with(1, files);
    let mut reported = Vec::new();
    let another = || device.clone();
    Repair::new(another, |done: RepairEvent| reported.push(done.to_string())).path(at);
    (device.files(), reported)
}

fn packet_files(files: &Surviving) -> Vec<PathBuf> {
    files.keys().filter(|p| p.extension().is_some_and(|e| e == "pcap")).cloned().collect()
}

#[test]
fn an_undamaged_store_has_no_findings_and_is_not_changed() {
    let stream = segments(&mut Prng::new(1), 3, 40, 60_000);
    let files = recorded(&stream);
    for quick in [false, true] {
        let (findings, packets) = verify(&files, quick);
        assert_eq!(findings.iter().filter(|f| f.kind.level() == Level::Damage).count(), 0, "{findings:#?}");
        assert_eq!(packets, 120);
    }
    let (after, reported) = repair(files.clone(), Path::new("store"));
    assert!(after == files, "the files were changed: {reported:#?}");
}

#[test]
fn verification_does_not_wait_for_a_retention_worker() {
    let dir = TempDir::new("verification_does_not_wait");
    let files = recorded(&segments(&mut Prng::new(3), 1, 20, 1000));
    for (path, bytes) in files {
        let path = dir.join("store").join(path.strip_prefix("store").expect("in the store"));
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, bytes).expect("a file");
    }
    let interface = dir.join("store/eth1");
    std::fs::write(interface.join(store::names::prepared(0, 1, "pcap")), b"").expect("a prepared file");
    let keeping = store::Hold::retention_lock(&interface).expect("a result").expect("the only worker");
    let (done, ended) = std::sync::mpsc::channel();
    let at = dir.join("store");
    std::thread::spawn(move || {
        let mut verify = Verify::new(DiskDevice::plain(), false, |_: &Finding, _| {});
        verify.path(&at);
        done.send(verify.totals().packets)
    });
    // The test holds the lock of a retention worker. Verification must not wait until the lock is released.
    assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(60)), Ok(20));
    drop(keeping);
}

#[test]
fn a_store_that_is_being_recorded_has_no_findings_of_damage() {
    let test = "a_store_that_is_being_recorded_has_no_findings_of_damage";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let (mut open, mut within) = (0, 0);
    for round in 0..8 {
        let stream = segments(&mut prng, 2, 150, 60_000);
        let device = MemoryDevice::new(seed + round);
        device.set_fault(Fault { slow: true, ..Fault::default() });
        let beside = device.clone();
        let outcome = run(&stream, device, config(), &mut prng, |step, _, _| {
            let mut findings = Vec::new();
            let mut verify = Verify::new(beside.clone(), false, |f: &Finding, _| findings.push(f.clone()));
            verify.path(Path::new("store"));
            let totals = *verify.totals();
            // In this simulation, a recorder has no file before its first packet file; on a real volume it would have
            // the files of its claim.
            findings.retain(|f| f.kind != FindingKind::NoCapture || !beside.files().is_empty());
            let wrong: Vec<&Finding> = findings.iter().filter(|f| f.kind.level() != Level::Note).collect();
            assert!(wrong.is_empty(), "seed {seed} round {round} step {step}: {wrong:#?}");
            open += totals.open;
            within += u64::from(totals.packets < totals.ledger.stored);
            true
        });
        assert!(outcome.done);
    }
    // Without this check, the test could pass although it verified no growing file, or no growing file whose index ends
    // in the middle of a record.
    assert!(open > 10 && within > 10, "seed {seed}: {open} open files, {within} of them within a record");
}

#[test]
fn each_kind_of_damage_has_its_own_finding() {
    let stream = segments(&mut Prng::new(2), 2, 60, 60_000);
    let whole = recorded(&stream);
    let first = packet_files(&whole)[0].clone();
    let damaged = |f: &dyn Fn(&mut Surviving)| {
        let mut files = whole.clone();
        f(&mut files);
        kinds(&files)
    };
    let bytes = |files: &mut Surviving| files[&first].clone();
    assert_eq!(
        damaged(&|files| {
            let mut b = bytes(files);
            b[1_100_000] ^= 1;
            files.insert(first.clone(), b);
        }),
        [FindingKind::Checksum]
    );
    assert!(
        damaged(&|files| {
            let mut b = bytes(files);
            b.truncate(b.len() - 10);
            files.insert(first.clone(), b);
        })
        .contains(&FindingKind::Length)
    );
    assert_eq!(damaged(&|files| drop(files.remove(&first.with_extension("ngi")))), [FindingKind::NoIndex]);
    assert_eq!(damaged(&|files| drop(files.remove(&first))), [FindingKind::Orphan]);
    let other = packet_files(&whole)[1].with_extension("ngi");
    let swapped = damaged(&|files| drop(files.insert(first.with_extension("ngi"), whole[&other].clone())));
    assert!(swapped.contains(&FindingKind::Checksum), "{swapped:?}");
    assert_eq!(damaged(&|files| drop(files.insert(first.with_extension("ngi"), vec![7; 500]))), [FindingKind::Index]);
    let next = path("store/eth1/.next-q0-7.pcap.partial");
    assert_eq!(damaged(&|files| drop(files.insert(next.clone(), vec![0; 4096]))), [FindingKind::Leftover]);
    let (findings, _) = verify(&Surviving::from([(path("store/eth1/notes.txt"), vec![1])]), false);
    assert_eq!(findings[0].kind, FindingKind::Foreign);
}

#[test]
fn one_damaged_range_is_one_finding_and_repair_counts_the_loss() {
    let test = "one_damaged_range_is_one_finding_and_repair_counts_the_loss";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let stream = segments(&mut prng, 1, 300, 60_000);
    let whole = recorded(&stream);
    let name = packet_files(&whole)[0].clone();
    let (_, all) = verify(&whole, false);
    for round in 0..20 {
        let mut files = whole.clone();
        let bytes = files.get_mut(&name).expect("a file");
        // The damaged range is within one block, and covers the headers of packet records.
        let at = ((1 + round % 3) << 20) + 1000 + prng.below(400_000) as usize;
        prng.fill(&mut bytes[at..at + 500_000]);
        let (findings, packets) = verify(&files, false);
        let note = format!("seed {seed} round {round}: {findings:#?}");
        assert_eq!(findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [FindingKind::Checksum], "{note}");
        assert_eq!(findings[0].byte, Some(at as u64 >> 20 << 20), "{note}");
        let (after, reported) = repair(files, Path::new("store"));
        let (_, left) = verify(&after, false);
        assert!(left < all && left == packets, "{note}: {left} of {all}: {reported:#?}");
        assert!(reported[0].contains(&format!(" {left} packets, {} lost", all - left)), "{note}: {reported:#?}");
    }
}

#[test]
fn bytes_after_the_recorded_ones_are_a_wrong_length_and_no_packets() {
    let whole = recorded(&segments(&mut Prng::new(8), 1, 60, 3000));
    let name = packet_files(&whole)[0].clone();
    let mut files = whole.clone();
    let bytes = files.get_mut(&name).expect("a file");
    let record = bytes[24..].to_vec();
    bytes.extend(record);
    assert_eq!((kinds(&files), verify(&files, false).1), (vec![FindingKind::Length], 60));
    let (after, _) = repair(files, Path::new("store"));
    assert!(after[&name] == whole[&name], "not truncated to its old length");
}

/// A foreign capture of 20 packets, and its index.
fn indexed_capture(seed: u64) -> Surviving {
    let whole = recorded(&segments(&mut Prng::new(seed), 1, 20, 3000));
    let at = whole.keys().find(|p| p.extension().is_some_and(|e| e == "ngi")).expect("an index");
    let index = Index::parse(&whole[at]).expect("an index");
    let Tail::Complete(footer) = index.tail else { panic!("not sealed") };
    let content = index::Content::Foreign { format: index::Format::Pcap, bytes: footer.bytes, modified: 7 };
    let mut builder = Builder::new(Header { content, ..index.header });
    index.entries.into_iter().for_each(|entry| builder.push(entry));
    let mut bytes = Vec::new();
    builder.finish(footer.bytes, footer.end, &[], &mut bytes).expect("memory has no errors");
    let (capture, beside) = (path("store/eth1/other.pcap"), path("store/eth1/other.pcap.ngi"));
    [(capture, whole[&packet_files(&whole)[0]].clone()), (beside, bytes)].into()
}

#[test]
fn a_replaced_indexed_capture_is_reported_as_stale() {
    let mut files = indexed_capture(10);
    let capture = path("store/eth1/other.pcap");
    let indexed = files[&capture].clone();
    assert_eq!(kinds(&files), []);
    let mut same_length = indexed;
    same_length[100] ^= 1;
    for other in [same_length, foreign(&mut Prng::new(10), 20).0] {
        files.insert(capture.clone(), other);
        let (findings, packets) = verify(&files, false);
        assert_eq!((findings.len(), findings[0].kind, packets), (1, FindingKind::Stale, 20), "{findings:#?}");
    }
}

#[test]
fn foreign_files_are_notes_up_to_a_maximum_number() {
    let mut files = recorded(&segments(&mut Prng::new(9), 1, 20, 3000));
    let hour = packet_files(&files)[0].parent().expect("an hour").to_owned();
    let (mut capture, _) = foreign(&mut Prng::new(9), 20);
    let early = capture[24..].to_vec();
    capture.extend(early);
    files.insert(hour.join("foreign.pcap"), capture);
    assert_eq!(kinds(&files), []);
    let (findings, packets) = verify(&files, false);
    assert_eq!((findings.iter().filter(|f| f.kind == FindingKind::Foreign).count(), packets), (1, 20), "{findings:#?}");
    for i in 0..1000 {
        files.insert(path("store/eth1").join(format!("note-{i}.txt")), vec![1]);
    }
    let (findings, _) = verify(&files, true);
    let reported: Vec<&Finding> = findings.iter().filter(|f| f.kind == FindingKind::Foreign).collect();
    assert_eq!(reported.len(), 11, "{reported:#?}");
    assert!(reported[10].text.starts_with("991 more"), "{:#?}", reported[10]);
}

#[test]
fn repair_saves_exactly_the_packets_of_undamaged_blocks() {
    let test = "repair_saves_exactly_the_packets_of_undamaged_blocks";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let stream = segments(&mut prng, 2, 150, 60_000);
    let whole = recorded(&stream);
    let names = packet_files(&whole);
    for round in 0..40 {
        let note = format!("seed {seed} round {round}");
        let mut files = whole.clone();
        let mut touched: Vec<(usize, usize)> = Vec::new();
        for _ in 0..=prng.below(3) {
            let file = prng.below(2) as usize;
            let bytes = files.get_mut(&names[file]).expect("a file");
            let at = prng.below(bytes.len() as u64) as usize;
            let len = (1 + prng.below(5000) as usize).min(bytes.len() - at);
            match prng.below(3) {
                0 => bytes[at] ^= 1 << prng.below(8),
                1 => bytes[at..at + len].fill(0),
                _ => prng.fill(&mut bytes[at..at + len]),
            }
            touched.extend((at >> 20..=(at + len) >> 20).map(|block| (file, block)));
        }
        let (after, reported) = repair(files, Path::new("store"));
        let published = check(&stream, &after, &note);
        for (number, d) in stream.descs.iter().filter(|d| d.is_packet()).enumerate() {
            let file = usize::from(d.pos() >= stream.segments[1].pos);
            let from = d.pos() - stream.segments[file].pos;
            let to = d.end() - 1 - stream.segments[file].pos;
            if !touched.contains(&(file, (from >> 20) as usize)) && !touched.contains(&(file, (to >> 20) as usize)) {
                assert!(published.packets.contains(&number), "{note}: packet {number} is missing: {reported:#?}");
            }
        }
        assert_eq!(published.tally.offered, stream.ledger().total().offered, "{note}: {reported:#?}");
        assert_eq!(kinds(&after), [], "{note}: still damaged: {reported:#?}");
    }
}

#[test]
fn files_that_do_not_match_their_names_are_refused_with_advice() {
    let hidden = path("store/eth1/2026/11/21/19/.20261121T194000.000000000Z.pcap.partial");
    let files = Surviving::from([(hidden.clone(), vec![7; 9000])]);
    for at in [Path::new("store"), &hidden] {
        let device = MemoryDevice::with(1, files.clone());
        let mut reported = Vec::new();
        Repair::new(|| device.clone(), |done: RepairEvent| reported.push((done.is_refusal(), done.to_string())))
            .path(at);
        assert!(device.files() == files, "the files were changed: {reported:#?}");
        assert_eq!(reported.len(), 1, "{reported:#?}");
        assert!(reported[0].0 && reported[0].1.contains("give the file the name"), "{reported:#?}");
    }
}

#[test]
fn an_index_with_the_largest_stream_position_is_checked() {
    let mut files = recorded(&segments(&mut Prng::new(2), 2, 20, 1000));
    let packets = packet_files(&files);
    for file in &packets {
        let at = file.with_extension("ngi");
        let index = Index::parse(&files[&at]).expect("an index");
        let Tail::Complete(footer) = index.tail else { panic!("not sealed") };
        let mut builder = Builder::new(Header { first_pos: u64::MAX - 1, ..index.header });
        index.entries.into_iter().for_each(|entry| builder.push(entry));
        let mut bytes = Vec::new();
        builder.finish(footer.bytes, footer.end, &[], &mut bytes).expect("memory has no errors");
        files.insert(at, bytes);
    }
    assert_eq!(verify(&files, false).1, 40);
}

#[test]
fn an_index_that_matches_the_bytes_but_not_the_packets_is_rebuilt() {
    let stream = segments(&mut Prng::new(5), 1, 60, 60_000);
    let whole = recorded(&stream);
    let packets = packet_files(&whole)[0].clone();
    let at = packets.with_extension("ngi");
    for alter in [
        (|e: &mut index::Entry| e.last = e.last.after(Duration::from_nanos(50))) as fn(&mut index::Entry),
        |e| e.first_record = e.first_record.map(|at| at + 1),
        |e| e.sub_blocks.cut(index::SUB_BLOCK * 5),
        |e| {
            // The test changes the checksum of a sub-block.
            let mut parts = index::SubBlocks::NONE;
            (0..index::SUB_BLOCKS).filter_map(|part| e.sub_blocks.first(part)).for_each(|first| parts.begin(first, 7));
            e.sub_blocks = parts;
        },
        |e| e.rows.add(e.first.secs(), &base::Tally { offered: 1, stored: 1, ..base::Tally::default() }),
    ] {
        let mut files = whole.clone();
        let index = Index::parse(&files[&at]).expect("an index");
        let Tail::Complete(footer) = index.tail else { panic!("not sealed") };
        let mut builder = Builder::new(index.header);
        for mut entry in index.entries {
            if entry.block == 1 {
                alter(&mut entry);
            }
            builder.push(entry);
        }
        let mut bytes = Vec::new();
        builder.finish(footer.bytes, footer.end, &[], &mut bytes).expect("memory has no errors");
        files.insert(at.clone(), bytes);
        assert!(kinds(&files).contains(&FindingKind::Index));
        let (after, reported) = repair(files, Path::new("store"));
        assert!(reported.iter().any(|t| t.contains("repaired")), "{reported:#?}");
        assert_eq!(kinds(&after), [], "{reported:#?}");
        assert!(after[&packets] == whole[&packets], "the packets were not damaged");
        assert_eq!(after.len(), whole.len(), "unexpected files: {reported:#?}");
    }
}

#[test]
fn an_index_of_the_previous_version_is_reported_and_rebuilt() {
    let stream = segments(&mut Prng::new(6), 2, 30, 3000);
    let whole = recorded(&stream);
    let mut files = whole.clone();
    let first = packet_files(&files)[0].clone();
    files.get_mut(&first.with_extension("ngi")).expect("an index")[8] = 3;
    assert_eq!(kinds(&files), [FindingKind::Index]);
    let (after, reported) = repair(files, Path::new("store"));
    assert_eq!(kinds(&after), [], "{reported:#?}");
    assert!(after[&first] == whole[&first], "the packets were not damaged");
    Index::parse(&after[&first.with_extension("ngi")]).expect("an index of this version");
}

#[test]
fn a_capture_of_unknown_version_is_not_damage_and_not_changed() {
    let at = path("captures/other.pcap");
    let (mut bytes, _) = foreign(&mut Prng::new(1), 3);
    bytes[4] = 3;
    let files: Surviving = [(at.clone(), bytes)].into();
    let mut findings = Vec::new();
    Verify::new(MemoryDevice::with(1, files.clone()), false, |f: &Finding, _| findings.push(f.clone())).path(&at);
    assert_eq!(findings[0].kind, FindingKind::Version, "{findings:#?}");
    let text = findings[0].to_string();
    assert!(text.contains("version 3.4") && text.contains("2 of pcap and 1 of pcapng"), "{text}");
    assert!(!text.contains("editcap") && !text.contains("smartctl"), "{text}");
    let (after, reported) = repair(files.clone(), &at);
    assert!(after == files, "{reported:#?}");
}

#[test]
fn a_damaged_file_header_is_restored_without_packet_loss() {
    let stream = segments(&mut Prng::new(11), 2, 30, 3000);
    let whole = recorded(&stream);
    let first = packet_files(&whole)[0].clone();
    for byte in 0..pcap::classic::FILE_HEADER {
        for at in [Path::new("store"), &first] {
            let mut files = whole.clone();
            files.get_mut(&first).expect("packets")[byte] ^= 3;
            assert!(!kinds(&files).is_empty(), "byte {byte}: no finding");
            let (after, reported) = repair(files, at);
            assert_eq!(kinds(&after), [], "byte {byte}: {reported:#?}");
            assert!(after[&first] == whole[&first], "byte {byte}: not restored: {reported:#?}");
            assert_eq!(after.len(), whole.len(), "byte {byte}: {reported:#?}");
        }
    }
}

/// The events of a dry run on this path; the function asserts that no file has changed.
fn dry(files: &Surviving, at: &Path) -> Vec<(bool, String)> {
    let device = MemoryDevice::with(1, files.clone());
    let mut reported = Vec::new();
    Repair::new(|| device.clone(), |done: RepairEvent| reported.push((done.is_refusal(), done.to_string())))
        .dry_run(at);
    assert!(device.files() == *files);
    reported
}

#[test]
fn an_unverified_version_is_refused_with_and_without_dry_run() {
    let stream = segments(&mut Prng::new(12), 2, 30, 3000);
    let mut files = recorded(&stream);
    let first = packet_files(&files)[0].clone();
    files.get_mut(&first).expect("packets")[4] = 1;
    files.remove(&first.with_extension("ngi"));
    for at in [Path::new("store"), &first] {
        let reported = dry(&files, at);
        assert!(reported.len() == 1 && reported[0].0 && reported[0].1.contains("version 1.4"), "{reported:#?}");
        let (after, done) = repair(files.clone(), at);
        assert_eq!(done, [reported[0].1.clone()]);
        assert!(after == files);
    }
}

#[test]
fn the_damaged_version_of_an_indexed_capture_is_restored() {
    let files = indexed_capture(13);
    let capture = path("store/eth1/other.pcap");
    let mut broken = files.clone();
    broken.get_mut(&capture).expect("a capture")[4] = 1;
    for at in [Path::new("store"), &capture] {
        let would = dry(&broken, at);
        assert!(would.len() == 1 && !would[0].0 && would[0].1.starts_with("would repair "), "{would:#?}");
        let (after, reported) = repair(broken.clone(), at);
        assert!(after == files && reported.len() == 1 && reported[0].contains("repaired, 20 packets"), "{reported:#?}");
    }
    // If a byte outside of the file header is damaged too, no candidate for the original header matches the checksum of
    // the block.
    broken.get_mut(&capture).expect("a capture")[100] ^= 1;
    for at in [Path::new("store"), &capture] {
        let would = dry(&broken, at);
        assert!(would.len() == 1 && would[0].0, "{would:#?}");
        let (after, reported) = repair(broken.clone(), at);
        assert_eq!(reported, [would[0].1.clone()]);
        assert!(after == broken);
    }
}

#[test]
fn a_lost_index_is_rebuilt_and_its_packets_are_unverified() {
    let stream = segments(&mut Prng::new(4), 3, 30, 3000);
    let mut files = recorded(&stream);
    // The test removes the index of the second file. Then the stream position of this file is unknown, which must not
    // be reported as damage of the neighbouring files.
    let second = packet_files(&files)[1].clone();
    files.remove(&second.with_extension("ngi"));
    let (after, reported) = repair(files.clone(), Path::new("store"));
    let published = check(&stream, &after, "rebuilt");
    assert_eq!(
        (published.packets.len(), published.tally.notes[base::Note::Unverified as usize]),
        (90, 30),
        "{reported:#?}"
    );
    assert_eq!(after[&second], files[&second]);
    assert_eq!(kinds(&after), []);
}

#[test]
fn files_of_a_running_recorder_are_refused() {
    let mut stream = Stream::new(0);
    stream.packet(&mut Prng::new(1), 500, 0);
    stream.tick();
    let device = MemoryDevice::new(1);
    run(&stream, device.clone(), config(), &mut Prng::new(1), |step, _, _| step < 50);
    let before = device.files();
    let hidden =
        before.keys().find(|p| p.to_string_lossy().ends_with("Z.pcap.partial")).expect("the open file").clone();
    let mut reported = Vec::new();
    let mut repair =
        Repair::new(|| device.clone(), |done: RepairEvent| reported.push((done.is_refusal(), done.to_string())));
    repair.path(&hidden);
    repair.path(Path::new("store"));
    assert!(reported.len() == 1 && reported[0].0 && reported[0].1.contains("running process"), "{reported:#?}");
    assert!(device.files() == before);
    recover(device.clone());
    assert!(device.files() == before);
}

#[test]
fn a_failed_repair_reports_the_hidden_name_and_can_be_continued() {
    let stream = segments(&mut Prng::new(5), 2, 30, 3000);
    let mut files = recorded(&stream);
    let first = packet_files(&files)[0].clone();
    files.insert(first.with_extension("ngi"), vec![7; 500]);
    let device = MemoryDevice::with(1, files);
    device.set_fault(Fault { sync_error: 1000, ..Fault::default() });
    let repair_path = |at: &Path| {
        let mut reported = Vec::new();
        Repair::new(|| device.clone(), |done: RepairEvent| reported.push((done.is_refusal(), done.to_string())))
            .path(at);
        reported
    };
    let reported = repair_path(&first);
    let name = first.file_name().expect("a name").to_string_lossy().into_owned();
    let hidden = first.with_file_name(format!(".{name}.partial"));
    assert!(
        reported.len() == 1 && reported[0].0 && reported[0].1.contains(&hidden.display().to_string()),
        "{reported:#?}"
    );
    device.set_fault(Fault::default());
    let reported = repair_path(&hidden);
    assert!(reported.len() == 1 && !reported[0].0, "{reported:#?}");
    assert_eq!(check(&stream, &device.files(), "continued").packets.len(), 60);
}

/// A foreign capture with `count` packets, and the byte range of each packet in the file.
fn foreign(prng: &mut Prng, count: u64) -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
    let mut file = pcap::classic::file_header(pcap::classic::Resolution::Micros, 1).to_vec();
    let mut records = Vec::new();
    for i in 0..count {
        let mut data = vec![0; 60 + prng.below(1000) as usize];
        prng.fill(&mut data);
        let ts = base::Timestamp::from_secs_nanos(1_700_000_000 + i, 5000);
        let from = file.len();
        let len = data.len() as u32;
        file.extend(pcap::classic::record_header(pcap::classic::Resolution::Micros, ts, len, len));
        file.extend(data);
        records.push(from..file.len());
    }
    (file, records)
}

#[test]
fn undamaged_records_of_a_capture_are_saved_and_the_original_kept() {
    let test = "undamaged_records_of_a_capture_are_saved_and_the_original_kept";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let at = path("captures/other.pcap");
    for round in 0..100 {
        let note = format!("seed {seed} round {round}");
        let (whole, records) = foreign(&mut prng, 60);
        let mut bytes = whole.clone();
        let hit = 24 + prng.below(bytes.len() as u64 - 24) as usize;
        let end = (hit + 1 + prng.below(3000) as usize).min(bytes.len());
        if prng.below(4) == 0 {
            bytes.truncate(hit);
        } else {
            prng.fill(&mut bytes[hit..end]);
        }
        let end = if bytes.len() == hit { whole.len() } else { end };
        let (after, reported) = repair([(at.clone(), bytes.clone())].into(), &at);
        let saved = &after[&at];
        if let Some(original) = after.get(Path::new("captures/other.pcap.damaged")) {
            assert!(*original == bytes, "{note}: the original was changed");
        } else {
            // Without checksums, damage within the bytes of a packet cannot be detected.
            assert!(*saved == bytes, "{note}: {reported:#?}");
        }
        let mut reader = pcap::Reader::open(&saved[..]).expect("a capture");
        while reader.next().unwrap_or_else(|e| panic!("{note}: {e}")).is_some() {}
        for record in records.iter().filter(|r| r.end <= hit || r.start >= end) {
            let record = &whole[record.clone()];
            assert!(
                saved.windows(record.len()).any(|w| w == record),
                "{note}: an undamaged packet is missing: {reported:#?}"
            );
        }
    }
}

#[test]
fn records_before_and_after_damage_are_saved_across_long_gaps() {
    let at = path("captures/other.pcap");
    for broken_at_the_gap in [false, true] {
        let mut file = pcap::classic::file_header(pcap::classic::Resolution::Micros, 1).to_vec();
        let mut records = Vec::new();
        for i in 0..20u64 {
            let days = if i < 10 { 0 } else { 3 };
            let ts = base::Timestamp::from_secs_nanos(1_700_000_000 + days * 86_400 + i, 5000);
            let len = if i % 5 == 2 { 0 } else { 80 };
            let from = file.len();
            file.extend(pcap::classic::record_header(pcap::classic::Resolution::Micros, ts, len, 80));
            file.extend(vec![i as u8 + 1; len as usize]);
            records.push(from..file.len());
        }
        // An impossible caplen.
        let victim = if broken_at_the_gap { 10 } else { 4 };
        file[records[victim].start + 8..][..4].fill(0xff);
        let (after, reported) = repair([(at.clone(), file.clone())].into(), &at);
        for (i, record) in records.iter().enumerate().filter(|(i, _)| *i != victim) {
            let record = &file[record.clone()];
            assert!(after[&at].windows(record.len()).any(|w| w == record), "packet {i} is missing: {reported:#?}");
        }
        // Zeros after the end of a capture must not be parsed as packets.
        let (head, tail) = (file[..records[3].end].to_vec(), vec![0; 4096]);
        let (after, reported) = repair([(at.clone(), [&head[..], &tail].concat())].into(), &at);
        assert!(after[&at] == head || reported[0].contains("nothing to repair"), "{reported:#?}");
    }
}

#[test]
fn a_claimed_interface_is_refused_with_the_holder_and_not_changed() {
    let dir = TempDir::new("a_claimed_interface_is_refused");
    let mut files = recorded(&segments(&mut Prng::new(6), 2, 20, 3000));
    let first = packet_files(&files)[0].clone();
    files.remove(&first.with_extension("ngi"));
    for (path, bytes) in files {
        let path = dir.join(path.to_str().expect("text"));
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, bytes).expect("a file");
    }
    let (since, before) = (base::Timestamp::from_nanos(7), read_all(dir.path()));
    let repair_path = |at: &Path| {
        let mut reported = Vec::new();
        let mut repair =
            Repair::new(DiskDevice::plain, |done: RepairEvent| reported.push((done.is_refusal(), done.to_string())));
        repair = repair.claiming(since);
        repair.path(&dir.path().join(at));
        reported
    };
    let root = dir.join("store/eth1");
    let claim = Claim::take(&root, &Claimant::this(since, None, Vec::new())).expect("a free interface");
    let hour = first.parent().expect("an hour");
    for at in [Path::new("store"), hour, &first] {
        let reported = repair_path(at);
        let me = format!("process {} (", std::process::id());
        assert!(reported.len() == 1 && reported[0].0, "{}: {reported:#?}", at.display());
        assert!(reported[0].1.contains(&me) && reported[0].1.contains("store/eth1:"), "{reported:#?}");
    }
    drop(claim);
    assert!(before.iter().all(|(path, bytes)| read_all(dir.path()).get(path) == Some(bytes)));
    let reported = repair_path(hour);
    assert!(reported.len() == 1 && !reported[0].0 && reported[0].1.contains("repaired"), "{reported:#?}");
    assert_eq!(Claim::holder(&root), None, "the claim ends with the repair");
    let index =
        index::Index::parse(&std::fs::read(dir.path().join(&first).with_extension("ngi")).expect("a rebuilt index"));
    assert_eq!(index.expect("a valid index").header.interface, "eth1");
}

#[test]
fn a_capture_with_a_stale_index_is_not_changed() {
    let (bytes, _) = foreign(&mut Prng::new(7), 20);
    let stream = segments(&mut Prng::new(7), 1, 20, 3000);
    let store = recorded(&stream);
    let ours = packet_files(&store)[0].clone();
    let capture = path("captures/other.pcap");
    for index in [capture.with_extension("ngi"), path("captures/other.pcap.ngi")] {
        for at in [Path::new("captures"), &capture] {
            let files: Surviving =
                [(capture.clone(), bytes.clone()), (index.clone(), store[&ours.with_extension("ngi")].clone())].into();
            let (after, reported) = repair(files.clone(), at);
            assert!(after == files, "{} was changed: {reported:#?}", at.display());
            assert!(
                reported.len() == 1 && reported[0].contains("netgrain index captures/other.pcap "),
                "{reported:#?}"
            );
        }
    }
    // For a file of the store in RAW format with an unreadable index, the finding must name the index.
    let padding = [0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0, 0, 0];
    let record = [1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 4, 0, 9, 9, 9, 9];
    let raw = path("store/eth1/2026/11/21/19/20261121T194000.000000000Z.raw");
    let files: Surviving =
        [(raw.clone(), [padding, record].concat()), (raw.with_extension("ngi"), vec![7; 500])].into();
    let (after, reported) = repair(files, Path::new("store"));
    assert!(reported.len() == 1 && reported[0].contains("repaired, 1 packets"), "{reported:#?}");
    assert!(index::Index::parse(&after[&raw.with_extension("ngi")]).is_ok());
}

#[test]
fn a_dry_run_reports_exactly_what_a_repair_would_do() {
    let (mut bytes, _) = foreign(&mut Prng::new(8), 20);
    let whole = recorded(&segments(&mut Prng::new(8), 3, 20, 3000));
    let names = packet_files(&whole);
    let dry = |files: &Surviving| {
        let device = MemoryDevice::with(1, files.clone());
        let mut reported = Vec::new();
        Repair::new(|| device.clone(), |done: RepairEvent| reported.push(done.to_string())).dry_run(Path::new("store"));
        assert!(device.files() == *files);
        reported
    };
    let mut files = whole.clone();
    // Repair cannot restore the missing packet file of an index, or missing packets between two files.
    files.remove(&names[1]);
    files.insert(path("store/notes.txt"), vec![1]);
    assert_eq!(dry(&files), [""; 0]);
    files.insert(path("store/eth1/.next-q0-7.pcap.partial"), vec![0; 4096]);
    files.remove(&names[2].with_extension("ngi"));
    bytes.truncate(bytes.len() - 5);
    files.insert(path("store/eth1/other.pcap"), bytes);
    let would = dry(&files);
    assert!(would.len() == 3 && would.iter().all(|text| text.starts_with("would repair ")), "{would:#?}");
    let (after, mut done) = repair(files, Path::new("store"));
    done.retain(|text| !text.contains("the index is kept"));
    assert_eq!(done.len(), 3, "{done:#?}");
    assert_eq!(dry(&after), [""; 0]);
}

#[test]
fn a_file_of_unknown_format_is_refused_with_advice() {
    let at = path("captures/noise.pcap");
    let files: Surviving = [(at.clone(), vec![9; 5000])].into();
    let (after, reported) = repair(files.clone(), &at);
    assert!(after == files && reported.len() == 1 && reported[0].contains("not a capture"), "{reported:#?}");
}
