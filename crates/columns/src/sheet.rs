//! A kind of thing as columns: how each is called, declared, encoded, filled and taken apart again. The tables themselves
//! are in [`crate::layout`]; here is what they are made of, and one row group's way to and from a file.

use crate::seal::GROUP;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

/// How values lie in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Each distinct value once: for what repeats.
    Distinct,
    /// Differences: for what grows.
    Growing,
    /// First all lowest bytes, then all second ones: for what is noise below and alike above.
    Bytewise,
    /// As they are.
    Plain,
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
    /// Text and other bytes to be written, end to end.
    pub raw: Vec<u8>,
    /// Where each of those ends.
    pub ends: Vec<usize>,
    /// Bytes that were read.
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

    /// All of it; nothing is left.
    pub fn write(&mut self, to: &mut ColumnWriter<'_>) -> Result<()> {
        let def = (!self.def.is_empty()).then_some(&self.def[..]);
        let rep = (!self.rep.is_empty()).then_some(&self.rep[..]);
        match to {
            ColumnWriter::Int64ColumnWriter(w) => w.write_batch(&self.longs, def, rep)?,
            ColumnWriter::Int32ColumnWriter(w) => w.write_batch(&self.ints, def, rep)?,
            ColumnWriter::ByteArrayColumnWriter(w) => w.write_batch(&sliced(&mut self.raw, &self.ends), def, rep)?,
            ColumnWriter::FixedLenByteArrayColumnWriter(w) => {
                let values = sliced(&mut self.raw, &self.ends).into_iter().map(FixedLenByteArray::from);
                w.write_batch(&values.collect::<Vec<_>>(), def, rep)?
            }
            _ => 0,
        };
        self.clear();
        Ok(())
    }
}

/// One allocation for all values.
fn sliced(raw: &mut Vec<u8>, ends: &[usize]) -> Vec<ByteArray> {
    let all = ByteArray::from(std::mem::take(raw));
    let mut from = 0;
    let slice = |end: &usize| {
        let slice = all.slice(from, end - from);
        from = *end;
        slice
    };
    ends.iter().map(slice).collect()
}

/// The schema of these columns.
pub fn declaration<T>(name: &str, columns: &[Column<T>]) -> String {
    let fields: Vec<&str> = columns.iter().map(|c| c.declared.as_str()).collect();
    format!("message {name} {{ {} }}", fields.join(" "))
}

/// How these columns are written.
pub fn properties<T>(columns: &[Column<T>]) -> WriterPropertiesBuilder {
    // Level 1: see docs/COLUMNS.md for what the others would give.
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("netgrain ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        // A page for each column of a row group: the library makes a compressor for each page, which costs more than the page.
        .set_data_page_row_count_limit(GROUP)
        .set_max_row_group_row_count(None);
    for column in columns {
        let path = ColumnPath::from(column.path.split('.').map(str::to_owned).collect::<Vec<_>>());
        builder = builder.set_column_dictionary_enabled(path.clone(), column.coding == Coding::Distinct);
        builder = match column.coding {
            Coding::Distinct => builder,
            Coding::Growing => builder.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED),
            Coding::Bytewise => builder.set_column_encoding(path.clone(), Encoding::BYTE_STREAM_SPLIT),
            Coding::Plain => builder.set_column_encoding(path.clone(), Encoding::PLAIN),
        };
        if column.coding == Coding::Plain && column.asked != Asked::Never {
            // A hash: nothing makes it shorter.
            builder = builder.set_column_compression(path.clone(), Compression::UNCOMPRESSED);
        }
        if column.asked != Asked::Never {
            builder = builder.set_column_statistics_enabled(path.clone(), EnabledStatistics::Chunk);
        }
        if column.asked == Asked::Member {
            builder = builder.set_column_bloom_filter_enabled(path.clone(), true);
            builder = builder.set_column_bloom_filter_fpp(path.clone(), 0.02);
            builder = builder.set_column_bloom_filter_max_ndv(path, GROUP as u64);
        }
    }
    builder
}
