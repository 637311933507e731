//! Flow records in a Parquet file of their own, outside of a store: what an answer is given out as, and read from again.

use crate::error::ColumnsError;
use crate::file::{Sealed, Things};
use crate::seal::Parquet;
use crate::shelf::Kind;
use flow::Record;
use std::io;
use std::path::Path;

/// Writes records, which come in the order in which they begin, as the bytes of one file with the columns of the store's.
///
/// # Errors
/// When they cannot be written.
pub fn write_flows(to: impl io::Write + Send, records: &mut dyn Iterator<Item = Record>) -> io::Result<()> {
    let write = |mut parquet: Parquet<Record, _>| parquet.things(records).and_then(|()| parquet.finish());
    Parquet::new(to, Kind::Flows, Vec::new()).and_then(write).map_err(|e| match e {
        parquet::errors::ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    })
}

/// The records of one file, as they stand there.
pub struct Loose {
    things: Things<Record>,
    ready: std::vec::IntoIter<Record>,
}

/// Opens a file of flow records: of a store, or of [`write_flows`].
///
/// # Errors
/// When it cannot be read, or holds something else.
pub fn read_flows(path: &Path) -> Result<Loose, ColumnsError> {
    let sealed = Sealed::open(path, Kind::Flows)?;
    let groups = sealed.all();
    Ok(Loose { things: Things::new(sealed, groups), ready: Vec::new().into_iter() })
}

impl Iterator for Loose {
    type Item = Result<Record, ColumnsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.ready.next() {
            return Some(Ok(record));
        }
        match self.things.next() {
            Ok(ready) => {
                self.ready = ready.into_iter();
                self.ready.next().map(Ok)
            }
            Err(e) => Some(Err(e)),
        }
    }
}
