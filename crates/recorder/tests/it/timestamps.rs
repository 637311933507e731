//! The quality of timestamps in the index, compared with a simple model.

use crate::common;

use base::{ClockState, ClockSteps, Note, Prng, TimestampMethods, TimestampQuality};
use common::{FakeFeed, Stream, config, read_all, run};
use index::Index;
use netgrain_recorder::{Config, Format, Recorder};
use ring::{BLOCK, Control};
use std::num::NonZeroU32;
use std::path::Path;
use store::DiskDevice;
use store::device::MemoryDevice;

/// The qualities of all blocks of the stream, segment by segment: a list of all that each block contains, and the last
/// report before the block, which counts only if the block contains no report.
fn model(stream: &Stream) -> Vec<Vec<TimestampQuality>> {
    let mut segments: Vec<Vec<TimestampQuality>> = Vec::new();
    let (mut last, mut limit) = (TimestampQuality::UNKNOWN, 0);
    let (mut block, mut has_report, mut is_empty) = (TimestampQuality::UNKNOWN, false, true);
    let finish = |block: TimestampQuality, has_report: bool, last: TimestampQuality| match has_report {
        true => block,
        false => block.and(last),
    };
    for d in &stream.descs {
        match d.as_control() {
            None => {
                let methods = TimestampMethods::from_iter([d.timestamp_method()]);
                block = block.and(TimestampQuality { methods, ..TimestampQuality::UNKNOWN });
                is_empty = false;
                if d.end() >= limit {
                    let done = finish(block, has_report, last);
                    segments.last_mut().expect("a segment").push(done);
                    limit += BLOCK;
                    (block, has_report) = (TimestampQuality::UNKNOWN, false);
                    is_empty = d.end() == limit - BLOCK;
                }
            }
            Some(Control::Segment { pos, .. }) => {
                // The first block of a segment contains the file header.
                if let Some(open) = segments.last_mut().filter(|_| !is_empty) {
                    open.push(finish(block, has_report, last));
                }
                segments.push(Vec::new());
                (block, has_report, is_empty) = (TimestampQuality::UNKNOWN, false, false);
                limit = pos + BLOCK;
            }
            Some(Control::Timestamps { deviation_nanos, clock }) => {
                last = TimestampQuality { deviation_nanos, clock, ..TimestampQuality::UNKNOWN };
                (block, has_report) = (block.and(last), true);
            }
            Some(Control::ClockStep { nanos, .. }) => {
                block.steps = block.steps.and(ClockSteps::one(nanos));
                is_empty = false;
            }
            Some(Control::Tick | Control::Lost { .. } | Control::Filtered { .. } | Control::Duplicate { .. }) => {
                is_empty = false;
            }
            Some(Control::End) => segments.last_mut().expect("a segment").extend(match is_empty {
                true => None,
                false => Some(finish(block, has_report, last)),
            }),
        }
    }
    segments
}

#[test]
fn the_index_has_the_methods_the_last_reports_and_the_steps_of_each_block() {
    let seed = testkit::seed("the_index_has_the_methods_the_last_reports_and_the_steps_of_each_block");
    for round in 0..6 {
        let mut prng = Prng::new(seed ^ round);
        let stream = Stream::random(0, 4000, &mut prng);
        let device = MemoryDevice::new(round);
        let outcome = run(&stream, device.clone(), config(), &mut prng, |_, _, _| true);
        assert!(outcome.done, "seed {seed} round {round}");
        let mut indexes: Vec<Index> = indexes(&device);
        indexes.sort_by_key(|index| index.header.first_pos);
        let found: Vec<Vec<_>> =
            indexes.iter().map(|index| index.entries.iter().map(|entry| entry.timestamps).collect()).collect();
        let expected = model(&stream);
        assert!(expected.iter().flatten().count() > 10, "seed {seed} round {round}");
        assert_eq!(found, expected, "seed {seed} round {round}");
        let steps: u64 = expected.iter().flatten().map(|quality| u64::from(quality.steps.steps)).sum();
        assert_eq!(outcome.totals.ledger.total().notes[Note::ClockStep as usize], steps, "seed {seed} round {round}");
    }
}

#[test]
fn the_index_of_a_raw_file_has_the_quality_of_its_timestamps() {
    let mut prng = Prng::new(5);
    let mut stream = Stream::new(0);
    let mut methods = Vec::new();
    for _ in 0..100 {
        stream.packet(&mut prng, 100, 0);
        methods.extend(stream.descs.last().map(|d| d.timestamp_method()));
    }
    stream.report_timestamps(&mut prng);
    let Some(Control::Timestamps { deviation_nanos, clock }) = stream.descs.last().and_then(|d| d.as_control()) else {
        panic!("a report")
    };
    stream.clock_step(-7_000_000);
    stream.end();
    let dir = testkit::TempDir::new("the_index_of_a_raw_file_has_the_quality_of_its_timestamps");
    let format = Format::Raw { file_bytes: BLOCK };
    let config = Config { store: dir.path().to_owned(), allocate: BLOCK, format, ..config() };
    let recorder = Recorder::new(config, DiskDevice::new(16));
    recorder.run(&mut FakeFeed::new(&stream), |e| eprintln!("{e}")).expect("a thread");
    let files = read_all(dir.path());
    let (_, index) = files.iter().find(|(path, _)| is_index(path)).expect("an index");
    let found = Index::parse(index).expect("a valid index").entries[0].timestamps;
    let methods = methods.into_iter().collect();
    let expected = TimestampQuality { methods, deviation_nanos, clock, steps: ClockSteps::one(-7_000_000) };
    assert_eq!(found, expected);
}

/// A capture of three seconds with one small packet per second: all seconds are in one block, which has the worst
/// report.
#[test]
fn a_slow_block_has_the_worst_report_of_its_seconds() {
    let mut stream = Stream::new(0);
    let mut prng = Prng::new(2);
    let state = |synchronised, error| ClockState { synchronised, maximum_error_micros: error, frequency_ppb: 3 };
    let reports = [(40, state(true, 10)), (90, state(false, 7)), (60, state(true, 500))];
    for (deviation, clock) in reports {
        stream.packet(&mut prng, 60, 0);
        let control = Control::Timestamps { deviation_nanos: NonZeroU32::new(deviation), clock: Some(clock) };
        let now = base::Timestamp::from_nanos(stream.now);
        stream.descs.push(ring::Desc::control(control, now));
        stream.tick();
    }
    stream.end();
    let device = MemoryDevice::new(1);
    assert!(run(&stream, device.clone(), config(), &mut prng, |_, _, _| true).done);
    let found = indexes(&device)[0].entries[0].timestamps;
    assert_eq!((found.deviation_nanos, found.clock), (NonZeroU32::new(90), Some(state(false, 500))));
}

fn indexes(device: &MemoryDevice) -> Vec<Index> {
    let parse = |bytes: &Vec<u8>| Index::parse(bytes).expect("a valid index");
    device.files().iter().filter(|(path, _)| is_index(path)).map(|(_, bytes)| parse(bytes)).collect()
}

fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "ngi")
}
