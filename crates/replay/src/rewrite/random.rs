//! Random addresses: the low bits of an address are replaced by random bits, which differ from packet to packet and
//! repeat after a period (the options `--rand-ip`, `--rand-depth` and `--rand-period` of pfq-gen).

use base::hash::mix64;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Random addresses of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomAddress {
    /// Number of low bits that are random, 1 to 32.
    pub depth: u8,
    /// Number of packets after which the sequence of addresses repeats; `None` for no repetition.
    pub period: Option<NonZeroU64>,
}

impl RandomAddress {
    /// The random bits for the packet with this number; bits above `depth` are 0.
    pub(super) fn bits(self, seed: u64, number: u64) -> u32 {
        let index = self.period.map_or(number, |period| number % period);
        mix64(seed ^ mix64(index)) as u32 & low_bits(self.depth)
    }
}

/// A mask of the lowest `depth` bits, at most 32.
pub(super) const fn low_bits(depth: u8) -> u32 {
    if depth >= 32 { u32::MAX } else { (1 << depth) - 1 }
}

/// The error for a text that is no rule for random addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRandomAddressError(String);

impl fmt::Display for ParseRandomAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no rule for random addresses: write the number of random low bits (1 to 32), and after a comma \
             the number of packets after which the addresses repeat, as in 16 or 16,1024",
            self.0
        )
    }
}

impl std::error::Error for ParseRandomAddressError {}

impl FromStr for RandomAddress {
    type Err = ParseRandomAddressError;

    fn from_str(text: &str) -> Result<Self, ParseRandomAddressError> {
        let refused = || ParseRandomAddressError(text.to_owned());
        let (depth, period) = text.split_once(',').map_or((text, None), |(depth, period)| (depth, Some(period)));
        let depth = depth.parse().ok().filter(|depth| (1..=32).contains(depth)).ok_or_else(refused)?;
        let period = match period {
            None => None,
            Some(period) => {
                let period = base::units::parse_count(period).ok().and_then(NonZeroU64::new);
                Some(period.ok_or_else(refused)?)
            }
        };
        Ok(Self { depth, period })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn texts_that_are_no_rule_are_refused() {
        for bad in ["", "0", "33", "8,", "8,0", ",8", "8,x", "x"] {
            assert!(bad.parse::<RandomAddress>().expect_err(bad).to_string().contains("as in 16 or 16,1024"), "{bad}");
        }
        assert_eq!("32".parse(), Ok(RandomAddress { depth: 32, period: None }));
        assert_eq!("8,2k".parse(), Ok(RandomAddress { depth: 8, period: NonZeroU64::new(2000) }));
    }

    #[test]
    fn addresses_repeat_after_the_period_and_change_only_low_bits() {
        let rule: RandomAddress = "16,100".parse().unwrap();
        let all: Vec<u32> = (0..300).map(|number| rule.bits(9, number)).collect();
        assert_eq!((&all[..100], &all[100..200]), (&all[100..200], &all[200..]));
        assert!(all.iter().all(|bits| *bits < 1 << 16));
        assert!(all.iter().collect::<BTreeSet<_>>().len() > 90, "addresses differ within a period");
        let endless: RandomAddress = "32".parse().unwrap();
        assert!((0..1000).map(|number| endless.bits(9, number)).collect::<BTreeSet<_>>().len() > 990);
    }
}
