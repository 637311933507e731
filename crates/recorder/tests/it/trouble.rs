//! One thing that fails must not hold up the others, nor the end.

use crate::common;

use base::{Cause, Prng};
use common::{Outcome, Stream, check_published, config, run};
use netgrain_recorder::writer::{Config, Event};
use std::path::PathBuf;
use std::time::Duration;
use store::device::{Device, Fault, MemoryDevice};

/// Five segments of some packets, each with a few ticks.
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

/// The hidden packet file that is there now, if there is one in its hour.
fn hidden_in_hour(device: &MemoryDevice) -> Option<PathBuf> {
    let hidden = |p: &PathBuf| {
        let name = p.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.starts_with(".2026") && name.ends_with(".pcap.partial")
    };
    device.files().into_keys().find(hidden)
}

#[test]
fn an_hour_that_is_removed_under_the_recorder_costs_that_file_and_no_other() {
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
    assert!(outcome.done, "the recorder never ended: {:?}", texts(&outcome));
    assert_eq!(check_published(&stream, &device.files(), "removed"), [1, 2, 3, 4]);
    assert_eq!((outcome.totals.published, outcome.totals.hidden), (4, 1));
    let reported = texts(&outcome);
    let name = removed.expect("a file was removed").display().to_string();
    assert_eq!(
        reported.iter().filter(|t| t.starts_with(&name) && t.contains("somebody removed")).count(),
        1,
        "{reported:#?}"
    );
    assert!(!reported.iter().any(|t| t.contains("trying again")), "nothing was to be tried again: {reported:#?}");
    assert!(!device.exists(&PathBuf::from("store/eth1/.next-q0-0.pcap.partial")));
}

#[test]
fn a_prepared_file_that_is_removed_is_made_again() {
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
    assert_eq!(removed, 1, "the scenario did not happen");
    assert!(outcome.done, "no file could be opened any more: {:?}", texts(&outcome));
    assert_eq!(check_published(&stream, &device.files(), "made again"), [0, 1, 2, 3, 4]);
    assert_eq!(outcome.totals.ledger.to_ledger(), stream.ledger());
}

#[test]
fn a_file_that_cannot_get_its_name_does_not_slow_the_others_and_is_left_hidden_at_the_end() {
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
    assert!(outcome.done, "the recorder never ended");
    // On the clock of the test, 3 ms to a step: without pauses of the whole machine this is a matter of some ten steps.
    let others_by = others_by.expect("the others were published while the first was stuck");
    assert!(others_by < Duration::from_secs(1), "the others waited for the first: {others_by:?}");
    assert_eq!(check_published(&stream, &device.files(), "stuck"), [1, 2, 3, 4]);
    assert_eq!((outcome.totals.published, outcome.totals.hidden), (4, 1));
    let reported = texts(&outcome);
    assert_eq!(reported.iter().filter(|t| t.contains("trying again")).count(), 1, "{reported:#?}");
    assert_eq!(reported.iter().filter(|t| t.contains("left under this hidden name")).count(), 1, "{reported:#?}");
    assert_eq!(outcome.totals.ledger.total().lost[Cause::Disk as usize], 0);
}

#[test]
fn folders_that_cannot_be_synced_are_said_once_and_do_not_hold_up_the_end() {
    let mut prng = Prng::new(4);
    let stream = five_segments(&mut prng);
    let device = MemoryDevice::new(4);
    device.set_fault(Fault { folder_sync: Some(5), ..Fault::default() });
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| true);
    assert!(outcome.done, "the recorder never ended");
    assert_eq!(check_published(&stream, &device.files(), "unsynced"), [0, 1, 2, 3, 4]);
    assert_eq!((outcome.totals.published, outcome.totals.hidden), (5, 0));
    let reported = texts(&outcome);
    assert_eq!(reported.iter().filter(|t| t.contains("trying again")).count(), 1, "{reported:#?}");
    assert_eq!(reported.iter().filter(|t| t.contains("cannot sync this folder")).count(), 1, "{reported:#?}");
    assert_eq!(outcome.events.iter().filter(|e| matches!(e, Event::Recovered { .. })).count(), 1, "{reported:#?}");
}

#[test]
fn a_file_system_that_knows_no_sync_of_folders_is_no_trouble() {
    const EINVAL: i32 = 22;
    let mut prng = Prng::new(5);
    let stream = five_segments(&mut prng);
    let device = MemoryDevice::new(5);
    device.set_fault(Fault { folder_sync: Some(EINVAL), ..Fault::default() });
    let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| true);
    assert!(outcome.done, "the recorder never ended");
    assert_eq!(check_published(&stream, &device.files(), "no such sync"), [0, 1, 2, 3, 4]);
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
fn room_made_ahead_is_given_back_when_the_volume_is_full_or_the_share_used_up() {
    for quota in [false, true] {
        let mut prng = Prng::new(6);
        let mut stream = Stream::new(0);
        for _ in 0..50 {
            stream.packet(&mut prng, 60_000, 0);
        }
        stream.end();
        let device = MemoryDevice::new(6);
        // The file and its index fit, if the one that is made ahead goes.
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
fn a_device_that_does_not_answer_is_asked_in_pauses_and_given_up_after_the_grace() {
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
                // What the writing thread goes by: it sleeps until then, instead of asking again at once.
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
        assert!(outcome.done, "recovers {recovers}: the recorder never ended: {reported:#?}");
        assert!(stopped.is_some(), "it ended before it was told to");
        assert_eq!(reported.iter().filter(|t| t.contains("trying again")).count(), 1, "{reported:#?}");
        let (got, model) = (outcome.totals.ledger.total(), stream.ledger().total());
        assert_eq!((got.residue(), got.offered), (0, model.offered), "recovers {recovers}");
        assert_eq!(outcome.descriptors, stream.descs.len() as u64, "all was given back");
        if recovers {
            assert_eq!(check_published(&stream, &device.files(), "deaf for a while"), [0, 1, 2, 3, 4]);
            continue;
        }
        assert_eq!(waits, 0, "the thread would not have slept");
        assert!(idle > 900, "{idle} pauses");
        assert!(got.lost[Cause::Disk as usize] > 0 && outcome.totals.hidden > 0, "{got:?}, {reported:#?}");
        assert_eq!(got.stored + got.lost[Cause::Disk as usize], model.stored);
    }
}
