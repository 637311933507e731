//! Flow records or rows in a Parquet file of their own, outside of a store: what an answer is given out as, and read from
//! again. Such a file is for others: it says of each row what its interface is called, and has columns that a store has no room for.

use crate::error::ColumnsError;
use crate::file::{Sealed, TableRows};
use crate::file_layout::DataFileKind;
use crate::seal::{Names, Parquet, key};
use crate::tables::Schema;
use flow::Record;
use parquet::errors::ParquetError;
use series::Row;
use std::io;
use std::path::Path;

/// Writes records, which come in the order in which they begin, as the bytes of one file with the columns of the store's and
/// the Community ID. `names` are asked as rows are written, and at the end: what the interfaces are called.
///
/// # Errors
/// When they cannot be written.
pub fn write_flows(
    to: impl io::Write + Send,
    records: &mut dyn Iterator<Item = Record>,
    names: &dyn Fn() -> Vec<(u16, String)>,
) -> io::Result<()> {
    write(to, DataFileKind::Flows, names, records)
}

/// The same of rows, which come in the order of time.
///
/// # Errors
/// When they cannot be written.
pub fn write_series(
    to: impl io::Write + Send,
    rows: &mut dyn Iterator<Item = Row>,
    names: &dyn Fn() -> Vec<(u16, String)>,
) -> io::Result<()> {
    write(to, DataFileKind::Series, names, rows)
}

fn write<T: Schema>(
    to: impl io::Write + Send,
    kind: DataFileKind,
    names: &dyn Fn() -> Vec<(u16, String)>,
    things: &mut dyn Iterator<Item = T>,
) -> io::Result<()> {
    let all = |mut parquet: Parquet<'_, T, _>| {
        parquet.rows(things)?;
        let lines: Vec<String> = names()
            .iter()
            // A line break in a name that somebody else gave would begin another.
            .map(|(number, name)| format!("{number}={}", name.replace(char::is_control, " ")))
            .collect();
        parquet.note(key::INTERFACES, lines.join("\n"));
        parquet.finish()
    };
    Parquet::new(to, kind, Names::ByNumber(names), Vec::new()).and_then(all).map_err(as_io)
}

/// What the file system said, if it was that.
pub(crate) fn as_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

/// What one file holds, as it stands there.
pub struct StandaloneFile<T: Schema = Record> {
    things: TableRows<T>,
    ready: std::vec::IntoIter<T>,
    /// What is to be told next, the last first.
    warnings: Vec<ColumnsError>,
    names: Vec<(u16, String)>,
}

/// Opens a file of flow records: of a store, or of [`write_flows`].
///
/// # Errors
/// When it cannot be read, or holds something else.
pub fn read_flows(path: &Path) -> Result<StandaloneFile, ColumnsError> {
    StandaloneFile::open(path, DataFileKind::Flows)
}

/// The same of rows: of a store, or of [`write_series`].
///
/// # Errors
/// When it cannot be read, or holds something else.
pub fn read_series(path: &Path) -> Result<StandaloneFile<Row>, ColumnsError> {
    StandaloneFile::open(path, DataFileKind::Series)
}

impl<T: Schema> StandaloneFile<T> {
    fn open(path: &Path, kind: DataFileKind) -> Result<Self, ColumnsError> {
        let mut sealed = Sealed::open(path, kind)?;
        let (groups, names) = (sealed.all(), std::mem::take(&mut sealed.interfaces));
        Ok(Self { things: TableRows::new(sealed, groups), ready: Vec::new().into_iter(), warnings: Vec::new(), names })
    }

    /// What the file says that interfaces are called.
    pub fn names(&self) -> &[(u16, String)] {
        &self.names
    }
}

/// What cannot be read is an error among them, behind which the rest follows.
impl<T: Schema> Iterator for StandaloneFile<T> {
    type Item = Result<T, ColumnsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.ready.next() {
            return Some(Ok(record));
        }
        if let Some(trouble) = self.warnings.pop() {
            return Some(Err(trouble));
        }
        let next = self.things.next();
        self.warnings = self.things.hints();
        match next {
            Ok(ready) => {
                self.ready = ready.into_iter();
                let trouble = if self.ready.len() == 0 { self.warnings.pop() } else { None };
                self.ready.next().map(Ok).or(trouble.map(Err))
            }
            Err(e) => Some(Err(e)),
        }
    }
}
