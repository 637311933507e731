//! Writes one column chunk of a row group: pages with their headers and checksums (parquet-format, `README.md` and
//! `parquet.thrift`), and the metadata of the chunk for the footer.
//!
//! The parquet library writes the footer. Pages are written here because the library computes no page checksums and
//! creates a compressor for each page.

use crate::encode::{self, Dictionary, Key, NARROW, Number, OFTEN, WIDE};
use crate::page_compression::{Page as Raw, PageCompressor};
use crate::schema::{Cells, Column, ColumnPredicate, EncodingHint, Repetition, ValueType, micros};
use crate::stripe::Numbers;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, SortOrder, ZstdLevel};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use std::collections::HashSet;
use std::net::IpAddr;

/// False-positive rate of a Bloom filter.
const WRONG: f64 = 0.05;

/// Writes column chunks one after the other and reuses its buffers.
pub struct ChunkWriter {
    packer: PageCompressor,
    longs: Dictionary<i64>,
    ints: Dictionary<i32>,
    squares: Dictionary<u128>,
    addresses: Dictionary<IpAddr>,
    dictionary: Raw,
    data: Raw,
    packed: [Vec<u8>; 2],
    places: Vec<u8>,
    /// Paths of the columns that had too many distinct numbers for a dictionary in an earlier row group; no dictionary
    /// is tried for them again, because most later row groups have too many as well.
    various: HashSet<String>,
    rep: Vec<u8>,
    def: Vec<u8>,
}

/// The encoding of a data page, and the number of dictionary entries if there is a dictionary.
#[derive(Clone, Copy)]
struct PageForm {
    encoding: Encoding,
    keys: Option<usize>,
}

impl PageForm {
    const fn of(encoding: Encoding) -> Self {
        Self { encoding, keys: None }
    }
}

impl ChunkWriter {
    /// # Errors
    /// If there is no memory for the compressor.
    pub fn new() -> Result<Self> {
        let (longs, ints, squares, addresses) =
            (Dictionary::new(), Dictionary::new(), Dictionary::new(), Dictionary::new());
        let (dictionary, data, packed) = (Raw::default(), Raw::default(), Default::default());
        let (packer, places, rep, def) = (PageCompressor::new()?, Vec::new(), Vec::new(), Vec::new());
        let various = HashSet::new();
        Ok(Self { packer, longs, ints, squares, addresses, dictionary, data, packed, places, various, rep, def })
    }

    /// Encodes these cells of `rows` rows as a column chunk; returns it with its metadata.
    ///
    /// # Errors
    /// If the compressor or the parquet library returns an error.
    pub fn chunk<T>(
        &mut self,
        column: &Column<T>,
        descriptor: &ColumnDescPtr,
        cells: &Cells,
        rows: usize,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        self.dictionary.clear();
        self.data.clear();
        let (rep, def) = (column.repetition.most_rep(), column.repetition.most_def());
        let values = self.levels(column.repetition, cells, rows);
        if rep > 0 {
            encode::levels(&self.rep, rep, &mut self.data.bytes);
            self.data.cut();
        }
        if def > 0 {
            let levels = if column.repetition == Repetition::Maybe { &cells.present } else { &self.def };
            encode::levels(levels, def, &mut self.data.bytes);
            self.data.cut();
        }
        let (form, filter) = self.values(column, cells)?;

        let raw = [self.dictionary.len(), self.data.len()];
        let is_packed = column.coding != EncodingHint::Plain && {
            let pages = [form.keys.map(|_| &mut self.dictionary), Some(&mut self.data)];
            self.packer.pack(&column.path, pages, &mut self.packed)?
        };
        let compression = if is_packed { Compression::ZSTD(ZstdLevel::default()) } else { Compression::UNCOMPRESSED };
        let [keys_packed, data_packed] = match is_packed {
            true => self.packed.each_ref().map(Vec::as_slice),
            false => [&self.dictionary.bytes[..], &self.data.bytes[..]],
        };
        let mut out = Vec::with_capacity(keys_packed.len() + data_packed.len() + 2 * HEADER_MAX);
        let [keys_raw, data_raw] = raw;
        if let Some(keys) = form.keys {
            add(&Page::Dictionary(keys), keys_raw, keys_packed, &mut out);
        }
        let data_at = out.len();
        add(&Page::Data(values, form.encoding), data_raw, data_packed, &mut out);
        let raw = out.len() - keys_packed.len() - data_packed.len() + keys_raw + data_raw;

        let mut encodings = vec![form.encoding];
        encodings.extend(form.keys.map(|_| Encoding::PLAIN));
        encodings.extend((rep > 0 || def > 0).then_some(Encoding::RLE));
        let mut metadata = ColumnChunkMetaData::builder(descriptor.clone())
            .set_encodings(encodings)
            .set_compression(compression)
            .set_num_values(values as i64)
            .set_total_compressed_size(out.len() as i64)
            .set_total_uncompressed_size(raw as i64)
            .set_dictionary_page_offset(form.keys.map(|_| 0))
            .set_data_page_offset(data_at as i64);
        if column.predicate == ColumnPredicate::Range
            && let Some(range) = range(descriptor.sort_order(), column.value_type, cells)
        {
            metadata = metadata.set_statistics(range);
        }
        let close = ColumnCloseResult {
            bytes_written: out.len() as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: filter,
            column_index: None,
            offset_index: None,
        };
        Ok((out.into(), close))
    }

    /// Computes repetition and definition levels of lists; returns the number of level entries, those without a value
    /// included.
    fn levels(&mut self, shape: Repetition, cells: &Cells, rows: usize) -> usize {
        if matches!(shape, Repetition::One | Repetition::Maybe) {
            return rows;
        }
        let (rep, def) = (&mut self.rep, &mut self.def);
        let count = cells.counts.iter().fold(0, |all, count| all + *count.max(&1) as usize);
        rep.clear();
        rep.resize(count, 1);
        let mut at = 0;
        for count in &cells.counts {
            rep[at] = 0;
            at += *count.max(&1) as usize;
        }
        def.clear();
        let has_empty = cells.counts.contains(&0);
        match has_empty {
            false => def.resize(count, 1),
            true => {
                for count in cells.counts.iter().map(|count| *count as usize) {
                    match count {
                        0 => def.push(0),
                        _ => def.resize(def.len() + count, 1),
                    }
                }
            }
        }
        count
    }

    /// Appends the values to the data page, and the distinct values to the dictionary page if there is one.
    fn values<T>(&mut self, column: &Column<T>, cells: &Cells) -> Result<(PageForm, Option<Sbbf>)> {
        let (keys, page) = (&mut self.dictionary, &mut self.data);
        let mut filter = None;
        if let Some((value, count)) = cells.same {
            let dictionary = &mut keys.bytes;
            match column.value_type {
                ValueType::Names(name, _) => named(|out| name(value, out), dictionary),
                ValueType::Ints => encode::plain(&[value as i32], dictionary),
                ValueType::Moments => encode::plain(&[micros(value)], dictionary),
                ValueType::Bytes => named(|out| out.extend_from_slice(&cells.raw), dictionary),
                _ => encode::plain(&[value], dictionary),
            }
            encode::same_place(count, &mut page.bytes);
            return Ok((PageForm { encoding: Encoding::RLE_DICTIONARY, keys: Some(1) }, None));
        }
        if let Some(base) = cells.narrow {
            let dictionary = &mut keys.bytes;
            let keys = octets(&cells.octets, &mut self.places, &mut page.bytes);
            let numbers = keys.iter().map(|key| base.wrapping_add(i64::from(*key)));
            match column.value_type {
                ValueType::Names(name, _) => numbers.for_each(|n| named(|out| name(n, out), dictionary)),
                ValueType::Ints => numbers.for_each(|n| encode::plain(&[n as i32], dictionary)),
                _ => numbers.for_each(|n| encode::plain(&[n], dictionary)),
            }
            return Ok((PageForm { encoding: Encoding::RLE_DICTIONARY, keys: Some(keys.len()) }, None));
        }
        let is_various = self.various.contains(&column.path);
        let coding = if is_various { EncodingHint::Noise } else { column.coding };
        let form = match column.value_type {
            ValueType::Longs => numbers(coding, &cells.longs, &mut self.longs, keys, page),
            ValueType::Moments => {
                let moments: Vec<i64> = cells.longs.iter().map(|nanos| micros(*nanos)).collect();
                numbers(coding, &moments, &mut self.longs, keys, page)
            }
            ValueType::Ints => numbers(coding, &cells.ints, &mut self.ints, keys, page),
            ValueType::Squares => squares(coding, &cells.wide, &mut self.squares, keys, page),
            // Not every Parquet reader accepts an empty dictionary.
            ValueType::Names(..) if cells.longs.is_empty() => PageForm::of(Encoding::PLAIN),
            ValueType::Names(name, _) => {
                let mut text = |key: i64, out: &mut Vec<u8>| name(key, out);
                let known = &mut self.longs;
                names(&cells.longs, known, &mut text, &mut keys.bytes, &mut page.bytes)?;
                PageForm { encoding: Encoding::RLE_DICTIONARY, keys: Some(known.keys.len()) }
            }
            ValueType::Addresses(name) => {
                let known = &mut self.addresses;
                let mut hosts = (column.predicate == ColumnPredicate::Member)
                    .then(|| Sbbf::new_with_ndv_fpp(cells.addresses.len() as u64, WRONG))
                    .transpose()?;
                let mut text = |key: IpAddr, out: &mut Vec<u8>| {
                    let begin = out.len();
                    name(key, out);
                    if let Some(filter) = &mut hosts {
                        filter.insert(&out[begin..]);
                    }
                };
                names(&cells.addresses, known, &mut text, &mut keys.bytes, &mut page.bytes)?;
                if let Some(filter) = &mut hosts {
                    // The Bloom filter was allocated for the greatest possible number of entries; it is folded to the
                    // size that the actual number needs.
                    filter.fold_to_target_fpp(WRONG);
                }
                filter = hosts;
                PageForm { encoding: Encoding::RLE_DICTIONARY, keys: Some(known.keys.len()) }
            }
            ValueType::Bytes => {
                let data = &mut page.bytes;
                let mut from = 0;
                for end in &cells.ends {
                    data.extend(((end - from) as u32).to_le_bytes());
                    data.extend_from_slice(&cells.raw[from..*end]);
                    from = *end;
                }
                PageForm::of(Encoding::PLAIN)
            }
        };
        let is_empty = cells.longs.is_empty() && cells.ints.is_empty() && cells.wide.is_empty();
        if coding.has_dictionary() && form.keys.is_none() && !is_empty {
            self.various.insert(column.path.clone());
        }
        Ok((form, filter))
    }
}

/// Writes the dictionary indexes of byte-sized numbers; returns the distinct numbers.
fn octets(values: &[u8], places: &mut Vec<u8>, data: &mut Vec<u8>) -> Vec<u8> {
    let mut found = [false; NARROW];
    for value in values {
        found[usize::from(*value)] = true;
    }
    let keys: Vec<u8> = (0..=u8::MAX).filter(|key| found[usize::from(*key)]).collect();
    if keys.iter().zip(0..=u8::MAX).all(|(key, place)| *key == place) {
        // The distinct numbers are 0, 1, 2, … without a gap, so each number equals its dictionary index.
        encode::octets(values, keys.len(), data);
    } else {
        let mut place_of = [0; NARROW];
        keys.iter().zip(0..=u8::MAX).for_each(|(key, place)| place_of[usize::from(*key)] = place);
        places.clear();
        places.extend(values.iter().map(|value| place_of[usize::from(*value)]));
        encode::octets(places, keys.len(), data);
    }
    keys
}

fn numbers<T: Number + Key>(
    coding: EncodingHint,
    values: &[T],
    known: &mut Dictionary<T>,
    dictionary: &mut Raw,
    data: &mut Raw,
) -> PageForm {
    let most = match coding {
        EncodingHint::Distinct => NARROW,
        EncodingHint::Often => OFTEN,
        EncodingHint::Wide => WIDE,
        EncodingHint::Noise | EncodingHint::Plain => 1,
    };
    // A column without values gets no dictionary: not every Parquet reader accepts an empty dictionary.
    let is_constant = !values.is_empty() && encode::is_constant(values);
    if is_constant || most > 1 && !values.is_empty() && known.fill(values, most) {
        if is_constant {
            known.keys.clear();
            known.keys.extend(values.first());
            known.places.clear();
            known.places.resize(values.len(), 0);
        }
        if known.keys.len() > NARROW {
            known.rank();
        }
        dictionary.numbers(known.keys.len(), T::AS);
        encode::plain(&known.keys, &mut dictionary.bytes);
        encode::places(&known.places, known.keys.len(), &mut data.bytes);
        return PageForm { encoding: Encoding::RLE_DICTIONARY, keys: Some(known.keys.len()) };
    }
    data.numbers(values.len(), T::AS);
    encode::plain(values, &mut data.bytes);
    PageForm::of(Encoding::PLAIN)
}

/// Encodes numbers of 128 bits, with a dictionary if each distinct number occurs at least twice on average.
fn squares(
    coding: EncodingHint,
    values: &[u128],
    known: &mut Dictionary<u128>,
    dictionary: &mut Raw,
    data: &mut Raw,
) -> PageForm {
    if coding != EncodingHint::Wide || values.is_empty() || !known.fill(values, WIDE.min(values.len().div_ceil(2))) {
        data.numbers(values.len(), Numbers::Decimals);
        encode::decimals(values, &mut data.bytes);
        return PageForm::of(Encoding::PLAIN);
    }
    if known.keys.len() > NARROW {
        known.rank();
    }
    dictionary.numbers(known.keys.len(), Numbers::Decimals);
    encode::decimals(&known.keys, &mut dictionary.bytes);
    encode::places(&known.places, known.keys.len(), &mut data.bytes);
    PageForm { encoding: Encoding::RLE_DICTIONARY, keys: Some(known.keys.len()) }
}

/// Encodes values that are written as text, with a dictionary.
fn names<K: Key>(
    values: &[K],
    known: &mut Dictionary<K>,
    text: &mut dyn FnMut(K, &mut Vec<u8>),
    dictionary: &mut Vec<u8>,
    data: &mut Vec<u8>,
) -> Result<()> {
    if !known.fill(values, WIDE) {
        return Err(ParquetError::General(format!("more than {WIDE} distinct texts in one column of a row group")));
    }
    if known.keys.len() > NARROW {
        known.rank();
    }
    for key in &known.keys {
        named(|out| text(*key, out), dictionary);
    }
    encode::places(&known.places, known.keys.len(), data);
    Ok(())
}

/// Writes the length of a text in four bytes, then the text.
fn named(text: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend([0; 4]);
    text(out);
    let len = (out.len() - begin - 4) as u32;
    out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
}

/// The least and the greatest value of the cells, in the sort order of the column's type.
fn range(order: SortOrder, holds: ValueType, cells: &Cells) -> Option<Statistics> {
    fn ends<T: Number>(order: SortOrder, values: &[T]) -> Option<(T, T)> {
        // With the highest bit inverted, signed numbers have the order of unsigned numbers.
        let flip = if order == SortOrder::UNSIGNED { T::HIGHEST } else { 0 };
        let by = |value: T| value.signed() ^ flip;
        let first = *values.first()?;
        let wider = |(least, most): (i64, i64), value: &T| (least.min(by(*value)), most.max(by(*value)));
        let (least, most) = values.iter().fold((by(first), by(first)), wider);
        Some((T::of(least ^ flip), T::of(most ^ flip)))
    }
    let octet = |end: Option<&u8>| end.zip(cells.narrow).map(|(octet, base)| base + i64::from(*octet));
    let (least, most) = match (cells.same, holds) {
        (Some((value, _)), _) => (value, value),
        _ if cells.narrow.is_some() => (octet(cells.octets.iter().min())?, octet(cells.octets.iter().max())?),
        (None, ValueType::Ints) => ends(order, &cells.ints).map(|(least, most)| (least.into(), most.into()))?,
        (None, _) => ends(order, &cells.longs)?,
    };
    let (least, most) = if matches!(holds, ValueType::Moments) { (micros(least), micros(most)) } else { (least, most) };
    Some(match holds {
        ValueType::Ints => Statistics::int32(Some(least as i32), Some(most as i32), None, Some(0), false),
        _ => Statistics::int64(Some(least), Some(most), None, Some(0), false),
    })
}

/// The header of a page.
enum Page {
    /// A dictionary page, with the number of its entries.
    Dictionary(usize),
    /// A data page, with the number of its values (nulls included) and its encoding.
    Data(usize, Encoding),
}

/// The greatest length of a page header.
const HEADER_MAX: usize = 64;

fn add(page: &Page, raw: usize, content: &[u8], out: &mut Vec<u8>) {
    header(page, raw, content, out);
    out.extend_from_slice(content);
}

/// `PageHeader` of `parquet.thrift` in Thrift's compact protocol: each field is a byte with the difference to the
/// previous field number and the type, then its value; 0 ends a structure.
fn header(page: &Page, raw: usize, packed: &[u8], out: &mut Vec<u8>) {
    const I32: u8 = 5;
    const STRUCT: u8 = 12;
    const FALSE: u8 = 2;
    let next = |value: i32, out: &mut Vec<u8>| {
        out.push(1 << 4 | I32);
        encode::number(u64::from((value << 1 ^ value >> 31) as u32), out);
    };
    next(if matches!(page, Page::Dictionary(_)) { 2 } else { 0 }, out);
    next(raw as i32, out);
    next(packed.len() as i32, out);
    next(crc32fast::hash(packed) as i32, out);
    match page {
        Page::Data(values, encoding) => {
            out.push(1 << 4 | STRUCT);
            next(*values as i32, out);
            next(*encoding as i32, out);
            next(Encoding::RLE as i32, out);
            next(Encoding::RLE as i32, out);
        }
        Page::Dictionary(keys) => {
            out.push(3 << 4 | STRUCT);
            next(*keys as i32, out);
            next(Encoding::PLAIN as i32, out);
            out.push(1 << 4 | FALSE);
        }
    }
    out.extend([0, 0]);
}
