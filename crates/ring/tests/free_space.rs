//! Tests of the check for free space before a write, which sources that can wait use.

use base::{Prng, Timestamp};
use netgrain_ring::{Config, DescPosition, Listener, LosslessReader, Mode, OfferedRing, Packet, Producer};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const START: Timestamp = Timestamp::from_secs_nanos(1_700_000_000, 0);

fn producer(config: Config) -> Producer {
    Producer::new(Config { name: "test".into(), bytes: 8 << 20, segment_bytes: 2 << 20, ..config }).expect("memory")
}

/// Processes requests of readers as the producer until `thread`, which joins the ring as a reader, has ended.
fn serve_until<T>(p: &mut Producer, thread: JoinHandle<T>) -> T {
    while !thread.is_finished() {
        p.service();
        std::thread::yield_now();
    }
    thread.join().expect("no panic")
}

fn lossless_reader(p: &mut Producer) -> LosslessReader {
    let (memory, registry) = (Arc::clone(p.memory()), Arc::clone(p.registry()));
    serve_until(
        p,
        std::thread::spawn(move || LosslessReader::join(&memory, &registry, "recorder").expect("a free slot")),
    )
}

fn lossless_listener(p: &mut Producer) -> Listener {
    let OfferedRing { memory, registry, shape } = OfferedRing::of(p);
    let join = move || Listener::join(&memory, &registry, shape, "stuck", Mode::Lossless).expect("a free slot");
    serve_until(p, std::thread::spawn(join))
}

fn packet(bytes: &[u8], ts: Timestamp) -> Packet<'_> {
    Packet::whole(bytes, ts)
}

#[test]
fn a_packet_for_which_has_room_is_true_is_never_lost() {
    const SEED: u64 = 17;
    eprintln!("seed {SEED}");
    let mut random = Prng::new(SEED);
    let mut p = producer(Config { rotate: Some(Duration::from_secs(1)), ..Config::default() });
    let mut reader = lossless_reader(&mut p);
    let bytes = vec![7; 65_535];
    let (mut ts, mut written, mut waits) = (START, 0, 0);
    while written < 20_000 {
        // The next timestamp is usually a little later, sometimes up to three seconds later or earlier.
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
            let last = reader.next(usize::MAX).iter().rev().find(|d| d.is_packet()).copied();
            let read = reader.position();
            reader.release(DescPosition { desc: read, pos: last.map_or(reader.released().pos, |d| d.end()) });
        }
        p.push(&packet(&bytes[..len], ts)).expect("free space");
        written += 1;
    }
    assert!(waits > 10, "the ring was never full");
    assert_eq!((p.tally().stored, p.tally().lost_total(), p.tally().residue()), (written, 0, 0));
}

#[test]
fn a_packet_for_which_has_easy_room_is_true_is_never_lost() {
    const SEED: u64 = 18;
    eprintln!("seed {SEED}");
    let mut random = Prng::new(SEED);
    let mut p = producer(Config { rotate: Some(Duration::from_secs(1)), ..Config::default() });
    let mut reader = lossless_reader(&mut p);
    let bytes = vec![7; 65_535];
    let (mut ts, mut cursor_reads) = (START, 0);
    for _ in 0..50_000 {
        ts = match random.below(500) {
            0 => ts.after(Duration::from_millis(random.below(3000))),
            1 => ts.before(Duration::from_millis(random.below(3000))),
            _ => ts.after(Duration::from_micros(1)),
        };
        let len = if random.below(100) == 0 { random.below(65_536) } else { random.below(200) } as usize;
        if !p.has_easy_room(len, ts) {
            cursor_reads += 1;
            while !p.has_room(len, ts, START) {
                p.publish();
                let last = reader.next(usize::MAX).iter().rev().find(|d| d.is_packet()).copied();
                let read = reader.position();
                reader.release(DescPosition { desc: read, pos: last.map_or(reader.released().pos, |d| d.end()) });
            }
        }
        p.push(&packet(&bytes[..len], ts)).expect("free space");
    }
    assert!(cursor_reads > 100 && cursor_reads < 5000, "the cursors of the readers were read {cursor_reads} times");
    assert_eq!((p.tally().stored, p.tally().lost_total(), p.tally().residue()), (50_000, 0, 0));
}

#[test]
fn the_reader_timeout_follows_the_clock_and_not_packet_timestamps() {
    let mut p = producer(Config { reader_timeout: Some(Duration::from_secs(5)), ..Config::default() });
    let stuck = lossless_listener(&mut p);
    let bytes = vec![7; 1000];
    let mut ts = START;
    while p.has_room(bytes.len(), ts, START) {
        p.push(&packet(&bytes, ts)).expect("free space");
        p.publish();
        ts = ts.after(Duration::from_secs(3600));
    }
    // Repeats the call of `has_room`, as a source that waits for space does.
    let moments = || (0..100).map(|i| START.after(Duration::from_millis(100 * i)));
    let expired_at = moments().find(|now| !p.has_room(bytes.len(), ts, *now) && stuck.expired());
    assert_eq!(expired_at, Some(START.after(Duration::from_millis(5100))));
    assert!(p.has_room(bytes.len(), ts, START));
}

#[test]
fn a_reader_without_timeout_expires_only_at_the_end_of_the_stream() {
    let mut p = producer(Config { reader_timeout: None, ..Config::default() });
    let stuck = lossless_listener(&mut p);
    let bytes = vec![7; 1000];
    while p.has_room(bytes.len(), START, START) {
        p.push(&packet(&bytes, START)).expect("free space");
        p.publish();
    }
    let has_room_within_an_hour = |p: &mut Producer| {
        (0..36_000).map(|i| START.after(Duration::from_millis(100 * i))).any(|now| p.has_room(bytes.len(), START, now))
    };
    assert!(!has_room_within_an_hour(&mut p) && !stuck.expired());
    p.closing();
    assert!(has_room_within_an_hour(&mut p) && stuck.expired());
}
