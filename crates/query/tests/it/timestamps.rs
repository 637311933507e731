//! The quality of timestamps that a query returns, from the indexes of the selected blocks.

use crate::common;

use base::{ClockState, ClockSteps, Prng, Timestamp, TimestampMethod, TimestampQuality};
use common::*;
use netgrain_query::{Query, QuerySource, run};
use ring::Control;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;
use testkit::TempDir;

fn at(seconds: u64) -> Timestamp {
    START.after(Duration::from_secs(seconds))
}

fn state(maximum_error_micros: u32) -> ClockState {
    ClockState { synchronised: true, maximum_error_micros, frequency_ppb: -20 }
}

fn report(deviation: u32, error: u32) -> Control {
    Control::Timestamps { deviation_nanos: NonZeroU32::new(deviation), clock: Some(state(error)) }
}

/// The quality of all origins of a query, and the number of its packets.
fn quality(store: &Path, query: Query) -> (TimestampQuality, usize) {
    let mut results = run(&QuerySource::Store(store.to_owned()), query).expect("a store");
    let packets = collect(&mut results).len();
    let all = (0..results.origins().len()).map(|origin| results.timestamps(origin));
    (all.fold(TimestampQuality::UNKNOWN, TimestampQuality::and), packets)
}

/// One file: two seconds of large packets, more than a block each, with method and report of the second, then a step
/// back; and a second file with one packet after the step.
fn two_seconds_and_a_step(store: &Path) {
    let mut prng = Prng::new(6);
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(at(100));
    for (second, method, deviation) in [(100, TimestampMethod::Poll, 10), (101, TimestampMethod::Wdts, 30)] {
        stream.method = method;
        (0..1500).for_each(|i| {
            let ts = at(second).after(Duration::from_micros(500 * i));
            stream.packet(ts, 1500, &frame(&mut prng, 1500));
        });
        stream.control(report(deviation, deviation + 1), at(second));
        stream.tick(at(second + 1));
    }
    stream.control(Control::ClockStep { steps: 1, nanos: -90_000_000_000 }, at(12));
    stream.rotate(at(12));
    stream.method = TimestampMethod::Poll;
    stream.packet(at(12), 1500, &frame(&mut prng, 1500));
    stream.record(store);
}

#[test]
fn a_query_returns_the_quality_of_the_blocks_that_it_selects() {
    let dir = TempDir::new("query-quality");
    two_seconds_and_a_step(dir.path());
    let query = |from, to| Query { from, to, with_timestamp_quality: true, ..Query::default() };
    // The first blocks of the first second contain no report, and there is none before them.
    let begin = quality(dir.path(), query(at(100), at(100).after(Duration::from_millis(100))));
    let methods = [TimestampMethod::Poll].into_iter().collect();
    assert_eq!(begin, (TimestampQuality { methods, ..TimestampQuality::UNKNOWN }, 201));
    // The last block contains the report of the second, and the step.
    let (end, _) = quality(dir.path(), query(at(101).after(Duration::from_millis(749)), at(102)));
    assert_eq!(end.methods, [TimestampMethod::Wdts].into_iter().collect());
    assert_eq!((end.deviation_nanos, end.clock), (NonZeroU32::new(30), Some(state(31))));
    assert_eq!(end.steps, ClockSteps::one(-90_000_000_000));
    // All packets are found, those after the step too; the step counts once.
    let (all, packets) = quality(dir.path(), query(Timestamp::ZERO, at(200)));
    assert_eq!(packets, 3001);
    assert_eq!(all.methods, [TimestampMethod::Poll, TimestampMethod::Wdts].into_iter().collect());
    assert_eq!((all.deviation_nanos, all.steps.steps), (NonZeroU32::new(30), 1));
}

#[test]
fn without_the_request_no_quality_is_read() {
    let dir = TempDir::new("query-no-quality");
    two_seconds_and_a_step(dir.path());
    assert_eq!(quality(dir.path(), Query::default()), (TimestampQuality::UNKNOWN, 3001));
}

#[test]
fn packets_without_a_known_method_have_the_method_unknown() {
    let dir = TempDir::new("query-file-quality");
    let mut stream = Stream::new("eth1", 0, 1);
    stream.rotate(at(0));
    stream.packet(at(0), 60, &[0; 60]);
    stream.record(dir.path());
    let query = Query { with_timestamp_quality: true, ..Query::default() };
    let (found, packets) = quality(dir.path(), query);
    let methods = [TimestampMethod::Unknown].into_iter().collect();
    assert_eq!((found, packets), (TimestampQuality { methods, ..TimestampQuality::UNKNOWN }, 1));
}
