//! Tests queries on a damaged growing file: all returned packets are correct, and missing packets cause a warning.

use super::{all_files, begin, number, sim, start, stop, stored, until};
use base::Timestamp;
use engine::Plan;
use filter::Filter;
use netgrain_query::Query;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::TempDir;

/// A copy of a growing file and of its index, as they were at one moment. The copies are locked, as a running recorder
/// locks its files.
struct Held {
    dir: TempDir,
    packets: PathBuf,
    index: PathBuf,
    _claim: store::Claim,
    lock: Option<std::fs::File>,
}

impl Held {
    fn copy(from: &Path) -> Self {
        let hidden = |ending: &str| {
            let all = all_files(from).into_iter();
            let mut found = all.filter(|p| p.to_string_lossy().ends_with(&format!(".{ending}.partial")));
            found.find(|p| !p.to_string_lossy().contains(store::names::PREPARED)).expect("a hidden file")
        };
        let dir = TempDir::new("held");
        let place = |p: &Path| dir.join("store").join(p.strip_prefix(from).expect("below"));
        let (packets, index) = (hidden("pcap"), hidden("ngi"));
        std::fs::create_dir_all(place(&index).parent().expect("an hour")).expect("a directory");
        // The index is copied before the packets, so that it describes only bytes that are copied too.
        until("the index is copied between two writes", || {
            std::fs::copy(&index, place(&index)).expect("the index");
            let copy = std::fs::read(place(&index)).expect("a copy");
            index::Reader::open(&&copy[..]).is_ok_and(|reader| reader.end() == Some(copy.len() as u64))
        });
        let mut head = std::fs::File::open(&packets).expect("the packets");
        let mut copied = std::fs::File::create(place(&packets)).expect("a copy");
        std::io::copy(&mut std::io::Read::take(&mut head, 16 << 20), &mut copied).expect("the packets");
        let claimant = store::Claimant::this(Timestamp::ZERO, None, Vec::new());
        let claim = store::Claim::take(&dir.join("store/sim"), &claimant).expect("a claim");
        let (packets, index) = (place(&packets), place(&index));
        let mut held = Self { dir, packets, index, _claim: claim, lock: None };
        held.hold();
        held
    }

    fn hold(&mut self) {
        let file = std::fs::File::open(&self.packets).expect("the packets");
        file.try_lock().expect("an unlocked file");
        self.lock = Some(file);
    }

    /// Runs a query; returns the packets found, the warnings, and true if the result is complete.
    fn query(&self, filter: &str) -> (Vec<(u64, Timestamp)>, Vec<String>, bool) {
        let filter = Filter::parse(filter).expect("a filter");
        let mut results = begin(&self.dir.join("store"), Query { filter, ..Query::default() });
        let mut out = Vec::new();
        while let Some(found) = results.next().expect("a packet") {
            let whole = found.data.len() >= 50;
            out.push((if whole { number(found.data) } else { u64::MAX }, found.ts));
        }
        let warnings = results.warnings().into_iter().filter(|r| !r.contains("--socket none")).collect();
        (out, warnings, results.is_complete())
    }
}

#[test]
fn damage_in_a_growing_file_affects_its_blocks_and_is_reported() {
    let test = "damage_in_a_growing_file_affects_its_blocks_and_is_reported";
    let dir = TempDir::new("damaged");
    let store = dir.join("store");
    let capture = start(&Plan { rotate: None, segment: 64 << 20, ..sim("300,rate=20kpps,truth", &store) });
    until("some blocks are written", || stored(&capture) > 50_000);
    let held = Held::copy(&store);
    stop(capture);
    let (whole, warnings, is_complete) = held.query("");
    assert!(is_complete && whole.len() > 10_000 && warnings.is_empty(), "{} packets, {warnings:?}", whole.len());
    assert!(whole.iter().enumerate().all(|(i, (n, _))| *n == i as u64));
    let (packets, index) = (std::fs::read(&held.packets).expect("packets"), std::fs::read(&held.index).expect("index"));
    // `NETGRAIN_FUZZ_ITERS` multiplies the rounds.
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 40;
    let mut prng = base::Prng::new(testkit::seed(test));
    let (mut damaged, mut cut) = (0, 0);
    for round in 0..rounds {
        let (mut p, mut i) = (packets.clone(), index.clone());
        let in_index = prng.below(3) == 0;
        let target = if in_index { &mut i } else { &mut p };
        // The last bytes of the packet file were still being written when the file was copied; no checksum covers these
        // bytes.
        let len = if in_index { target.len() } else { (whole.len() * 316).min(target.len()) } as u64;
        for _ in 0..=prng.below(3) {
            let at = prng.below(len) as usize;
            match prng.below(3) {
                0 => target[at] ^= 1 << prng.below(8),
                1 => target[at..].iter_mut().take(4096).for_each(|b| *b = 0),
                _ => target[at..].iter_mut().take(16).for_each(|b| *b = 0xff),
            }
        }
        if !in_index && prng.below(8) == 0 {
            p.truncate(prng.below(len) as usize);
            cut += 1;
        }
        std::fs::write(&held.packets, &p).expect("packets");
        std::fs::write(&held.index, &i).expect("an index");
        let (found, warnings, is_complete) = held.query("");
        // Asserts that the returned packets are correct and in order, and that only packets in damaged blocks are
        // missing.
        assert!(found.iter().all(|f| whole.get(f.0 as usize) == Some(f)), "round {round}");
        assert!(found.windows(2).all(|w| w[0].0 < w[1].0), "round {round}: in order");
        if found != whole && !in_index {
            damaged += 1;
            assert!(!is_complete, "round {round}: {} of {} packets, {warnings:?}", found.len(), whole.len());
        }
        if found != whole && in_index {
            assert!(!warnings.is_empty(), "round {round}: {} of {} packets, and no warning", found.len(), whole.len());
        }
    }
    assert!(damaged > 10 && cut > 0, "{damaged} damaged, {cut} cut");
}

#[test]
fn a_growing_file_with_unreadable_index_makes_the_result_incomplete() {
    let dir = TempDir::new("no-index");
    let store = dir.join("store");
    let capture = start(&Plan { rotate: None, segment: 64 << 20, ..sim("300,rate=20kpps,truth", &store) });
    until("some blocks are written", || stored(&capture) > 30_000);
    let held = Held::copy(&store);
    stop(capture);
    let index = std::fs::read(&held.index).expect("an index");
    let (whole, ..) = held.query("");
    // The indexed part ends at an incomplete entry. This is no damage, because a recorder may just be writing the
    // entry.
    std::fs::write(&held.index, &index[..index.len() / 2]).expect("an index");
    let (found, warnings, is_complete) = held.query("");
    assert!(is_complete && found.len() < whole.len() && whole.starts_with(&found), "{warnings:?}");
    assert!(warnings.iter().any(|r| r.contains("an incomplete entry")), "{warnings:?}");
    for (what, bytes) in
        [("another version", [&index[..8], &[0xee; 60], &index[68..]].concat()), ("cut off", index[..10].to_vec())]
    {
        std::fs::write(&held.index, bytes).expect("an index");
        let (found, warnings, is_complete) = held.query("");
        assert!(found.is_empty() && !is_complete, "{what}");
        assert!(warnings.iter().any(|r| r.contains("unusable index")), "{what}: {warnings:?}");
    }
    std::fs::remove_file(&held.index).expect("an index");
    let (found, warnings, is_complete) = held.query("");
    assert!(found.is_empty() && !is_complete && warnings.iter().any(|r| r.contains("has no index")), "{warnings:?}");
}

#[test]
fn without_listeners_a_query_waits_for_the_end_of_a_sealing_file() {
    let dir = TempDir::new("sealing");
    let store = dir.join("store");
    let capture = start(&Plan { rotate: None, segment: 64 << 20, ..sim("300,rate=20kpps,truth", &store) });
    until("some blocks are written", || stored(&capture) > 30_000);
    let held = Held::copy(&store);
    stop(capture);
    let (whole, ..) = held.query("");
    let index = std::fs::read(&held.index).expect("an index");
    let reader = index::Reader::open(&&index[..]).expect("an index");
    let last = reader.blocks().last().expect("a block");
    let end = reader.header().first_pos + u64::from(last.number) * ring::BLOCK + u64::from(last.bytes);
    // The test creates the next file, in which the recorder has stored no packets yet.
    let start = reader.header().start.after(Duration::from_secs(60));
    let header = index::Header { first_pos: end.next_multiple_of(ring::BLOCK), start, ..reader.header().clone() };
    let hour = store::names::hour_directory(&held.dir.join("store/sim"), start);
    let next = |ending| hour.join(store::names::hidden(&store::names::stem(start, None, 0), ending));
    std::fs::create_dir_all(&hour).expect("an hour");
    std::fs::write(next("ngi"), header.encode()).expect("an index");
    std::fs::write(next("pcap"), ring::file_header(65_535, 1)).expect("a file");
    let lock = std::fs::File::open(next("pcap")).expect("a file");
    lock.try_lock().expect("an unlocked file");
    // First, the index of the previous file is truncated to half of its length. The complete index and the final file
    // names follow during the query.
    std::fs::write(&held.index, &index[..index.len() / 2]).expect("an index");
    let shown = |path: &Path| {
        let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
        path.with_file_name(name.trim_start_matches('.').trim_end_matches(".partial"))
    };
    let (found, warnings, _) = std::thread::scope(|scope| {
        let results = scope.spawn(|| held.query(""));
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(&held.index, &index).expect("an index");
        std::fs::rename(&held.index, shown(&held.index)).expect("a name");
        std::fs::rename(&held.packets, shown(&held.packets)).expect("a name");
        results.join().expect("a result")
    });
    // The copy of the file may end within a record, which its recorder would have completed. Only this packet may be
    // missing.
    assert!(found == whole, "{} of {}: {warnings:?}", found.len(), whole.len());
    let others = warnings.iter().filter(|r| !r.contains("truncated record") && !r.contains("an incomplete entry"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
}
