//! The memory of encoded ledger rows. The test counts allocations of the process, so it is the only test of its
//! program.

use base::{Ledger, Tally};
use netgrain_index::Rows;
use testkit::Counting;

#[global_allocator]
static COUNTING: Counting = Counting::new();

const FIRST: u64 = 1_790_000_000;

/// The counters of a second of a slow interface.
fn tally(second: u64) -> Tally {
    let packets = 1 + second % 50;
    Tally { offered: packets, stored: packets, stored_bytes: 500 * packets, ..Tally::default() }
}

/// The maximum of allocated bytes while `fill` creates a value, which is dropped afterwards.
fn most_bytes<T>(fill: impl FnOnce() -> T) -> usize {
    let before = COUNTING.begin();
    let made = fill();
    let most = COUNTING.most_since(before);
    drop(made);
    most
}

#[test]
fn encoded_ledger_rows_take_few_bytes_and_a_ledger_has_a_bound() {
    let ledger_of = |seconds: u64| {
        most_bytes(|| {
            let mut ledger = Ledger::new();
            (0..seconds).for_each(|i| ledger.add(FIRST + 2 * i, &tally(i)));
            let mut total = Tally::default();
            (0..seconds).for_each(|i| total += &tally(i));
            assert_eq!(ledger.total(), total);
            ledger
        })
    };
    let rows_of = |seconds: u64| {
        most_bytes(|| {
            let mut rows = Rows::new();
            (0..seconds).for_each(|i| rows.add(FIRST + 2 * i, &tally(i)));
            rows
        })
    };
    let plain = size_of::<(u64, (u64, Tally))>();
    for seconds in [10_000, Ledger::MAX_ROWS as u64] {
        for bytes in [ledger_of(seconds), rows_of(seconds)] {
            let each = bytes / seconds as usize;
            assert!(
                each < plain / 5,
                "{bytes} bytes for {seconds} seconds, which have {plain} bytes each if not encoded"
            );
        }
    }
    // The oldest rows are folded into one row. So a ledger of 500 000 seconds takes about as much memory as a ledger
    // with the largest permitted number of rows.
    let full = ledger_of(Ledger::MAX_ROWS as u64).max(rows_of(Ledger::MAX_ROWS as u64));
    for bytes in [ledger_of(500_000), rows_of(500_000)] {
        assert!(bytes < full + full / 4, "{bytes} bytes for 500,000 seconds, {full} for a full ledger");
    }
}
