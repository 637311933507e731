//! SIGKILL at random moments while files are cut, sealed, published and removed; and questions asked meanwhile.

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

/// Kills in one run of the test.
const ROUNDS: u64 = 100;

/// Where a frame of the generator has its number, 48 bits in network order (drawn in `gen`'s documentation).
const SEQUENCE: std::ops::Range<usize> = 44..50;

/// Small files from a small ring, a few of them in each second: what happens at their borders happens often.
fn record(store: &Path, more: &[&str]) -> std::process::Command {
    let usual = ["record", "--sim", "400,truth,rate=40kpps", "--ring", "8MiB", "--depth", "4"];
    let segment: &[&str] = if more.contains(&"--segment") { &[] } else { &["--segment", "2MiB"] };
    netgrain(&[&usual[..], &["--store", arg(store)], segment, more].concat())
}

/// The next recorder finds the claim free, mends what the killed one left, and records beside it, with frames that tell
/// nothing of themselves.
fn start_again(store: &Path, note: &str) {
    let again = run(&["record", "--sim", "60,packets=100", "--ring", "8MiB", "--store", arg(store)]);
    assert_eq!(again.status, Some(0), "{note}: {again:?}");
    assert!(again.out.contains("100"), "{note}: {again:?}");
    let in_work: Vec<PathBuf> = walk(store).into_iter().filter(|path| arg(path).ends_with(".partial")).collect();
    assert!(in_work.is_empty(), "{note}: {in_work:?}: {again:?}");
    assert!(assert_whole(store, note) > 0, "{note}");
}

/// `verify` finds nothing wrong, and the ledgers say where every offered packet is. How many a kill has cost.
fn assert_sound(store: &Path, note: &str) -> u64 {
    let mut verified = run(&["verify", "--json", arg(store)]);
    let bare = |o: &serde_json::Value| o["finding"]["kind"] == "no_index";
    if common::objects(&verified.out).iter().any(bare) {
        // Retention takes the index first, and may have been killed in between.
        let mended = run(&["repair", arg(store)]);
        assert_eq!(mended.status, Some(0), "{note}: {mended:?}");
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

/// Every published file is whole: its index says so, it ends where the index says, its records are as many as the index
/// counts, and all frames of all files are there unless an index counts them as lost, once, in order, with their own checksum right. How many files.
fn assert_whole(store: &Path, note: &str) -> usize {
    let files = published(store);
    let (mut without_index, mut lost) = (0, 0);
    for path in &files {
        let shown = path.display();
        let mut records = 0;
        let mut reader = pcap::Reader::open(File::open(path).expect("the file")).expect("a header");
        while reader.next().unwrap_or_else(|e| panic!("{note}: {shown}: {e}")).is_some() {
            records += 1;
        }
        // Retention takes the index first, and may have been killed in between.
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
        // A busy machine may lose packets, which the index of their file counts.
        let is_told = |defect| defect == Defect::Missing && (without_index > 0 || report.count(defect) <= lost);
        let sound = Defect::ALL.iter().all(|defect| report.count(*defect) == 0 || is_told(*defect));
        assert!(sound, "{note}: {lost} lost: {report}");
    }
    files.len()
}

#[test]
fn a_hundred_kills_leave_every_published_file_whole_and_the_store_free_for_the_next() {
    let test = "a_hundred_kills_leave_every_published_file_whole_and_the_store_free_for_the_next";
    let mut prng = Prng::new(testkit::seed(test));
    let (mut files, mut orphans, mut crashed) = (0, 0, 0);
    for round in 0..ROUNDS {
        let dir = TempDir::new("killed");
        let store = dir.join("store");
        // In every other round retention removes a file for each new one.
        let bounded = round % 2 == 1;
        let more: &[&str] = if bounded { &["--max-size", "8MiB", "--quiet"] } else { &["--quiet"] };
        let (mut running, _err) = Running::start(&mut record(&store, more));
        // The moment is random from the first packets on, and in most rounds from the first published files on.
        let (wanted, pause) = (prng.below(3), prng.below(if bounded { 500 } else { 130 }));
        until("files are published", || published(&store).len() as u64 >= wanted);
        std::thread::sleep(Duration::from_millis(pause));
        running.0.kill().expect("SIGKILL");
        running.0.wait().expect("its end");
        let note = format!("round {round}");
        files += assert_whole(&store, &note);
        orphans += walk(&store).iter().filter(|path| arg(path).ends_with(".partial")).count();
        start_again(&store, &note);
        crashed += assert_sound(&store, &note);
    }
    // Otherwise nothing was tried.
    assert!(files > ROUNDS as usize / 2 && orphans > ROUNDS as usize / 2, "{files} files published, {orphans} in work");
    assert!(crashed > 0, "no kill cost a packet that was seen");
}

#[test]
fn what_was_said_to_be_stored_two_seconds_before_a_kill_is_there_after_the_next_start() {
    let test = "what_was_said_to_be_stored_two_seconds_before_a_kill_is_there_after_the_next_start";
    let mut prng = Prng::new(testkit::seed(test));
    for round in 0..4 {
        let dir = TempDir::new("said");
        let store = dir.join("store");
        // In every other round nothing is published before the kill: all there is has to be recovered.
        let segment = if round % 2 == 0 { "2MiB" } else { "256MiB" };
        let (mut running, _err) = Running::start(&mut record(&store, &["--json", "--segment", segment]));
        let mut lines = BufReader::new(running.0.stdout.take().expect("caught")).lines();
        // One report a second. The recorder writes out what it has once a second as well, so that two reports later
        // what the first one said has had its second, and one more to get to the disk.
        let mut stored = || {
            let line = lines.next().expect("a report").expect("text");
            common::objects(&line)[0]["live"]["stored"].as_u64().expect("a count")
        };
        let (first, begun) = (stored(), Instant::now());
        let stored = [first, stored(), stored()];
        // On a busy machine a late report comes close to the next.
        std::thread::sleep(Duration::from_secs(2).saturating_sub(begun.elapsed()));
        std::thread::sleep(Duration::from_millis(prng.below(500)));
        running.0.kill().expect("SIGKILL");
        running.0.wait().expect("its end");
        let note = format!("round {round}");
        start_again(&store, &note);
        let report = check(&published(&store), Options::default()).unwrap_or_else(|e| panic!("{note}: {e}"));
        let (first, last) = report.sequences.unwrap_or_else(|| panic!("{note}: {report}"));
        assert!(stored[0] > 0 && first == 0 && last + 1 >= stored[0], "{note}: {first} to {last}, said {stored:?}");
    }
}

#[test]
fn questions_during_rotation_and_retention_get_every_packet_that_is_left_once() {
    let dir = TempDir::new("asked");
    let store = dir.join("store");
    let (running, err) = Running::start(&mut record(&store, &["--max-size", "12MiB", "--json"]));
    until("a file is published", || !published(&store).is_empty());
    let (mut answers, mut firsts, mut gaps) = (0, BTreeSet::new(), BTreeMap::new());
    until("answers begin at several packets", || {
        // What is in the ring only is another's test.
        let question = Query { live: false, ..Query::default() };
        let mut answer = query::run(&QuerySource::Store(store.clone()), question).unwrap_or_else(|e| panic!("{e}"));
        let mut last: Option<u64> = None;
        while let Some(found) = answer.next().unwrap_or_else(|e| panic!("answer {answers}: {e}")) {
            let number = found.data[SEQUENCE].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
            match last {
                None => drop(firsts.insert(number)),
                Some(last) if number > last + 1 => drop(gaps.insert(last, number - last - 1)),
                Some(last) => assert_eq!(number, last + 1, "answer {answers}"),
            }
            last = Some(number);
        }
        // The file in work may end within a record; of what is published nothing is amiss.
        let amiss = |remark: &String| !remark.contains(".partial: ");
        let remarks: Vec<String> = answer.warnings().into_iter().filter(amiss).collect();
        assert!(remarks.is_empty(), "answer {answers}: {remarks:?}");
        answers += 1;
        // While one question follows the other at once, the hour is held and nothing of it goes.
        drop(answer);
        std::thread::sleep(Duration::from_millis(60));
        firsts.len() > 2 && answers > 20
    });
    signal(&running.0, "INT");
    let said = running.end(err);
    let lost = common::lost_in_report(&said);
    let last = common::objects(&said.out).pop().expect("a report");
    let removed = last["retention"]["removed"]["files"].as_u64().expect("a count");
    assert!(removed > 0 && firsts.len() > 1, "{removed} files removed, answers begin at {firsts:?}");
    let missed: u64 = gaps.values().sum();
    assert!(missed <= lost, "{missed} packets are in no answer, {lost} were lost: {gaps:?}");
}
