//! Values as the bytes of a page, by the encodings of Parquet that are written here (parquet-format, `Encodings.md`).
//!
//! The library's writer looks at each value several times and cannot sum its pages up; these take slices, and what they make
//! is read by the library, which knows nothing of them, in every test.
//!
//! Dictionaries use 1, 2, 4, 8 or 16 bits for a place although Parquet allows any number: what does not cross the borders of
//! bytes is shorter after compression, and quicker to pack.

use crate::packed_column_builder::bits_of;
use crate::stripe::Numbers;
use std::hash::Hash;
use std::net::IpAddr;

/// A number of a column, as wide as its type.
pub trait Number: Copy + Eq {
    /// How a page has them.
    const AS: Numbers;

    /// Its bits, the highest zero.
    fn bits(self) -> u64;

    /// The bit of the sign, and those above it.
    const HIGHEST: i64;

    /// Those bits as the number that they say with a sign.
    fn signed(self) -> i64;

    /// The number with these lowest bits.
    fn of(bits: i64) -> Self;

    /// Numbers one behind the other (PLAIN).
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

/// What a dictionary tells apart.
pub trait Key: Copy + Eq + Hash {
    /// Whether keys with the same word are the same.
    const IS_WORD: bool;

    /// A word that differs where keys do, mostly.
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

    /// Small ones of either sign are small: lengths have the direction for a sign.
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

/// Most values of a dictionary whose places take a byte.
pub const NARROW: usize = 1 << 8;

/// Most values of a dictionary of numbers, which compress well by themselves.
pub const OFTEN: usize = 1 << 13;

/// Most values of any dictionary.
pub const WIDE: usize = 1 << 16;

/// Values below this are found by themselves.
const SMALL: usize = 1 << 12;

/// The place of a small value that did not come yet.
const NOWHERE: u16 = u16::MAX;

/// Whether all values are the same one.
pub fn is_constant<T: Number>(values: &[T]) -> bool {
    let Some(first) = values.first().map(|value| value.bits()) else { return true };
    values.chunks(64).all(|some| some.iter().fold(0, |differ, value| differ | value.bits() ^ first) == 0)
}

/// Distinct values in the order in which they came, and the place of each value among them. The memory is used again.
pub struct Dictionary<K> {
    /// The distinct values.
    pub keys: Vec<K>,
    /// The place of each value.
    pub places: Vec<u16>,
    /// Place and one; 0 is empty. A power of two, and at least twice as many as there are keys.
    slots: Vec<u32>,
}

impl<K: Key> Dictionary<K> {
    /// Of nothing yet.
    pub const fn new() -> Self {
        Self { keys: Vec::new(), places: Vec::new(), slots: Vec::new() }
    }

    /// Takes in these values. False, and nothing of use, if more than `most` of them are distinct.
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
            // What repeats mostly repeats at once.
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

    /// Gives what is frequent the lowest places, so that the upper bytes of most places are zero; those that are as frequent
    /// are in order, for what begins alike is shorter side by side.
    pub fn rank(&mut self) {
        let mut counts = vec![0u32; self.keys.len()];
        self.places.iter().for_each(|place| counts[usize::from(*place)] += 1);
        // What is more frequent than 16 bits say is at the beginning anyway.
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

/// What a key is ranked by: its word, how seldom it is, and its place.
type Ranked = (u64, u16, u16);

/// Bits of a digit that keys are sorted by.
const DIGIT: u32 = 11;

/// Values of a digit.
const DIGITS: usize = 1 << DIGIT;

/// Keys by how seldom they are, then by their words, then as they came.
/// PERF: one pass for each digit in which keys differ (radix sort, lowest digits first). With [`put`] 5969 → 5705 instructions
/// per record for columns to pages (records/2026-11-23-columns.md).
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

/// Keys by one digit; those with the same one stay in their order. `room` has room for as many.
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

/// Where a key would be. Whoever chooses values that meet here slows down his own row group, which is bounded.
#[inline]
fn slot<K: Key>(key: K, slots: usize) -> usize {
    (key.word().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (slots - 1)
}

/// Places in a dictionary of so many keys: the bits of a place, then runs.
pub fn places(places: &[u16], keys: usize, out: &mut Vec<u8>) {
    packed(places, keys, |place| place as u8, out);
}

/// The same, of a dictionary of [`NARROW`] keys at most.
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

/// The only place of a dictionary of one, so many times: no bits, and one run that takes no bytes.
pub fn same_place(count: usize, out: &mut Vec<u8>) {
    out.push(0);
    number((count as u64) << 1, out);
}

/// Levels of nesting, each at most 3: their length, then runs.
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

/// Values of 1, 2 or 4 bits, the first one lowest. Those of the last byte that are not there are zero.
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

/// Numbers one behind the other (PLAIN).
pub fn plain<T: Number>(values: &[T], out: &mut Vec<u8>) {
    T::plain(values, out);
}

/// Numbers of 128 bits as decimals are: the highest byte first (PLAIN; DuckDB reads them in no other way).
pub fn decimals(values: &[u128], out: &mut Vec<u8>) {
    put(values, u128::to_be_bytes, out);
}

/// Appends the bytes of each value.
/// PERF: some values at a time, so that the memory of `out` is checked once for all of them and not cleared before.
fn put<T: Copy, const W: usize>(values: &[T], bytes: impl Fn(T) -> [u8; W], out: &mut Vec<u8>) {
    const SOME: usize = 64;
    out.reserve(values.len() * W);
    let mut room = [[0; W]; SOME];
    for some in values.chunks(SOME) {
        room.iter_mut().zip(some).for_each(|(room, value)| *room = bytes(*value));
        out.extend_from_slice(room[..some.len()].as_flattened());
    }
}

/// Seven bits in a byte, the lowest first.
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
    fn keys_are_ranked_by_frequency_and_then_by_their_words_whatever_they_are() {
        let seed = testkit::seed("keys_are_ranked_by_frequency_and_then_by_their_words_whatever_they_are");
        let mut prng = Prng::new(seed);
        for round in 0..200 {
            let (bits, base) = (prng.below(65) as u32, prng.next_u64());
            let one = |prng: &mut Prng| prng.next_u64().checked_shr(64 - bits).unwrap_or(0) ^ base;
            let known: Vec<i64> = (0..1 + prng.below(3000)).map(|_| one(&mut prng) as i64).collect();
            // Some are far more frequent than others, and now and then more than 16 bits say.
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
    fn numbers_are_written_one_behind_the_other_however_many_there_are() {
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
