//! Random mutations of valid inputs, for runs that are not guided by coverage.

use base::Prng;

/// Values at the limits of lengths, counts and offsets.
const LIMITS: [u64; 16] = [
    0,
    1,
    2,
    4,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// Greatest length of an input.
const MAX_LEN: usize = 256 << 10;

/// Generates mutations of seed inputs. The same state of the random number generator gives the same mutations.
#[derive(Debug)]
pub struct Mutator {
    prng: Prng,
    seeds: Vec<Vec<u8>>,
}

impl Mutator {
    /// Mutations of these inputs.
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>) -> Self {
        Self { prng: Prng::new(seed), seeds }
    }

    /// Returns the next input: a seed input with one or more random changes, in most cases only a few.
    pub fn mutation(&mut self) -> Vec<u8> {
        let mut bytes = self.seed().to_vec();
        loop {
            self.change(&mut bytes);
            if self.prng.below(8) < 3 {
                bytes.truncate(MAX_LEN);
                return bytes;
            }
        }
    }

    fn seed(&mut self) -> &[u8] {
        let at = self.prng.below(self.seeds.len().max(1) as u64) as usize;
        self.seeds.get(at).map_or(&[], Vec::as_slice)
    }

    /// A position in an input of `len` bytes, more often near the beginning, where headers are.
    fn position(&mut self, len: usize) -> usize {
        let reach = if self.prng.below(2) == 0 { len.min(128) } else { len };
        self.prng.below(reach.max(1) as u64) as usize
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let at = self.position(len).min(len);
        at..(at + 1 + self.prng.below(32) as usize).min(len)
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.position(bytes.len());
        match self.prng.below(9) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << self.prng.below(8)),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = self.prng.next_u64() as u8),
            2 => self.write_limit(bytes, at),
            3 => {
                let delta = (1 + self.prng.below(16)) as u8;
                let delta = if self.prng.below(2) == 0 { delta } else { delta.wrapping_neg() };
                bytes.iter_mut().skip(at).take(1).for_each(|b| *b = b.wrapping_add(delta));
            }
            4 => drop(bytes.drain(self.range(bytes.len()))),
            5 => {
                let piece = bytes[self.range(bytes.len())].to_vec();
                let at = at.min(bytes.len());
                bytes.splice(at..at, piece);
            }
            6 => {
                let mut piece = vec![0; 1 + self.prng.below(8) as usize];
                self.prng.fill(&mut piece);
                bytes.splice(at.min(bytes.len())..at.min(bytes.len()), piece);
            }
            7 => {
                // Inserts a piece of another seed, or replaces a piece of the same length by it.
                let other = self.seed().to_vec();
                let piece = other[self.range(other.len())].to_vec();
                let end = if self.prng.below(2) == 0 { at } else { at + piece.len() };
                bytes.splice(at.min(bytes.len())..end.min(bytes.len()), piece);
            }
            _ if self.prng.below(4) == 0 => bytes.truncate(at),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = b"0179aZ ()[]{}\"'.,:;=<>!&|-_/\n"[at % 29]),
        }
    }

    /// Writes a limit value, or a value next to it, in 1 to 8 bytes and either byte order.
    fn write_limit(&mut self, bytes: &mut [u8], at: usize) {
        let value =
            LIMITS[self.prng.below(LIMITS.len() as u64) as usize].wrapping_add(self.prng.below(3)).wrapping_sub(1);
        let width = 1 << self.prng.below(4);
        let mut field = value.to_le_bytes()[..width].to_vec();
        if self.prng.below(2) == 0 {
            field.reverse();
        }
        bytes.iter_mut().skip(at & !(width - 1)).zip(field).for_each(|(b, new)| *b = new);
    }
}
