//! Memory grows with what a capture has, and not with how long it took: allocations are counted, whatever makes them. A
//! program of its own, because the count is of everything that runs in it.

#[path = "it/common/mod.rs"]
mod common;

use common::{FakeFeed, Stream, config};
use netgrain_recorder::{Config, Format, Recorder};
use store::DiskDevice;
use testkit::{Counting, TempDir};

#[global_allocator]
static COUNTING: Counting = Counting::new();

/// Bytes that the recorder takes at most for so many packets, one each other second.
fn peak(packets: u64, format: Format) -> usize {
    let dir = TempDir::new("recorder-memory");
    let mut prng = base::Prng::new(packets);
    let mut stream = Stream::new(0);
    for _ in 0..packets {
        stream.packet(&mut prng, 60, 0);
        stream.tick();
        stream.tick();
    }
    stream.end();
    let mut feed = FakeFeed::new(&stream);
    let config = Config { store: dir.path().to_owned(), format, ..config() };
    let recorder = Recorder::new(config, DiskDevice::new(8));
    let before = COUNTING.begin();
    let summary = recorder.run(&mut feed, |_| {}).expect("a thread");
    assert_eq!(summary.ledger.total().stored, packets);
    COUNTING.most_since(before)
}

#[test]
fn a_packet_each_other_second_costs_a_packet_and_its_seconds() {
    for format in [Format::Pcap, Format::Raw { file_bytes: 2 << 20 }] {
        let (few, many) = (peak(2_000, format), peak(8_000, format));
        // A row of the ledger takes less than 400 bytes wherever it is kept: in the block, in the file, in the sum of
        // all.
        assert!(many < 24 << 20, "{format:?}: {many} bytes for 8,000 packets, {few} for 2,000");
        assert!(many < 6 * few.max(4 << 20), "{format:?}: {many} bytes for 8,000 packets, {few} for 2,000");
    }
}
