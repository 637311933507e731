//! Recording together with retention: first the state machines of writer and retention on a device in memory, then
//! captures on small volumes.

use crate::common;

use base::{Prng, Timestamp};
use checker::{Options, check};
use common::{Volume, plan, sim, start, until, walk};
use netgrain_engine::{Plan, Retention, RetentionPlan, exposition};
use recorder::cutter::{Cutter, Job};
use recorder::writer::{Config, Writer};
use ring::{AnnotatedPosition, BLOCK, Control, Desc};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::device::{Fault, MemoryDevice};
use store::{Bytes, names};
use sys::uring::Region;
use upkeep::retention::{ClockReading, Event, Free, RetentionScope, RetentionWorker, Rules};

/// 2026-11-21T19:40:00Z.
const START: u64 = 1_795_290_000;

/// Bytes of a packet with its record header, and packets per file. A file is a little shorter than two blocks.
const RECORD: usize = 1016;
const PER_FILE: u64 = 2000;

/// The fields are: the bytes of the stream, the offset at which the aligned part of the bytes begins, and the position
/// in the stream up to which the writer has released the bytes.
struct Memory(Vec<u8>, usize, AtomicU64);

impl Bytes for Memory {
    fn at(&self, pos: u64, len: usize) -> &[u8] {
        assert!(pos >= self.2.load(Ordering::Relaxed), "position {pos} was released");
        &self.0[self.1 + pos as usize..][..len]
    }

    fn regions(&self) -> Vec<Region> {
        Vec::new()
    }
}

/// Returns the stream of `files` files, one file per second.
fn stream(files: u64) -> (Arc<Memory>, Vec<Desc>) {
    let (mut bytes, mut descs) = (Vec::new(), Vec::new());
    for file in 0..files {
        let end = bytes.len();
        bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
        let ts = Timestamp::from_secs_nanos(START + file, 0);
        let gap = (bytes.len() - end) as u32;
        descs.push(Desc::control(Control::Segment { pos: bytes.len() as u64, gap }, ts));
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            bytes.extend(word.to_le_bytes());
        }
        for packet in 0..PER_FILE {
            let pos = bytes.len() as u64;
            for word in [(START + file) as u32, packet as u32, 1000, 1000] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.resize(pos as usize + RECORD, file as u8);
            descs.push(Desc {
                annotated_pos: AnnotatedPosition::new(pos),
                ts: ts.nanos() + packet,
                caplen: 1000,
                wire_len: 1000,
                ..Desc::default()
            });
        }
    }
    descs.push(Desc::control(Control::End, Timestamp::from_secs_nanos(START + files, 0)));
    let mut memory: Vec<u8> = Vec::with_capacity(bytes.len() + 2 * BLOCK as usize);
    let aligned = memory.as_ptr().align_offset(4096);
    memory.resize(aligned, 0);
    memory.extend(&bytes);
    memory.resize(aligned + bytes.len().next_multiple_of(BLOCK as usize), 0);
    (Arc::new(Memory(memory, aligned, AtomicU64::new(0))), descs)
}

fn header() -> index::Header {
    index::Header {
        interface: "eth1".into(),
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

#[test]
fn a_volume_with_varying_free_space_loses_old_files_and_no_packet() {
    let test = "a_volume_with_varying_free_space_loses_old_files_and_no_packet";
    let mut prng = Prng::new(testkit::seed(test));
    const FILES: u64 = 30;
    let (memory, descs) = stream(FILES);
    let device = MemoryDevice::new(1);
    let config = Config { allocate: 2 * BLOCK, ..Config::new(PathBuf::from("store"), header()) };
    let mut writer = Writer::new(device.clone(), config);
    let scope = RetentionScope {
        store: "store".into(),
        interfaces: vec!["eth1".into()],
        beside_others: false,
        directories_after: Duration::MAX,
    };
    let rules = Rules { keep_free: Some(Free::Bytes(0)), ahead: 2 * BLOCK, ..Rules::default() };
    let mut worker = RetentionWorker::new(device.clone(), scope, rules);
    let mut cutter = Cutter::new(Arc::clone(&memory) as Arc<dyn Bytes>);
    let (mut jobs, mut rest): (VecDeque<Job>, &[Desc]) = (VecDeque::new(), &descs);
    let (mut removed, mut steps_without_space) = (Vec::new(), 0);
    let mut now = Duration::ZERO;
    for step in 0..100_000 {
        // The volume has space for twelve files. In some steps it has space for fewer files than the recorder has open
        // at once.
        let blocks = if prng.below(400) < 60 || (4000..4400).contains(&step) { 3 } else { 24 };
        if step % 100 == 0 {
            device.set_fault(Fault { capacity: Some(blocks * BLOCK), slow: true, ..Fault::default() });
        }
        while writer.has_room() && (!rest.is_empty() || !jobs.is_empty()) {
            if let Some(job) = jobs.pop_front() {
                writer.accept(job);
                continue;
            }
            let (batch, later) = rest.split_at((1 + prng.below(300) as usize).min(rest.len()));
            rest = later;
            let mut new_jobs = Vec::new();
            cutter.read_descriptors(batch, &mut new_jobs).expect("a complete stream");
            jobs.extend(new_jobs);
        }
        writer.step(now, Duration::ZERO);
        memory.2.store(writer.released().pos, Ordering::Relaxed);
        steps_without_space += u64::from(writer.retry_at().is_some());
        let at = ClockReading { now: Timestamp::from_secs_nanos(START + FILES, 0), up: now };
        worker.step(at, true);
        removed.extend(worker.take_events().into_iter().filter_map(|event| match event {
            Event::Removed { path, .. } => Some(path),
            _ => None,
        }));
        now += Duration::from_millis(10);
        if writer.is_done() {
            break;
        }
    }
    assert!(
        writer.is_done() && steps_without_space > 0,
        "writer is done: {}; steps without space: {steps_without_space}",
        writer.is_done()
    );
    let totals = writer.totals();
    let ledger = totals.ledger.to_ledger().total();
    assert_eq!((ledger.stored, ledger.lost_total(), ledger.residue()), (FILES * PER_FILE, 0, 0));
    assert_eq!((totals.published, totals.hidden), (FILES, 0));
    // Only the oldest files were removed, in the order of their age. Each of the remaining files has its index.
    let path = |file: u64, ending: &str| {
        let start = Timestamp::from_secs_nanos(START + file, 0);
        names::hour_directory(Path::new("store/eth1"), start).join(format!("{}.{ending}", names::stem(start, None, 0)))
    };
    let removed_files = removed.len() as u64;
    assert!(removed_files > 0 && removed_files < FILES, "removed files: {removed_files}");
    assert_eq!(removed, (0..removed_files).map(|file| path(file, "pcap")).collect::<Vec<_>>());
    let files = device.files();
    let kept: Vec<PathBuf> = (removed_files..FILES).flat_map(|file| [path(file, "ngi"), path(file, "pcap")]).collect();
    assert_eq!(files.keys().cloned().collect::<Vec<_>>(), kept);
    for file in removed_files..FILES {
        assert_eq!(files[&path(file, "pcap")].len() as u64, 24 + PER_FILE * RECORD as u64);
    }
}

/// Records 4 MB/s into files of 2 MiB. The ring has space for the packets of 16 s, so on a busy machine retention has
/// that long to free space on the volume.
fn recording(store: &Path) -> Plan {
    Plan { ring: Some(64 << 20), segment: 2 << 20, ..plan(sim("1000,rate=4kpps,truth"), store) }
}

#[test]
fn a_recording_larger_than_its_volume_loses_no_packet() {
    let test = "a_recording_larger_than_its_volume_loses_no_packet";
    let Some(volume) = Volume::new(test, "20m") else { return };
    let plan = recording(&volume.path.join("store"));
    let mut capture = start(&plan);
    let rules = Rules { keep_free: Some(Free::Bytes(0)), ..Rules::default() };
    let retention_plan = RetentionPlan { store: volume.path.join("store"), segment: plan.segment, rules };
    let retention = Retention::start(retention_plan, capture.observer(), |_| {}).expect("a thread");
    until("files were removed", || retention.report().removed.files >= 3);
    // A file that is not part of the store occupies space and is removed again.
    let other_file = volume.path.join("other_file");
    std::fs::write(&other_file, vec![1; 3 << 20]).expect("space for the file");
    let before = retention.report().removed.files;
    until("more files were removed", || retention.report().removed.files >= before + 2);
    std::fs::remove_file(other_file).expect("the file");
    let stored = capture.report().counts.stored;
    until("packets are stored again", || capture.report().counts.stored > stored + 8000);
    capture.stop();
    let outcome = capture.wait();
    let kept = retention.report();
    drop(retention);
    let report = capture.report();
    let metrics = exposition(&report);
    for (what, value) in [("files", kept.removed.files), ("bytes", kept.removed.bytes)] {
        let line = format!("netgrain_retention_removed_{what}_total{{interface=\"sim\"}} {value}\n");
        assert!(value > 0 && metrics.contains(&line), "{line} in {metrics}");
    }
    assert!(outcome.is_ok() && report.counts.lost_total == 0, "{outcome:?}, {:#?}", report.warnings);
    let published = report.queues[0].recorder.as_ref().expect("a recorder").files;
    let remaining = walk(&volume.path).into_iter().filter(|path| path.extension().is_some_and(|e| e == "pcap")).count();
    assert_eq!(remaining as u64 + kept.removed.files, published);
    let checked = check(&[volume.path.join("store")], Options::default()).expect("a check");
    assert!(checked.is_complete(), "{checked}");
    assert_eq!(checked.sequences.map(|(_, last)| last + 1), Some(report.counts.stored));
}

#[test]
fn files_removed_from_a_small_volume_are_in_the_archive() {
    let test = "files_removed_from_a_small_volume_are_in_the_archive";
    let (Some(volume), Some(other)) = (Volume::new(test, "40m"), Volume::new(test, "200m")) else { return };
    let store = volume.path.join("store");
    let plan = recording(&store);
    let mut capture = start(&plan);
    let rules = Rules {
        keep_free: Some(Free::Bytes(0)),
        max_size: Some(12 << 20),
        archive: Some(other.path.clone()),
        ..Rules::default()
    };
    let retention_plan = RetentionPlan { store: store.clone(), segment: plan.segment, rules };
    let retention = Retention::start(retention_plan, capture.observer(), |_| {}).expect("two threads");
    until("files were archived", || retention.report().archived.files >= 4);
    capture.stop();
    let outcome = capture.wait();
    let kept = retention.report();
    drop(retention);
    let report = capture.report();
    assert!(outcome.is_ok() && report.counts.lost_total == 0, "{outcome:?}, {:#?}", report.warnings);
    let metrics = exposition(&report);
    let archived = format!("netgrain_retention_archived_bytes_total{{interface=\"sim\"}} {}\n", kept.archived.bytes);
    assert!(kept.archived.bytes > 0 && metrics.contains(&archived), "{archived} in {metrics}");
    assert_eq!((kept.removed.files, kept.unarchived_files, kept.trouble), (0, 0, None));
    // A file may exist in the archive and in the store at the end, because it is copied before it is removed.
    let mut files: Vec<PathBuf> = [&other.path, &store].into_iter().flat_map(|directory| walk(directory)).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "pcap"));
    files.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    files.dedup_by_key(|path| path.file_name().map(ToOwned::to_owned));
    assert!(files.iter().all(|path| path.with_extension("ngi").is_file()));
    let checked = check(&files, Options { sent: Some(report.counts.stored), file_by_file: false });
    assert!(checked.as_ref().expect("a check").is_complete(), "{}", checked.expect("a check"));
}
