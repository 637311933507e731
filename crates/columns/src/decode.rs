//! Decodes whole pages: the inverse of [`crate::encode`], for scans of single columns of many records.
//!
//! The bytes come from a file and may be damaged: invalid input yields `None`.

/// Decodes numbers in PLAIN encoding with `width` bytes each.
pub fn plain(bytes: &[u8], width: usize, out: &mut Vec<u64>) -> Option<()> {
    out.clear();
    match width {
        8 => out.extend(bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b))),
        4 => out.extend(bytes.as_chunks().0.iter().map(|b| u64::from(u32::from_le_bytes(*b)))),
        _ => return None,
    }
    bytes.len().is_multiple_of(width).then_some(())
}

/// Decodes `count` dictionary indexes or levels of `bits` bits, in runs (hybrid of RLE and bit packing).
pub fn runs(mut bytes: &[u8], bits: u32, count: usize, out: &mut Vec<u16>) -> Option<()> {
    out.clear();
    if bits > 16 {
        return None;
    }
    while out.len() < count {
        let head = number(&mut bytes)?;
        let left = count - out.len();
        let many = usize::try_from(head >> 1).ok()?;
        if head & 1 == 0 {
            let mut value = [0; 2];
            let width = bits.div_ceil(8) as usize;
            value[..width].copy_from_slice(bytes.split_off(..width)?);
            out.resize(out.len() + many.min(left), u16::from_le_bytes(value));
            if many == 0 {
                return None;
            }
            continue;
        }
        let packed = bytes.split_off(..many.checked_mul(bits as usize)?)?;
        let take = left.min(many.checked_mul(8)?);
        match bits {
            16 => out.extend(packed.as_chunks().0[..take].iter().map(|b| u16::from_le_bytes(*b))),
            8 => out.extend(packed[..take].iter().map(|b| u16::from(*b))),
            _ => unpack(packed, bits, take, |value| out.push(value as u16)),
        }
        if take == 0 {
            return None;
        }
    }
    Some(())
}

/// Unpacks the first `count` values of `bits` bits, the first in the lowest bits.
fn unpack(packed: &[u8], bits: u32, count: usize, mut each: impl FnMut(u64)) {
    let (mut waiting, mut have) = (0u128, 0);
    let mut bytes = packed.iter();
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    for _ in 0..count {
        while have < bits {
            waiting |= u128::from(bytes.next().copied().unwrap_or(0)) << have;
            have += 8;
        }
        each(waiting as u64 & mask);
        waiting >>= bits;
        have -= bits;
    }
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if *first < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;
    use base::Prng;

    /// Values like those of real columns: few distinct values, growing values or noise, of any count.
    fn any_values(prng: &mut Prng) -> Vec<i64> {
        let (count, bits, mut at) = (prng.below(700), prng.below(65) as u32, prng.next_u64());
        let grows = prng.below(3) == 0;
        (0..count)
            .map(|_| {
                let noise = prng.next_u64().checked_shr(64 - bits).unwrap_or(0);
                at = if grows { at.wrapping_add(noise) } else { noise };
                at as i64
            })
            .collect()
    }

    #[test]
    fn random_values_survive_encoding_and_decoding() {
        let seed = testkit::seed("random_values_survive_encoding_and_decoding");
        let mut prng = Prng::new(seed);
        let (mut bytes, mut found) = (Vec::new(), Vec::new());
        for round in 0..2000 {
            let values = any_values(&mut prng);
            let wanted: Vec<u64> = values.iter().map(|v| *v as u64).collect();
            bytes.clear();
            encode::plain(&values, &mut bytes);
            assert!(plain(&bytes, 8, &mut found).is_some() && found == wanted, "seed {seed} round {round}");

            let mut known = encode::Dictionary::new();
            if known.fill(&values, encode::WIDE) && !values.is_empty() {
                bytes.clear();
                encode::places(&known.places, known.keys.len(), &mut bytes);
                let mut places = Vec::new();
                runs(&bytes[1..], bytes[0].into(), values.len(), &mut places).expect("runs");
                let reported: Vec<i64> = places.iter().map(|place| known.keys[usize::from(*place)]).collect();
                assert_eq!(reported, values, "seed {seed} round {round}");
            }
        }
    }

    #[test]
    fn random_bytes_are_rejected_or_decoded_within_limits() {
        let seed = testkit::seed("random_bytes_are_rejected_or_decoded_within_limits");
        let mut prng = Prng::new(seed);
        let (mut longs, mut places) = (Vec::new(), Vec::new());
        for _ in 0..20_000 {
            let mut bytes = vec![0; prng.below(60) as usize];
            prng.fill(&mut bytes);
            let count = prng.below(5000) as usize;
            if runs(&bytes, prng.below(20) as u32, count, &mut places).is_some() {
                assert_eq!(places.len(), count, "seed {seed}");
            }
            let _ = plain(&bytes, 8, &mut longs);
            assert!(longs.len() <= bytes.len(), "seed {seed}: {}", longs.len());
        }
    }
}
