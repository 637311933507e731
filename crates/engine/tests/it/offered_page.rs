//! Tests that the next start after a recorder was killed adds to the ledger, as lost, the packets that were offered and
//! not stored.

use crate::common;

use base::Cause;
use common::{plan, sim, until, walk};
use index::Reader;
use netgrain_engine::{Capture, Format, Plan, StorePlan};
use std::fs::File;
use std::path::Path;
use store::offered_page;
use testkit::{ChildTest, TempDir};

/// The environment variable that names the store for a child process. The child process only records into this store.
const STORE: &str = "NETGRAIN_TEST_KILLED_STORE";

fn endless(store: &Path) -> Plan {
    let format = if store.ends_with("raw") { Format::Raw } else { Format::Pcap };
    let base = plan(sim("200,rate=150kpps"), store);
    Plan { store: Some(StorePlan { dir: store.to_owned(), format, depth: 8 }), segment: 16 << 20, ..base }
}

/// The body of the child process that is killed; without the environment variable [`STORE`] this test does nothing.
#[test]
fn child_process_that_records() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let mut capture = common::start(&endless(Path::new(&store)));
    let _ = capture.wait();
}

#[test]
fn the_offered_packets_of_a_killed_recorder_are_in_the_ledger() {
    let dir = TempDir::new("killed_recorder");
    for format in ["pcap", "raw"] {
        let store = dir.join(format);
        let directory = store.join("sim");
        let mut process = ChildTest::start(module_path!(), "child_process_that_records", STORE, &store);
        let is_published = |p: &Path| p.extension().is_some_and(|e| e == "ngi");
        until("two files are published", || walk(&directory).iter().filter(|p| is_published(p)).count() > 1);
        process.kill();
        let tails = offered_page::orphaned_counts(&directory);
        let [tail] = &tails[..] else { panic!("{format}: {tails:?}") };
        assert!(tail.file.is_some() && tail.offered > tail.before && !tail.ended, "{format}: {tail:?}");
        let next = Plan { packets: Some(10), ..endless(&store) };
        let mut capture: Capture = common::start(&next);
        capture.wait().expect("a recording");
        let report = capture.report();
        drop(capture);
        let mut reported = base::Tally::default();
        for path in walk(&directory).iter().filter(|p| is_published(p)) {
            reported += &Reader::open(&File::open(path).expect("an index")).expect("sealed").summary().tally;
        }
        assert_eq!(reported.residue(), 0, "{format}");
        let offered = tail.offered + report.counts.offered;
        assert_eq!(reported.offered, offered, "{format}: {reported:?}, {tail:?}, {:#?}", report.warnings);
        assert!(reported.lost[Cause::Crash as usize] < offered, "{format}: most packets are stored");
        assert_eq!(
            offered_page::orphaned_counts(&directory),
            [],
            "{format}: the page is removed after its count was added to the ledger"
        );
        // A further start of the recorder does not add the same packets a second time.
        common::start(&next).wait().expect("another recording");
        assert!(!walk(&directory).iter().any(|p| p.to_string_lossy().ends_with(".partial")));
    }
}
