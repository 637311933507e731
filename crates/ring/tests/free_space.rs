//! Asking for room before writing, as sources do that can wait.

use base::{Prng, Timestamp};
use netgrain_ring::{Config, DescPosition, Listener, LosslessReader, Mode, OfferedRing, Packet, Producer};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

fn producer(config: Config) -> Producer {
    Producer::new(Config { name: "test".into(), bytes: 8 << 20, segment_bytes: 2 << 20, ..config }).expect("memory")
}

/// Lets somebody join from another thread while the writer serves requests, as in life.
fn serve_until<T>(p: &mut Producer, thread: JoinHandle<T>) -> T {
    while !thread.is_finished() {
        p.service();
        std::thread::yield_now();
    }
    thread.join().expect("it joins")
}

fn gate(p: &mut Producer) -> LosslessReader {
    let (memory, registry) = (Arc::clone(p.memory()), Arc::clone(p.registry()));
    serve_until(p, std::thread::spawn(move || LosslessReader::join(&memory, &registry, "recorder").expect("a place")))
}

fn foreign_gate(p: &mut Producer) -> Listener {
    let OfferedRing { memory, registry, shape } = OfferedRing::of(p);
    let join = move || Listener::join(&memory, &registry, shape, "stuck", Mode::Lossless).expect("a place");
    serve_until(p, std::thread::spawn(join))
}

fn packet(bytes: &[u8], ts: Timestamp) -> Packet<'_> {
    Packet { bytes, wire_len: bytes.len() as u32, ts, hash: 0, mark: 0, flags: 0, l3: 0, l4: 0, vlan: None }
}

#[test]
fn where_there_is_room_nothing_is_lost_whatever_segments_begin_and_whatever_is_filtered() {
    const SEED: u64 = 17;
    eprintln!("seed {SEED}");
    let mut random = Prng::new(SEED);
    let mut p = producer(Config { rotate: Some(Duration::from_secs(1)), ..Config::default() });
    let mut gate = gate(&mut p);
    let bytes = vec![7; 65_535];
    let (mut ts, mut written, mut waits) = (START, 0, 0);
    while written < 20_000 {
        // Mostly a little later, sometimes by seconds, sometimes back.
        ts = match random.below(50) {
            0 => ts.after(Duration::from_millis(random.below(3000))),
            1 => ts.before(Duration::from_millis(random.below(3000))),
            _ => ts.after(Duration::from_micros(1)),
        };
        if random.below(4) == 0 {
            p.filtered(ts, 1);
        }
        let len = if random.below(20) == 0 { random.below(65_536) } else { random.below(200) } as usize;
        while !p.has_room(len, ts, START) {
            waits += 1;
            p.publish();
            let last = gate.next(usize::MAX).iter().rev().find(|d| d.is_packet()).copied();
            let read = gate.position();
            gate.release(DescPosition { desc: read, pos: last.map_or(gate.released().pos, |d| d.end()) });
        }
        p.push(&packet(&bytes[..len], ts)).expect("there was room");
        written += 1;
    }
    assert!(waits > 10, "the ring was never full");
    assert_eq!((p.tally().stored, p.tally().lost_total(), p.tally().residue()), (written, 0, 0));
}

#[test]
fn where_room_is_easy_nothing_is_lost_either_and_mostly_it_is() {
    const SEED: u64 = 18;
    eprintln!("seed {SEED}");
    let mut random = Prng::new(SEED);
    let mut p = producer(Config { rotate: Some(Duration::from_secs(1)), ..Config::default() });
    let mut gate = gate(&mut p);
    let bytes = vec![7; 65_535];
    let (mut ts, mut asked) = (START, 0);
    for _ in 0..50_000 {
        ts = match random.below(500) {
            0 => ts.after(Duration::from_millis(random.below(3000))),
            1 => ts.before(Duration::from_millis(random.below(3000))),
            _ => ts.after(Duration::from_micros(1)),
        };
        let len = if random.below(100) == 0 { random.below(65_536) } else { random.below(200) } as usize;
        if !p.has_easy_room(len, ts) {
            asked += 1;
            while !p.has_room(len, ts, START) {
                p.publish();
                let last = gate.next(usize::MAX).iter().rev().find(|d| d.is_packet()).copied();
                let read = gate.position();
                gate.release(DescPosition { desc: read, pos: last.map_or(gate.released().pos, |d| d.end()) });
            }
        }
        p.push(&packet(&bytes[..len], ts)).expect("there was room");
    }
    assert!(asked > 100 && asked < 5000, "{asked} times the gates were looked at");
    assert_eq!((p.tally().stored, p.tally().lost_total(), p.tally().residue()), (50_000, 0, 0));
}

#[test]
fn patience_with_a_gate_counts_by_the_clock_and_not_by_stamps_that_leap() {
    let mut p = producer(Config { reader_timeout: Some(Duration::from_secs(5)), ..Config::default() });
    let stuck = foreign_gate(&mut p);
    let bytes = vec![7; 1000];
    let mut ts = START;
    while p.has_room(bytes.len(), ts, START) {
        p.push(&packet(&bytes, ts)).expect("there was room");
        p.publish();
        ts = ts.after(Duration::from_secs(3600));
    }
    // Asked again and again, as by a writer that waits.
    let moments = || (0..100).map(|i| START.after(Duration::from_millis(100 * i)));
    let given_up = moments().find(|now| !p.has_room(bytes.len(), ts, *now) && stuck.expired());
    assert_eq!(given_up, Some(START.after(Duration::from_millis(5100))));
    assert!(p.has_room(bytes.len(), ts, START));
}

#[test]
fn a_gate_with_unlimited_patience_is_given_up_at_the_end_only() {
    let mut p = producer(Config { reader_timeout: None, ..Config::default() });
    let stuck = foreign_gate(&mut p);
    let bytes = vec![7; 1000];
    while p.has_room(bytes.len(), START, START) {
        p.push(&packet(&bytes, START)).expect("there was room");
        p.publish();
    }
    let an_hour = |p: &mut Producer| {
        (0..36_000).map(|i| START.after(Duration::from_millis(100 * i))).any(|now| p.has_room(bytes.len(), START, now))
    };
    assert!(!an_hour(&mut p) && !stuck.expired());
    p.closing();
    assert!(an_hour(&mut p) && stuck.expired());
}
