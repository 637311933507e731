//! Compresses pages. A page contains data of several kinds (repetition levels, definition levels, values), each with
//! its own byte frequencies; so a page is divided into parts, and each part becomes a zstd frame of its own. A sequence
//! of frames decodes like a single frame (RFC 8878, section 3).
//!
//! Most parts have few repeated byte sequences, but skewed byte frequencies. So there are two compressors. The first
//! searches for matches at every byte; the second only applies entropy coding, in a fifth of the time. The method for
//! each part of a column is chosen once, from samples. Noise is stored uncompressed, and numbers have their own methods
//! ([`crate::stripe`]). The frames of noise and of numbers are written by this module, not by the zstd library.

use crate::stripe::{Numbers, Striper};
use parquet::basic::ZstdLevel;
use parquet::errors::Result;
use std::collections::HashMap;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, ParamSwitch, compress_bound};

/// Least number of bytes of a part: each frame adds about a dozen bytes.
const PART: usize = 4 << 10;

/// Pages with fewer bytes than this number are not compressed.
const WORTH: usize = 64;

/// The search step of the quick compressor. It is so large that this compressor never searches for matches.
///
/// PERF: smaller steps of 64 and of 512 bytes were measured on all parts of 131 072 generated records
/// (records/2026-11-22-columns.md). Compression took 126 and 115 ns per record instead of 230, and the result had 52.5
/// and 53.2 bytes per record instead of 49.5. If the method could be chosen between a step of 64 and this step, no part
/// chose 64.
const STEP: u32 = 128 << 10;

/// The offset at which a sample of numbers begins is a multiple of this number.
const NUMBER: usize = 16;

/// Number of samples from which the compression method of a part is chosen, and greatest number of bytes of each
/// sample.
const PIECES: (usize, usize) = (4, 4 << 10);

/// No samples are taken of parts with fewer bytes, because the samples would not be representative.
const LEARNT: usize = 16 << 10;

/// Greatest number of picoseconds that saving one byte may take: the method with the lowest total cost at this price is
/// chosen.
///
/// PERF: with prices of 17 000, 20 000 and 24 000 picoseconds per byte, a generated record takes 88.6, 88.5 and 87.6
/// bytes (records/2026-11-23-columns.md).
const PRICE: usize = 20_000;

/// How a part of a page is compressed into a zstd frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// zstd level 1, which searches for matches at every byte.
    Thorough,
    /// zstd with entropy coding only, without a search for matches.
    Quick,
    /// All bytes as they are.
    Bytes,
    /// The encoding of numbers in [`crate::stripe`]; the lowest bytes, which the frame contains, are not compressed.
    Stripes,
    /// The encoding of numbers in [`crate::stripe`]; the lowest bytes, which the frame contains, are entropy-coded.
    Frequent,
}

impl Method {
    /// Estimated picoseconds for compressing `raw` bytes to `made`; `stripes` is the length that [`Method::Stripes`]
    /// would yield. The estimate was fitted to the measured times of all methods for all parts of generated records
    /// (records/2026-11-23-columns.md): the fewer matches there are, the longer the search for them takes.
    fn picoseconds(self, raw: usize, made: usize, stripes: usize) -> usize {
        match self {
            Self::Thorough => (3_000 * raw).min(12_000 * made),
            Self::Quick => 1_250 * raw,
            Self::Bytes => 50 * raw,
            Self::Stripes => 350 * raw,
            Self::Frequent => 350 * raw + 1_250 * stripes,
        }
    }
}

/// A page before compression.
#[derive(Default)]
pub struct Page {
    /// The bytes of the page; callers append to it.
    pub bytes: Vec<u8>,
    /// Length of each completed part, and the type of its numbers if it consists of numbers.
    parts: Vec<(usize, Option<Numbers>)>,
    /// Where the current part begins.
    from: usize,
    /// The type of its numbers.
    of: Option<Numbers>,
}

impl Page {
    /// Empties the page.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        (self.from, self.of) = (0, None);
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Ends a part of the page, because the next data are of another kind.
    pub fn cut(&mut self) {
        if self.bytes.len() - self.from >= PART {
            self.end_part();
        }
    }

    /// Begins a part for `count` numbers, which the caller appends next, unless they are too few for a part of their
    /// own. The part ends at the next [`Self::cut`] or at the end of the page.
    pub fn numbers(&mut self, count: usize, of: Numbers) {
        if count * of.width() >= PART {
            self.end_part();
            self.of = Some(of);
        }
    }

    fn end_part(&mut self) {
        let of = self.of.take();
        if self.bytes.len() > self.from {
            self.parts.push((self.bytes.len() - self.from, of));
            self.from = self.bytes.len();
        }
    }
}

/// The page compressors and their reused memory.
pub struct PageCompressor {
    /// The compressor that searches for matches at every byte, and the quick compressor.
    zstd: [Compressor<'static>; 2],
    /// The chosen method of each part of a column's dictionary page and data page, once known.
    chosen: HashMap<String, [Vec<Option<Method>>; 2]>,
    striper: Striper,
    sample: Vec<u8>,
    frame: Vec<u8>,
}

impl PageCompressor {
    /// # Errors
    /// If there is no memory for the compressors.
    pub fn new() -> Result<Self> {
        // Compression level 1: docs/reference/parquet.md compares it with other levels.
        let level = || Compressor::new(ZstdLevel::default().compression_level());
        let mut zstd = [level()?, level()?];
        zstd[1].set_parameter(CParameter::TargetLength(STEP))?;
        zstd[1].set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
        Ok(Self { zstd, chosen: HashMap::new(), striper: Striper::default(), sample: Vec::new(), frame: Vec::new() })
    }

    /// Compresses a column's dictionary page and data page, as far as they exist. Returns false if that saves less than
    /// a sixteenth; then the pages should be stored uncompressed.
    ///
    /// # Errors
    /// If a compressor returns an error.
    pub fn pack(&mut self, path: &str, pages: [Option<&mut Page>; 2], packed: &mut [Vec<u8>; 2]) -> Result<bool> {
        let raw: usize = pages.iter().flatten().map(|page| page.len()).sum();
        if raw < WORTH {
            return Ok(false);
        }
        let mut chosen = self.chosen.remove(path).unwrap_or_default();
        for ((page, packed), chosen) in pages.into_iter().zip(packed.iter_mut()).zip(&mut chosen) {
            packed.clear();
            let Some(page) = page else { continue };
            page.end_part();
            if page.parts.is_empty() {
                self.frame(&[], None, Method::Thorough, packed)?;
            }
            // A page with another number of parts has another structure, so earlier choices do not apply.
            if chosen.len() != page.parts.len() {
                chosen.clear();
                chosen.resize(page.parts.len(), None);
            }
            let mut rest = &page.bytes[..];
            for ((bytes, of), chosen) in page.parts.iter().zip(chosen) {
                let part = rest.split_off(..*bytes).unwrap_or_default();
                if chosen.is_none() && part.len() >= LEARNT {
                    *chosen = Some(self.better(part, *of)?);
                }
                self.frame(part, *of, chosen.unwrap_or(Method::Thorough), packed)?;
            }
        }
        self.chosen.insert(path.to_owned(), chosen);
        let sum: usize = packed.iter().map(Vec::len).sum();
        Ok(sum < raw - raw / 16)
    }

    fn frame(&mut self, part: &[u8], of: Option<Numbers>, method: Method, out: &mut Vec<u8>) -> Result<()> {
        match (method, of) {
            (Method::Thorough | Method::Quick, _) => {
                self.frame.clear();
                self.frame.reserve(compress_bound(part.len()));
                self.zstd[usize::from(method == Method::Quick)].compress_to_buffer(part, &mut self.frame)?;
                out.extend_from_slice(&self.frame);
            }
            (Method::Stripes, Some(of)) => self.striper.frame(part, of, None, out),
            (Method::Frequent, Some(of)) => {
                let Self { striper, zstd, frame, .. } = self;
                let shorten = &mut |literals: &[u8], out: &mut Vec<u8>| {
                    frame.clear();
                    frame.reserve(compress_bound(literals.len()));
                    if zstd[1].compress_to_buffer(literals, frame).is_ok() {
                        out.extend_from_slice(literals_of(frame).unwrap_or_default());
                    }
                };
                striper.frame(part, of, Some(shorten), out);
            }
            _ => frame(part, out),
        }
        Ok(())
    }

    /// The method with the lowest cost for a part, estimated from samples of the part.
    fn better(&mut self, part: &[u8], of: Option<Numbers>) -> Result<Method> {
        let (pieces, bytes) = PIECES;
        let mut sample = std::mem::take(&mut self.sample);
        sample.clear();
        let step = (part.len() / pieces).next_multiple_of(NUMBER) - NUMBER;
        part.chunks_exact(step).take(pieces).for_each(|piece| sample.extend_from_slice(&piece[..bytes.min(step)]));
        let mut made = |method| {
            let mut packed = Vec::new();
            self.frame(&sample, of, method, &mut packed).map(|()| packed.len())
        };
        let stripes = if of.is_some() { made(Method::Stripes)? } else { usize::MAX };
        let mut best = (Method::Bytes, usize::MAX);
        for method in [Method::Thorough, Method::Quick, Method::Frequent, Method::Stripes, Method::Bytes] {
            let made = match method {
                Method::Thorough | Method::Quick => made(method)?,
                Method::Frequent if of.is_some() => made(method)?,
                Method::Stripes if of.is_some() => stripes,
                Method::Frequent | Method::Stripes => continue,
                Method::Bytes => sample.len(),
            };
            let cost = method.picoseconds(sample.len(), made, stripes) + PRICE * made;
            if cost < best.1 {
                best = (method, cost);
            }
        }
        self.sample = sample;
        Ok(best.0)
    }
}

/// The literals section of a frame that consists of one compressed block without sequences.
fn literals_of(frame: &[u8]) -> Option<&[u8]> {
    const COMPRESSED: u32 = 2;
    let descriptor = *frame.get(4)?;
    let is_single = descriptor >> 5 & 1;
    let size = [usize::from(is_single), 2, 4, 8][usize::from(descriptor >> 6)];
    let rest = frame.get(5 + usize::from(1 - is_single) + size..)?;
    let (head, rest) = rest.split_first_chunk::<3>()?;
    let head = u32::from_le_bytes([head[0], head[1], head[2], 0]);
    let (literals, count) = rest.split_at_checked((head >> 3).checked_sub(1)? as usize)?;
    (head & 7 == COMPRESSED << 1 | 1 && count == [0] && is_whole(literals)).then_some(literals)
}

/// True if a literals section with its own Huffman tree (RFC 8878, section 3.1.1.3.1.1) is as long as its header
/// states.
fn is_whole(section: &[u8]) -> bool {
    const COMPRESSED: u64 = 2;
    let mut head = [0; 8];
    let some = section.len().min(5);
    head[..some].copy_from_slice(&section[..some]);
    let head = u64::from_le_bytes(head);
    // The number of bytes of the section header, and the number of bits of each of the two sizes in this header. The
    // second size is that of the section's content.
    let (bytes, bits) = [(3, 10), (3, 10), (4, 14), (5, 18)][(head >> 2 & 3) as usize];
    head & 3 == COMPRESSED && bytes + (head >> (4 + bits) & ((1 << bits) - 1)) == section.len() as u64
}

/// An uncompressed frame (RFC 8878, section 3.1.1): magic, size of the content in four bytes, and raw blocks.
fn frame(content: &[u8], out: &mut Vec<u8>) {
    /// Greatest length of a block.
    const BLOCK: usize = 128 << 10;
    /// The frame header descriptor: a single segment, a content size of four bytes, no checksum.
    const DESCRIPTOR: u8 = 0xa0;
    let count = content.len();
    out.extend(0xfd2f_b528u32.to_le_bytes());
    out.push(DESCRIPTOR);
    out.extend((count as u32).to_le_bytes());
    for from in (0..count).step_by(BLOCK) {
        let to = count.min(from + BLOCK);
        let head = ((to - from) as u32) << 3 | u32::from(to == count);
        out.extend_from_slice(&head.to_le_bytes()[..3]);
        out.extend_from_slice(&content[from..to]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn chosen(part: &[u8]) -> Method {
        let mut packer = PageCompressor::new().expect("memory");
        let mut page = Page::default();
        page.bytes.extend_from_slice(part);
        let mut packed = Default::default();
        assert!(packer.pack("column", [None, Some(&mut page)], &mut packed).expect("compressed"));
        assert_eq!(zstd::bulk::decompress(&packed[1], part.len()).expect("zstd reads it"), part);
        packer.chosen["column"][1][0].expect("a long part has a compression method")
    }

    #[test]
    fn skewed_bytes_without_repetitions_are_entropy_coded_only() {
        let seed = testkit::seed("skewed_bytes_without_repetitions_are_entropy_coded_only");
        let mut prng = Prng::new(seed);
        let noise: Vec<u8> = (0..100_000).map(|_| prng.next_u64().trailing_zeros() as u8).collect();
        assert_eq!(chosen(&noise), Method::Quick, "seed {seed}");
    }

    #[test]
    fn repetitions_are_compressed_with_a_search_for_matches() {
        let seed = testkit::seed("repetitions_are_compressed_with_a_search_for_matches");
        let mut prng = Prng::new(seed);
        let words: Vec<[u8; 12]> = (0..50).map(|_| std::array::from_fn(|_| prng.next_u64() as u8)).collect();
        let text: Vec<u8> = (0..10_000).flat_map(|_| words[prng.below(50) as usize]).collect();
        assert_eq!(chosen(&text), Method::Thorough, "seed {seed}");
    }

    #[test]
    fn noise_beside_compressible_data_is_stored_uncompressed() {
        let seed = testkit::seed("noise_beside_compressible_data_is_stored_uncompressed");
        let mut prng = Prng::new(seed);
        let mut packer = PageCompressor::new().expect("memory");
        let mut page = Page::default();
        page.bytes.resize(300_000, 0);
        prng.fill(&mut page.bytes);
        page.cut();
        page.bytes.resize(600_000, 0);
        let mut packed = Default::default();
        assert!(packer.pack("column", [None, Some(&mut page)], &mut packed).expect("compressed"));
        assert_eq!(packer.chosen["column"][1][0], Some(Method::Bytes), "seed {seed}");
        let decompressed = zstd::bulk::decompress(&packed[1], 600_000).expect("zstd reads it");
        assert!(page.bytes == decompressed, "seed {seed}");
    }

    /// The method chosen for the 8-byte numbers that `number` yields.
    fn chosen_of_numbers(packer: &mut PageCompressor, number: impl FnMut() -> u64) -> Method {
        let mut page = Page::default();
        let numbers: Vec<u64> = std::iter::repeat_with(number).take(30_000).collect();
        page.numbers(numbers.len(), Numbers::Longs);
        numbers.iter().for_each(|n| page.bytes.extend(n.to_le_bytes()));
        let mut packed = Default::default();
        assert!(packer.pack("column", [None, Some(&mut page)], &mut packed).expect("compressed"));
        assert!(zstd::bulk::decompress(&packed[1], page.bytes.len()).expect("zstd reads it") == page.bytes);
        packer.chosen["column"][1][0].expect("a long part has a compression method")
    }

    #[test]
    fn numbers_are_reduced_to_their_lowest_bytes_which_are_coded_if_skewed() {
        let seed = testkit::seed("numbers_are_reduced_to_their_lowest_bytes_which_are_coded_if_skewed");
        let mut prng = Prng::new(seed);
        let packer = || PageCompressor::new().expect("memory");
        assert_eq!(chosen_of_numbers(&mut packer(), || prng.below(1 << 32)), Method::Stripes, "seed {seed}");
        let mut prng = Prng::new(seed);
        let some = || {
            let [high, low] = [prng.next_u64(), prng.next_u64()].map(|n| u64::from(n.trailing_zeros()));
            high << 32 | low << 24 | prng.below(1 << 24)
        };
        assert_eq!(chosen_of_numbers(&mut packer(), some), Method::Frequent, "seed {seed}");
    }

    #[test]
    fn a_smaller_size_is_rejected_if_it_takes_too_much_time() {
        let seed = testkit::seed("a_smaller_size_is_rejected_if_it_takes_too_much_time");
        let mut prng = Prng::new(seed);
        let mut moment = 1 << 40;
        let mut number = || {
            moment += prng.below(2_000);
            moment
        };
        let numbers: Vec<u64> = std::iter::repeat_with(&mut number).take(30_000).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut packer = PageCompressor::new().expect("memory");
        let mut made = |method| {
            let mut packed = Vec::new();
            packer.frame(&bytes, Some(Numbers::Longs), method, &mut packed).expect("compressed");
            packed.len()
        };
        let (thorough, stripes) = (made(Method::Thorough), made(Method::Stripes));
        assert!(thorough < stripes, "{thorough} and {stripes} bytes, seed {seed}");
        let mut all = numbers.into_iter();
        let chosen = chosen_of_numbers(&mut packer, || all.next().expect("as many"));
        assert!(matches!(chosen, Method::Stripes | Method::Frequent), "{chosen:?}, seed {seed}");
    }

    #[test]
    fn a_page_of_random_parts_decompresses_to_its_bytes() {
        let seed = testkit::seed("a_page_of_random_parts_decompresses_to_its_bytes");
        let mut prng = Prng::new(seed);
        let mut packer = PageCompressor::new().expect("memory");
        for round in 0..200 {
            let (mut page, mut model) = (Page::default(), Vec::new());
            for _ in 0..1 + prng.below(8) {
                let most = if prng.below(4) == 0 { 300_000 } else { 9_000 };
                let count = prng.below(most) as usize;
                let kinds = [1, 20, 256][prng.below(3) as usize];
                let of = [Numbers::Ints, Numbers::Longs, Numbers::Decimals][prng.below(3) as usize];
                let (width, low) = (of.width(), prng.below(of.width() as u64 + 1) as usize);
                let is_numbers = prng.below(2) == 0;
                let count = if is_numbers { count - count % width } else { count };
                let mut some: Vec<u8> = (0..count).map(|_| prng.below(kinds) as u8).collect();
                if is_numbers {
                    page.numbers(count / width, of);
                    some.chunks_mut(width).for_each(|n| match of {
                        Numbers::Decimals => n[..width - low].fill(0),
                        _ => n[low..].fill(0),
                    });
                }
                page.bytes.extend_from_slice(&some);
                page.cut();
                model.extend(some);
            }
            assert_eq!(page.len(), model.len(), "seed {seed} round {round}");
            let mut packed = Default::default();
            if packer.pack("column", [None, Some(&mut page)], &mut packed).expect("compressed") {
                let decompressed = zstd::bulk::decompress(&packed[1], model.len()).expect("zstd reads it");
                assert!(decompressed == model, "seed {seed} round {round}");
            }
            assert!(page.bytes == model, "seed {seed} round {round}");
        }
    }
}
