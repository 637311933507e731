//! Tests that the memory of a query does not grow with the size of its result. The test counts all allocations of the
//! process.

#[path = "it/common/mod.rs"]
mod common;

use base::Prng;
use common::*;
use filter::Filter;
use netgrain_query::{Query, QuerySource, run};
use std::time::Duration;
use testkit::{Counting, TempDir};

#[global_allocator]
static COUNTING: Counting = Counting::new();

#[test]
fn a_long_result_over_many_files_and_queues_takes_bounded_memory() {
    const QUEUES: u16 = 3;
    let dir = TempDir::new("query-memory");
    let mut prng = Prng::new(31);
    for queue in 0..QUEUES {
        let mut stream = Stream::new("eth1", queue, QUEUES);
        for i in 0..40_000u64 {
            let ts = START.after(Duration::from_micros(i));
            if i % 5_000 == 0 {
                stream.rotate(ts);
            }
            stream.packet(ts, 1000, &frame(&mut prng, 1000));
        }
        stream.record(dir.path());
    }
    for filter in ["", "host 10.0.0.3"] {
        let query = Query { filter: Filter::parse(filter).expect("a filter"), ..Query::default() };
        let before = COUNTING.begin();
        let mut results = run(&QuerySource::Store(dir.path().to_owned()), query).expect("a store");
        let mut packets = 0;
        while let Some(batch) = results.next_batch().expect("a result") {
            packets += batch.packets;
        }
        assert_eq!(packets, results.cost().matched);
        assert!(packets > 10_000 && results.cost().bytes_read > 100 << 20, "{:?}", results.cost());
        // The bound on the memory consists of sixteen blocks that are read in advance, two blocks per queue (the
        // current block, and the next block during a change of blocks), and small allocations.
        let chunk = (1 << 20) + 2 * 17 * 4096;
        let most = COUNTING.most_since(before);
        let bound = (16 + 2 * usize::from(QUEUES)) * chunk + (2 << 20);
        assert!(most <= bound, "{most} bytes at once, of at most {bound}");
    }
}
