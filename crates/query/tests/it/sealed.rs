//! Answers from sealed files, compared with a plain scan of the same store.

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
fn an_interface_that_was_never_recorded_and_an_interval_that_ends_first_are_refused_by_name() {
    let dir = TempDir::new("query-refused");
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(START);
    stream.record(dir.path());
    let place = QuerySource::Store(dir.path().to_owned());
    let question = Query { interfaces: vec!["eth9".into()], ..Query::default() };
    match run(&place, question).err() {
        Some(QueryError::NoInterface { name, known, .. }) => {
            assert_eq!((&name[..], &known[..]), ("eth9", &["eth1".to_owned()][..]))
        }
        other => panic!("{other:?}"),
    }
    let question = Query { from: START, to: START.before(Duration::from_nanos(1)), ..Query::default() };
    assert!(matches!(run(&place, question).err(), Some(QueryError::Backwards { .. })));
    let nowhere = QuerySource::Store(dir.join("nowhere"));
    let error = run(&nowhere, Query::default()).err().expect("no store");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn any_question_of_any_store_gives_what_a_plain_scan_gives() {
    let test = "any_question_of_any_store_gives_what_a_plain_scan_gives";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let rounds = std::env::var("NETGRAIN_FUZZ_ITERS").ok().and_then(|r| r.parse().ok()).unwrap_or(1) * 6;
    for round in 0..rounds {
        let dir = TempDir::new("query-any");
        random_store(dir.path(), &mut prng);
        let scan = Scan::of(dir.path());
        for number in 0..20 {
            let question = random_question(&scan, &mut prng);
            let what = format!("seed {seed} round {round} question {number}: {question:?}");
            let expected = scan.answer(&question);
            let place = QuerySource::Store(dir.path().to_owned());
            let mut answer = run(&place, question.clone()).expect("a store");
            same(&collect(&mut answer), &expected, &what);
            let cost = answer.cost();
            assert_eq!((cost.matched, answer.warnings()), (expected.len() as u64, vec![]), "{what}");
            assert!(cost.packets >= cost.matched && cost.blocks_read <= cost.blocks, "{cost:?}");
            assert!(cost.blocks_skipped_time + cost.blocks_skipped_keys + cost.blocks_read <= cost.blocks, "{cost:?}");
            let mut answer = run(&place, question).expect("a store");
            same(&collect_batches(&mut answer, &mut prng), &expected, &what);
        }
    }
}

#[test]
fn what_was_lost_is_told_once_in_the_packets_and_in_the_tally() {
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
    let mut answer = everything(dir.path());
    let mut reported = 0;
    while let Some(found) = answer.next().expect("an answer") {
        reported += found.lost;
    }
    let tally = answer.tally(0);
    assert_eq!((reported, tally.lost_total(), tally.stored, tally.residue()), (lost, lost, 3000, 0));
    // Of a part, only the losses of its blocks; of a filter, also those of the blocks that it skips.
    let filter = Filter::parse("host 10.0.0.200").expect("a filter");
    let mut answer =
        run(&QuerySource::Store(dir.path().to_owned()), Query { filter, ..Query::default() }).expect("a store");
    assert!(answer.next().expect("an answer").is_none());
    assert_eq!(answer.tally(0).lost_total(), lost);
    let to = START.after(Duration::from_millis(300));
    let mut answer =
        run(&QuerySource::Store(dir.path().to_owned()), Query { to, ..Query::default() }).expect("a store");
    let found = collect(&mut answer);
    assert_eq!(found.len(), 300);
    assert!(answer.tally(0).lost_total() < lost, "{:?}", answer.tally(0));
}

#[test]
fn what_was_lost_in_a_file_without_packets_is_told_with_the_next_packet_and_by_its_seconds() {
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
    let ask = |question| run(&QuerySource::Store(dir.path().to_owned()), question).expect("a store");
    let mut answer = ask(Query::default());
    assert_eq!(answer.next().expect("an answer").map(|found| found.lost), Some(1000));
    assert!(answer.next().expect("an answer").is_none());
    assert_eq!(answer.tally(0).lost_total(), 1000);
    // Of a part of the file, the seconds of the interval.
    let mut answer = ask(Query { from: at(2), to: at(4), ..Query::default() });
    assert!(answer.next().expect("an answer").is_none());
    assert_eq!(answer.tally(0).lost_total(), 300);
}

#[test]
fn what_happened_while_nothing_was_stored_is_in_the_ledger_of_those_seconds_and_of_no_others() {
    let dir = TempDir::new("query-lost-between");
    let mut prng = Prng::new(13);
    let mut stream = Stream::new("eth1", 0, 1);
    let at = |secs| START.after(Duration::from_secs(secs));
    stream.rotate(START);
    // A block's worth, then half a minute of losses, twice; and losses behind the last packet.
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
        let question = Query { from: at(from), to: at(to), filter, ..Query::default() };
        let mut answer = run(&QuerySource::Store(dir.path().to_owned()), question).expect("a store");
        while answer.next().expect("an answer").is_some() {}
        assert_eq!(tally_of(&answer).lost_total(), lost, "seconds {from} to {to}");
    }
}

#[test]
fn a_file_that_a_listing_shows_under_both_of_its_names_is_read_once() {
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
    same(&collect(&mut everything(dir.path())), &scan.answer(&Query::default()), "both names");
}

#[test]
fn a_long_file_behind_shorter_ones_of_a_clock_that_was_set_back_is_found() {
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
    let question = Query { from: START.after(40 * minute), ..Query::default() };
    let mut answer = run(&QuerySource::Store(dir.path().to_owned()), question.clone()).expect("a store");
    let found = collect(&mut answer);
    assert_eq!(found.len(), 20);
    same(&found, &scan.answer(&question), "after the clock was set back");
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
        let question = Query { from: at(from), to: at(to), ..Query::default() };
        let mut answer = run(&QuerySource::Store(dir.path().to_owned()), question.clone()).expect("a store");
        same(&collect(&mut answer), &scan.answer(&question), &format!("{from} to {to}"));
    }
}

#[test]
fn the_first_packet_of_many_files_costs_what_that_of_few_costs() {
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
        let question = Query { from, ..Query::default() };
        let mut answer = run(&QuerySource::Store(dir.path().to_owned()), question).expect("a store");
        assert!(answer.next().expect("an answer").is_some());
        answer.cost()
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
fn a_short_answer_reads_little_and_one_that_is_stopped_ends() {
    let dir = TempDir::new("query-short");
    let mut prng = Prng::new(11);
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(START);
    for i in 0..30_000 {
        stream.packet(START.after(Duration::from_micros(i)), 1000, &frame(&mut prng, 1000));
    }
    stream.record(dir.path());
    let stop = Arc::new(AtomicBool::new(false));
    let question = Query { stop: Some(Arc::clone(&stop)), ..Query::default() };
    let mut answer = run(&QuerySource::Store(dir.path().to_owned()), question).expect("a store");
    assert!(answer.next().expect("an answer").is_some());
    let cost = answer.cost();
    assert!(cost.blocks_read <= 3 && cost.blocks >= 28, "{cost:?}");
    stop.store(true, Ordering::Relaxed);
    assert!(answer.next().expect("an answer").is_none());
}

#[test]
fn an_hour_is_held_while_its_files_are_read_and_no_longer() {
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
    let mut answer = everything(dir.path());
    for _ in 0..15 {
        answer.next().expect("an answer").expect("a packet");
    }
    assert!(free(0) && !free(1), "in the middle of the second hour");
    assert!(
        !free(3),
        "the newest is held from the beginning: a recorder may begin, and what is read is what there was"
    );
    drop(answer);
    assert!((0..4).all(free), "at the end");
}
