//! From columns to a published Parquet file: hidden, synced, renamed.
//!
//! A column goes from all blocks of a journal into all row groups before the next one begins, so that in memory there is one
//! column as numbers, and the file as it will be. Rows are put in order by the numbers of their places.

use crate::block::{Blocks, Flat, Seen};
use crate::builder::Builder;
use crate::chunk::Press;
use crate::digest::{self, Digests};
use crate::error::ColumnsError;
use crate::journal::{NO_COLUMNS, Ordered};
use crate::layout::{INTERFACE, Layout};
use crate::sheet::{Cells, Column, declaration};
use crate::shelf::Kind;
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
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::device::{Content, FileId, Housekeeping};
use store::names;

/// Rows of a row group.
pub const GROUP: usize = 1 << 16;

/// The version of the layouts. A file of a later one may mean something else by a null.
pub const VERSION: u32 = 4;

/// Says whose file this is, and what it took the place of.
pub mod key {
    /// What it holds.
    pub const KIND: &str = "netgrain.kind";
    /// Which columns it has, and what null means in them: [`super::VERSION`].
    pub const FORMAT: &str = "netgrain.format";
    /// The file's own number, which no other file of the store has: that of the journal that it was sealed from, or one of its
    /// own where its rows come from other files. Names of files come again once a file is gone; these numbers do not.
    pub const ID: &str = "netgrain.id";
    /// The numbers of the files whose rows it has, those of files that came into it by way of others among them.
    pub const REPLACES: &str = "netgrain.replaces";
    /// What interfaces are called: a line `NUMBER=NAME` for each, in a file that is not below a folder of that name.
    pub const INTERFACES: &str = "netgrain.interfaces";
}

/// A number for a file or a journal that no other one of the store has: the standard library's own secret makes it.
pub fn new_id(of: &Path) -> u64 {
    RandomState::new().hash_one(of)
}

/// A number of a file as its metadata has it.
pub fn id_text(id: u64) -> String {
    format!("{id:016x}")
}

/// Where a file is to be published, and what it says of itself.
pub struct Plan<'a> {
    /// The interface's folder.
    pub root: &'a Path,
    /// See there.
    pub kind: Kind,
    /// The moment in its name.
    pub start: Timestamp,
    /// What stands in its metadata beside kind and format.
    pub notes: Vec<(&'a str, String)>,
}

/// Writes a new file, whose content `fill` makes, and publishes it.
///
/// # Errors
/// What the file system says, or what is the matter with the content; nothing is published then.
pub fn publish<T: Layout>(
    disk: &mut dyn Housekeeping,
    plan: Plan<'_>,
    fill: impl FnOnce(&mut Parquet<'_, T, &mut (dyn io::Write + Send)>) -> Result<()>,
) -> std::result::Result<PathBuf, ColumnsError> {
    let Plan { root, kind, start, notes } = plan;
    let folder = names::hour_folder(root, start);
    disk.create_folder(&folder).map_err(ColumnsError::io(&folder))?;
    let (hidden, file) = create_hidden(disk, &folder, kind, start)?;
    let mut output = io::BufWriter::with_capacity(1 << 20, Output { disk, file, len: 0 });
    let names = Names::One(root.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let written = Parquet::new(&mut output as &mut (dyn io::Write + Send), kind, names, notes)
        .and_then(|mut parquet| fill(&mut parquet).map(|()| parquet))
        .and_then(Parquet::finish)
        .and_then(|()| Ok(io::Write::flush(&mut output)?))
        .map_err(|e| as_columns_error(&hidden, e));
    // What could not be written is given up with the file.
    let (Output { disk, .. }, _) = output.into_parts();
    let outcome = written
        .and_then(|()| disk.sync(&hidden).map_err(ColumnsError::io(&hidden)))
        .and_then(|()| name(disk, &hidden, &folder, kind, start));
    disk.close(file);
    if outcome.is_err() {
        // It says nothing that the journal does not.
        let _ = disk.remove(&hidden);
    }
    let path = outcome?;
    disk.sync(&folder).map_err(ColumnsError::io(&folder))?;
    Ok(path)
}

/// Makes a hidden file for a file of this moment. Another thread may be writing one of the same moment (a day's file while a
/// journal is sealed), so each has a name of its own. What a crash left of an earlier attempt says nothing that is not said
/// again.
fn create_hidden(
    disk: &mut dyn Housekeeping,
    folder: &Path,
    kind: Kind,
    start: Timestamp,
) -> std::result::Result<(PathBuf, FileId), ColumnsError> {
    let mut copy = 0;
    loop {
        let hidden = folder.join(names::hidden(&names::stem(start, None, copy), kind.ending()));
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

/// Gives the file the first of its names that is free.
fn name(
    disk: &mut dyn Housekeeping,
    hidden: &Path,
    folder: &Path,
    kind: Kind,
    start: Timestamp,
) -> std::result::Result<PathBuf, ColumnsError> {
    let mut copy = 0;
    loop {
        let path = folder.join(format!("{}.{}", names::stem(start, None, copy), kind.ending()));
        match disk.rename(hidden, &path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => copy += 1,
            Err(e) => return Err(ColumnsError::io(&path)(e)),
            Ok(()) => return Ok(path),
        }
    }
}

/// A Parquet file that is being written.
pub struct Parquet<'n, T: Layout, W: io::Write + Send> {
    columns: Vec<Column<T::Line>>,
    extras: Vec<Column<T::Line>>,
    names: Names<'n>,
    descriptors: Vec<ColumnDescPtr>,
    writer: SerializedFileWriter<digest::Tail<W>>,
    digests: Digests,
    press: Press,
}

/// A column of a row group, and what the footer says of it.
type Chunk = (Bytes, ColumnCloseResult);

/// What a file says that the interfaces of its rows are called.
#[derive(Clone)]
pub enum Names<'n> {
    /// All of them alike: that of the folder.
    One(String),
    /// By their numbers, as far as they are known when the rows are written. Such a file is for others.
    ByNumber(&'n dyn Fn() -> Vec<(u16, String)>),
}

impl<'n, T: Layout, W: io::Write + Send> Parquet<'n, T, W> {
    /// Begins one.
    ///
    /// # Errors
    /// What the library says.
    pub fn new(to: W, kind: Kind, names: Names<'n>, notes: Vec<(&str, String)>) -> Result<Self> {
        let (columns, extras) = (T::columns(), T::extras(matches!(names, Names::ByNumber(_))));
        let schema = Arc::new(parse_message_type(&declaration(T::NAME, columns.iter().chain(&extras)))?);
        let all = [(key::KIND, kind.name().to_owned()), (key::FORMAT, VERSION.to_string())].into_iter().chain(notes);
        let properties = WriterProperties::builder()
            .set_created_by(concat!("netgrain ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(all.map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect()))
            .set_sorting_columns(Some(vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }]))
            .build();
        let writer = SerializedFileWriter::new(digest::Tail::new(to), schema, Arc::new(properties))?;
        let descriptors = writer.schema_descr().columns().to_vec();
        Ok(Self { columns, extras, names, descriptors, writer, digests: Digests::default(), press: Press::new()? })
    }

    /// All of a journal, in order.
    ///
    /// # Errors
    /// What the file system says, or the library.
    pub fn journal(&mut self, journal: Ordered<'_>) -> Result<()> {
        self.groups(journal.blocks, journal.ahead, &journal.order, None)
    }

    /// Things that come in order.
    ///
    /// # Errors
    /// What the file system says, or the library.
    pub fn things(&mut self, things: &mut dyn Iterator<Item = T>) -> Result<()> {
        while self.group_of(&things.take(GROUP).collect::<Vec<T>>())? == GROUP {}
        Ok(())
    }

    /// A row group of so many things, [`GROUP`] at most. Says how many.
    fn group_of(&mut self, things: &[T]) -> Result<usize> {
        let (mut builder, mut bytes) = (Builder::default(), Vec::new());
        things.iter().for_each(|thing| builder.push(thing, &mut bytes));
        builder.finish(&mut bytes);
        let blocks = Blocks::of([&bytes[..]].into_iter());
        let blocks = blocks.ok_or_else(|| ParquetError::General(NO_COLUMNS.to_owned()))?;
        let order: Vec<u32> = (0..blocks.rows() as u32).collect();
        if !order.is_empty() {
            self.groups(blocks, Vec::new(), &order, Some(things))?;
        }
        Ok(order.len())
    }

    /// Says something in the metadata.
    pub fn note(&mut self, key: &str, value: String) {
        self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }

    /// Rows of these blocks, of which the first columns were taken already; `things` are the same, if somebody has them.
    fn groups(&mut self, mut blocks: Blocks<'_>, ahead: Vec<Flat>, order: &[u32], things: Option<&[T]>) -> Result<()> {
        let mut groups: Vec<(Vec<Chunk>, Seen)> = order.chunks(GROUP).map(|_| Default::default()).collect();
        let mut cells = Cells::default();
        let mut ahead = ahead.into_iter();
        for (column, descriptor) in self.columns.iter().zip(&self.descriptors) {
            let flat = ahead.next().or_else(|| blocks.next(column));
            let flat = flat.ok_or_else(|| ParquetError::General(NO_COLUMNS.to_owned()))?;
            for (rows, (chunks, seen)) in order.chunks(GROUP).zip(&mut groups) {
                cells.clear();
                flat.gather(column, rows, seen, &mut cells);
                chunks.push(self.press.chunk(column, descriptor, &cells, rows.len())?);
            }
            blocks.keep(flat);
        }
        for (column, descriptor) in self.extras.iter().zip(&self.descriptors[self.columns.len()..]) {
            for (rows, (chunks, _)) in order.chunks(GROUP).zip(&mut groups) {
                cells.clear();
                match (&self.names, things) {
                    (Names::ByNumber(names), Some(things)) => extra(column, things, &names(), &mut cells),
                    (Names::One(name), _) => {
                        cells.raw.extend_from_slice(name.as_bytes());
                        cells.there.resize(rows.len(), 1);
                        cells.same = Some((0, rows.len()));
                    }
                    (Names::ByNumber(_), None) => cells.there.resize(rows.len(), 0),
                }
                chunks.push(self.press.chunk(column, descriptor, &cells, rows.len())?);
            }
        }
        for (chunks, _) in groups {
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
    /// What the file system says, or the library.
    pub fn finish(mut self) -> Result<()> {
        for note in self.digests.notes() {
            self.writer.append_key_value_metadata(note);
        }
        self.writer.flush()?;
        self.writer.inner_mut().hold();
        self.writer.into_inner()?.finish()
    }
}

/// Text of these things, row by row.
fn extra<T: Layout>(column: &Column<T::Line>, things: &[T], names: &[(u16, String)], cells: &mut Cells) {
    for thing in things {
        let before = cells.raw.len();
        if column.path == INTERFACE {
            let name = names.iter().find(|(number, _)| *number == thing.interface());
            cells.raw.extend_from_slice(name.map_or("", |(_, name)| name).as_bytes());
        } else {
            thing.extra(&column.path, &mut cells.raw);
        }
        let is_there = cells.raw.len() > before;
        cells.there.push(u8::from(is_there));
        if is_there {
            cells.ends.push(cells.raw.len());
        }
    }
}
