//! Tests that a failure of one operation delays neither other files nor the end of the recording.

use crate::common;

use base::{Cause, Prng};
use common::{Outcome, Stream, check_published, config, run};
use netgrain_recorder::writer::{Config, Event};
use std::path::PathBuf;
use std::time::Duration;
use store::device::{Device, Fault, MemoryDevice};

/// A stream of five segments, each with some packets and a few ticks.
fn five_segments(prng: &mut Prng) -> Stream {
    let mut stream = Stream::new(0);
    for segment in 0..5 {
        for _ in 0..40 {
            stream.packet(prng, 60_000, 0);
        }
        stream.tick();
        if segment < 4 {
            stream.segment();
        }
    }
    stream.end();
    stream
}

fn texts(outcome: &Outcome) -> Vec<String> {
    outcome.events.iter().map(ToString::to_string).collect()
}

/// Path of the hidden packet file in the current hour directory, if there is one.
fn hidden_in_hour(device: &MemoryDevice) -> Option<PathBuf> {
    let hidden = |p: &PathBuf| {
        let name = p.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.starts_with(".2026") && name.ends_with(".pcap.partial")
    };
    device.files().into_keys().find(hidden)
}

#[test]
fn a_file_removed_during_recording_does_not_affect_other_files() {
    let mut prng = Prng::new(1);
    let stream = five_segments(&mut prng);
    let mut device = MemoryDevice::new(1);
    let mut volume = device.clone();
    let mut removed = None;
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| {
        if removed.is_none()
            && let Some(path) = hidden_in_hour(&device)
        {
            volume.remove(&path).expect("the file is there");
            let index = path.with_file_name(path.file_name().unwrap().to_str().unwrap().replace(".pcap.", ".ngi."));
            volume.remove(&index).expect("the index is there");
            removed = Some(path);
        }
        true
    });
    assert!(outcome.done, "the recorder has not ended: {:?}", texts(&outcome));
    assert_eq!(check_published(&stream, &device.files(), "removed"), [1, 2, 3, 4]);
    assert_eq!((outcome.totals.published, outcome.totals.hidden), (4, 1));
    let reported = texts(&outcome);
    let name = removed.expect("a file was removed").display().to_string();
    assert_eq!(
        reported.iter().filter(|t| t.starts_with(&name) && t.contains("another process removed")).count(),
        1,
        "{reported:#?}"
    );
    assert!(!reported.iter().any(|t| t.contains("the recorder retries")), "no retry is expected: {reported:#?}");
    assert!(!device.exists(&PathBuf::from("store/eth1/.next-q0-0.pcap.partial")));
}

#[test]
fn a_removed_prepared_file_is_created_again() {
    let mut prng = Prng::new(2);
    let stream = five_segments(&mut prng);
    let device = MemoryDevice::new(2);
    let mut volume = device.clone();
    let mut removed = 0;
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| {
        for path in device.files().into_keys().filter(|p| p.to_string_lossy().contains("/.next-q0-3")) {
            volume.remove(&path).expect("the file is there");
            removed += 1;
        }
        true
    });
    assert_eq!(removed, 1, "the file was not removed");
    assert!(outcome.done, "the recorder has not ended: {:?}", texts(&outcome));
    assert_eq!(check_published(&stream, &device.files(), "created again"), [0, 1, 2, 3, 4]);
    assert_eq!(outcome.totals.ledger.to_ledger(), stream.ledger());
}

#[test]
fn a_file_that_cannot_be_renamed_delays_no_other_and_stays_hidden() {
    let mut prng = Prng::new(3);
    let stream = five_segments(&mut prng);
    let device = MemoryDevice::new(3);
    device.set_fault(Fault { no_rename: Some("T194000.000000000Z.pcap.partial"), ..Fault::default() });
    let mut others_by = None;
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, writer, now| {
        if writer.totals().published == 4 && others_by.is_none() {
            others_by = Some(now);
        }
        true
    });
    assert!(outcome.done, "the recorder has not ended");
    // A step of the writer takes 3 ms on the clock of the test. If the writer makes no pauses, publication takes about
    // ten steps.
    let others_by = others_by.expect("the other files were published while the first file failed");
    assert!(others_by < Duration::from_secs(1), "the other files waited for the first: {others_by:?}");
    assert_eq!(check_published(&stream, &device.files(), "one file fails"), [1, 2, 3, 4]);
    assert_eq!((outcome.totals.published, outcome.totals.hidden), (4, 1));
    let reported = texts(&outcome);
    assert_eq!(reported.iter().filter(|t| t.contains("the recorder retries")).count(), 1, "{reported:#?}");
    assert_eq!(reported.iter().filter(|t| t.contains("keeps this hidden name")).count(), 1, "{reported:#?}");
    assert_eq!(outcome.totals.ledger.total().lost[Cause::Disk as usize], 0);
}

#[test]
fn unsyncable_directories_are_reported_once_and_delay_nothing() {
    let mut prng = Prng::new(4);
    let stream = five_segments(&mut prng);
    let device = MemoryDevice::new(4);
    device.set_fault(Fault { directory_sync: Some(5), ..Fault::default() });
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| true);
    assert!(outcome.done, "the recorder has not ended");
    assert_eq!(check_published(&stream, &device.files(), "unsynced"), [0, 1, 2, 3, 4]);
    assert_eq!((outcome.totals.published, outcome.totals.hidden), (5, 0));
    let reported = texts(&outcome);
    assert_eq!(reported.iter().filter(|t| t.contains("the recorder retries")).count(), 1, "{reported:#?}");
    assert_eq!(reported.iter().filter(|t| t.contains("cannot sync this directory")).count(), 1, "{reported:#?}");
    assert_eq!(outcome.events.iter().filter(|e| matches!(e, Event::Recovered { .. })).count(), 1, "{reported:#?}");
}

#[test]
fn a_file_system_without_directory_sync_causes_no_warning() {
    const EINVAL: i32 = 22;
    let mut prng = Prng::new(5);
    let stream = five_segments(&mut prng);
    let device = MemoryDevice::new(5);
    device.set_fault(Fault { directory_sync: Some(EINVAL), ..Fault::default() });
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| true);
    assert!(outcome.done, "the recorder has not ended");
    assert_eq!(check_published(&stream, &device.files(), "no directory sync"), [0, 1, 2, 3, 4]);
    assert!(outcome.events.iter().all(|e| matches!(e, Event::Published { .. })), "{:#?}", texts(&outcome));
}

#[test]
fn bytes_written_at_low_rates_are_those_of_the_files() {
    let mut prng = Prng::new(6);
    let mut stream = Stream::new(0);
    for second in 0..50 {
        stream.packet(&mut prng, 70, 0);
        stream.tick();
        if second == 30 {
            stream.segment();
        }
    }
    stream.end();
    let device = MemoryDevice::new(6);
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| true);
    let on_disk: usize =
        device.files().iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "pcap")).map(|(_, b)| b.len()).sum();
    assert_eq!(outcome.totals.bytes, on_disk as u64);
}

#[test]
fn a_full_volume_or_quota_frees_the_preallocated_file() {
    for quota in [false, true] {
        let mut prng = Prng::new(6);
        let mut stream = Stream::new(0);
        for _ in 0..50 {
            stream.packet(&mut prng, 60_000, 0);
        }
        stream.end();
        let device = MemoryDevice::new(6);
        // The capacity is enough for the packet file and its index if the preallocated next file is removed.
        device.set_fault(Fault { capacity: Some((3 << 20) + (300 << 10)), quota, ..Fault::default() });
        let slowly = Config { depth: 1, ..config() };
        let outcome = run(&stream, device.clone(), slowly, &mut prng, |_, _, _| true);
        assert!(outcome.done, "quota {quota}: {:?}", texts(&outcome));
        assert_eq!(check_published(&stream, &device.files(), "full"), [0], "quota {quota}");
        assert_eq!(outcome.totals.ledger.to_ledger(), stream.ledger(), "quota {quota}");
        let reported = texts(&outcome);
        assert!(reported.iter().any(|t| t.contains("free space on the volume")), "quota {quota}: {reported:#?}");
    }
}

#[test]
fn an_unresponsive_device_is_retried_until_the_grace_period_ends() {
    for recovers in [false, true] {
        let mut prng = Prng::new(7);
        let stream = five_segments(&mut prng);
        let device = MemoryDevice::new(7);
        device.set_fault(Fault { slow: true, ..Fault::default() });
        let (mut waits, mut idle) = (0, 0);
        let mut stopped = None;
        let outcome = run(&stream, device.clone(), config(), &mut prng, |step, writer, now| {
            if step == 12 {
                device.set_fault(Fault { completions_fail: true, ..Fault::default() });
            }
            if step > 13 && !recovers && !writer.is_done() {
                // `is_waiting` and `retry_at` determine how long the writer thread sleeps before its next attempt.
                waits += usize::from(writer.is_waiting());
                idle += usize::from(writer.retry_at().is_some_and(|at| at > now));
            }
            if step == 1000 {
                writer.stop(now);
                stopped = Some(now);
            }
            if step == 1500 && recovers {
                device.set_fault(Fault::default());
            }
            true
        });
        let reported = texts(&outcome);
        assert!(outcome.done, "recovers {recovers}: the recorder has not ended: {reported:#?}");
        assert!(stopped.is_some(), "the recorder ended before it was stopped");
        assert_eq!(reported.iter().filter(|t| t.contains("the recorder retries")).count(), 1, "{reported:#?}");
        let (got, model) = (outcome.totals.ledger.total(), stream.ledger().total());
        assert_eq!((got.residue(), got.offered), (0, model.offered), "recovers {recovers}");
        assert_eq!(outcome.descriptors, stream.descs.len() as u64, "all descriptors are released");
        if recovers {
            assert_eq!(check_published(&stream, &device.files(), "no completions for a while"), [0, 1, 2, 3, 4]);
            continue;
        }
        assert_eq!(waits, 0, "the thread sleeps between attempts");
        assert!(idle > 900, "{idle} pauses");
        assert!(got.lost[Cause::Disk as usize] > 0 && outcome.totals.hidden > 0, "{got:?}, {reported:#?}");
        assert_eq!(got.stored + got.lost[Cause::Disk as usize], model.stored);
    }
}
