//! Files of flow records: IPFIX messages one behind the other (RFC 5655), or our Parquet.

use super::names::Names;
use crate::outcome::Failure;
use export::ipfix::{Decoder, Item};
use flow::Record;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

/// Bytes of an IPFIX message's header, and where its length stands in it.
const HEADER: usize = 16;
const LENGTH: std::ops::Range<usize> = 2..4;

/// What a message begins with: the version.
const IPFIX: [u8; 2] = 10u16.to_be_bytes();

/// A file that is being read.
pub enum Opened {
    Messages(Box<Messages>),
    Parquet(Box<columns::Loose>),
}

/// Messages of one file, and what they said.
pub struct Messages {
    decoder: Decoder,
    items: VecDeque<Item>,
    path: PathBuf,
    file: BufReader<File>,
    bytes: Vec<u8>,
}

impl Opened {
    /// By its first bytes.
    pub fn open(path: PathBuf) -> Result<Self, Failure> {
        let say = |e: io::Error| Failure::Said(format!("{}: {e}", path.display()));
        let mut file = BufReader::new(File::open(&path).map_err(say)?);
        let begin = file.fill_buf().map_err(say)?;
        if begin.starts_with(b"PAR1") {
            return Ok(Self::Parquet(Box::new(columns::read_flows(&path).map_err(Failure::say)?)));
        }
        if !begin.is_empty() && !begin.starts_with(&IPFIX) {
            let text = "neither IPFIX messages nor Parquet; packets are asked with `netgrain packets -r`";
            return Err(Failure::Said(format!("{}: {text}", path.display())));
        }
        let decoder = Decoder::new(export::element::PEN);
        let messages = Messages { decoder, items: VecDeque::new(), path, file, bytes: Vec::new() };
        Ok(Self::Messages(Box::new(messages)))
    }

    /// The next record; what ends a file too early is said.
    pub fn next(&mut self, names: &mut Names) -> Result<Option<Record>, String> {
        match self {
            Self::Parquet(records) => records.next().transpose().map_err(|e| e.to_string()),
            Self::Messages(messages) => loop {
                if let Some(record) = messages.told(names) {
                    return Ok(Some(record));
                }
                if !messages.read()? {
                    return Ok(None);
                }
            },
        }
    }
}

impl Messages {
    /// The next record that was said already; names of interfaces go to the names.
    fn told(&mut self, names: &mut Names) -> Option<Record> {
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Flow(record) => return Some(record),
                Item::Interface { number, name } => names.set(number, &name),
                _ => {}
            }
        }
        None
    }

    /// Reads the next message; whether there was one. What ends a file too early is said.
    fn read(&mut self) -> Result<bool, String> {
        let say = |what: String| format!("{}: {what}; what comes before is given", self.path.display());
        self.bytes.resize(HEADER, 0);
        match read_up_to(&mut self.file, &mut self.bytes) {
            Ok(0) => return Ok(false),
            Ok(HEADER) => {}
            Ok(n) => return Err(say(format!("ends {n} bytes into the header of a message"))),
            Err(e) => return Err(say(e.to_string())),
        }
        let length = usize::from(u16::from_be_bytes([self.bytes[LENGTH.start], self.bytes[LENGTH.start + 1]]));
        if length < HEADER {
            return Err(say(format!("a message of {length} bytes is no message of IPFIX")));
        }
        self.bytes.resize(length, 0);
        match read_up_to(&mut self.file, &mut self.bytes[HEADER..]) {
            Ok(n) if n + HEADER == length => {}
            Ok(n) => return Err(say(format!("ends {} bytes into a message of {length}", n + HEADER))),
            Err(e) => return Err(say(e.to_string())),
        }
        let items = &mut self.items;
        self.decoder.message(&self.bytes, &mut |item| items.push_back(item)).map_err(|e| say(e.to_string()))?;
        Ok(true)
    }
}

/// As many bytes as there are, at most as fit.
fn read_up_to(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
