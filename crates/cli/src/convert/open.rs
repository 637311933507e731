//! Opens the inputs of a conversion: files or a pipe, decompressed if necessary.

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Number of compressed bytes that one read requests.
const READ: usize = 64 << 10;

/// The decompressed bytes of an input.
pub type Bytes = Box<dyn Read>;

/// Opens a path, or standard input for `-`, and detects compression by the first bytes.
pub fn open(path: &Path) -> io::Result<Bytes> {
    let mut source: Bytes = if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(file(path)?) };
    let mut head = Vec::with_capacity(ZSTD.len());
    source.by_ref().take(ZSTD.len() as u64).read_to_end(&mut head)?;
    let (gzip, zstd) = (head.starts_with(&GZIP), head.starts_with(&ZSTD));
    let whole = Cursor::new(head).chain(source);
    Ok(if gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ, whole)))
    } else if zstd {
        Box::new(Zstd { source: BufReader::with_capacity(READ, whole), decoder: FrameDecoder::new(), within: false })
    } else {
        Box::new(whole)
    })
}

/// Opens a file for reading. Directories are rejected here: opening a directory succeeds, and the first read would fail
/// with an error without advice.
fn file(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "a directory, not a capture; name the files in it, or use netgrain packets for a store",
        ));
    }
    Ok(file)
}

/// A .zst file (RFC 8878). `FrameDecoder` reads a single zstd frame, but a file may have several frames, with skippable
/// frames between them. The decoder rejects a frame that needs more than 100 MiB of memory.
struct Zstd<S> {
    source: S,
    decoder: FrameDecoder,
    /// True if the current zstd frame has not been read to its end.
    within: bool,
}

impl<S: BufRead> Zstd<S> {
    /// Begins the next zstd frame; returns `false` at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(e) => return Err(damaged(e)),
            }
        }
        Ok(false)
    }
}

impl<S: BufRead> Read for Zstd<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() && (self.within || self.begin()?) {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(into);
            }
            if !self.decoder.is_finished() {
                self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)).map_err(damaged)?;
                continue;
            }
            let reported = self.decoder.get_checksum_from_data();
            if reported.is_some() && reported != self.decoder.get_calculated_checksum() {
                return Err(damaged("the checksum of a zstd frame does not match its content"));
            }
            self.within = false;
        }
        Ok(0)
    }
}

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
