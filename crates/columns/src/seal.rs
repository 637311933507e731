//! From things in order to a published Parquet file: hidden, synced, renamed.

use crate::chunk::Press;
use crate::error::ColumnsError;
use crate::layout::Layout;
use crate::sheet::{Cells, declaration};
use crate::shelf::Kind;
use base::Timestamp;
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::names;

/// Rows of a row group: what is held in memory at once, as columns (about 40 MB of flow records).
pub const GROUP: usize = 1 << 16;

/// Lines that go from rows to columns together: so few that they stay in the processor's nearest cache, for each column passes
/// over them once.
const LINES: usize = 24;

/// The version of the layouts. A file of a later one may mean something else by a null.
pub const VERSION: u32 = 2;

/// Says whose file this is, and what it took the place of.
pub mod key {
    /// What it holds.
    pub const KIND: &str = "netgrain.kind";
    /// Which columns it has, and what null means in them: [`super::VERSION`].
    pub const FORMAT: &str = "netgrain.format";
    /// The journal that it was sealed from.
    pub const JOURNAL: &str = "netgrain.journal";
    /// The files whose content it has.
    pub const REPLACES: &str = "netgrain.replaces";
}

/// Writes things, which come in order, into a new file that begins at `start`, and publishes it.
///
/// # Errors
/// What the file system says; nothing is published then.
pub fn publish<T: Layout>(
    root: &Path,
    kind: Kind,
    start: Timestamp,
    things: &mut dyn Iterator<Item = Result<T, ColumnsError>>,
    notes: Vec<(&str, String)>,
) -> Result<PathBuf, ColumnsError> {
    let folder = names::hour_folder(root, start);
    fs::create_dir_all(&folder).map_err(ColumnsError::io(&folder))?;
    let hidden = folder.join(names::hidden(&names::stem(start, None, 0), kind.ending()));
    let outcome = write(&hidden, kind, things, notes).and_then(|()| name(&hidden, &folder, kind, start));
    if outcome.is_err() {
        // It says nothing that the journal does not.
        let _ = fs::remove_file(&hidden);
    }
    let path = outcome?;
    let sync = File::open(&folder).and_then(|folder| folder.sync_all());
    sync.map_err(ColumnsError::io(&folder))?;
    Ok(path)
}

/// Gives the file the first of its names that is free.
fn name(hidden: &Path, folder: &Path, kind: Kind, start: Timestamp) -> Result<PathBuf, ColumnsError> {
    let mut copy = 0;
    loop {
        let path = folder.join(format!("{}.{}", names::stem(start, None, copy), kind.ending()));
        match sys::disk::rename_new(hidden, &path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => copy += 1,
            Err(e) => return Err(ColumnsError::io(&path)(e)),
            Ok(()) => return Ok(path),
        }
    }
}

fn write<T: Layout>(
    path: &Path,
    kind: Kind,
    things: &mut dyn Iterator<Item = Result<T, ColumnsError>>,
    notes: Vec<(&str, String)>,
) -> Result<(), ColumnsError> {
    // What a crash left of an earlier attempt says nothing that is not said again.
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ColumnsError::io(path)(e)),
        _ => {}
    }
    let file = sys::disk::create_new(path, false).map_err(ColumnsError::io(path))?;
    let mut failed = None;
    let things = &mut things.map_while(|thing| thing.map_err(|e| failed = Some(e)).ok());
    encode::<T, _>(io::BufWriter::with_capacity(1 << 20, &file), kind, things, notes).map_err(|e| match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(error) => ColumnsError::Io { path: path.to_owned(), error: *error },
            Err(e) => ColumnsError::damaged(path, e),
        },
        e => ColumnsError::damaged(path, e),
    })?;
    match failed {
        Some(error) => Err(error),
        None => file.sync_all().map_err(ColumnsError::io(path)),
    }
}

/// As the bytes of a Parquet file.
///
/// # Errors
/// What the writer below says.
pub fn encode<T: Layout, W: io::Write + Send>(
    to: W,
    kind: Kind,
    things: &mut dyn Iterator<Item = T>,
    notes: Vec<(&str, String)>,
) -> Result<(), ParquetError> {
    let columns = T::columns();
    let schema = Arc::new(parse_message_type(&declaration(T::NAME, &columns))?);
    let all = [(key::KIND, kind.name().to_owned()), (key::FORMAT, VERSION.to_string())].into_iter().chain(notes);
    let properties = WriterProperties::builder()
        .set_created_by(concat!("netgrain ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(all.map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect()))
        .set_sorting_columns(Some(vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }]))
        .build();
    let mut writer = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
    let descriptors = writer.schema_descr().columns().to_vec();
    let mut press = Press::new()?;
    let mut cells: Vec<Cells> = columns.iter().map(|_| Cells::default()).collect();
    let mut lines = Vec::with_capacity(LINES);
    loop {
        let mut rows = 0;
        while rows < GROUP {
            lines.extend(things.take(LINES).map(T::line));
            if lines.is_empty() {
                break;
            }
            for (column, cells) in columns.iter().zip(&mut cells) {
                (column.fill)(&lines, column.arg, cells);
            }
            rows += lines.len();
            lines.clear();
        }
        if rows == 0 {
            break;
        }
        let mut group = writer.next_row_group()?;
        for ((column, descriptor), cells) in columns.iter().zip(&descriptors).zip(&mut cells) {
            let (bytes, close) = press.chunk(column, descriptor, cells, rows)?;
            group.append_column(&bytes, close)?;
            cells.clear();
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}
