//! From things to a block ([`crate::block`] has what one is, and reads them).
//!
//! A thing's numbers are put one behind the other into a tile, each into its column's few dozen places there, without a
//! question of how wide they are; a tile that is full goes column by column into strips. So a thing is passed over once,
//! in the order of its fields, and all of a tile stays in the processor's nearest cache.

use crate::packed_column_builder::{PackedColumnBuilder, write_bits};
use crate::schema::{Column, Repetition, ValueType};
use crate::tables::Schema;
use sys::simd::{SimdLoop, simd};

/// Rows of a tile. A power of two: a place in it needs no check.
pub const TILE: usize = 32;

/// Rows of a block, at most.
const ROWS: usize = 24 * TILE;

/// Some rows on their way into strips.
pub struct Tile {
    /// Numbers of the rows, of each strip that has one of every row.
    every: Vec<[i64; TILE]>,
    /// And of each that has some.
    maybe: Vec<NullableColumn>,
    /// Leaves of lists.
    pub entries: Vec<Entries>,
    /// Bytes of the block, end to end.
    pub raw: Vec<Vec<u8>>,
    rows: usize,
}

/// Numbers that may be missing.
struct NullableColumn {
    there: [u8; TILE],
    values: [i64; TILE],
    count: usize,
}

/// A leaf of a list: numbers of the tile.
#[derive(Default)]
pub struct Entries {
    values: Vec<i64>,
    count: usize,
}

impl Entries {
    /// Room for so many numbers.
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

/// A row of a tile, filled strip by strip in the order of the table. `EVERY` and `MAYBE` are how many there are of each kind: known
/// to the compiler, the places of all strips are.
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
            maybe: (0..maybe).map(|_| NullableColumn { there: [0; TILE], values: [0; TILE], count: 0 }).collect(),
            entries: (0..entries).map(|_| Entries::default()).collect(),
            raw: vec![Vec::new(); raw],
            rows: 0,
        }
    }

    /// The row that is next; `None` if the table has other strips.
    #[inline(always)]
    pub fn row<const EVERY: usize, const MAYBE: usize>(&mut self) -> Option<Row<'_, EVERY, MAYBE>> {
        let every: &mut [_; EVERY] = self.every.as_mut_slice().try_into().ok()?;
        let maybe: &mut [_; MAYBE] = self.maybe.as_mut_slice().try_into().ok()?;
        Some(Row { every: every.iter_mut(), maybe: maybe.iter_mut(), row: self.rows % TILE })
    }

    /// Each strip that has a number of every row, at the row that is next.
    pub fn every(&mut self) -> impl Iterator<Item = &mut i64> {
        let row = self.rows % TILE;
        self.every.iter_mut().map(move |strip| &mut strip[row])
    }
}

impl<const EVERY: usize, const MAYBE: usize> Row<'_, EVERY, MAYBE> {
    /// A number.
    #[inline(always)]
    pub fn put(&mut self, number: u64) {
        if let Some(strip) = self.every.next() {
            strip[self.row] = number as i64;
        }
    }

    /// One that may be missing. What is not put is missing.
    #[inline(always)]
    pub fn maybe(&mut self, number: u64, is_there: bool) {
        if let Some(strip) = self.maybe.next() {
            strip.values[strip.count % TILE] = number as i64;
            strip.count += usize::from(is_there);
            strip.there[self.row] = u8::from(is_there);
        }
    }

    /// One of 128 bits that may be missing.
    #[inline(always)]
    pub fn maybe_wide(&mut self, number: u128, is_there: bool) {
        self.maybe(number as u64, is_there);
        self.maybe((number >> 64) as u64, is_there);
    }
}

/// Strips with a number of every row.
fn every<T>(column: &Column<T>) -> usize {
    match (column.repetition, column.value_type) {
        (Repetition::One, ValueType::Squares) => 2,
        (Repetition::One | Repetition::List, _) => 1,
        _ => 0,
    }
}

/// Strips of numbers that may be missing.
fn maybe<T>(column: &Column<T>) -> usize {
    match (column.repetition, column.value_type) {
        (Repetition::Maybe, ValueType::Squares) => 2,
        // Upper halves, of IPv6.
        (Repetition::Maybe, _) | (Repetition::One, ValueType::Addresses(_)) => 1,
        _ => 0,
    }
}

/// Leaves of lists.
fn entries<T>(column: &Column<T>) -> usize {
    usize::from(column.repetition.most_rep() > 0)
}

/// Makes blocks of things, one after the other.
pub struct Builder<T: Schema> {
    columns: Vec<Column<T::Line>>,
    tile: Box<Tile>,
    every: Vec<PackedColumnBuilder>,
    maybe: Vec<Sparse>,
    entries: Vec<PackedColumnBuilder>,
    rows: usize,
}

/// A strip of numbers that may be missing, and which rows of the block have one.
#[derive(Default)]
struct Sparse {
    packed: PackedColumnBuilder,
    there: Vec<u8>,
}

impl<T: Schema> Default for Builder<T> {
    fn default() -> Self {
        let columns = T::columns();
        let tile = Box::new(Tile::of(&columns));
        let every = tile.every.iter().map(|_| PackedColumnBuilder::default()).collect();
        let sparse = || Sparse { packed: PackedColumnBuilder::default(), there: vec![0; ROWS] };
        let maybe = tile.maybe.iter().map(|_| sparse()).collect();
        let entries = tile.entries.iter().map(|_| PackedColumnBuilder::default()).collect();
        Self { columns, tile, every, maybe, entries, rows: 0 }
    }
}

impl<T: Schema> Builder<T> {
    /// Takes one in; a block that is full is appended to `out`.
    #[inline]
    pub fn push(&mut self, thing: &T, out: &mut Vec<u8>) {
        thing.put(&mut self.tile);
        self.tile.rows += 1;
        if self.tile.rows == TILE {
            self.empty_tile();
            if self.rows >= ROWS {
                self.finish(out);
            }
        }
    }

    /// Appends what there is as a block.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.empty_tile();
        if self.rows == 0 {
            return;
        }
        let begin = out.len();
        out.extend([0; 4]);
        out.extend((self.rows as u32).to_le_bytes());
        let (mut strips, mut sparse) = (self.every.iter_mut(), self.maybe.iter_mut());
        let (mut leaves, mut raw) = (self.entries.iter_mut(), self.tile.raw.iter_mut());
        for column in &self.columns {
            strips.by_ref().take(every(column)).for_each(|strip| strip.finish(out));
            for (i, some) in sparse.by_ref().take(maybe(column)).enumerate() {
                // Halves of one number are missing together.
                if i == 0 {
                    write_bits(&some.there[..self.rows], out);
                }
                some.packed.finish(out);
            }
            for strip in leaves.by_ref().take(entries(column)) {
                strip.finish(out);
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
    /// Of the tile.
    rows: usize,
    /// Of the block, before those.
    before: usize,
}

impl SimdLoop for Emptying<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { tile, every, maybe, entries, rows, before } = self;
        // PERF: of a length that the compiler knows, the loops of a strip are straight; what is called is not compiled with
        // wide registers unless it is inlined, and what `for_each` is given often is not.
        if rows == TILE {
            for (strip, numbers) in every.iter_mut().zip(&tile.every) {
                strip.push(numbers);
            }
        } else {
            for (strip, numbers) in every.iter_mut().zip(&tile.every) {
                strip.push(&numbers[..rows]);
            }
        }
        for (sparse, some) in maybe.iter_mut().zip(&mut tile.maybe) {
            sparse.there[before..before + TILE].copy_from_slice(&some.there);
            sparse.packed.push(&some.values[..some.count]);
            some.there = [0; TILE];
            some.count = 0;
        }
        for (strip, leaf) in entries.iter_mut().zip(&mut tile.entries) {
            strip.push(&leaf.values[..leaf.count]);
            leaf.count = 0;
        }
    }
}
