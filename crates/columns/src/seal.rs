//! Writes Parquet files from columns and publishes them: each file is written under a hidden name, synced, and renamed.
//! Several files are synced together where possible.
//!
//! Each column is decoded from all blocks of a journal and written into all row groups before the next column is
//! decoded. So memory holds one decoded column per writing thread, and the encoded file. To sort rows, only their row
//! numbers are permuted.

use crate::block::{Blocks, FlatColumn, RowContext};
use crate::builder::Builder;
use crate::chunk::ChunkWriter;
use crate::digest::{self, Digests};
use crate::error::ColumnsError;
use crate::file_layout::{self, DataFileKind};
use crate::journal::{NO_COLUMNS, OrderedJournal};
use crate::schema::{Cells, Column, declaration};
use crate::tables::{INTERFACE, Schema};
use crate::volume::Output;
use base::Timestamp;
use bytes::Bytes;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnDescPtr;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::device::{Content, FileId, Housekeeping};
use store::names;

/// Rows per row group.
pub const GROUP: usize = 1 << 16;

/// The version of the schemas: names, types and order of the columns, and the meaning of a null.
pub const VERSION: u32 = 6;

/// Keys of the file metadata.
pub mod key {
    /// The metadata key for the table (flow records or series rows) that the file contains.
    pub const KIND: &str = "netgrain.kind";
    /// The version of the columns and of the meaning of null: [`super::VERSION`].
    pub const FORMAT: &str = "netgrain.format";
    /// The file's id, unique within the store: the id of the journal that it was made of, or a new one if its rows come
    /// from other files. Names of removed files are used again; ids are not.
    pub const ID: &str = "netgrain.id";
    /// The ids of the files whose rows this file contains, including the ids that those files list as replaced.
    pub const REPLACES: &str = "netgrain.replaces";
    /// Interface names: a line `NUMBER=NAME` for each, in a file outside of an interface's directory.
    pub const INTERFACES: &str = "netgrain.interfaces";
}

/// A new id for a file or journal, unique within the store through the random keys of `RandomState`.
pub fn new_id(of: &Path) -> u64 {
    RandomState::new().hash_one(of)
}

/// The text form of an id, as it is stored in the metadata.
pub fn id_text(id: u64) -> String {
    format!("{id:016x}")
}

/// The directory and the metadata of a file that is to be published.
pub struct Plan<'a> {
    /// The interface's directory.
    pub root: &'a Path,
    /// The table (flow records or series rows) that the file contains.
    pub kind: DataFileKind,
    /// The timestamp in its name.
    pub start: Timestamp,
    /// The latest timestamp of the rows in the file.
    pub end: Timestamp,
    /// Metadata besides kind and format.
    pub notes: Vec<(&'a str, String)>,
}

/// A complete file under a hidden name, held open and not yet synced.
pub struct Hidden {
    path: PathBuf,
    file: FileId,
    directory: PathBuf,
    kind: DataFileKind,
    start: Timestamp,
    end: Timestamp,
}

/// Writes a new file, whose rows `fill` adds, under a hidden name.
///
/// # Errors
/// Errors of the file system, or damage of the source of the rows. In both cases the hidden file is removed.
pub fn write<T: Schema>(
    disk: &mut dyn Housekeeping,
    plan: Plan<'_>,
    fill: impl FnOnce(&mut Parquet<'_, T, &mut (dyn io::Write + Send)>) -> Result<()>,
) -> std::result::Result<Hidden, ColumnsError> {
    let Plan { root, kind, start, end, notes } = plan;
    let directory = names::hour_directory(root, start);
    disk.create_directory(&directory).map_err(ColumnsError::io(&directory))?;
    let (path, file) = create_hidden(disk, &directory, kind, start)?;
    let mut output = io::BufWriter::with_capacity(1 << 20, Output { disk, file, len: 0 });
    let names = Names::One(root.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let written = Parquet::new(&mut output as &mut (dyn io::Write + Send), kind, names, notes)
        .and_then(|mut parquet| fill(&mut parquet).map(|()| parquet))
        .and_then(Parquet::finish)
        .and_then(|()| Ok(io::Write::flush(&mut output)?))
        .map_err(|e| as_columns_error(&path, e));
    // Data that is still buffered after a failure is discarded, because the hidden file is removed.
    let (Output { disk, .. }, _) = output.into_parts();
    let hidden = Hidden { path, file, directory, kind, start, end };
    match written {
        Ok(()) => Ok(hidden),
        Err(error) => {
            hidden.discard(disk);
            Err(error)
        }
    }
}

/// Publishes files, each independently of the others: syncs all contents together with these journals, then renames the
/// files, and then syncs each of their directories once. If a step fails for a file, the file is not published, or its
/// name may not survive a power failure. The journals are synced for the following reason: a removed journal may
/// reappear after a power failure. Queries then read the journal and skip the file that was made from it, so the
/// journal must be complete on disk.
pub fn name_all(
    disk: &mut dyn Housekeeping,
    files: Vec<Hidden>,
    journals: &[&Path],
) -> (Vec<std::result::Result<PathBuf, ColumnsError>>, Vec<io::Result<()>>) {
    let contents: Vec<&Path> = files.iter().map(|hidden| &*hidden.path).chain(journals.iter().copied()).collect();
    let mut synced = disk.sync_all(&contents);
    let journals_synced = synced.split_off(files.len());
    let named: Vec<_> = files
        .into_iter()
        .zip(synced)
        .map(|(hidden, synced)| match synced.map_err(ColumnsError::io(&hidden.path)).and_then(|()| hidden.name(disk)) {
            Ok(path) => {
                disk.close(hidden.file);
                Ok((path, hidden.directory))
            }
            Err(error) => {
                hidden.discard(disk);
                Err(error)
            }
        })
        .collect();
    let directories: BTreeSet<&Path> = named.iter().flatten().map(|(_, directory)| &**directory).collect();
    let directories: Vec<&Path> = directories.into_iter().collect();
    let mut unsynced: BTreeMap<PathBuf, io::Error> = BTreeMap::new();
    for (directory, synced) in directories.iter().zip(disk.sync_all(&directories)) {
        if let Err(error) = synced {
            unsynced.insert((*directory).to_owned(), error);
        }
    }
    let safe = |(path, directory): (PathBuf, PathBuf)| match unsynced.get(&directory) {
        None => Ok(path),
        Some(error) => Err(ColumnsError::io(&directory)(again(error))),
    };
    (named.into_iter().map(|named| named.and_then(safe)).collect(), journals_synced)
}

/// A copy of the error of a directory sync, for another file of the same directory.
fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

impl Hidden {
    /// Removes the hidden file; its rows are still in the journal.
    pub fn discard(self, disk: &mut dyn Housekeeping) {
        disk.close(self.file);
        let _ = disk.remove(&self.path);
    }

    /// Renames the hidden file to its final name, which contains the first timestamp of the file. If a file of this
    /// name exists, the name gets a copy number.
    fn name(&self, disk: &mut dyn Housekeeping) -> std::result::Result<PathBuf, ColumnsError> {
        let mut copy = 0;
        loop {
            let path = self.directory.join(file_layout::sealed_name(self.kind, self.start, self.end, copy));
            match disk.rename(&self.path, &path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => copy += 1,
                Err(e) => return Err(ColumnsError::io(&path)(e)),
                Ok(()) => return Ok(path),
            }
        }
    }
}

/// Creates a hidden file for this timestamp. Another thread may be writing a hidden file with the same timestamp (a
/// day's file while a journal is sealed), so each hidden file gets its own name. A hidden file that a crash left is
/// removed, because its rows are written again.
fn create_hidden(
    disk: &mut dyn Housekeeping,
    directory: &Path,
    kind: DataFileKind,
    start: Timestamp,
) -> std::result::Result<(PathBuf, FileId), ColumnsError> {
    let mut copy = 0;
    loop {
        let hidden = directory.join(names::hidden(&names::stem(start, None, copy), kind.ending()));
        if let Ok(Some(left)) = disk.take(&hidden) {
            let _ = disk.remove(&hidden);
            disk.close(left);
        }
        match disk.create(&hidden, Content::Index) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => copy += 1,
            Err(e) => return Err(ColumnsError::io(&hidden)(e)),
            Ok(file) => return Ok((hidden, file)),
        }
    }
}

fn as_columns_error(path: &Path, error: ParquetError) -> ColumnsError {
    match error {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(error) => ColumnsError::Io { path: path.to_owned(), error: *error },
            Err(e) => ColumnsError::damaged(path, e),
        },
        e => ColumnsError::damaged(path, e),
    }
}

/// A Parquet file that is being written.
pub struct Parquet<'n, T: Schema, W: io::Write + Send> {
    columns: Vec<Column<T::Line>>,
    extras: Vec<Column<T::Line>>,
    names: Names<'n>,
    descriptors: Vec<ColumnDescPtr>,
    writer: SerializedFileWriter<digest::FooterWriter<W>>,
    digests: Digests,
    chunk_writer: ChunkWriter,
}

/// A column chunk and its metadata.
type Chunk = (Bytes, ColumnCloseResult);

/// The columns that no thread has begun to encode.
struct RemainingColumns<'b> {
    /// Index of the next column.
    place: usize,
    /// Columns that are already decoded.
    ahead: std::vec::IntoIter<FlatColumn>,
    /// The blocks of the journal. The columns that follow those in `ahead` are decoded from these blocks.
    blocks: Blocks<'b>,
}

/// The data that the encoding threads share, with the columns that they take one by one.
struct SharedColumns<'a, 'b, L> {
    columns: &'a [Column<L>],
    descriptors: &'a [ColumnDescPtr],
    left: &'a Mutex<RemainingColumns<'b>>,
    /// Row numbers in sort order.
    order: &'a [u32],
}

impl<'b, L> SharedColumns<'_, 'b, L> {
    /// Takes columns until none is left, and writes a chunk of each column for each row group. One thread writes all
    /// chunks of a column, because the chunk writer chooses encodings from earlier row groups of the same column.
    fn encode_columns(&self, chunk_writer: &mut ChunkWriter) -> Result<BTreeMap<usize, Vec<Chunk>>> {
        let mut seen: Vec<RowContext> = self.order.chunks(GROUP).map(|_| RowContext::default()).collect();
        let (mut cells, mut encoded) = (Cells::default(), BTreeMap::new());
        while let Some((place, flat)) = self.take() {
            let flat = flat.ok_or_else(|| ParquetError::General(NO_COLUMNS.to_owned()))?;
            let (column, descriptor) = (&self.columns[place], &self.descriptors[place]);
            let mut chunks = Vec::with_capacity(seen.len());
            for (rows, seen) in self.order.chunks(GROUP).zip(&mut seen) {
                cells.clear();
                flat.gather(column, rows, seen, &mut cells);
                chunks.push(chunk_writer.chunk(column, descriptor, &cells, rows.len())?);
            }
            encoded.insert(place, chunks);
            self.left().blocks.keep(flat);
        }
        Ok(encoded)
    }

    fn left(&self) -> MutexGuard<'_, RemainingColumns<'b>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of the next column, and the decoded column; `None` instead of the column if it is invalid.
    fn take(&self) -> Option<(usize, Option<FlatColumn>)> {
        let mut left = self.left();
        let place = left.place;
        let column = self.columns.get(place)?;
        left.place += 1;
        let flat = left.ahead.next();
        Some((place, flat.or_else(|| left.blocks.next(column))))
    }
}

/// The interface names that are written into a file.
#[derive(Clone)]
pub enum Names<'n> {
    /// One name for all rows: that of the interface's directory.
    One(String),
    /// Interface names by interface number, as far as they are known when the rows are written; for files outside of a
    /// store.
    ByNumber(&'n dyn Fn() -> Vec<(u16, String)>),
}

impl<'n, T: Schema, W: io::Write + Send> Parquet<'n, T, W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Errors of the parquet library.
    pub fn new(to: W, kind: DataFileKind, names: Names<'n>, notes: Vec<(&str, String)>) -> Result<Self> {
        let (columns, extras) = (T::columns(), T::extras(matches!(names, Names::ByNumber(_))));
        let schema = Arc::new(parse_message_type(&declaration(T::NAME, columns.iter().chain(&extras)))?);
        let all = [(key::KIND, kind.name().to_owned()), (key::FORMAT, VERSION.to_string())].into_iter().chain(notes);
        let properties = WriterProperties::builder()
            .set_created_by(concat!("netgrain ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(all.map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect()))
            .set_sorting_columns(Some(vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }]))
            .build();
        let writer = SerializedFileWriter::new(digest::FooterWriter::new(to), schema, Arc::new(properties))?;
        let descriptors = writer.schema_descr().columns().to_vec();
        Ok(Self {
            columns,
            extras,
            names,
            descriptors,
            writer,
            digests: Digests::default(),
            chunk_writer: ChunkWriter::new()?,
        })
    }

    /// Writes all rows of a journal in order, with `threads` threads. The bytes of the file do not depend on the number
    /// of threads.
    ///
    /// # Errors
    /// Errors of the file system or of the parquet library.
    pub fn journal(&mut self, journal: OrderedJournal<'_>, threads: usize) -> Result<()> {
        self.groups(journal.blocks, journal.ahead, &journal.order, None, threads)
    }

    /// Writes rows, which must arrive in sort order.
    ///
    /// # Errors
    /// Errors of the file system or of the parquet library.
    pub fn rows(&mut self, table_rows: &mut dyn Iterator<Item = T>) -> Result<()> {
        while self.group_of(&table_rows.take(GROUP).collect::<Vec<T>>())? == GROUP {}
        Ok(())
    }

    /// Writes these rows, at most [`GROUP`], as one row group; returns their number.
    fn group_of(&mut self, table_rows: &[T]) -> Result<usize> {
        let (mut builder, mut bytes) = (Builder::default(), Vec::new());
        table_rows.iter().for_each(|table_row| builder.push(table_row, &mut bytes));
        builder.finish(&mut bytes);
        let blocks = Blocks::of([&bytes[..]].into_iter());
        let blocks = blocks.ok_or_else(|| ParquetError::General(NO_COLUMNS.to_owned()))?;
        let order: Vec<u32> = (0..blocks.rows() as u32).collect();
        if !order.is_empty() {
            self.groups(blocks, Vec::new(), &order, Some(table_rows), 1)?;
        }
        Ok(order.len())
    }

    /// Adds a metadata entry.
    pub fn note(&mut self, key: &str, value: String) {
        self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }

    /// Writes the rows of these blocks as row groups, in the order of the row numbers in `order`. `ahead` contains the
    /// first columns, which are already decoded. `table_rows` are the same rows as values, if the caller has them;
    /// extra columns are computed from them.
    fn groups(
        &mut self,
        blocks: Blocks<'_>,
        ahead: Vec<FlatColumn>,
        order: &[u32],
        table_rows: Option<&[T]>,
        threads: usize,
    ) -> Result<()> {
        let columns = Mutex::new(RemainingColumns { place: 0, ahead: ahead.into_iter(), blocks });
        let of = SharedColumns { columns: &self.columns, descriptors: &self.descriptors, left: &columns, order };
        let more = threads.saturating_sub(1).min(self.columns.len());
        let encoded = std::thread::scope(|scope| {
            let builder = || std::thread::Builder::new().name("columns-encode".into());
            // If a thread cannot be started, the other threads encode its columns.
            let more = (0..more)
                .map_while(|_| builder().spawn_scoped(scope, || of.encode_columns(&mut ChunkWriter::new()?)).ok());
            let more: Vec<_> = more.collect();
            let mut encoded = of.encode_columns(&mut self.chunk_writer);
            for thread in more {
                let columns = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                encoded = encoded.and_then(|mut all| {
                    all.extend(columns?);
                    Ok(all)
                });
            }
            encoded
        })?;
        let mut groups: Vec<Vec<Chunk>> = order.chunks(GROUP).map(|_| Vec::new()).collect();
        let mut add = |chunks: Vec<Chunk>| groups.iter_mut().zip(chunks).for_each(|(group, chunk)| group.push(chunk));
        encoded.into_values().for_each(&mut add);
        let mut cells = Cells::default();
        for (column, descriptor) in self.extras.iter().zip(&self.descriptors[self.columns.len()..]) {
            let mut chunks = Vec::new();
            for rows in order.chunks(GROUP) {
                cells.clear();
                match (&self.names, table_rows) {
                    (Names::ByNumber(names), Some(table_rows)) => extra(column, table_rows, &names(), &mut cells),
                    (Names::One(name), _) => {
                        cells.raw.extend_from_slice(name.as_bytes());
                        cells.present.resize(rows.len(), 1);
                        cells.same = Some((0, rows.len()));
                    }
                    (Names::ByNumber(_), None) => cells.present.resize(rows.len(), 0),
                }
                chunks.push(self.chunk_writer.chunk(column, descriptor, &cells, rows.len())?);
            }
            add(chunks);
        }
        for chunks in groups {
            let mut group = self.writer.next_row_group()?;
            for (bytes, close) in chunks {
                self.digests.chunk(&bytes, close.bloom_filter.as_ref())?;
                group.append_column(&bytes, close)?;
            }
            self.digests.end_group();
            group.close()?;
        }
        Ok(())
    }

    /// Writes the footer.
    ///
    /// # Errors
    /// Errors of the file system or of the parquet library.
    pub fn finish(mut self) -> Result<()> {
        for note in self.digests.notes() {
            self.writer.append_key_value_metadata(note);
        }
        self.writer.flush()?;
        self.writer.inner_mut().hold();
        self.writer.into_inner()?.finish()
    }
}

/// Appends the text of an extra column to `cells` for each of these rows.
fn extra<T: Schema>(column: &Column<T::Line>, table_rows: &[T], names: &[(u16, String)], cells: &mut Cells) {
    for table_row in table_rows {
        let before = cells.raw.len();
        if column.path == INTERFACE {
            let name = names.iter().find(|(number, _)| *number == table_row.interface());
            cells.raw.extend_from_slice(name.map_or("", |(_, name)| name).as_bytes());
        } else {
            table_row.extra(&column.path, &mut cells.raw);
        }
        let is_present = cells.raw.len() > before;
        cells.present.push(u8::from(is_present));
        if is_present {
            cells.ends.push(cells.raw.len());
        }
    }
}
