//! A sealed file, read again: by row groups, by columns, a few hundred things at a time.
//!
//! The library below returns errors for most damage; where it gives up instead, that ends here too and is told as damage.

use crate::error::ColumnsError;
use crate::layout::Layout;
use crate::seal::{VERSION, key};
use crate::sheet::Cells;
use crate::shelf::Kind;
use base::Timestamp;
use bytes::Bytes;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::filter::Need;

/// Things that are read together.
const LINES: usize = 512;

/// A file by positions: readers of several columns do not share one.
#[derive(Clone)]
pub struct Source(Arc<File>);

/// From one position on.
pub struct From {
    file: Arc<File>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |meta| meta.len())
    }
}

impl ChunkReader for Source {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::new(From { file: Arc::clone(&self.0), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        // A length that a damaged file claims is not believed before there is that much.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} lie beyond the end")));
        }
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// See the module.
pub struct Sealed {
    /// Where it is.
    pub path: PathBuf,
    /// The journal that it was made of.
    pub journal: Option<u64>,
    /// The names of the files that it took the place of.
    pub replaces: Vec<String>,
    source: Source,
    reader: SerializedFileReader<Source>,
}

impl Sealed {
    /// Opens it and reads its footer.
    ///
    /// # Errors
    /// When it cannot be read, or is not what its name says.
    pub fn open(path: &Path, kind: Kind) -> Result<Self, ColumnsError> {
        let file = File::open(path).map_err(ColumnsError::io(path))?;
        let source = Source(Arc::new(file));
        let reader = guarded(path, || SerializedFileReader::new(source.clone()))?;
        let value = |name: &str| {
            let notes = reader.metadata().file_metadata().key_value_metadata()?;
            notes.iter().find(|note| note.key == name)?.value.clone()
        };
        if value(key::KIND).as_deref() != Some(kind.name()) {
            return Err(ColumnsError::damaged(path, format!("is not a file of {} that netgrain wrote", kind.name())));
        }
        if value(key::FORMAT).as_deref() != Some(&VERSION.to_string()) {
            let found = value(key::FORMAT).unwrap_or_else(|| "1".into());
            let what = format!("has columns of version {found}, and this netgrain reads version {VERSION}");
            return Err(ColumnsError::damaged(path, what));
        }
        let journal = value(key::JOURNAL).and_then(|id| u64::from_str_radix(&id, 16).ok());
        let replaces = value(key::REPLACES).map_or(Vec::new(), |all| all.split(' ').map(str::to_owned).collect());
        Ok(Self { path: path.to_owned(), journal, replaces, source, reader })
    }

    /// The row groups that may hold something between two moments that has what is needed.
    pub fn groups(&self, from: Timestamp, to: Timestamp, need: &Need, id: Option<u64>) -> Vec<usize> {
        let all = self.reader.metadata().row_groups().iter().enumerate();
        let wanted = |(_, group): &(usize, &RowGroupMetaData)| {
            let group = Group { group, source: &self.source };
            let (first, last) = group.span();
            let outside = first.is_some_and(|first| first > to) || last.is_some_and(|last| last < from);
            !outside
                && id.is_none_or(|id| group.may_have("id", Some(id as i64), &id.to_le_bytes()[..]))
                && group.may(need)
        };
        let wanted = |entry: &(usize, &RowGroupMetaData)| {
            // A filter that cannot be read keeps nothing out; the pages say what is the matter.
            catch_unwind(AssertUnwindSafe(|| wanted(entry))).unwrap_or(true)
        };
        all.filter(wanted).map(|(i, _)| i).collect()
    }

    /// Whether all of a row group lies between two moments.
    pub fn is_inside(&self, group: usize, from: Timestamp, to: Timestamp) -> bool {
        let group = Group { group: self.reader.metadata().row_group(group), source: &self.source };
        let (first, last) = group.outer();
        first.is_some_and(|first| first >= from) && last.is_some_and(|last| last <= to)
    }

    /// Readers of these columns of a row group, in their order; none for one that is not there.
    ///
    /// # Errors
    /// What the library says of it.
    pub fn columns(&self, group: usize, paths: &[&str]) -> Result<Vec<Option<ColumnReader>>, ColumnsError> {
        guarded(&self.path, || {
            let schema = self.reader.metadata().file_metadata().schema_descr();
            let group = self.reader.get_row_group(group)?;
            let at = |path: &str| (0..schema.num_columns()).find(|i| schema.column(*i).path().string() == path);
            paths.iter().map(|path| at(path).map(|i| group.get_column_reader(i)).transpose()).collect()
        })
    }

    /// Pages of these columns of a row group and what their schema is, in their order; none for one that is not there.
    ///
    /// # Errors
    /// What the library says of it.
    pub fn pages(&self, group: usize, paths: &[&str]) -> Result<Vec<Option<Leaf>>, ColumnsError> {
        guarded(&self.path, || {
            let schema = self.reader.metadata().file_metadata().schema_descr();
            let group = self.reader.get_row_group(group)?;
            let at = |path: &str| (0..schema.num_columns()).find(|i| schema.column(*i).path().string() == path);
            let leaf = |i: usize| Ok((schema.column(i), group.get_column_page_reader(i)?));
            paths.iter().map(|path| at(path).map(leaf).transpose()).collect::<ParquetResult<_>>()
        })
    }

    /// Rows of a row group.
    pub fn rows(&self, group: usize) -> usize {
        usize::try_from(self.reader.metadata().row_group(group).num_rows()).unwrap_or(0)
    }
}

/// A column of a row group, page by page.
pub type Leaf = (ColumnDescPtr, Box<dyn PageReader>);

/// What the footer says of a row group, and its filters.
struct Group<'a> {
    group: &'a RowGroupMetaData,
    source: &'a Source,
}

impl Group<'_> {
    fn statistics(&self, name: &str) -> Option<&Statistics> {
        self.group.columns().iter().find(|c| c.column_path().string() == name)?.statistics()
    }

    fn range(&self, name: &str) -> Option<(i64, i64)> {
        match self.statistics(name)? {
            Statistics::Int64(s) => Some((*s.min_opt()?, *s.max_opt()?)),
            Statistics::Int32(s) => Some((i64::from(*s.min_opt()?), i64::from(*s.max_opt()?))),
            _ => None,
        }
    }

    /// The earliest beginning and the latest end, as far as they are known. Moments after 2262 are negative there, and
    /// nothing is said of a group that holds such.
    fn outer(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let moment = |n: i64| u64::try_from(n).ok().map(Timestamp::from_nanos);
        let (first, last) = (self.range("first"), self.range("last"));
        if [first, last].iter().flatten().any(|(min, _)| *min < 0) {
            return (None, None);
        }
        (first.and_then(|(min, _)| moment(min)), last.and_then(|(_, max)| moment(max)))
    }

    fn span(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let second = |n: i64| u64::try_from(n).ok().map(|n| Timestamp::from_secs_nanos(n, 0));
        match self.range("second") {
            Some((min, max)) if min >= 0 => (second(min), second(max.saturating_add(1))),
            _ => self.outer(),
        }
    }

    /// Whether a column may have this value, by its range and its filter.
    fn may_have(&self, name: &str, value: Option<i64>, bytes: &[u8]) -> bool {
        // Numbers of 64 bits without a sign are ordered as such, which is not how they are read here.
        if let (Some((min, max)), Some(value)) = (self.range(name), value)
            && min >= 0
            && max >= min
            && !(min..=max).contains(&value)
        {
            return false;
        }
        let Some(column) = self.group.columns().iter().find(|c| c.column_path().string() == name) else { return true };
        match Sbbf::read_from_column_chunk(column, self.source) {
            Ok(Some(filter)) => filter.check(bytes),
            _ => true,
        }
    }

    fn may(&self, need: &Need) -> bool {
        let host = |address: &IpAddr| {
            let text = address.to_string();
            ["src", "dst"].iter().any(|name| self.may_have(name, None, text.as_bytes()))
        };
        match need {
            Need::Host(address) => host(address),
            Need::Ports(from, to) if from == to => {
                let port = i32::from(*from);
                ["src_port", "dst_port"].iter().any(|n| self.may_have(n, Some(port.into()), &port.to_le_bytes()))
            }
            Need::Protocol(number) => {
                self.range("protocol").is_none_or(|(min, max)| (min..=max).contains(&i64::from(*number)))
            }
            Need::Flow(_, (a, _), (b, _)) => host(a) && host(b),
            Need::All(all) => all.iter().all(|need| self.may(need)),
            Need::Any(any) => any.iter().any(|need| self.may(need)),
            _ => true,
        }
    }
}

/// Things of some row groups, one after the other.
pub struct Things<T: Layout> {
    sealed: Sealed,
    groups: std::vec::IntoIter<usize>,
    columns: Arc<Vec<crate::sheet::Column<T::Line>>>,
    readers: Vec<Option<ColumnReader>>,
    cells: Cells,
}

impl<T: Layout> Things<T> {
    /// Of these row groups.
    pub fn new(sealed: Sealed, groups: Vec<usize>) -> Self {
        let columns = Arc::new(T::columns());
        Self { sealed, groups: groups.into_iter(), columns, readers: Vec::new(), cells: Cells::default() }
    }

    /// The next few; none at the end.
    ///
    /// # Errors
    /// What is damaged; nothing follows then.
    pub fn next(&mut self) -> Result<Vec<T>, ColumnsError> {
        loop {
            if !self.readers.is_empty() {
                let lines = self.lines()?;
                if !lines.is_empty() {
                    return Ok(lines.into_iter().map(T::unline).collect());
                }
            }
            let Some(group) = self.groups.next() else { return Ok(Vec::new()) };
            let paths: Vec<&str> = self.columns.iter().map(|c| c.path.as_str()).collect();
            self.readers = self.sealed.columns(group, &paths)?;
        }
    }

    fn lines(&mut self) -> Result<Vec<T::Line>, ColumnsError> {
        let (columns, cells, readers) = (Arc::clone(&self.columns), &mut self.cells, &mut self.readers);
        let outcome = guarded(&self.sealed.path, || {
            let mut lines: Vec<T::Line> = Vec::new();
            for (i, (column, reader)) in columns.iter().zip(readers).enumerate() {
                T::settle(i, &mut lines);
                // A counter that is younger than the file is zero there.
                let Some(reader) = reader else { continue };
                let rows = cells.read(reader, LINES)?;
                if i == 0 {
                    lines.resize_with(rows, T::blank);
                }
                if rows != lines.len() || (column.take)(&mut lines, column.arg, cells).is_none() {
                    let what = format!("column {} has values that netgrain did not write", column.path);
                    return Err(ParquetError::General(what));
                }
            }
            Ok(lines)
        });
        if outcome.is_err() {
            self.readers.clear();
            self.groups = Vec::new().into_iter();
        }
        outcome
    }
}

/// What the library says, or panics with, as damage of this file.
pub fn guarded<R, E: fmt::Display>(path: &Path, work: impl FnOnce() -> Result<R, E>) -> Result<R, ColumnsError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|e| ColumnsError::damaged(path, e)),
        Err(_) => Err(ColumnsError::damaged(path, "is damaged in a way that cannot be read past")),
    }
}
