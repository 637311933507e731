//! Builds packed columns ([`crate::packed_column`] describes the layout and decodes them). The caller appends a few
//! numbers at a time; the builder stores them in the width that the largest number so far needs.
//!
//! The caller appends a few dozen numbers that are in the L1 cache. The builder combines the bits of all of them once
//! to find their width, and writes them once, mostly in the width that they will have on disk. If a number needs more
//! bytes than the previous numbers, the previous numbers are widened once.

use crate::packed_column::{ALL, HAS_BASE, NONE, SOME, width};
use sys::simd::{SimdLoop, simd};

/// A packed column under construction.
#[derive(Default)]
pub struct PackedColumnBuilder {
    /// Bytes per number in `bytes`; 0 as long as all numbers equal the first.
    width: usize,
    first: i64,
    /// The bits in which any number differs from the first. The highest bit that is set in any number is the highest
    /// bit that is set in `differ` or in `first`.
    differ: i64,
    count: usize,
    /// Little-endian; valid up to `used`.
    bytes: Vec<u8>,
    used: usize,
    /// Bytes per number of the previous packed column; this packed column begins with that width.
    before: usize,
    /// Buffer for widening.
    spare: Vec<u8>,
}

impl PackedColumnBuilder {
    /// Appends these numbers. Inlined, so that the caller's [`simd`] target features apply to the loops.
    #[inline(always)]
    pub fn push(&mut self, values: &[i64]) {
        let Some(head) = values.first() else { return };
        if self.count == 0 {
            self.first = *head;
        }
        let first = self.first;
        let mut differ = 0;
        for n in values {
            differ |= n ^ first;
        }
        self.differ |= differ;
        if self.width > 0 || differ != 0 {
            let need = width((first | differ) as u64);
            if need > self.width {
                self.widen(need.max(self.before));
            }
            self.append(values);
        }
        self.count += values.len();
    }

    #[inline(always)]
    fn append(&mut self, values: &[i64]) {
        let end = self.used + self.width * values.len();
        if end > self.bytes.len() {
            self.reserve(end);
        }
        let room = &mut self.bytes[self.used..end];
        self.used = end;
        match self.width {
            1 => words(room, values, |n| [n as u8]),
            2 => words(room, values, |n| (n as u16).to_le_bytes()),
            4 => words(room, values, |n| (n as u32).to_le_bytes()),
            _ => words(room, values, i64::to_le_bytes),
        }
    }

    #[cold]
    fn reserve(&mut self, end: usize) {
        self.bytes.resize(end.next_power_of_two(), 0);
    }

    /// Widens the numbers so far to `need` bytes each; later numbers get the same width.
    #[cold]
    fn widen(&mut self, need: usize) {
        let end = need * self.count;
        if self.spare.len() < end {
            self.spare.resize(end.next_power_of_two(), 0);
        }
        let to = &mut self.spare[..end];
        to.fill(0);
        let from = &self.bytes[..self.used];
        match self.width {
            0 => to.chunks_exact_mut(need).for_each(|to| to.copy_from_slice(&self.first.to_le_bytes()[..need])),
            1 => spread::<1>(from, to, need),
            2 => spread::<2>(from, to, need),
            _ => spread::<4>(from, to, need),
        }
        (self.width, self.used) = (need, end);
        std::mem::swap(&mut self.bytes, &mut self.spare);
    }

    /// Appends the packed column to `out`, with a base if that makes it shorter, and resets the builder.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let bytes = &self.bytes[..self.used];
        let need = width((self.first | self.differ) as u64);
        match self.width {
            0 if self.first == 0 => out.push(0),
            0 => {
                out.push(HAS_BASE);
                out.extend_from_slice(&self.first.to_le_bytes());
            }
            1 | 2 if need == self.width => {
                out.push(self.width as u8);
                out.extend_from_slice(bytes);
            }
            1 => above(bytes, |[n]| i64::from(n), out),
            2 => above(bytes, |n| u16::from_le_bytes(n).into(), out),
            4 => above(bytes, |n| u32::from_le_bytes(n).into(), out),
            _ => above(bytes, i64::from_le_bytes, out),
        }
        (self.width, self.first, self.differ, self.count, self.used, self.before) = (0, 0, 0, 0, 0, need);
    }
}

#[inline(always)]
fn words<T: Copy, const N: usize>(room: &mut [u8], values: &[T], word: impl Fn(T) -> [u8; N]) {
    for (room, n) in room.as_chunks_mut().0.iter_mut().zip(values) {
        *room = word(*n);
    }
}

/// Widens numbers of `N` bytes to `need` bytes.
fn spread<const N: usize>(from: &[u8], to: &mut [u8], need: usize) {
    to.chunks_exact_mut(need).zip(from.as_chunks::<N>().0).for_each(|(to, n)| to[..N].copy_from_slice(n));
}

/// Writes numbers of `N` bytes with only as many bytes as the largest of them needs.
fn above<const N: usize>(from: &[u8], number: impl Fn([u8; N]) -> i64, out: &mut Vec<u8>) {
    simd(Exceptions { from: from.as_chunks().0, number, out });
}

struct Exceptions<'a, const N: usize, F> {
    from: &'a [[u8; N]],
    number: F,
    out: &'a mut Vec<u8>,
}

impl<const N: usize, F: Fn([u8; N]) -> i64> SimdLoop for Exceptions<'_, N, F> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { from, number, out } = self;
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for n in from {
            (least, most) = (least.min(number(*n)), most.max(number(*n)));
        }
        let width = width(most.wrapping_sub(least) as u64);
        // The base is omitted if it does not reduce the width.
        let base = if least >= 0 && self::width(most as u64) == width || width == 8 { 0 } else { least };
        out.push(width as u8 | if base == 0 { 0 } else { HAS_BASE });
        if base != 0 {
            out.extend_from_slice(&base.to_le_bytes());
        }
        let begin = out.len();
        out.resize(begin + width * from.len(), 0);
        let room = &mut out[begin..];
        let above = |n: [u8; N]| number(n).wrapping_sub(base);
        match width {
            0 => {}
            1 => words(room, from, |n| [above(n) as u8]),
            2 => words(room, from, |n| (above(n) as u16).to_le_bytes()),
            4 => words(room, from, |n| (above(n) as u32).to_le_bytes()),
            _ => words(room, from, |n| above(n).to_le_bytes()),
        }
    }
}

/// Writes a presence bitmap; `present` has 1 or 0 for each position. The bitmap begins with a byte that says whether
/// no, all or some positions have a value. If some have a value, one bit per position follows, the first in the lowest
/// bit.
pub fn write_bits(present: &[u8], out: &mut Vec<u8>) {
    simd(Marking { present, out });
}

struct Marking<'a> {
    present: &'a [u8],
    out: &'a mut Vec<u8>,
}

impl SimdLoop for Marking<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { present, out } = self;
        let (mut any, mut all) = (0, 1);
        for present in present {
            (any, all) = (any | present, all & present);
        }
        if any == 0 || all == 1 {
            out.push(if any == 0 { NONE } else { ALL });
            return;
        }
        out.push(SOME);
        let (whole, rest) = present.as_chunks();
        let begin = out.len();
        out.resize(begin + present.len().div_ceil(8), 0);
        for (bits, some) in out[begin..].iter_mut().zip(whole) {
            *bits = bits_of(*some);
        }
        if let (false, Some(bits)) = (rest.is_empty(), out.last_mut()) {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            *bits = bits_of(last);
        }
    }
}

/// Packs eight bytes of 0 or 1 into bits, the first in the lowest.
#[inline]
pub fn bits_of(bytes: [u8; 8]) -> u8 {
    // The multiplication moves each byte's lowest bit to its position in the highest byte, without carries.
    (u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}
