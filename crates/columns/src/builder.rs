//! Encodes rows into journal blocks ([`crate::block`] describes the layout and decodes them).
//!
//! The numbers of a row are first written to a tile, an array of a few dozen rows by columns, without regard to their
//! width. A full tile is appended column by column to the packed columns. So each row is traversed once, in the order
//! of its fields, and the tile stays in the L1 cache.

use crate::packed_column_builder::{PackedColumnBuilder, write_bits};
use crate::schema::{Column, Repetition, ValueType};
use crate::tables::Schema;
use sys::simd::{SimdLoop, simd};

/// Rows of a tile. A power of two, so that a masked index needs no bounds check.
pub const TILE: usize = 32;

/// Greatest number of rows in a block.
const ROWS: usize = 24 * TILE;

/// Rows that are not yet appended to the packed columns.
pub struct Tile {
    /// The numbers of each packed column that has a number in every row.
    every: Vec<[i64; TILE]>,
    /// The numbers of each nullable packed column.
    maybe: Vec<NullableColumn>,
    /// The numbers of the leaves of lists.
    pub entries: Vec<Entries>,
    /// The byte strings of the block, concatenated.
    pub raw: Vec<Vec<u8>>,
    rows: usize,
}

/// The numbers of a nullable column.
struct NullableColumn {
    present: [u8; TILE],
    values: [i64; TILE],
    count: usize,
}

/// The numbers of one leaf of a list.
#[derive(Default)]
pub struct Entries {
    values: Vec<i64>,
    count: usize,
}

impl Entries {
    /// Appends `count` numbers, which the caller writes.
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

/// A row of a tile, filled column by column in schema order. `EVERY` and `MAYBE` are the numbers of packed columns of
/// each kind; as constants they let the compiler compute all offsets.
pub struct Row<'a, const EVERY: usize, const MAYBE: usize> {
    every: std::slice::IterMut<'a, [i64; TILE]>,
    maybe: std::slice::IterMut<'a, NullableColumn>,
    row: usize,
}

impl Tile {
    fn of<T>(columns: &[Column<T>]) -> Self {
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

    /// The next row; `None` if the schema has other numbers of packed columns.
    #[inline(always)]
    pub fn row<const EVERY: usize, const MAYBE: usize>(&mut self) -> Option<Row<'_, EVERY, MAYBE>> {
        let every: &mut [_; EVERY] = self.every.as_mut_slice().try_into().ok()?;
        let maybe: &mut [_; MAYBE] = self.maybe.as_mut_slice().try_into().ok()?;
        Some(Row { every: every.iter_mut(), maybe: maybe.iter_mut(), row: self.rows % TILE })
    }

    /// The cells of the next row, of the packed columns that have a number in every row.
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

    /// Writes the next number that may be missing. Numbers that are not written are missing.
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
fn every<T>(column: &Column<T>) -> usize {
    match (column.repetition, column.value_type) {
        (Repetition::One, ValueType::Squares) => 2,
        (Repetition::One | Repetition::List, _) => 1,
        _ => 0,
    }
}

/// Number of nullable packed columns.
fn maybe<T>(column: &Column<T>) -> usize {
    match (column.repetition, column.value_type) {
        (Repetition::Maybe, ValueType::Squares) => 2,
        // The upper halves of IPv6 addresses.
        (Repetition::Maybe, _) | (Repetition::One, ValueType::Addresses(_)) => 1,
        _ => 0,
    }
}

/// Number of leaves of lists.
fn entries<T>(column: &Column<T>) -> usize {
    usize::from(column.repetition.most_rep() > 0)
}

/// Encodes rows into consecutive blocks.
pub struct Builder<T: Schema> {
    columns: Vec<Column<T::Line>>,
    tile: Box<Tile>,
    every: Vec<PackedColumnBuilder>,
    maybe: Vec<Sparse>,
    entries: Vec<PackedColumnBuilder>,
    rows: usize,
}

/// A nullable packed column and its presence bitmap.
#[derive(Default)]
struct Sparse {
    packed: PackedColumnBuilder,
    present: Vec<u8>,
}

impl<T: Schema> Default for Builder<T> {
    fn default() -> Self {
        let columns = T::columns();
        let tile = Box::new(Tile::of(&columns));
        let every = tile.every.iter().map(|_| PackedColumnBuilder::default()).collect();
        let sparse = || Sparse { packed: PackedColumnBuilder::default(), present: vec![0; ROWS] };
        let maybe = tile.maybe.iter().map(|_| sparse()).collect();
        let entries = tile.entries.iter().map(|_| PackedColumnBuilder::default()).collect();
        Self { columns, tile, every, maybe, entries, rows: 0 }
    }
}

impl<T: Schema> Builder<T> {
    /// Adds a row; a full block is appended to `out`.
    #[inline]
    pub fn push(&mut self, row: &T, out: &mut Vec<u8>) {
        row.put(&mut self.tile);
        self.tile.rows += 1;
        if self.tile.rows == TILE {
            self.empty_tile();
            if self.rows >= ROWS {
                self.finish(out);
            }
        }
    }

    /// Appends the pending rows as a block.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.empty_tile();
        if self.rows == 0 {
            return;
        }
        let begin = out.len();
        out.extend([0; 4]);
        out.extend((self.rows as u32).to_le_bytes());
        let (mut packed_columns, mut sparse) = (self.every.iter_mut(), self.maybe.iter_mut());
        let (mut leaves, mut raw) = (self.entries.iter_mut(), self.tile.raw.iter_mut());
        for column in &self.columns {
            packed_columns.by_ref().take(every(column)).for_each(|packed| packed.finish(out));
            for (i, some) in sparse.by_ref().take(maybe(column)).enumerate() {
                // Both halves of a number share one presence bitmap.
                if i == 0 {
                    write_bits(&some.present[..self.rows], out);
                }
                some.packed.finish(out);
            }
            for packed in leaves.by_ref().take(entries(column)) {
                packed.finish(out);
            }
            if matches!(column.value_type, ValueType::Bytes) {
                raw.by_ref().take(1).for_each(|raw| out.append(raw));
            }
        }
        let len = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
        self.rows = 0;
    }

    fn empty_tile(&mut self) {
        let rows = std::mem::take(&mut self.tile.rows);
        if rows == 0 {
            return;
        }
        let Self { tile, every, maybe, entries, .. } = self;
        simd(Emptying { tile, every, maybe, entries, rows, before: self.rows });
        self.rows += rows;
    }
}

struct Emptying<'a> {
    tile: &'a mut Tile,
    every: &'a mut [PackedColumnBuilder],
    maybe: &'a mut [Sparse],
    entries: &'a mut [PackedColumnBuilder],
    /// Rows in the tile.
    rows: usize,
    /// Rows of the block before the tile.
    before: usize,
}

impl SimdLoop for Emptying<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { tile, every, maybe, entries, rows, before } = self;
        // PERF: with a length known at compile time the loops over a column have no remainder. Functions must be
        // inlined to be compiled with wide registers, and closures passed to `for_each` often are not.
        if rows == TILE {
            for (packed, numbers) in every.iter_mut().zip(&tile.every) {
                packed.push(numbers);
            }
        } else {
            for (packed, numbers) in every.iter_mut().zip(&tile.every) {
                packed.push(&numbers[..rows]);
            }
        }
        for (sparse, some) in maybe.iter_mut().zip(&mut tile.maybe) {
            sparse.present[before..before + TILE].copy_from_slice(&some.present);
            sparse.packed.push(&some.values[..some.count]);
            some.present = [0; TILE];
            some.count = 0;
        }
        for (packed, leaf) in entries.iter_mut().zip(&mut tile.entries) {
            packed.push(&leaf.values[..leaf.count]);
            leaf.count = 0;
        }
    }
}
