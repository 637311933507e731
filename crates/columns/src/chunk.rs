//! One column of one row group as it lies in a file: pages with their headers and checksums (parquet-format, `README.md` and
//! `parquet.thrift`), and what the footer says of them.
//!
//! The library writes the footer; pages are made here because it has no checksums for them and makes a compressor for each.
//!
//! Most of what is compressed has few repetitions to be found and many bytes that are more frequent than others. So there are two
//! compressors: one that looks for repetitions at every byte, and one that steps over what does not repeat at once and leaves
//! the rest to the frequencies, in half the time. Which one suits a column is found out on pieces of its first page.

use crate::encode::{self, Dictionary, Key, NARROW, Number, WIDE};
use crate::sheet::{Asked, Cells, Coding, Column, Holds, Shape};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, SortOrder, ZstdLevel};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use std::collections::HashMap;
use std::net::IpAddr;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, ParamSwitch, compress_bound};

/// Share of wrong hits of a filter.
const WRONG: f64 = 0.05;

/// Fewer bytes are not compressed: the frame of a compressor takes a dozen.
const WORTH: usize = 64;

/// How many bytes the quick compressor steps over where nothing repeats.
/// PERF: 16, 64 and 512 take 145, 112 and 103 ns per record for all pages of a site's records, and level 1 takes 202.
const STEP: u32 = 64;

/// Pieces of a page that a choice is made on, and bytes of each.
const PIECES: (usize, usize) = (8, 2 << 10);

/// The quick compressor is chosen if it makes a page longer by no more than one part of so many.
const LONGER: usize = 16;

/// The places of the compressors: that which looks at every byte, and the other.
const THOROUGH: usize = 0;
const QUICK: usize = 1;

/// Makes chunks, one after the other; what it needs for that is used again.
pub struct Press {
    zstd: [Compressor<'static>; 2],
    /// Which compressor suits the pages of a column, its dictionary and its data, once that is known.
    chosen: HashMap<String, [Option<usize>; 2]>,
    sample: Vec<u8>,
    longs: Dictionary<i64>,
    ints: Dictionary<i32>,
    addresses: Dictionary<IpAddr>,
    dictionary: Vec<u8>,
    data: Vec<u8>,
    packed: [Vec<u8>; 2],
    rep: Vec<u8>,
    def: Vec<u8>,
}

/// How the values of a data page are encoded, and how many the dictionary has, if there is one.
#[derive(Clone, Copy)]
struct Form {
    encoding: Encoding,
    keys: Option<usize>,
}

impl Form {
    const fn of(encoding: Encoding) -> Self {
        Self { encoding, keys: None }
    }
}

impl Press {
    /// # Errors
    /// When there is no memory for the compressor.
    pub fn new() -> Result<Self> {
        // Level 1: docs/COLUMNS.md has what the others would give.
        let level = || Compressor::new(ZstdLevel::default().compression_level());
        let mut zstd = [level()?, level()?];
        zstd[QUICK].set_parameter(CParameter::TargetLength(STEP))?;
        zstd[QUICK].set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
        let (longs, ints, addresses) = (Dictionary::new(), Dictionary::new(), Dictionary::new());
        let (dictionary, data, packed) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
        let (chosen, sample, rep, def) = (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { zstd, chosen, sample, longs, ints, addresses, dictionary, data, packed, rep, def })
    }

    /// These cells of `rows` rows as a chunk, and what is to be said of it.
    ///
    /// # Errors
    /// When the compressor or the footer refuse something.
    pub fn chunk<T>(
        &mut self,
        column: &Column<T>,
        descriptor: &ColumnDescPtr,
        cells: &Cells,
        rows: usize,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        self.dictionary.clear();
        self.data.clear();
        let (rep, def) = (column.shape.most_rep(), column.shape.most_def());
        let values = self.levels(column.shape, cells, rows);
        if rep > 0 {
            encode::levels(&self.rep, rep, &mut self.data);
        }
        if def > 0 {
            encode::levels(if column.shape == Shape::Maybe { &cells.there } else { &self.def }, def, &mut self.data);
        }
        let (form, filter) = self.values(column, cells)?;

        let is_packed = column.coding != Coding::Plain && self.pack(&column.path, form.keys.is_some())?;
        let compression = if is_packed { Compression::ZSTD(ZstdLevel::default()) } else { Compression::UNCOMPRESSED };
        let [keys_packed, data_packed] =
            if is_packed { self.packed.each_ref() } else { [&self.dictionary, &self.data] };
        let mut out = Vec::with_capacity(keys_packed.len() + data_packed.len() + 2 * HEADER_MOST);
        if let Some(keys) = form.keys {
            add(&Page::Dictionary(keys), self.dictionary.len(), keys_packed, &mut out);
        }
        let data_at = out.len();
        add(&Page::Data(values, form.encoding), self.data.len(), data_packed, &mut out);
        let raw = out.len() - keys_packed.len() - data_packed.len() + self.dictionary.len() + self.data.len();

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
        if column.asked == Asked::Range
            && let Some(range) = range(descriptor.sort_order(), column.holds, cells)
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

    /// Levels of the entries of lists; returns how many cells there are, those without a value among them.
    fn levels(&mut self, shape: Shape, cells: &Cells, rows: usize) -> usize {
        if matches!(shape, Shape::One | Shape::Maybe) {
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
        match shape {
            Shape::MaybeEntries if !has_empty => def.extend(cells.there.iter().map(|there| 1 + there)),
            _ if !has_empty => def.resize(count, 1),
            _ => {
                let mut there = cells.there.iter();
                for count in cells.counts.iter().map(|count| *count as usize) {
                    if count == 0 {
                        def.push(0);
                    } else if shape == Shape::MaybeEntries {
                        def.extend(there.by_ref().take(count).map(|there| 1 + there));
                    } else {
                        def.resize(def.len() + count, 1);
                    }
                }
            }
        }
        count
    }

    /// Compresses both pages. False, and they are better left as they are, if that saves less than a sixteenth.
    fn pack(&mut self, path: &str, has_dictionary: bool) -> Result<bool> {
        if self.dictionary.len() + self.data.len() < WORTH {
            return Ok(false);
        }
        let known = self.chosen.get(path).copied().unwrap_or_default();
        let mut chosen = known;
        let mut sizes = (0, 0);
        let pages = [&self.dictionary, &self.data].into_iter().zip(&mut self.packed);
        for ((raw, packed), chosen) in pages.zip(&mut chosen) {
            packed.clear();
            if raw.is_empty() && !has_dictionary {
                continue;
            }
            // Of short pages there is nothing to learn.
            if chosen.is_none() && raw.len() >= 2 * PIECES.0 * PIECES.1 {
                *chosen = Some(better(&mut self.zstd, &mut self.sample, raw)?);
            }
            packed.reserve(compress_bound(raw.len()));
            self.zstd[chosen.unwrap_or(THOROUGH)].compress_to_buffer(&raw[..], packed)?;
            sizes = (sizes.0 + raw.len(), sizes.1 + packed.len());
        }
        if chosen != known {
            self.chosen.insert(path.to_owned(), chosen);
        }
        Ok(sizes.1 < sizes.0 - sizes.0 / 16)
    }

    /// Appends the values to the data, and to the dictionary if there is one.
    fn values<T>(&mut self, column: &Column<T>, cells: &Cells) -> Result<(Form, Option<Sbbf>)> {
        let (dictionary, data) = (&mut self.dictionary, &mut self.data);
        let mut filter = None;
        if let Some((value, count)) = cells.same {
            match column.holds {
                Holds::Names(name, _) => named(|out| name(value, out), dictionary),
                Holds::Ints => encode::plain(&[value as i32], dictionary),
                _ => encode::plain(&[value], dictionary),
            }
            encode::same_place(count, data);
            return Ok((Form { encoding: Encoding::RLE_DICTIONARY, keys: Some(1) }, None));
        }
        let form = match column.holds {
            Holds::Longs if column.coding == Coding::Growing && !encode::is_constant(&cells.longs) => {
                encode::growing(&cells.longs, data);
                Form::of(Encoding::DELTA_BINARY_PACKED)
            }
            Holds::Longs => numbers(column.coding, &cells.longs, &mut self.longs, dictionary, data),
            Holds::Ints => numbers(column.coding, &cells.ints, &mut self.ints, dictionary, data),
            Holds::Squares => {
                encode::decimals(&cells.wide, data);
                Form::of(Encoding::PLAIN)
            }
            Holds::Names(name, _) => {
                let mut text = |key: i64, out: &mut Vec<u8>| name(key, out);
                let known = &mut self.longs;
                names(&cells.longs, known, &mut text, dictionary, data)?;
                Form { encoding: Encoding::RLE_DICTIONARY, keys: Some(known.keys.len()) }
            }
            Holds::Addresses(name) => {
                let known = &mut self.addresses;
                let mut hosts = (column.asked == Asked::Member)
                    .then(|| Sbbf::new_with_ndv_fpp(cells.addresses.len() as u64, WRONG))
                    .transpose()?;
                let mut text = |key: IpAddr, out: &mut Vec<u8>| {
                    let begin = out.len();
                    name(key, out);
                    if let Some(filter) = &mut hosts {
                        filter.insert(&out[begin..]);
                    }
                };
                names(&cells.addresses, known, &mut text, dictionary, data)?;
                if let Some(filter) = &mut hosts {
                    // Made for as many as there may be, and halved to what there are.
                    filter.fold_to_target_fpp(WRONG);
                }
                filter = hosts;
                Form { encoding: Encoding::RLE_DICTIONARY, keys: Some(known.keys.len()) }
            }
            Holds::Bytes => {
                let mut from = 0;
                for end in &cells.ends {
                    data.extend(((end - from) as u32).to_le_bytes());
                    data.extend_from_slice(&cells.raw[from..*end]);
                    from = *end;
                }
                Form::of(Encoding::PLAIN)
            }
        };
        Ok((form, filter))
    }
}

/// The compressor that suits a page, by what each makes of pieces of it.
fn better(zstd: &mut [Compressor<'static>; 2], sample: &mut Vec<u8>, page: &[u8]) -> Result<usize> {
    let (pieces, bytes) = PIECES;
    sample.clear();
    page.chunks_exact(page.len() / pieces).take(pieces).for_each(|piece| sample.extend_from_slice(&piece[..bytes]));
    let mut packed = Vec::with_capacity(compress_bound(sample.len()));
    let mut sizes = [0; 2];
    for (size, zstd) in sizes.iter_mut().zip(zstd) {
        packed.clear();
        *size = zstd.compress_to_buffer(&sample[..], &mut packed)?;
    }
    Ok(if sizes[QUICK] <= sizes[THOROUGH] + sizes[THOROUGH] / LONGER { QUICK } else { THOROUGH })
}

fn numbers<T: Number + Key>(
    coding: Coding,
    values: &[T],
    known: &mut Dictionary<T>,
    dictionary: &mut Vec<u8>,
    data: &mut Vec<u8>,
) -> Form {
    let most = match coding {
        Coding::Distinct | Coding::Growing => NARROW,
        Coding::Wide => WIDE,
        Coding::Bytewise | Coding::Plain => 1,
    };
    let is_constant = !values.is_empty() && encode::is_constant(values);
    if is_constant || most > 1 && known.fill(values, most) {
        if is_constant {
            known.keys.clear();
            known.keys.extend(values.first());
            known.places.clear();
            known.places.resize(values.len(), 0);
        }
        if known.keys.len() > NARROW {
            known.rank();
        }
        encode::plain(&known.keys, dictionary);
        encode::places(&known.places, known.keys.len(), data);
        return Form { encoding: Encoding::RLE_DICTIONARY, keys: Some(known.keys.len()) };
    }
    if coding == Coding::Plain {
        encode::plain(values, data);
        return Form::of(Encoding::PLAIN);
    }
    encode::bytewise(values, data);
    Form::of(Encoding::BYTE_STREAM_SPLIT)
}

/// Values that are written as text, each distinct one once.
fn names<K: Key>(
    values: &[K],
    known: &mut Dictionary<K>,
    text: &mut dyn FnMut(K, &mut Vec<u8>),
    dictionary: &mut Vec<u8>,
    data: &mut Vec<u8>,
) -> Result<()> {
    if !known.fill(values, WIDE) {
        return Err(ParquetError::General(format!("more than {WIDE} names in one row group")));
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

/// A text with its length before it.
fn named(text: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend([0; 4]);
    text(out);
    let len = (out.len() - begin - 4) as u32;
    out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
}

/// Least and greatest, in the order that the column's type has.
fn range(order: SortOrder, holds: Holds, cells: &Cells) -> Option<Statistics> {
    fn ends<T: Number>(order: SortOrder, values: &[T]) -> Option<(T, T)> {
        // Numbers without a sign are in order once their highest bit is turned.
        let flip = if order == SortOrder::UNSIGNED { T::HIGHEST } else { 0 };
        let by = |value: T| value.signed() ^ flip;
        let first = *values.first()?;
        let wider = |(least, most): (i64, i64), value: &T| (least.min(by(*value)), most.max(by(*value)));
        let (least, most) = values.iter().fold((by(first), by(first)), wider);
        Some((T::of(least ^ flip), T::of(most ^ flip)))
    }
    let (least, most) = match (cells.same, holds) {
        (Some((value, _)), _) => (value, value),
        (None, Holds::Ints) => ends(order, &cells.ints).map(|(least, most)| (least.into(), most.into()))?,
        (None, _) => ends(order, &cells.longs)?,
    };
    Some(match holds {
        Holds::Ints => Statistics::int32(Some(least as i32), Some(most as i32), None, Some(0), false),
        _ => Statistics::int64(Some(least), Some(most), None, Some(0), false),
    })
}

/// What stands before the bytes of a page.
enum Page {
    /// Of so many keys.
    Dictionary(usize),
    /// Of so many values, those that are null among them.
    Data(usize, Encoding),
}

/// No header of a page is longer.
const HEADER_MOST: usize = 64;

fn add(page: &Page, raw: usize, content: &[u8], out: &mut Vec<u8>) {
    header(page, raw, content, out);
    out.extend_from_slice(content);
}

/// `PageHeader` of `parquet.thrift` in Thrift's compact protocol: each field is the step to its number and its type in a
/// byte, then its value; 0 ends a structure.
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn chosen(page: &[u8]) -> usize {
        let mut press = Press::new().expect("memory");
        press.data.extend_from_slice(page);
        assert!(press.pack("column", false).expect("compressed"));
        let whole = zstd::bulk::decompress(&press.packed[1], page.len()).expect("any zstd reads it");
        assert_eq!(whole, page);
        press.chosen["column"][1].expect("a long page is learnt from")
    }

    #[test]
    fn what_is_only_more_or_less_frequent_is_compressed_the_quick_way() {
        let seed = testkit::seed("what_is_only_more_or_less_frequent_is_compressed_the_quick_way");
        let mut prng = Prng::new(seed);
        let noise: Vec<u8> = (0..100_000).map(|_| prng.next_u64().trailing_zeros() as u8).collect();
        assert_eq!(chosen(&noise), QUICK, "seed {seed}");
    }

    #[test]
    fn what_repeats_here_and_there_is_compressed_the_thorough_way() {
        let seed = testkit::seed("what_repeats_here_and_there_is_compressed_the_thorough_way");
        let mut prng = Prng::new(seed);
        let words: Vec<[u8; 12]> = (0..50).map(|_| std::array::from_fn(|_| prng.next_u64() as u8)).collect();
        let text: Vec<u8> = (0..10_000).flat_map(|_| words[prng.below(50) as usize]).collect();
        assert_eq!(chosen(&text), THOROUGH, "seed {seed}");
    }
}
