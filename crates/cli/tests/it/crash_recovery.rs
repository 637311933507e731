//! Recorders are killed with SIGKILL at random moments, while they create, seal, publish and remove files. Other tests
//! query a store during rotation and retention.

use crate::common;

use base::Prng;
use checker::{Defect, Options, check};
use common::{Running, arg, netgrain, run, signal, until, walk};
use index::Reader;
use query::{Query, QuerySource};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::TempDir;

/// The number of kills in one run of the test.
const ROUNDS: u64 = 100;

/// The sequence number in a frame of the generator: 48 bits in network byte order (see the documentation of `gen`).
const SEQUENCE: std::ops::Range<usize> = 44..50;

/// Records a few small files per second from a small ring, so that file boundaries are frequent.
fn record(store: &Path, more: &[&str]) -> std::process::Command {
    let usual = ["record", "--sim", "400,truth,rate=40kpps", "--ring", "8MiB", "--depth", "4"];
    let segment: &[&str] = if more.contains(&"--segment") { &[] } else { &["--segment", "2MiB"] };
    netgrain(&[&usual[..], &["--store", arg(store)], segment, more].concat())
}

/// Asserts that the next recorder obtains the claim of the interface, recovers the files of the killed recorder, and
/// adds files to the store. The frames of the next recorder have no sequence numbers.
fn start_again(store: &Path, note: &str) {
    let again = run(&["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(store)]);
    assert_eq!(again.status, Some(0), "{note}: {again:?}");
    assert!(again.out.contains("100"), "{note}: {again:?}");
    let partial: Vec<PathBuf> = walk(store).into_iter().filter(|path| arg(path).ends_with(".partial")).collect();
    assert!(partial.is_empty(), "{note}: {partial:?}: {again:?}");
    assert!(assert_files_are_complete(store, note) > 0, "{note}");
}

/// Asserts that `verify` finds no fault and that the ledgers account for every offered packet. Returns the number of
/// packets lost by the kill.
fn assert_store_is_consistent(store: &Path, note: &str) -> u64 {
    let mut verified = run(&["verify", "--json", arg(store)]);
    let has_no_index = |o: &serde_json::Value| o["finding"]["kind"] == "no_index";
    if common::objects(&verified.out).iter().any(has_no_index) {
        // Retention removes the index of a packet file first; if the recorder is killed before retention removes the
        // packet file, the packet file has no index.
        let repaired = run(&["repair", arg(store)]);
        assert_eq!(repaired.status, Some(0), "{note}: {repaired:?}");
        verified = run(&["verify", "--json", arg(store)]);
    }
    assert_eq!(verified.status, Some(0), "{note}: {verified:?}");
    let last = common::objects(&verified.out).pop().expect("the totals");
    let ledger = &last["verified"]["ledger"];
    assert_eq!(ledger["residue"], 0, "{note}: {ledger}");
    assert_eq!(ledger["stored"], last["verified"]["packets"], "{note}: {last}");
    ledger["lost"]["crash"].as_u64().unwrap_or(0)
}

fn published(store: &Path) -> Vec<PathBuf> {
    let is_packets = |path: &PathBuf| path.extension().is_some_and(|e| e == "pcap");
    walk(store).into_iter().filter(is_packets).collect()
}

/// Asserts that every published file is complete: its index is sealed, its length and its number of records are those
/// of the index, and all frames of all files are present once, in order, with a valid checksum, except those that an
/// index counts as lost. Returns the number of files.
fn assert_files_are_complete(store: &Path, note: &str) -> usize {
    let files = published(store);
    let (mut without_index, mut lost) = (0, 0);
    for path in &files {
        let shown = path.display();
        let mut records = 0;
        let mut reader = pcap::Reader::open(File::open(path).expect("the file")).expect("a header");
        while reader.next().unwrap_or_else(|e| panic!("{note}: {shown}: {e}")).is_some() {
            records += 1;
        }
        // Retention removes the index of a packet file first; if the recorder is killed before retention removes the
        // packet file, the packet file has no index.
        let Ok(index) = File::open(path.with_extension("ngi")) else {
            without_index += 1;
            continue;
        };
        let index = Reader::open(&index).unwrap_or_else(|e| panic!("{note}: {shown}: {e}"));
        assert!(index.is_sealed(), "{note}: {shown}");
        assert_eq!(index.summary().bytes, path.metadata().expect("the file").len(), "{note}: {shown}");
        assert_eq!((index.summary().tally.stored, index.summary().tally.residue()), (records, 0), "{note}: {shown}");
        lost += index.summary().tally.lost_total();
    }
    assert!(without_index <= 1, "{note}: {without_index} files without an index");
    if !files.is_empty() {
        let report = check(&files, Options::default()).unwrap_or_else(|e| panic!("{note}: {e}"));
        // A busy machine may lose packets; the index of their file counts them.
        let is_accounted = |defect| defect == Defect::Missing && (without_index > 0 || report.count(defect) <= lost);
        let sound = Defect::ALL.iter().all(|defect| report.count(*defect) == 0 || is_accounted(*defect));
        assert!(sound, "{note}: {lost} lost: {report}");
    }
    files.len()
}

#[test]
fn after_each_of_100_kills_files_are_complete_and_recording_restarts() {
    let test = "after_each_of_100_kills_files_are_complete_and_recording_restarts";
    let mut prng = Prng::new(testkit::seed(test));
    let (mut files, mut orphans, mut crashed) = (0, 0, 0);
    for round in 0..ROUNDS {
        let dir = TempDir::new("killed");
        let store = dir.join("store");
        // In every second round the store has a maximum size, so retention removes an old file for each new file.
        let bounded = round % 2 == 1;
        let more: &[&str] = if bounded { &["--max-size", "8MiB", "--quiet"] } else { &["--quiet"] };
        let (mut running, _err) = Running::start(&mut record(&store, more));
        // The kill comes at a random time after the first packets. In most rounds it comes after the first files are
        // published.
        let (published_min, pause) = (prng.below(3), prng.below(if bounded { 500 } else { 130 }));
        until("files are published", || published(&store).len() as u64 >= published_min);
        std::thread::sleep(Duration::from_millis(pause));
        running.0.kill().expect("SIGKILL");
        running.0.wait().expect("the process ends");
        let note = format!("round {round}");
        files += assert_files_are_complete(&store, &note);
        orphans += walk(&store).iter().filter(|path| arg(path).ends_with(".partial")).count();
        start_again(&store, &note);
        crashed += assert_store_is_consistent(&store, &note);
    }
    // If fewer files were published or left partial, the kills came too early to test recovery.
    assert!(
        files > ROUNDS as usize / 2 && orphans > ROUNDS as usize / 2,
        "{files} files published, {orphans} partial files"
    );
    assert!(crashed > 0, "no kill lost a packet that the ledger counts");
}

/// The rows of the killed process for the second of the kill are lost, and the next process writes a row for the same
/// second.
#[test]
fn a_restart_in_the_second_of_a_kill_leaves_a_store_without_problems() {
    for round in 0..4 {
        let dir = TempDir::new("restart-in-a-second");
        let store = dir.join("store");
        let record = |more: &[&str]| {
            netgrain(&[&["run", "--sim", "200,rate=20kpps", "--ring", "8MiB", "--store", arg(&store)], more].concat())
        };
        let (mut running, _err) = Running::start(&mut record(&["--rotate", "1s"]));
        until("files are published", || walk(&store).iter().filter(|p| arg(p).ends_with(".pcap")).count() > 1);
        running.0.kill().expect("SIGKILL");
        running.0.wait().expect("the process ends");
        let (again, err) = Running::start(&mut record(&["--duration", "1500ms"]));
        let again = again.end(err);
        let verified = run(&["verify", arg(&store)]);
        assert_eq!(verified.status, Some(0), "round {round}: {verified:?}, after {again:?}");
    }
}

#[test]
fn packets_reported_stored_2_s_before_a_kill_are_recovered() {
    let test = "packets_reported_stored_2_s_before_a_kill_are_recovered";
    let mut prng = Prng::new(testkit::seed(test));
    for round in 0..4 {
        let dir = TempDir::new("reported");
        let store = dir.join("store");
        // In every second round the recorder is killed before it publishes a file, so all packets have to be recovered.
        let segment = if round % 2 == 0 { "2MiB" } else { "256MiB" };
        let (mut running, _err) = Running::start(&mut record(&store, &["--json", "--segment", segment]));
        let mut lines = BufReader::new(running.0.stdout.take().expect("a pipe")).lines();
        // The recorder prints a report and flushes its buffers once per second. So when the second report after a
        // report is printed, the packets of that report were flushed, and had one more second to reach the disk.
        let mut stored = || {
            let line = lines.next().expect("a report").expect("text");
            common::objects(&line)[0]["live"]["stored"].as_u64().expect("a count")
        };
        let (first, begun) = (stored(), Instant::now());
        let stored = [first, stored(), stored()];
        // On a busy machine a report may be late, and the next report may follow at once.
        std::thread::sleep(Duration::from_secs(2).saturating_sub(begun.elapsed()));
        std::thread::sleep(Duration::from_millis(prng.below(500)));
        running.0.kill().expect("SIGKILL");
        running.0.wait().expect("the process ends");
        let note = format!("round {round}");
        start_again(&store, &note);
        let report = check(&published(&store), Options::default()).unwrap_or_else(|e| panic!("{note}: {e}"));
        let (first, last) = report.sequences.unwrap_or_else(|| panic!("{note}: {report}"));
        assert!(
            stored[0] > 0 && first == 0 && last + 1 >= stored[0],
            "{note}: sequence numbers {first} to {last}, reported as stored: {stored:?}"
        );
    }
}

#[test]
fn queries_during_rotation_and_retention_return_each_stored_packet_once() {
    let dir = TempDir::new("asked");
    let store = dir.join("store");
    let (running, err) = Running::start(&mut record(&store, &["--max-size", "12MiB", "--json"]));
    until("a file is published", || !published(&store).is_empty());
    let (mut queries, mut firsts, mut gaps) = (0, BTreeSet::new(), BTreeMap::new());
    until("results begin at several packets", || {
        // This query reads only files, not the ring. Other tests query packets that are only in the ring.
        let query = Query { live: false, ..Query::default() };
        let mut results = query::run(&QuerySource::Store(store.clone()), query).unwrap_or_else(|e| panic!("{e}"));
        let mut last: Option<u64> = None;
        while let Some(found) = results.next().unwrap_or_else(|e| panic!("query {queries}: {e}")) {
            let number = found.data[SEQUENCE].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
            match last {
                None => drop(firsts.insert(number)),
                Some(last) if number > last + 1 => drop(gaps.insert(last, number - last - 1)),
                Some(last) => assert_eq!(number, last + 1, "query {queries}"),
            }
            last = Some(number);
        }
        // The growing file may end within a record; published files cause no warning.
        let is_of_published = |warning: &String| !warning.contains(".partial: ");
        let warnings: Vec<String> = results.warnings().into_iter().filter(is_of_published).collect();
        assert!(warnings.is_empty(), "query {queries}: {warnings:?}");
        queries += 1;
        // Without a pause between the queries, some query would hold the hour directory at each moment, and retention
        // would remove nothing from it.
        drop(results);
        std::thread::sleep(Duration::from_millis(60));
        firsts.len() > 2 && queries > 20
    });
    signal(&running.0, "INT");
    let output = running.end(err);
    let lost = common::lost_in_report(&output);
    let last = common::objects(&output.out).pop().expect("a report");
    let removed = last["retention"]["removed"]["files"].as_u64().expect("a count");
    assert!(removed > 0 && firsts.len() > 1, "{removed} files removed, results begin at {firsts:?}");
    let missed: u64 = gaps.values().sum();
    assert!(missed <= lost, "{missed} packets are missing from results, {lost} were lost: {gaps:?}");
}
