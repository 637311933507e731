//! Tests of loops over a store, in live mode and over an interval. The loops return each record exactly once, except
//! for documented cases, and reject invalid queries.

use crate::common;

use base::{Prng, Timestamp};
use flow::{DirectionStats, Record};
use netgrain_columns::{ColumnsError, Config, FLOW_LATE, FlowLoop, Query, SeriesLoop, Step, Writer};
use series::{Direction, Row};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testkit::TempDir;

const START: u64 = 1_700_000_000;

fn at(secs: u64, nanos: u32) -> Timestamp {
    Timestamp::from_secs_nanos(secs, u64::from(nanos))
}

/// A record of one packet.
fn record(prng: &mut Prng, time: Timestamp) -> Record {
    let direction = DirectionStats { first: time, last: time, packets: 1, bytes: 60, ..DirectionStats::default() };
    Record { directions: [direction, DirectionStats::default()], flow_start: time, ..common::any_record(prng) }
}

fn row(second: u64, packets: u64) -> Row {
    let mut row = Row { second, direction: Direction::In, ..Row::default() };
    row.total.packets = packets;
    row
}

fn writer(store: &Path, interface: &str) -> Writer {
    Writer::new(Config { wait_when_full: true, ..Config::new(store, interface) }).expect("threads")
}

/// Advances the time by 300 ms, and waits until the writer has journaled all rows that were added before.
fn journaled(writer: &mut Writer, now: &mut Timestamp) {
    *now = now.after(Duration::from_millis(300));
    writer.tick(*now);
    for _ in 0..10_000 {
        let counts = writer.counts();
        if counts.journaled == counts.submitted {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not journaled: {:?}", writer.counts());
}

/// Performs one poll: returns all records that the loop returns until it is idle or has ended, and true if it is idle.
fn poll(flows: &mut FlowLoop, now: Timestamp) -> (Vec<Record>, bool) {
    let mut reported = Vec::new();
    loop {
        match flows.next(now).expect("a store") {
            Step::One(record) => reported.push(record),
            Step::Idle => return (reported, true),
            Step::End => return (reported, false),
        }
    }
}

fn poll_series(rows: &mut SeriesLoop, now: Timestamp) -> (Vec<(u64, String, u64)>, bool) {
    let mut reported = Vec::new();
    loop {
        match rows.next(now).expect("a store") {
            Step::One(row) => {
                let name = rows.interfaces()[usize::from(row.interface)].clone();
                reported.push((row.second, name, row.total.packets));
            }
            Step::Idle => return (reported, true),
            Step::End => return (reported, false),
        }
    }
}

#[test]
fn a_missing_interface_is_reported_before_the_first_record() {
    let store = TempDir::new("follow-none");
    let query = Query { interfaces: vec!["eth9".to_owned()], ..Query::new(store.path()) };
    let refused = FlowLoop::new(query.clone()).live(FLOW_LATE).poll(at(START, 0));
    assert!(matches!(refused, Err(ColumnsError::NoInterface { ref name, .. }) if name == "eth9"), "{refused:?}");
    assert!(SeriesLoop::new(query).poll(at(START, 0)).is_err());
    assert!(FlowLoop::new(Query::new(store.join("nowhere"))).poll(at(START, 0)).is_err());
}

#[test]
fn a_record_beyond_the_delay_is_missed_live_and_found_by_interval() {
    let store = TempDir::new("follow-late");
    let (mut prng, mut now) = (Prng::new(testkit::seed("follow-late")), at(START, 0));
    let mut writer = writer(store.path(), "eth1");
    let mut flows = FlowLoop::new(Query::new(store.path())).live(Duration::from_secs(20));
    let mut write = |writer: &mut Writer, now: &mut Timestamp, ago: u64| {
        let given = record(&mut prng, now.before(Duration::from_secs(ago)));
        writer.record(&given);
        journaled(writer, now);
        given.id
    };
    let first = write(&mut writer, &mut now, 1);
    let reported = poll(&mut flows, now);
    assert_eq!((reported.0.iter().map(|r| r.id).collect::<Vec<_>>(), reported.1), (vec![first], true));
    let (late, in_time) = (write(&mut writer, &mut now, 60), write(&mut writer, &mut now, 15));
    let reported: Vec<u64> = poll(&mut flows, now).0.iter().map(|r| r.id).collect();
    assert_eq!(reported, [in_time]);
    let all: Vec<u64> = poll(&mut FlowLoop::new(Query::new(store.path())), now).0.iter().map(|r| r.id).collect();
    assert_eq!(all, [late, in_time, first]);
}

#[test]
fn live_records_are_returned_once_during_sealing_and_clock_steps() {
    let test = "live_records_are_returned_once_during_sealing_and_clock_steps";
    let mut prng = Prng::new(testkit::seed(test));
    let store = TempDir::new(test);
    let names = ["eth1", "eth2"];
    let mut writers = names.map(|name| Some(writer(store.path(), name)));
    let mut now = at(START, 0);
    let to = at(START + 3000, 0);
    let mut flows = FlowLoop::new(Query { to, ..Query::new(store.path()) }).live(Duration::from_secs(60));
    // How often each record was returned, by interface and flow id.
    let mut given: BTreeMap<(String, u64), u32> = BTreeMap::new();
    let name_and_id = |flows: &FlowLoop, r: &Record| (flows.interfaces()[usize::from(r.interface)].clone(), r.id);
    for round in 0..200 {
        for _ in 0..prng.below(20) {
            let place = prng.below(2) as usize;
            let late = Duration::from_nanos(prng.below(30_000_000_000));
            let record = record(&mut prng, now.before(late));
            if let Some(writer) = &mut writers[place] {
                writer.record(&record);
                given.insert((names[place].to_owned(), record.id), 0);
            }
        }
        for writer in writers.iter_mut().flatten() {
            journaled(writer, &mut now);
        }
        if round == 150 {
            // The writer of one interface ends and seals its growing file.
            writers[0].take().expect("not yet").finish();
        }
        if prng.below(3) > 0 {
            // A clock step back of 10 s must not change the result.
            let clock = if prng.below(5) == 0 { now.before(Duration::from_secs(10)) } else { now };
            let (reported, continues) = poll(&mut flows, clock);
            assert!(continues);
            for record in reported {
                *given.get_mut(&name_and_id(&flows, &record)).expect("a record that was written") += 1;
            }
        }
        now = now.after(Duration::from_nanos(prng.below(20_000_000_000)));
    }
    writers.iter_mut().filter_map(Option::take).for_each(|writer| _ = writer.finish());
    let (reported, continues) = poll(&mut flows, to.after(Duration::from_secs(61)));
    assert!(!continues, "the interval is over");
    for record in reported {
        *given.get_mut(&name_and_id(&flows, &record)).expect("a record that was written") += 1;
    }
    assert!(given.len() > 1000, "{}", given.len());
    let wrong: Vec<_> = given.iter().filter(|(_, reported)| **reported != 1).collect();
    assert!(wrong.is_empty(), "of {} records these were not returned exactly once: {wrong:?}", given.len());
    assert_eq!(flows.warnings(), Vec::<String>::new());
}

#[test]
fn an_interval_of_two_interfaces_is_one_list_in_order_of_time() {
    let test = "an_interval_of_two_interfaces_is_one_list_in_order_of_time";
    let mut prng = Prng::new(testkit::seed(test));
    let store = TempDir::new(test);
    let mut model = Vec::new();
    for name in ["eth1", "eth2"] {
        let mut writer = writer(store.path(), name);
        for _ in 0..500 {
            let time = at(START + prng.below(100), prng.below(1_000_000_000) as u32);
            let record = record(&mut prng, time);
            writer.record(&record);
            if (at(START + 20, 0)..=at(START + 70, 0)).contains(&time) {
                model.push((record.first(), record.id, name.to_owned()));
            }
        }
        writer.finish();
    }
    model.sort();
    let query = Query { from: at(START + 20, 0), to: at(START + 70, 0), ..Query::new(store.path()) };
    let mut flows = FlowLoop::new(query);
    let (reported, continues) = poll(&mut flows, at(START, 0));
    let name = |record: &Record| flows.interfaces()[usize::from(record.interface)].clone();
    let reported: Vec<_> = reported.iter().map(|record| (record.first(), record.id, name(record))).collect();
    assert!(!continues && reported == model, "{} and {}", reported.len(), model.len());
}

#[test]
fn settled_seconds_are_returned_once_and_no_interface_delays_another() {
    let store = TempDir::new("follow-series");
    let mut writers = ["eth1", "eth2"].map(|name| writer(store.path(), name));
    let mut now = at(START, 0);
    let query = || Query { to: at(START + 100, 0), ..Query::new(store.path()) };
    let mut rows = SeriesLoop::new(query()).live();
    for second in 0..3 {
        writers[0].row(&row(START + second, 10 + second));
    }
    writers[1].row(&row(START, 7));
    writers.iter_mut().for_each(|writer| journaled(writer, &mut now));
    let reported = |second: u64, name: &str, packets| (START + second, name.to_owned(), packets);

    // Three seconds after the begin of the first second, the rows of this second are complete and are returned. The
    // rows of later seconds are not returned yet.
    assert_eq!(poll_series(&mut rows, at(START + 3, 0)), (vec![reported(0, "eth1", 10), reported(0, "eth2", 7)], true));
    // If late packets cause further rows of a second that was already returned, the live loop omits these rows, and a
    // loop over an interval adds them to the second.
    writers[0].row(&row(START, 5));
    writers[0].row(&row(START + 1, 5));
    now = now.after(Duration::from_secs(1));
    journaled(&mut writers[0], &mut now);
    assert_eq!(
        poll_series(&mut rows, at(START + 5, 0)),
        (vec![reported(1, "eth1", 16), reported(2, "eth1", 12)], true)
    );
    // The row of the second interface is journaled after that of the first interface, and only this row is returned.
    writers[1].row(&row(START + 1, 8));
    now = now.after(Duration::from_secs(1));
    journaled(&mut writers[1], &mut now);
    assert_eq!(poll_series(&mut rows, at(START + 8, 0)), (vec![reported(1, "eth2", 8)], true));
    assert_eq!(poll_series(&mut rows, at(START + 131, 0)), (vec![], false));
    for writer in writers {
        writer.finish();
    }
    let all = [(0, "eth1", 15), (0, "eth2", 7), (1, "eth1", 16), (1, "eth2", 8), (2, "eth1", 12)];
    let all: Vec<_> = all.iter().map(|(second, name, packets)| reported(*second, name, *packets)).collect();
    assert_eq!(poll_series(&mut SeriesLoop::new(query()), now), (all, false));
}

#[test]
fn a_temporary_clock_error_of_years_does_not_end_a_loop() {
    let test = "a_temporary_clock_error_of_years_does_not_end_a_loop";
    let store = TempDir::new(test);
    let (mut prng, mut now) = (Prng::new(testkit::seed(test)), at(START, 0));
    let mut writer = writer(store.path(), "eth1");
    let mut flows = FlowLoop::new(Query::new(store.path())).live(FLOW_LATE);
    let mut rows = SeriesLoop::new(Query::new(store.path())).live();
    let ahead = |time: Timestamp| time.after(Duration::from_secs(100_000_000));
    for (time, second) in [(now, START), (ahead(now), ahead(now).secs()), (now.after(FLOW_LATE), START + 90)] {
        let given = record(&mut prng, time);
        writer.record(&given);
        writer.row(&row(second, 1));
        journaled(&mut writer, &mut now);
        let clock = time.after(Duration::from_secs(10));
        let reported: Vec<u64> = poll(&mut flows, clock).0.iter().map(|r| r.id).collect();
        assert!(reported.contains(&given.id), "{second}: {reported:?}");
        let (reported, continues) = poll_series(&mut rows, clock);
        assert!(continues && reported.contains(&(second, "eth1".to_owned(), 1)), "{second}: {reported:?}");
    }
}
