//! Checksums of a sealed file in its own metadata, so that a flipped bit anywhere is reported as damage and never read
//! as a value.
//!
//! The metadata key `netgrain.digests` stores checksums (CRC32C) as eight hexadecimal digits each, in the order of the
//! footer: for each row group, the checksum of each of its column chunks (page headers included), and then the checksum
//! of each of its Bloom filters. The metadata key `netgrain.footer` stores the CRC32C of the footer itself, computed
//! with zeros in place of its own digits. Other Parquet readers ignore both keys and verify the page checksums.

use parquet::bloom_filter::Sbbf;
use parquet::errors::Result;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use std::io::{self, Write};

const DIGESTS: &str = "netgrain.digests";
const FOOTER: &str = "netgrain.footer";

/// Hexadecimal digits of a checksum.
const DIGITS: usize = 8;

/// Number of bytes after the footer: the length of the footer, and the magic bytes.
pub const TRAILER: usize = 8;

/// The magic bytes at the begin and at the end of every Parquet file.
pub const MAGIC: [u8; 4] = *b"PAR1";

/// The checksums of a file that is being written.
#[derive(Default)]
pub struct Digests {
    all: String,
    filters: String,
}

impl Digests {
    /// Adds the checksums of the next column chunk of the row group and of its Bloom filter.
    ///
    /// # Errors
    /// If the library cannot encode the filter.
    pub fn chunk(&mut self, bytes: &[u8], filter: Option<&Sbbf>) -> Result<()> {
        self.all += &digits(bytes);
        if let Some(filter) = filter {
            let mut bytes = Vec::new();
            filter.write(&mut bytes)?;
            self.filters += &digits(&bytes);
        }
        Ok(())
    }

    /// Ends the row group.
    pub fn end_group(&mut self) {
        self.all += &std::mem::take(&mut self.filters);
    }

    /// Returns the entries of the file metadata that contain the checksums.
    pub fn notes(&mut self) -> [KeyValue; 2] {
        let all = std::mem::take(&mut self.all);
        [KeyValue::new(DIGESTS.to_owned(), all), KeyValue::new(FOOTER.to_owned(), "0".repeat(DIGITS))]
    }
}

fn digits(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// Computes the checksum of the footer at the end of `bytes`. Returns it with the offset in `bytes` at which the file
/// stores the digits of the checksum, or `None` if the footer has no entry for the checksum.
fn of_footer(bytes: &[u8]) -> Option<(String, usize)> {
    // The digits follow the key of the footer checksum, one byte with number and type of the next field, and one byte
    // with the length of the value (Thrift's compact protocol).
    let at = bytes.windows(FOOTER.len()).rposition(|some| some == FOOTER.as_bytes())? + FOOTER.len() + 2;
    let (before, value) = bytes.split_at_checked(at)?;
    let after = value.get(DIGITS..)?;
    let crc =
        [&[b'0'; DIGITS], after].iter().fold(crc32c::crc32c(before), |crc, some| crc32c::crc32c_append(crc, some));
    Some((format!("{crc:08x}"), at))
}

/// True if the footer matches its checksum; `bytes` are the footer and the bytes after it.
pub fn is_whole(bytes: &[u8]) -> bool {
    of_footer(bytes).is_some_and(|(digest, at)| bytes[at..at + DIGITS] == *digest.as_bytes())
}

/// The checksums of column chunks and Bloom filters, read from the metadata of a file.
pub struct StoredDigests {
    /// CRC32C of each column chunk of each row group.
    chunks: Vec<Vec<u32>>,
    /// Of their Bloom filters.
    filters: Vec<Vec<Option<u32>>>,
}

impl StoredDigests {
    /// Reads the checksums from a verified footer; `None` if their number does not match the file's chunks and filters.
    pub fn of(metadata: &ParquetMetaData) -> Option<Self> {
        let notes = metadata.file_metadata().key_value_metadata()?;
        let text = notes.iter().find(|note| note.key == DIGESTS)?.value.as_ref()?;
        let (digests, []) = text.as_bytes().as_chunks::<DIGITS>() else { return None };
        let mut digests = digests.iter().map(|some| u32::from_str_radix(std::str::from_utf8(some).ok()?, 16).ok());
        let mut stored = Self { chunks: Vec::new(), filters: Vec::new() };
        for group in metadata.row_groups() {
            let chunks: Option<Vec<u32>> = group.columns().iter().map(|_| digests.next().flatten()).collect();
            stored.chunks.push(chunks?);
            let filter = |has: bool| if has { digests.next().flatten().map(Some) } else { Some(None) };
            let has = group.columns().iter().map(|column| column.bloom_filter_offset().is_some());
            stored.filters.push(has.map(filter).collect::<Option<_>>()?);
        }
        digests.next().is_none().then_some(stored)
    }

    /// True if the bytes of this column chunk match its checksum.
    pub fn is_chunk(&self, group: usize, column: usize, bytes: &[u8]) -> bool {
        self.chunks[group][column] == crc32c::crc32c(bytes)
    }

    /// True if the bytes of the Bloom filter of this column match its checksum.
    pub fn is_filter(&self, group: usize, column: usize, bytes: &[u8]) -> bool {
        self.filters[group][column] == Some(crc32c::crc32c(bytes))
    }
}

/// A writer that passes data on to another writer. It buffers the data that is written after [`Self::hold`], until the
/// footer's checksum is inserted.
pub struct FooterWriter<W: Write> {
    to: W,
    held: Option<Vec<u8>>,
}

impl<W: Write> FooterWriter<W> {
    /// Writes to `to`.
    pub fn new(to: W) -> Self {
        Self { to, held: None }
    }

    /// Buffers all data that is written from now on.
    pub fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Writes the buffered data with the footer's checksum.
    ///
    /// # Errors
    /// Errors of the file system.
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
