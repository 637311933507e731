//! Encodes numbers as a zstd frame that contains only the lowest bytes of each number. For the upper bytes, the frame
//! states once for thousands of numbers that they equal those of the previous number.
//!
//! Measured values have noise in their lowest bytes, and zeros in their upper bytes. An entropy coder needs at least
//! one bit for each of those zeros, and more than eight bits for each byte of noise, because one code serves both. A
//! match finder needs four equal bytes, and often fewer are equal. The zstd format can encode the upper bytes almost
//! without cost (RFC 8878, section 3.1.1.3.2): if all sequences of a block have the same lengths and the same offset,
//! three bytes state them (RLE mode) and no bits per sequence follow. So each number is encoded as one sequence: its
//! lowest bytes are literals, and a match copies the upper bytes from the previous number.
//!
//! ```text
//! kind of zstd block  content
//! raw                 a number with more differing bytes than the others: the first number, and a few others
//! compressed, once    a number as a sequence with the offset to the previous number, which later sequences repeat
//! compressed          numbers, up to the next number with more differing bytes
//! ```

use sys::simd::{SimdLoop, simd};

/// Greatest length of a zstd block, compressed and uncompressed.
const BLOCK: usize = 128 << 10;

/// Pages with fewer bytes of numbers than this are stored uncompressed, because no zstd block may be longer than the
/// content of its zstd frame.
const LEAST: usize = 1 << 10;

/// Least length of a match.
const MATCH: usize = 3;

/// Greatest width of a number.
const MOST: usize = 16;

/// Assumed cost of a raw number in bytes: 24 bytes for the headers of the zstd blocks that the raw number requires; the
/// other 36 bytes stand for the time to process these zstd blocks.
const ALONE: usize = 60;

/// The assumed cost of a raw number in bytes if literals are compressed, including the Huffman tree for the literals
/// that follow.
const ALONE_TREE: usize = 250;

/// The format of the numbers in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Four bytes, little-endian.
    Ints,
    /// Eight bytes, little-endian.
    Longs,
    /// Sixteen bytes, big-endian.
    Decimals,
}

impl Numbers {
    /// Bytes per number.
    pub const fn width(self) -> usize {
        match self {
            Self::Ints => 4,
            Self::Longs => 8,
            Self::Decimals => 16,
        }
    }

    /// Number of bytes of a number that precede its `lowest` least significant bytes, in the byte order of the page.
    const fn ahead(self, lowest: usize) -> usize {
        match self {
            Self::Ints | Self::Longs => 0,
            Self::Decimals => self.width() - lowest,
        }
    }

    /// For each number, how many of its lowest bytes are needed to include every byte that differs from the number
    /// before; for the first number, all.
    fn needs(self, content: &[u8], needs: &mut Vec<u8>) {
        match self {
            Self::Ints => {
                differing(content, |n, m| (u32::from_le_bytes(n) ^ u32::from_le_bytes(m)).leading_zeros(), needs);
            }
            Self::Longs => {
                differing(content, |n, m| (u64::from_le_bytes(n) ^ u64::from_le_bytes(m)).leading_zeros(), needs);
            }
            Self::Decimals => {
                differing(content, |n, m| (u128::from_be_bytes(n) ^ u128::from_be_bytes(m)).leading_zeros(), needs);
            }
        }
    }
}

fn differing<const W: usize>(content: &[u8], same: impl Fn([u8; W], [u8; W]) -> u32, needs: &mut Vec<u8>) {
    let numbers = content.as_chunks::<W>().0;
    needs.clear();
    needs.resize(numbers.len(), W as u8);
    simd(Differing { numbers, same, needs });
}

struct Differing<'a, const W: usize, F> {
    numbers: &'a [[u8; W]],
    /// Number of equal leading bits of two numbers.
    same: F,
    needs: &'a mut [u8],
}

impl<const W: usize, F: Fn([u8; W], [u8; W]) -> u32> SimdLoop for Differing<'_, W, F> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { numbers, same, needs } = self;
        let pairs = numbers.array_windows().zip(needs.iter_mut().skip(1));
        pairs.for_each(|([before, number], need)| *need = W as u8 - (same(*number, *before) / 8) as u8);
    }
}

/// Encodes numbers as zstd frames, and reuses its buffers.
///
/// PERF: 89.4 → 86.1 B per record, and 1850 → 1631 ns together with the other changes of that day
/// (records/2026-11-23-columns.md).
#[derive(Default)]
pub struct Striper {
    needs: Vec<u8>,
    literals: Vec<u8>,
}

/// Compresses the literals of a zstd block: appends a complete literals section (RFC 8878, section 3.1.1.3.1), or
/// nothing.
pub type Shorten<'a> = dyn FnMut(&[u8], &mut Vec<u8>) + 'a;

impl Striper {
    /// Appends a zstd frame with these numbers.
    pub fn frame(&mut self, content: &[u8], of: Numbers, mut shorten: Option<&mut Shorten<'_>>, out: &mut Vec<u8>) {
        let alone = if shorten.is_some() { ALONE_TREE } else { ALONE };
        let Self { needs, literals } = self;
        of.needs(content, needs);
        let width = of.width();
        let mut blocks = Blocks::begin(content.len(), out);
        if content.len() < LEAST {
            blocks.raw(content);
            return blocks.end();
        }
        let mut is_far = true;
        let mut rest = content;
        for needs in needs.chunks(BLOCK / width) {
            let lowest = lowest(needs, width, alone);
            let is_alone = |need: &u8| usize::from(*need) > lowest;
            let mut left = needs;
            while !left.is_empty() {
                // Each pass of the loop encodes a run of raw numbers, and then the numbers after this run as sequences,
                // if there are any.
                let alone = left.iter().position(|need| !is_alone(need)).unwrap_or(left.len()).max(1);
                let many = left[alone..].iter().position(is_alone).unwrap_or(left.len() - alone);
                left = &left[alone + many..];
                let ahead = if many > 0 { of.ahead(lowest) } else { width };
                let raw = (alone - 1) * width + if ahead > 0 { ahead } else { width };
                blocks.raw(rest.split_off(..raw).unwrap_or_default());
                let mut run = rest.split_off(..(alone + many) * width - raw).unwrap_or_default();
                if is_far && many > 0 {
                    let first = if many == 1 { run.len() } else { width };
                    blocks.sequences(run.split_off(..first).unwrap_or_default(), width, lowest, true, literals, None);
                    is_far = false;
                }
                if !run.is_empty() {
                    blocks.sequences(run, width, lowest, false, literals, shorten.as_deref_mut());
                }
            }
        }
        blocks.end();
    }
}

/// Returns how many of the lowest bytes of each number are stored as literals, so that the total size is least. A
/// number that needs more bytes is stored raw, which takes its `width` bytes and `each` bytes more.
fn lowest(needs: &[u8], width: usize, each: usize) -> usize {
    let mut counts = [0; MOST + 1];
    needs.iter().for_each(|need| counts[usize::from(*need) % (MOST + 1)] += 1);
    let cost = |lowest: usize| {
        let alone: usize = counts[lowest + 1..].iter().sum();
        lowest * (needs.len() - alone) + (each + width) * alone
    };
    (1..=width - MATCH).min_by_key(|lowest| cost(*lowest)).unwrap_or(1)
}

/// Appends the `lowest` lowest bytes of each number in `run`.
///
/// PERF: stores a full word per number; the excess bytes are overwritten by the next number.
fn gather(run: &[u8], width: usize, lowest: usize, out: &mut Vec<u8>) {
    match width {
        4 => gather_by::<4>(run, lowest, out),
        8 => gather_by::<8>(run, lowest, out),
        _ => gather_by::<MOST>(run, lowest, out),
    }
}

fn gather_by<const W: usize>(run: &[u8], lowest: usize, out: &mut Vec<u8>) {
    let (whole, rest) = run.as_chunks::<W>();
    let begin = out.len();
    out.resize(begin + whole.len() * lowest + W, 0);
    let mut at = begin;
    for number in whole {
        out[at..at + W].copy_from_slice(number);
        at += lowest;
    }
    out.truncate(at);
    out.extend_from_slice(&rest[..lowest.min(rest.len())]);
}

/// The blocks of a zstd frame under construction.
struct Blocks<'a> {
    out: &'a mut Vec<u8>,
    /// Offset of the header of the last zstd block.
    last: usize,
}

impl<'a> Blocks<'a> {
    /// Begins a zstd frame whose content has `content` bytes.
    fn begin(content: usize, out: &'a mut Vec<u8>) -> Self {
        /// The frame header descriptor of zstd: a single segment, a content size of four bytes, no checksum.
        const DESCRIPTOR: u8 = 0xa0;
        out.extend(0xfd2f_b528u32.to_le_bytes());
        out.push(DESCRIPTOR);
        out.extend((content as u32).to_le_bytes());
        let last = out.len();
        Self { out, last }
    }

    fn block(&mut self, kind: u32, size: usize) {
        self.last = self.out.len();
        self.out.extend_from_slice(&((size as u32) << 3 | kind << 1).to_le_bytes()[..3]);
    }

    /// Appends the bytes as raw zstd blocks.
    fn raw(&mut self, bytes: &[u8]) {
        for some in bytes.chunks(BLOCK) {
            self.block(0, some.len());
            self.out.extend_from_slice(some);
        }
    }

    /// Appends a compressed zstd block for the numbers in `run`. The zstd block has a sequence for each complete number
    /// of `width` bytes; each sequence has `lowest` literals. If the run ends with a part of a number, its bytes are
    /// literals after the last sequence.
    fn sequences(
        &mut self,
        run: &[u8],
        width: usize,
        lowest: usize,
        is_far: bool,
        literals: &mut Vec<u8>,
        shorten: Option<&mut Shorten<'_>>,
    ) {
        const ALL_ALIKE: u8 = 0b01_01_01_00;
        literals.clear();
        gather(run, width, lowest, literals);
        self.block(2, 0);
        let begin = self.out.len();
        if let Some(shorten) = shorten {
            shorten(literals, self.out);
        }
        if self.out.len() == begin {
            // The header of a section of uncompressed literals: type, size format and length.
            self.out.extend_from_slice(&((literals.len() as u32) << 4 | 0b1100).to_le_bytes()[..3]);
            self.out.extend_from_slice(literals);
        }
        let count = run.len() / width;
        match count {
            0..0x80 => self.out.push(count as u8),
            0x80..0x7f00 => self.out.extend([(count >> 8) as u8 + 0x80, count as u8]),
            _ => {
                self.out.push(0xff);
                self.out.extend(((count - 0x7f00) as u16).to_le_bytes());
            }
        }
        // The lengths are small: the code of a literal length equals the literal length, and the code of a match length
        // equals the match length minus the least length of a match. The stored value of an offset is the offset plus
        // three. The code of this value is the number of its bits below the highest bit; code 0 repeats the last
        // offset. The bit stream ends with a 1 bit.
        let far = width + 3;
        let code = if is_far { far.ilog2() } else { 0 };
        let bits = if is_far { far } else { 1 };
        self.out.extend([ALL_ALIKE, lowest as u8, code as u8, (width - lowest - MATCH) as u8, bits as u8]);
        let size = self.out.len() - begin;
        self.out[self.last..begin].copy_from_slice(&((size as u32) << 3 | 2 << 1).to_le_bytes()[..3]);
    }

    /// Ends the zstd frame: sets the flag of its last zstd block (RFC 8878 §3.1.1.2). A zstd frame without blocks gets
    /// an empty zstd block.
    fn end(self) {
        if self.last == self.out.len() {
            self.out.extend([0; 3]);
        }
        self.out[self.last] |= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    const ALL: [Numbers; 3] = [Numbers::Ints, Numbers::Longs, Numbers::Decimals];

    fn written(numbers: &[u128], of: Numbers) -> Vec<u8> {
        let mut content = Vec::new();
        for n in numbers {
            match of {
                Numbers::Ints => content.extend((*n as u32).to_le_bytes()),
                Numbers::Longs => content.extend((*n as u64).to_le_bytes()),
                Numbers::Decimals => content.extend(n.to_be_bytes()),
            }
        }
        content
    }

    #[test]
    fn zstd_reads_frames_of_random_numbers() {
        let seed = testkit::seed("zstd_reads_frames_of_random_numbers");
        let mut prng = Prng::new(seed);
        let mut striper = Striper::default();
        for round in 0..300 {
            let of = ALL[prng.below(3) as usize];
            let count = [3, 40, 1000, 70_000][prng.below(4) as usize];
            let (bits, seldom) = (1 + prng.below(8 * of.width() as u64) as u32, 1 + prng.below(2000));
            let base = u128::from(prng.next_u64()) << prng.below(100);
            let one = |prng: &mut Prng| {
                let any = u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64());
                let bits = if prng.below(seldom) == 0 { 128 } else { bits };
                base.wrapping_add(any >> (128 - bits))
            };
            let numbers: Vec<u128> = (0..prng.below(count)).map(|_| one(&mut prng)).collect();
            let content = written(&numbers, of);
            let mut frame = Vec::new();
            striper.frame(&content, of, None, &mut frame);
            let whole = zstd::bulk::decompress(&frame, content.len()).expect("zstd reads it");
            assert!(whole == content, "seed {seed} round {round}");
        }
    }

    #[test]
    fn numbers_take_only_the_bytes_in_which_they_differ() {
        let seed = testkit::seed("numbers_take_only_the_bytes_in_which_they_differ");
        let mut prng = Prng::new(seed);
        let mut striper = Striper::default();
        for of in ALL {
            for lowest in 1..=of.width() - MATCH {
                let noise = |prng: &mut Prng| u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64());
                let numbers: Vec<u128> = (0..50_000).map(|_| noise(&mut prng) >> (128 - 8 * lowest)).collect();
                let content = written(&numbers, of);
                let mut frame = Vec::new();
                striper.frame(&content, of, None, &mut frame);
                let (wanted, note) = (lowest * numbers.len(), format!("{of:?} {lowest} seed {seed}"));
                assert!((wanted..wanted + 500).contains(&frame.len()), "{note}: {}", frame.len());
            }
        }
    }
}
