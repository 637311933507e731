//! Queries on sealed files, compared with a plain scan of the same store.

use crate::common;

use base::{Prng, Timestamp};
use common::*;
use filter::Filter;
use netgrain_query::{Query, QueryError, QuerySource, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::Hold;
use testkit::TempDir;

#[test]
fn an_unknown_interface_and_a_reversed_interval_are_errors() {
    let dir = TempDir::new("query-refused");
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(START);
    stream.record(dir.path());
    let place = QuerySource::Store(dir.path().to_owned());
    let query = Query { interfaces: vec!["eth9".into()], ..Query::default() };
    match run(&place, query).err() {
        Some(QueryError::NoInterface { name, known, .. }) => {
            assert_eq!((&name[..], &known[..]), ("eth9", &["eth1".to_owned()][..]))
        }
        other => panic!("{other:?}"),
    }
    let query = Query { from: START, to: START.before(Duration::from_nanos(1)), ..Query::default() };
    assert!(matches!(run(&place, query).err(), Some(QueryError::Backwards { .. })));
    let nowhere = QuerySource::Store(dir.join("nowhere"));
    let error = run(&nowhere, Query::default()).err().expect("no store");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn random_queries_on_random_stores_match_a_plain_scan() {
    let test = "random_queries_on_random_stores_match_a_plain_scan";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 6;
    for round in 0..rounds {
        let dir = TempDir::new("query-any");
        random_store(dir.path(), &mut prng);
        let scan = Scan::of(dir.path());
        for number in 0..20 {
            let query = random_query(&scan, &mut prng);
            let what = format!("seed {seed} round {round} query {number}: {query:?}");
            let expected = scan.results(&query);
            let place = QuerySource::Store(dir.path().to_owned());
            let mut results = run(&place, query.clone()).expect("a store");
            same(&collect(&mut results), &expected, &what);
            let cost = results.cost();
            assert_eq!((cost.matched, results.warnings()), (expected.len() as u64, vec![]), "{what}");
            assert!(cost.packets >= cost.matched && cost.blocks_read <= cost.blocks, "{cost:?}");
            assert!(cost.blocks_skipped_time + cost.blocks_skipped_keys + cost.blocks_read <= cost.blocks, "{cost:?}");
            let mut results = run(&place, query).expect("a store");
            same(&collect_batches(&mut results, &mut prng), &expected, &what);
        }
    }
}

#[test]
fn losses_are_reported_once_in_packets_and_in_the_tally() {
    let dir = TempDir::new("query-lost");
    let mut prng = Prng::new(7);
    let mut stream = Stream::new("eth1", 0, 1);
    let (mut now, mut lost) = (START, 0);
    stream.rotate(now);
    for i in 0..3000u64 {
        now = now.after(Duration::from_millis(1));
        stream.packet(now, 1500, &frame(&mut prng, 1500));
        if i % 500 == 400 {
            stream.lose(now, i);
            lost += i;
        }
        if i == 1700 {
            stream.rotate(now);
        }
    }
    stream.record(dir.path());
    let mut results = everything(dir.path());
    let mut reported = 0;
    while let Some(found) = results.next().expect("a result") {
        reported += found.lost;
    }
    let tally = results.tally(0);
    assert_eq!((reported, tally.lost_total(), tally.stored, tally.residue()), (lost, lost, 3000, 0));
    // A query with a filter also reports the losses of the blocks that it skips. A query whose interval covers only a
    // part of the file reports only the losses of the blocks in the interval.
    let filter = Filter::parse("host 10.0.0.200").expect("a filter");
    let mut results =
        run(&QuerySource::Store(dir.path().to_owned()), Query { filter, ..Query::default() }).expect("a store");
    assert!(results.next().expect("a result").is_none());
    assert_eq!(results.tally(0).lost_total(), lost);
    let to = START.after(Duration::from_millis(300));
    let mut results =
        run(&QuerySource::Store(dir.path().to_owned()), Query { to, ..Query::default() }).expect("a store");
    let found = collect(&mut results);
    assert_eq!(found.len(), 300);
    assert!(results.tally(0).lost_total() < lost, "{:?}", results.tally(0));
}

#[test]
fn losses_in_a_file_without_packets_are_reported() {
    let dir = TempDir::new("query-lost-only");
    let mut prng = Prng::new(11);
    let mut stream = Stream::new("eth1", 0, 1);
    let at = |secs| START.after(Duration::from_secs(secs));
    stream.rotate(START);
    (0..10).for_each(|second| stream.lose(at(second), 100));
    stream.tick(at(10));
    stream.rotate(at(10));
    stream.packet(at(10), 60, &frame(&mut prng, 60));
    stream.record(dir.path());
    let run_query = |query| run(&QuerySource::Store(dir.path().to_owned()), query).expect("a store");
    let mut results = run_query(Query::default());
    assert_eq!(results.next().expect("a result").map(|found| found.lost), Some(1000));
    assert!(results.next().expect("a result").is_none());
    assert_eq!(results.tally(0).lost_total(), 1000);
    // If the interval covers only a part of the file, the losses of the seconds in the interval are reported.
    let mut results = run_query(Query { from: at(2), to: at(4), ..Query::default() });
    assert!(results.next().expect("a result").is_none());
    assert_eq!(results.tally(0).lost_total(), 300);
}

#[test]
fn losses_between_packets_count_in_their_own_seconds() {
    let dir = TempDir::new("query-lost-between");
    let mut prng = Prng::new(13);
    let mut stream = Stream::new("eth1", 0, 1);
    let at = |secs| START.after(Duration::from_secs(secs));
    stream.rotate(START);
    // The file contains the following sequence two times: one block of packets, then 39 seconds in which packets were
    // lost.
    for begin in [0, 40] {
        (0..800).for_each(|i| stream.packet(at(begin).after(Duration::from_millis(i)), 1500, &frame(&mut prng, 1500)));
        (begin + 1..begin + 40).for_each(|second| stream.lose(at(second), 10));
    }
    stream.record(dir.path());
    let mut prng = Prng::new(14);
    for round in 0..60 {
        let (a, b) = (prng.below(90), prng.below(90));
        let (from, to) = (a.min(b), a.max(b));
        let lost: u64 = (from..=to).map(|s| if s % 40 != 0 && s < 80 { 10 } else { 0 }).sum();
        let filter = if round % 2 == 0 { Filter::default() } else { Filter::parse("host 10.9.9.9").expect("a filter") };
        let query = Query { from: at(from), to: at(to), filter, ..Query::default() };
        let mut results = run(&QuerySource::Store(dir.path().to_owned()), query).expect("a store");
        while results.next().expect("a result").is_some() {}
        assert_eq!(tally_of(&results).lost_total(), lost, "seconds {from} to {to}");
    }
}

#[test]
fn a_file_listed_under_both_names_is_read_once() {
    let dir = TempDir::new("query-both-names");
    let mut prng = Prng::new(12);
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(START);
    (0..100).for_each(|i| stream.packet(START.after(Duration::from_millis(i)), 60, &frame(&mut prng, 60)));
    stream.record(dir.path());
    let scan = Scan::of(dir.path());
    let (_, entry) = files(dir.path()).remove(0);
    let stem = entry.path.file_stem().and_then(|s| s.to_str()).expect("a name");
    std::fs::copy(&entry.path, entry.path.with_file_name(store::names::hidden(stem, "pcap"))).expect("a copy");
    same(&collect(&mut everything(dir.path())), &scan.results(&Query::default()), "both names");
}

#[test]
fn a_long_file_before_shorter_ones_of_a_clock_set_back_is_found() {
    let dir = TempDir::new("query-set-back");
    let mut prng = Prng::new(8);
    let minute = Duration::from_secs(60);
    let mut first = Stream::new("eth1", 0, 1);
    first.rotate(START);
    (0..60).for_each(|i| first.packet(START.after(i * minute), 60, &frame(&mut prng, 60)));
    first.record(dir.path());
    let mut second = Stream::new("eth1", 0, 1);
    for i in 20..25 {
        second.rotate(START.after(i * minute));
        second.packet(START.after(i * minute), 60, &frame(&mut prng, 60));
    }
    second.record(dir.path());
    let scan = Scan::of(dir.path());
    let query = Query { from: START.after(40 * minute), ..Query::default() };
    let mut results = run(&QuerySource::Store(dir.path().to_owned()), query.clone()).expect("a store");
    let found = collect(&mut results);
    assert_eq!(found.len(), 20);
    same(&found, &scan.results(&query), "after the clock was set back");
}

#[test]
fn packets_older_than_the_name_of_their_file_are_found() {
    let dir = TempDir::new("query-disorder");
    let mut prng = Prng::new(9);
    let mut stream = Stream::new("eth1", 0, 1);
    for file in 0..6u64 {
        let start = START.after(Duration::from_secs(1000 * file));
        stream.rotate(start);
        for _ in 0..50 {
            stream.packet(START.after(Duration::from_millis(prng.below(5_000_000))), 60, &frame(&mut prng, 60));
        }
    }
    stream.record(dir.path());
    let scan = Scan::of(dir.path());
    for (from, to) in [(0, 900), (500, 1500), (4_900, 5_000), (100, 101)] {
        let at = |secs| START.after(Duration::from_secs(secs));
        let query = Query { from: at(from), to: at(to), ..Query::default() };
        let mut results = run(&QuerySource::Store(dir.path().to_owned()), query.clone()).expect("a store");
        same(&collect(&mut results), &scan.results(&query), &format!("{from} to {to}"));
    }
}

#[test]
fn the_cost_of_the_first_packet_does_not_depend_on_the_files() {
    let make = |files: u64, dir: &TempDir| {
        let mut prng = Prng::new(10);
        let mut stream = Stream::new("eth1", 0, 1);
        for i in 0..files {
            let start = START.after(Duration::from_secs(60 * i));
            stream.rotate(start);
            stream.packet(start, 60, &frame(&mut prng, 60));
        }
        stream.record(dir.path());
    };
    let first = |from: Timestamp, dir: &TempDir| {
        let query = Query { from, ..Query::default() };
        let mut results = run(&QuerySource::Store(dir.path().to_owned()), query).expect("a store");
        assert!(results.next().expect("a result").is_some());
        results.cost()
    };
    let (few, many) = (TempDir::new("query-few"), TempDir::new("query-many"));
    make(20, &few);
    make(300, &many);
    assert_eq!(first(Timestamp::ZERO, &few), first(Timestamp::ZERO, &many));
    let middle = |files: u64| START.after(Duration::from_secs(30 * files));
    assert_eq!(first(middle(20), &few).files, first(middle(300), &many).files);
    assert!(first(Timestamp::ZERO, &many).files <= 2);
}

#[test]
fn a_short_result_reads_little_and_a_stopped_query_ends() {
    let dir = TempDir::new("query-short");
    let mut prng = Prng::new(11);
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(START);
    for i in 0..30_000 {
        stream.packet(START.after(Duration::from_micros(i)), 1000, &frame(&mut prng, 1000));
    }
    stream.record(dir.path());
    let stop = Arc::new(AtomicBool::new(false));
    let query = Query { stop: Some(Arc::clone(&stop)), ..Query::default() };
    let mut results = run(&QuerySource::Store(dir.path().to_owned()), query).expect("a store");
    assert!(results.next().expect("a result").is_some());
    let cost = results.cost();
    assert!(cost.blocks_read <= 3 && cost.blocks >= 28, "{cost:?}");
    stop.store(true, Ordering::Relaxed);
    assert!(results.next().expect("a result").is_none());
}

#[test]
fn an_hour_is_held_only_while_its_files_are_read() {
    let dir = TempDir::new("query-held");
    let mut prng = Prng::new(12);
    let mut stream = Stream::new("eth1", 0, 1);
    let hours: Vec<Timestamp> = (0..4).map(|h| START.after(Duration::from_secs(3600 * h))).collect();
    for start in &hours {
        stream.rotate(*start);
        (0..10).for_each(|i| stream.packet(start.after(Duration::from_secs(i)), 60, &frame(&mut prng, 60)));
    }
    stream.record(dir.path());
    let free = |i: usize| Hold::remover(&hour_of(dir.path(), "eth1", hours[i])).expect("an hour").is_some();
    let mut results = everything(dir.path());
    for _ in 0..15 {
        results.next().expect("a result").expect("a packet");
    }
    assert!(free(0) && !free(1), "while the second hour is read");
    assert!(!free(3), "the newest hour is held from the start, because a recorder may change it");
    drop(results);
    assert!((0..4).all(free), "after the end");
}
