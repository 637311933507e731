//! Encodes rows into journal blocks ([`crate::block`] describes the layout and decodes them).
//!
//! The numbers of a row are first written to a [`Tile`], without regard to their width. A full tile is appended column
//! by column to the packed columns. So each row is traversed once, in the order of its fields, and the tile stays in
//! the L1 cache.

use crate::packed_column_builder::{PackedColumnBuilder, write_bits};
use crate::schema::{Column, ValueType};
use crate::tables::Schema;
use crate::tile::{TILE, Tile, entries, every, maybe};
use sys::simd::{SimdLoop, simd};

/// Greatest number of rows in a block.
const ROWS: usize = 24 * TILE;

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
    /// Adds a row. If this completes a block, the block is appended to `out`.
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

    /// Makes a block of the rows that are not yet in a block, and appends it to `out`.
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
    /// Number of rows of the block that earlier tiles contained.
    before: usize,
}

impl SimdLoop for Emptying<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { tile, every, maybe, entries, rows, before } = self;
        // PERF: with a length known at compile time the loops over a column have no remainder. Functions must be
        // inlined to be compiled with wide registers, and closures passed to `for_each` are often not inlined.
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
