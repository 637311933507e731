//! Numbers of variable width in a bit stream: the encoding of idle-compressed flows ([`crate::compress`]).
//!
//! Writer and reader implement one trait, [`Coder`], so that one function defines both encoding and decoding, and the
//! two cannot disagree: each method takes the value to write, which the reader ignores, and returns the value that the
//! stream contains.
//!
//! The closer a value is to its prediction, the fewer bits it takes. If a value contradicts a prediction or a bound,
//! [`Writer::finish`] returns `None`. The flow is then encoded again in loose form, which uses no predictions.

/// Number of 64-bit words of the write buffer; a flow in loose form takes at most some 4200 bits.
const BUFFER_WORDS: usize = 80;

/// A writer or a reader of a bit stream.
pub(crate) trait Coder {
    /// Writes or reads the bit that says whether the flow is encoded without predictions (loose form); must be the
    /// first call.
    fn begin(&mut self);

    /// True if the stream is in loose form, so no value is predicted.
    fn is_loose(&self) -> bool;

    /// Writes or reads the lowest `width` bits of a value whose other bits are 0; `width` is at most 64.
    fn bits(&mut self, value: u64, width: u32) -> u64;

    /// Records that a prediction holds or fails; a failed prediction makes [`Writer::finish`] return `None`.
    fn claim(&mut self, holds: bool);

    /// One bit.
    #[inline(always)]
    fn bit(&mut self, value: bool) -> bool {
        self.bits(value.into(), 1) == 1
    }

    /// Encodes or decodes any number: one bit if it is 0, otherwise six bits more than the number's own length in bits.
    #[inline(always)]
    fn number(&mut self, value: u64) -> u64 {
        if !self.bit(value != 0) {
            return 0;
        }
        let below = self.bits(u64::from(63 - (value | 1).leading_zeros()), 6) as u32;
        self.bits(value & !(1 << below), below) | 1 << below
    }

    /// As [`Coder::number`], for 128 bits.
    #[inline(always)]
    fn wide(&mut self, value: u128) -> u128 {
        let low = self.number(value as u64);
        u128::from(self.number((value >> 64) as u64)) << 64 | u128::from(low)
    }

    /// Encodes or decodes a value that is close to `other`, larger or smaller.
    #[inline(always)]
    fn near(&mut self, value: u64, other: u64) -> u64 {
        let apart = value.wrapping_sub(other) as i64;
        let folded = self.number((apart << 1 ^ apart >> 63) as u64);
        other.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg())
    }

    /// Encodes or decodes a value that is at most `most`.
    #[inline(always)]
    fn within(&mut self, value: u128, most: u128) -> u128 {
        if self.is_loose() {
            return self.wide(value);
        }
        self.claim(value <= most);
        let width = u128::BITS - most.leading_zeros();
        let value = value & 1_u128.unbounded_shl(width).wrapping_sub(1);
        let low = self.bits(value as u64, width.min(64));
        u128::from(self.bits((value >> 64) as u64, width.saturating_sub(64))) << 64 | u128::from(low)
    }

    /// Encodes or decodes a value that is predicted to be `predicted`.
    #[inline(always)]
    fn known(&mut self, value: u128, predicted: u128) -> u128 {
        if self.is_loose() {
            return self.wide(value.wrapping_sub(predicted)).wrapping_add(predicted);
        }
        self.claim(value == predicted);
        predicted
    }
}

/// The encoder.
pub(crate) struct Writer {
    words: [u64; BUFFER_WORDS],
    at: usize,
    is_loose: bool,
    /// True if all predictions held.
    holds: bool,
}

impl Writer {
    pub fn new(is_loose: bool) -> Self {
        Self { words: [0; BUFFER_WORDS], at: 0, is_loose, holds: true }
    }

    /// The encoded words; `None` if a prediction failed.
    pub fn finish(&self) -> Option<&[u64]> {
        self.holds.then(|| &self.words[..self.at.div_ceil(64)])
    }
}

impl Coder for Writer {
    fn begin(&mut self) {
        self.bit(self.is_loose);
    }

    #[inline(always)]
    fn is_loose(&self) -> bool {
        self.is_loose
    }

    #[inline(always)]
    fn bits(&mut self, value: u64, width: u32) -> u64 {
        debug_assert!(width >= 64 || value >> width == 0, "{value:#x} has more than {width} bits");
        let (word, from) = (self.at / 64, self.at as u32 % 64);
        self.words[word] |= value << from;
        if from + width > 64 {
            self.words[word + 1] = value >> (64 - from);
        }
        self.at += width as usize;
        value
    }

    #[inline(always)]
    fn claim(&mut self, holds: bool) {
        self.holds &= holds;
    }
}

/// The decoder.
pub(crate) struct Reader<'a> {
    words: &'a [u64],
    at: usize,
    is_loose: bool,
}

impl<'a> Reader<'a> {
    pub fn new(words: &'a [u64]) -> Self {
        Self { words, at: 0, is_loose: false }
    }
}

impl Coder for Reader<'_> {
    fn begin(&mut self) {
        self.is_loose = self.bit(false);
    }

    #[inline(always)]
    fn is_loose(&self) -> bool {
        self.is_loose
    }

    #[inline(always)]
    fn bits(&mut self, _: u64, width: u32) -> u64 {
        if width == 0 {
            return 0;
        }
        let (word, from) = (self.at / 64, self.at as u32 % 64);
        let mut value = self.words[word] >> from;
        if from + width > 64 {
            value |= self.words[word + 1] << (64 - from);
        }
        self.at += width as usize;
        value & u64::MAX >> (64 - width)
    }

    fn claim(&mut self, _: bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// Encodes or decodes random values, each by a random method of the coder, and returns each value with the value
    /// that the coder returned. If the coder is a reader, it gets 0 as the value to write.
    fn some(coder: &mut impl Coder, is_reader: bool, prng: &mut Prng) -> Vec<(u128, u128)> {
        let mut all = Vec::new();
        coder.begin();
        for _ in 0..prng.below(40) {
            let width = prng.below(65) as u32;
            let value = prng.next_u64().unbounded_shr(64 - width);
            let other = prng.next_u64().unbounded_shr(prng.below(64) as u32);
            let most = u128::from(u64::MAX.unbounded_shr(64 - width)) << (prng.below(2) * 50);
            let given = if is_reader { 0 } else { value };
            let back = match prng.below(6) {
                0 => coder.bits(given, width).into(),
                1 => coder.number(given).into(),
                2 => coder.near(given, other).into(),
                3 => coder.wide(u128::from(given) << 30) >> 30,
                4 => coder.within(given.into(), most),
                _ => coder.known(given.into(), value.into()),
            };
            all.push((value.into(), back));
        }
        all
    }

    #[test]
    fn the_reader_returns_the_written_values_in_every_form() {
        let seed = testkit::seed("the_reader_returns_the_written_values_in_every_form");
        for round in 0..20_000 {
            let is_loose = round % 3 == 0;
            let mut writer = Writer::new(is_loose);
            let given = some(&mut writer, false, &mut Prng::new(seed ^ round));
            assert!(given.iter().all(|(value, back)| value == back), "seed {seed}, round {round}");
            let mut reader = Reader::new(writer.finish().expect("all predictions hold"));
            let read = some(&mut reader, true, &mut Prng::new(seed ^ round));
            assert_eq!(given, read, "seed {seed}, round {round}");
        }
    }

    #[test]
    fn a_failed_prediction_is_noticed() {
        let mut writer = Writer::new(false);
        writer.within(9, 8);
        assert!(writer.finish().is_none());
        let mut writer = Writer::new(false);
        writer.known(1, 2);
        assert!(writer.finish().is_none());
        let mut writer = Writer::new(true);
        writer.known(1, 2);
        writer.within(u128::MAX, 0);
        assert!(writer.finish().is_some(), "the loose form has no predictions");
    }
}
