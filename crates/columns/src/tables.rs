//! What is a column: the tables of flow records and of rows. A value that is known is written, whatever it follows from: a
//! null says that a value is not known, or that there is none.

mod flows;
mod initial_packets;
mod put;
mod rows;
mod text;

pub use text::{Memo, read_address};

use crate::builder::Tile;
use crate::schema::{Column, ColumnPredicate, EncodingHint, Repetition, ValueType};
use crate::table_row::TableRow;

/// What can be written as columns.
pub trait Schema: TableRow {
    /// One of them beside what it takes to read it.
    type Line;
    /// What the schema is called.
    const NAME: &'static str;
    /// The columns that make its order.
    const ORDER: [&'static str; 3];
    /// The column that says how far a thing reaches, in the unit of the first of those.
    const LAST: &'static str;

    /// Columns that say what others say: nothing is taken from them.
    const MADE: &'static [&'static str];

    /// Whether this column of theirs takes part in the values of these fields; in anything at all without fields.
    fn is_needed(path: &str, _fields: Option<&[String]>) -> bool {
        !Self::MADE.contains(&path)
    }

    /// Its columns.
    fn columns() -> Vec<Column<Self::Line>>;

    /// Columns behind those, of text that no journal has and nothing is read from: the interface's name and, in a file for others,
    /// what takes too many bytes for a store.
    fn extras(is_given: bool) -> Vec<Column<Self::Line>>;

    /// Appends what a column of those says of this thing; that of the interface's name is not asked.
    fn extra(&self, path: &str, out: &mut Vec<u8>);

    /// The number of its interface.
    fn interface(&self) -> u16;

    /// Nothing read yet.
    fn blank() -> Self::Line;

    /// Puts its numbers into the next row of a tile, strip by strip in the order of the columns.
    fn put(&self, tile: &mut Tile);

    /// Once all columns are taken.
    fn unline(line: Self::Line) -> Self;
}

/// The path of the column with the name of the interface.
pub const INTERFACE: &str = "interface";

/// That column; null where a file is not below an interface's folder and nobody said a name.
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
