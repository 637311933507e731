//! One foreign capture: its format, and readers that begin at any record of it.

use crate::QueryError;
use pcap::{Compression, Format, Reader};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Number of bytes beyond the end of a part that are read with the part, because its last record may end after the
/// part.
const BEYOND: u64 = 16 << 10;

/// A capture file with its length at the begin of the query; bytes that are appended later are not read.
#[derive(Clone, Debug)]
pub struct Capture {
    pub path: PathBuf,
    pub format: Format,
    /// The length of the file.
    pub bytes: u64,
    /// The modification time, in nanoseconds since 1970.
    pub modified: u64,
}

impl Capture {
    /// Opens a file and recognises its format.
    ///
    /// # Errors
    /// If the file is no capture, is compressed, or does not support random access; the error text contains the file
    /// name.
    pub fn open(path: &Path) -> Result<(Self, File), QueryError> {
        let failed = |error| QueryError::Io { path: path.to_owned(), error };
        let refused = |why: String| failed(io::Error::new(io::ErrorKind::InvalidData, why));
        if path.is_dir() {
            return Err(refused("a directory; name its files, or query a store with --store".into()));
        }
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(refused("a pipe or device cannot be queried; save its packets to a file first".into()));
        }
        let mut capture = Self {
            path: path.to_owned(),
            format: Format::Pcap,
            bytes: about.len(),
            modified: u64::try_from(i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec()))
                .unwrap_or(0),
        };
        let mut head = [0; 4];
        let have = file.read_at(&mut head, 0).map_err(failed)?;
        if let Some(compression) = Compression::of(&head[..have]) {
            let (name, command) = (compression.name, decompress_command(path, compression));
            return Err(refused(format!(
                "compressed with {name}, so it cannot be read at any offset: decompress it first ({command}), or \
                 record it into a store (netgrain record -r)"
            )));
        }
        let span = Span { file: &file, head: &[], at: 0, end: capture.bytes, least: capture.bytes, read: 0 };
        match Reader::open(span) {
            Ok(reader) => capture.format = reader.format(),
            Err(e) => return Err(refused(e.to_string())),
        }
        Ok((capture, file))
    }

    /// Opens the file again.
    ///
    /// # Errors
    /// If the file cannot be opened, or is shorter than before.
    pub fn reopen(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        if file.metadata()?.len() < self.bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file was truncated during the query"));
        }
        Ok(file)
    }

    /// A reader of the records that begin at or after `from` and before `until`; a record must begin at `from`. `head`
    /// contains the headers that the reader must read before these records.
    ///
    /// # Errors
    /// If a header cannot be read or parsed.
    pub fn reader<'a>(&self, file: &'a File, head: &'a [u8], from: u64, until: u64) -> Result<Part<'a>, pcap::Error> {
        let span = Span { file, head, at: from, end: self.bytes, least: until, read: 0 };
        let reader = Reader::open_as(span, self.format)?;
        Ok(Part { reader, from, until, head: head.len() as u64 })
    }

    /// A reader of all records.
    ///
    /// # Errors
    /// If a header cannot be read or parsed.
    pub fn whole<'a>(&self, file: &'a File) -> Result<Part<'a>, pcap::Error> {
        let span = Span { file, head: &[], at: 0, end: self.bytes, least: self.bytes, read: 0 };
        Ok(Part { reader: Reader::open_as(span, self.format)?, from: 0, until: self.bytes, head: 0 })
    }

    /// The name of the file, for messages.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

/// The command that decompresses a capture: `netgrain convert` if it reads this compression.
fn decompress_command(path: &Path, compression: Compression) -> String {
    let ending = match compression.name {
        "gzip" => "gz",
        "zstd" => "zst",
        _ => return compression.command.to_owned(),
    };
    let decompressed = match path.extension() {
        Some(extension) if extension == ending => path.with_extension("").display().to_string(),
        _ => "NEW.pcap".to_owned(),
    };
    format!("netgrain convert {} -w {decompressed}", path.display())
}

/// Reads the records of a part of a file; record offsets are offsets in the file.
pub struct Part<'a> {
    reader: Reader<Span<'a>>,
    from: u64,
    until: u64,
    head: u64,
}

impl Part<'_> {
    /// The next record and its offset; `None` after the last record of the part.
    ///
    /// # Errors
    /// The offset of the damage, and its description.
    pub fn next(&mut self) -> Result<Option<(u64, pcap::Packet<'_>)>, (u64, String)> {
        match self.reader.advance() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(e) => return Err((self.file_offset(e.offset()), e.reason())),
        }
        let Some(packet) = self.reader.current() else { return Ok(None) };
        let at = packet.offset.saturating_sub(self.head) + self.from;
        Ok((at < self.until).then_some((at, packet)))
    }

    /// Number of bytes of the file that were read so far.
    pub fn bytes_read(&mut self) -> u64 {
        self.reader.source_mut().read
    }

    fn file_offset(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.head) + self.from
    }
}

/// A source of bytes: first the headers that a reader needs, then the file from an offset on.
struct Span<'a> {
    file: &'a File,
    head: &'a [u8],
    at: u64,
    /// The end of the file.
    end: u64,
    /// The end of the part; after it, only the rest of the last record is read.
    least: u64,
    read: u64,
}

impl Read for Span<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.head.is_empty() {
            return self.head.read(into);
        }
        let wanted = if self.at < self.least { self.least - self.at } else { BEYOND };
        let most = wanted.min(self.end.saturating_sub(self.at)).min(into.len() as u64) as usize;
        let got = self.file.read_at(&mut into[..most], self.at)?;
        self.at += got as u64;
        self.read += got as u64;
        Ok(got)
    }
}
