//! Reads a sealed file row group by row group, each column separately, a few hundred rows at a time.
//!
//! The parquet library returns errors for most kinds of damage; for the others it panics, and the panic is caught here
//! and reported as damage.

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

/// Number of rows that are decoded together.
const LINES: usize = 512;

/// The bytes of a file, which are on disk or in memory.
#[derive(Clone)]
enum Source {
    File(Arc<File>),
    /// A file that was read completely into memory, through a device whose failures tests can simulate.
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
        // A damaged file may claim any length, so the length is compared with the length of the file before memory is
        // allocated.
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

/// The range of bytes of the file that contains a column chunk.
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
            None => Err(ParquetError::EOF(format!("offset {start} lies outside of the column"))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let mut all = self.get_read(start)?.into_inner();
        if length > all.len() {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at offset {start} lie beyond the end of the column"
            )));
        }
        Ok(all.split_to(length))
    }
}

/// The id of a sealed file, and the ids of the files that it replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file's own id ([`key::ID`]); `None` for a file outside of a store.
    pub id: Option<u64>,
    /// The ids of the files that this file replaced.
    pub replaces: Vec<u64>,
}

impl Origin {
    /// True if this file contains the rows of the file or journal with this id.
    pub fn has(&self, id: u64) -> bool {
        self.id == Some(id) || self.replaces.contains(&id)
    }
}

/// An open sealed file; see the module.
pub struct Sealed {
    /// Its path.
    pub path: PathBuf,
    /// The id of the file, and the ids of the files that it replaced.
    pub origin: Origin,
    /// Interface names by interface number, from the metadata of the file.
    pub interfaces: Vec<(u16, String)>,
    source: Source,
    metadata: ParquetMetaData,
    stored_digests: StoredDigests,
}

impl Sealed {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a file of this kind.
    pub fn open(path: &Path, kind: DataFileKind) -> Result<Self, ColumnsError> {
        let file = sys::nofollow::open(path).map_err(ColumnsError::io(path))?;
        Self::of(path, kind, Source::File(Arc::new(file)))
    }

    /// As [`Self::open`], but reads the whole file from a volume into memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(disk: &mut dyn Housekeeping, path: &Path, kind: DataFileKind) -> Result<Self, ColumnsError> {
        let bytes = volume::read(disk, path, u64::MAX).map_err(ColumnsError::io(path))?;
        Self::of(path, kind, Source::Memory(bytes.into()))
    }

    /// Reads the id of a file and the ids of the files that it replaced from its footer, without reading rows.
    ///
    /// # Errors
    /// As [`Self::open`].
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
                ColumnsError::damaged(path, "is not a Parquet file, or its end is missing")
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
        let stored_digests = StoredDigests::of(&metadata).filter(|_| digest::is_whole(&footer));
        let Some(stored_digests) = stored_digests else {
            return Err(ColumnsError::damaged(path, "has a footer that does not match its checksum"));
        };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let replaces = value(key::REPLACES).map_or(Vec::new(), |all| all.split(' ').filter_map(number).collect());
        let origin = Origin { id: value(key::ID).as_deref().and_then(number), replaces };
        let interfaces = value(key::INTERFACES).map_or(Vec::new(), |all| all.lines().filter_map(named).collect());
        Ok(Self { path: path.to_owned(), origin, interfaces, source, metadata, stored_digests })
    }

    /// The indexes of all row groups of the file.
    pub fn all(&self) -> Vec<usize> {
        (0..self.metadata.num_row_groups()).collect()
    }

    /// The row groups that may hold results of this query. A damaged filter is passed to `report` and excludes no row
    /// group.
    pub fn groups(&self, query: &Query, report: impl FnOnce(ColumnsError)) -> Vec<usize> {
        let Query { from, to, need, id, .. } = query;
        let is_damaged = Cell::new(false);
        let wanted = |at: &usize| {
            let group = Group { sealed: self, at: *at, group: self.metadata.row_group(*at), is_damaged: &is_damaged };
            let (first, last) = group.span();
            let outside = first.is_some_and(|first| first > *to) || last.is_some_and(|last| last < *from);
            !outside
                && id.is_none_or(|id| group.may_have("id", Some(id as i64), &id.to_le_bytes()[..]))
                && group.may(need)
        };
        // If the library panics, the row group is not excluded; reading its pages then reports the damage.
        let wanted = |at: &usize| catch_unwind(AssertUnwindSafe(|| wanted(at))).unwrap_or(true);
        let groups = self.all().into_iter().filter(wanted).collect();
        if is_damaged.get() {
            let what =
                "has a Bloom filter that does not match its checksum; the query did not use it, and the result is \
                        complete"
                    .to_owned();
            report(ColumnsError::Hint { path: self.path.clone(), what });
        }
        groups
    }

    /// True if all rows of a row group lie between two timestamps.
    pub fn is_inside(&self, group: usize, from: Timestamp, to: Timestamp) -> bool {
        let (first, last) = outer(self.metadata.row_group(group));
        first.is_some_and(|first| first >= from) && last.is_some_and(|last| last <= to)
    }

    /// Readers of these columns of a row group, in the same order; `None` for a column that is absent or damaged. The
    /// positions of the damaged columns are returned too, each with a description.
    ///
    /// # Errors
    /// Errors of the parquet library.
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

    /// The error for rows that cannot be read: those of this row group from row `after` on.
    pub fn unreadable(&self, group: usize, after: usize, what: impl fmt::Display) -> ColumnsError {
        let before: usize = (0..group).map(|group| self.rows(group)).sum();
        let of: usize = self.all().into_iter().map(|group| self.rows(group)).sum();
        ColumnsError::Rows {
            path: self.path.clone(),
            what: what.to_string(),
            from: (before + after) as u64,
            rows: self.rows(group).saturating_sub(after) as u64,
            of: of as u64,
        }
    }

    /// Page readers and descriptors of these columns of a row group, in the same order; `None` for an absent column.
    ///
    /// # Errors
    /// If a column chunk does not match its checksum, or the parquet library fails.
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
            if !self.stored_digests.is_chunk(group, column, &bytes) {
                let what =
                    format!("column {} of row group {group} does not match its checksum", descriptor.path().string());
                return Err(ParquetError::General(what));
            }
            let pages = SerializedPageReader::new(Arc::new(ColumnChunkRange { at, bytes }), chunk, rows, None)?;
            Ok((descriptor, Box::new(pages) as Box<dyn PageReader>))
        })
    }

    /// A description of the first column chunk or filter that does not match its checksum.
    fn damage(&self) -> io::Result<Option<String>> {
        for group in self.all() {
            for (place, column) in self.metadata.row_group(group).columns().iter().enumerate() {
                let name = column.column_path().string();
                let (at, length) = column.byte_range();
                if !self.stored_digests.is_chunk(group, place, &self.source.read(at, length)?) {
                    return Ok(Some(format!("column {name} of row group {group} does not match its checksum")));
                }
                let filter = column.bloom_filter_offset().zip(column.bloom_filter_length());
                if let Some((at, length)) = filter {
                    let place_of = |number: i64| u64::try_from(number).map_err(|_| io::ErrorKind::InvalidData);
                    let bytes = self.source.read(place_of(at)?, place_of(i64::from(length))?)?;
                    if !self.stored_digests.is_filter(group, place, &bytes) {
                        return Ok(Some(format!(
                            "the Bloom filter of {name} of row group {group} does not match its checksum"
                        )));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Number of rows of a row group.
    pub fn rows(&self, group: usize) -> usize {
        usize::try_from(self.metadata.row_group(group).num_rows()).unwrap_or(0)
    }
}

/// The beginning of the error text for a file of another version.
const OTHER_VERSION: &str = "has columns of version";

/// Describes the damage of this sealed file: its footer, or the first column chunk or filter that does not match its
/// checksum. `None` for an undamaged file and for a file of another version.
///
/// # Errors
/// If the file cannot be read.
pub fn judge_sealed(path: &Path) -> io::Result<Option<String>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let kind = if name.contains(&format!(".{}.", DataFileKind::Flows.name())) {
        DataFileKind::Flows
    } else {
        DataFileKind::Series
    };
    match Sealed::open(path, kind) {
        Ok(sealed) => sealed.damage().or_else(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Ok(Some("a column lies beyond the end of the file".to_owned()))
            }
            _ => Err(e),
        }),
        Err(ColumnsError::Io { error, .. }) => Err(error),
        Err(ColumnsError::Damaged { what, .. }) if what.starts_with(OTHER_VERSION) => Ok(None),
        Err(ColumnsError::Damaged { what, .. }) => Ok(Some(what)),
        Err(other) => Ok(Some(other.to_string())),
    }
}

/// For each column of a file, the average number of bytes per row, Bloom filters included, in descending order.
///
/// # Errors
/// If the file cannot be read, or is not a file of this kind.
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

/// Readers of columns, and the positions of unreadable columns with a description of the damage.
type Readers = (Vec<Option<ColumnReader>>, Vec<(usize, String)>);

/// A column chunk that is read page by page.
pub type Leaf = (ColumnDescPtr, Box<dyn PageReader>);

/// The metadata and the Bloom filters of a row group, to which a condition is applied.
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

/// A lower bound of the earliest begin and an upper bound of the latest end of the rows of a row group, as far as they
/// are known, with a precision of microseconds.
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

    /// True if a column may contain this value, by its minimum, maximum and Bloom filter.
    fn may_have(&self, name: &str, value: Option<i64>, bytes: &[u8]) -> bool {
        // The bounds of unsigned 64-bit columns are read as signed numbers here. So they are used only if neither is
        // negative.
        if let (Some((min, max)), Some(value)) = (range(self.group, name), value)
            && min >= 0
            && max >= min
            && !(min..=max).contains(&value)
        {
            return false;
        }
        self.filter(name).is_none_or(|filter| filter.check(bytes))
    }

    /// The Bloom filter of a column, if there is one and it matches its checksum.
    fn filter(&self, name: &str) -> Option<Sbbf> {
        let place = self.group.columns().iter().position(|c| c.column_path().string() == name)?;
        let column = self.group.column(place);
        let (at, length) = (column.bloom_filter_offset()?, column.bloom_filter_length()?);
        let bytes = self.sealed.source.read(u64::try_from(at).ok()?, u64::try_from(length).ok()?).ok()?;
        let filter = Sbbf::from_bytes(&bytes).ok();
        if filter.is_none() || !self.sealed.stored_digests.is_filter(self.at, place, &bytes) {
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

/// Reads the rows of some row groups, in the order of the file.
pub struct TableRows<T: Schema> {
    sealed: Sealed,
    groups: std::vec::IntoIter<usize>,
    /// The fields that the caller requested; `None` for all fields.
    fields: Option<Vec<String>>,
    columns: Arc<Vec<crate::schema::Column<T::Line>>>,
    readers: Vec<Option<ColumnReader>>,
    /// The current row group, and the number of its rows that were read.
    at: (usize, usize),
    /// Errors for damage that does not affect the requested fields.
    hints: Vec<ColumnsError>,
    cells: Cells,
}

impl<T: Schema> TableRows<T> {
    /// Reads these row groups.
    pub fn new(sealed: Sealed, groups: Vec<usize>) -> Self {
        let (columns, cells) = (Arc::new(T::columns()), Cells::default());
        let (groups, fields, readers, at, hints) = (groups.into_iter(), None, Vec::new(), (0, 0), Vec::new());
        Self { sealed, groups, fields, columns, readers, at, hints, cells }
    }

    /// Restricts reading to these fields; the values of other fields are unspecified.
    #[must_use]
    pub fn of_fields(self, fields: Option<Vec<String>>) -> Self {
        Self { fields, ..self }
    }

    /// Removes and returns the reports of damage that did not affect the requested fields.
    pub fn hints(&mut self) -> Vec<ColumnsError> {
        std::mem::take(&mut self.hints)
    }

    /// Returns the next few hundred rows; none at the end of the file.
    ///
    /// # Errors
    /// If the row group is damaged; the error names the rows that are missing. The next call continues with the next
    /// row group.
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
        let (needed, unneeded): (Vec<_>, Vec<_>) = bad.into_iter().partition(is_needed);
        // Describes the damage of the first damaged column, and names the other damaged columns.
        let describe = |bad: &[(usize, String)]| {
            let ((place, what), more) = bad.split_first()?;
            let more: String = more.iter().map(|(place, _)| format!(", {}", paths[*place])).collect();
            Some(match &more[..] {
                "" => format!("column {}: {what}", paths[*place]),
                _ => format!("columns {}{more}: {what}", paths[*place]),
            })
        };
        if let Some(what) = describe(&needed) {
            return Err(self.sealed.unreadable(group, 0, what));
        }
        if let Some(what) = describe(&unneeded) {
            let what = format!("{what}; the result does not need this data and is complete");
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
                // A counter column that was added after the file was written reads as zero.
                let Some(reader) = reader else { continue };
                let rows = cells.read(column, reader, LINES)?;
                if i == 0 {
                    lines.resize_with(rows.unwrap_or(0), T::blank);
                }
                if rows != Some(lines.len()) || (column.take)(&mut lines, column.arg, cells).is_none() {
                    let what = format!("column {} has values that netgrain never writes", column.path);
                    return Err(ParquetError::General(what));
                }
            }
            Ok(lines)
        })
    }
}

/// Parses a line of [`key::INTERFACES`].
fn named(line: &str) -> Option<(u16, String)> {
    let (number, name) = line.split_once('=')?;
    Some((number.parse().ok()?, name.to_owned()))
}

/// Reads the footer of a file of length `len`, with the bytes that follow the footer.
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

/// Converts an error or a panic of the library into a damage error of this file.
pub fn guarded<R, E: fmt::Display>(path: &Path, work: impl FnOnce() -> Result<R, E>) -> Result<R, ColumnsError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|e| ColumnsError::damaged(path, e)),
        Err(_) => Err(ColumnsError::damaged(path, "is so damaged that the Parquet library panicked")),
    }
}
