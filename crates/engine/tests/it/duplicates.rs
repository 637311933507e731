//! Duplicates in a capture: dropped and counted, or stored, marked and counted apart from the other packets.

use crate::{common, meter};

use ::duplicates::Settings;
use ::duplicates::settings::WINDOW_HPCAP;
use base::{Prng, Timestamp};
use common::{file, plan, run, write_capture};
use flow::Record;
use netgrain_engine::{DuplicateAction, DuplicatePlan, DuplicateScope, Plan, SharedDuplicates};
use series::{Row, Volume};
use std::path::Path;
use testkit::TempDir;
use testkit::copies::{Copied, Planted, plant};
use wire::build::Frame;

/// Datagrams with identifications over three seconds, and copies of every third at most 100 ms later.
fn planted() -> Vec<Planted> {
    let mut prng = Prng::new(9);
    let frames = (1..=3000u16).map(|number| {
        // Equal payloads with several identifications would show that the sender repeats itself.
        let (mut bytes, payload) = ([0; 100], number.to_be_bytes());
        let frame = Frame::udp4([10, 0, 0, 1], 4000, [10, 9, 9, 9], 53).fragment(number, 0, false).payload(&payload);
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
    let duplicates =
        action.map(|action| DuplicatePlan::new(action, Settings { window: WINDOW_HPCAP, ..Settings::default() }));
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

/// Flow records and rows with marked copies equal those of a run in which the copies were dropped, except for the
/// positions in the stream, which the stored copies move, and for the counts of the copies.
#[test]
fn flows_and_series_count_marked_copies_apart() {
    let dir = TempDir::new("marked_duplicates_in_flows");
    let frames = planted();
    let copies = || frames.iter().filter(|frame| frame.copied.is_some());
    let volume =
        Volume { packets: copies().count() as u64, bytes: copies().map(|frame| u64::from(frame.wire_len)).sum() };
    let comparable = |record: &Record| Record { location: None, ..record.clone() };
    let without_copies = |row: &Row| Row {
        duplicate: Volume::default(),
        ledger: base::Tally::default(),
        timestamps: Default::default(),
        ..*row
    };
    for shards in [1, 3] {
        let run = |action| {
            let name = format!("{action:?}{shards}");
            meter::run(&meter::metered(capture_plan(&dir, &name, &frames, Some(action)), shards))
        };
        let (marked, ended) = run(DuplicateAction::Mark);
        let (dropped, _) = run(DuplicateAction::Drop);
        let mut counted = Volume::default();
        marked.rows.iter().for_each(|row| counted += &row.duplicate);
        assert_eq!(counted, volume);
        assert!(marked.rows.iter().filter(|row| row.duplicate.packets > 0).count() >= 3, "copies in each second");
        let report = ended.report.meter.expect("a meter");
        assert_eq!((report.duplicates, report.duplicate_bytes), (volume.packets, volume.bytes));
        assert_eq!(report.packets + report.duplicates, ended.report.counts.stored);
        let rows = |rows: &[Row]| rows.iter().map(without_copies).collect::<Vec<_>>();
        assert_eq!(rows(&marked.rows), rows(&dropped.rows));
        let records = |records: &[Record]| records.iter().map(comparable).collect::<Vec<_>>();
        assert_eq!(records(&marked.records), records(&dropped.records));
        assert!(!marked.records.is_empty());
    }
}

/// The mirrors of both ends of a link: two captures, of which each has half of the packets of each pair of copies.
#[test]
fn captures_that_share_a_table_store_each_packet_once() {
    let dir = TempDir::new("shared_duplicates");
    let frames = planted();
    let (originals, copies): (Vec<_>, Vec<_>) = frames.iter().cloned().partition(|frame| frame.copied.is_none());
    let shared = SharedDuplicates::default();
    let mut expected = originals.iter().map(|frame| frame.bytes.clone()).collect::<Vec<_>>();
    // The second capture has the copies, and further packets that are in both captures.
    let second: Vec<Planted> = frames.iter().filter(|frame| frame.copied.is_some()).cloned().collect();
    let second = [&second[..], &originals[..500]].concat();
    let mut stored = Vec::new();
    for (interface, (name, frames)) in [("first", &originals), ("second", &second)].into_iter().enumerate() {
        let mut plan = capture_plan(&dir, name, frames, Some(DuplicateAction::Drop));
        if let Some(duplicates) = &mut plan.duplicates {
            duplicates.scope = DuplicateScope::Shared(shared.clone());
            duplicates.interface = interface as u16;
        }
        let ended = run(&plan);
        assert_eq!(ended.report.counts.residue, 0);
        let dropped = if interface == 0 { 0 } else { copies.len() + 500 };
        assert_eq!(ended.report.counts.duplicate, dropped as u64, "{name}");
        let report = ended.report.queues[0].duplicates.clone().expect("the detection is on");
        assert_eq!((report.table, report.forgotten), ("all", 0));
        assert_eq!(report.found.values().sum::<u64>(), dropped as u64);
        assert!(report.reach_nanos > 100_000_000, "{report:?}");
        stored.extend(ended.packets().map(|packet| packet.bytes.clone()));
    }
    stored.sort();
    expected.sort();
    assert!(stored == expected, "other packets than the originals are stored");
}
