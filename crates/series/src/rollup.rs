//! Roll-ups of seconds into bins of minutes or hours: the sum, minimum, maximum and 95th percentile of every quantity,
//! and the number of seconds with a row.
//!
//! The percentile is the *nearest rank* over the seconds with a row: the ⌈0.95 n⌉th of `n` sorted values. It is exact
//! and always one of the values, because all seconds of a bin stay in memory until the bin ends. Bins are aligned to
//! UTC. A second with a row of zeros counts as a value; a second in a gap has no row and does not count. Therefore the
//! divisor of a mean is [`Rollup::seconds`].

use crate::{Direction, Row, quantities};
use std::collections::BTreeMap;

/// The length of a bin.
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
    /// All steps, the shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::FiveMinutes, Self::Hour];

    /// The name of the step on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minute => "1min",
            Self::FiveMinutes => "5min",
            Self::Hour => "1h",
        }
    }

    /// The length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::FiveMinutes => 300,
            Self::Hour => 3600,
        }
    }

    /// The first second of the bin that contains `second`.
    pub const fn start(self, second: u64) -> u64 {
        second - second % self.seconds()
    }
}

/// One bin of one direction of one interface. Each of its rows has the first second of the bin, and each quantity of
/// the row is the sum, minimum, maximum or percentile of that quantity over the seconds of the bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// The length of the bin.
    pub step: Step,
    /// Number of seconds of the bin with a row; at least one.
    pub seconds: u64,
    /// The sums. For quantities that cannot be added over time (flows in the table, distinct addresses, peaks) the sum
    /// is only the numerator of the mean.
    pub sum: Row,
    /// The minima.
    pub min: Row,
    /// The maxima.
    pub max: Row,
    /// The 95th percentiles.
    pub p95: Row,
}

impl Rollup {
    /// Rolls up the seconds of one bin, one row per second; `None` without rows.
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

    /// The first second of the bin, in seconds since 1970 (UTC).
    pub fn start(&self) -> u64 {
        self.sum.second
    }
}

/// Rolls up rows of any number of interfaces and directions, each in the order of time. Several rows of one second are
/// added. If a row arrives for a bin that was already returned, it begins a second bin for the same time. The builder
/// stores the rows of one bin for each interface and direction.
#[derive(Clone, Debug)]
pub struct RollupBuilder {
    step: Step,
    open: BTreeMap<(u16, Direction), Vec<Row>>,
}

impl RollupBuilder {
    /// A builder of bins of this length.
    pub fn new(step: Step) -> Self {
        Self { step, open: BTreeMap::new() }
    }

    /// Adds a row; returns the previous bin if the row begins a new bin.
    pub fn push(&mut self, row: &Row) -> Option<Rollup> {
        let rows = self.open.entry((row.interface, row.direction)).or_default();
        let mut finished = None;
        if rows.first().is_some_and(|first| self.step.start(first.second) != self.step.start(row.second)) {
            finished = Rollup::of(self.step, rows);
            rows.clear();
        }
        match rows.binary_search_by_key(&row.second, |open_row| open_row.second) {
            Ok(at) => rows[at] += row,
            Err(at) => rows.insert(at, *row),
        }
        finished
    }

    /// The open bins, by interface and direction.
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
    fn no_rows_give_no_bin() {
        assert!(Rollup::of(Step::Hour, &[]).is_none() && RollupBuilder::new(Step::Hour).finish().is_empty());
    }

    #[test]
    fn seconds_of_zeros_are_values_and_gaps_are_not() {
        let mut builder = RollupBuilder::new(Step::Minute);
        for second in [60, 61, 119] {
            assert_eq!(builder.push(&row(second, second - 60)), None);
        }
        let minute = builder.push(&row(120, 9)).expect("the minute has ended");
        assert_eq!((minute.start(), minute.seconds), (60, 3));
        assert_eq!([minute.sum, minute.min, minute.max].map(|row| row.total.packets), [60, 0, 59]);
        assert_eq!(builder.finish().iter().map(|r| (r.start(), r.seconds)).collect::<Vec<_>>(), [(120, 1)]);
    }

    #[test]
    fn the_percentile_is_the_nearest_rank() {
        let p95 = |n: u64| {
            let rows: Vec<Row> = (0..n).map(|i| row(3600 + i, (i * 7919) % n + 1)).collect();
            Rollup::of(Step::Hour, &rows).expect("rows").p95.total.packets
        };
        // Of the numbers from 1 to n, the nearest rank is ⌈0.95 n⌉ itself.
        assert_eq!([1, 2, 19, 20, 21, 60, 100, 3600].map(p95), [1, 2, 19, 19, 20, 57, 95, 3420]);
    }

    #[test]
    fn rows_of_the_same_second_are_added_to_one_value() {
        let mut builder = RollupBuilder::new(Step::Minute);
        [row(5, 10), row(7, 1), row(5, 3)].iter().for_each(|row| assert_eq!(builder.push(row), None));
        let minute = builder.finish()[0];
        assert_eq!((minute.seconds, minute.max.total.packets, minute.min.total.packets), (2, 13, 1));
    }

    /// Roll-ups with every length of a bin, of every quantity and of several interfaces, compared with a calculation
    /// from sorted values.
    #[test]
    fn rollups_of_random_rows_agree_with_sorted_values() {
        let seed = testkit::seed("rollups_of_random_rows_agree_with_sorted_values");
        let mut prng = Prng::new(seed);
        for step in Step::ALL {
            let mut builder = RollupBuilder::new(step);
            let mut model = BTreeMap::<(u64, u16, Direction), Vec<Row>>::new();
            let mut reported = Vec::new();
            for second in (1_000_000..1_009_000).filter(|second| second % 977 > 200) {
                for (interface, direction) in [(1, Direction::In), (1, Direction::Out), (4, Direction::In)] {
                    let mut row = Row { second, interface, direction, ..Row::default() };
                    let limit = 1 << prng.below(20);
                    quantities().iter().for_each(|q| *q.of_mut(&mut row) = prng.below(limit));
                    reported.extend(builder.push(&row));
                    model.entry((step.start(second), interface, direction)).or_default().push(row);
                }
            }
            reported.extend(builder.finish());
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
