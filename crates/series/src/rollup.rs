//! Minutes and hours of seconds, without losing what the seconds knew best: beside the sum, the least, the greatest and
//! the 95th percentile of every quantity, and how many seconds are known at all.
//!
//! The percentile is the *nearest rank* over the seconds that are known: of `n` values in order, number ⌈0.95 n⌉
//! counted from 1. It is exact and always one of the values: the seconds of an hour are few enough to be kept until it
//! is over. Bins are aligned to UTC. A second of zeros is a value, a gap is none: what divides a sum is
//! [`Rollup::seconds`].

use crate::{Direction, Row, quantities};
use std::collections::BTreeMap;

/// How long a bin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// 1 min.
    Minute,
    /// 5 min.
    FiveMinutes,
    /// 1 h.
    Hour,
}

impl Step {
    /// All, from the shortest.
    pub const ALL: [Self; 3] = [Self::Minute, Self::FiveMinutes, Self::Hour];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minute => "1min",
            Self::FiveMinutes => "5min",
            Self::Hour => "1h",
        }
    }

    /// Its seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::FiveMinutes => 300,
            Self::Hour => 3600,
        }
    }

    /// The first second of the bin that this one is in.
    pub const fn start(self, second: u64) -> u64 {
        second - second % self.seconds()
    }
}

/// One bin of one direction of one interface. The rows in it bear its first second; each of their numbers is what the
/// name says of that number of the seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// How long it is.
    pub step: Step,
    /// How many of its seconds are known; at least one.
    pub seconds: u64,
    /// All together. Of what does not add up over time (flows in the table, distinct addresses, peaks) it is good for
    /// the mean.
    pub sum: Row,
    /// The least of a second.
    pub min: Row,
    /// The greatest.
    pub max: Row,
    /// What 95 % of the seconds do not pass.
    pub p95: Row,
}

impl Rollup {
    /// Of seconds of one bin, each in one row; `None` of none.
    fn of(step: Step, rows: &[Row]) -> Option<Self> {
        let first = rows.first()?;
        let head = Row {
            second: step.start(first.second),
            interface: first.interface,
            direction: first.direction,
            ..Row::default()
        };
        let mut rollup = Self { step, seconds: rows.len() as u64, sum: head, min: head, max: head, p95: head };
        let mut values = Vec::with_capacity(rows.len());
        for quantity in quantities() {
            values.clear();
            values.extend(rows.iter().map(|row| quantity.of(row)));
            let rank = (values.len() * 95).div_ceil(100);
            let (below, p95, above) = values.select_nth_unstable(rank - 1);
            let (least, greatest) = (below.iter().min(), above.iter().max());
            *quantity.of_mut(&mut rollup.min) = *least.unwrap_or(p95);
            *quantity.of_mut(&mut rollup.max) = *greatest.unwrap_or(p95);
            *quantity.of_mut(&mut rollup.p95) = *p95;
            *quantity.of_mut(&mut rollup.sum) = values.iter().fold(0u64, |sum, value| sum.saturating_add(*value));
        }
        Some(rollup)
    }

    /// Seconds since 1970 (UTC) at which it begins.
    pub fn start(&self) -> u64 {
        self.sum.second
    }
}

/// Rolls up rows as they come: any number of interfaces and directions, each in the order of time. Several rows of one
/// second are added; a row of a bin that was told already begins a bin of its own. Holds the seconds of one bin of
/// each.
#[derive(Clone, Debug)]
pub struct RollupBuilder {
    step: Step,
    open: BTreeMap<(u16, Direction), Vec<Row>>,
}

impl RollupBuilder {
    /// For bins of this length.
    pub fn new(step: Step) -> Self {
        Self { step, open: BTreeMap::new() }
    }

    /// One second; the bin before it, if it is the first of another.
    pub fn push(&mut self, row: &Row) -> Option<Rollup> {
        let rows = self.open.entry((row.interface, row.direction)).or_default();
        let mut over = None;
        if rows.first().is_some_and(|first| self.step.start(first.second) != self.step.start(row.second)) {
            over = Rollup::of(self.step, rows);
            rows.clear();
        }
        match rows.binary_search_by_key(&row.second, |known| known.second) {
            Ok(at) => rows[at] += row,
            Err(at) => rows.insert(at, *row),
        }
        over
    }

    /// The bins that are open, by interface and direction; there is nothing after them.
    pub fn finish(self) -> Vec<Rollup> {
        self.open.into_values().filter_map(|rows| Rollup::of(self.step, &rows)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use base::Prng;

    fn row(second: u64, packets: u64) -> Row {
        Row { second, total: Volume { packets, bytes: 0 }, ..Row::default() }
    }

    #[test]
    fn no_seconds_are_no_bin() {
        assert!(Rollup::of(Step::Hour, &[]).is_none() && RollupBuilder::new(Step::Hour).finish().is_empty());
    }

    #[test]
    fn silence_counts_and_gaps_do_not() {
        let mut roller = RollupBuilder::new(Step::Minute);
        for second in [60, 61, 119] {
            assert_eq!(roller.push(&row(second, second - 60)), None);
        }
        let minute = roller.push(&row(120, 9)).expect("the minute is over");
        assert_eq!((minute.start(), minute.seconds), (60, 3));
        assert_eq!([minute.sum, minute.min, minute.max].map(|row| row.total.packets), [60, 0, 59]);
        assert_eq!(roller.finish().iter().map(|r| (r.start(), r.seconds)).collect::<Vec<_>>(), [(120, 1)]);
    }

    #[test]
    fn the_percentile_is_the_nearest_rank() {
        let p95 = |n: u64| {
            let rows: Vec<Row> = (0..n).map(|i| row(3600 + i, (i * 7919) % n + 1)).collect();
            Rollup::of(Step::Hour, &rows).expect("rows").p95.total.packets
        };
        // Of the numbers from 1 to n, number ⌈0.95 n⌉ is that number.
        assert_eq!([1, 2, 19, 20, 21, 60, 100, 3600].map(p95), [1, 2, 19, 19, 20, 57, 95, 3420]);
    }

    #[test]
    fn two_rows_of_a_second_are_one_value() {
        let mut roller = RollupBuilder::new(Step::Minute);
        [row(5, 10), row(7, 1), row(5, 3)].iter().for_each(|row| assert_eq!(roller.push(row), None));
        let minute = roller.finish()[0];
        assert_eq!((minute.seconds, minute.max.total.packets, minute.min.total.packets), (2, 13, 1));
    }

    /// Every quantity, every step, several interfaces: against plain sorting.
    #[test]
    fn a_random_series_rolls_up_to_what_sorting_gives() {
        let seed = testkit::seed("a_random_series_rolls_up_to_what_sorting_gives");
        let mut prng = Prng::new(seed);
        for step in Step::ALL {
            let mut roller = RollupBuilder::new(step);
            let mut model = BTreeMap::<(u64, u16, Direction), Vec<Row>>::new();
            let mut reported = Vec::new();
            for second in (1_000_000..1_009_000).filter(|second| second % 977 > 200) {
                for (interface, direction) in [(1, Direction::In), (1, Direction::Out), (4, Direction::In)] {
                    let mut row = Row { second, interface, direction, ..Row::default() };
                    let limit = 1 << prng.below(20);
                    quantities().iter().for_each(|q| *q.of_mut(&mut row) = prng.below(limit));
                    reported.extend(roller.push(&row));
                    model.entry((step.start(second), interface, direction)).or_default().push(row);
                }
            }
            reported.extend(roller.finish());
            reported.sort_by_key(|r| (r.start(), r.sum.interface, r.sum.direction));
            assert_eq!(reported.len(), model.len());
            for (rollup, ((start, interface, direction), rows)) in reported.iter().zip(&model) {
                assert_eq!((rollup.start(), rollup.step, rollup.seconds), (*start, step, rows.len() as u64));
                assert_eq!((rollup.p95.interface, rollup.p95.direction), (*interface, *direction));
                for quantity in quantities() {
                    let mut values: Vec<u64> = rows.iter().map(|row| quantity.of(row)).collect();
                    values.sort_unstable();
                    let rank = (0.95 * values.len() as f64).ceil() as usize;
                    let expected = [values.iter().sum(), values[0], values[values.len() - 1], values[rank - 1]];
                    let got = [&rollup.sum, &rollup.min, &rollup.max, &rollup.p95].map(|row| quantity.of(row));
                    assert_eq!(got, expected, "seed {seed}: {} of {start}", quantity.name);
                }
            }
        }
    }
}
