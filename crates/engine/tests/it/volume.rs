//! Tests with volumes that are full for some time, full until the end, or not writable. Other failures (short and slow
//! writes, failing fsync, torn blocks) are injected below the recorder in the tests of `store`.

use crate::common;

use base::Cause;
use common::{Volume, plan, sim, start, stop, until, walk};
use netgrain_engine::{Capture, EngineError, Plan};
use std::path::{Path, PathBuf};
use testkit::TempDir;

fn recorder_error(capture: &Capture) -> Option<String> {
    capture.report().queues[0].recorder.as_ref().and_then(|r| r.error.clone())
}

#[test]
fn an_unwritable_store_is_rejected_before_the_capture() {
    let dir = TempDir::new("an_unwritable_store_is_rejected");
    let blocked = dir.join("a file, not a directory");
    std::fs::write(&blocked, "x").expect("a file");
    for store in [blocked.clone(), blocked.join("below")] {
        match Capture::start(&plan(sim("60,packets=10"), &store)).err() {
            Some(e @ EngineError::Store(..)) => {
                let text = e.to_string();
                assert!(text.starts_with(store.to_str().expect("a name")) && text.contains("--store"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(walk(dir.path()), [blocked]);
}

#[test]
fn a_volume_full_for_a_while_loses_only_what_the_ring_cannot_hold() {
    let test = "a_volume_full_for_a_while_loses_only_what_the_ring_cannot_hold";
    let Some(volume) = Volume::new(test, "96m") else { return };
    let other_file = volume.fill(84 << 20);
    let plan = Plan { segment: 4 << 20, ..plan(sim("1000,rate=8kpps,truth"), &volume.store()) };
    let capture = start(&plan);
    until("the volume is full", || recorder_error(&capture).is_some());
    let reported = recorder_error(&capture).unwrap_or_default();
    assert!(reported.contains("free space on the volume"), "{reported}");
    until("the ring is full", || capture.report().lost_by_reader.contains_key("recorder"));
    std::fs::remove_file(other_file).expect("the file");
    until("the volume accepts writes again", || recorder_error(&capture).is_none());
    let stored = capture.report().counts.stored;
    until("packets are stored again", || capture.report().counts.stored > stored + 4000);
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok(), "{:?}", ended.outcome);
    let full = ended.lost(Cause::RingFull);
    assert_eq!((ended.report.counts.lost_total, ended.report.lost_by_reader.get("recorder")), (full, Some(&full)));
    assert!(full > 0 && ended.has_warning("the volume accepts writes again"), "{:#?}", ended.report.warnings);
}

#[test]
fn a_volume_full_to_the_end_loses_the_reported_packets_and_ends() {
    let test = "a_volume_full_to_the_end_loses_the_reported_packets_and_ends";
    let Some(volume) = Volume::new(test, "16m") else { return };
    volume.fill(8 << 20);
    // Short packets use up the descriptors of the ring before its bytes, so that no descriptor is free for the end of
    // the stream.
    let source = sim("60,rate=150kpps,truth");
    let base = plan(source, &volume.store());
    let plan = Plan { segment: 2 << 20, ..base };
    let capture = start(&plan);
    until("the ring is full", || capture.report().lost_by_reader.contains_key("recorder"));
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok(), "{:?}", ended.outcome);
    let disk = ended.lost(Cause::Disk);
    assert!(disk > 0 && ended.lost(Cause::RingFull) > 0, "{:?}", ended.report.counts);
    assert_eq!(disk + ended.lost(Cause::RingFull), ended.report.counts.lost_total);
    assert!(ended.has_warning(&format!("{disk} packets not written (lost: disk)")), "{:#?}", ended.report.warnings);
    // All lost packets follow the last stored packet, so the files contain the beginning of the stream without a gap.
    let sent = ended.report.counts.stored;
    let checked = checker::check(&[store_of(&plan)], checker::Options { sent: Some(sent), file_by_file: false });
    assert!(checked.expect("a check").is_complete());
}

fn store_of(plan: &Plan) -> PathBuf {
    plan.store.as_ref().map_or_else(|| Path::new("").to_owned(), |s| s.dir.clone())
}
