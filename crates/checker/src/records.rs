//! The records of a file: nanosecond pcap (little-endian; draft-ietf-opsawg-pcap) or the RAW format of HPCAP (Moreno et
//! al.: 12 bytes of header before each packet, none before the first; a record with time zero is padding).
//!
//! Parsing is strict. Content that netgrain's recorder would not have written is a fault, reported with its offset.
//! Nothing after a fault is read, because the position of the next record is unknown.

use crate::files::Format;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes per read: small enough to stay in a second-level cache between the copy and the check, and twice the longest
/// packet.
const BUFFER: usize = 512 << 10;

/// The longest accepted packet.
const MAX_PACKET: u32 = 262_144;

const PCAP_FILE_HEADER: usize = 24;
const PCAP_RECORD_HEADER: usize = 16;
const RAW_RECORD_HEADER: usize = 12;

/// One stored packet.
pub(crate) struct Record<'a> {
    /// Offset of the record header in the file.
    pub offset: u64,
    /// Timestamp in nanoseconds since 1970.
    pub stamp: u64,
    /// Length on the wire.
    pub wire_len: u32,
    pub bytes: &'a [u8],
}

/// The reason why reading ended before the end of the file.
pub(crate) enum ReadError {
    Io(io::Error),
    Broken { offset: u64, what: String },
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The records of one file, in order.
pub(crate) struct Records {
    input: Input<File>,
    format: Format,
}

impl Records {
    pub(crate) fn open(path: &Path, format: Format) -> Result<Self, ReadError> {
        let mut input = Input::new(File::open(path)?);
        if format == Format::Pcap {
            file_header(input.peek(PCAP_FILE_HEADER)?).map_err(|what| ReadError::Broken { offset: 0, what })?;
            input.consume(PCAP_FILE_HEADER);
        }
        Ok(Self { input, format })
    }

    /// Offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.input.offset
    }

    /// The next record; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        match self.format {
            Format::Pcap => {
                let Some(header) = self.header::<PCAP_RECORD_HEADER>()? else { return Ok(None) };
                let [sec, nsec, caplen, wire_len] = words(&header);
                self.packet(PCAP_RECORD_HEADER, sec, nsec, caplen, wire_len)
            }
            Format::Raw => loop {
                let Some(header) = self.header::<RAW_RECORD_HEADER>()? else { return Ok(None) };
                let [sec, nsec, lengths] = words(&header);
                let (caplen, wire_len) = (lengths & 0xffff, lengths >> 16);
                if (sec, nsec) != (0, 0) {
                    return self.packet(RAW_RECORD_HEADER, sec, nsec, caplen, wire_len);
                }
                self.whole(RAW_RECORD_HEADER + wire_len as usize, "padding")?;
                self.input.consume(RAW_RECORD_HEADER + wire_len as usize);
            },
        }
    }

    /// The next `N` bytes; `None` if the file ends exactly here.
    fn header<const N: usize>(&mut self) -> Result<Option<[u8; N]>, ReadError> {
        if self.input.peek(N)?.is_empty() {
            return Ok(None);
        }
        let mut header = [0; N];
        header.copy_from_slice(self.whole(N, "a record header")?);
        Ok(Some(header))
    }

    /// The next `len` bytes; an error if fewer bytes are left in the file.
    fn whole(&mut self, len: usize, what: &str) -> Result<&[u8], ReadError> {
        let offset = self.input.offset;
        let bytes = self.input.peek(len)?;
        if bytes.len() < len {
            let what = format!("the file ends inside {what}: {len} bytes needed, {} present", bytes.len());
            return Err(ReadError::Broken { offset, what });
        }
        Ok(bytes)
    }

    fn packet(
        &mut self,
        header: usize,
        sec: u32,
        nsec: u32,
        caplen: u32,
        wire: u32,
    ) -> Result<Option<Record<'_>>, ReadError> {
        let offset = self.input.offset;
        if nsec >= 1_000_000_000 || caplen > MAX_PACKET || caplen > wire {
            let what = format!("invalid record header: {nsec} nanoseconds, {caplen} bytes stored of {wire}");
            return Err(ReadError::Broken { offset, what });
        }
        let len = header + caplen as usize;
        self.whole(len, "a packet")?;
        let stamp = u64::from(sec) * 1_000_000_000 + u64::from(nsec);
        Ok(Some(Record { offset, stamp, wire_len: wire, bytes: &self.input.take(len)[header..] }))
    }
}

fn words<const N: usize>(header: &[u8]) -> [u32; N] {
    let (words, _) = header.as_chunks::<4>();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

fn file_header(bytes: &[u8]) -> Result<(), String> {
    if bytes.len() < PCAP_FILE_HEADER {
        return Err(format!(
            "a pcap file begins with a header of {PCAP_FILE_HEADER} bytes, and this file has {} bytes",
            bytes.len()
        ));
    }
    let [magic, version, _, _, _, link]: [u32; 6] = words(bytes);
    match (magic, version, link) {
        (0xa1b2_3c4d, 0x0004_0002, 1) => Ok(()),
        (0xa1b2_3c4d, 0x0004_0002, _) => {
            Err(format!("link type {link} is not supported; only Ethernet (1) is checked"))
        }
        (0xa1b2_3c4d, ..) => Err(format!("pcap version {}.{} instead of 2.4", version & 0xffff, version >> 16)),
        _ => {
            Err(format!("the file begins with {magic:#010x}, which is not nanosecond pcap, little-endian (0xa1b23c4d)"))
        }
    }
}

/// A file that is read in large pieces; the caller can examine the next bytes before consuming them.
struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl<R: Read> Input<R> {
    fn new(from: R) -> Self {
        Self { from, buffer: vec![0; BUFFER], start: 0, end: 0, offset: 0 }
    }

    /// The next `len` bytes (at most [`BUFFER`]) without consuming them; fewer only at the end of the file.
    fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        if self.end - self.start < len {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            while self.end < len {
                match self.from.read(&mut self.buffer[self.end..]) {
                    Ok(0) => break,
                    Ok(n) => self.end += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + len)])
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
        self.offset += len as u64;
    }

    /// Consumes `len` bytes that [`Self::peek`] returned before.
    fn take(&mut self, len: usize) -> &[u8] {
        self.consume(len);
        &self.buffer[self.start - len..self.start]
    }
}
