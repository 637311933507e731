//! Duplicates in a capture: dropped and counted, or stored.

use crate::common;

use ::duplicates::Settings;
use base::{Prng, Timestamp};
use common::{file, plan, run, write_capture};
use netgrain_engine::{DuplicateAction, DuplicatePlan, Plan};
use std::path::Path;
use testkit::TempDir;
use testkit::copies::{Copied, Planted, plant};
use wire::build::Frame;

/// Datagrams with identifications over three seconds, and copies of every third.
fn planted() -> Vec<Planted> {
    let mut prng = Prng::new(9);
    let frames = (1..=3000u16).map(|number| {
        let mut bytes = [0; 100];
        let frame = Frame::udp4([10, 0, 0, 1], 4000, [10, 9, 9, 9], 53).fragment(number, 0, false).payload(b"x");
        let frame = frame.write(&mut bytes).expect("room").to_vec();
        (frame.clone(), frame.len() as u32)
    });
    let ways = [Copied::Exact, Copied::Tagged, Copied::Routed];
    plant(frames.collect::<Vec<_>>(), &ways, (1_000_000, 3, 100_000_000), &mut prng)
}

fn capture_plan(dir: &TempDir, name: &str, frames: &[Planted], action: Option<DuplicateAction>) -> Plan {
    let path = dir.join("in.pcap");
    let packet = |frame: &Planted| (Timestamp::from_secs_nanos(1_700_000_000, frame.nanos), frame.bytes.clone());
    write_capture(&path, frames.iter().map(packet));
    let duplicates = action.map(|action| DuplicatePlan { action, settings: Settings::default() });
    Plan { duplicates, ..plan(file(Path::new(&path)), &dir.join(name)) }
}

#[test]
fn dropped_duplicates_are_not_stored_and_the_ledger_balances() {
    let dir = TempDir::new("dropped_duplicates");
    let frames = planted();
    let copies = frames.iter().filter(|frame| frame.copied.is_some()).count() as u64;
    let ended = run(&capture_plan(&dir, "store", &frames, Some(DuplicateAction::Drop)));
    let counts = &ended.report.counts;
    assert_eq!((counts.offered, counts.stored), (frames.len() as u64, frames.len() as u64 - copies));
    assert_eq!((counts.duplicate, counts.residue), (copies, 0));
    let stored: Vec<Vec<u8>> = ended.packets().map(|packet| packet.bytes.clone()).collect();
    let originals = frames.iter().filter(|frame| frame.copied.is_none()).map(|frame| frame.bytes.clone());
    assert!(stored == originals.collect::<Vec<_>>(), "other packets than the originals are stored");
    // The recorder counts the duplicates of each block from the ring.
    let mut indexed = base::Tally::default();
    ended.files.iter().flat_map(|file| &file.index.entries).for_each(|entry| indexed += &entry.tally());
    assert_eq!((indexed.duplicate, indexed.residue()), (copies, 0));
}

#[test]
fn marked_duplicates_and_a_capture_without_detection_store_all_packets() {
    let dir = TempDir::new("marked_duplicates");
    let frames = planted();
    for (name, action) in [("mark", Some(DuplicateAction::Mark)), ("off", None)] {
        let ended = run(&capture_plan(&dir, name, &frames, action));
        let counts = &ended.report.counts;
        assert_eq!((counts.stored, counts.duplicate, counts.residue), (frames.len() as u64, 0, 0), "{name}");
    }
}
