//! Pages compressed. What is in a page is of several kinds (levels of nesting, levels of presence, values), each with frequencies
//! of its own; so a page is made of parts, and each part becomes a frame of zstd by itself.
//! Frames one behind the other are what one frame is to every reader (RFC 8878, section 3).
//!
//! Most parts have few repetitions to be found and many bytes that are more frequent than others. So beside the compressor
//! that looks for repetitions at every byte there are two that step over what does not repeat at once and leave the rest to
//! the frequencies, in half the time. Which one suits a part of a column is found out on pieces of it, once. Noise needs none of
//! them: its frames are written here.

use parquet::basic::ZstdLevel;
use parquet::errors::Result;
use std::collections::HashMap;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, ParamSwitch, compress_bound};

/// Bytes that make a part of their own: a frame takes a dozen more.
const PART: usize = 4 << 10;

/// Fewer bytes are not compressed.
const WORTH: usize = 64;

/// How many bytes the quick compressors step over where nothing repeats.
/// PERF: 1 (level 1 as it is), 64 and 512 take 230, 126 and 115 ns per record for all parts of a site's records, and make 49.5, 52.5
/// and 53.2 bytes of them; the best of each part, a quarter longer than the shortest at most, 131 ns and 50.6 (records/2026-11-22-columns.md).
const STEPS: [u32; 2] = [64, 512];

/// Pieces of a part that a choice is made on, and bytes of each.
const PIECES: (usize, usize) = (4, 2 << 10);

/// A quick compressor is chosen if it makes a part longer by no more than one part of so many.
/// PERF: with 16, 8, 4, 3 and 2 a site's records take 56.9, 56.9, 58.0, 58.6 and 58.9 bytes, and sealing with 8, 4, 3 and 2 takes 30, 260, 350
/// and 390 instructions for each less than with 16.
const LONGER: usize = 32;

/// Chosen for noise: no compressor.
const NONE: usize = 1 + STEPS.len();

/// Noise is what no compressor makes shorter by one part of so many.
const SHORTER: usize = 64;

/// A page before it is compressed.
#[derive(Default)]
pub struct Page {
    /// What is appended to it.
    pub bytes: Vec<u8>,
    /// Bytes of each part that is whole.
    parts: Vec<usize>,
    /// Where the part that grows begins.
    from: usize,
}

impl Page {
    /// Nothing in it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.from = 0;
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What follows is of another kind.
    pub fn cut(&mut self) {
        if self.bytes.len() - self.from >= PART {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        if self.bytes.len() > self.from {
            self.parts.push(self.bytes.len() - self.from);
            self.from = self.bytes.len();
        }
    }
}

/// What compresses pages; its memory is used again.
pub struct Packer {
    /// That which looks at every byte, and the quick ones.
    zstd: [Compressor<'static>; 1 + STEPS.len()],
    /// Which compressor suits the parts of a column, once that is known: those of its dictionary, and of its data.
    chosen: HashMap<String, [Vec<Option<usize>>; 2]>,
    sample: Vec<u8>,
    frame: Vec<u8>,
}

impl Packer {
    /// # Errors
    /// When there is no memory for the compressors.
    pub fn new() -> Result<Self> {
        // Level 1: docs/COLUMNS.md has what the others would give.
        let level = || Compressor::new(ZstdLevel::default().compression_level());
        let mut zstd = [level()?, level()?, level()?];
        for (zstd, step) in zstd[1..].iter_mut().zip(STEPS) {
            zstd.set_parameter(CParameter::TargetLength(step))?;
            zstd.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
        }
        Ok(Self { zstd, chosen: HashMap::new(), sample: Vec::new(), frame: Vec::new() })
    }

    /// Compresses a column's dictionary and data, what there is of them. False, and they are better left as they are, if that
    /// saves less than a sixteenth.
    ///
    /// # Errors
    /// When a compressor refuses something.
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
                self.frame(&[], 0, packed)?;
            }
            // A page of other parts is another page: what was learnt of its third part is not of this one's.
            if chosen.len() != page.parts.len() {
                chosen.clear();
                chosen.resize(page.parts.len(), None);
            }
            let mut rest = &page.bytes[..];
            for (part, chosen) in page.parts.iter().zip(chosen) {
                let part = rest.split_off(..*part).unwrap_or_default();
                // Of short parts there is nothing to learn.
                if chosen.is_none() && part.len() >= 2 * PIECES.0 * PIECES.1 {
                    *chosen = Some(self.better(part)?);
                }
                self.frame(part, chosen.unwrap_or(0), packed)?;
            }
        }
        self.chosen.insert(path.to_owned(), chosen);
        let sum: usize = packed.iter().map(Vec::len).sum();
        Ok(sum < raw - raw / 16)
    }

    fn frame(&mut self, part: &[u8], by: usize, out: &mut Vec<u8>) -> Result<()> {
        if by == NONE {
            frame(part, out);
            return Ok(());
        }
        self.frame.clear();
        self.frame.reserve(compress_bound(part.len()));
        self.zstd[by].compress_to_buffer(part, &mut self.frame)?;
        out.extend_from_slice(&self.frame);
        Ok(())
    }

    /// The compressor that suits a part, by what each makes of pieces of it.
    fn better(&mut self, part: &[u8]) -> Result<usize> {
        let (pieces, bytes) = PIECES;
        let mut sample = std::mem::take(&mut self.sample);
        sample.clear();
        part.chunks_exact(part.len() / pieces).take(pieces).for_each(|piece| sample.extend_from_slice(&piece[..bytes]));
        let mut sizes = [0; 1 + STEPS.len()];
        for (by, size) in sizes.iter_mut().enumerate() {
            let mut packed = Vec::new();
            self.frame(&sample, by, &mut packed)?;
            *size = packed.len();
        }
        let sample_len = sample.len();
        self.sample = sample;
        let [thorough, quick, quicker] = sizes;
        let best = if quicker <= quick + quick / 64 { 2 } else { 1 };
        let best = if sizes[best] <= thorough + thorough / LONGER { best } else { 0 };
        Ok(if sizes[best] > sample_len - sample_len / SHORTER { NONE } else { best })
    }
}

/// A frame of bytes as they are (RFC 8878, section 3.1.1): its magic, the size of the content in four bytes, and blocks, of which
/// each says its length and has its bytes.
fn frame(content: &[u8], out: &mut Vec<u8>) {
    /// Most bytes of a block.
    const BLOCK: usize = 128 << 10;
    /// Single segment, four bytes of size, no checksum.
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

    fn chosen(part: &[u8]) -> usize {
        let mut packer = Packer::new().expect("memory");
        let mut page = Page::default();
        page.bytes.extend_from_slice(part);
        let mut packed = Default::default();
        assert!(packer.pack("column", [None, Some(&mut page)], &mut packed).expect("compressed"));
        assert_eq!(zstd::bulk::decompress(&packed[1], part.len()).expect("any zstd reads it"), part);
        packer.chosen["column"][1][0].expect("a long part is learnt from")
    }

    #[test]
    fn what_is_only_more_or_less_frequent_is_compressed_a_quick_way() {
        let seed = testkit::seed("what_is_only_more_or_less_frequent_is_compressed_a_quick_way");
        let mut prng = Prng::new(seed);
        let noise: Vec<u8> = (0..100_000).map(|_| prng.next_u64().trailing_zeros() as u8).collect();
        assert_ne!(chosen(&noise), 0, "seed {seed}");
    }

    #[test]
    fn what_repeats_here_and_there_is_compressed_the_thorough_way() {
        let seed = testkit::seed("what_repeats_here_and_there_is_compressed_the_thorough_way");
        let mut prng = Prng::new(seed);
        let words: Vec<[u8; 12]> = (0..50).map(|_| std::array::from_fn(|_| prng.next_u64() as u8)).collect();
        let text: Vec<u8> = (0..10_000).flat_map(|_| words[prng.below(50) as usize]).collect();
        assert_eq!(chosen(&text), 0, "seed {seed}");
    }

    #[test]
    fn noise_beside_what_is_worth_it_is_left_as_it_is() {
        let seed = testkit::seed("noise_beside_what_is_worth_it_is_left_as_it_is");
        let mut prng = Prng::new(seed);
        let mut packer = Packer::new().expect("memory");
        let mut page = Page::default();
        page.bytes.resize(300_000, 0);
        prng.fill(&mut page.bytes);
        page.cut();
        page.bytes.resize(600_000, 0);
        let mut packed = Default::default();
        assert!(packer.pack("column", [None, Some(&mut page)], &mut packed).expect("compressed"));
        assert_eq!(packer.chosen["column"][1][0], Some(NONE), "seed {seed}");
        let whole = zstd::bulk::decompress(&packed[1], 600_000).expect("any zstd reads it");
        assert!(page.bytes == whole, "seed {seed}");
    }

    #[test]
    fn a_page_of_any_parts_is_the_same_packed_and_as_it_is() {
        let seed = testkit::seed("a_page_of_any_parts_is_the_same_packed_and_as_it_is");
        let mut prng = Prng::new(seed);
        let mut packer = Packer::new().expect("memory");
        for round in 0..200 {
            let (mut page, mut model) = (Page::default(), Vec::new());
            for _ in 0..1 + prng.below(8) {
                let most = if prng.below(4) == 0 { 300_000 } else { 9_000 };
                let count = prng.below(most) as usize;
                let kinds = [1, 20, 256][prng.below(3) as usize];
                let some: Vec<u8> = (0..count).map(|_| prng.below(kinds) as u8).collect();
                page.bytes.extend_from_slice(&some);
                page.cut();
                model.extend(some);
            }
            assert_eq!(page.len(), model.len(), "seed {seed} round {round}");
            let mut packed = Default::default();
            if packer.pack("column", [None, Some(&mut page)], &mut packed).expect("compressed") {
                let whole = zstd::bulk::decompress(&packed[1], model.len()).expect("any zstd reads it");
                assert!(whole == model, "seed {seed} round {round}");
            }
            assert!(page.bytes == model, "seed {seed} round {round}");
        }
    }
}
