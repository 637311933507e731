//! A kind of thing as columns: how each is called, declared, encoded, filled and taken apart again. The tables themselves
//! are in [`crate::tables`]; here is what they are made of. [`crate::chunk`] writes them.

use crate::tables::Memo;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::Result;
use std::net::IpAddr;

/// How values lie in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingHint {
    /// Each distinct value once, if there are few: for what repeats.
    Distinct,
    /// Each distinct value once, also if there are many.
    Wide,
    /// The same, up to [`crate::encode::OFTEN`] of them: beyond, numbers as they are become shorter.
    Often,
    /// As they are, compressed: for what is different mostly.
    Noise,
    /// As they are, and not compressed.
    Plain,
}

impl EncodingHint {
    /// Whether each distinct value is written once, if that is possible.
    pub fn has_dictionary(self) -> bool {
        matches!(self, Self::Distinct | Self::Often | Self::Wide)
    }
}

/// Nanoseconds of a microsecond.
pub const MICRO: i64 = 1000;

/// A moment in nanoseconds since 1970 as a file has it.
pub const fn micros(nanos: i64) -> i64 {
    (nanos as u64 / MICRO as u64) as i64
}

/// What a column holds in memory, and what it is as text.
#[derive(Clone, Copy)]
pub enum ValueType {
    /// Numbers of 64 bits.
    Longs,
    /// Moments: nanoseconds in memory, microseconds in a file, where another column has the rest.
    Moments,
    /// Numbers of 32 bits.
    Ints,
    /// Numbers of 128 bits, as decimals.
    Squares,
    /// Numbers that stand for text: how that is written, and read.
    Names(fn(i64, &mut Vec<u8>), fn(&[u8]) -> Option<i64>),
    /// Addresses, as text.
    Addresses(fn(IpAddr, &mut Vec<u8>)),
    /// Any bytes.
    Bytes,
}

/// How many values a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// One.
    One,
    /// One or none.
    Maybe,
    /// Any number of them.
    List,
    /// As many as the list before it that is a [`Self::List`].
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

/// What is asked of a column before its values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnPredicate {
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
    pub value_type: ValueType,
    /// See there.
    pub repetition: Repetition,
    /// See there.
    pub coding: EncodingHint,
    /// See there.
    pub predicate: ColumnPredicate,
    /// Handed to `take`.
    pub arg: usize,
    /// Puts cells into as many lines; `None` if they cannot be what [`crate::tables::Schema::put`] made.
    pub take: fn(&mut [T], usize, &Cells) -> Option<()>,
}

/// Values of one column on their way, of any number of rows.
#[derive(Default)]
pub struct Cells {
    /// Of a column of 64 bits, or of names.
    pub longs: Vec<i64>,
    /// Of one of 32 bits.
    pub ints: Vec<i32>,
    /// Of one of 128 bits.
    pub wide: Vec<u128>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Bytes, end to end.
    pub raw: Vec<u8>,
    /// Where each of those ends.
    pub ends: Vec<usize>,
    /// Whether a value is there: of each row, where it may be missing.
    pub there: Vec<u8>,
    /// Entries of each row, in the first leaf of a list, and in all of one that is to be written.
    pub counts: Vec<u32>,
    /// Instead of numbers: one that is repeated so many times.
    pub same: Option<(i64, usize)>,
    /// Instead of numbers: that each is so much above a byte.
    pub narrow: Option<i64>,
    /// Those bytes.
    pub octets: Vec<u8>,
    /// What the library reads into.
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
    /// Nothing in it.
    pub fn clear(&mut self) {
        self.longs.clear();
        self.ints.clear();
        self.wide.clear();
        self.addresses.clear();
        self.raw.clear();
        self.ends.clear();
        self.there.clear();
        self.counts.clear();
        self.same = None;
        self.narrow = None;
        self.octets.clear();
    }

    /// As many rows as there are, up to `most`; no number of them if a value is none that its column can have.
    ///
    /// # Errors
    /// What the library says of the pages.
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

    /// Levels as what they say.
    fn levels(&mut self, shape: Repetition) -> Option<()> {
        let Levels { def, rep, .. } = &self.read;
        match shape {
            Repetition::One => {}
            Repetition::Maybe => self.there.extend(def.iter().map(|def| u8::from(*def > 0))),
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

    /// Text as what it says.
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

/// The schema of these columns.
pub fn declaration<'a, T: 'a>(name: &str, columns: impl IntoIterator<Item = &'a Column<T>>) -> String {
    let fields: Vec<&str> = columns.into_iter().map(|c| c.declared.as_str()).collect();
    format!("message {name} {{ {} }}", fields.join(" "))
}
