//! Adds series rows. Rows of several interfaces become one time series, and several rows of the same second become one
//! row (the meter emits a further row of a second for late packets: see [`crate::SeriesMeter`]).

use crate::{MergeRule, Row, quantities};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::AddAssign;

/// Adds all quantities of the other row; for a quantity with [`MergeRule::Max`], the result is the maximum of both
/// values. Second, interface and direction are unchanged.
impl AddAssign<&Row> for Row {
    fn add_assign(&mut self, other: &Row) {
        for quantity in quantities() {
            let (value, addend) = (quantity.of_mut(self), quantity.of(other));
            match quantity.merge {
                MergeRule::Sum => *value = value.saturating_add(addend),
                MergeRule::Max => *value = addend.max(*value),
            }
        }
    }
}

/// Merges rows in time order to one row for each second, interface and direction. The result is in the order of second,
/// interface and direction.
pub fn merge_rows<I: IntoIterator<Item = Row>>(rows: I) -> MergedRows<I::IntoIter> {
    MergedRows { rows: rows.into_iter().peekable(), as_interface: None, ready: BTreeMap::new() }
}

/// Merges rows of any interfaces in time order to one row for each second and direction, which has the interface number
/// `interface`. A second has a row if any of the interfaces has a row of that second.
pub fn sum_interfaces<I: IntoIterator<Item = Row>>(rows: I, interface: u16) -> MergedRows<I::IntoIter> {
    MergedRows { as_interface: Some(interface), ..merge_rows(rows) }
}

/// See [`merge_rows`] and [`sum_interfaces`].
#[derive(Clone, Debug)]
pub struct MergedRows<I: Iterator<Item = Row>> {
    rows: Peekable<I>,
    as_interface: Option<u16>,
    /// The merged rows of one second, by interface and direction, after all rows of the second were read.
    ready: BTreeMap<(u16, crate::Direction), Row>,
}

impl<I: Iterator<Item = Row>> Iterator for MergedRows<I> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.ready.is_empty() {
            let second = self.rows.peek()?.second;
            while let Some(mut row) = self.rows.next_if(|row| row.second == second) {
                row.interface = self.as_interface.unwrap_or(row.interface);
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
    fn rows_of_one_second_are_merged_and_gaps_remain() {
        let rows = [row(1, 0, In, 5), row(1, 0, Out, 1), row(1, 0, In, 2), row(3, 0, In, 1)];
        let mut both = row(1, 0, In, 7);
        both.sources = 5;
        both.peak_1ms = Peak { packets: 5, bytes: 300 };
        assert_eq!(merge_rows(rows).collect::<Vec<_>>(), [both, row(1, 0, Out, 1), row(3, 0, In, 1)]);
    }

    #[test]
    fn sum_interfaces_merges_interfaces_but_not_directions() {
        let rows = [row(1, 4, In, 5), row(1, 2, Out, 1), row(1, 2, In, 2), row(2, 2, Out, 3)];
        assert_eq!(merge_rows(rows).map(|r| r.interface).collect::<Vec<_>>(), [2, 2, 4, 2]);
        let one: Vec<_> =
            sum_interfaces(rows, 9).map(|r| (r.second, r.interface, r.direction, r.total.packets)).collect();
        assert_eq!(one, [(1, 9, In, 7), (1, 9, Out, 1), (2, 9, Out, 3)]);
    }

    #[test]
    fn sums_saturate() {
        let mut full = Row { syn: u64::MAX, ..Row::default() };
        full += &Row { syn: 1, ..Row::default() };
        assert_eq!(full.syn, u64::MAX);
    }
}
