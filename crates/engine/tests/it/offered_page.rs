//! A recorder that is killed: what it had been offered and is in no file is in the ledger after the next start.

use crate::common;

use base::Cause;
use common::{plan, sim, until, walk};
use index::Reader;
use netgrain_engine::{Capture, Format, Plan, StorePlan};
use std::fs::File;
use std::path::Path;
use store::offered_page;
use testkit::{ChildTest, TempDir};

/// Set for a process that only records: the store.
const STORE: &str = "NETGRAIN_TEST_KILLED_STORE";

fn endless(store: &Path) -> Plan {
    let format = if store.ends_with("raw") { Format::Raw } else { Format::Pcap };
    let wanted = plan(sim("200,rate=150kpps"), store);
    Plan { store: Some(StorePlan { dir: store.to_owned(), format, depth: 8 }), segment: 16 << 20, ..wanted }
}

/// Not a test of its own: the body of the process that is killed.
#[test]
fn a_process_that_records_until_it_is_killed() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let mut capture = common::start(&endless(Path::new(&store)));
    let _ = capture.wait();
}

#[test]
fn what_a_killed_recorder_was_offered_is_in_the_ledger_to_the_packet() {
    let dir = TempDir::new("what_a_killed_recorder_was_offered");
    for format in ["pcap", "raw"] {
        let store = dir.join(format);
        let folder = store.join("sim");
        let mut process = ChildTest::start(module_path!(), "a_process_that_records_until_it_is_killed", STORE, &store);
        let is_published = |p: &Path| p.extension().is_some_and(|e| e == "ngi");
        until("two files are there", || walk(&folder).iter().filter(|p| is_published(p)).count() > 1);
        process.kill();
        let tails = offered_page::orphaned_counts(&folder);
        let [tail] = &tails[..] else { panic!("{format}: {tails:?}") };
        assert!(tail.file.is_some() && tail.offered > tail.before && !tail.ended, "{format}: {tail:?}");
        let next = Plan { packets: Some(10), ..endless(&store) };
        let mut capture: Capture = common::start(&next);
        capture.wait().expect("it records");
        let report = capture.report();
        drop(capture);
        let mut reported = base::Tally::default();
        for path in walk(&folder).iter().filter(|p| is_published(p)) {
            reported += &Reader::open(&File::open(path).expect("an index")).expect("sealed").summary().tally;
        }
        assert_eq!(reported.residue(), 0, "{format}");
        let offered = tail.offered + report.counts.offered;
        assert_eq!(reported.offered, offered, "{format}: {reported:?}, {tail:?}, {:#?}", report.warnings);
        assert!(reported.lost[Cause::Crash as usize] < offered, "{format}: most of it is there");
        assert_eq!(offered_page::orphaned_counts(&folder), [], "{format}: entered, and forgotten");
        // Nothing of it was entered twice.
        common::start(&next).wait().expect("it records again");
        assert!(!walk(&folder).iter().any(|p| p.to_string_lossy().ends_with(".partial")));
    }
}
