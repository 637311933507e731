//! The file that is being written, damaged: what is given out is right, and what is missing is said to be.

use super::{begin, number, sim, start, stop, stored, until, walk};
use base::Timestamp;
use engine::Plan;
use filter::Filter;
use netgrain_query::Query;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::TempDir;

/// A copy of the file that is being written, as a recorder would hold it: up to where its index vouched at that moment.
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
            let all = walk(from).into_iter();
            let mut found = all.filter(|p| p.to_string_lossy().ends_with(&format!(".{ending}.partial")));
            found.find(|p| !p.to_string_lossy().contains(store::names::PREPARED)).expect("a hidden file")
        };
        let dir = TempDir::new("held");
        let place = |p: &Path| dir.join("store").join(p.strip_prefix(from).expect("below"));
        let (packets, index) = (hidden("pcap"), hidden("ngi"));
        std::fs::create_dir_all(place(&index).parent().expect("an hour")).expect("a folder");
        // In this order, so that no entry tells of what was not copied.
        until("the index is not caught while an entry is rewritten", || {
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
        file.try_lock().expect("nobody else has it");
        self.lock = Some(file);
    }

    /// What is found, what is said, and whether that is said to be all.
    fn ask(&self, filter: &str) -> (Vec<(u64, Timestamp)>, Vec<String>, bool) {
        let filter = Filter::parse(filter).expect("a filter");
        let mut answer = begin(&self.dir.join("store"), Query { filter, ..Query::default() });
        let mut out = Vec::new();
        while let Some(found) = answer.next().expect("a packet") {
            let whole = found.data.len() >= 50;
            out.push((if whole { number(found.data) } else { u64::MAX }, found.ts));
        }
        let remarks = answer.warnings().into_iter().filter(|r| !r.contains("--socket none")).collect();
        (out, remarks, answer.is_complete())
    }
}

#[test]
fn a_damaged_open_file_costs_its_own_blocks_and_says_so() {
    let test = "a_damaged_open_file_costs_its_own_blocks_and_says_so";
    let dir = TempDir::new("damaged");
    let store = dir.join("store");
    let capture = start(&Plan { rotate: None, segment: 64 << 20, ..sim("300,rate=20kpps,truth", &store) });
    until("some blocks are written", || stored(&capture) > 50_000);
    let held = Held::copy(&store);
    stop(capture);
    let (whole, remarks, is_whole) = held.ask("");
    assert!(is_whole && whole.len() > 10_000 && remarks.is_empty(), "{} packets, {remarks:?}", whole.len());
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
        // The last bytes of the packets were still being written when they were copied; nothing vouches for them.
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
        let (found, remarks, is_whole) = held.ask("");
        // What is given out is right, and in order; what was damaged is left out.
        assert!(found.iter().all(|f| whole.get(f.0 as usize) == Some(f)), "round {round}");
        assert!(found.windows(2).all(|w| w[0].0 < w[1].0), "round {round}: in order");
        if found != whole && !in_index {
            damaged += 1;
            assert!(!is_whole, "round {round}: {} of {} packets, {remarks:?}", found.len(), whole.len());
        }
        if found != whole && in_index {
            assert!(!remarks.is_empty(), "round {round}: {} of {} packets, and not a word", found.len(), whole.len());
        }
    }
    assert!(damaged > 10 && cut > 0, "{damaged} damaged, {cut} cut");
}

#[test]
fn an_open_file_whose_index_cannot_be_read_is_named_and_the_answer_not_whole() {
    let dir = TempDir::new("no-index");
    let store = dir.join("store");
    let capture = start(&Plan { rotate: None, segment: 64 << 20, ..sim("300,rate=20kpps,truth", &store) });
    until("some blocks are written", || stored(&capture) > 30_000);
    let held = Held::copy(&store);
    stop(capture);
    let index = std::fs::read(&held.index).expect("an index");
    let (whole, ..) = held.ask("");
    // An entry that is not whole ends what is believed; it is no damage in itself, a recorder writes it in place.
    std::fs::write(&held.index, &index[..index.len() / 2]).expect("an index");
    let (found, remarks, is_whole) = held.ask("");
    assert!(is_whole && found.len() < whole.len() && whole.starts_with(&found), "{remarks:?}");
    assert!(remarks.iter().any(|r| r.contains("an entry that is not whole")), "{remarks:?}");
    for (what, bytes) in
        [("another version", [&index[..8], &[0xee; 60], &index[68..]].concat()), ("cut off", index[..10].to_vec())]
    {
        std::fs::write(&held.index, bytes).expect("an index");
        let (found, remarks, is_whole) = held.ask("");
        assert!(found.is_empty() && !is_whole, "{what}");
        assert!(remarks.iter().any(|r| r.contains("useless index")), "{what}: {remarks:?}");
    }
    std::fs::remove_file(&held.index).expect("an index");
    let (found, remarks, is_whole) = held.ask("");
    assert!(found.is_empty() && !is_whole && remarks.iter().any(|r| r.contains("has no index")), "{remarks:?}");
}

#[test]
fn the_end_of_a_file_that_is_being_sealed_is_waited_for_where_nobody_can_be_listened_to() {
    let dir = TempDir::new("sealing");
    let store = dir.join("store");
    let capture = start(&Plan { rotate: None, segment: 64 << 20, ..sim("300,rate=20kpps,truth", &store) });
    until("some blocks are written", || stored(&capture) > 30_000);
    let held = Held::copy(&store);
    stop(capture);
    let (whole, ..) = held.ask("");
    let index = std::fs::read(&held.index).expect("an index");
    let reader = index::Reader::open(&&index[..]).expect("an index");
    let last = reader.blocks().last().expect("a block");
    let end = reader.header().first_pos + u64::from(last.number) * ring::BLOCK + u64::from(last.bytes);
    // The next file has begun, and has nothing yet.
    let start = reader.header().start.after(Duration::from_secs(60));
    let header = index::Header { first_pos: end.next_multiple_of(ring::BLOCK), start, ..reader.header().clone() };
    let hour = store::names::hour_folder(&held.dir.join("store/sim"), start);
    let next = |ending| hour.join(store::names::hidden(&store::names::stem(start, None, 0), ending));
    std::fs::create_dir_all(&hour).expect("an hour");
    std::fs::write(next("ngi"), header.encode()).expect("an index");
    std::fs::write(next("pcap"), ring::file_header(65_535, 1)).expect("a file");
    let lock = std::fs::File::open(next("pcap")).expect("a file");
    lock.try_lock().expect("nobody else has it");
    // Of the file before, half is told of; the rest, and its name, come while the answer is being given.
    std::fs::write(&held.index, &index[..index.len() / 2]).expect("an index");
    let shown = |path: &Path| {
        let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
        path.with_file_name(name.trim_start_matches('.').trim_end_matches(".partial"))
    };
    let (found, remarks, _) = std::thread::scope(|scope| {
        let answer = scope.spawn(|| held.ask(""));
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(&held.index, &index).expect("an index");
        std::fs::rename(&held.index, shown(&held.index)).expect("a name");
        std::fs::rename(&held.packets, shown(&held.packets)).expect("a name");
        answer.join().expect("an answer")
    });
    // The copy may end within a record, which its recorder would have finished; nothing else is missing.
    assert!(found == whole, "{} of {}: {remarks:?}", found.len(), whole.len());
    let others = remarks.iter().filter(|r| !r.contains("cut off") && !r.contains("an entry that is not whole"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
}
