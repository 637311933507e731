//! Decompression of a .zst file (RFC 8878) with any number of zstd frames; skips skippable frames and compares
//! checksums.
//!
//! The decoder decodes one zstd frame and allocates the window that the header of this frame requires. Therefore this
//! module checks the header first, so that no file can make the decoder allocate more than [`MAX_WINDOW`].

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, ErrorKind, Read};

/// Largest window that is decoded: 128 MiB, the limit of the `zstd` tool without `--long=31`.
const MAX_WINDOW: u64 = 128 << 20;

/// The largest length of a zstd frame header: magic number, descriptor, window, dictionary ID and content size.
const MAX_HEADER: usize = 4 + 1 + 1 + 4 + 8;

const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

pub(super) struct Zstd<S> {
    source: S,
    frame: Option<FrameDecoder>,
}

impl<S: BufRead> Zstd<S> {
    pub fn new(source: S) -> Self {
        Self { source, frame: None }
    }

    /// Reads the header of the next zstd frame; `false` at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        if self.source.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let mut header = [0; MAX_HEADER];
        self.source.read_exact(&mut header[..4])?;
        if SKIPPABLE.contains(&u32::from_le_bytes([header[0], header[1], header[2], header[3]])) {
            return self.skip().map(|()| true);
        }
        self.source.read_exact(&mut header[4..5])?;
        let len = header_len(header[4]);
        self.source.read_exact(&mut header[5..len])?;
        let window = window(&header[..len]);
        if window > MAX_WINDOW {
            return Err(damaged(format!(
                "a zstd frame requires a window of {window} bytes; the limit is {MAX_WINDOW}"
            )));
        }
        let mut decoder = FrameDecoder::new();
        decoder.init(&header[..len]).map_err(damaged)?;
        self.frame = Some(decoder);
        Ok(true)
    }

    fn skip(&mut self) -> io::Result<()> {
        let mut len = [0; 4];
        self.source.read_exact(&mut len)?;
        let len = u64::from(u32::from_le_bytes(len));
        if io::copy(&mut self.source.by_ref().take(len), &mut io::sink())? < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<S: BufRead> Read for Zstd<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(frame) = &mut self.frame else {
                if self.begin()? {
                    continue;
                }
                return Ok(0);
            };
            if frame.can_collect() > 0 {
                return frame.read(into);
            }
            if !frame.is_finished() {
                frame.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)).map_err(damaged)?;
                continue;
            }
            if frame.get_checksum_from_data().is_some_and(|reported| frame.get_calculated_checksum() != Some(reported))
            {
                return Err(damaged("the checksum of a zstd frame does not match its content"));
            }
            self.frame = None;
        }
    }
}

/// Length of a zstd frame header with the magic number, derived from its descriptor byte.
fn header_len(descriptor: u8) -> usize {
    let single = usize::from(descriptor >> 5 & 1);
    5 + (1 - single) + DICTIONARY[usize::from(descriptor & 3)] + content_len(descriptor)
}

const DICTIONARY: [usize; 4] = [0, 1, 2, 4];

fn content_len(descriptor: u8) -> usize {
    match (descriptor >> 6, descriptor >> 5 & 1) {
        (0, single) => usize::from(single),
        (flag, _) => 1 << flag,
    }
}

/// The window size in a complete zstd frame header: the stated size, or the content size of a single-segment frame.
fn window(header: &[u8]) -> u64 {
    let descriptor = header[4];
    if descriptor >> 5 & 1 == 0 {
        let base = 1u64 << (10 + (header[5] >> 3));
        return base + base / 8 * u64::from(header[5] & 7);
    }
    let mut content = [0; 8];
    let field = &header[header.len() - content_len(descriptor)..];
    content[..field.len()].copy_from_slice(field);
    u64::from_le_bytes(content)
}

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zstd frame with one raw block and no checksum.
    fn frame(content: &[u8]) -> Vec<u8> {
        let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, content.len() as u8];
        out.extend(&((content.len() as u32) << 3 | 1).to_le_bytes()[..3]);
        out.extend(content);
        out
    }

    fn decoded(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Zstd::new(file).read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn a_window_beyond_the_limit_is_rejected_before_any_allocation() {
        for header in [
            &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 31 << 3][..],
            &[0x28, 0xb5, 0x2f, 0xfd, 0xe0, 255, 255, 255, 255, 255, 255, 255, 127],
        ] {
            let e = decoded(header).unwrap_err();
            assert!(e.to_string().contains("the limit is 134217728"), "{e}");
        }
    }

    #[test]
    fn a_truncated_file_is_an_error_at_every_length() {
        let file = frame(b"some content");
        for cut in 1..file.len() {
            assert!(decoded(&file[..cut]).is_err(), "{cut}");
        }
        assert_eq!(decoded(&[]).unwrap(), b"");
    }

    #[test]
    fn consecutive_frames_are_decoded_and_skippable_frames_are_skipped() {
        let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"???"].concat();
        let file = [skippable.clone(), frame(b"one "), skippable.clone(), frame(b"two"), skippable.clone()].concat();
        assert_eq!(decoded(&file).unwrap(), b"one two");
        assert!(decoded(&[frame(b"one"), skippable[..10].to_vec()].concat()).is_err());
    }
}
