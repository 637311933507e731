//! Gaps in a series: missing seconds between two rows of one interface.

use series::Row;
use std::collections::BTreeMap;

/// Consecutive seconds without data; `from` and `to` are the first and the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: u64,
    pub to: u64,
}

/// Finds gaps in the rows of several interfaces.
#[derive(Default)]
pub struct Gaps {
    /// For each interface, the second that follows its last row of either direction.
    next: BTreeMap<u16, u64>,
    seconds: u64,
}

impl Gaps {
    /// Returns the gap between this row, or step of `step` seconds, and the previous row of the same interface. Rows of
    /// both directions count as one sequence, because rows of the direction out begin only with the first packet that
    /// this host sends.
    pub fn before(&mut self, row: &Row, step: u64) -> Option<Gap> {
        let next = self.next.insert(row.interface, row.second + step)?;
        let gap = (row.second > next).then(|| Gap { from: next, to: row.second - 1 })?;
        self.seconds += gap.to - gap.from + 1;
        Some(gap)
    }

    /// The number of seconds in all gaps.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use series::Direction;

    fn row(second: u64, interface: u16, direction: Direction) -> Row {
        Row { second, interface, direction, ..Row::default() }
    }

    #[test]
    fn a_gap_between_rows_is_reported_once_for_both_directions() {
        let mut gaps = Gaps::default();
        let mut before = |second, interface, direction| gaps.before(&row(second, interface, direction), 1);
        assert_eq!(before(10, 1, Direction::In), None);
        assert_eq!(before(11, 1, Direction::In), None);
        assert_eq!(before(11, 1, Direction::Out), None);
        assert_eq!(before(15, 2, Direction::In), None);
        assert_eq!(before(15, 1, Direction::In), Some(Gap { from: 12, to: 14 }));
        assert_eq!(before(15, 1, Direction::Out), None);
        assert_eq!(before(17, 2, Direction::In), Some(Gap { from: 16, to: 16 }));
        assert_eq!(gaps.seconds(), 4);
    }

    #[test]
    fn consecutive_steps_have_no_gap_between_them() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.before(&row(60, 1, Direction::In), 60), None);
        assert_eq!(gaps.before(&row(120, 1, Direction::In), 60), None);
        assert_eq!(gaps.before(&row(300, 1, Direction::In), 60), Some(Gap { from: 180, to: 299 }));
    }
}
