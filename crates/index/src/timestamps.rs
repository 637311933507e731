//! The encoding of the quality of the timestamps of a block.
//!
//! ```text
//! methods u16 | flags u16 | deviation ns u32 | maximum error of the clock µs u32 | frequency ppb i32 | steps u32
//! | largest step forward ns u64 | largest step back ns u64
//! ```
//! Bit `n` of `methods` is the method with the number `n` ([`base::TimestampMethod`]). Bit 0 of `flags` says that the
//! state of the clock is known, bit 1 that the clock was synchronised. A deviation of 0 means that it is not known.

use crate::bytes::Cursor;
use base::{ClockState, ClockSteps, TimestampMethods, TimestampQuality};
use std::num::NonZeroU32;

/// Length in bytes.
pub(crate) const ENCODED: usize = 36;

const KNOWN: u16 = 1 << 0;
const SYNCHRONISED: u16 = 1 << 1;

/// Appends the quality.
pub(crate) fn encode(quality: &TimestampQuality, out: &mut Vec<u8>) {
    let state = quality.clock.unwrap_or_default();
    let mut flags = if quality.clock.is_some() { KNOWN } else { 0 };
    flags |= if state.synchronised { SYNCHRONISED } else { 0 };
    let deviation = quality.deviation_nanos.map_or(0, NonZeroU32::get);
    [quality.methods.bits(), flags].iter().for_each(|n| out.extend(n.to_le_bytes()));
    let numbers = [deviation, state.maximum_error_micros, state.frequency_ppb as u32, quality.steps.steps];
    numbers.iter().for_each(|n| out.extend(n.to_le_bytes()));
    [quality.steps.forward_nanos, quality.steps.back_nanos].iter().for_each(|n| out.extend(n.to_le_bytes()));
}

/// The inverse of [`encode`]; `None` for bytes that [`encode`] cannot produce.
pub(crate) fn decode(part: &mut Cursor<'_>) -> Option<TimestampQuality> {
    let methods = TimestampMethods::from_bits(part.u16()?)?;
    let flags = part.u16()?;
    let deviation_nanos = NonZeroU32::new(part.u32()?);
    let state = ClockState {
        synchronised: flags & SYNCHRONISED != 0,
        maximum_error_micros: part.u32()?,
        frequency_ppb: part.u32()? as i32,
    };
    let steps = ClockSteps { steps: part.u32()?, forward_nanos: part.u64()?, back_nanos: part.u64()? };
    let is_known = flags & KNOWN != 0;
    let is_valid = flags <= KNOWN | SYNCHRONISED && (is_known || state == ClockState::default());
    is_valid.then_some(TimestampQuality { methods, deviation_nanos, clock: is_known.then_some(state), steps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Prng, TimestampMethod};

    #[test]
    fn any_quality_is_read_back() {
        let mut prng = Prng::new(3);
        for _ in 0..1000 {
            let mut methods = TimestampMethods::NONE;
            TimestampMethod::ALL.into_iter().filter(|_| prng.below(2) == 0).for_each(|method| methods.insert(method));
            let clock = ClockState {
                synchronised: prng.below(2) == 0,
                maximum_error_micros: prng.below(1 << 32) as u32,
                frequency_ppb: prng.below(1_000_000) as i32 - 500_000,
            };
            let quality = TimestampQuality {
                methods,
                deviation_nanos: NonZeroU32::new(prng.below(3) as u32),
                clock: (prng.below(2) == 0).then_some(clock),
                steps: ClockSteps::one(prng.below(1 << 40) as i64 - (1 << 39)),
            };
            let mut bytes = Vec::new();
            encode(&quality, &mut bytes);
            assert_eq!(bytes.len(), ENCODED);
            assert_eq!(decode(&mut Cursor(&bytes)), Some(quality));
        }
    }

    #[test]
    fn unknown_methods_and_flags_and_states_of_an_unknown_clock_are_refused() {
        let mut bytes = Vec::new();
        encode(&TimestampQuality::UNKNOWN, &mut bytes);
        assert_eq!(decode(&mut Cursor(&bytes)), Some(TimestampQuality::UNKNOWN));
        for (at, value) in [(1, 0x80), (2, 4), (2, SYNCHRONISED as u8), (8, 1), (12, 1)] {
            let mut forged = bytes.clone();
            forged[at] = value;
            assert_eq!(decode(&mut Cursor(&forged)), None, "byte {at}");
        }
        assert_eq!(decode(&mut Cursor(&bytes[1..])), None);
    }
}
