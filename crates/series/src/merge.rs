//! Rows added up: those of several interfaces to one series, or what was told of one second in several rows (late
//! packets open their second again: see [`crate::SeriesMeter`]) to one row.

use crate::{MergeRule, Row, quantities};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::AddAssign;

/// Everything adds up but what [`MergeRule::Max`] says; second, interface and direction stay.
impl AddAssign<&Row> for Row {
    fn add_assign(&mut self, other: &Row) {
        for quantity in quantities() {
            let (place, more) = (quantity.of_mut(self), quantity.of(other));
            match quantity.merge {
                MergeRule::Sum => *place = place.saturating_add(more),
                MergeRule::Max => *place = more.max(*place),
            }
        }
    }
}

/// One row for each second, interface and direction, of rows in time order. What comes out is in the order of second,
/// interface and direction.
pub fn merge_rows<I: IntoIterator<Item = Row>>(rows: I) -> MergedRows<I::IntoIter> {
    MergedRows { rows: rows.into_iter().peekable(), into: None, ready: BTreeMap::new() }
}

/// One row for each second and direction, of rows in time order whatever their interface; it gets this interface's
/// number. A second is known if anybody knows it.
pub fn sum_interfaces<I: IntoIterator<Item = Row>>(rows: I, interface: u16) -> MergedRows<I::IntoIter> {
    MergedRows { into: Some(interface), ..merge_rows(rows) }
}

/// See [`merge_rows`] and [`sum_interfaces`].
#[derive(Clone, Debug)]
pub struct MergedRows<I: Iterator<Item = Row>> {
    rows: Peekable<I>,
    into: Option<u16>,
    /// The rows of one second by interface and direction, when all of them are there.
    ready: BTreeMap<(u16, crate::Direction), Row>,
}

impl<I: Iterator<Item = Row>> Iterator for MergedRows<I> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.ready.is_empty() {
            let second = self.rows.peek()?.second;
            while let Some(mut row) = self.rows.next_if(|row| row.second == second) {
                row.interface = self.into.unwrap_or(row.interface);
                self.ready.entry((row.interface, row.direction)).and_modify(|sum| *sum += &row).or_insert(row);
            }
        }
        self.ready.pop_first().map(|(_, row)| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction::{self, In, Out};
    use crate::{Peak, Volume};

    fn row(second: u64, interface: u16, direction: Direction, packets: u64) -> Row {
        let peak_1ms = Peak { packets, bytes: 60 * packets };
        let total = Volume { packets, bytes: 60 * packets };
        Row { second, interface, direction, total, sources: packets, peak_1ms, ..Row::default() }
    }

    #[test]
    fn rows_of_one_second_become_one_and_gaps_stay_gaps() {
        let rows = [row(1, 0, In, 5), row(1, 0, Out, 1), row(1, 0, In, 2), row(3, 0, In, 1)];
        let mut both = row(1, 0, In, 7);
        both.sources = 5;
        both.peak_1ms = Peak { packets: 5, bytes: 300 };
        assert_eq!(merge_rows(rows).collect::<Vec<_>>(), [both, row(1, 0, Out, 1), row(3, 0, In, 1)]);
    }

    #[test]
    fn interfaces_become_one_but_not_directions() {
        let rows = [row(1, 4, In, 5), row(1, 2, Out, 1), row(1, 2, In, 2), row(2, 2, Out, 3)];
        assert_eq!(merge_rows(rows).map(|r| r.interface).collect::<Vec<_>>(), [2, 2, 4, 2]);
        let one: Vec<_> =
            sum_interfaces(rows, 9).map(|r| (r.second, r.interface, r.direction, r.total.packets)).collect();
        assert_eq!(one, [(1, 9, In, 7), (1, 9, Out, 1), (2, 9, Out, 3)]);
    }

    #[test]
    fn what_cannot_be_added_stays_at_the_top() {
        let mut full = Row { syn: u64::MAX, ..Row::default() };
        full += &Row { syn: 1, ..Row::default() };
        assert_eq!(full.syn, u64::MAX);
    }
}
