//! Files of flow records: IPFIX messages one behind the other (RFC 5655), or our Parquet.

use super::names::Names;
use crate::outcome::Failure;
use export::element::PEN;
use export::file::Reader;
use export::ipfix::Item;
use flow::Record;
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
}

/// What a file is by its first bytes.
///
/// # Errors
/// When it cannot be read, or is neither.
pub fn format(path: &Path) -> Result<Format, Failure> {
    let say = |e: io::Error| Failure::Said(format!("{}: {e}", path.display()));
    let mut file = BufReader::new(File::open(path).map_err(say)?);
    let begin = file.fill_buf().map_err(say)?;
    if begin.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    if !begin.is_empty() && !begin.starts_with(&IPFIX) {
        let text = "neither IPFIX messages nor Parquet; packets are asked with `netgrain packets -r`";
        return Err(Failure::Said(format!("{}: {text}", path.display())));
    }
    Ok(Format::Messages)
}

/// A file that is being read.
pub enum Opened {
    Messages(PathBuf, Box<Reader<BufReader<File>>>),
    /// And whether its names were told.
    Parquet(Box<columns::Loose>, bool),
}

impl Opened {
    /// By its first bytes.
    pub fn open(path: PathBuf) -> Result<Self, Failure> {
        match format(&path)? {
            Format::Parquet => Ok(Self::Parquet(Box::new(columns::read_flows(&path).map_err(Failure::say)?), false)),
            Format::Messages => {
                let file = File::open(&path).map_err(|e| Failure::Said(format!("{}: {e}", path.display())))?;
                Ok(Self::Messages(path, Box::new(Reader::new(BufReader::new(file), PEN))))
            }
        }
    }

    /// The next record; names of interfaces go to the names. What ends a file too early is said.
    pub fn next(&mut self, names: &mut Names) -> Result<Option<Record>, String> {
        match self {
            Self::Parquet(records, is_named) => {
                if !std::mem::replace(is_named, true) {
                    records.names().iter().for_each(|(number, name)| names.set(*number, name));
                }
                records.next().transpose().map_err(|e| e.to_string())
            }
            Self::Messages(path, reader) => loop {
                match reader.next_item().map_err(|e| format!("{}: {e}", path.display()))? {
                    Some(Item::Flow(record)) => return Ok(Some(record)),
                    Some(Item::Interface { number, name }) => names.set(number, &name),
                    Some(_) => {}
                    None => return Ok(None),
                }
            },
        }
    }
}
