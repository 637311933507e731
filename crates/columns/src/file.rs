//! A sealed file, read again: by row groups, by columns, a few hundred things at a time.
//!
//! The library below returns errors for most damage; where it gives up instead, that ends here too and is told as damage.

use crate::digest::{self, StoredDigests};
use crate::error::ColumnsError;
use crate::file_layout::DataFileKind;
use crate::query::Query;
use crate::schema::{Cells, MICRO};
use crate::seal::{VERSION, key};
use crate::tables::Schema;
use crate::volume;
use base::Timestamp;
use bytes::{Buf, Bytes};
use filter::KeyCondition;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::device::Housekeeping;

/// Things that are read together.
const LINES: usize = 512;

/// The bytes of a file, wherever they are.
#[derive(Clone)]
enum Source {
    File(Arc<File>),
    /// Read whole, by who asks a volume that may fail.
    Memory(Bytes),
}

impl Source {
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    fn read(&self, at: u64, length: u64) -> io::Result<Bytes> {
        // A length that a damaged file claims is not believed before there is that much.
        if at.checked_add(length).is_none_or(|end| self.len().is_ok_and(|len| end > len)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (from, length) = (at as usize, length as usize);
        match self {
            Self::Memory(bytes) => Ok(bytes.slice(from..from + length)),
            Self::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes.into())
            }
        }
    }
}

/// A column of a row group as it lies in the file, by its places there.
struct ColumnChunkRange {
    at: u64,
    bytes: Bytes,
}

impl Length for ColumnChunkRange {
    fn len(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

impl ChunkReader for ColumnChunkRange {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let from = start.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        match from.filter(|from| *from <= self.bytes.len()) {
            Some(from) => Ok(self.bytes.slice(from..).reader()),
            None => Err(ParquetError::EOF(format!("{start} lies outside of the column"))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let mut all = self.get_read(start)?.into_inner();
        if length > all.len() {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} lie beyond the end of the column")));
        }
        Ok(all.split_to(length))
    }
}

/// What a file says of where its content comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its own number ([`key::ID`]); none of a file outside of a store.
    pub id: Option<u64>,
    /// The numbers of the files that it took the place of.
    pub replaces: Vec<u64>,
}

impl Origin {
    /// Whether the content of the file or journal with this number is in this file.
    pub fn has(&self, id: u64) -> bool {
        self.id == Some(id) || self.replaces.contains(&id)
    }
}

/// See the module.
pub struct Sealed {
    /// Where it is.
    pub path: PathBuf,
    /// What it is and what it took the place of.
    pub origin: Origin,
    /// What it says that interfaces are called.
    pub interfaces: Vec<(u16, String)>,
    source: Source,
    metadata: ParquetMetaData,
    reported: StoredDigests,
}

impl Sealed {
    /// Opens it and reads its footer.
    ///
    /// # Errors
    /// When it cannot be read, or is not what its name says.
    pub fn open(path: &Path, kind: DataFileKind) -> Result<Self, ColumnsError> {
        let file = sys::nofollow::open(path).map_err(ColumnsError::io(path))?;
        Self::of(path, kind, Source::File(Arc::new(file)))
    }

    /// The same, read whole from a volume.
    ///
    /// # Errors
    /// The same.
    pub fn read(disk: &mut dyn Housekeeping, path: &Path, kind: DataFileKind) -> Result<Self, ColumnsError> {
        let bytes = volume::read(disk, path, u64::MAX).map_err(ColumnsError::io(path))?;
        Self::of(path, kind, Source::Memory(bytes.into()))
    }

    /// Where the content of a file on a volume comes from, by its footer alone.
    ///
    /// # Errors
    /// The same.
    pub fn origin_of(disk: &mut dyn Housekeeping, path: &Path, kind: DataFileKind) -> Result<Origin, ColumnsError> {
        let file = disk.open(path).map_err(ColumnsError::io(path))?;
        let found = disk.len(file).and_then(|len| {
            footer(len, |at, length| {
                let mut bytes = vec![0; length as usize];
                let read = disk.read(file, at, &mut bytes)?;
                bytes.truncate(read);
                Ok(bytes.into())
            })
        });
        disk.close(file);
        Ok(Self::with(path, kind, found, Source::Memory(Bytes::new()))?.origin)
    }

    fn of(path: &Path, kind: DataFileKind, source: Source) -> Result<Self, ColumnsError> {
        let found = source.len().and_then(|len| footer(len, |at, length| source.read(at, length)));
        Self::with(path, kind, found, source)
    }

    fn with(path: &Path, kind: DataFileKind, footer: io::Result<Bytes>, source: Source) -> Result<Self, ColumnsError> {
        let footer = footer.map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                ColumnsError::damaged(path, "is no Parquet file, or its end is missing")
            }
            _ => ColumnsError::io(path)(e),
        })?;
        let metadata =
            guarded(path, || ParquetMetaDataReader::decode_metadata(&footer[..footer.len() - digest::TRAILER]))?;
        let value = |name: &str| {
            let notes = metadata.file_metadata().key_value_metadata()?;
            notes.iter().find(|note| note.key == name)?.value.clone()
        };
        if value(key::KIND).as_deref() != Some(kind.name()) {
            return Err(ColumnsError::damaged(path, format!("is not a file of {} that netgrain wrote", kind.name())));
        }
        let format = value(key::FORMAT).unwrap_or_else(|| "1".into());
        if format != VERSION.to_string() {
            let what = format!("{OTHER_VERSION} {format}, and this netgrain reads version {VERSION}");
            return Err(ColumnsError::damaged(path, what));
        }
        let reported = StoredDigests::of(&metadata).filter(|_| digest::is_whole(&footer));
        let Some(reported) = reported else {
            return Err(ColumnsError::damaged(path, "has a footer that is not as it was written"));
        };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let replaces = value(key::REPLACES).map_or(Vec::new(), |all| all.split(' ').filter_map(number).collect());
        let origin = Origin { id: value(key::ID).as_deref().and_then(number), replaces };
        let interfaces = value(key::INTERFACES).map_or(Vec::new(), |all| all.lines().filter_map(named).collect());
        Ok(Self { path: path.to_owned(), origin, interfaces, source, metadata, reported })
    }

    /// All row groups.
    pub fn all(&self) -> Vec<usize> {
        (0..self.metadata.num_row_groups()).collect()
    }

    /// The row groups that may hold something of what is asked. What is the matter with a filter is told; one that is damaged
    /// keeps nothing out.
    pub fn groups(&self, asked: &Query, tell: impl FnOnce(ColumnsError)) -> Vec<usize> {
        let Query { from, to, need, id, .. } = asked;
        let is_damaged = Cell::new(false);
        let wanted = |at: &usize| {
            let group = Group { sealed: self, at: *at, group: self.metadata.row_group(*at), is_damaged: &is_damaged };
            let (first, last) = group.span();
            let outside = first.is_some_and(|first| first > *to) || last.is_some_and(|last| last < *from);
            !outside
                && id.is_none_or(|id| group.may_have("id", Some(id as i64), &id.to_le_bytes()[..]))
                && group.may(need)
        };
        // Whatever the library gives up at keeps nothing out; the pages say what is the matter.
        let wanted = |at: &usize| catch_unwind(AssertUnwindSafe(|| wanted(at))).unwrap_or(true);
        let groups = self.all().into_iter().filter(wanted).collect();
        if is_damaged.get() {
            let what = "has a filter that is not as it was written; what it should keep out was read".to_owned();
            tell(ColumnsError::Hint { path: self.path.clone(), what });
        }
        groups
    }

    /// Whether all of a row group lies between two moments.
    pub fn is_inside(&self, group: usize, from: Timestamp, to: Timestamp) -> bool {
        let (first, last) = outer(self.metadata.row_group(group));
        first.is_some_and(|first| first >= from) && last.is_some_and(|last| last <= to)
    }

    /// Readers of these columns of a row group, in their order; none for one that is not there or is not as it was written.
    /// The places of the latter come with them, and what is wrong with each.
    ///
    /// # Errors
    /// What the library says of it.
    fn columns(&self, group: usize, paths: &[&str]) -> Result<Readers, ColumnsError> {
        let (mut readers, mut bad) = (Vec::with_capacity(paths.len()), Vec::new());
        for (place, path) in paths.iter().enumerate() {
            let leaf = match self.pages(group, &[*path]) {
                Ok(mut leaves) => leaves.pop().flatten(),
                Err(ColumnsError::Damaged { what, .. }) => {
                    bad.push((place, what));
                    None
                }
                Err(other) => return Err(other),
            };
            let reader = |(column, pages)| Ok::<_, ParquetError>(get_column_reader(column, pages));
            readers.push(guarded(&self.path, || leaf.map(reader).transpose())?);
        }
        Ok((readers, bad))
    }

    /// What is said of rows that cannot be read, of this row group from so many rows on.
    pub fn unreadable(&self, group: usize, after: usize, what: impl fmt::Display) -> ColumnsError {
        let before: usize = (0..group).map(|group| self.rows(group)).sum();
        ColumnsError::Rows {
            path: self.path.clone(),
            what: what.to_string(),
            from: (before + after) as u64,
            rows: self.rows(group).saturating_sub(after) as u64,
        }
    }

    /// Pages of these columns of a row group and what their schema is, in their order; none for one that is not there.
    ///
    /// # Errors
    /// When they are not as they were written, or what the library says.
    pub fn pages(&self, group: usize, paths: &[&str]) -> Result<Vec<Option<Leaf>>, ColumnsError> {
        let schema = self.metadata.file_metadata().schema_descr();
        let at = |path: &str| (0..schema.num_columns()).find(|i| schema.column(*i).path().string() == path);
        paths.iter().map(|path| at(path).map(|i| self.leaf(group, i, schema.column(i))).transpose()).collect()
    }

    fn leaf(&self, group: usize, column: usize, descriptor: ColumnDescPtr) -> Result<Leaf, ColumnsError> {
        guarded(&self.path, || {
            let rows = self.rows(group);
            let chunk = self.metadata.row_group(group).column(column);
            let (at, length) = chunk.byte_range();
            let bytes = self.source.read(at, length)?;
            if !self.reported.is_chunk(group, column, &bytes) {
                let what =
                    format!("column {} of row group {group} is not as it was written", descriptor.path().string());
                return Err(ParquetError::General(what));
            }
            let pages = SerializedPageReader::new(Arc::new(ColumnChunkRange { at, bytes }), chunk, rows, None)?;
            Ok((descriptor, Box::new(pages) as Box<dyn PageReader>))
        })
    }

    /// The first column or filter that is not as it was written, in words.
    fn flaw(&self) -> io::Result<Option<String>> {
        for group in self.all() {
            for (place, column) in self.metadata.row_group(group).columns().iter().enumerate() {
                let name = column.column_path().string();
                let (at, length) = column.byte_range();
                if !self.reported.is_chunk(group, place, &self.source.read(at, length)?) {
                    return Ok(Some(format!("column {name} of row group {group} is not as it was written")));
                }
                let filter = column.bloom_filter_offset().zip(column.bloom_filter_length());
                if let Some((at, length)) = filter {
                    let place_of = |number: i64| u64::try_from(number).map_err(|_| io::ErrorKind::InvalidData);
                    let bytes = self.source.read(place_of(at)?, place_of(i64::from(length))?)?;
                    if !self.reported.is_filter(group, place, &bytes) {
                        return Ok(Some(format!("the filter of {name} of row group {group} is not as it was written")));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Rows of a row group.
    pub fn rows(&self, group: usize) -> usize {
        usize::try_from(self.metadata.row_group(group).num_rows()).unwrap_or(0)
    }
}

/// How it is said that a file is of another version.
const OTHER_VERSION: &str = "has columns of version";

/// What is wrong with this sealed file of records or rows: its footer, or the first column or filter that is not as it
/// was written. A file of another version is not judged.
///
/// # Errors
/// When it cannot be read.
pub fn judge_sealed(path: &Path) -> io::Result<Option<String>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let kind = if name.contains(&format!(".{}.", DataFileKind::Flows.name())) {
        DataFileKind::Flows
    } else {
        DataFileKind::Series
    };
    match Sealed::open(path, kind) {
        Ok(sealed) => sealed.flaw().or_else(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Ok(Some("a column lies beyond its end".to_owned()))
            }
            _ => Err(e),
        }),
        Err(ColumnsError::Io { error, .. }) => Err(error),
        Err(ColumnsError::Damaged { what, .. }) if what.starts_with(OTHER_VERSION) => Ok(None),
        Err(ColumnsError::Damaged { what, .. }) => Ok(Some(what)),
        Err(other) => Ok(Some(other.to_string())),
    }
}

/// What each column of a file takes of it, in bytes for each row, with its filters; the widest first.
///
/// # Errors
/// When it cannot be read, or is not what its name says.
pub fn widths(path: &Path, kind: DataFileKind) -> Result<Vec<(String, f64)>, ColumnsError> {
    let sealed = Sealed::open(path, kind)?;
    let rows: usize = (0..sealed.metadata.num_row_groups()).map(|group| sealed.rows(group)).sum();
    let mut sums = BTreeMap::<String, f64>::new();
    for column in sealed.metadata.row_groups().iter().flat_map(RowGroupMetaData::columns) {
        let bytes = column.compressed_size() + i64::from(column.bloom_filter_length().unwrap_or(0));
        *sums.entry(column.column_path().string()).or_default() += bytes as f64 / rows.max(1) as f64;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(sums)
}

/// Readers of columns, and the places of those that cannot be read, with what is wrong.
type Readers = (Vec<Option<ColumnReader>>, Vec<(usize, String)>);

/// A column of a row group, page by page.
pub type Leaf = (ColumnDescPtr, Box<dyn PageReader>);

/// What the footer says of a row group, and its filters.
struct Group<'a> {
    sealed: &'a Sealed,
    at: usize,
    group: &'a RowGroupMetaData,
    is_damaged: &'a Cell<bool>,
}

fn statistics<'a>(group: &'a RowGroupMetaData, name: &str) -> Option<&'a Statistics> {
    group.columns().iter().find(|c| c.column_path().string() == name)?.statistics()
}

fn range(group: &RowGroupMetaData, name: &str) -> Option<(i64, i64)> {
    match statistics(group, name)? {
        Statistics::Int64(s) => Some((*s.min_opt()?, *s.max_opt()?)),
        Statistics::Int32(s) => Some((i64::from(*s.min_opt()?), i64::from(*s.max_opt()?))),
        _ => None,
    }
}

/// The earliest beginning and the latest end, as far as they are known: to the microsecond, outwards.
fn outer(group: &RowGroupMetaData) -> (Option<Timestamp>, Option<Timestamp>) {
    let moment = |micros: i64, nanos: u64| {
        let micros = u64::try_from(micros).ok()?.checked_mul(MICRO as u64)?;
        Some(Timestamp::from_nanos(micros.saturating_add(nanos)))
    };
    let (first, last) = (range(group, "first"), range(group, "last"));
    (first.and_then(|(min, _)| moment(min, 0)), last.and_then(|(_, max)| moment(max, MICRO as u64 - 1)))
}

impl Group<'_> {
    fn span(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let second = |n: i64| u64::try_from(n).ok().map(|n| Timestamp::from_secs_nanos(n, 0));
        match range(self.group, "second") {
            Some((min, max)) if min >= 0 => (second(min), second(max.saturating_add(1))),
            _ => outer(self.group),
        }
    }

    /// Whether a column may have this value, by its range and its filter.
    fn may_have(&self, name: &str, value: Option<i64>, bytes: &[u8]) -> bool {
        // Numbers of 64 bits without a sign are ordered as such, which is not how they are read here.
        if let (Some((min, max)), Some(value)) = (range(self.group, name), value)
            && min >= 0
            && max >= min
            && !(min..=max).contains(&value)
        {
            return false;
        }
        self.filter(name).is_none_or(|filter| filter.check(bytes))
    }

    /// The filter of a column, if it has one that is as it was written.
    fn filter(&self, name: &str) -> Option<Sbbf> {
        let place = self.group.columns().iter().position(|c| c.column_path().string() == name)?;
        let column = self.group.column(place);
        let (at, length) = (column.bloom_filter_offset()?, column.bloom_filter_length()?);
        let bytes = self.sealed.source.read(u64::try_from(at).ok()?, u64::try_from(length).ok()?).ok()?;
        let filter = Sbbf::from_bytes(&bytes).ok();
        if filter.is_none() || !self.sealed.reported.is_filter(self.at, place, &bytes) {
            self.is_damaged.set(true);
            return None;
        }
        filter
    }

    fn may(&self, need: &KeyCondition) -> bool {
        let host = |address: &IpAddr| {
            let text = address.to_string();
            ["src", "dst"].iter().any(|name| self.may_have(name, None, text.as_bytes()))
        };
        match need {
            KeyCondition::Host(address) => host(address),
            KeyCondition::Ports(from, to) if from == to => {
                let port = i32::from(*from);
                ["src_port", "dst_port"].iter().any(|n| self.may_have(n, Some(port.into()), &port.to_le_bytes()))
            }
            KeyCondition::Protocol(number) => {
                range(self.group, "protocol").is_none_or(|(min, max)| (min..=max).contains(&i64::from(*number)))
            }
            KeyCondition::Flow(_, (a, _), (b, _)) => host(a) && host(b),
            KeyCondition::All(all) => all.iter().all(|need| self.may(need)),
            KeyCondition::Any(any) => any.iter().any(|need| self.may(need)),
            _ => true,
        }
    }
}

/// Things of some row groups, one after the other.
pub struct TableRows<T: Schema> {
    sealed: Sealed,
    groups: std::vec::IntoIter<usize>,
    /// The fields that are asked for; all if none are named.
    fields: Option<Vec<String>>,
    columns: Arc<Vec<crate::schema::Column<T::Line>>>,
    readers: Vec<Option<ColumnReader>>,
    /// The row group that is being read, and how many of its rows were.
    at: (usize, usize),
    /// What is damaged and not needed.
    hints: Vec<ColumnsError>,
    cells: Cells,
}

impl<T: Schema> TableRows<T> {
    /// Of these row groups.
    pub fn new(sealed: Sealed, groups: Vec<usize>) -> Self {
        let (columns, cells) = (Arc::new(T::columns()), Cells::default());
        let (groups, fields, readers, at, hints) = (groups.into_iter(), None, Vec::new(), (0, 0), Vec::new());
        Self { sealed, groups, fields, columns, readers, at, hints, cells }
    }

    /// Only these fields are asked for; the others may be anything.
    #[must_use]
    pub fn of_fields(self, fields: Option<Vec<String>>) -> Self {
        Self { fields, ..self }
    }

    /// What is damaged in what was read so far and not needed; told once.
    pub fn hints(&mut self) -> Vec<ColumnsError> {
        std::mem::take(&mut self.hints)
    }

    /// The next few; none at the end.
    ///
    /// # Errors
    /// What is damaged, and the rows that are missing by it; the next row group follows then.
    pub fn next(&mut self) -> Result<Vec<T>, ColumnsError> {
        loop {
            if !self.readers.is_empty() {
                let (group, done) = self.at;
                match self.lines() {
                    Ok(lines) if lines.is_empty() => self.readers.clear(),
                    Ok(lines) => {
                        self.at.1 += lines.len();
                        return Ok(lines.into_iter().map(T::unline).collect());
                    }
                    Err(error) => {
                        self.readers.clear();
                        let what = match error {
                            ColumnsError::Damaged { what, .. } => what,
                            other => return Err(other),
                        };
                        return Err(self.sealed.unreadable(group, done, what));
                    }
                }
            }
            let Some(group) = self.groups.next() else { return Ok(Vec::new()) };
            self.open(group)?;
        }
    }

    fn open(&mut self, group: usize) -> Result<(), ColumnsError> {
        let paths: Vec<&str> = self.columns.iter().map(|c| c.path.as_str()).collect();
        let (readers, bad) = match self.sealed.columns(group, &paths) {
            Err(ColumnsError::Damaged { what, .. }) => return Err(self.sealed.unreadable(group, 0, what)),
            other => other?,
        };
        let is_needed = |(place, _): &(usize, String)| T::is_needed(paths[*place], self.fields.as_deref());
        let (needed, spared): (Vec<_>, Vec<_>) = bad.into_iter().partition(is_needed);
        // What is wrong with the first, and the names of the others.
        let reported = |bad: &[(usize, String)]| {
            let ((place, what), more) = bad.split_first()?;
            let more: String = more.iter().map(|(place, _)| format!(", {}", paths[*place])).collect();
            Some(match &more[..] {
                "" => format!("column {}: {what}", paths[*place]),
                _ => format!("columns {}{more}: {what}", paths[*place]),
            })
        };
        if let Some(what) = reported(&needed) {
            return Err(self.sealed.unreadable(group, 0, what));
        }
        if let Some(what) = reported(&spared) {
            let what = format!("{what}; this answer is made without and is whole");
            self.hints.push(ColumnsError::Hint { path: self.sealed.path.clone(), what });
        }
        (self.readers, self.at) = (readers, (group, 0));
        Ok(())
    }

    fn lines(&mut self) -> Result<Vec<T::Line>, ColumnsError> {
        let (columns, cells, readers) = (Arc::clone(&self.columns), &mut self.cells, &mut self.readers);
        guarded(&self.sealed.path, || {
            let mut lines: Vec<T::Line> = Vec::new();
            for (i, (column, reader)) in columns.iter().zip(readers).enumerate() {
                // A counter that is younger than the file is zero there.
                let Some(reader) = reader else { continue };
                let rows = cells.read(column, reader, LINES)?;
                if i == 0 {
                    lines.resize_with(rows.unwrap_or(0), T::blank);
                }
                if rows != Some(lines.len()) || (column.take)(&mut lines, column.arg, cells).is_none() {
                    let what = format!("column {} has values that netgrain did not write", column.path);
                    return Err(ParquetError::General(what));
                }
            }
            Ok(lines)
        })
    }
}

/// A line of [`key::INTERFACES`].
fn named(line: &str) -> Option<(u16, String)> {
    let (number, name) = line.split_once('=')?;
    Some((number.parse().ok()?, name.to_owned()))
}

/// The footer of a file of this length and what stands behind it.
fn footer(len: u64, mut read: impl FnMut(u64, u64) -> io::Result<Bytes>) -> io::Result<Bytes> {
    let mut exactly = |at: u64, length: u64| {
        let bytes = read(at, length)?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
    };
    let trailer = digest::TRAILER as u64;
    let (begin, end) = (exactly(0, 4)?, exactly(len.saturating_sub(trailer), trailer)?);
    if begin[..] != digest::MAGIC || end[4..] != digest::MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let long = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]])) + trailer;
    exactly(len.checked_sub(long).ok_or(io::ErrorKind::InvalidData)?, long)
}

/// What the library says, or panics with, as damage of this file.
pub fn guarded<R, E: fmt::Display>(path: &Path, work: impl FnOnce() -> Result<R, E>) -> Result<R, ColumnsError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|e| ColumnsError::damaged(path, e)),
        Err(_) => Err(ColumnsError::damaged(path, "is damaged in a way that cannot be read past")),
    }
}
