//! Stores whose packets were not recorded in the order of time, asked for intervals, beside a plain scan.

use crate::common;

use base::{Prng, Timestamp};
use common::*;
use netgrain_query::{Query, QuerySource, Results, run};
use recorder::WallClock;
use std::path::Path;
use std::time::Duration;
use store::out_of_order::OutOfOrderMarkers;
use testkit::TempDir;

fn question(from: Timestamp, to: Timestamp) -> Query {
    Query { from, to, ..Query::default() }
}

fn begin(store: &Path, question: &Query) -> Results {
    run(&QuerySource::Store(store.to_owned()), question.clone()).expect("a store")
}

fn secs(n: u64) -> Timestamp {
    START.after(Duration::from_secs(n))
}

/// Three captures of ten seconds, of which the last comes first, in files of so many packets.
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
fn captures_given_in_the_wrong_order_answer_every_interval_from_one_file_and_from_many() {
    for of_file in [10_000, 700, 90] {
        let dir = TempDir::new("query-parts");
        three_parts(dir.path(), of_file);
        let scan = Scan::of(dir.path());
        for (from, to, packets) in [(0, 5, 501), (0, 29, 2901), (12, 15, 301), (9, 10, 101), (25, 40, 500), (31, 40, 0)]
        {
            let question = question(secs(from), secs(to));
            let mut answer = begin(dir.path(), &question);
            let found = collect(&mut answer);
            let what = format!("files of {of_file}: {from} to {to}");
            assert_eq!((found.len(), answer.warnings()), (packets, vec![]), "{what}");
            same(&found, &scan.answer(&question), &what);
        }
    }
}

#[test]
fn a_clock_that_is_set_back_by_an_hour_and_passes_it_again_leaves_no_second_out() {
    let minutes = |n: u64| secs(60 * n);
    // With one recorder, which begins a file for it, and with two, the second of which knows only the store.
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
            let question = question(minutes(from), minutes(to));
            let found = collect(&mut begin(dir.path(), &question));
            let what = format!("restarted {restarted}: minutes {from} to {to}");
            assert_eq!(found.len(), packets, "{what}");
            same(&found, &scan.answer(&question), &what);
        }
        let noted = OutOfOrderMarkers::read(&dir.join("eth1")).expect("notes");
        assert!(noted.iter().all(|(_, span, _)| !span.is_out_of_order), "each file is in order by itself");
        assert!((30..40).contains(&noted.iter().count()), "those of the hour that came again, and no others");
    }
}

/// 2099-01-01T00:00:00Z.
const FAR: Timestamp = Timestamp::from_secs_nanos(4_070_908_800, 0);

/// What a recorder with this clock makes of files that begin at these moments, with a packet in each of ten seconds.
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

/// The files with a note, by their beginnings; each is in order by itself, and the note says what it has.
fn noted(store: &Path) -> Vec<Timestamp> {
    let noted = OutOfOrderMarkers::read(&store.join("eth1")).expect("notes");
    let begin = |((begin, ..), span, _): (store::out_of_order::FileIdentity, store::out_of_order::Span, &str)| {
        let ends = begin.after(Duration::from_secs(9))..=begin.after(Duration::from_secs(10));
        assert!(span.first == begin && ends.contains(&span.last) && !span.is_out_of_order, "{begin}: {span:?}");
        begin
    };
    noted.iter().map(begin).collect()
}

/// Intervals before, in, between and behind the files, beside a plain scan.
fn check(store: &Path, what: &str) {
    let scan = Scan::of(store);
    let moments = [secs(0), secs(25), secs(3600), secs(3625), FAR, FAR.after(Duration::from_secs(25)), Timestamp::MAX];
    for (i, from) in moments.iter().enumerate() {
        for to in &moments[i..] {
            let question = question(*from, *to);
            let mut answer = begin(store, &question);
            same(&collect(&mut answer), &scan.answer(&question), &format!("{what}: {from} to {to}"));
            assert_eq!(answer.warnings(), [""; 0], "{what}");
        }
    }
}

fn an_hour_later() -> WallClock {
    WallClock { now: secs(3600), synchronised: false }
}

/// Files of a run that begins there, ten seconds after each other.
fn files(begin: Timestamp, number: u64) -> Vec<Timestamp> {
    (0..number).map(|i| begin.after(Duration::from_secs(10 * i))).collect()
}

#[test]
fn what_a_clock_recorded_far_ahead_has_notes_and_what_comes_once_it_is_right_has_none() {
    let dir = TempDir::new("query-far-ahead");
    record(dir.path(), Some(an_hour_later), &files(secs(0), 3));
    record(dir.path(), Some(|| WallClock { now: FAR, synchronised: false }), &files(FAR, 3));
    assert_eq!(noted(dir.path()), [], "they are in order");
    for round in 1..3 {
        record(dir.path(), Some(an_hour_later), &files(secs(3600 * round), 3));
        assert_eq!(noted(dir.path()), files(FAR, 3), "round {round}");
    }
    check(dir.path(), "three clocks");
}

/// What the wall's clock shows.
type Clock = fn() -> WallClock;

#[test]
fn without_a_clock_and_with_one_that_may_be_wrong_it_is_what_comes_that_gets_the_notes() {
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
        assert_eq!(noted(dir.path()), come, "{what}");
        check(dir.path(), what);
    }
}

#[test]
fn a_clock_that_is_set_right_in_the_middle_of_a_run_needs_no_other_run() {
    for synchronised in [false, true] {
        let dir = TempDir::new("query-set-right");
        let wall: fn() -> WallClock = match synchronised {
            true => || WallClock { now: secs(0), synchronised: true },
            false => || WallClock { now: secs(0), synchronised: false },
        };
        let begins = [files(FAR, 3), files(secs(0), 4)].concat();
        record(dir.path(), Some(wall), &begins);
        // Nobody says that the clock is right: the first file of that hour makes it as many hours as there are ahead.
        let first = if synchronised { vec![] } else { files(secs(0), 1) };
        assert_eq!(noted(dir.path()), [first, files(FAR, 3)].concat(), "synchronised: {synchronised}");
        check(dir.path(), "set right");
    }
}

#[test]
fn more_files_than_get_their_notes_at_once_get_them_one_after_the_other() {
    let dir = TempDir::new("query-many-ahead");
    record(dir.path(), None, &files(FAR, 150));
    let wall: fn() -> WallClock = || WallClock { now: secs(0), synchronised: true };
    record(dir.path(), Some(wall), &files(secs(0), 4));
    let expected = [files(secs(0), 2), files(FAR, 150)].concat();
    assert_eq!(noted(dir.path()), expected, "64 of them at each file, the first two of which came too early");
    check(dir.path(), "many");
}

#[test]
fn what_is_behind_a_file_whose_time_steps_back_is_in_order() {
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
    let noted: Vec<Timestamp> =
        OutOfOrderMarkers::read(&dir.join("eth1")).expect("notes").iter().map(|(n, ..)| n.0).collect();
    assert_eq!(noted, [FAR]);
    check(dir.path(), "within a file");
}

#[test]
fn what_is_recorded_in_order_has_no_notes() {
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

/// Runs of packets whose time goes on, and now and then leaps anywhere within a few hours; files and queues as chance
/// wants it.
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

/// As an answer is ordered; what has all of this in common may come either way.
fn sorted(packets: &[Packet]) -> Vec<Packet> {
    let mut all = packets.to_vec();
    all.sort_by(|a, b| (a.ts, &a.interface, a.queue, &a.data).cmp(&(b.ts, &b.interface, b.queue, &b.data)));
    all
}

#[test]
fn any_interval_of_any_disorder_gives_what_a_plain_scan_gives_in_the_order_of_time() {
    let test = "any_interval_of_any_disorder_gives_what_a_plain_scan_gives_in_the_order_of_time";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 8;
    for round in 0..rounds {
        let dir = TempDir::new("query-disorder-any");
        mixed_store(dir.path(), &mut prng);
        let scan = Scan::of(dir.path());
        for number in 0..20 {
            let question = random_question(&scan, &mut prng);
            let what = format!("seed {seed} round {round} question {number}: {question:?}");
            let expected = sorted(&scan.answer(&question));
            let mut answer = begin(dir.path(), &question);
            let found = collect(&mut answer);
            assert!(found.is_sorted_by_key(|p| (p.ts, p.interface.clone(), p.queue)), "{what}");
            same(&sorted(&found), &expected, &what);
            assert_eq!(answer.warnings(), Vec::<String>::new(), "{what}");
            let found = collect_batches(&mut begin(dir.path(), &question), &mut prng);
            assert!(found.is_sorted_by_key(|p| (p.ts, p.interface.clone(), p.queue)), "{what}");
            same(&sorted(&found), &expected, &what);
        }
    }
}

#[test]
fn what_was_lost_in_disorder_is_told_once() {
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
    let mut answer = everything(dir.path());
    let (mut lost, mut packets) = (0, 0);
    while let Some(found) = answer.next().expect("an answer") {
        (lost, packets) = (lost + found.lost, packets + 1);
    }
    let tally = tally_of(&answer);
    assert_eq!((packets, lost, tally.stored, tally.lost_total()), (4000, 28, 4000, 28));
}
