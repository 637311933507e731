//! The tables of flow records and of series rows. A value that is known is always written, even if it could be computed
//! from other values: a null means that a value is unknown or does not exist.

mod flows;
mod initial_packets;
mod put;
mod record_line;
mod rows;

use crate::schema::{Column, ColumnPredicate, EncodingHint, Repetition, ValueType};
use crate::table_row::TableRow;
use crate::tile::Tile;

/// A table: its columns, and the conversion between rows and columns.
pub trait Schema: TableRow {
    /// A row under construction, with the state that is needed to decode it.
    type Line;
    /// The name of the schema.
    const NAME: &'static str;
    /// The columns that form the sort key.
    const ORDER: [&'static str; 3];
    /// The column with the timestamp at which a row ends, in the unit of the first column of [`Self::ORDER`].
    const LAST: &'static str;

    /// Columns that are derived from others and ignored when reading.
    const MADE: &'static [&'static str];

    /// True if a query for these fields must read the column `path`; `None` stands for all fields.
    fn is_needed(path: &str, _fields: Option<&[String]>) -> bool {
        !Self::MADE.contains(&path)
    }

    /// The columns.
    fn columns() -> Vec<Column<Self::Line>>;

    /// The text columns that follow the columns of [`Self::columns`]. No journal contains them, and they are ignored
    /// when a file is read. They are the interface name and, in a file outside of a store, columns that would take too
    /// much space in a store.
    fn extras(is_given: bool) -> Vec<Column<Self::Line>>;

    /// Appends the text of the extra column `path` for this row. This function is not called for the interface name.
    fn extra(&self, path: &str, out: &mut Vec<u8>);

    /// The interface number.
    fn interface(&self) -> u16;

    /// An empty line.
    fn blank() -> Self::Line;

    /// Writes the numbers into the next row of a tile, in the order of the packed columns.
    fn put(&self, tile: &mut Tile);

    /// Converts a row under construction to a row, after all its columns have been read.
    fn unline(line: Self::Line) -> Self;
}

/// The path of the column with the interface name.
pub const INTERFACE: &str = "interface";

/// The column with the interface name; null if the file is outside of an interface's directory and no name is known.
pub fn interface<L>() -> Column<L> {
    Column {
        path: INTERFACE.into(),
        declared: format!("optional binary {INTERFACE} (STRING);"),
        repetition: Repetition::Maybe,
        value_type: ValueType::Bytes,
        coding: EncodingHint::Distinct,
        predicate: ColumnPredicate::Never,
        arg: 0,
        take: |_, _, _| Some(()),
    }
}
