//! Files from which flow records are read. A file consists of concatenated IPFIX messages (RFC 5655), or is a Parquet
//! file of netgrain, or is a capture, whose packets are metered.

use super::from_capture::{CaptureError, Captures, MeteredKind, is_capture};
use super::names::Names;
use crate::outcome::Failure;
use columns::ColumnsError;
use export::element::PEN;
use export::file::{FileError, Reader};
use export::ipfix::Item;
use flow::Record;
use meter::MeterOutput;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The version field at the start of an IPFIX message.
const IPFIX: [u8; 2] = 10u16.to_be_bytes();

/// The format of a file.
pub enum Format {
    /// IPFIX messages.
    Messages,
    Parquet,
    /// A capture.
    Capture,
}

/// Detects the format by the first bytes.
///
/// # Errors
/// The file cannot be read, or has none of the formats.
pub fn format(path: &Path) -> Result<Format, Failure> {
    if path == Path::new("-") {
        return Ok(Format::Capture);
    }
    let failure = |e: io::Error| Failure::unreadable(path, &e);
    let mut file = BufReader::new(File::open(path).map_err(failure)?);
    let begin = file.fill_buf().map_err(failure)?;
    if begin.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    if !begin.starts_with(&IPFIX) {
        if is_capture(path) {
            return Ok(Format::Capture);
        }
        let text = "neither a capture, nor IPFIX messages, nor Parquet; name a file in one of these formats";
        return Err(Failure::Said(format!("{}: {text}", path.display())));
    }
    Ok(Format::Messages)
}

/// Returns the files that have content, and a warning for each empty file. An empty file has none of the formats. It
/// counts as damaged, because it remains when a writing program is killed or the volume is full.
///
/// # Errors
/// All files are empty.
pub fn with_content(files: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
    let is_empty = |path: &PathBuf| path.metadata().is_ok_and(|about| about.is_file() && about.len() == 0);
    let (empty, full): (Vec<PathBuf>, Vec<PathBuf>) = files.iter().cloned().partition(is_empty);
    let warnings: Vec<String> = empty.iter().map(|path| format!("{}: the file is empty", path.display())).collect();
    match warnings.first() {
        Some(first) if full.is_empty() => {
            Err(Failure::Said(format!("{first}; name a capture, or a file of records or rows")))
        }
        _ => Ok((full, warnings)),
    }
}

/// Returns a capture and the captures that directly follow it in the list of files. Removes these captures from `more`.
///
/// # Errors
/// A file cannot be read.
pub fn with_captures(first: PathBuf, more: &mut std::vec::IntoIter<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    let mut all = vec![first];
    while let Some(path) = more.as_slice().first()
        && matches!(format(path)?, Format::Capture)
    {
        all.extend(more.next());
    }
    Ok(all)
}

/// The reason why a record of a file cannot be read.
#[derive(Debug)]
pub enum RecordFileError {
    /// A capture.
    Capture(CaptureError),
    /// The error is in a Parquet file. Row groups after the unreadable row group may still be readable.
    Parquet(ColumnsError),
    /// A file of IPFIX messages.
    Messages(PathBuf, FileError),
}

impl RecordFileError {
    /// True if records after this error may still be readable.
    pub fn is_partial(&self) -> bool {
        matches!(self, Self::Parquet(_))
    }
}

impl fmt::Display for RecordFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capture(e) => e.fmt(f),
            Self::Parquet(e) => e.fmt(f),
            Self::Messages(path, e) => write!(f, "{}: {e}", path.display()),
        }
    }
}

/// An open file of flow records. Each exporter has its own interface numbers, so the numbers are mapped: one number
/// stands for one interface name in all files.
pub struct Opened {
    content: Content,
    /// The interface names of the file.
    file_names: Names,
    /// Maps the interface numbers of the file to the interface numbers of this process.
    numbers: HashMap<u16, u16>,
}

enum Content {
    Messages(PathBuf, Box<Reader<BufReader<File>>>),
    Parquet(Box<columns::StandaloneFile>),
    Captures(Box<Captures>),
}

impl Opened {
    /// Opens a file by its format. If the file is a capture, the captures that follow it in `more` are removed from
    /// `more` and metered as the continuation of its packet stream. `fields` has the names of the columns that are read
    /// from a Parquet file; `None` stands for all.
    pub fn open(
        path: PathBuf,
        more: &mut std::vec::IntoIter<PathBuf>,
        fields: Option<Vec<String>>,
    ) -> Result<Self, Failure> {
        let mut file_names = Names::default();
        let content = match format(&path)? {
            Format::Parquet => {
                let records = columns::read_flows(&path).map_err(Failure::say)?.of_fields(fields);
                records.names().iter().for_each(|(number, name)| file_names.set(*number, name));
                Content::Parquet(Box::new(records))
            }
            Format::Messages => {
                let file = File::open(&path).map_err(|e| Failure::unreadable(&path, &e))?;
                Content::Messages(path, Box::new(Reader::new(BufReader::new(file), PEN)))
            }
            Format::Capture => {
                let captures = Captures::open(&with_captures(path, more)?, MeteredKind::Flows)?;
                captures.name(&mut file_names);
                Content::Captures(Box::new(captures))
            }
        };
        Ok(Self { content, file_names, numbers: HashMap::new() })
    }

    /// The next record, with the interface number of this process; adds the interface name to `names`. A truncated file
    /// is an error.
    pub fn next(&mut self, names: &mut Names) -> Result<Option<Record>, RecordFileError> {
        let Some(mut record) = self.record()? else { return Ok(None) };
        let file_names = &self.file_names;
        record.interface = *self
            .numbers
            .entry(record.interface)
            .or_insert_with_key(|number| names.number(&file_names.interface(*number)));
        Ok(Some(record))
    }

    fn record(&mut self) -> Result<Option<Record>, RecordFileError> {
        match &mut self.content {
            Content::Captures(captures) => loop {
                match captures.next().map_err(RecordFileError::Capture)? {
                    Some(MeterOutput::Record(record)) => return Ok(Some(record)),
                    Some(MeterOutput::Row(_)) => {}
                    None => return Ok(None),
                }
            },
            Content::Parquet(records) => records.next().transpose().map_err(RecordFileError::Parquet),
            Content::Messages(path, reader) => loop {
                match reader.next_item().map_err(|e| RecordFileError::Messages(path.clone(), e))? {
                    Some(Item::Flow(record)) => return Ok(Some(record)),
                    Some(Item::Interface { number, name }) => {
                        self.file_names.set(number, &name);
                        self.numbers.remove(&number);
                    }
                    Some(_) => {}
                    None => return Ok(None),
                }
            },
        }
    }
}
