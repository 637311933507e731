//! Encodes values as the bytes of a page, in the encodings of Parquet that are used here (parquet-format,
//! `Encodings.md`).
//!
//! The parquet library's writer visits each value several times and cannot write page checksums. These functions take
//! slices, and every test decodes their output with the library's independent reader.
//!
//! Dictionary indexes have 1, 2, 4, 8 or 16 bits although Parquet allows any number: indexes that do not cross byte
//! boundaries are shorter after compression and faster to pack.

use crate::packed_column_builder::bits_of;
use crate::stripe::Numbers;
use std::hash::Hash;
use std::net::IpAddr;

/// The type of the numbers of a column in memory: `i32` or `i64`.
pub trait Number: Copy + Eq {
    /// Its representation in a page.
    const AS: Numbers;

    /// The bits of the number, zero-extended.
    fn bits(self) -> u64;

    /// A mask of the sign bit of a number of this width, and of all higher bits of an `i64`.
    const HIGHEST: i64;

    /// Sign-extends these bits.
    fn signed(self) -> i64;

    /// The number whose bits are the lowest bits of `bits`, as many as the type has.
    fn of(bits: i64) -> Self;

    /// Appends these numbers in PLAIN encoding.
    fn plain(values: &[Self], out: &mut Vec<u8>);
}

impl Number for i64 {
    const AS: Numbers = Numbers::Longs;

    #[inline]
    fn bits(self) -> u64 {
        self as u64
    }

    const HIGHEST: i64 = i64::MIN;

    #[inline]
    fn signed(self) -> i64 {
        self
    }

    #[inline]
    fn of(bits: i64) -> Self {
        bits
    }

    fn plain(values: &[Self], out: &mut Vec<u8>) {
        put(values, Self::to_le_bytes, out);
    }
}

impl Number for i32 {
    const AS: Numbers = Numbers::Ints;

    #[inline]
    fn bits(self) -> u64 {
        u64::from(self as u32)
    }

    const HIGHEST: i64 = i32::MIN as i64;

    #[inline]
    fn signed(self) -> i64 {
        self.into()
    }

    #[inline]
    fn of(bits: i64) -> Self {
        bits as Self
    }

    fn plain(values: &[Self], out: &mut Vec<u8>) {
        put(values, Self::to_le_bytes, out);
    }
}

/// The type of the values in a dictionary.
pub trait Key: Copy + Eq + Hash {
    /// True if two different keys never have the same word.
    const IS_WORD: bool;

    /// A word that mostly differs for different keys; the input of the hash.
    fn word(self) -> u64;
}

impl Key for i64 {
    const IS_WORD: bool = true;

    #[inline]
    fn word(self) -> u64 {
        self as u64
    }
}

impl Key for i32 {
    const IS_WORD: bool = true;

    /// Zigzag encoding, so that small numbers of either sign are small. The sign of a packet length is the direction of
    /// the packet.
    #[inline]
    fn word(self) -> u64 {
        u64::from((self << 1 ^ self >> 31) as u32)
    }
}

impl Key for IpAddr {
    const IS_WORD: bool = false;

    #[inline]
    fn word(self) -> u64 {
        match self {
            Self::V4(four) => u64::from(four.to_bits()),
            Self::V6(six) => {
                let bits = six.to_bits();
                (bits >> 64) as u64 ^ (bits as u64).rotate_left(29)
            }
        }
    }
}

impl Key for u128 {
    const IS_WORD: bool = false;

    #[inline]
    fn word(self) -> u64 {
        (self >> 64) as u64 ^ (self as u64).rotate_left(29)
    }
}

/// Greatest size of a dictionary with indexes of one byte.
pub const NARROW: usize = 1 << 8;

/// Greatest size of a dictionary of numbers. A column with more distinct numbers is shorter in PLAIN encoding.
pub const OFTEN: usize = 1 << 13;

/// Greatest size of any dictionary.
pub const WIDE: usize = 1 << 16;

/// Values below this limit are looked up directly in a table, without hashing.
const SMALL: usize = 1 << 12;

/// The index that the lookup table of small values contains for a value that has not occurred yet.
const NOWHERE: u16 = u16::MAX;

/// True if all values are equal.
pub fn is_constant<T: Number>(values: &[T]) -> bool {
    let Some(first) = values.first().map(|value| value.bits()) else { return true };
    values.chunks(64).all(|some| some.iter().fold(0, |differ, value| differ | value.bits() ^ first) == 0)
}

/// The distinct values in order of first occurrence, and the index of each value among them. The next use of the
/// dictionary reuses its memory.
pub struct Dictionary<K> {
    /// The distinct values.
    pub keys: Vec<K>,
    /// The dictionary index of each value.
    pub places: Vec<u16>,
    /// Hash table of dictionary indexes plus one; 0 is empty. Its length is a power of two and at least twice the
    /// number of keys.
    slots: Vec<u32>,
}

impl<K: Key> Dictionary<K> {
    /// An empty dictionary.
    pub const fn new() -> Self {
        Self { keys: Vec::new(), places: Vec::new(), slots: Vec::new() }
    }

    /// Replaces the content of the dictionary by these values. Returns false and leaves the content invalid if more
    /// than `most` values are distinct.
    pub fn fill(&mut self, values: &[K], most: usize) -> bool {
        if values.iter().fold(0, |all, value| all | value.word()) < SMALL as u64 && K::IS_WORD {
            return self.fill_small(values, most);
        }
        self.keys.clear();
        self.places.clear();
        self.places.reserve(values.len());
        self.slots.clear();
        self.slots.resize(2 * NARROW, 0);
        let mut last = None;
        for value in values {
            // Most repetitions of a value follow each other directly, so each value is first compared with the previous
            // one.
            let place = match last {
                Some((before, place)) if before == *value => place,
                _ => match self.place(*value, most) {
                    Some(place) => place,
                    None => return false,
                },
            };
            last = Some((*value, place));
            self.places.push(place);
        }
        true
    }

    fn fill_small(&mut self, values: &[K], most: usize) -> bool {
        self.keys.clear();
        self.places.clear();
        self.places.reserve(values.len());
        let mut found = [NOWHERE; SMALL];
        for some in values.chunks(256) {
            self.places.extend(some.iter().map(|value| {
                let place = &mut found[value.word() as usize & (SMALL - 1)];
                if *place == NOWHERE {
                    *place = self.keys.len() as u16;
                    self.keys.push(*value);
                }
                *place
            }));
            if self.keys.len() > most {
                return false;
            }
        }
        true
    }

    #[inline]
    fn place(&mut self, key: K, most: usize) -> Option<u16> {
        let mut at = slot(key, self.slots.len());
        loop {
            match self.slots[at].checked_sub(1) {
                Some(place) if self.keys[place as usize] == key => return Some(place as u16),
                Some(_) => at = (at + 1) & (self.slots.len() - 1),
                None => break,
            }
        }
        let place = self.keys.len();
        if place >= most {
            return None;
        }
        self.keys.push(key);
        self.slots[at] = place as u32 + 1;
        if self.keys.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(place as u16)
    }

    /// Gives frequent keys the lowest indexes, so that the upper bytes of most indexes are zero; equally frequent keys
    /// are sorted, because keys with a common prefix compress better side by side.
    pub fn rank(&mut self) {
        let mut counts = vec![0u32; self.keys.len()];
        self.places.iter().for_each(|place| counts[usize::from(*place)] += 1);
        // Counts above 65535 are treated as equal, so the order among the most frequent keys does not depend on their
        // counts.
        let seldom = |count: u32| u16::MAX - count.min(u16::MAX.into()) as u16;
        let words = self.keys.iter().zip(&counts).zip(0u32..);
        let words = words.map(|((key, count), place)| (key.word(), seldom(*count), place as u16)).collect();
        let order: Vec<u16> = in_order(words).into_iter().map(|(_, _, place)| place).collect();
        let mut ranks = vec![0u16; order.len()];
        order.iter().enumerate().for_each(|(rank, place)| ranks[usize::from(*place)] = rank as u16);
        self.keys = order.iter().map(|place| self.keys[usize::from(*place)]).collect();
        self.places.iter_mut().for_each(|place| *place = ranks[usize::from(*place)]);
    }

    fn grow(&mut self) {
        let len = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(len, 0);
        for (place, key) in self.keys.iter().enumerate() {
            let mut at = slot(*key, len);
            while self.slots[at] != 0 {
                at = (at + 1) & (len - 1);
            }
            self.slots[at] = place as u32 + 1;
        }
    }
}

/// The sort key of a dictionary key: its word, its rarity, and its index.
type Ranked = (u64, u16, u16);

/// Bits of a radix sort digit.
const DIGIT: u32 = 11;

/// Number of values that one digit of the radix sort can have.
const DIGITS: usize = 1 << DIGIT;

/// Sorts keys by rarity, then by word, then by first occurrence.
///
/// PERF: a radix sort with one pass for each digit in which keys differ, lowest digits first. This sort and [`put`]
/// together reduced the encoding of columns as pages from 5969 to 5705 instructions per record
/// (records/2026-11-23-columns.md).
fn in_order(mut words: Vec<Ranked>) -> Vec<Ranked> {
    let Some(first) = words.first().copied() else { return words };
    let differ = |(word, seldom): (u64, u16), key: &Ranked| (word | key.0 ^ first.0, seldom | key.1 ^ first.1);
    let (word, seldom) = words.iter().fold((0, 0), differ);
    let mut sorted = vec![(0, 0, 0); words.len()];
    for shift in (0..u64::BITS - word.leading_zeros()).step_by(DIGIT as usize) {
        let digit = |word: u64| (word >> shift) as usize % DIGITS;
        if digit(word) > 0 {
            by_digit(&mut words, &mut sorted, |key| digit(key.0));
        }
    }
    for shift in (0..u16::BITS - seldom.leading_zeros()).step_by(DIGIT as usize) {
        by_digit(&mut words, &mut sorted, |key| usize::from(key.1 >> shift) % DIGITS);
    }
    words
}

/// Sorts keys stably by one digit. `room` is a buffer of the same length.
fn by_digit(keys: &mut Vec<Ranked>, room: &mut Vec<Ranked>, digit: impl Fn(&Ranked) -> usize) {
    let mut places = [0u32; DIGITS];
    keys.iter().for_each(|key| places[digit(key)] += 1);
    let mut before = 0;
    places.iter_mut().for_each(|place| before += std::mem::replace(place, before));
    for key in keys.iter() {
        let place = &mut places[digit(key)];
        room[*place as usize] = *key;
        *place += 1;
    }
    std::mem::swap(keys, room);
}

/// The hash slot of a key. An attacker who sends values with colliding hashes slows down only the row groups that
/// contain them, and the size of a row group is bounded.
#[inline]
fn slot<K: Key>(key: K, slots: usize) -> usize {
    (key.word().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (slots - 1)
}

/// Writes the indexes of values in a dictionary with `keys` entries: first the number of bits of an index, then runs.
pub fn places(places: &[u16], keys: usize, out: &mut Vec<u8>) {
    packed(places, keys, |place| place as u8, out);
}

/// As [`places`], with one byte per index, for a dictionary of at most [`NARROW`] entries.
pub fn octets(places: &[u8], keys: usize, out: &mut Vec<u8>) {
    packed(places, keys, |place| place, out);
}

fn packed<P: Copy + Into<u16>>(places: &[P], keys: usize, byte: impl Fn(P) -> u8, out: &mut Vec<u8>) {
    let bits = [0, 1, 2, 4, 8].into_iter().find(|bits| keys <= 1 << bits).unwrap_or(16);
    if bits == 0 {
        return same_place(places.len(), out);
    }
    out.push(bits);
    let groups = places.len().div_ceil(8);
    number((groups as u64) << 1 | 1, out);
    let end = out.len() + groups * usize::from(bits);
    match bits {
        16 => {
            let begin = out.len();
            out.resize(begin + 2 * places.len(), 0);
            let room = out[begin..].as_chunks_mut().0;
            room.iter_mut().zip(places).for_each(|(room, place)| *room = (*place).into().to_le_bytes());
        }
        8 => out.extend(places.iter().map(|place| byte(*place))),
        _ => pack_small(places, bits, byte, out),
    }
    out.resize(end, 0);
}

/// Writes the index of a dictionary's only entry `count` times: width 0, and one run without value bytes.
pub fn same_place(count: usize, out: &mut Vec<u8>) {
    out.push(0);
    number((count as u64) << 1, out);
}

/// Writes repetition or definition levels, each at most 3: their length in bytes, then runs.
pub fn levels(levels: &[u8], most: u8, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend([0; 4]);
    let first = levels.first().copied().unwrap_or(0);
    if levels.chunks(64).all(|some| some.iter().fold(0, |differ, level| differ | level ^ first) == 0) {
        number((levels.len() as u64) << 1, out);
        out.push(first);
    } else {
        let bits = if most > 1 { 2 } else { 1 };
        let groups = levels.len().div_ceil(8);
        number((groups as u64) << 1 | 1, out);
        let end = out.len() + groups * usize::from(bits);
        pack_small(levels, bits, |level| level, out);
        out.resize(end, 0);
    }
    let len = (out.len() - begin - 4) as u32;
    out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
}

/// Packs values of 1, 2 or 4 bits, the first in the lowest bits. Unused bits of the last byte are zero.
fn pack_small<T: Copy>(values: &[T], bits: u8, byte: impl Fn(T) -> u8, out: &mut Vec<u8>) {
    match bits {
        1 => pack_by(values, byte, bits_of, out),
        2 => pack_by(values, byte, |[a, b, c, d]| a | b << 2 | c << 4 | d << 6, out),
        _ => pack_by(values, byte, |[a, b]| a | b << 4, out),
    }
}

fn pack_by<const N: usize, T: Copy>(
    values: &[T],
    byte: impl Fn(T) -> u8,
    one: impl Fn([u8; N]) -> u8,
    out: &mut Vec<u8>,
) {
    let made = |some: &[T]| {
        let mut bytes = [0; N];
        bytes.iter_mut().zip(some).for_each(|(to, value)| *to = byte(*value));
        one(bytes)
    };
    let (whole, rest) = values.as_chunks::<N>();
    out.extend(whole.iter().map(|some| made(some)));
    if !rest.is_empty() {
        out.push(made(rest));
    }
}

/// Appends these numbers in PLAIN encoding.
pub fn plain<T: Number>(values: &[T], out: &mut Vec<u8>) {
    T::plain(values, out);
}

/// Numbers of 128 bits as decimals: big-endian (PLAIN; DuckDB reads no other decimal encoding).
pub fn decimals(values: &[u128], out: &mut Vec<u8>) {
    put(values, u128::to_be_bytes, out);
}

/// Appends the bytes of each value.
/// PERF: a few values at a time, so that the capacity of `out` is checked once for all of them and its memory is not
/// zeroed first.
fn put<T: Copy, const W: usize>(values: &[T], bytes: impl Fn(T) -> [u8; W], out: &mut Vec<u8>) {
    const SOME: usize = 64;
    out.reserve(values.len() * W);
    let mut room = [[0; W]; SOME];
    for some in values.chunks(SOME) {
        room.iter_mut().zip(some).for_each(|(room, value)| *room = bytes(*value));
        out.extend_from_slice(room[..some.len()].as_flattened());
    }
}

/// Appends a LEB128 varint: seven bits per byte, the lowest first.
pub fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn random_keys_are_ranked_by_frequency_then_by_word() {
        let seed = testkit::seed("random_keys_are_ranked_by_frequency_then_by_word");
        let mut prng = Prng::new(seed);
        for round in 0..200 {
            let (bits, base) = (prng.below(65) as u32, prng.next_u64());
            let one = |prng: &mut Prng| prng.next_u64().checked_shr(64 - bits).unwrap_or(0) ^ base;
            let known: Vec<i64> = (0..1 + prng.below(3000)).map(|_| one(&mut prng) as i64).collect();
            // Skewed frequencies; some counts exceed 16 bits.
            let most = if round % 50 == 0 { 200_000 } else { 5_000 };
            let place = |prng: &mut Prng| (prng.next_u64() >> prng.below(64)) as usize % known.len();
            let values: Vec<i64> = (0..1 + prng.below(most)).map(|_| known[place(&mut prng)]).collect();
            let mut dictionary = Dictionary::new();
            assert!(dictionary.fill(&values, WIDE), "seed {seed} round {round}");
            let came = dictionary.keys.clone();
            let mut counts = std::collections::HashMap::new();
            values.iter().for_each(|value| *counts.entry(*value).or_insert(0u32) += 1);
            dictionary.rank();
            let mut model = came;
            model.sort_by_key(|key| (std::cmp::Reverse(counts[key].min(u16::MAX.into())), key.word()));
            assert_eq!(dictionary.keys, model, "seed {seed} round {round}");
            let read = dictionary.places.iter().map(|place| dictionary.keys[usize::from(*place)]);
            assert!(read.eq(values.iter().copied()), "seed {seed} round {round}");
        }
    }

    #[test]
    fn any_count_of_numbers_is_written_contiguously() {
        for count in [0, 1, 63, 64, 65, 1000] {
            let numbers: Vec<i64> = (0..count).map(|n: i64| n.wrapping_mul(-0x1234_5678_9abc_def1)).collect();
            let (mut longs, mut ints, mut wide) = (vec![7], vec![7], vec![7]);
            plain(&numbers, &mut longs);
            plain(&numbers.iter().map(|n| *n as i32).collect::<Vec<i32>>(), &mut ints);
            decimals(&numbers.iter().map(|n| *n as u128).collect::<Vec<u128>>(), &mut wide);
            let bytes = |each: &dyn Fn(i64) -> Vec<u8>| {
                [7].into_iter().chain(numbers.iter().flat_map(|n| each(*n))).collect::<Vec<u8>>()
            };
            assert_eq!(longs, bytes(&|n| n.to_le_bytes().to_vec()), "{count}");
            assert_eq!(ints, bytes(&|n| (n as i32).to_le_bytes().to_vec()), "{count}");
            assert_eq!(wide, bytes(&|n| (n as u128).to_be_bytes().to_vec()), "{count}");
        }
    }
}
