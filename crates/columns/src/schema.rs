//! Describes the columns of a table: name, declaration, encoding, and conversion from cells to rows. The tables
//! themselves are in [`crate::tables`]; [`crate::chunk`] writes the columns.

use crate::text::Memo;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::Result;
use std::net::IpAddr;

/// How the values of a column are encoded in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingHint {
    /// Small dictionary, for values that repeat; PLAIN if there are many distinct values.
    Distinct,
    /// Dictionary encoding, also with many distinct values.
    Wide,
    /// Dictionary of up to [`crate::encode::OFTEN`] distinct values. A column with more distinct values is shorter in
    /// PLAIN encoding.
    Often,
    /// PLAIN encoding with compression, for values that mostly differ.
    Noise,
    /// PLAIN and not compressed.
    Plain,
}

impl EncodingHint {
    /// True if the values get a dictionary where possible.
    pub fn has_dictionary(self) -> bool {
        matches!(self, Self::Distinct | Self::Often | Self::Wide)
    }
}

/// Nanoseconds per microsecond.
pub const MICRO: i64 = 1000;

/// Converts a timestamp in nanoseconds since 1970 to the unit of the file.
pub const fn micros(nanos: i64) -> i64 {
    (nanos as u64 / MICRO as u64) as i64
}

/// The type of a column's values in memory, with the conversion to text where the file holds text.
#[derive(Clone, Copy)]
pub enum ValueType {
    /// Numbers of 64 bits.
    Longs,
    /// Timestamps: nanoseconds in memory, microseconds in the file, where another column holds the remainder.
    Moments,
    /// Numbers of 32 bits.
    Ints,
    /// Numbers of 128 bits, as decimals.
    Squares,
    /// Numbers that are text in the file; the functions format and parse this text.
    Names(fn(i64, &mut Vec<u8>), fn(&[u8]) -> Option<i64>),
    /// Addresses that are text in the file, with formatter.
    Addresses(fn(IpAddr, &mut Vec<u8>)),
    /// Byte strings.
    Bytes,
}

/// Number of values per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Exactly one.
    One,
    /// Zero or one.
    Maybe,
    /// Any number of values; the first leaf of a list.
    List,
    /// As many values as the preceding [`Self::List`]; a further leaf of the same list.
    Entries,
}

impl Repetition {
    /// Greatest repetition level.
    pub fn most_rep(self) -> u8 {
        u8::from(!matches!(self, Self::One | Self::Maybe))
    }

    /// Greatest definition level.
    pub fn most_def(self) -> u8 {
        match self {
            Self::One => 0,
            Self::Maybe | Self::List | Self::Entries => 1,
        }
    }
}

/// How queries exclude row groups by a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnPredicate {
    /// Not at all.
    Never,
    /// Queries compare the searched value with the minimum and maximum of the row group.
    Range,
    /// Queries compare the searched value with a Bloom filter of the row group.
    Member,
}

/// One leaf column of the schema.
pub struct Column<T> {
    /// Its path in Parquet.
    pub path: String,
    /// The declaration of the column in Parquet's schema language; the first leaf of a group has the declaration of the
    /// whole group.
    pub declared: String,
    /// The type of its values.
    pub value_type: ValueType,
    /// How many values each row has in this column.
    pub repetition: Repetition,
    /// The encoding.
    pub coding: EncodingHint,
    /// How queries use the values of this column to exclude row groups.
    pub predicate: ColumnPredicate,
    /// An argument for `take`.
    pub arg: usize,
    /// Writes the cells into `lines`, one row per line. Returns `None` if the cells have values that
    /// [`crate::tables::Schema::put`] never writes.
    pub take: fn(&mut [T], usize, &Cells) -> Option<()>,
}

/// Decoded or not yet encoded values of one column, for some rows.
#[derive(Default)]
pub struct Cells {
    /// Values of 64-bit columns, and numbers of columns that are text in the file, such as the TCP state.
    pub longs: Vec<i64>,
    /// Values of 32-bit columns.
    pub ints: Vec<i32>,
    /// Values of 128-bit columns.
    pub wide: Vec<u128>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Byte strings, concatenated.
    pub raw: Vec<u8>,
    /// For each byte string, the offset in `raw` at which it ends.
    pub ends: Vec<usize>,
    /// For each row of a nullable column, 1 if it has a value, otherwise 0.
    pub present: Vec<u8>,
    /// Number of list entries of each row: when reading, only in the first leaf of a list; when writing, in all its
    /// leaves.
    pub counts: Vec<u32>,
    /// If all numbers are equal, the number and how often it occurs. The other fields then contain no numbers.
    pub same: Option<(i64, usize)>,
    /// If the numbers are stored as one byte each in `octets`, the base that is added to each byte.
    pub narrow: Option<i64>,
    /// Numbers that are stored as one byte each: the difference from the base `narrow`.
    pub octets: Vec<u8>,
    /// Buffers of the parquet library.
    read: Levels,
}

#[derive(Default)]
struct Levels {
    def: Vec<i16>,
    rep: Vec<i16>,
    bytes: Vec<ByteArray>,
    fixed: Vec<FixedLenByteArray>,
}

impl Cells {
    /// Removes all values.
    pub fn clear(&mut self) {
        self.longs.clear();
        self.ints.clear();
        self.wide.clear();
        self.addresses.clear();
        self.raw.clear();
        self.ends.clear();
        self.present.clear();
        self.counts.clear();
        self.same = None;
        self.narrow = None;
        self.octets.clear();
    }

    /// Reads up to `most` rows; returns their number, or `None` if a value is invalid for its column.
    ///
    /// # Errors
    /// Errors of the parquet library.
    pub fn read<T>(&mut self, column: &Column<T>, from: &mut ColumnReader, most: usize) -> Result<Option<usize>> {
        self.clear();
        let Levels { def, rep, bytes, fixed } = &mut self.read;
        def.clear();
        rep.clear();
        bytes.clear();
        fixed.clear();
        let levels = (Some(&mut *def), Some(&mut *rep));
        let (rows, ..) = match from {
            ColumnReader::Int64ColumnReader(r) => r.read_records(most, levels.0, levels.1, &mut self.longs)?,
            ColumnReader::Int32ColumnReader(r) => r.read_records(most, levels.0, levels.1, &mut self.ints)?,
            ColumnReader::ByteArrayColumnReader(r) => r.read_records(most, levels.0, levels.1, bytes)?,
            ColumnReader::FixedLenByteArrayColumnReader(r) => r.read_records(most, levels.0, levels.1, fixed)?,
            _ => (0, 0, 0),
        };
        let known = self.levels(column.repetition).and_then(|()| self.known(column.value_type));
        Ok(known.map(|()| rows))
    }

    /// Converts definition and repetition levels to `present` and `counts`.
    fn levels(&mut self, shape: Repetition) -> Option<()> {
        let Levels { def, rep, .. } = &self.read;
        match shape {
            Repetition::One => {}
            Repetition::Maybe => self.present.extend(def.iter().map(|def| u8::from(*def > 0))),
            Repetition::List | Repetition::Entries => {
                (def.len() == rep.len() && rep.first().is_none_or(|rep| *rep == 0)).then_some(())?;
                for (def, rep) in def.iter().zip(rep) {
                    match (*rep, *def) {
                        (0, 0) => self.counts.push(0),
                        (0, _) => self.counts.push(1),
                        (_, 0) => return None,
                        _ => *self.counts.last_mut()? += 1,
                    }
                }
            }
        }
        Some(())
    }

    /// Parses text into numbers or addresses.
    fn known(&mut self, holds: ValueType) -> Option<()> {
        let Levels { bytes, fixed, .. } = &self.read;
        match holds {
            ValueType::Longs | ValueType::Ints => {}
            ValueType::Moments => self.longs.iter_mut().for_each(|micros| *micros = micros.wrapping_mul(MICRO)),
            ValueType::Squares => {
                for square in fixed {
                    self.wide.push(u128::from_be_bytes(square.data().try_into().ok()?));
                }
            }
            ValueType::Names(_, read) => {
                for name in bytes {
                    self.longs.push(read(name.data())?);
                }
            }
            ValueType::Addresses(_) => {
                let mut memo = Memo::default();
                for text in bytes {
                    self.addresses.push(memo.address(text.data())?);
                }
            }
            ValueType::Bytes => {
                for some in bytes {
                    self.raw.extend_from_slice(some.data());
                    self.ends.push(self.raw.len());
                }
            }
        }
        Some(())
    }
}

/// The Parquet schema with these columns, in Parquet's schema language.
pub fn declaration<'a, T: 'a>(name: &str, columns: impl IntoIterator<Item = &'a Column<T>>) -> String {
    let fields: Vec<&str> = columns.into_iter().map(|c| c.declared.as_str()).collect();
    format!("message {name} {{ {} }}", fields.join(" "))
}
