//! Files of flow records: IPFIX messages one behind the other (RFC 5655), our Parquet, or captures, of which they are made.

use super::from_capture::{Captures, MeteredKind, is_capture};
use super::names::Names;
use crate::outcome::Failure;
use engine::MadeOffline;
use export::element::PEN;
use export::file::Reader;
use export::ipfix::Item;
use flow::Record;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// What a message begins with: the version.
const IPFIX: [u8; 2] = 10u16.to_be_bytes();

/// What a file is.
pub enum Format {
    /// IPFIX, or nothing.
    Messages,
    Parquet,
    /// Packets.
    Capture,
}

/// What a file is by its first bytes.
///
/// # Errors
/// When it cannot be read, or is none of them.
pub fn format(path: &Path) -> Result<Format, Failure> {
    if path == Path::new("-") {
        return Ok(Format::Capture);
    }
    let say = |e: io::Error| Failure::Said(format!("{}: {e}", path.display()));
    let mut file = BufReader::new(File::open(path).map_err(say)?);
    let begin = file.fill_buf().map_err(say)?;
    if begin.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    if !begin.is_empty() && !begin.starts_with(&IPFIX) {
        if is_capture(path) {
            return Ok(Format::Capture);
        }
        let text = "neither a capture, nor IPFIX messages, nor Parquet; name a file of one of these";
        return Err(Failure::Said(format!("{}: {text}", path.display())));
    }
    Ok(Format::Messages)
}

/// A capture and those that follow it among the files.
///
/// # Errors
/// A file that cannot be read.
pub fn with_captures(first: PathBuf, more: &mut std::vec::IntoIter<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    let mut all = vec![first];
    while let Some(path) = more.as_slice().first()
        && matches!(format(path)?, Format::Capture)
    {
        all.extend(more.next());
    }
    Ok(all)
}

/// A file that is being read. Every exporter counts its interfaces for itself: here one number stands for one name, whichever
/// file it is in.
pub struct Opened {
    content: Content,
    /// What the file says that interfaces are called.
    said: Names,
    /// Our numbers of the file's.
    numbers: HashMap<u16, u16>,
}

enum Content {
    Messages(PathBuf, Box<Reader<BufReader<File>>>),
    Parquet(Box<columns::StandaloneFile>),
    Captures(Box<Captures>),
}

impl Opened {
    /// By its first bytes. Of `more` files, captures that follow a capture go on with its stream, and are taken.
    pub fn open(path: PathBuf, more: &mut std::vec::IntoIter<PathBuf>) -> Result<Self, Failure> {
        let mut said = Names::default();
        let content = match format(&path)? {
            Format::Parquet => {
                let records = columns::read_flows(&path).map_err(Failure::say)?;
                records.names().iter().for_each(|(number, name)| said.set(*number, name));
                Content::Parquet(Box::new(records))
            }
            Format::Messages => {
                let file = File::open(&path).map_err(|e| Failure::Said(format!("{}: {e}", path.display())))?;
                Content::Messages(path, Box::new(Reader::new(BufReader::new(file), PEN)))
            }
            Format::Capture => {
                let captures = Captures::open(&with_captures(path, more)?, MeteredKind::Flows)?;
                captures.name(&mut said);
                Content::Captures(Box::new(captures))
            }
        };
        Ok(Self { content, said, numbers: HashMap::new() })
    }

    /// The next record, its interface by our number; what that is called goes to the names. What ends a file too early is said.
    pub fn next(&mut self, names: &mut Names) -> Result<Option<Record>, String> {
        let Some(mut record) = self.record()? else { return Ok(None) };
        let said = &self.said;
        record.interface =
            *self.numbers.entry(record.interface).or_insert_with_key(|number| names.number(&said.interface(*number)));
        Ok(Some(record))
    }

    /// Whether records may follow what could not be read.
    pub fn goes_on(&self) -> bool {
        matches!(self.content, Content::Parquet(_))
    }

    fn record(&mut self) -> Result<Option<Record>, String> {
        match &mut self.content {
            Content::Captures(captures) => loop {
                match captures.next()? {
                    Some(MadeOffline::Record(record)) => return Ok(Some(record)),
                    Some(MadeOffline::Row(_)) => {}
                    None => return Ok(None),
                }
            },
            Content::Parquet(records) => records.next().transpose().map_err(|e| e.to_string()),
            Content::Messages(path, reader) => loop {
                match reader.next_item().map_err(|e| format!("{}: {e}", path.display()))? {
                    Some(Item::Flow(record)) => return Ok(Some(record)),
                    Some(Item::Interface { number, name }) => {
                        self.said.set(number, &name);
                        self.numbers.remove(&number);
                    }
                    Some(_) => {}
                    None => return Ok(None),
                }
            },
        }
    }
}
