//! The columns of series rows (one row per second): second, time, interface and direction, and then one column for each
//! entry of [`series::quantities`].

use super::{Schema, interface};
use crate::schema::{Cells, Column, ColumnPredicate, EncodingHint, Repetition, ValueType};
use crate::tile::Tile;
use series::{Direction, Row, quantities};

const NANOS_PER_SEC: u64 = 1_000_000_000;

impl Schema for Row {
    type Line = Row;
    const NAME: &'static str = "second";
    const ORDER: [&'static str; 3] = ["second", "interface_id", "direction"];
    const LAST: &'static str = "second";
    const MADE: &'static [&'static str] = &["time"];

    fn is_needed(path: &str, fields: Option<&[String]>) -> bool {
        if Self::MADE.contains(&path) {
            return false;
        }
        let is_quantity = |name: &str| quantities().iter().any(|quantity| quantity.name == name);
        // Rows are ordered and merged by the other columns, so each query needs them.
        let Some(fields) = fields.filter(|_| is_quantity(path)) else { return true };
        // If a requested field is not a column, it may be derived from any column.
        let is_known = |name: &str| {
            name == super::INTERFACE || Self::MADE.contains(&name) || Self::ORDER.contains(&name) || is_quantity(name)
        };
        fields.iter().any(|name| name == path || !is_known(name))
    }

    fn columns() -> Vec<Column<Row>> {
        let column = |path: &str, declared: String, holds, coding, predicate, arg, take| Column {
            path: path.to_owned(),
            declared,
            repetition: Repetition::One,
            value_type: holds,
            coding,
            predicate,
            arg,
            take,
        };
        let long = |name: &str| format!("required int64 {name};");
        let mut columns = vec![
            column(
                "second",
                long("second"),
                ValueType::Longs,
                EncodingHint::Noise,
                ColumnPredicate::Range,
                0,
                |rows: &mut [Row], _, cells: &Cells| {
                    (cells.longs.len() == rows.len()).then_some(())?;
                    rows.iter_mut().zip(&cells.longs).for_each(|(row, second)| row.second = *second as u64);
                    Some(())
                },
            ),
            column(
                "time",
                "required int64 time (TIMESTAMP(MICROS,true));".into(),
                ValueType::Moments,
                EncodingHint::Noise,
                ColumnPredicate::Range,
                0,
                |rows, _, cells| (cells.longs.len() == rows.len()).then_some(()),
            ),
            column(
                "interface_id",
                "required int32 interface_id;".into(),
                ValueType::Ints,
                EncodingHint::Distinct,
                ColumnPredicate::Never,
                0,
                |rows, _, cells| {
                    (cells.ints.len() == rows.len()).then_some(())?;
                    for (row, number) in rows.iter_mut().zip(&cells.ints) {
                        row.interface = u16::try_from(*number).ok()?;
                    }
                    Some(())
                },
            ),
            column(
                "direction",
                "required binary direction (STRING);".into(),
                ValueType::Names(
                    |number, out| out.extend(Direction::ALL[number as usize & 1].name().as_bytes()),
                    |text| Direction::ALL.iter().position(|way| way.name().as_bytes() == text).map(|at| at as i64),
                ),
                EncodingHint::Distinct,
                ColumnPredicate::Never,
                0,
                |rows, _, cells| {
                    (cells.longs.len() == rows.len()).then_some(())?;
                    for (row, number) in rows.iter_mut().zip(&cells.longs) {
                        row.direction = *Direction::ALL.get(usize::try_from(*number).ok()?)?;
                    }
                    Some(())
                },
            ),
        ];
        columns.extend(quantities().iter().enumerate().map(|(word, quantity)| {
            let name = &quantity.name;
            column(
                name,
                long(name),
                ValueType::Longs,
                EncodingHint::Often,
                ColumnPredicate::Never,
                word,
                |rows, word, cells| {
                    (cells.longs.len() == rows.len()).then_some(())?;
                    let quantity = quantities().get(word)?;
                    for (row, value) in rows.iter_mut().zip(&cells.longs) {
                        *quantity.of_mut(row) = *value as u64;
                    }
                    Some(())
                },
            )
        }));
        columns
    }

    fn extras(_: bool) -> Vec<Column<Row>> {
        vec![interface()]
    }

    fn extra(&self, _: &str, _: &mut Vec<u8>) {}

    fn interface(&self) -> u16 {
        self.interface
    }

    fn blank() -> Row {
        Row::default()
    }

    fn put(&self, tile: &mut Tile) {
        let time = self.second.wrapping_mul(NANOS_PER_SEC);
        let head = [self.second, time, self.interface.into(), self.direction as u64];
        let words = head.into_iter().chain(quantities().iter().map(|quantity| quantity.of(self)));
        tile.every().zip(words).for_each(|(to, number)| *to = number as i64);
    }

    fn unline(line: Row) -> Self {
        line
    }
}
