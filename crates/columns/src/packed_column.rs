//! Packed columns: the numbers of one column of a block, stored as differences from a base. Each difference has the
//! number of bytes that the largest difference needs.
//!
//! A packed column consists of a byte with the width (0, 1, 2, 4 or 8) and a flag that a base follows, then the base if
//! the flag is set, and then the numbers. The count of the numbers is stored elsewhere. No branch depends on a value,
//! and each loop runs over slices. [`Narrow`] joins many packed columns into one sequence with random access.

use sys::simd::{SimdLoop, simd};

/// Flag in the first byte of a packed column: a base follows.
pub const HAS_BASE: u8 = 0x80;

/// Number of bytes per number for numbers up to `most`; the result is one of the widths that a packed column can have.
#[inline(always)]
pub fn width(most: u64) -> usize {
    match most {
        0 => 0,
        1..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x1_0000_0000 => 4,
        _ => 8,
    }
}

/// A packed column within the bytes of a block.
#[derive(Clone, Copy)]
pub struct PackedColumn<'a> {
    base: i64,
    width: usize,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> PackedColumn<'a> {
    /// Takes a packed column of `count` numbers from the beginning of `bytes`; `None` if it is invalid.
    pub fn take(bytes: &mut &'a [u8], count: usize) -> Option<Self> {
        let head = *bytes.split_off_first()?;
        let width = usize::from(head & !HAS_BASE);
        let base = if head & HAS_BASE == 0 { 0 } else { i64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?) };
        if !matches!(width, 0 | 1 | 2 | 4 | 8) {
            return None;
        }
        Some(Self { base, width, count, bytes: bytes.split_off(..width.checked_mul(count)?)? })
    }

    /// Calls `each` with every number.
    pub fn each(&self, mut each: impl FnMut(i64)) {
        match self.width {
            0 => (0..self.count).for_each(|_| each(self.base)),
            1 => self.bytes.iter().for_each(|byte| each(self.base.wrapping_add(i64::from(*byte)))),
            2 => words(self.bytes, |b| u64::from(u16::from_le_bytes(b)), |n| each(self.base.wrapping_add(n as i64))),
            4 => words(self.bytes, |b| u64::from(u32::from_le_bytes(b)), |n| each(self.base.wrapping_add(n as i64))),
            _ => words(self.bytes, u64::from_le_bytes, |n| each(self.base.wrapping_add(n as i64))),
        }
    }

    /// The greatest difference from the base that this width can hold.
    fn reach(&self) -> u64 {
        match self.width {
            0 => 0,
            1 => 0xff,
            2 => 0xffff,
            4 => 0xffff_ffff,
            _ => u64::MAX,
        }
    }
}

#[inline]
fn words<const N: usize>(bytes: &[u8], word: impl Fn([u8; N]) -> u64, mut each: impl FnMut(u64)) {
    bytes.as_chunks().0.iter().for_each(|bytes| each(word(*bytes)));
}

/// First byte of a presence bitmap: no position has a value, and nothing follows.
pub const NONE: u8 = 0;

/// All positions have a value.
pub const ALL: u8 = 1;

/// First byte of a presence bitmap: some positions have a value, and one bit per position follows.
pub const SOME: u8 = 2;

/// The presence bitmap of one block, as stored.
#[derive(Clone, Copy)]
pub struct PresenceMap<'a> {
    /// Number of positions.
    places: usize,
    /// Number of positions with a value.
    pub count: usize,
    /// One bit for each position, 1 if the position has a value; empty if all positions or no positions have a value.
    bits: &'a [u8],
}

impl<'a> PresenceMap<'a> {
    /// Takes the presence bitmap of `places` positions from the beginning of `bytes`; `None` if it is invalid.
    pub fn take(bytes: &mut &'a [u8], places: usize) -> Option<Self> {
        let (count, bits) = match *bytes.split_off_first()? {
            NONE => (0, &[][..]),
            ALL => (places, &[][..]),
            SOME => {
                let bits = bytes.split_off(..places.div_ceil(8))?;
                let excess_bits = if places.is_multiple_of(8) { 0 } else { bits.last()? >> (places % 8) };
                let count = bits.iter().map(|byte| byte.count_ones() as usize).sum();
                // Bits after the last position must be zero.
                (excess_bits == 0 && count > 0 && count < places).then_some((count, bits))?
            }
            _ => return None,
        };
        Some(Self { places, count, bits })
    }
}

/// The joined presence bitmap of many blocks, from which the number of values before any position can be computed.
#[derive(PartialEq)]
pub enum Bits {
    /// All positions have a value.
    All,
    /// No position has a value.
    None,
    /// Words of 64 bits, each with the number of 1 bits in all words before it.
    Some(Vec<(u64, u32)>),
}

/// A bitmap under construction.
struct Row {
    words: Vec<(u64, u32)>,
    word: u64,
    /// Number of positions whose bits are in `word` so far, fewer than 64.
    have: u32,
    before: u32,
}

impl Row {
    /// Appends the lowest `count` bits (1 to 64); the bits above must be zero.
    fn push(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.have;
        let capacity = u64::BITS - self.have;
        if count < capacity {
            self.have += count;
            return;
        }
        self.words.push((self.word, self.before));
        self.before += self.word.count_ones();
        self.word = bits.checked_shr(capacity).unwrap_or(0);
        self.have = count - capacity;
    }
}

impl Bits {
    /// Concatenates the presence bitmaps of all blocks into one bitmap.
    pub fn of(bitmaps: &[PresenceMap<'_>]) -> Self {
        let (places, count) =
            bitmaps.iter().fold((0, 0), |(places, count), bitmap| (places + bitmap.places, count + bitmap.count));
        if count == 0 {
            return Self::None;
        }
        if count == places {
            return Self::All;
        }
        let mut row = Row { words: Vec::with_capacity(places / 64 + 1), word: 0, have: 0, before: 0 };
        for bitmap in bitmaps {
            let (mut left, all) = (bitmap.places, if bitmap.count > 0 { u64::MAX } else { 0 });
            let (whole, rest) = bitmap.bits.as_chunks();
            for bytes in whole {
                let some = left.min(64) as u32;
                row.push(u64::from_le_bytes(*bytes), some);
                left -= some as usize;
            }
            if !rest.is_empty() {
                let mut last = [0; 8];
                last[..rest.len()].copy_from_slice(rest);
                row.push(u64::from_le_bytes(last), left as u32);
                left = 0;
            }
            while left > 0 {
                let some = left.min(64) as u32;
                row.push(all >> (u64::BITS - some), some);
                left -= some as usize;
            }
        }
        row.words.push((row.word, row.before));
        Self::Some(row.words)
    }

    /// For each of these positions, appends 1 to `present` if the position has a value, otherwise 0. For each position
    /// with a value, appends the index of this value among all values to `found`.
    pub fn gather(&self, places: &[u32], present: &mut Vec<u8>, found: &mut Vec<u32>) {
        match self {
            Self::All => {
                present.resize(present.len() + places.len(), 1);
                found.extend_from_slice(places);
            }
            Self::None => present.resize(present.len() + places.len(), 0),
            Self::Some(words) => simd(Finding { words, places, present, found }),
        }
    }
}

struct Finding<'a> {
    words: &'a [(u64, u32)],
    places: &'a [u32],
    present: &'a mut Vec<u8>,
    found: &'a mut Vec<u32>,
}

impl SimdLoop for Finding<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { words, places, present, found } = self;
        let (from, mut at) = (present.len(), found.len());
        present.resize(from + places.len(), 0);
        found.resize(at + places.len(), 0);
        for (place, present) in places.iter().zip(&mut present[from..]) {
            let (word, before) = words[(place / 64) as usize];
            *present = (word >> (place % 64) & 1) as u8;
            found[at] = before + (word & ((1 << (place % 64)) - 1)).count_ones();
            at += usize::from(*present);
        }
        found.truncate(at);
    }
}

/// The numbers of many packed columns with a common base and width.
pub enum Narrow {
    /// All numbers are equal.
    Same(i64),
    /// The base, and the differences from the base in one byte each.
    Bytes(i64, Vec<u8>),
    /// Differences of two bytes.
    Shorts(i64, Vec<u16>),
    /// Differences of four bytes.
    Ints(i64, Vec<u32>),
    /// Differences of eight bytes.
    Longs(i64, Vec<u64>),
}

/// Buffers of columns that are no longer needed, for reuse: a column of half a million numbers takes megabytes, which
/// the kernel would otherwise clear page by page for each column.
#[derive(Default)]
pub struct Room {
    bytes: Vec<u8>,
    shorts: Vec<u16>,
    ints: Vec<u32>,
    longs: Vec<u64>,
}

impl Room {
    /// Retains the buffer that held these numbers for reuse.
    pub fn keep(&mut self, numbers: Narrow) {
        match numbers {
            Narrow::Same(_) => {}
            Narrow::Bytes(_, all) => self.bytes = all,
            Narrow::Shorts(_, all) => self.shorts = all,
            Narrow::Ints(_, all) => self.ints = all,
            Narrow::Longs(_, all) => self.longs = all,
        }
    }
}

impl Narrow {
    /// Concatenates packed columns.
    pub fn of(packed_columns: &[PackedColumn<'_>], room: &mut Room) -> Self {
        let some = || packed_columns.iter().filter(|packed| packed.count > 0);
        let Some(base) = some().map(|packed| packed.base).min() else { return Self::Same(0) };
        let reach = |packed: &PackedColumn<'_>| (packed.base.wrapping_sub(base) as u64).saturating_add(packed.reach());
        match width(some().map(reach).max().unwrap_or(0)) {
            0 => Self::Same(base),
            1 => Self::Bytes(base, joined(packed_columns, base, |n| n as u8, &mut room.bytes)),
            2 => Self::Shorts(base, joined(packed_columns, base, |n| n as u16, &mut room.shorts)),
            4 => Self::Ints(base, joined(packed_columns, base, |n| n as u32, &mut room.ints)),
            _ => Self::Longs(base, joined(packed_columns, base, |n| n, &mut room.longs)),
        }
    }

    /// All `count` numbers.
    pub fn all(&self, count: usize) -> Vec<u64> {
        match self {
            Self::Same(value) => vec![*value as u64; count],
            Self::Bytes(base, all) => all.iter().map(|n| base.wrapping_add(i64::from(*n)) as u64).collect(),
            Self::Shorts(base, all) => all.iter().map(|n| base.wrapping_add(i64::from(*n)) as u64).collect(),
            Self::Ints(base, all) => all.iter().map(|n| base.wrapping_add(i64::from(*n)) as u64).collect(),
            Self::Longs(base, all) => all.iter().map(|n| base.wrapping_add(*n as i64) as u64).collect(),
        }
    }

    /// The number at this position, which must exist.
    pub fn at(&self, place: usize) -> i64 {
        match self {
            Self::Same(value) => *value,
            Self::Bytes(base, all) => base.wrapping_add(i64::from(all[place])),
            Self::Shorts(base, all) => base.wrapping_add(i64::from(all[place])),
            Self::Ints(base, all) => base.wrapping_add(i64::from(all[place])),
            Self::Longs(base, all) => base.wrapping_add(all[place] as i64),
        }
    }

    /// Appends the numbers at these positions, in the order of the positions.
    #[inline]
    pub fn gather<T: Clone>(&self, places: &[u32], made: impl Fn(i64) -> T, out: &mut Vec<T>) {
        match self {
            Self::Same(value) => out.resize(out.len() + places.len(), made(*value)),
            Self::Bytes(base, all) => pick(all, places, |n| made(base.wrapping_add(i64::from(n))), out),
            Self::Shorts(base, all) => pick(all, places, |n| made(base.wrapping_add(i64::from(n))), out),
            Self::Ints(base, all) => pick(all, places, |n| made(base.wrapping_add(i64::from(n))), out),
            Self::Longs(base, all) => pick(all, places, |n| made(base.wrapping_add(n as i64)), out),
        }
    }
}

/// Appends the numbers at these positions of `all`.
#[inline]
pub fn pick<N: Copy, T>(all: &[N], places: &[u32], made: impl Fn(N) -> T, out: &mut Vec<T>) {
    out.extend(places.iter().map(|place| made(all[*place as usize])));
}

fn joined<N: Copy>(
    packed_columns: &[PackedColumn<'_>],
    base: i64,
    narrow: impl Fn(u64) -> N,
    room: &mut Vec<N>,
) -> Vec<N> {
    let mut out = std::mem::take(room);
    out.clear();
    out.reserve(packed_columns.iter().map(|packed| packed.count).sum());
    packed_columns.iter().for_each(|packed| widen(packed, packed.base.wrapping_sub(base) as u64, &narrow, &mut out));
    out
}

/// Appends the numbers of a packed column, each increased by `above`, to the output.
fn widen<N: Copy>(packed: &PackedColumn<'_>, above: u64, narrow: &impl Fn(u64) -> N, out: &mut Vec<N>) {
    out.resize(out.len() + packed.count, narrow(above));
    let begin = out.len() - packed.count;
    simd(Widening { packed, above, narrow, room: &mut out[begin..] });
}

struct Widening<'a, N, F> {
    packed: &'a PackedColumn<'a>,
    above: u64,
    narrow: &'a F,
    /// The output, with one element per number of the packed column. It is initialized with the value that all numbers
    /// of a packed column of width 0 have.
    room: &'a mut [N],
}

impl<N: Copy, F: Fn(u64) -> N> SimdLoop for Widening<'_, N, F> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { packed, above, narrow, room } = self;
        let room = room.iter_mut();
        let made = |n: u64| narrow(n.wrapping_add(above));
        match packed.width {
            0 => {}
            1 => room.zip(packed.bytes).for_each(|(room, b)| *room = made(u64::from(*b))),
            2 => room
                .zip(packed.bytes.as_chunks().0)
                .for_each(|(room, b)| *room = made(u64::from(u16::from_le_bytes(*b)))),
            4 => room
                .zip(packed.bytes.as_chunks().0)
                .for_each(|(room, b)| *room = made(u64::from(u32::from_le_bytes(*b)))),
            _ => room.zip(packed.bytes.as_chunks().0).for_each(|(room, b)| *room = made(u64::from_le_bytes(*b))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed_column_builder::{PackedColumnBuilder, write_bits};
    use base::Prng;

    /// Numbers of random width around a random base.
    fn any_numbers(prng: &mut Prng) -> Vec<i64> {
        let (bits, base) = (prng.below(65) as u32, prng.next_u64().checked_shl(prng.below(65) as u32).unwrap_or(0));
        let one = |prng: &mut Prng| base.wrapping_add(prng.next_u64().checked_shr(64 - bits).unwrap_or(0)) as i64;
        (0..prng.below(300)).map(|_| one(prng)).collect()
    }

    #[test]
    fn numbers_of_many_packed_columns_are_found_by_position() {
        let seed = testkit::seed("numbers_of_many_packed_columns_are_found_by_position");
        let (mut prng, mut room) = (Prng::new(seed), Room::default());
        for round in 0..500 {
            let all: Vec<Vec<i64>> = (0..prng.below(6)).map(|_| any_numbers(&mut prng)).collect();
            let mut bytes = Vec::new();
            let mut packed = PackedColumnBuilder::default();
            for some in &all {
                some.chunks(1 + prng.below(40) as usize).for_each(|some| packed.push(some));
                packed.finish(&mut bytes);
            }
            let mut rest = &bytes[..];
            let packed_columns: Vec<PackedColumn<'_>> =
                all.iter().map(|some| PackedColumn::take(&mut rest, some.len()).expect("a packed column")).collect();
            assert!(rest.is_empty(), "seed {seed} round {round}");
            let model: Vec<i64> = all.concat();
            let narrow = Narrow::of(&packed_columns, &mut room);
            let places: Vec<u32> = (0..model.len() as u32).map(|_| prng.below(model.len() as u64) as u32).collect();
            let mut found = Vec::new();
            narrow.gather(&places, |n| n, &mut found);
            let wanted: Vec<i64> = places.iter().map(|place| model[*place as usize]).collect();
            assert_eq!(found, wanted, "seed {seed} round {round}");
            assert!((0..model.len()).all(|place| narrow.at(place) == model[place]), "seed {seed} round {round}");
            room.keep(narrow);
        }
    }

    #[test]
    fn presence_bits_and_ranks_agree_with_a_plain_list() {
        let seed = testkit::seed("presence_bits_and_ranks_agree_with_a_plain_list");
        let mut prng = Prng::new(seed);
        for round in 0..500 {
            let often = prng.below(4);
            let one = |prng: &mut Prng| u8::from(prng.below(3) < often);
            let all: Vec<Vec<u8>> =
                (0..prng.below(5)).map(|_| (0..prng.below(200)).map(|_| one(&mut prng)).collect()).collect();
            let mut bytes = Vec::new();
            all.iter().for_each(|some| write_bits(some, &mut bytes));
            let mut rest = &bytes[..];
            let bitmaps: Vec<PresenceMap<'_>> =
                all.iter().map(|some| PresenceMap::take(&mut rest, some.len()).expect("a presence bitmap")).collect();
            assert!(rest.is_empty(), "seed {seed} round {round}");
            let bits = Bits::of(&bitmaps);
            let sums: Vec<usize> = all.iter().map(|some| some.iter().map(|one| usize::from(*one)).sum()).collect();
            let counts: Vec<usize> = bitmaps.iter().map(|bitmap| bitmap.count).collect();
            assert_eq!(counts, sums, "seed {seed} round {round}");
            let model = all.concat();
            let places: Vec<u32> = (0..model.len() as u32).rev().collect();
            let (mut present, mut found) = (Vec::new(), Vec::new());
            bits.gather(&places, &mut present, &mut found);
            let before = |place: u32| model[..place as usize].iter().map(|one| u32::from(*one)).sum::<u32>();
            let wanted: Vec<u8> = places.iter().map(|place| model[*place as usize]).collect();
            let ones = places.iter().filter(|place| model[**place as usize] == 1);
            assert_eq!(present, wanted, "seed {seed} round {round}");
            assert_eq!(found, ones.map(|place| before(*place)).collect::<Vec<u32>>(), "seed {seed} round {round}");
        }
    }

    #[test]
    fn invalid_bytes_are_rejected() {
        let seed = testkit::seed("invalid_bytes_are_rejected");
        let mut prng = Prng::new(seed);
        for _ in 0..20_000 {
            let mut bytes = vec![0; prng.below(40) as usize];
            prng.fill(&mut bytes);
            let count = prng.below(50) as usize;
            let mut rest = &bytes[..];
            if let Some(packed) = PackedColumn::take(&mut rest, count) {
                let mut numbers = 0;
                packed.each(|_| numbers += 1);
                assert_eq!(numbers, count, "seed {seed}");
            }
            if let Some(bitmap) = PresenceMap::take(&mut &bytes[..], count) {
                let (mut present, mut found) = (Vec::new(), Vec::new());
                Bits::of(&[bitmap]).gather(&(0..count as u32).collect::<Vec<_>>(), &mut present, &mut found);
                assert_eq!((present.len(), found.len()), (count, bitmap.count), "seed {seed}");
            }
        }
    }
}
