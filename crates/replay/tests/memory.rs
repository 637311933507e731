//! The memory of a replay does not depend on the length of the capture. This is the only test of its program, because
//! it counts all allocations.

use base::Timestamp;
use netgrain_replay::control::SignalFlags;
use netgrain_replay::stream::StreamFindings;
use netgrain_replay::{
    CapturedPacket, Control, Output, OutputCounts, OutputError, Outputs, Pace, PacketStream, Preparation, Preparer,
    ReadAhead, Rewrite, Rewriter, StreamError, SystemClock, replay,
};
use pcap::Direction;
use testkit::Counting;

#[global_allocator]
static COUNTING: Counting = Counting::new();

/// A capture of this number of equal packets.
struct Endless {
    left: u64,
    bytes: [u8; 1514],
}

impl PacketStream for Endless {
    fn next(&mut self) -> Result<Option<CapturedPacket<'_>>, StreamError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        Ok(Some(CapturedPacket {
            ts: Some(Timestamp::ZERO),
            wire_len: 1514,
            bytes: &self.bytes,
            link_type: 1,
            direction: Direction::Unknown,
            input: 0,
        }))
    }

    fn findings(&self) -> StreamFindings {
        StreamFindings::default()
    }
}

/// An output that discards the frames.
struct Discard(u64);

impl Output for Discard {
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, OutputError> {
        self.0 += frames.len() as u64;
        Ok(frames.len())
    }

    fn finish(&mut self) -> (OutputCounts, Result<(), OutputError>) {
        (OutputCounts { sent: self.0, dropped: 0 }, Ok(()))
    }
}

#[test]
fn memory_is_bounded_by_the_buffer() {
    const BUFFER: usize = 8 << 20;
    let begun = COUNTING.begin();
    let (filter, truncated) = Default::default();
    let preparation = Preparation { filter, truncated, second: None, longest: [1514; 2] };
    let preparer = Preparer::new(preparation, Rewriter::new(Rewrite::default()));
    let open = Box::new(|| Ok(Box::new(Endless { left: 200_000, bytes: [7; 1514] }) as Box<dyn PacketStream>));
    let input = ReadAhead::start(open, 1, preparer, BUFFER).unwrap();
    let control = Control::new(Pace::FLAT, SignalFlags::default());
    let mut outputs = [Discard(0)];
    let outputs = Outputs { outputs: &mut outputs, names: vec![("none".to_owned(), "none".to_owned())] };
    let (report, outcome) = replay(input, outputs, None, &control, SystemClock, |_| {});
    assert!(outcome.is_ok());
    assert_eq!((report.sent, report.bytes), (200_000, 200_000 * 1514));
    // A block has memory for 256 KiB of frames, one further frame, and the list of its frames.
    let most = COUNTING.most_since(begun);
    assert!(most < 2 * BUFFER + (4 << 20), "{most} bytes for a capture of 303 MB");
}
