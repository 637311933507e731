//! Tests queries on stores after disk errors, crashes, and changes by other programs.

use crate::common;

use base::{Prng, Timestamp};
use common::*;
use filter::Filter;
use netgrain_query::{Query, QuerySource, Results, run};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::catalogue::Hours;
use store::{Hold, names};
use testkit::TempDir;

/// Records a store of several files with several blocks each; the time between packets is one microsecond. Returns the
/// paths of the files.
fn store(dir: &Path, files: u64, packets: u64, prng: &mut Prng) -> Vec<PathBuf> {
    let mut stream = Stream::new("eth1", 0, 1);
    for file in 0..files {
        for i in 0..packets {
            let ts = START.after(Duration::from_micros(file * packets + i));
            if i == 0 {
                stream.rotate(ts);
            }
            let len = 42 + prng.below(1400) as usize;
            stream.packet(ts, len as u32, &frame(prng, len));
        }
    }
    stream.record(dir);
    common::files(dir).into_iter().map(|(_, entry)| entry.path).collect()
}

fn whole(dir: &Path) -> (Vec<Packet>, Results) {
    let mut results = everything(dir);
    (collect(&mut results), results)
}

fn assert_warning(results: &Results, path: &Path, what: &str) {
    let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
    let warnings = results.warnings();
    assert!(warnings.iter().any(|r| r.contains(name) && r.contains(what)), "no {what:?} of {name} in {warnings:#?}");
}

#[test]
fn bytes_after_the_recorded_ones_are_ignored_with_a_warning() {
    let test = "bytes_after_the_recorded_ones_are_ignored_with_a_warning";
    let mut prng = Prng::new(testkit::seed(test));
    let dir = TempDir::new("query-behind-the-end");
    let paths = store(dir.path(), 2, 2000, &mut prng);
    let (expected, _) = whole(dir.path());
    let mut bytes = fs::read(&paths[0]).expect("a file");
    let records = bytes[24..].to_vec();
    bytes.extend(records);
    fs::write(&paths[0], bytes).expect("a file");
    OpenOptions::new().write(true).open(&paths[1]).and_then(|f| f.set_len(9 << 20)).expect("zeros after the packets");
    let (found, results) = whole(dir.path());
    same(&found, &expected, "with bytes after the packets");
    paths.iter().for_each(|path| assert_warning(&results, path, "bytes after the recorded bytes are ignored"));
}

#[test]
fn a_file_without_a_usable_index_is_read_completely_with_a_warning() {
    let test = "a_file_without_a_usable_index_is_read_completely_with_a_warning";
    let mut prng = Prng::new(testkit::seed(test));
    let dir = TempDir::new("query-no-index");
    let paths = store(dir.path(), 7, 2000, &mut prng);
    let scan = Scan::of(dir.path());
    let index = |i: usize| paths[i].with_extension("ngi");
    fs::remove_file(index(0)).expect("an index");
    fs::write(index(1), b"").expect("an index");
    fs::write(index(2), b"PK\x03\x04 another format under this name").expect("an index");
    fs::copy(index(4), index(3)).expect("an index");
    let bytes = fs::read(index(4)).expect("an index");
    fs::write(index(4), &bytes[..bytes.len() / 2]).expect("an index");
    // The test changes the version of the index, which follows the magic number, to a later version.
    let mut bytes = fs::read(index(5)).expect("an index");
    bytes[8] = 99;
    fs::write(index(5), bytes).expect("an index");
    for filter in ["", "host 10.0.0.3", "udp port 53 and less 700"] {
        let query = Query { filter: Filter::parse(filter).expect("a filter"), ..Query::default() };
        let expected = scan.results(&query);
        let mut results = run(&QuerySource::Store(dir.path().to_owned()), query).expect("a store");
        same(&collect(&mut results), &expected, filter);
        assert_warning(&results, &paths[0], "has no index; the whole file is read");
        (1..6).filter(|i| *i != 4).for_each(|i| assert_warning(&results, &paths[i], "the whole file is read"));
        assert!(!results.warnings().iter().any(|r| r.contains(paths[6].to_str().expect("a name"))));
        assert!(results.is_complete());
    }
}

#[test]
fn damaged_blocks_lose_only_their_own_packets_and_are_reported() {
    let test = "damaged_blocks_lose_only_their_own_packets_and_are_reported";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let dir = TempDir::new("query-damage");
    let paths = store(dir.path(), 3, 8000, &mut prng);
    let scan = Scan::of(dir.path());
    let everything = scan.results(&Query::default());
    const BLOCK: u64 = 1 << 20;
    for round in 0..30 {
        let path = &paths[prng.below(3) as usize];
        let original = fs::read(path).expect("a file");
        let blocks = (original.len() as u64).div_ceil(BLOCK);
        let mut damaged = original.clone();
        let block = prng.below(blocks);
        let part = (block * BLOCK) as usize..(((block + 1) * BLOCK) as usize).min(original.len());
        let mut hurt = BTreeSet::from([block]);
        match prng.below(4) {
            0 => damaged[part.start + prng.below(part.len() as u64) as usize] ^= 1 << prng.below(8),
            1 => damaged[part.start + part.len() / 2..part.end].fill(0),
            2 => prng.fill(&mut damaged[part]),
            _ => {
                let other = prng.below(blocks - 1);
                let (a, b) = ((block.min(blocks - 2) * BLOCK) as usize, (other * BLOCK) as usize);
                let len = BLOCK as usize;
                damaged.copy_within(b..b + len, a);
                damaged[b..b + len].copy_from_slice(&original[a..a + len]);
                hurt = BTreeSet::from([block.min(blocks - 2), other]);
            }
        }
        if damaged == original {
            continue;
        }
        fs::write(path, &damaged).expect("damage");
        let (found, results) = whole(dir.path());
        fs::write(path, &original).expect("a repair");
        let what = format!("seed {seed} round {round}");
        // Asserts that all returned packets are correct, and that all packets that are completely in undamaged blocks
        // are returned.
        let mut at = 0;
        let (mut offset, file) = (24u64, scan.file(path));
        let mut safe = BTreeSet::new();
        for (ts, _, data) in file {
            let end = offset + 16 + data.len() as u64;
            if !(offset / BLOCK..=(end - 1) / BLOCK).any(|b| hurt.contains(&b)) {
                safe.insert(*ts);
            }
            offset = end;
        }
        for packet in &found {
            at += everything[at..]
                .iter()
                .position(|p| p == packet)
                .unwrap_or_else(|| panic!("{what}: {packet:?} was never recorded"))
                + 1;
        }
        let stamps: BTreeSet<Timestamp> = found.iter().map(|p| p.ts).collect();
        let others = everything.iter().filter(|p| !file.iter().any(|(ts, ..)| *ts == p.ts)).map(|p| p.ts);
        assert!(safe.into_iter().chain(others).all(|ts| stamps.contains(&ts)), "{what}: too much is missing");
        hurt.iter()
            .for_each(|block| assert_warning(&results, path, &format!("block {block}: does not match its checksum")));
        assert!(!results.is_complete(), "{what}");
    }
}

#[test]
fn hostile_records_with_a_correct_checksum_do_no_harm() {
    let test = "hostile_records_with_a_correct_checksum_do_no_harm";
    let seed = testkit::seed(test);
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 40;
    let mut prng = Prng::new(seed);
    for round in 0..rounds {
        let dir = TempDir::new("query-hostile");
        let mut stream = Stream::new("eth1", 0, 1);
        stream.rotate(START);
        for i in 0..1500 {
            stream.packet(START.after(Duration::from_micros(i)), 1400, &frame(&mut prng, 1400));
        }
        // The headers are changed before recording, so the checksums of the recorder are correct for the changed
        // headers.
        let stamps = stream.spoil(&mut prng, 1 + round % 7);
        stream.record(dir.path());
        let (found, _) = whole(dir.path());
        assert!(found.len() <= 1500 + stamps, "seed {seed} round {round}: {} packets", found.len());
        let mut results = everything(dir.path());
        while let Some(batch) = results.next_batch().expect("a result") {
            assert!(batch.packets as usize * 16 <= batch.records.len(), "seed {seed} round {round}");
        }
    }
}

#[test]
fn files_removed_during_a_query_are_reported_and_others_are_read() {
    let dir = TempDir::new("query-vanish");
    let mut prng = Prng::new(21);
    // The test removes files that the query has not opened yet; files that are already open would be read completely.
    let paths = store(dir.path(), 80, 20, &mut prng);
    let mut results = everything(dir.path());
    for _ in 0..10 {
        results.next().expect("a result").expect("a packet");
    }
    fs::remove_file(&paths[76]).expect("a file");
    fs::remove_file(paths[78].with_extension("ngi")).expect("an index");
    let rest = collect(&mut results);
    assert_eq!(rest.len(), 78 * 20 + 10);
    assert_warning(&results, &paths[76], "removed");
    assert_warning(&results, &paths[78], "lost its index");
    assert!(!results.is_complete());
}

#[test]
fn foreign_files_in_a_store_do_not_change_results() {
    let dir = TempDir::new("query-foreign-things");
    let mut prng = Prng::new(22);
    let paths = store(dir.path(), 2, 100, &mut prng);
    let scan = Scan::of(dir.path());
    let hour = paths[0].parent().expect("an hour");
    let stem = |secs| names::stem(START.after(Duration::from_secs(secs)), None, 0);
    fs::write(hour.join("notes.pcap"), b"text").expect("a file");
    fs::write(hour.join(format!("{}.ngi", stem(1))), b"an index without its file").expect("a file");
    fs::write(hour.join(format!("{}.pcap", stem(2))), b"no capture at all, under a right name").expect("a file");
    fs::write(hour.join(format!("{}.pcap", stem(3))), b"").expect("a file");
    fs::write(hour.join(names::hidden(&stem(4), "pcap")), b"a leftover").expect("a file");
    fs::create_dir(hour.join(format!("{}.pcap", stem(5)))).expect("a directory");
    fs::create_dir_all(dir.join("eth1/backup/2026")).expect("a directory");
    fs::create_dir_all(dir.join("lost+found")).expect("a directory");
    std::os::unix::fs::symlink(dir.join("nowhere"), hour.join(format!("{}.pcap", stem(6)))).expect("a link");
    let (found, results) = whole(dir.path());
    same(&found, &scan.results(&Query::default()), "with foreign files");
    for (secs, what) in [(2, "not a capture"), (3, "empty"), (4, "netgrain repair")] {
        assert!(
            results.warnings().iter().any(|r| r.contains(&stem(secs)) && r.contains(what)),
            "{:#?}",
            results.warnings()
        );
    }
}

#[test]
fn an_unfinished_file_is_read_as_far_as_its_index_covers_it() {
    let dir = TempDir::new("query-unfinished");
    let mut prng = Prng::new(23);
    let paths = store(dir.path(), 3, 500, &mut prng);
    let scan = Scan::of(dir.path());
    let expected = scan.results(&Query::default());
    // The test creates the state after a crash between the two renames of publication: the packet file is complete, but
    // still has its hidden name and preallocated space.
    let stem = paths[2].file_stem().and_then(|s| s.to_str()).expect("a name");
    let hidden = paths[2].with_file_name(names::hidden(stem, "pcap"));
    fs::rename(&paths[2], &hidden).expect("a rename");
    OpenOptions::new().write(true).open(&hidden).and_then(|f| f.set_len(4 << 20)).expect("preallocated space");
    let (found, results) = whole(dir.path());
    same(&found, &expected, "an unfinished file");
    assert!(results.warnings().is_empty(), "{:?}", results.warnings());
    // One byte in the only block of this file is changed, so the query returns only the packets of the other two files.
    let file = OpenOptions::new().write(true).open(&hidden).expect("the file");
    file.write_all_at(b"!", 1000).expect("damage");
    let (found, results) = whole(dir.path());
    same(&found, &expected[..1000], "without the damaged block");
    assert_warning(&results, &hidden, "block 0");
}

#[test]
fn raw_files_are_read_like_others() {
    let dir = TempDir::new("query-raw");
    let mut prng = Prng::new(24);
    let mut stream = Stream::new("eth1", 0, 1);
    stream.format = recorder::Format::Raw { file_bytes: 3 << 20 };
    stream.rotate(START);
    for i in 0..9000 {
        let len = 42 + prng.below(1400) as usize;
        stream.packet(START.after(Duration::from_micros(i)), len as u32, &frame(&mut prng, len));
    }
    stream.record(dir.path());
    let scan = Scan::of(dir.path());
    assert_eq!(scan.packets(), 9000);
    for filter in ["", "host 10.0.0.3"] {
        let query = Query { filter: Filter::parse(filter).expect("a filter"), ..Query::default() };
        let place = QuerySource::Store(dir.path().to_owned());
        let expected = scan.results(&query);
        let mut results = run(&place, query.clone()).expect("a store");
        same(&collect(&mut results), &expected, filter);
        assert!(results.warnings().is_empty(), "{:?}", results.warnings());
        let mut results = run(&place, query).expect("a store");
        same(&collect_batches(&mut results, &mut prng), &expected, filter);
    }
}

#[test]
fn results_have_no_gaps_during_rotation_and_retention() {
    const PACKETS: u64 = 40_000;
    let dir = TempDir::new("query-rotate");
    let mut prng = Prng::new(25);
    let mut stream = Stream::new("eth1", 0, 1);
    for i in 0..PACKETS {
        let ts = START.after(Duration::from_secs(i));
        if i % 900 == 0 {
            stream.rotate(ts);
        }
        stream.packet(ts, 60, &frame(&mut prng, 60));
    }
    stream.pause = Duration::from_millis(20);
    let (root, interface) = (dir.path(), dir.join("eth1"));
    let done = AtomicBool::new(false);
    let mut answers = 0;
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            stream.record(root);
            done.store(true, Ordering::Relaxed);
        });
        // This thread simulates a fast retention: it removes the oldest hour unless a process holds it, but never the
        // newest two hours.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut hours = Vec::new();
                let mut walk = Hours::forward(&interface, Timestamp::ZERO, Timestamp::MAX);
                while let Ok(Some(hour)) = walk.next() {
                    hours.push(hour);
                }
                // Hours with files that are still being sealed are not removed.
                if hours.len() > 2
                    && hours[0].list().is_ok_and(|listing| listing.unfinished.is_empty())
                    && let Ok(Some(_held)) = Hold::remover(&hours[0].directory)
                {
                    // The hold file is removed last, so that no reader begins without a hold while files exist.
                    let hold = hours[0].directory.join(store::hold::HOLD);
                    let files = fs::read_dir(&hours[0].directory).expect("an hour").flatten().map(|entry| entry.path());
                    files.filter(|path| *path != hold).for_each(|path| fs::remove_file(path).expect("a file"));
                    let _ = fs::remove_file(hold);
                    // The removal of the directory may fail, because a reader that waited for the lock may have created
                    // the lock file again.
                    let _ = fs::remove_dir(&hours[0].directory);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        while !done.load(Ordering::Relaxed) {
            let Ok(mut results) = run(&QuerySource::Store(root.to_owned()), Query::default()) else { continue };
            let mut before = None;
            while let Some(second) = results.next().expect("a result").map(|found| found.ts.since(START).as_secs()) {
                assert!(before.is_none_or(|b| b + 1 == second), "{second} behind {before:?}: {:?}", results.warnings());
                before = Some(second);
            }
            assert_eq!(results.warnings(), [""; 0]);
            answers += u64::from(before.is_some());
        }
        recorder.join().expect("a recorder");
    });
    assert!(answers > 0, "no query ran while the recorder was running");
}
