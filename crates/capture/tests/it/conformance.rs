//! Every source keeps the contract of `capture::Source`: stories that are generic over a [`Rig`], which is a way to
//! open a source and a way to make frames arrive at it.

use crate::common;

use base::{Prng, Timestamp};
use common::{Memory, Taken, WAIT, frame, lost, numbered, read, stop_and_drain};
use netgrain_capture::{Frame, Polled, Source};
use std::time::{Duration, SystemTime};

/// One module of tests for each way to get frames. A new source adds a rig in `rigs` and a line below: among the live
/// ones if frames arrive by themselves, else among the replayed ones.
macro_rules! conformance {
    (live { $($live:ident = $live_rig:ty,)* } replayed { $($replayed:ident = $replayed_rig:ty,)* }) => {
        $(mod $live {
            conformance!(@every $live, $live_rig);
            conformance!(@stories $live, $live_rig: a_random_walk_of_sending_and_reading_agrees_with_a_queue);
        })*
        $(mod $replayed {
            conformance!(@every $replayed, $replayed_rig);
        })*
    };
    (@every $source:ident, $rig:ty) => {
        conformance!(@stories $source, $rig:
            a_stopped_source_ends_for_ever_and_forgets_nothing
            every_size_and_every_tag_arrives_byte_for_byte_and_in_order
            stamps_never_go_back_and_lie_within_the_run
            a_budget_is_kept_and_frames_are_counted_right
            a_stalled_reader_loses_frames_by_count_and_the_books_balance
            a_source_can_be_opened_again
        );
    };
    (@stories $source:ident, $rig:ty: $($story:ident)*) => {$(
        #[test]
        fn $story() {
            super::$story::<$rig>(concat!(stringify!($source), "::", stringify!($story)));
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

/// A way to open a source and to make frames arrive at it.
pub trait Rig: Sized {
    /// The source under test.
    type Source: Source;
    /// Frames arrive by themselves, can be lost, and go on until the source is stopped.
    const LIVE: bool;

    /// Prepares, or skips `test` by name.
    fn new(test: &str) -> Option<Self>;

    /// Opens the source and makes `frames` arrive, in this order, before anyone reads. Returns the source and the
    /// frames as they were on the wire; a source that makes up its own returns those.
    fn start(&mut self, frames: &[Vec<u8>], memory: Memory) -> (Self::Source, Vec<Vec<u8>>);

    /// Makes more frames arrive; only asked of live rigs.
    fn send(&mut self, frames: &[Vec<u8>]);
}

fn bytes_of(taken: &[Taken]) -> Vec<&[u8]> {
    taken.iter().map(|t| t.bytes.as_slice()).collect()
}

fn a_stopped_source_ends_for_ever_and_forgets_nothing<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let (mut source, expected) = rig.start(&numbered(0..500, |_| 200), Memory::Usual);
    // Live frames are in the source's hands when it is stopped; a file or a generator has only those that were asked
    // for.
    let mut taken = if R::LIVE { Vec::new() } else { read(&mut source, expected.len()) };
    taken.extend(stop_and_drain(&mut source));
    assert_eq!(bytes_of(&taken), expected);
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

fn every_size_and_every_tag_arrives_byte_for_byte_and_in_order<R: Rig>(test: &str) {
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
    let taken = read(&mut source, expected.len());
    for (i, (got, sent)) in taken.iter().zip(&expected).enumerate() {
        assert_eq!(&got.bytes, sent, "frame {i} of {} bytes", sent.len());
        assert_eq!(got.wire_len as usize, sent.len(), "frame {i}");
        assert!(!got.super_frame && !got.outgoing, "frame {i}: {got:?}");
    }
    assert_eq!(taken.len(), expected.len());
    assert!(stop_and_drain(&mut source).is_empty());
}

fn stamps_never_go_back_and_lie_within_the_run<R: Rig>(test: &str) {
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
        Timestamp::from_nanos(since.as_nanos() as u64)
    };
    let Some(mut rig) = R::new(test) else { return };
    let before = now();
    let (mut source, expected) = rig.start(&numbered(0..2000, |_| 60), Memory::Usual);
    let taken = read(&mut source, expected.len());
    let after = now();
    assert_eq!(taken.len(), expected.len());
    let stamps: Vec<_> = taken.iter().filter_map(|t| t.stamp).collect();
    assert!(stamps.is_sorted(), "a stamp lies before that of the frame before it");
    if R::LIVE {
        assert!(stamps.iter().all(|s| (before..=after).contains(s)), "{before} .. {after}");
    }
}

fn a_budget_is_kept_and_frames_are_counted_right<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let (mut source, expected) = rig.start(&numbered(0..700, |_| 300), Memory::Usual);
    let mut prng = Prng::new(testkit::seed(test));
    let mut numbers = 0;
    while numbers < expected.len() {
        let budget = 1 + prng.below(13) as usize;
        let mut handed = 0;
        match source.poll(budget, WAIT, |_| handed += 1).expect("poll") {
            Polled::Frames(n) => {
                assert!(n == handed && (1..=budget).contains(&n), "{n} of {budget}, {handed} handed over")
            }
            Polled::Idle => assert_eq!(handed, 0),
            Polled::End => panic!("ended after {numbers}"),
        }
        numbers += handed;
    }
    if R::LIVE {
        let idle = source.poll(1, Duration::ZERO, |_| panic!("a frame that nobody sent"));
        assert!(matches!(idle, Ok(Polled::Idle)), "{idle:?}");
    }
}

fn a_stalled_reader_loses_frames_by_count_and_the_books_balance<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let (mut source, expected) = rig.start(&numbered(0..30_000, |n| 60 + (n % 1000) as usize), Memory::Tiny);
    let before = source.counts().expect("counts");
    let mut taken = Vec::new();
    source.poll(100, WAIT, |f| taken.push(Taken::new(f))).expect("poll");
    taken.extend(if R::LIVE { stop_and_drain(&mut source) } else { read(&mut source, expected.len()) });
    let counts = source.counts().expect("counts");
    for (earlier, later) in before.lost.iter().zip(counts.lost) {
        assert!(*earlier <= later, "a counter went back");
    }
    assert_eq!(taken.len() as u64 + lost(&counts), expected.len() as u64, "{counts:?}");
    assert_eq!(counts.seen.unwrap_or(expected.len() as u64), expected.len() as u64);
    assert_eq!(R::LIVE, lost(&counts) > 0, "the ring is too small for all: {counts:?}");
    // What did arrive is whole, and in order.
    let mut rest = expected.iter();
    for (i, t) in taken.iter().enumerate() {
        assert!(rest.any(|sent| *sent == t.bytes), "frame {i} handed over was not sent, or not in this order");
    }
}

fn a_source_can_be_opened_again<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    for round in 0..4 {
        let (mut source, expected) = rig.start(&numbered(round * 100..round * 100 + 50, |_| 100), Memory::Usual);
        assert_eq!(bytes_of(&read(&mut source, expected.len())), expected, "round {round}");
        if round % 2 == 0 {
            // In the other rounds it is dropped in the middle of its life.
            assert!(stop_and_drain(&mut source).is_empty());
        }
    }
}

fn a_random_walk_of_sending_and_reading_agrees_with_a_queue<R: Rig>(test: &str) {
    let Some(mut rig) = R::new(test) else { return };
    let mut prng = Prng::new(testkit::seed(test));
    let (mut source, _) = rig.start(&[], Memory::Usual);
    let mut queue = std::collections::VecDeque::new();
    let mut next = 0;
    let mut handed = 0;
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
                    handed += 1;
                    assert_eq!(Some(f.bytes), queue.pop_front().as_deref());
                };
                assert_ne!(source.poll(budget, wait, check).expect("poll"), Polled::End);
            }
        }
    }
    let rest = stop_and_drain(&mut source);
    assert_eq!(bytes_of(&rest), queue.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(handed + rest.len() as u64, u64::from(next));
}
