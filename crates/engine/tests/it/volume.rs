//! Volumes that refuse: full for a while, full to the end, not writable from the start. Other failures (short and slow
//! writes, failing fsync, torn blocks) are injected below the recorder, in the tests of `store`.

use crate::common;

use base::Cause;
use common::{Volume, plan, sim, start, stop, until, walk};
use netgrain_engine::{Capture, EngineError, Plan};
use std::path::{Path, PathBuf};
use testkit::TempDir;

fn trouble(capture: &Capture) -> Option<String> {
    capture.report().queues[0].recorder.as_ref().and_then(|r| r.error.clone())
}

#[test]
fn a_store_that_cannot_be_written_is_refused_before_anything_is_captured() {
    let dir = TempDir::new("a_store_that_cannot_be_written_is_refused");
    let blocked = dir.join("a file, not a folder");
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
fn a_volume_full_for_a_while_costs_what_the_ring_cannot_hold_and_no_more() {
    let test = "a_volume_full_for_a_while_costs_what_the_ring_cannot_hold_and_no_more";
    let Some(volume) = Volume::new(test, "96m") else { return };
    let filling = volume.fill(84 << 20);
    let plan = Plan { segment: 4 << 20, ..plan(sim("1000,rate=8kpps,truth"), &volume.store()) };
    let capture = start(&plan);
    until("the volume is full", || trouble(&capture).is_some());
    let reported = trouble(&capture).unwrap_or_default();
    assert!(reported.contains("free space on the volume"), "{reported}");
    until("the ring is full as well", || capture.report().lost_by_reader.contains_key("recorder"));
    std::fs::remove_file(filling).expect("room again");
    until("the volume takes writes again", || trouble(&capture).is_none());
    let stored = capture.report().counts.stored;
    until("packets are stored again", || capture.report().counts.stored > stored + 4000);
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok(), "{:?}", ended.outcome);
    let full = ended.lost(Cause::RingFull);
    assert_eq!((ended.report.counts.lost_total, ended.report.lost_by_reader.get("recorder")), (full, Some(&full)));
    assert!(full > 0 && ended.remarks("the volume takes writes again"), "{:#?}", ended.report.warnings);
}

#[test]
fn a_volume_full_to_the_end_costs_exactly_what_is_said_and_the_end_comes() {
    let test = "a_volume_full_to_the_end_costs_exactly_what_is_said_and_the_end_comes";
    let Some(volume) = Volume::new(test, "16m") else { return };
    volume.fill(8 << 20);
    // Short packets use up the descriptors of the ring before its bytes: not even the end finds room then.
    let source = sim("60,rate=150kpps,truth");
    let wanted = plan(source, &volume.store());
    let plan = Plan { segment: 2 << 20, ..wanted };
    let capture = start(&plan);
    until("the ring is full", || capture.report().lost_by_reader.contains_key("recorder"));
    let ended = stop(capture, &plan);
    assert!(ended.outcome.is_ok(), "{:?}", ended.outcome);
    let disk = ended.lost(Cause::Disk);
    assert!(disk > 0 && ended.lost(Cause::RingFull) > 0, "{:?}", ended.report.counts);
    assert_eq!(disk + ended.lost(Cause::RingFull), ended.report.counts.lost_total);
    assert!(ended.remarks(&format!("{disk} packets not written (lost: disk)")), "{:#?}", ended.report.warnings);
    // The first losses come after the last packet that is stored: the files hold the beginning, without a gap.
    let sent = ended.report.counts.stored;
    let checked = checker::check(&[store_of(&plan)], checker::Options { sent: Some(sent), file_by_file: false });
    assert!(checked.expect("a check").is_complete());
}

fn store_of(plan: &Plan) -> PathBuf {
    plan.store.as_ref().map_or_else(|| Path::new("").to_owned(), |s| s.dir.clone())
}
