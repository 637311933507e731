//! Tests that the memory of the recorder grows with the number of packets of a capture and not with the duration of the
//! capture. The test counts all allocations of the process, so it is the only test of its program.

#[path = "it/common/mod.rs"]
mod common;

use common::{FakeFeed, Stream, config};
use netgrain_recorder::{Config, Format, Recorder};
use store::DiskDevice;
use testkit::{Counting, TempDir};

#[global_allocator]
static COUNTING: Counting = Counting::new();

/// The maximum of allocated bytes while this number of packets is recorded, one packet per two seconds.
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
fn memory_grows_with_packets_and_not_with_idle_seconds() {
    for format in [Format::Pcap, Format::Raw { file_bytes: 2 << 20 }] {
        let (few, many) = (peak(2_000, format), peak(8_000, format));
        // A ledger row takes less than 400 bytes in each of the three ledgers: of the block, of the file, and of all
        // files.
        assert!(many < 24 << 20, "{format:?}: {many} bytes for 8,000 packets, {few} for 2,000");
        assert!(many < 6 * few.max(4 << 20), "{format:?}: {many} bytes for 8,000 packets, {few} for 2,000");
    }
}
