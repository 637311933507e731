//! A kind of thing as columns: how each is called, declared, encoded, filled and taken apart again. The tables themselves
//! are in [`crate::layout`]; here is what they are made of. [`crate::chunk`] writes them.

use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::Result;
use std::net::IpAddr;

/// How values lie in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Each distinct value once, if there are few: for what repeats.
    Distinct,
    /// Each distinct value once, also if there are many.
    Wide,
    /// Differences: for what grows.
    Growing,
    /// First all lowest bytes, then all second ones: for what is noise below and alike above.
    Bytewise,
    /// As they are, and not compressed.
    Plain,
}

/// What a column holds in memory, and what it is as text.
#[derive(Clone, Copy)]
pub enum Holds {
    /// Numbers of 64 bits.
    Longs,
    /// Numbers of 32 bits.
    Ints,
    /// Numbers of 128 bits, as decimals.
    Squares,
    /// Numbers that stand for text.
    Names(fn(i64, &mut Vec<u8>)),
    /// Addresses, as text.
    Addresses(fn(IpAddr, &mut Vec<u8>)),
    /// Any bytes.
    Bytes,
}

/// What is asked of a column before its values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Never,
    /// Least and greatest of a row group.
    Range,
    /// Whether a row group has it at all.
    Member,
}

/// One leaf of the schema.
pub struct Column<T> {
    /// Its path, as Parquet writes it.
    pub path: String,
    /// Its declaration in Parquet's language; that of a whole group stands with its first leaf.
    pub declared: String,
    /// See there.
    pub holds: Holds,
    /// See there.
    pub coding: Coding,
    /// See there.
    pub asked: Asked,
    /// Handed to `fill` and `take`.
    pub arg: usize,
    /// Appends the cells of these lines.
    pub fill: fn(&[T], usize, &mut Cells),
    /// Puts cells into as many lines; `None` if they cannot be what `fill` made.
    pub take: fn(&mut [T], usize, &Cells) -> Option<()>,
}

/// Values of one column on their way.
#[derive(Default)]
pub struct Cells {
    /// Of a column of 64 bits.
    pub longs: Vec<i64>,
    /// Of one of 32 bits.
    pub ints: Vec<i32>,
    /// Of one of 128 bits, to be written.
    pub wide: Vec<u128>,
    /// Addresses to be written.
    pub addresses: Vec<IpAddr>,
    /// Bytes to be written, end to end.
    pub raw: Vec<u8>,
    /// Where each of those ends.
    pub ends: Vec<usize>,
    /// Text and bytes that were read.
    pub bytes: Vec<ByteArray>,
    /// Of a fixed length, the same.
    pub fixed: Vec<FixedLenByteArray>,
    /// Definition levels, where there are any.
    pub def: Vec<i16>,
    /// Repetition levels, the same.
    pub rep: Vec<i16>,
}

impl Cells {
    /// Nothing in it.
    pub fn clear(&mut self) {
        self.longs.clear();
        self.ints.clear();
        self.wide.clear();
        self.addresses.clear();
        self.raw.clear();
        self.ends.clear();
        self.bytes.clear();
        self.fixed.clear();
        self.def.clear();
        self.rep.clear();
    }

    /// Ends one value of `raw`.
    pub fn end(&mut self) {
        self.ends.push(self.raw.len());
    }

    /// As many records as there are, up to `most`.
    pub fn read(&mut self, from: &mut ColumnReader, most: usize) -> Result<usize> {
        self.clear();
        let (def, rep) = (Some(&mut self.def), Some(&mut self.rep));
        let (records, ..) = match from {
            ColumnReader::Int64ColumnReader(r) => r.read_records(most, def, rep, &mut self.longs)?,
            ColumnReader::Int32ColumnReader(r) => r.read_records(most, def, rep, &mut self.ints)?,
            ColumnReader::ByteArrayColumnReader(r) => r.read_records(most, def, rep, &mut self.bytes)?,
            ColumnReader::FixedLenByteArrayColumnReader(r) => r.read_records(most, def, rep, &mut self.fixed)?,
            _ => (0, 0, 0),
        };
        Ok(records)
    }
}

/// The schema of these columns.
pub fn declaration<T>(name: &str, columns: &[Column<T>]) -> String {
    let fields: Vec<&str> = columns.iter().map(|c| c.declared.as_str()).collect();
    format!("message {name} {{ {} }}", fields.join(" "))
}
