//! Writes and reads Parquet files of flow records or series rows outside of a store, as an output format. Such a file
//! has the interface name of each row, and columns that the store omits to save space.

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

/// Writes records, in order of their begin, as one file with the columns of the store and the Community ID. `names`
/// returns the interface names; it is called while rows are written, and at the end.
///
/// # Errors
/// If the file cannot be written.
pub fn write_flows(
    to: impl io::Write + Send,
    records: &mut dyn Iterator<Item = Record>,
    names: &dyn Fn() -> Vec<(u16, String)>,
) -> io::Result<()> {
    write(to, DataFileKind::Flows, names, records)
}

/// As [`write_flows`], for series rows in order of time.
///
/// # Errors
/// If the file cannot be written.
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
    table_rows: &mut dyn Iterator<Item = T>,
) -> io::Result<()> {
    let all = |mut parquet: Parquet<'_, T, _>| {
        parquet.rows(table_rows)?;
        let lines: Vec<String> = names()
            .iter()
            // Control characters are replaced, because each interface has one line, and a line break in a name from a
            // foreign file would begin another line.
            .map(|(number, name)| format!("{number}={}", name.replace(char::is_control, " ")))
            .collect();
        parquet.note(key::INTERFACES, lines.join("\n"));
        parquet.finish()
    };
    Parquet::new(to, kind, Names::ByNumber(names), Vec::new()).and_then(all).map_err(as_io)
}

/// The I/O error inside a Parquet error, if there is one.
pub(crate) fn as_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

/// The rows of one file, in the order of the file.
pub struct StandaloneFile<T: Schema = Record> {
    table_rows: TableRows<T>,
    ready: std::vec::IntoIter<T>,
    /// Errors that the next calls return; the last error of the list is returned first.
    warnings: Vec<ColumnsError>,
    names: Vec<(u16, String)>,
}

/// Opens a file of flow records, which a store contains or [`write_flows`] has written.
///
/// # Errors
/// If the file cannot be read, or does not contain flow records.
pub fn read_flows(path: &Path) -> Result<StandaloneFile, ColumnsError> {
    StandaloneFile::open(path, DataFileKind::Flows)
}

/// Opens a file of series rows, which a store contains or [`write_series`] has written.
///
/// # Errors
/// If the file cannot be read, or does not contain series rows.
pub fn read_series(path: &Path) -> Result<StandaloneFile<Row>, ColumnsError> {
    StandaloneFile::open(path, DataFileKind::Series)
}

impl<T: Schema> StandaloneFile<T> {
    fn open(path: &Path, kind: DataFileKind) -> Result<Self, ColumnsError> {
        let mut sealed = Sealed::open(path, kind)?;
        let (groups, names) = (sealed.all(), std::mem::take(&mut sealed.interfaces));
        Ok(Self {
            table_rows: TableRows::new(sealed, groups),
            ready: Vec::new().into_iter(),
            warnings: Vec::new(),
            names,
        })
    }

    /// Restricts reading to these fields, as [`crate::Query::fields`] does; call this method before the first row is
    /// read.
    #[must_use]
    pub fn of_fields(self, fields: Option<Vec<String>>) -> Self {
        Self { table_rows: self.table_rows.of_fields(fields), ..self }
    }

    /// Interface names by interface number, from the file's metadata.
    pub fn names(&self) -> &[(u16, String)] {
        &self.names
    }
}

/// Returns an error for a damaged row group, and then continues with the rows after it.
impl<T: Schema> Iterator for StandaloneFile<T> {
    type Item = Result<T, ColumnsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.ready.next() {
            return Some(Ok(record));
        }
        if let Some(error) = self.warnings.pop() {
            return Some(Err(error));
        }
        let next = self.table_rows.next();
        self.warnings = self.table_rows.hints();
        match next {
            Ok(ready) => {
                self.ready = ready.into_iter();
                let error = if self.ready.len() == 0 { self.warnings.pop() } else { None };
                self.ready.next().map(Ok).or(error.map(Err))
            }
            Err(e) => Some(Err(e)),
        }
    }
}
