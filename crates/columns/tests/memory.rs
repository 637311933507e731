//! Tests that the memory of a writer does not grow with the length of a replay. The test counts the allocations of the
//! whole process, so this program has a single test.

use base::Timestamp;
use netgrain_columns::{Config, Writer};
use series::Row;
use std::time::Duration;
use testkit::{Counting, TempDir};

#[global_allocator]
static COUNTING: Counting = Counting::new();

/// The greatest number of allocated bytes during a replay of `seconds` seconds with one tick each, before sealing.
fn peak(seconds: u64) -> usize {
    let dir = TempDir::new("columns-memory");
    let day = Duration::from_secs(86_400);
    let config = Config {
        series_every: day,
        wait_when_full: true,
        // The pause is longer than the test, so the writer passes only full batches to the journaling thread.
        hand_over_pause: Duration::from_secs(3600),
        ..Config::new(dir.path(), "eth1")
    };
    let before = COUNTING.begin();
    let mut writer = Writer::new(config).expect("threads");
    for i in 0..seconds {
        // All seconds are in the same day, so that no file is sealed before the end.
        let second = 1_789_948_800 + i;
        let mut row = Row { second, ..Row::default() };
        row.total.packets = i % 7;
        row.total.bytes = 60 * (i % 7);
        writer.row(&row);
        writer.tick(Timestamp::from_secs_nanos(second + 1, 0));
    }
    let most = COUNTING.most_since(before);
    let (counts, events) = writer.finish();
    assert_eq!((counts.sealed, events.len()), (seconds, 1), "{events:?}");
    most
}

#[test]
fn a_replay_buffers_rows_in_few_batches_not_one_per_second() {
    let (few, many) = (peak(2_000), peak(80_000));
    // A batch of a single row takes 300 bytes: 80,000 such batches that are not synced yet would take 24 MB.
    assert!(many < few + (4 << 20), "{many} bytes for 80,000 seconds, {few} for 2,000");
}
