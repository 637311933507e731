//! A buffer with a contiguous part of a stream, the window. A reader requests a number of contiguous bytes, examines
//! them, and advances the window.
//!
//! The buffer grows only to the size of one record, which the readers compare with a limit first. No byte is consumed
//! before all requested bytes are in the buffer, so a caller can repeat the request after `WouldBlock`.

use crate::{Error, MAX_BLOCK};
use std::io::{ErrorKind, Read};
use std::ops::Range;

/// Number of bytes of a read. They fit into the second-level cache, and are so many that the cost of a `read` call per
/// byte is small.
const FIRST_CAPACITY: usize = 256 << 10;

pub(crate) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Stream offset of `buffer[start]`.
    offset: u64,
    skip: Option<Skip>,
    at_end: bool,
}

/// A range of the stream that is to be skipped and that extends beyond the bytes in the buffer.
struct Skip {
    offset: u64,
    what: &'static str,
    len: u64,
    left: u64,
}

impl<R: Read> Window<R> {
    pub fn new(source: R) -> Self {
        Self { source, buffer: vec![0; FIRST_CAPACITY], start: 0, end: 0, offset: 0, skip: None, at_end: false }
    }

    /// Stream offset of the first byte in the window.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads until the window has `len` bytes, and returns its length: less than `len` only at the end of the stream.
    #[inline]
    pub fn need(&mut self, len: usize) -> Result<usize, Error> {
        // While a skip is pending, the window is empty, so `fill` is called and completes the skip.
        if self.end - self.start >= len { Ok(self.end - self.start) } else { self.fill(len) }
    }

    /// Like [`Window::need`], but returns an error if the stream has fewer bytes.
    #[inline]
    pub fn demand(&mut self, len: usize, what: &'static str) -> Result<(), Error> {
        let have = self.need(len)?;
        if have >= len {
            return Ok(());
        }
        Err(Error::Truncated { offset: self.offset, what, need: len as u64, have: have as u64 })
    }

    /// The bytes in the window.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Advances by `len` bytes. The bytes at `part`, a range that counts from the start of the window, stay in
    /// [`Window::buffer`] until the next `need`. Returns the range of these bytes in the buffer.
    #[inline]
    pub fn take(&mut self, len: usize, part: Range<usize>) -> Range<usize> {
        debug_assert!(len <= self.end - self.start && part.end <= len);
        let data = self.start + part.start..self.start + part.end;
        self.start += len;
        self.offset += len as u64;
        data
    }

    /// The whole buffer, to which the ranges that [`Window::take`] returns refer.
    #[inline]
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Advances by any number of bytes. The next `need` reads and drops the skipped bytes that are not in the window;
    /// the caller must call `need` before another `skip`.
    pub fn skip(&mut self, len: u64, what: &'static str) {
        debug_assert!(self.skip.is_none());
        let offset = self.offset;
        let here = len.min((self.end - self.start) as u64);
        self.take(here as usize, 0..0);
        if here < len {
            self.skip = Some(Skip { offset, what, len, left: len - here });
        }
    }

    /// The stream.
    #[inline]
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    #[cold]
    fn fill(&mut self, len: usize) -> Result<usize, Error> {
        debug_assert!(len <= MAX_BLOCK as usize);
        self.finish_skip()?;
        if self.buffer.len() - self.start < len || self.start > self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < len {
            self.buffer.resize(len.next_power_of_two(), 0);
        }
        while self.end - self.start < len && self.read()? > 0 {}
        Ok(self.end - self.start)
    }

    fn finish_skip(&mut self) -> Result<(), Error> {
        while let Some(skip) = &self.skip {
            let left = skip.left;
            (self.start, self.end) = (0, 0);
            let got = self.read()?;
            let Some(skip) = &mut self.skip else { break };
            if got == 0 {
                let have = skip.len - skip.left;
                return Err(Error::Truncated { offset: skip.offset, what: skip.what, need: skip.len, have });
            }
            let gone = left.min(got as u64);
            skip.left -= gone;
            if skip.left == 0 {
                self.skip = None;
            }
            self.take(gone as usize, 0..0);
        }
        Ok(())
    }

    /// Reads once from the source into the free end of the buffer; retries a read that a signal interrupted.
    fn read(&mut self) -> Result<usize, Error> {
        if self.at_end {
            return Ok(0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(got) => {
                    self.at_end = got == 0;
                    self.end += got;
                    return Ok(got);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::Io { offset: self.offset + (self.end - self.start) as u64, error });
                }
            }
        }
    }
}

/// Reads numbers at an offset of a slice in the byte order of the file; the caller ensures that the slice is long
/// enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    #[inline]
    pub fn u16(self, b: &[u8], at: usize) -> u16 {
        let b = [b[at], b[at + 1]];
        if self == Self::Little { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) }
    }

    #[inline]
    pub fn u32(self, b: &[u8], at: usize) -> u32 {
        let b = [b[at], b[at + 1], b[at + 2], b[at + 3]];
        if self == Self::Little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) }
    }

    #[inline]
    pub fn u64(self, b: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(b, at)), u64::from(self.u32(b, at + 4)));
        if self == Self::Little { second << 32 | first } else { first << 32 | second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// A source that returns a few bytes at a time, and sometimes `WouldBlock`.
    struct IncrementalSource<'a>(&'a [u8], Prng);

    impl Read for IncrementalSource<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.1.below(4) == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let n = (1 + self.1.below(40) as usize).min(into.len()).min(self.0.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    /// Compares every result of a window with the result of the same operation on the complete input.
    #[test]
    fn random_operations_give_the_same_bytes_as_a_slice() {
        let mut all = vec![0; 600_000];
        Prng::new(1).fill(&mut all);
        for seed in 0..20 {
            let mut prng = Prng::new(seed);
            let mut w = Window::new(IncrementalSource(&all, Prng::new(seed + 1000)));
            let mut at = 0;
            while at < all.len() {
                let most = if prng.below(50) == 0 { 100_000 } else { 300 };
                let len = 1 + prng.below(most) as usize;
                let have = loop {
                    match w.need(len) {
                        Ok(have) => break have,
                        Err(e) => assert!(e.is_pause(), "seed {seed}: {e}"),
                    }
                };
                let expect = len.min(all.len() - at);
                assert!(have >= expect && w.bytes()[..expect] == all[at..at + expect], "seed {seed} at {at}");
                assert_eq!(w.offset(), at as u64, "seed {seed}");
                let gap = prng.below(2 * most) as usize;
                if prng.below(5) == 0 && at + gap < all.len() {
                    w.skip(gap as u64, "gap");
                    at += gap;
                } else {
                    let lent = w.take(expect, 0..expect);
                    assert_eq!(w.buffer()[lent], all[at..at + expect], "seed {seed} at {at}");
                    at += expect;
                }
            }
        }
    }

    #[test]
    fn a_skip_past_the_end_is_an_error_with_the_missing_length() {
        let mut w = Window::new(&[7u8; 10][..]);
        w.demand(4, "head").unwrap();
        w.take(4, 0..4);
        w.skip(u64::from(u32::MAX), "block");
        let e = w.need(1).unwrap_err();
        assert!(matches!(e, Error::Truncated { offset: 4, what: "block", need: 0xffff_ffff, have: 6 }), "{e}");
    }
}
