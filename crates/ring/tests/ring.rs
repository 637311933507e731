//! One writer and its listeners, held against obvious models.

use base::{Cause, Prng, Tally, Timestamp};
use netgrain_ring::{
    BLOCK, Config, Control, Desc, DescPosition, FILE_HEADER, Listener, LosslessReader, Mode, OfferedRing, Packet,
    Producer, RECORD_HEADER,
};
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn config() -> Config {
    Config { name: "test".into(), bytes: 8 << 20, segment_bytes: 3 << 20, ..Config::default() }
}

/// Joins from another thread while the writer serves requests, as in life.
fn gate(p: &mut Producer, name: &str) -> LosslessReader {
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

/// The obvious reader: what files would a recorder make of this stream, and what does it say was lost?
#[derive(Default)]
struct Model {
    files: Vec<(u64, Vec<u8>)>,
    end: u64,
    tally: Tally,
    ended: bool,
}

impl Model {
    fn read(&mut self, gate: &mut LosslessReader) {
        let descs: Vec<Desc> = gate.next(usize::MAX).to_vec();
        for d in &descs {
            match d.as_control() {
                None => {
                    assert_eq!(d.pos, self.end, "records follow each other");
                    let record = gate.bytes(d.pos, RECORD_HEADER + usize::from(d.caplen));
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
                        assert_eq!(
                            pos - u64::from(gap),
                            self.end,
                            "the gap leads back to the end of the segment before"
                        );
                    }
                    self.files.push((d.ts, gate.bytes(pos, FILE_HEADER).to_vec()));
                    self.end = pos + FILE_HEADER as u64;
                }
                Some(Control::Lost { cause, packets, .. }) => self.tally.add_lost(cause, packets),
                Some(Control::Filtered { packets }) => {
                    self.tally.offered += packets;
                    self.tally.filtered += packets;
                }
                Some(Control::Tick) => assert_eq!(d.ts % SECOND, 0),
                Some(Control::End) => self.ended = true,
            }
        }
        let at = DescPosition { desc: gate.position(), pos: self.end.max(gate.released().pos) };
        gate.release(at);
    }
}

#[test]
fn a_random_walk_gives_the_gate_exactly_what_was_written() {
    for seed in 0..6 {
        let mut prng = Prng::new(seed);
        // Positions start near the places where 31, 32 and 63 bits end.
        let start =
            [0, (1 << 31) - 2 * BLOCK, (1 << 32) - 2 * BLOCK, (1 << 62) - BLOCK, 1 << 40, 1 << 33][seed as usize];
        let mut p = Producer::new(Config { start, rotate: Some(Duration::from_secs(2)), ..config() }).unwrap();
        let mut gate = gate(&mut p, "model");
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
                12..20 => model.read(&mut gate),
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
            model.read(&mut gate);
            if done {
                break;
            }
        }
        assert!(model.ended, "seed {seed}");
        let tally = p.tally();
        assert_eq!(tally.residue(), 0, "seed {seed}");
        assert_eq!(tally.stored, written.len() as u64, "seed {seed}");
        assert_eq!(p.take_ledger().total(), tally, "the rows add up to the whole, seed {seed}");
        assert_eq!((model.tally.offered, model.tally.lost), (tally.offered, tally.lost), "seed {seed}");
        assert_eq!(model.tally.stored_bytes, tally.stored_bytes, "seed {seed}");

        let mut records = written.iter();
        let mut boundary = 0;
        for (named, file) in &model.files {
            assert!(file.len() as u64 <= 3 << 20, "a segment keeps its size, seed {seed}");
            assert!(*named >= boundary || boundary == 0, "segments follow in time, seed {seed}");
            let mut at = FILE_HEADER;
            while at < file.len() {
                let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
                let (ts, bytes) = records.next().unwrap();
                assert_eq!(&file[at + 16..at + 16 + len], bytes, "seed {seed}");
                assert!(
                    named <= ts && *ts / (2 * SECOND) == named / (2 * SECOND),
                    "a file holds one period, seed {seed}"
                );
                at += 16 + len;
            }
            boundary = *named;
        }
        assert!(records.next().is_none(), "seed {seed}");
    }
}

#[test]
fn a_gate_that_stalls_is_named_and_the_packets_it_cost_are_counted() {
    let mut p = Producer::new(config()).unwrap();
    let mut stuck = gate(&mut p, "stuck");
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
    assert!(p.push(&packet(&bytes, 3 * SECOND)).is_ok(), "released room is used again");
    while !p.finish(Timestamp::from_nanos(3 * SECOND)) {
        model.read(&mut stuck);
    }
    model.read(&mut stuck);
    assert_eq!(model.tally.lost[Cause::RingFull as usize], lost, "the stream itself tells the loss");
    drop(stuck);
    assert_eq!(p.registry().lost_by_reader()["stuck"], lost, "and it is remembered when the gate has gone");
}

#[test]
fn a_stuck_gate_of_another_process_is_expired_by_policy_but_the_recorder_never_is() {
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
        p.push(&packet(&bytes, 20 * SECOND + i)).expect("nobody holds the ring any more");
    }
    assert_eq!(p.tally().lost[Cause::RingFull as usize], lost);
    assert_eq!(p.tally().stored, before + 1000);

    let recorder = gate(&mut p, "recorder");
    for i in 0..100_000u64 {
        let _ = p.push(&packet(&bytes, 30 * SECOND + i * 100_000));
    }
    assert!(p.push(&packet(&bytes, 100 * SECOND)).is_err());
    drop(recorder);
}

#[test]
fn a_gate_so_slow_that_it_costs_nearly_everything_is_expired_although_it_moves() {
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
    assert!(slow.expired(), "one packet now and then is no rest for the ring");
    let lost = p.tally().lost[Cause::RingFull as usize];
    assert!(p.push(&packet(&bytes, now)).is_ok());
    assert!(lost > 0 && p.tally().residue() == 0);
}

#[test]
fn after_the_clock_was_set_back_time_goes_on_in_a_segment_of_its_own() {
    let mut p = Producer::new(Config { rotate: Some(Duration::from_secs(60)), ..config() }).unwrap();
    let mut gate = gate(&mut p, "model");
    let (early, late) = (1_000_000 * SECOND, 1_007_200 * SECOND);
    p.push(&packet(&[1; 60], late)).unwrap();
    p.tick(Timestamp::from_nanos(late + 2 * SECOND));
    p.clock_was_set();
    for s in 0..130 {
        p.tick(Timestamp::from_nanos(early + s * SECOND));
        p.push(&packet(&[2; 60], early + s * SECOND)).unwrap();
    }
    assert!(p.finish(Timestamp::from_nanos(early + 131 * SECOND)));
    let descs = gate.next(usize::MAX).to_vec();
    let ticks = descs.iter().filter(|d| d.as_control() == Some(Control::Tick) && d.ts < late).count();
    assert!(ticks >= 130, "each second is told again: {ticks}");
    let segments: Vec<u64> = descs
        .iter()
        .filter(|d| matches!(d.as_control(), Some(Control::Segment { .. })))
        .map(|d| d.ts / SECOND)
        .collect();
    assert_eq!(segments, [1_007_200, 1_000_000, 1_000_020, 1_000_080], "and rotation follows the new time");
}

#[test]
fn a_lapped_listener_knows_exactly_what_it_missed_and_reads_nothing_torn() {
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
                    assert_eq!(bytes[..8], bytes[692..], "both ends are of one packet");
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
    let heard = slow.counts();
    assert!(heard.missed > 0, "the test means to lap it");
    assert_eq!((heard.published, heard.seen, heard.waiting), (number, seen, 0));
    assert_eq!(heard.seen + heard.missed, number);
    assert_eq!(p.tally().stored, number, "capture never noticed");
}

#[test]
fn a_rewound_listener_hears_everything_from_there_on_and_counts_from_there() {
    let test = "a_rewound_listener_hears_everything_from_there_on_and_counts_from_there";
    let mut prng = Prng::new(testkit::seed(test));
    let mut p = Producer::new(Config { rotate: Some(Duration::from_secs(3)), ..config() }).unwrap();
    let mut gate = gate(&mut p, "model");
    let mut l = listener(&mut p, "looks back", Mode::Lossy);
    // Where each packet lies, as a gate saw it.
    let mut all: Vec<u64> = Vec::new();
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    let (mut now, mut lapped, mut whole, mut empty) = (SECOND, 0, 0, 0);
    for round in 0..400 {
        // Long packets use up the bytes first, short ones the descriptors.
        let len = if round % 40 < 20 { 20 } else { 1400 };
        for _ in 0..prng.below(30_000 / (1 + len / 100)) {
            let mut bytes = vec![0; len as usize];
            bytes[..8].copy_from_slice(&(all.len() as u64).to_le_bytes());
            now += 1000;
            if p.push(&packet(&bytes, now)).is_err() {
                panic!("the gate is read in time");
            }
            all.push(0);
            if all.len().is_multiple_of(1000) {
                p.publish();
                note_positions(&mut gate, &mut all);
            }
        }
        now += prng.below(2 * SECOND);
        p.tick(Timestamp::from_nanos(now));
        p.publish();
        note_positions(&mut gate, &mut all);
        if all.is_empty() {
            continue;
        }
        let (_, end) = l.published();
        assert!(end.is_none_or(|end| end > *all.last().unwrap()), "round {round}");
        // From anywhere: a packet's place, one behind it, the beginning, the end.
        let target = match prng.below(6) {
            0 => 0,
            1 => all.last().unwrap() + 1,
            _ => all[all.len() - 1 - prng.below(all.len().min(60_000) as u64) as usize] + prng.below(2),
        };
        let complete = l.rewind(target);
        let first = all.partition_point(|pos| *pos < target);
        assert_eq!(l.counts().seen, 0);
        let heard_from = l.counts().published as usize;
        if complete {
            assert_eq!(heard_from, all.len() - first, "round {round}: everything at or behind {target}");
        }
        let mut next = all.len() - heard_from;
        assert!(next >= first);
        (whole, lapped) = (whole + usize::from(complete), lapped + usize::from(!complete));
        empty += usize::from(heard_from == 0);
        while l.lag() > 0 {
            let at = l.position();
            l.next(5000, &mut descs);
            assert_eq!(l.position(), at + descs.len() as u64, "nobody writes, so nobody laps");
            for d in descs.iter().filter(|d| d.is_packet()) {
                assert_eq!(d.pos, all[next]);
                if let Some(bytes) = l.packet(d, &mut buffer) {
                    assert_eq!(bytes[..8], (next as u64).to_le_bytes());
                }
                next += 1;
            }
        }
        assert_eq!(next, all.len());
        let heard = l.counts();
        assert_eq!((heard.published, heard.seen, heard.missed), (heard_from as u64, heard_from as u64, 0));
    }
    assert!(whole > 100 && lapped > 20 && empty > 20, "{whole} whole, {lapped} lapped, {empty} empty");
    let mut gate = listener(&mut p, "gate", Mode::Lossless);
    assert!(!gate.rewind(0) && gate.lag() == 0, "the writer holds nothing that was there before a gate");
}

/// Writes down where the packets lie that a gate has not seen yet.
fn note_positions(gate: &mut LosslessReader, all: &mut [u64]) {
    let descs: Vec<Desc> = gate.next(usize::MAX).to_vec();
    let from = all.iter().rposition(|pos| *pos != 0).map_or(0, |i| i + 1);
    let mut end = gate.released().pos;
    for (known, d) in all[from..].iter_mut().zip(descs.iter().filter(|d| d.is_packet())) {
        *known = d.pos;
        end = d.end();
    }
    gate.release(DescPosition { desc: gate.position(), pos: end });
}

#[test]
fn a_hostile_cursor_is_not_believed() {
    let mut p = Producer::new(config()).unwrap();
    let (memory, registry, shape) = (Arc::clone(p.memory()), Arc::clone(p.registry()), OfferedRing::of(&p).shape);
    let liar = serve_until(
        &mut p,
        std::thread::spawn(move || {
            let l = Listener::join(&memory, &registry, shape, "liar", Mode::Lossless).unwrap();
            (l, registry.listeners()[0].cursor.clone())
        }),
    );
    let mut honest = gate(&mut p, "honest");
    let bytes = [7; 1000];
    let mut model = Model::default();
    for i in 0..30_000u64 {
        // Ahead of the writer, backwards, absurd: none of it may move the writer over the honest gate's ground.
        let lie = [u64::MAX, 0, i * 3, 1 << 63][i as usize % 4];
        liar.1.release(lie, lie);
        let _ = p.push(&packet(&bytes, SECOND + i));
        if i % 500 == 0 {
            p.publish();
            model.read(&mut honest);
        }
    }
    assert!(p.tally().lost[Cause::RingFull as usize] > 0, "a gate that never releases credibly stalls the ring");
    assert_eq!(p.registry().lost_by_reader().keys().collect::<Vec<_>>(), ["liar"]);
    assert_eq!(p.tally().residue(), 0);
}

#[test]
fn every_remaining_space_at_the_end_of_a_segment() {
    // A segment of two blocks is filled so that `left` bytes remain; the next packet either fits exactly or opens the
    // next.
    let limit = 2 * BLOCK as usize;
    for left in (0usize..80).chain([15, 16, 17, 1011, 1012, 1013, 65_534, 65_535, 65_536]) {
        let mut p = Producer::new(Config { segment_bytes: limit as u64, ..config() }).unwrap();
        let mut gate = gate(&mut p, "model");
        let mut model = Model::default();
        let big = vec![1; 65_535];
        let mut room = limit - FILE_HEADER - left;
        while room > 0 {
            let len = if room >= 2 * (RECORD_HEADER + 40_000) {
                40_000
            } else {
                room.div_ceil(2).max(RECORD_HEADER).min(room) - RECORD_HEADER
            };
            let len = if room - (RECORD_HEADER + len) < RECORD_HEADER { room - RECORD_HEADER } else { len };
            p.push(&packet(&big[..len], SECOND)).unwrap();
            room -= RECORD_HEADER + len;
        }
        for len in [0, 60, left.saturating_sub(RECORD_HEADER).min(65_535)] {
            p.push(&packet(&big[..len], SECOND)).unwrap();
        }
        assert!(p.finish(Timestamp::from_nanos(SECOND)));
        model.read(&mut gate);
        assert!(model.files.iter().all(|f| f.1.len() <= limit), "left {left}");
        assert!(model.files[0].1.len() >= limit - left, "left {left}");
        if left >= RECORD_HEADER {
            assert!(model.files[0].1.len() >= limit - left + RECORD_HEADER, "the empty packet fits, left {left}");
        }
        assert_eq!(model.tally.stored, p.tally().stored);
    }
}

#[test]
fn silence_opens_a_segment_at_every_boundary_and_a_gap_of_years_opens_one() {
    let mut p = Producer::new(Config { rotate: Some(Duration::from_secs(10)), ..config() }).unwrap();
    let mut gate = gate(&mut p, "model");
    let mut model = Model::default();
    for s in 0..35 {
        p.tick(Timestamp::from_secs_nanos(1000 + s, 5));
        p.publish();
    }
    model.read(&mut gate);
    let names: Vec<u64> = model.files.iter().map(|f| f.0 / SECOND).collect();
    assert_eq!(names, [1000, 1010, 1020, 1030]);
    assert!(model.files.iter().all(|f| f.1.len() == FILE_HEADER));
    p.tick(Timestamp::from_secs_nanos(1_000_000_000, 0));
    p.publish();
    model.read(&mut gate);
    assert_eq!(model.files.len(), 5);
    assert!(p.push(&packet(&[0; 60], 500 * SECOND)).is_ok(), "time that goes back harms nothing");
}

#[test]
fn a_tag_is_put_back_where_it_was() {
    let mut p = Producer::new(config()).unwrap();
    let mut gate = gate(&mut p, "model");
    let frame: Vec<u8> = (0..60).collect();
    let mut q = packet(&frame, SECOND);
    q.vlan = Some([0x81, 0, 0, 5]);
    p.push(&q).unwrap();
    q.bytes = &frame[..5];
    p.push(&q).unwrap();
    p.publish();
    let d = *gate.next(10).iter().find(|d| d.is_packet()).unwrap();
    assert_eq!((d.caplen, d.wire_len), (64, 64));
    let bytes = &gate.bytes(d.pos, 80)[16..];
    assert_eq!(bytes[..12], frame[..12]);
    assert_eq!(bytes[12..16], [0x81, 0, 0, 5]);
    assert_eq!(bytes[16..64], frame[12..60]);
}

#[test]
fn a_thousand_listeners_come_and_go_under_load_and_each_starts_on_a_record() {
    let mut p = Producer::new(config()).unwrap();
    let (memory, registry, shape) = (Arc::clone(p.memory()), Arc::clone(p.registry()), OfferedRing::of(&p).shape);
    let storm = std::thread::spawn(move || {
        let (mut descs, mut buffer) = (Vec::new(), Vec::new());
        for i in 0..1000 {
            let mode = if i % 3 == 0 { Mode::Lossless } else { Mode::Lossy };
            let mut l = Listener::join(&memory, &registry, shape.clone(), "guest", mode).unwrap();
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
    assert_eq!(p.fill(), 0.0, "nobody is waited for any more");
}
