//! Simulates crashes of the recorder and of recovery at every device call, and checks the files that are published
//! afterwards.

use crate::common;

use base::{Cause, Note, Prng, Tally};
use common::{Stream, check, check_clean, config, lost, recover, run, segments};
use netgrain_upkeep::recovery::Recovery;
use store::device::{Fault, MemoryDevice, Surviving};
use store::offered_page::OrphanedCount;

/// Records the stream until the device call with number `at`; returns the volume, and the stream position up to which
/// the ring memory was released.
fn record_until(stream: &Stream, at: u64, seed: u64) -> (MemoryDevice, u64) {
    let device = MemoryDevice::new(seed);
    device.set_fault(Fault { crash_at: Some(at), slow: at % 2 == 1, ..Fault::default() });
    let config = netgrain_recorder::Config { allocate: 1 << 17, ..config() };
    let mut prng = Prng::new(seed);
    let outcome = run(stream, device.clone(), config, &mut prng, |_, _, _| !device.crashed());
    (device, outcome.released)
}

/// The number of device calls for recording the complete stream.
fn calls_of(stream: &Stream, seed: u64) -> u64 {
    record_until(stream, u64::MAX, seed).0.calls()
}

/// The number of packets of the stream that end at or before this stream position.
fn packets_before(stream: &Stream, pos: u64) -> usize {
    stream.descs.iter().filter(|d| d.is_packet() && d.end() <= pos).count()
}

/// A description of the files that differ between two volumes.
fn difference(one: &Surviving, other: &Surviving) -> String {
    let size = |files: &Surviving, path| files.get(path).map(Vec::len);
    let paths: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differ = paths.into_iter().filter(|p| one.get(*p) != other.get(*p));
    differ.map(|p| format!("{} {:?} {:?}; ", p.display(), size(one, p), size(other, p))).collect()
}

/// Runs a recovery, and checks that it ends and that no leftovers remain; also returns the number of its device calls.
fn recovered(stream: &Stream, files: Surviving, note: &str) -> (Surviving, common::Published, u64) {
    let device = MemoryDevice::with(1, files);
    let reported = recover(device.clone());
    assert!(!reported.iter().any(|t| t.contains("cannot be recovered")), "{note}: {reported:#?}");
    let files = device.files();
    check_clean(&files, &reported, note);
    (files.clone(), check(stream, &files, note), device.calls())
}

#[test]
fn a_recorder_killed_at_any_call_loses_no_released_packet() {
    let test = "a_recorder_killed_at_any_call_loses_no_released_packet";
    let seed = testkit::seed(test);
    for (longest, packets) in [(1500, 20), (60_000, 40)] {
        let stream = segments(&mut Prng::new(seed), 2, packets, longest);
        let mut most = 0;
        for at in 0..calls_of(&stream, seed) {
            let note = format!("seed {seed}, call {at}");
            let (device, released) = record_until(&stream, at, seed);
            let (_, published, _) = recovered(&stream, device.files(), &note);
            let safe = packets_before(&stream, released);
            let prefix = published.packets.iter().enumerate().take_while(|(i, n)| i == *n).count();
            assert!(prefix >= safe, "{note}: {safe} packets were written, {prefix} are found");
            assert_eq!(prefix, published.packets.len(), "{note}: packets between others are missing");
            most = most.max(lost(&published.tally));
        }
        // Without this check, the test could pass although no crash left complete records without an index entry.
        assert!(most > 0, "no crash left an unconfirmed packet");
    }
}

#[test]
fn a_recovery_killed_at_any_call_is_completed_with_the_same_result() {
    let test = "a_recovery_killed_at_any_call_is_completed_with_the_same_result";
    let seed = testkit::seed(test);
    let stream = segments(&mut Prng::new(seed), 2, 20, 3000);
    for at in 0..calls_of(&stream, seed) {
        let note = format!("seed {seed}, call {at}");
        let (device, _) = record_until(&stream, at, seed);
        let left = device.files();
        let (complete, published, calls) = recovered(&stream, left.clone(), &note);
        for second in 0..calls {
            let note = format!("{note}, then call {second} of the recovery");
            let device = MemoryDevice::with(1, left.clone());
            device.set_fault(Fault { crash_at: Some(second), ..Fault::default() });
            recover(device.clone());
            let (again, ..) = recovered(&stream, device.files(), &note);
            assert!(
                again == complete,
                "{note}: the second recovery gave other files: {}",
                difference(&complete, &again)
            );
            // The next recovery runs after a power failure that follows the kill of the first recovery.
            let mut prng = Prng::new(seed ^ second);
            let (_, again, _) = recovered(&stream, device.surviving(&mut prng), &note);
            assert_eq!(again, published, "{note}: after a power failure");
        }
    }
}

#[test]
fn a_power_failure_leaves_verified_packets_and_counts_the_others() {
    let test = "a_power_failure_leaves_verified_packets_and_counts_the_others";
    let seed = testkit::seed(test);
    let stream = segments(&mut Prng::new(seed), 2, 60, 60_000);
    let mut prng = Prng::new(seed);
    let mut losses = 0;
    for at in 0..calls_of(&stream, seed) {
        let (device, _) = record_until(&stream, at, seed);
        for round in 0..2 {
            let note = format!("seed {seed}, call {at}, round {round}");
            let left = device.surviving(&mut prng);
            let (complete, published, calls) = recovered(&stream, left.clone(), &note);
            losses += usize::from(lost(&published.tally) > 0);
            let second = prng.below(calls.max(1));
            let device = MemoryDevice::with(1, left);
            device.set_fault(Fault { crash_at: Some(second), ..Fault::default() });
            recover(device.clone());
            let note = format!("{note}, then call {second} of the recovery");
            let (again, ..) = recovered(&stream, device.files(), &note);
            assert!(
                again == complete,
                "{note}: the second recovery gave other files: {}",
                difference(&complete, &again)
            );
        }
    }
    assert!(losses > 0, "no power failure lost a packet");
}

#[test]
fn offered_packets_in_no_file_are_in_the_ledger_or_marked_unknown() {
    let test = "offered_packets_in_no_file_are_in_the_ledger_or_marked_unknown";
    let seed = testkit::seed(test);
    let stream = segments(&mut Prng::new(seed), 2, 60, 60_000);
    let all = stream.ledger().total().offered;
    let (mut entered, mut unknown) = (0, 0);
    for at in (0..calls_of(&stream, seed)).step_by(3) {
        let note = format!("seed {seed}, call {at}");
        let (device, _) = record_until(&stream, at, seed);
        let left = device.files();
        let is_in_work = |i: &usize| {
            let stem = store::names::stem(stream.segments[*i].start, None, 0);
            let hidden = store::names::hidden(&stem, "pcap");
            left.keys().any(|path| path.ends_with(&hidden))
        };
        let Some(last) = (0..stream.segments.len()).rev().find(is_in_work) else { continue };
        let segment = &stream.segments[last];
        let before = stream.segments[..last].iter().map(|s| s.ledger.total().offered).sum();
        let second = stream.now / common::SECOND;
        let tail = OrphanedCount::of(0, all, second, Some((segment.start, segment.pos)), before);
        let device = MemoryDevice::with(1, left.clone());
        let mut recovery = Recovery::new(device.clone(), &common::root()).with_orphaned_counts(vec![tail.clone()]);
        recovery.run();
        let files = device.files();
        let complete = |files: &Surviving| {
            let indexes = files.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "ngi"));
            let mut sum = Tally::default();
            for (_, bytes) in indexes {
                sum += &index::Reader::open(&&bytes[..]).expect("an index").summary().tally;
            }
            sum
        };
        let reported = complete(&files);
        assert_eq!((reported.offered, reported.residue()), (all, 0), "{note}");
        assert_eq!(reported.notes[Note::TailUnknown as usize], 0, "{note}");
        entered += usize::from(lost(&reported) > 0);
        // If a recovery is killed, the killed recovery and the next recovery together must add the offered count to a
        // ledger only once.
        let device = MemoryDevice::with(1, left.clone());
        device.set_fault(Fault { crash_at: Some(at % 40), ..Fault::default() });
        Recovery::new(device.clone(), &common::root()).with_orphaned_counts(vec![tail.clone()]).run();
        let device = MemoryDevice::with(1, device.files());
        Recovery::new(device.clone(), &common::root()).with_orphaned_counts(vec![tail]).run();
        assert_eq!(complete(&device.files()), reported, "{note}: in two recoveries");
        let device = MemoryDevice::with(1, left);
        recover(device.clone());
        unknown += complete(&device.files()).notes[Note::TailUnknown as usize];
    }
    assert!(entered > 0 && unknown > 0, "seed {seed}: {entered} entered, {unknown} unknown");
}

#[test]
fn packets_offered_before_the_first_file_are_entered_once() {
    let second = 1_700_000_000;
    for (ended, cause) in [(false, Cause::Crash), (true, Cause::Disk)] {
        let mut tail = OrphanedCount::of(3, 40, second, None, 0);
        tail.ended = ended;
        let run = |device: &MemoryDevice| {
            let mut recovery = Recovery::new(device.clone(), &common::root()).with_orphaned_counts(vec![tail.clone()]);
            recovery.run();
            recovery.take_events().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for crash in (0..60).map(Some).chain([None]) {
            let device = MemoryDevice::new(1);
            device.set_fault(Fault { crash_at: crash, ..Fault::default() });
            run(&device);
            let device = MemoryDevice::with(1, device.files());
            // Recovery removes the offered counter page last. So after a killed recovery, the next recovery reads the
            // page again.
            let reported = run(&device);
            let files = device.files();
            let names: Vec<_> = files.keys().map(|path| path.to_string_lossy().into_owned()).collect();
            let [index, packets] = &names[..] else { panic!("killed at {crash:?}: {names:?}, {reported:?}") };
            assert!(index.ends_with("Z-q3.ngi") && packets.ends_with("Z-q3.pcap"), "killed at {crash:?}: {names:?}");
            let bytes = &files.iter().next().expect("an index").1;
            let tally = index::Reader::open(&&bytes[..]).expect("an index").summary().tally;
            assert_eq!((tally.offered, tally.stored, tally.residue()), (40, 0, 0), "killed at {crash:?}");
            assert_eq!(tally.lost[cause as usize], 40, "killed at {crash:?}");
        }
    }
}
