//! Tests that every source satisfies the contract of `capture::Source`. The tests are generic over a [`Rig`], which
//! opens a source and makes frames arrive at it.

use crate::common;

use base::{Prng, Timestamp};
use common::{Delivered, Memory, WAIT, frame, lost, numbered, read, stop_and_drain};
use netgrain_capture::{Frame, Polled, Source};
use std::time::{Duration, SystemTime};

/// One module of tests for each source. A test module for a new source needs a rig in `rigs` and a line below: in
/// `live` if frames arrive without a request, else in `replayed`.
macro_rules! conformance {
    (live { $($live:ident = $live_rig:ty,)* } replayed { $($replayed:ident = $replayed_rig:ty,)* }) => {
        $(mod $live {
            conformance!(@every $live, $live_rig);
            conformance!(@tests $live, $live_rig: a_random_walk_of_sends_and_reads_agrees_with_a_queue);
        })*
        $(mod $replayed {
            conformance!(@every $replayed, $replayed_rig);
        })*
    };
    (@every $source:ident, $rig:ty) => {
        conformance!(@tests $source, $rig:
            a_stopped_source_delivers_its_buffered_frames_and_ends
            frames_of_every_size_and_tag_arrive_unchanged_and_in_order
            timestamps_are_monotonic_and_within_the_run
            poll_keeps_its_budget_and_returns_the_number_of_frames
            a_stalled_reader_loses_frames_that_are_counted
            a_source_can_be_opened_again
        );
    };
    (@tests $source:ident, $rig:ty: $($test:ident)*) => {$(
        #[test]
        fn $test() {
            super::$test::<$rig>(concat!(stringify!($source), "::", stringify!($test)));
        }
    )*};
}

conformance! {
    live {
        afxdp = crate::rigs::afxdp::Rig,
        tpacket = crate::rigs::tpacket::Rig,
    }
    replayed {
        file = crate::rigs::file::Rig,
        sim = crate::rigs::sim::Rig,
    }
}

/// Opens a source and makes frames arrive at it.
pub trait Rig: Sized {
    /// The source under test.
    type Source: Source;
    /// True if frames arrive without a request, can be lost, and continue until the source is stopped.
    const LIVE: bool;

    /// Prepares the rig; `None` if `test` is skipped.
    fn new(test: &str) -> Option<Self>;

    /// Opens the source and makes `frames` arrive in this order before the first read. Returns the source and the
    /// frames on the wire; a source that generates frames returns the generated frames.
    fn start(&mut self, frames: &[Vec<u8>], memory: Memory) -> (Self::Source, Vec<Vec<u8>>);

    /// Makes more frames arrive at the source. Called only for live rigs.
    fn send(&mut self, frames: &[Vec<u8>]);
}

fn bytes_of(delivered: &[Delivered]) -> Vec<&[u8]> {
    delivered.iter().map(|t| t.bytes.as_slice()).collect()
}

fn a_stopped_source_delivers_its_buffered_frames_and_ends<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let (mut source, expected) = rig.start(&numbered(0..500, |_| 200), Memory::Usual);
    // A live source has buffered the frames when it is stopped; a file or a generator delivers only requested frames.
    let mut delivered = if R::LIVE { Vec::new() } else { read(&mut source, expected.len()) };
    delivered.extend(stop_and_drain(&mut source));
    assert_eq!(bytes_of(&delivered), expected);
    if R::LIVE {
        rig.send(&numbered(500..600, |_| 200));
    }
    for _ in 0..3 {
        source.stop();
        let end = source.poll(64, WAIT, |_| panic!("a frame after the end"));
        assert!(matches!(end, Ok(Polled::End)), "{end:?}");
    }
    let counts = source.counts().expect("counts");
    let offered = expected.len() as u64;
    assert_eq!((counts.seen.unwrap_or(offered), lost(&counts)), (offered, 0));
}

fn frames_of_every_size_and_tag_arrive_unchanged_and_in_order<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let mut frames = numbered(0..1455, |n| 60 + n as usize);
    let tags: [&[(u16, u16)]; 5] = [
        &[(0x8100, 0x0064)],
        &[(0x8100, 0xe001)],
        &[(0x88a8, 0x2064), (0x8100, 0x0fff)],
        &[(0x8100, 1), (0x8100, 2)],
        &[(0x88a8, 1), (0x8100, 2), (0x8100, 3)],
    ];
    for (i, tags) in tags.into_iter().enumerate() {
        frames.extend([64, 65, 1000, 1514].map(|len| frame(i as u32, len, tags)));
    }
    let (mut source, expected) = rig.start(&frames, Memory::Usual);
    let delivered = read(&mut source, expected.len());
    for (i, (received, sent)) in delivered.iter().zip(&expected).enumerate() {
        assert_eq!(&received.bytes, sent, "frame {i} of {} bytes", sent.len());
        assert_eq!(received.wire_len as usize, sent.len(), "frame {i}");
        assert!(!received.super_frame && !received.outgoing, "frame {i}: {received:?}");
    }
    assert_eq!(delivered.len(), expected.len());
    assert!(stop_and_drain(&mut source).is_empty());
}

fn timestamps_are_monotonic_and_within_the_run<R: Rig>(test: &str) {
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
        Timestamp::from_nanos(since.as_nanos() as u64)
    };
    let Some(mut rig) = R::new(test) else { return };
    let before = now();
    let (mut source, expected) = rig.start(&numbered(0..2000, |_| 60), Memory::Usual);
    let delivered = read(&mut source, expected.len());
    let after = now();
    assert_eq!(delivered.len(), expected.len());
    let stamps: Vec<_> = delivered.iter().filter_map(|t| t.stamp).collect();
    assert!(stamps.is_sorted(), "a timestamp is before that of the previous frame");
    if R::LIVE {
        assert!(stamps.iter().all(|s| (before..=after).contains(s)), "{before} .. {after}");
    }
}

fn poll_keeps_its_budget_and_returns_the_number_of_frames<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let (mut source, expected) = rig.start(&numbered(0..700, |_| 300), Memory::Usual);
    let mut prng = Prng::new(testkit::seed(test));
    let mut numbers = 0;
    while numbers < expected.len() {
        let budget = 1 + prng.below(13) as usize;
        let mut count = 0;
        match source.poll(budget, WAIT, |_| count += 1).expect("poll") {
            Polled::Frames(n) => {
                assert!(n == count && (1..=budget).contains(&n), "{n} of {budget}, {count} delivered")
            }
            Polled::Idle => assert_eq!(count, 0),
            Polled::End => panic!("ended after {numbers}"),
        }
        numbers += count;
    }
    if R::LIVE {
        let idle = source.poll(1, Duration::ZERO, |_| panic!("a frame that was not sent"));
        assert!(matches!(idle, Ok(Polled::Idle)), "{idle:?}");
    }
}

fn a_stalled_reader_loses_frames_that_are_counted<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let (mut source, expected) = rig.start(&numbered(0..30_000, |n| 60 + (n % 1000) as usize), Memory::Tiny);
    let before = source.counts().expect("counts");
    let mut delivered = Vec::new();
    source.poll(100, WAIT, |f| delivered.push(Delivered::new(f))).expect("poll");
    delivered.extend(if R::LIVE { stop_and_drain(&mut source) } else { read(&mut source, expected.len()) });
    let counts = source.counts().expect("counts");
    for (earlier, later) in before.lost.iter().zip(counts.lost) {
        assert!(*earlier <= later, "a counter decreased");
    }
    assert_eq!(delivered.len() as u64 + lost(&counts), expected.len() as u64, "{counts:?}");
    assert_eq!(counts.seen.unwrap_or(expected.len() as u64), expected.len() as u64);
    assert_eq!(R::LIVE, lost(&counts) > 0, "only live sources lose frames: {counts:?}");
    // The delivered frames are complete and in order.
    let mut rest = expected.iter();
    for (i, t) in delivered.iter().enumerate() {
        assert!(rest.any(|sent| *sent == t.bytes), "delivered frame {i} was not sent, or not in this order");
    }
}

fn a_source_can_be_opened_again<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    for round in 0..4 {
        let (mut source, expected) = rig.start(&numbered(round * 100..round * 100 + 50, |_| 100), Memory::Usual);
        assert_eq!(bytes_of(&read(&mut source, expected.len())), expected, "round {round}");
        if round % 2 == 0 {
            // In the other rounds the source is dropped without a stop.
            assert!(stop_and_drain(&mut source).is_empty());
        }
    }
}

fn a_random_walk_of_sends_and_reads_agrees_with_a_queue<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let mut prng = Prng::new(testkit::seed(test));
    let (mut source, _) = rig.start(&[], Memory::Usual);
    let mut queue = std::collections::VecDeque::new();
    let mut next = 0;
    let mut count = 0;
    for _ in 0..300 {
        match prng.below(4) {
            0 => {
                let burst = prng.below(200) as u32;
                let frames = numbered(next..next + burst, |n| 60 + (n as usize * 37) % 1455);
                next += burst;
                rig.send(&frames);
                queue.extend(frames);
            }
            1 => {
                let counts = source.counts().expect("counts");
                assert_eq!((lost(&counts), counts.seen.unwrap_or(next.into())), (0, next.into()));
            }
            _ => {
                let wait = Duration::from_millis(prng.below(3));
                let budget = 1 + prng.below(300) as usize;
                let check = |f: &Frame<'_>| {
                    count += 1;
                    assert_eq!(Some(f.bytes), queue.pop_front().as_deref());
                };
                assert_ne!(source.poll(budget, wait, check).expect("poll"), Polled::End);
            }
        }
    }
    let rest = stop_and_drain(&mut source);
    assert_eq!(bytes_of(&rest), queue.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(count + rest.len() as u64, u64::from(next));
}
