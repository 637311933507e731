//! A tile holds the numbers of a few dozen rows, arranged by column, before they are appended to the packed columns.

use crate::schema::{Column, Repetition, ValueType};

/// Number of rows of a tile. It is a power of two, so that a masked index needs no bounds check.
pub const TILE: usize = 32;

/// Rows that are not yet appended to the packed columns.
pub struct Tile {
    /// The numbers of each packed column that has a number in every row.
    pub every: Vec<[i64; TILE]>,
    /// The numbers of each packed column whose values may be missing.
    pub maybe: Vec<NullableColumn>,
    /// The numbers of each leaf column of a list.
    pub entries: Vec<Entries>,
    /// For each column of byte strings, the strings of all rows of the block, concatenated.
    pub raw: Vec<Vec<u8>>,
    /// Number of complete rows.
    pub rows: usize,
}

/// The numbers of a packed column whose values may be missing.
pub struct NullableColumn {
    /// For each row of the tile, 1 if the column has a value in this row, otherwise 0.
    pub present: [u8; TILE],
    /// The values that are present. Only the first `count` elements are valid.
    pub values: [i64; TILE],
    /// Number of values.
    pub count: usize,
}

/// The numbers of one leaf of a list.
#[derive(Default)]
pub struct Entries {
    /// The numeric values of the list entries. Only the first `count` elements are valid.
    pub values: Vec<i64>,
    /// Number of valid elements of `values`.
    pub count: usize,
}

impl Entries {
    /// Appends `count` numbers and returns them, so that the caller writes their values.
    #[inline]
    pub fn reserve(&mut self, count: usize) -> &mut [i64] {
        let begin = self.count;
        self.count += count;
        if self.values.len() < self.count {
            self.values.resize(self.count.next_power_of_two(), 0);
        }
        &mut self.values[begin..self.count]
    }
}

/// A row of a tile, filled column by column in schema order. `EVERY` is the number of packed columns with a number in
/// every row, `MAYBE` the number of packed columns whose values may be missing. Both are constants, so that the
/// compiler computes all offsets.
pub struct Row<'a, const EVERY: usize, const MAYBE: usize> {
    every: std::slice::IterMut<'a, [i64; TILE]>,
    maybe: std::slice::IterMut<'a, NullableColumn>,
    row: usize,
}

impl Tile {
    /// An empty tile for these columns.
    pub fn of<T>(columns: &[Column<T>]) -> Self {
        let sum = |parts: fn(&Column<T>) -> usize| columns.iter().map(parts).sum();
        let (every, maybe, entries): (usize, usize, usize) = (sum(every), sum(maybe), sum(entries));
        let raw = columns.iter().filter(|column| matches!(column.value_type, ValueType::Bytes)).count();
        Self {
            every: vec![[0; TILE]; every],
            maybe: (0..maybe).map(|_| NullableColumn { present: [0; TILE], values: [0; TILE], count: 0 }).collect(),
            entries: (0..entries).map(|_| Entries::default()).collect(),
            raw: vec![Vec::new(); raw],
            rows: 0,
        }
    }

    /// The next row; `None` if `EVERY` or `MAYBE` differs from the number of packed columns of its kind in the schema.
    #[inline(always)]
    pub fn row<const EVERY: usize, const MAYBE: usize>(&mut self) -> Option<Row<'_, EVERY, MAYBE>> {
        let every: &mut [_; EVERY] = self.every.as_mut_slice().try_into().ok()?;
        let maybe: &mut [_; MAYBE] = self.maybe.as_mut_slice().try_into().ok()?;
        Some(Row { every: every.iter_mut(), maybe: maybe.iter_mut(), row: self.rows % TILE })
    }

    /// The cells of the next row in those packed columns that have a number in every row.
    pub fn every(&mut self) -> impl Iterator<Item = &mut i64> {
        let row = self.rows % TILE;
        self.every.iter_mut().map(move |packed| &mut packed[row])
    }
}

impl<const EVERY: usize, const MAYBE: usize> Row<'_, EVERY, MAYBE> {
    /// Writes the next number.
    #[inline(always)]
    pub fn put(&mut self, number: u64) {
        if let Some(packed) = self.every.next() {
            packed[self.row] = number as i64;
        }
    }

    /// Writes the number of the row in the next of the columns that permit missing numbers. If this function is not
    /// called for a column, the number of the row is missing in the column.
    #[inline(always)]
    pub fn maybe(&mut self, number: u64, is_present: bool) {
        if let Some(packed) = self.maybe.next() {
            packed.values[packed.count % TILE] = number as i64;
            packed.count += usize::from(is_present);
            packed.present[self.row] = u8::from(is_present);
        }
    }

    /// As [`Row::maybe`], with 128 bits.
    #[inline(always)]
    pub fn maybe_wide(&mut self, number: u128, is_present: bool) {
        self.maybe(number as u64, is_present);
        self.maybe((number >> 64) as u64, is_present);
    }
}

/// Number of packed columns that have a number in every row.
pub fn every<T>(column: &Column<T>) -> usize {
    match (column.repetition, column.value_type) {
        (Repetition::One, ValueType::Squares) => 2,
        (Repetition::One | Repetition::List, _) => 1,
        _ => 0,
    }
}

/// Number of nullable packed columns.
pub fn maybe<T>(column: &Column<T>) -> usize {
    match (column.repetition, column.value_type) {
        (Repetition::Maybe, ValueType::Squares) => 2,
        // The upper halves of IPv6 addresses.
        (Repetition::Maybe, _) | (Repetition::One, ValueType::Addresses(_)) => 1,
        _ => 0,
    }
}

/// Number of leaves of lists.
pub fn entries<T>(column: &Column<T>) -> usize {
    usize::from(column.repetition.most_rep() > 0)
}
