//! One producer and its listeners, compared with simple models.

use base::{Cause, ClockState, DuplicateClass, Prng, Tally, Timestamp, TimestampMethod};
use netgrain_ring::{
    Annotations, BLOCK, Config, Control, Desc, DescPosition, FILE_HEADER, Listener, LosslessReader, Mode, OfferedRing,
    Packet, Producer, RECORD_HEADER, STREAM_POSITION_MAX,
};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn config() -> Config {
    Config { name: "test".into(), bytes: 8 << 20, segment_bytes: 3 << 20, ..Config::default() }
}

/// Joins from another thread while the producer serves requests.
fn lossless_reader(p: &mut Producer, name: &str) -> LosslessReader {
    let (memory, registry, name) = (Arc::clone(p.memory()), Arc::clone(p.registry()), name.to_owned());
    serve_until(p, std::thread::spawn(move || LosslessReader::join(&memory, &registry, &name).unwrap()))
}

fn listener(p: &mut Producer, name: &str, mode: Mode) -> Listener {
    let (OfferedRing { memory, registry, shape }, name) = (OfferedRing::of(p), name.to_owned());
    serve_until(p, std::thread::spawn(move || Listener::join(&memory, &registry, shape, &name, mode).unwrap()))
}

fn serve_until<T>(p: &mut Producer, thread: std::thread::JoinHandle<T>) -> T {
    while !thread.is_finished() {
        p.service();
        std::thread::yield_now();
    }
    thread.join().unwrap()
}

fn packet(bytes: &[u8], nanos: u64) -> Packet<'_> {
    Packet { hash: 1, l3: 14, l4: 34, ..Packet::whole(bytes, Timestamp::from_nanos(nanos)) }
}

/// A simple reader: the files that a recorder would write from this stream, and the losses that the stream reports.
#[derive(Default)]
struct Model {
    files: Vec<(u64, Vec<u8>)>,
    end: u64,
    tally: Tally,
    ended: bool,
}

impl Model {
    fn read(&mut self, reader: &mut LosslessReader) {
        let descs: Vec<Desc> = reader.next(usize::MAX).to_vec();
        for d in &descs {
            match d.as_control() {
                None => {
                    assert_eq!(d.pos(), self.end, "records are adjacent");
                    let record = reader.bytes(d.pos(), RECORD_HEADER + usize::from(d.caplen));
                    let (sec, nsec) = (d.ts / SECOND, d.ts % SECOND);
                    assert_eq!(record[..4], (sec as u32).to_le_bytes());
                    assert_eq!(record[4..8], (nsec as u32).to_le_bytes());
                    assert_eq!(record[8..12], u32::from(d.caplen).to_le_bytes());
                    self.files.last_mut().unwrap().1.extend_from_slice(record);
                    self.end = d.end();
                    self.tally.offered += 1;
                    self.tally.stored += 1;
                    let wire = u32::from_le_bytes(record[12..16].try_into().unwrap());
                    self.tally.stored_bytes += u64::from(wire);
                }
                Some(Control::Segment { pos, gap }) => {
                    assert_eq!(pos % BLOCK, 0);
                    if !self.files.is_empty() {
                        assert_eq!(pos - u64::from(gap), self.end, "the gap begins at the end of the previous segment");
                    }
                    self.files.push((d.ts, reader.bytes(pos, FILE_HEADER).to_vec()));
                    self.end = pos + FILE_HEADER as u64;
                }
                Some(Control::Lost { cause, packets, .. }) => self.tally.add_lost(cause, packets),
                Some(Control::Filtered { packets }) => {
                    self.tally.offered += packets;
                    self.tally.filtered += packets;
                }
                Some(Control::Duplicate { packets }) => {
                    self.tally.offered += packets;
                    self.tally.duplicate += packets;
                }
                Some(Control::Tick) => assert_eq!(d.ts % SECOND, 0),
                Some(Control::Timestamps { .. } | Control::ClockStep { .. }) => {}
                Some(Control::End) => self.ended = true,
            }
        }
        let at = DescPosition { desc: reader.position(), pos: self.end.max(reader.released().pos) };
        reader.release(at);
    }
}

#[test]
fn a_lossless_reader_gets_exactly_the_written_packets_on_a_random_walk() {
    for seed in 0..6 {
        let mut prng = Prng::new(seed);
        // The start positions include positions near 2^31, 2^32 and 2^62.
        let start =
            [0, (1 << 31) - 2 * BLOCK, (1 << 32) - 2 * BLOCK, (1 << 62) - BLOCK, 1 << 40, 1 << 33][seed as usize];
        let mut p = Producer::new(Config { start, rotate: Some(Duration::from_secs(2)), ..config() }).unwrap();
        let mut reader = lossless_reader(&mut p, "model");
        let mut model = Model::default();
        let mut written: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut now = 1_700_000_000 * SECOND;
        let mut bytes = vec![0; 65_535];
        for _ in 0..20_000 {
            now += prng.below(1_000_000);
            match prng.below(100) {
                0 => now += prng.below(5 * SECOND),
                1 => p.filtered(Timestamp::from_nanos(now), prng.below(5)),
                2 => p.lost(Cause::ReceiveFull, prng.below(5)),
                3..12 => {
                    p.publish();
                    p.tick(Timestamp::from_nanos(now));
                }
                12 => p.duplicate(Timestamp::from_nanos(now), prng.below(5)),
                13..20 => model.read(&mut reader),
                _ => {
                    let len = if prng.below(20) == 0 { prng.below(65_536) } else { prng.below(1515) } as usize;
                    let fill = prng.next_u64() as u8;
                    bytes[..len].fill(fill);
                    if p.push(&packet(&bytes[..len], now)).is_ok() {
                        written.push((now, bytes[..len].to_vec()));
                    }
                }
            }
        }
        loop {
            let done = p.finish(Timestamp::from_nanos(now));
            model.read(&mut reader);
            if done {
                break;
            }
        }
        assert!(model.ended, "seed {seed}");
        let tally = p.tally();
        assert_eq!(tally.residue(), 0, "seed {seed}");
        assert_eq!(tally.stored, written.len() as u64, "seed {seed}");
        assert_eq!(p.take_ledger().total(), tally, "the ledger rows sum to the tally, seed {seed}");
        assert_eq!((model.tally.offered, model.tally.lost), (tally.offered, tally.lost), "seed {seed}");
        assert_eq!(model.tally.stored_bytes, tally.stored_bytes, "seed {seed}");

        let mut records = written.iter();
        let mut boundary = 0;
        for (named, file) in &model.files {
            assert!(file.len() as u64 <= 3 << 20, "a segment is within its limit, seed {seed}");
            assert!(*named >= boundary || boundary == 0, "segments are in order of time, seed {seed}");
            let mut at = FILE_HEADER;
            while at < file.len() {
                let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
                let (ts, bytes) = records.next().unwrap();
                assert_eq!(&file[at + 16..at + 16 + len], bytes, "seed {seed}");
                assert!(
                    named <= ts && *ts / (2 * SECOND) == named / (2 * SECOND),
                    "a file holds one rotation period, seed {seed}"
                );
                at += 16 + len;
            }
            boundary = *named;
        }
        assert!(records.next().is_none(), "seed {seed}");
    }
}

#[test]
fn losses_due_to_a_stalled_lossless_reader_are_attributed_to_it() {
    let mut p = Producer::new(config()).unwrap();
    let mut stuck = lossless_reader(&mut p, "stuck");
    let bytes = [0; 1000];
    for i in 0..20_000u64 {
        let _ = p.push(&packet(&bytes, SECOND + i));
    }
    p.publish();
    let lost = p.tally().lost[Cause::RingFull as usize];
    assert!(lost > 10_000, "{lost}");
    assert_eq!(p.tally().residue(), 0);
    assert_eq!(p.registry().lost_by_reader()["stuck"], lost);

    let mut model = Model::default();
    model.read(&mut stuck);
    p.service();
    assert!(p.push(&packet(&bytes, 3 * SECOND)).is_ok(), "released space is used again");
    while !p.finish(Timestamp::from_nanos(3 * SECOND)) {
        model.read(&mut stuck);
    }
    model.read(&mut stuck);
    assert_eq!(model.tally.lost[Cause::RingFull as usize], lost, "the stream reports the loss");
    drop(stuck);
    assert_eq!(p.registry().lost_by_reader()["stuck"], lost, "the losses are kept after the reader has left");
}

#[test]
fn the_reader_timeout_applies_to_lossless_listeners_but_not_to_the_recorder() {
    let mut p = Producer::new(Config { reader_timeout: Some(Duration::from_secs(2)), ..config() }).unwrap();
    let foreign = listener(&mut p, "foreign", Mode::Lossless);
    let bytes = [0; 1000];
    for i in 0..100_000u64 {
        let _ = p.push(&packet(&bytes, SECOND + i * 100_000));
    }
    assert!(foreign.expired());
    let lost = p.tally().lost[Cause::RingFull as usize];
    let before = p.tally().stored;
    for i in 0..1000 {
        p.push(&packet(&bytes, 20 * SECOND + i)).expect("no reader blocks the ring");
    }
    assert_eq!(p.tally().lost[Cause::RingFull as usize], lost);
    assert_eq!(p.tally().stored, before + 1000);

    let recorder = lossless_reader(&mut p, "recorder");
    for i in 0..100_000u64 {
        let _ = p.push(&packet(&bytes, 30 * SECOND + i * 100_000));
    }
    assert!(p.push(&packet(&bytes, 100 * SECOND)).is_err());
    drop(recorder);
}

#[test]
fn a_lossless_listener_that_releases_too_slowly_expires() {
    let mut p = Producer::new(Config { reader_timeout: Some(Duration::from_secs(5)), ..config() }).unwrap();
    let mut slow = listener(&mut p, "slow", Mode::Lossless);
    let mut descs = Vec::new();
    let bytes = [0; 1000];
    let mut now = SECOND;
    for i in 0..60_000u64 {
        now += SECOND / 1000;
        let _ = p.push(&packet(&bytes, now));
        p.publish();
        if i % 100 == 0 {
            slow.next(1, &mut descs);
        }
    }
    assert!(slow.expired(), "the release of one packet now and then does not restart the timeout");
    let lost = p.tally().lost[Cause::RingFull as usize];
    assert!(p.push(&packet(&bytes, now)).is_ok());
    assert!(lost > 0 && p.tally().residue() == 0);
}

#[test]
fn a_clock_step_back_begins_a_new_segment_with_the_new_time() {
    let mut p = Producer::new(Config { rotate: Some(Duration::from_secs(60)), ..config() }).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    let (early, late) = (1_000_000 * SECOND, 1_007_200 * SECOND);
    p.push(&packet(&[1; 60], late)).unwrap();
    p.tick(Timestamp::from_nanos(late + 2 * SECOND));
    p.clock_was_set(-7_202_000_000_000, Timestamp::from_nanos(early));
    for s in 0..130 {
        p.tick(Timestamp::from_nanos(early + s * SECOND));
        p.push(&packet(&[2; 60], early + s * SECOND)).unwrap();
    }
    assert!(p.finish(Timestamp::from_nanos(early + 131 * SECOND)));
    let descs = reader.next(usize::MAX).to_vec();
    let ticks = descs.iter().filter(|d| d.as_control() == Some(Control::Tick) && d.ts < late).count();
    assert!(ticks >= 130, "each second has a tick again: {ticks}");
    let segments: Vec<u64> = descs
        .iter()
        .filter(|d| matches!(d.as_control(), Some(Control::Segment { .. })))
        .map(|d| d.ts / SECOND)
        .collect();
    assert_eq!(segments, [1_007_200, 1_000_000, 1_000_020, 1_000_080], "rotation follows the new time");
    let steps: Vec<_> = descs.iter().filter(|d| matches!(d.as_control(), Some(Control::ClockStep { .. }))).collect();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].as_control(), Some(Control::ClockStep { steps: 1, nanos: -7_202_000_000_000 }));
    assert_eq!(steps[0].ts, early, "the step has the new time");
}

/// The quality of timestamps in the descriptors: seconds, deviation and state of the clock.
fn qualities(descs: &[Desc]) -> Vec<(u64, u32, Option<ClockState>)> {
    let of = |d: &Desc| match d.as_control() {
        Some(Control::Timestamps { deviation_nanos, clock }) => {
            Some((d.ts / SECOND, deviation_nanos.map_or(0, NonZeroU32::get), clock))
        }
        _ => None,
    };
    descs.iter().filter_map(of).collect()
}

#[test]
fn the_quality_of_timestamps_follows_the_packets_of_each_second() {
    let mut p = Producer::new(config()).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    let state = |error| ClockState { synchronised: error < 20, maximum_error_micros: error, frequency_ppb: -5 };
    p.clock_state(state(10));
    for second in 1..=3u64 {
        for i in 0..4 {
            p.push(&packet(&[1; 60], second * SECOND + i)).unwrap();
            p.timestamp_variance(1, (100 * second * second) as f64);
        }
        p.clock_state(state(10 * second as u32));
    }
    assert!(p.finish(Timestamp::from_nanos(3 * SECOND + 9)));
    let descs = reader.next(usize::MAX).to_vec();
    let expected: Vec<_> = [(1, 0, 10), (1, 10, 10), (2, 20, 20), (3, 30, 30)]
        .map(|(second, deviation, error)| (second, deviation, Some(state(error))))
        .into();
    assert_eq!(qualities(&descs), expected, "the first of them follows the first segment");
    assert!(matches!(descs[0].as_control(), Some(Control::Segment { .. })));
    // The quality of a second precedes the tick of the next second.
    let at = |control| descs.iter().position(|d| d.ts == 2 * SECOND && d.as_control() == Some(control));
    let tick = at(Control::Tick).expect("a tick");
    assert_eq!(qualities(&descs[..tick]).last().map(|last| last.0), Some(1));
}

#[test]
fn without_estimates_and_clock_no_quality_is_written() {
    let mut p = Producer::new(config()).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    (1..5).for_each(|second| p.push(&packet(&[1; 60], second * SECOND)).unwrap());
    assert!(p.finish(Timestamp::from_nanos(5 * SECOND)));
    assert_eq!(qualities(reader.next(usize::MAX)), []);
}

#[test]
fn clock_steps_before_the_first_segment_wait_for_the_stream() {
    let mut p = Producer::new(config()).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    p.clock_was_set(2_000_000, Timestamp::from_nanos(SECOND));
    p.clock_was_set(3_000_000, Timestamp::from_nanos(SECOND));
    p.push(&packet(&[1; 60], SECOND)).unwrap();
    assert!(p.finish(Timestamp::from_nanos(2 * SECOND)));
    let controls: Vec<_> = reader.next(usize::MAX).iter().filter_map(Desc::as_control).collect();
    let steps: Vec<_> = controls.iter().filter(|c| matches!(c, Control::ClockStep { .. })).collect();
    assert_eq!(steps, [&Control::ClockStep { steps: 2, nanos: 5_000_000 }]);
}

#[test]
fn an_overtaken_listener_counts_missed_packets_and_reads_no_torn_packet() {
    let mut prng = Prng::new(11);
    let mut p = Producer::new(config()).unwrap();
    let mut slow = listener(&mut p, "slow", Mode::Lossy);
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    let (mut seen, mut number) = (0, 0u64);
    let mut now = SECOND;
    for _ in 0..200 {
        for _ in 0..prng.below(6000) {
            let mut bytes = [0; 700];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            bytes[692..].copy_from_slice(&number.to_le_bytes());
            now += 1000;
            p.push(&packet(&bytes, now)).unwrap();
            number += 1;
        }
        now += SECOND / 3;
        p.tick(Timestamp::from_nanos(now));
        p.publish();
        for _ in 0..prng.below(4) {
            slow.next(1000, &mut descs);
            for d in descs.iter().filter(|d| d.is_packet()) {
                seen += 1;
                if let Some(bytes) = slow.packet(d, &mut buffer) {
                    assert_eq!(bytes[..8], bytes[692..], "both ends are of the same packet");
                }
            }
        }
    }
    loop {
        slow.next(4096, &mut descs);
        seen += descs.iter().filter(|d| d.is_packet()).count() as u64;
        if descs.is_empty() && slow.lag() == 0 {
            break;
        }
    }
    let counts = slow.counts();
    assert!(counts.missed > 0, "the listener must be overtaken");
    assert_eq!((counts.published, counts.seen, counts.waiting), (number, seen, 0));
    assert_eq!(counts.seen + counts.missed, number);
    assert_eq!(p.tally().stored, number, "capture stored all packets");
}

#[test]
fn a_rewound_listener_reads_and_counts_from_the_new_position() {
    let test = "a_rewound_listener_reads_and_counts_from_the_new_position";
    let mut prng = Prng::new(testkit::seed(test));
    let mut p = Producer::new(Config { rotate: Some(Duration::from_secs(3)), ..config() }).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    let mut l = listener(&mut p, "looks back", Mode::Lossy);
    // The stream position of each packet, as recorded by a lossless reader.
    let mut all: Vec<u64> = Vec::new();
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    let (mut now, mut lapped, mut whole, mut empty) = (SECOND, 0, 0, 0);
    for round in 0..400 {
        // Long packets use up the packet bytes first, short packets use up the descriptors first.
        let len = if round % 40 < 20 { 20 } else { 1400 };
        for _ in 0..prng.below(30_000 / (1 + len / 100)) {
            let mut bytes = vec![0; len as usize];
            bytes[..8].copy_from_slice(&(all.len() as u64).to_le_bytes());
            now += 1000;
            if p.push(&packet(&bytes, now)).is_err() {
                panic!("the lossless reader releases in time");
            }
            all.push(0);
            if all.len().is_multiple_of(1000) {
                p.publish();
                record_positions(&mut reader, &mut all);
            }
        }
        now += prng.below(2 * SECOND);
        p.tick(Timestamp::from_nanos(now));
        p.publish();
        record_positions(&mut reader, &mut all);
        if all.is_empty() {
            continue;
        }
        let (_, end) = l.published();
        assert!(end.is_none_or(|end| end > *all.last().unwrap()), "round {round}");
        // The target of the rewind: the position of a packet, one byte after this position, the beginning of the
        // stream, or one byte after the position of the last packet.
        let target = match prng.below(6) {
            0 => 0,
            1 => all.last().unwrap() + 1,
            _ => all[all.len() - 1 - prng.below(all.len().min(60_000) as u64) as usize] + prng.below(2),
        };
        let complete = l.rewind(target);
        let first = all.partition_point(|pos| *pos < target);
        assert_eq!(l.counts().seen, 0);
        let published = l.counts().published as usize;
        if complete {
            assert_eq!(published, all.len() - first, "round {round}: all packets at or after {target}");
        }
        let mut next = all.len() - published;
        assert!(next >= first);
        (whole, lapped) = (whole + usize::from(complete), lapped + usize::from(!complete));
        empty += usize::from(published == 0);
        while l.lag() > 0 {
            let at = l.position();
            l.next(5000, &mut descs);
            assert_eq!(
                l.position(),
                at + descs.len() as u64,
                "the producer does not write, so the listener is not overtaken"
            );
            for d in descs.iter().filter(|d| d.is_packet()) {
                assert_eq!(d.pos(), all[next]);
                if let Some(bytes) = l.packet(d, &mut buffer) {
                    assert_eq!(bytes[..8], (next as u64).to_le_bytes());
                }
                next += 1;
            }
        }
        assert_eq!(next, all.len());
        let counts = l.counts();
        assert_eq!((counts.published, counts.seen, counts.missed), (published as u64, published as u64, 0));
    }
    assert!(whole > 100 && lapped > 20 && empty > 20, "{whole} whole, {lapped} lapped, {empty} empty");
    let mut reader = listener(&mut p, "lossless", Mode::Lossless);
    assert!(
        !reader.rewind(0) && reader.lag() == 0,
        "the producer keeps no packets from before a lossless listener joined"
    );
}

/// Records the stream positions of the packets that the lossless reader has not read yet.
fn record_positions(reader: &mut LosslessReader, all: &mut [u64]) {
    let descs: Vec<Desc> = reader.next(usize::MAX).to_vec();
    let from = all.iter().rposition(|pos| *pos != 0).map_or(0, |i| i + 1);
    let mut end = reader.released().pos;
    for (known, d) in all[from..].iter_mut().zip(descs.iter().filter(|d| d.is_packet())) {
        *known = d.pos();
        end = d.end();
    }
    reader.release(DescPosition { desc: reader.position(), pos: end });
}

#[test]
fn a_false_cursor_position_is_ignored() {
    let mut p = Producer::new(config()).unwrap();
    let (memory, registry, shape) = (Arc::clone(p.memory()), Arc::clone(p.registry()), OfferedRing::of(&p).shape);
    let false_reader = serve_until(
        &mut p,
        std::thread::spawn(move || {
            let l = Listener::join(&memory, &registry, shape, "liar", Mode::Lossless).unwrap();
            (l, registry.listeners()[0].cursor.clone())
        }),
    );
    let mut other_reader = lossless_reader(&mut p, "honest");
    let bytes = [7; 1000];
    let mut model = Model::default();
    for i in 0..30_000u64 {
        // False cursor positions: ahead of the producer, moved back, or impossible. None of them may make the producer
        // overwrite packets that the second, honest reader has not released.
        let false_position = [u64::MAX, 0, i * 3, 1 << 63][i as usize % 4];
        false_reader.1.release(false_position, false_position);
        let _ = p.push(&packet(&bytes, SECOND + i));
        if i % 500 == 0 {
            p.publish();
            model.read(&mut other_reader);
        }
    }
    assert!(p.tally().lost[Cause::RingFull as usize] > 0, "a reader without valid releases stalls the ring");
    assert_eq!(p.registry().lost_by_reader().keys().collect::<Vec<_>>(), ["liar"]);
    assert_eq!(p.tally().residue(), 0);
}

#[test]
fn a_segment_never_exceeds_its_limit_for_any_remaining_space() {
    // A segment of two blocks is filled so that `left` bytes remain; the next packet either fits or begins the next
    // segment.
    let limit = 2 * BLOCK as usize;
    for left in (0usize..80).chain([15, 16, 17, 1011, 1012, 1013, 65_534, 65_535, 65_536]) {
        let mut p = Producer::new(Config { segment_bytes: limit as u64, ..config() }).unwrap();
        let mut reader = lossless_reader(&mut p, "model");
        let mut model = Model::default();
        let big = vec![1; 65_535];
        let mut space = limit - FILE_HEADER - left;
        while space > 0 {
            let len = if space >= 2 * (RECORD_HEADER + 40_000) {
                40_000
            } else {
                space.div_ceil(2).max(RECORD_HEADER).min(space) - RECORD_HEADER
            };
            let len = if space - (RECORD_HEADER + len) < RECORD_HEADER { space - RECORD_HEADER } else { len };
            p.push(&packet(&big[..len], SECOND)).unwrap();
            space -= RECORD_HEADER + len;
        }
        for len in [0, 60, left.saturating_sub(RECORD_HEADER).min(65_535)] {
            p.push(&packet(&big[..len], SECOND)).unwrap();
        }
        assert!(p.finish(Timestamp::from_nanos(SECOND)));
        model.read(&mut reader);
        assert!(model.files.iter().all(|f| f.1.len() <= limit), "left {left}");
        assert!(model.files[0].1.len() >= limit - left, "left {left}");
        if left >= RECORD_HEADER {
            assert!(model.files[0].1.len() >= limit - left + RECORD_HEADER, "the empty packet fits, left {left}");
        }
        assert_eq!(model.tally.stored, p.tally().stored);
    }
}

#[test]
fn time_without_packets_begins_a_segment_per_rotation_period_or_jump() {
    let mut p = Producer::new(Config { rotate: Some(Duration::from_secs(10)), ..config() }).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    let mut model = Model::default();
    for s in 0..35 {
        p.tick(Timestamp::from_secs_nanos(1000 + s, 5));
        p.publish();
    }
    model.read(&mut reader);
    let names: Vec<u64> = model.files.iter().map(|f| f.0 / SECOND).collect();
    assert_eq!(names, [1000, 1010, 1020, 1030]);
    assert!(model.files.iter().all(|f| f.1.len() == FILE_HEADER));
    p.tick(Timestamp::from_secs_nanos(1_000_000_000, 0));
    p.publish();
    model.read(&mut reader);
    assert_eq!(model.files.len(), 5);
    assert!(p.push(&packet(&[0; 60], 500 * SECOND)).is_ok(), "a packet with an earlier time is accepted");
}

#[test]
fn readers_get_the_annotations_of_each_packet() {
    let mut p = Producer::new(config()).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    let methods = || TimestampMethod::ALL.into_iter().cycle();
    let classes = || DuplicateClass::ALL.into_iter().map(Some).chain([None]).cycle();
    for (method, class) in methods().zip(classes()).take(300) {
        let annotations = Annotations::new(method, class);
        p.push(&Packet { annotations, ..packet(&[0; 60], SECOND) }).unwrap();
    }
    p.publish();
    let all: Vec<Desc> = reader.next(1000).iter().copied().filter(Desc::is_packet).collect();
    assert_eq!(all.len(), 300);
    for ((d, method), class) in all.iter().zip(methods()).zip(classes()) {
        assert_eq!((d.timestamp_method(), d.duplicate_class()), (method, class));
    }
}

#[test]
fn packets_beyond_the_largest_stream_position_are_counted_as_lost() {
    let mut p = Producer::new(Config { start: u64::MAX, ..config() }).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    let frame = [0; 60_000];
    for n in 0..100 {
        let _ = p.push(&packet(&frame, SECOND + n));
    }
    p.publish();
    let all: Vec<Desc> = reader.next(1000).iter().copied().filter(Desc::is_packet).collect();
    // One block has space for 17 packets of this size.
    assert_eq!((p.tally().stored, p.tally().lost_total(), p.tally().residue()), (17, 83, 0));
    assert_eq!(all.len(), 17);
    assert!(all.iter().all(|d| d.end() <= STREAM_POSITION_MAX && d.pos() > STREAM_POSITION_MAX - BLOCK));
}

#[test]
fn a_vlan_tag_is_inserted_after_the_mac_addresses() {
    let mut p = Producer::new(config()).unwrap();
    let mut reader = lossless_reader(&mut p, "model");
    let frame: Vec<u8> = (0..60).collect();
    let mut q = packet(&frame, SECOND);
    q.vlan = Some([0x81, 0, 0, 5]);
    p.push(&q).unwrap();
    q.bytes = &frame[..5];
    p.push(&q).unwrap();
    p.publish();
    let d = *reader.next(10).iter().find(|d| d.is_packet()).unwrap();
    assert_eq!((d.caplen, d.wire_len), (64, 64));
    let bytes = &reader.bytes(d.pos(), 80)[16..];
    assert_eq!(bytes[..12], frame[..12]);
    assert_eq!(bytes[12..16], [0x81, 0, 0, 5]);
    assert_eq!(bytes[16..64], frame[12..60]);
}

#[test]
fn a_thousand_listeners_join_under_load_and_each_starts_at_a_record() {
    let mut p = Producer::new(config()).unwrap();
    let (memory, registry, shape) = (Arc::clone(p.memory()), Arc::clone(p.registry()), OfferedRing::of(&p).shape);
    let storm = std::thread::spawn(move || {
        let (mut descs, mut buffer) = (Vec::new(), Vec::new());
        for i in 0..1000 {
            let mode = if i % 3 == 0 { Mode::Lossless } else { Mode::Lossy };
            let mut l = Listener::join(&memory, &registry, shape.clone(), "listener", mode).unwrap();
            l.next(64, &mut descs);
            for d in descs.iter().filter(|d| d.is_packet()) {
                if let Some(record) = l.record(d, &mut buffer) {
                    assert_eq!(record[8..12], u32::from(d.caplen).to_le_bytes(), "a record begins here");
                    assert_eq!(record.len(), 16 + usize::from(d.caplen));
                }
            }
        }
    });
    let mut prng = Prng::new(5);
    let bytes = [3; 1514];
    let mut now = SECOND;
    while !storm.is_finished() {
        p.service();
        for _ in 0..64 {
            now += 100;
            let _ = p.push(&packet(&bytes[..prng.below(1515) as usize], now));
        }
        p.publish();
    }
    storm.join().unwrap();
    p.service();
    assert_eq!(p.tally().residue(), 0);
    assert!(p.registry().listeners().is_empty());
    assert_eq!(p.fill(), 0.0, "the producer waits for no reader");
}
