//! Queries for intervals on stores whose packets were recorded out of order, compared with a plain scan.

use crate::common;

use base::{Prng, Timestamp};
use common::*;
use netgrain_query::{Query, QuerySource, Results, run};
use recorder::WallClock;
use std::path::Path;
use std::time::Duration;
use store::out_of_order::OutOfOrderMarkers;
use testkit::TempDir;

fn new_query(from: Timestamp, to: Timestamp) -> Query {
    Query { from, to, ..Query::default() }
}

fn begin(store: &Path, query: &Query) -> Results {
    run(&QuerySource::Store(store.to_owned()), query.clone()).expect("a store")
}

fn secs(n: u64) -> Timestamp {
    START.after(Duration::from_secs(n))
}

/// Records three captures of ten seconds each, the latest first, in files with `of_file` packets each.
fn three_parts(store: &Path, of_file: u64) {
    let mut prng = Prng::new(3);
    let mut stream = Stream::new("eth1", 0, 1);
    let mut packets = 0;
    for part in [2, 1, 0] {
        for i in 0..1000 {
            let now = secs(10 * part).after(Duration::from_millis(10 * i));
            if packets % of_file == 0 {
                stream.rotate(now);
            }
            packets += 1;
            stream.packet(now, 1500, &frame(&mut prng, 1500));
        }
    }
    stream.record(store);
}

#[test]
fn captures_recorded_in_the_wrong_order_are_found_in_all_intervals() {
    for of_file in [10_000, 700, 90] {
        let dir = TempDir::new("query-parts");
        three_parts(dir.path(), of_file);
        let scan = Scan::of(dir.path());
        for (from, to, packets) in [(0, 5, 501), (0, 29, 2901), (12, 15, 301), (9, 10, 101), (25, 40, 500), (31, 40, 0)]
        {
            let query = new_query(secs(from), secs(to));
            let mut results = begin(dir.path(), &query);
            let found = collect(&mut results);
            let what = format!("files of {of_file}: {from} to {to}");
            assert_eq!((found.len(), results.warnings()), (packets, vec![]), "{what}");
            same(&found, &scan.results(&query), &what);
        }
    }
}

#[test]
fn all_seconds_are_found_after_the_clock_was_set_back_by_an_hour() {
    let minutes = |n: u64| secs(60 * n);
    // The test has two cases: one recorder, which begins a new file when the clock is set back, and two recorders, of
    // which the second finds the earlier files only in the store.
    for restarted in [false, true] {
        let dir = TempDir::new("query-hour-again");
        let mut prng = Prng::new(4);
        let mut stream = Stream::new("eth1", 0, 1);
        let passage = |stream: &mut Stream, prng: &mut Prng, from: u64, to: u64, every: u64| {
            for minute in from..to {
                if minute == from || minute % every == 0 {
                    stream.rotate(minutes(minute));
                }
                (0..20)
                    .for_each(|i| stream.packet(minutes(minute).after(Duration::from_secs(i)), 60, &frame(prng, 60)));
            }
        };
        passage(&mut stream, &mut prng, 0, 90, 45);
        if restarted {
            std::mem::replace(&mut stream, Stream::new("eth1", 0, 1)).record(dir.path());
        }
        passage(&mut stream, &mut prng, 30, 150, 2);
        stream.record(dir.path());
        let scan = Scan::of(dir.path());
        for (from, to, packets) in [(0, 150, 4200), (70, 71, 42), (40, 90, 2001), (25, 35, 302), (89, 95, 141)] {
            let query = new_query(minutes(from), minutes(to));
            let found = collect(&mut begin(dir.path(), &query));
            let what = format!("restarted {restarted}: minutes {from} to {to}");
            assert_eq!(found.len(), packets, "{what}");
            same(&found, &scan.results(&query), &what);
        }
        let marked_files = OutOfOrderMarkers::read(&dir.join("eth1")).expect("markers");
        assert!(
            marked_files.iter().all(|(_, span, _)| !span.is_out_of_order),
            "the packets within each file are in order"
        );
        assert!((30..40).contains(&marked_files.iter().count()), "only the files of the repeated hour have markers");
    }
}

/// 2099-01-01T00:00:00Z.
const FAR: Timestamp = Timestamp::from_secs_nanos(4_070_908_800, 0);

/// Records files that begin at these times and contain one packet per second for ten seconds; `wall` is the system
/// clock of the recorder.
fn record(store: &Path, wall: Option<fn() -> WallClock>, begins: &[Timestamp]) {
    let mut prng = Prng::new(8);
    let mut stream = Stream::new("eth1", 0, 1);
    stream.wall = wall;
    for begin in begins {
        stream.rotate(*begin);
        (0..10).for_each(|i| stream.packet(begin.after(Duration::from_secs(i)), 60, &frame(&mut prng, 60)));
    }
    stream.record(store);
}

/// The start times of the files with a marker; checks that each file is in order and that its marker has the right time
/// range.
fn marked_files(store: &Path) -> Vec<Timestamp> {
    let marked_files = OutOfOrderMarkers::read(&store.join("eth1")).expect("markers");
    let begin = |((begin, ..), span, _): (store::out_of_order::FileIdentity, store::out_of_order::Span, &str)| {
        let ends = begin.after(Duration::from_secs(9))..=begin.after(Duration::from_secs(10));
        assert!(span.first == begin && ends.contains(&span.last) && !span.is_out_of_order, "{begin}: {span:?}");
        begin
    };
    marked_files.iter().map(begin).collect()
}

/// Compares queries with a plain scan; the intervals begin and end before, in, between and after the files.
fn check(store: &Path, what: &str) {
    let scan = Scan::of(store);
    let moments = [secs(0), secs(25), secs(3600), secs(3625), FAR, FAR.after(Duration::from_secs(25)), Timestamp::MAX];
    for (i, from) in moments.iter().enumerate() {
        for to in &moments[i..] {
            let query = new_query(*from, *to);
            let mut results = begin(store, &query);
            same(&collect(&mut results), &scan.results(&query), &format!("{what}: {from} to {to}"));
            assert_eq!(results.warnings(), [""; 0], "{what}");
        }
    }
}

fn an_hour_later() -> WallClock {
    WallClock { now: secs(3600), synchronised: false }
}

/// The start times of `number` files, ten seconds apart.
fn files(begin: Timestamp, number: u64) -> Vec<Timestamp> {
    (0..number).map(|i| begin.after(Duration::from_secs(10 * i))).collect()
}

#[test]
fn only_files_recorded_with_a_clock_far_ahead_get_markers() {
    let dir = TempDir::new("query-far-ahead");
    record(dir.path(), Some(an_hour_later), &files(secs(0), 3));
    record(dir.path(), Some(|| WallClock { now: FAR, synchronised: false }), &files(FAR, 3));
    assert_eq!(marked_files(dir.path()), [], "the files are in order");
    for round in 1..3 {
        record(dir.path(), Some(an_hour_later), &files(secs(3600 * round), 3));
        assert_eq!(marked_files(dir.path()), files(FAR, 3), "round {round}");
    }
    check(dir.path(), "three clocks");
}

/// Returns the simulated system clock of the recorder.
type Clock = fn() -> WallClock;

#[test]
fn without_a_trusted_clock_the_new_files_get_markers() {
    let walls: [(&str, Option<Clock>); 3] = [
        ("a replay", None),
        ("1970", Some(|| WallClock { now: Timestamp::from_secs_nanos(100, 0), synchronised: true })),
        (
            "most files are ahead",
            Some(|| WallClock { now: Timestamp::from_secs_nanos(1_780_000_000, 0), synchronised: false }),
        ),
    ];
    for (what, wall) in walls {
        let dir = TempDir::new("query-clock-wrong");
        let old: Vec<Timestamp> = (0..4).flat_map(|hour| files(secs(3600 * hour), 2)).collect();
        record(dir.path(), None, &old);
        let come = files(wall.map_or(secs(100), |wall| wall().now), 3);
        record(dir.path(), wall, &come);
        assert_eq!(marked_files(dir.path()), come, "{what}");
        check(dir.path(), what);
    }
}

#[test]
fn a_clock_corrected_during_a_run_marks_files_in_the_same_run() {
    for synchronised in [false, true] {
        let dir = TempDir::new("query-set-right");
        let wall: fn() -> WallClock = match synchronised {
            true => || WallClock { now: secs(0), synchronised: true },
            false => || WallClock { now: secs(0), synchronised: false },
        };
        let begins = [files(FAR, 3), files(secs(0), 4)].concat();
        record(dir.path(), Some(wall), &begins);
        // A clock that is not synchronised is trusted only if the store has at most as many hour directories after the
        // clock's time as before it. This holds only after the first file with the corrected time exists.
        let first = if synchronised { vec![] } else { files(secs(0), 1) };
        assert_eq!(marked_files(dir.path()), [first, files(FAR, 3)].concat(), "synchronised: {synchronised}");
        check(dir.path(), "set right");
    }
}

#[test]
fn many_future_files_get_their_markers_in_several_steps() {
    let dir = TempDir::new("query-many-ahead");
    record(dir.path(), None, &files(FAR, 150));
    let wall: fn() -> WallClock = || WallClock { now: secs(0), synchronised: true };
    record(dir.path(), Some(wall), &files(secs(0), 4));
    let expected = [files(secs(0), 2), files(FAR, 150)].concat();
    assert_eq!(marked_files(dir.path()), expected, "each file adds markers to at most 64 files");
    check(dir.path(), "many");
}

#[test]
fn files_after_a_file_with_a_backward_step_are_in_order() {
    let dir = TempDir::new("query-back-within");
    let mut prng = Prng::new(9);
    let mut stream = Stream::new("eth1", 0, 1);
    for (file, begin) in [secs(0), FAR, secs(3600), secs(3700)].into_iter().enumerate() {
        stream.rotate(begin);
        (0..10).for_each(|i| stream.packet(begin.after(Duration::from_secs(i)), 60, &frame(&mut prng, 60)));
        if file == 1 {
            (0..10).for_each(|i| stream.packet(secs(3500 + i), 60, &frame(&mut prng, 60)));
        }
    }
    stream.record(dir.path());
    let marked_files: Vec<Timestamp> =
        OutOfOrderMarkers::read(&dir.join("eth1")).expect("markers").iter().map(|(n, ..)| n.0).collect();
    assert_eq!(marked_files, [FAR]);
    check(dir.path(), "within a file");
}

#[test]
fn files_recorded_in_order_have_no_markers() {
    let dir = TempDir::new("query-in-order");
    let mut prng = Prng::new(5);
    let mut stream = Stream::new("eth1", 0, 1);
    for i in 0..500 {
        if i % 60 == 0 {
            stream.rotate(secs(i));
        }
        stream.packet(secs(i), 60, &frame(&mut prng, 60));
        stream.packet(secs(i), 60, &frame(&mut prng, 60));
    }
    stream.record(dir.path());
    let mut again = Stream::new("eth1", 0, 1);
    again.rotate(secs(499));
    again.packet(secs(499), 60, &frame(&mut prng, 60));
    again.record(dir.path());
    assert!(!dir.join("eth1").join(store::names::OUT_OF_ORDER).exists());
}

/// Records sequences of packets in order of time; some sequences begin at a random time within a few hours. The limits
/// of files and the queues are random.
fn mixed_store(store: &Path, prng: &mut Prng) {
    for (interface, queues) in [("eth1", 1 + prng.below(2) as u16), ("eth2", 1)] {
        for queue in 0..queues {
            let leap = |prng: &mut Prng| START.after(Duration::from_millis(prng.below(4 * 3_600_000)));
            let often = 1 + prng.below(40);
            for _ in 0..1 + prng.below(3) {
                let mut stream = Stream::new(interface, queue, queues);
                if prng.below(6) == 0 {
                    stream.format = recorder::Format::Raw { file_bytes: 70_000 * (1 + prng.below(30)) };
                }
                let mut now = leap(prng);
                stream.rotate(now);
                for _ in 0..prng.below(400) {
                    now = now.after(Duration::from_nanos(prng.below(2_000_000_000) >> prng.below(30)));
                    match prng.below(100) {
                        0..4 => stream.rotate(now),
                        4..8 => stream.tick(now),
                        _ if prng.below(100) < often => now = leap(prng),
                        8..30 => {
                            let late = now.before(Duration::from_millis(prng.below(3000)));
                            stream.packet(late, 900, &frame(prng, 900));
                        }
                        30..40 => stream.packet(now, 65_000, &frame(prng, 65_000)),
                        _ => stream.packet(now, 300, &frame(prng, 300)),
                    }
                }
                stream.record(store);
            }
        }
    }
}

/// Sorts packets by time and content, because results may contain packets with equal timestamps in any order.
fn sorted(packets: &[Packet]) -> Vec<Packet> {
    let mut all = packets.to_vec();
    all.sort_by(|a, b| (a.ts, &a.interface, a.queue, &a.data).cmp(&(b.ts, &b.interface, b.queue, &b.data)));
    all
}

#[test]
fn queries_on_out_of_order_stores_match_a_plain_scan() {
    let test = "queries_on_out_of_order_stores_match_a_plain_scan";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 8;
    for round in 0..rounds {
        let dir = TempDir::new("query-disorder-any");
        mixed_store(dir.path(), &mut prng);
        let scan = Scan::of(dir.path());
        for number in 0..20 {
            let query = random_query(&scan, &mut prng);
            let what = format!("seed {seed} round {round} query {number}: {query:?}");
            let expected = sorted(&scan.results(&query));
            let mut results = begin(dir.path(), &query);
            let found = collect(&mut results);
            assert!(found.is_sorted_by_key(|p| (p.ts, p.interface.clone(), p.queue)), "{what}");
            same(&sorted(&found), &expected, &what);
            assert_eq!(results.warnings(), Vec::<String>::new(), "{what}");
            let found = collect_batches(&mut begin(dir.path(), &query), &mut prng);
            assert!(found.is_sorted_by_key(|p| (p.ts, p.interface.clone(), p.queue)), "{what}");
            same(&sorted(&found), &expected, &what);
        }
    }
}

#[test]
fn losses_in_out_of_order_files_are_reported_once() {
    let dir = TempDir::new("query-disorder-lost");
    let mut prng = Prng::new(6);
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(secs(100));
    for i in 0..4000u64 {
        let now = secs(if i < 2000 { 100 } else { 0 }).after(Duration::from_millis(i));
        stream.packet(now, 1000, &frame(&mut prng, 1000));
        if i % 1000 == 500 {
            stream.lose(now, 7);
        }
    }
    stream.record(dir.path());
    let mut results = everything(dir.path());
    let (mut lost, mut packets) = (0, 0);
    while let Some(found) = results.next().expect("a result") {
        (lost, packets) = (lost + found.lost, packets + 1);
    }
    let tally = tally_of(&results);
    assert_eq!((packets, lost, tally.stored, tally.lost_total()), (4000, 28, 4000, 28));
}
