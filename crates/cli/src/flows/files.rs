//! Files of flow records: IPFIX messages one behind the other (RFC 5655), or our Parquet.

use super::names::Names;
use crate::outcome::Failure;
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
    Parquet(Box<columns::Loose>),
}

impl Opened {
    /// By its first bytes.
    pub fn open(path: PathBuf) -> Result<Self, Failure> {
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

    fn record(&mut self) -> Result<Option<Record>, String> {
        match &mut self.content {
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
