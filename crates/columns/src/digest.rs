//! Digests of a sealed file in its own metadata, so that a flipped bit anywhere is damage that is told, and never a number.
//!
//! `netgrain.digests` has a CRC32C of each column of each row group, headers of pages included, and behind those of a group
//! one of each of its filters: eight hexadecimal digits each, in the order of the footer. `netgrain.footer` has that of the
//! footer itself, made with zeros in its place. Other people's readers pass over both; the checksums of pages are theirs.

use parquet::bloom_filter::Sbbf;
use parquet::errors::Result;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use std::io::{self, Write};

const DIGESTS: &str = "netgrain.digests";
const FOOTER: &str = "netgrain.footer";

/// Digits of a digest.
const DIGITS: usize = 8;

/// Bytes behind a footer: its length, and who it is.
pub const TRAILER: usize = 8;

/// What every Parquet file begins and ends with.
pub const MAGIC: [u8; 4] = *b"PAR1";

/// Digests of a file that is being written.
#[derive(Default)]
pub struct Digests {
    all: String,
    filters: String,
}

impl Digests {
    /// The next column of the row group.
    ///
    /// # Errors
    /// When the library cannot write the filter.
    pub fn chunk(&mut self, bytes: &[u8], filter: Option<&Sbbf>) -> Result<()> {
        self.all += &digits(bytes);
        if let Some(filter) = filter {
            let mut bytes = Vec::new();
            filter.write(&mut bytes)?;
            self.filters += &digits(&bytes);
        }
        Ok(())
    }

    /// The row group is whole.
    pub fn end_group(&mut self) {
        self.all += &std::mem::take(&mut self.filters);
    }

    /// What goes into the metadata.
    pub fn notes(&mut self) -> [KeyValue; 2] {
        let all = std::mem::take(&mut self.all);
        [KeyValue::new(DIGESTS.to_owned(), all), KeyValue::new(FOOTER.to_owned(), "0".repeat(DIGITS))]
    }
}

fn digits(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// The digest of a footer, which lies at the end of these bytes, and where it belongs; `None` if it has no place for one.
fn of_footer(bytes: &[u8]) -> Option<(String, usize)> {
    // The key, then the field's number and type, and the length of the value (Thrift's compact protocol).
    let at = bytes.windows(FOOTER.len()).rposition(|some| some == FOOTER.as_bytes())? + FOOTER.len() + 2;
    let (before, value) = bytes.split_at_checked(at)?;
    let after = value.get(DIGITS..)?;
    let crc =
        [&[b'0'; DIGITS], after].iter().fold(crc32c::crc32c(before), |crc, some| crc32c::crc32c_append(crc, some));
    Some((format!("{crc:08x}"), at))
}

/// Whether a footer is as it was written; `bytes` are the footer and what stands behind it.
pub fn is_whole(bytes: &[u8]) -> bool {
    of_footer(bytes).is_some_and(|(digest, at)| bytes[at..at + DIGITS] == *digest.as_bytes())
}

/// What the metadata says of the columns and filters.
pub struct StoredDigests {
    /// Of each column of each row group.
    chunks: Vec<Vec<u32>>,
    /// Of their filters.
    filters: Vec<Vec<Option<u32>>>,
}

impl StoredDigests {
    /// As a footer that is whole says; `None` if that is not as many as there are.
    pub fn of(metadata: &ParquetMetaData) -> Option<Self> {
        let notes = metadata.file_metadata().key_value_metadata()?;
        let text = notes.iter().find(|note| note.key == DIGESTS)?.value.as_ref()?;
        let (digests, []) = text.as_bytes().as_chunks::<DIGITS>() else { return None };
        let mut digests = digests.iter().map(|some| u32::from_str_radix(std::str::from_utf8(some).ok()?, 16).ok());
        let mut reported = Self { chunks: Vec::new(), filters: Vec::new() };
        for group in metadata.row_groups() {
            let chunks: Option<Vec<u32>> = group.columns().iter().map(|_| digests.next().flatten()).collect();
            reported.chunks.push(chunks?);
            let filter = |has: bool| if has { digests.next().flatten().map(Some) } else { Some(None) };
            let has = group.columns().iter().map(|column| column.bloom_filter_offset().is_some());
            reported.filters.push(has.map(filter).collect::<Option<_>>()?);
        }
        digests.next().is_none().then_some(reported)
    }

    /// Whether these are the bytes of this column.
    pub fn is_chunk(&self, group: usize, column: usize, bytes: &[u8]) -> bool {
        self.chunks[group][column] == crc32c::crc32c(bytes)
    }

    /// Whether these are the bytes of the filter of this column.
    pub fn is_filter(&self, group: usize, column: usize, bytes: &[u8]) -> bool {
        self.filters[group][column] == Some(crc32c::crc32c(bytes))
    }
}

/// Writes, and keeps back what comes last, so that the footer's digest can be put into it.
pub struct FooterWriter<W: Write> {
    to: W,
    held: Option<Vec<u8>>,
}

impl<W: Write> FooterWriter<W> {
    /// Writes there.
    pub fn new(to: W) -> Self {
        Self { to, held: None }
    }

    /// From now on everything is kept back.
    pub fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Writes what was kept back, with its digest.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(mut self) -> Result<()> {
        let mut footer = self.held.take().unwrap_or_default();
        if let Some((digest, at)) = of_footer(&footer) {
            footer[at..at + DIGITS].copy_from_slice(digest.as_bytes());
        }
        self.to.write_all(&footer)?;
        Ok(self.to.flush()?)
    }
}

impl<W: Write> Write for FooterWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.held {
            Some(held) => held.write(bytes),
            None => self.to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
