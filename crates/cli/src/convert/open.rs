//! Where the bytes of an input come from: a file or a pipe, unpacked if need be.

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Of compressed bytes, per read.
const READ: usize = 64 << 10;

/// An input, unpacked.
pub type Bytes = Box<dyn Read>;

/// Opens a path, or standard input for `-`, and looks at its first bytes.
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

/// A file that can be read; a folder can be opened but not read, which would be said later and worse.
fn file(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "a folder is no capture: name files, or ask a store with netgrain packets",
        ));
    }
    Ok(file)
}

/// A .zst file (RFC 8878): the decoder knows one frame, a file may have several and skippable ones between them. A frame
/// that asks for more than 100 MiB of memory is refused by the decoder.
struct Zstd<S> {
    source: S,
    decoder: FrameDecoder,
    /// A frame is begun and not yet read to its end.
    within: bool,
}

impl<S: BufRead> Zstd<S> {
    /// Begins the next frame; `false` at the end of the file.
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
                return Err(damaged("the check sum of a zstd frame does not match its content"));
            }
            self.within = false;
        }
        Ok(0)
    }
}

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
