//! What is a column: the tables of flow records and of rows.
//!
//! A record has many numbers that follow from its first packets, as long as those are all it has. Such a number is not
//! written a second time: its column is null where it is what [`Guess`] says, and whoever reads here gets it back. What
//! people ask for in SQL (ends, times, packets, bytes, flags, round trips) is always written.

mod early;
mod flows;
mod guess;
mod put;
mod rows;
mod text;
mod whole;

pub use text::{Memo, read_address};
pub use whole::Whole;

use crate::builder::Tile;
use crate::sheet::Column;
use crate::thing::Thing;

/// What can be written as columns.
pub trait Layout: Thing {
    /// One of them beside what it takes to read it.
    type Line;
    /// What the schema is called.
    const NAME: &'static str;
    /// The columns that make its order.
    const ORDER: [&'static str; 3];

    /// Its columns.
    fn columns() -> Vec<Column<Self::Line>>;

    /// Nothing read yet.
    fn blank() -> Self::Line;

    /// Puts its numbers into the next row of a tile, strip by strip in the order of the columns.
    fn put(&self, tile: &mut Tile);

    /// After the first `n` columns are taken, what the next are compared with is known.
    fn settle(columns_taken: usize, lines: &mut [Self::Line]);

    /// Once all columns are taken.
    fn unline(line: Self::Line) -> Self;
}
