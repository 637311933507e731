//! Distributions of sizes, times and flows, for synthetic traffic (thesis of HPCAP, §7.3).
//!
//! Samples are computed only with the four arithmetic operations and the square root of IEEE 754, whose results are
//! equal on every machine. This module computes the logarithm and the exponential function with these operations. So
//! equal seeds give equal traffic.

use base::Prng;
use base::units::{parse_bytes, parse_span};
use std::fmt;
use std::str::FromStr;

/// A distribution of numbers that are not negative.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Always this number.
    Constant(f64),
    /// The uniform distribution between two bounds.
    Uniform(f64, f64),
    /// The exponential distribution with this mean: the gaps of a Poisson process.
    Exponential(f64),
    /// The normal distribution with this mean and standard deviation; negative samples are drawn again.
    Normal(f64, f64),
    /// The Pareto distribution with this exponent and this least value. Larger samples than a greatest value are set to
    /// it. The distribution is heavy-tailed if the exponent is below 2.
    Pareto {
        /// The exponent, often called alpha.
        exponent: f64,
        /// The least value.
        least: f64,
        /// The greatest value; larger samples are set to it.
        most: f64,
    },
    /// Listed values, each with its weight.
    Listed(Vec<(f64, u32)>),
}

/// The largest number of listed values.
const MAX_LISTED: usize = 1000;

/// The error for a text that is no distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDistributionError(String);

impl fmt::Display for ParseDistributionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no distribution: write 100, uniform:60:1514, exp:100, normal:700:200, pareto:1.4:60:1514 \
             (exponent, least, most) or list:60*7/1514*1; sizes in bytes (1KiB), times with units (10ms)",
            self.0
        )
    }
}

impl std::error::Error for ParseDistributionError {}

/// Parses a number, `uniform:A:B`, `exp:MEAN`, `normal:MEAN:DEVIATION`, `pareto:EXPONENT:LEAST:MOST` or
/// `list:VALUE*WEIGHT/…`. Values are numbers, sizes (`1KiB`) or times (`10ms`, in nanoseconds).
impl FromStr for Distribution {
    type Err = ParseDistributionError;

    fn from_str(text: &str) -> Result<Self, ParseDistributionError> {
        parse(text).ok_or_else(|| ParseDistributionError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Distribution> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let parts: Vec<&str> = rest.split(':').collect();
    match (name, &parts[..]) {
        ("uniform", [low, high]) => {
            let (low, high) = (value(low)?, value(high)?);
            (low <= high).then_some(Distribution::Uniform(low, high))
        }
        ("exp", [mean]) => Some(Distribution::Exponential(value(mean)?)),
        ("normal", [mean, deviation]) => Some(Distribution::Normal(value(mean)?, value(deviation)?)),
        ("pareto", [exponent, least, most]) => {
            let exponent = exponent.parse().ok().filter(|exponent: &f64| (0.1..=100.0).contains(exponent))?;
            let (least, most) = (value(least)?, value(most)?);
            (0.0 < least && least <= most).then_some(Distribution::Pareto { exponent, least, most })
        }
        ("list", [list]) => {
            let item = |item: &str| {
                let (number, weight) = item.split_once('*').unwrap_or((item, "1"));
                Some((value(number)?, weight.parse().ok().filter(|weight| *weight > 0)?))
            };
            let all = list.split('/').map(item).collect::<Option<Vec<_>>>()?;
            (all.len() <= MAX_LISTED).then_some(Distribution::Listed(all))
        }
        (_, [""]) => value(text).map(Distribution::Constant),
        _ => None,
    }
}

/// A number, a size in bytes or a time in nanoseconds.
fn value(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let time = || parse_span(text).ok().map(|span| span.as_nanos() as f64);
    number.or_else(time).or_else(|| parse_bytes(text).ok().map(|bytes| bytes as f64))
}

impl Distribution {
    /// A random number of this distribution.
    pub fn sample(&self, prng: &mut Prng) -> f64 {
        match self {
            Self::Constant(number) => *number,
            Self::Uniform(low, high) => low + prng.unit() * (high - low),
            Self::Exponential(mean) => -mean * ln(1.0 - prng.unit()),
            Self::Normal(mean, deviation) => {
                /// Number of negative samples after which 0 is returned.
                const TRIES: u32 = 100;
                let samples = (0..TRIES).map(|_| mean + deviation * standard_normal(prng));
                samples.into_iter().find(|sample| *sample >= 0.0).unwrap_or(0.0)
            }
            Self::Pareto { exponent, least, most } => (least * exp(-ln(1.0 - prng.unit()) / exponent)).min(*most),
            Self::Listed(all) => {
                let mut rest = prng.below(all.iter().map(|(_, weight)| u64::from(*weight)).sum());
                for (number, weight) in all {
                    match rest.checked_sub(u64::from(*weight)) {
                        Some(left) => rest = left,
                        None => return *number,
                    }
                }
                all.last().map_or(0.0, |(number, _)| *number)
            }
        }
    }

    /// A number that no sample exceeds. It is finite, because samples are made of random numbers with 53 bits.
    pub fn most(&self) -> f64 {
        /// The largest sample of an exponential distribution, in means: 53 ln 2, rounded up.
        const MEANS: f64 = 37.0;
        /// A bound of the samples of a normal distribution, in standard deviations: the square root of 4 · 53 ln 2,
        /// rounded up. The square in the polar method is at least 2^-106.
        const DEVIATIONS: f64 = 13.0;
        match self {
            Self::Constant(most) | Self::Uniform(_, most) | Self::Pareto { most, .. } => *most,
            Self::Exponential(mean) => MEANS * mean,
            Self::Normal(mean, deviation) => mean + DEVIATIONS * deviation,
            Self::Listed(all) => all.iter().map(|(number, _)| *number).fold(0.0, f64::max),
        }
    }
}

/// A number of the normal distribution with mean 0 and deviation 1, by the polar method of Marsaglia and Bray (1964).
fn standard_normal(prng: &mut Prng) -> f64 {
    loop {
        let (u, v) = (2.0 * prng.unit() - 1.0, 2.0 * prng.unit() - 1.0);
        let square = u * u + v * v;
        if square > 0.0 && square < 1.0 {
            return u * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// The natural logarithm of a positive number that is not subnormal: the logarithm of its power of two plus the
/// logarithm of its fraction. The latter is computed by the series of the inverse hyperbolic tangent.
pub(crate) fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let (mut exponent, mut fraction) = ((bits >> 52) as i64 - 1023, f64::from_bits((bits & FRACTION) | 1023 << 52));
    if fraction > std::f64::consts::SQRT_2 {
        (exponent, fraction) = (exponent + 1, fraction / 2.0);
    }
    let s = (fraction - 1.0) / (fraction + 1.0);
    let (square, mut power, mut sum) = (s * s, s, 0.0);
    // The fraction is between sqrt(1/2) and sqrt(2), so |s| < 0.172, and all terms after the first ten are below 2^-53.
    for n in 0..12 {
        sum += power / f64::from(2 * n + 1);
        power *= square;
    }
    2.0 * sum + exponent as f64 * std::f64::consts::LN_2
}

/// The exponential function of a number from -700 to 700; other numbers are set to the nearest of these. The number is
/// divided into a multiple of ln 2 and a rest from 0 to ln 2, for which the series is computed.
pub(crate) fn exp(x: f64) -> f64 {
    const MOST: f64 = 700.0;
    let x = x.clamp(-MOST, MOST);
    let doublings = (x / std::f64::consts::LN_2).floor();
    let rest = x - doublings * std::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..20 {
        term *= rest / f64::from(n);
        sum += term;
    }
    sum * f64::from_bits(((doublings as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_distribution_are_refused() {
        for bad in [
            "",
            "uniform:5",
            "uniform:9:5",
            "exp:",
            "exp:-1",
            "pareto:1:0:5",
            "pareto:0:1:5",
            "list:",
            "list:5*0",
            "gauss:1:2",
            "nan",
        ] {
            assert!(bad.parse::<Distribution>().expect_err(bad).to_string().contains("write 100"), "{bad}");
        }
    }

    #[test]
    fn values_have_units() {
        assert_eq!("10ms".parse(), Ok(Distribution::Constant(1e7)));
        assert_eq!("uniform:1KiB:1MB".parse(), Ok(Distribution::Uniform(1024.0, 1e6)));
        assert_eq!("list:60*7/1514".parse(), Ok(Distribution::Listed(vec![(60.0, 7), (1514.0, 1)])));
    }

    #[test]
    fn logarithm_and_exponential_function_agree_with_those_of_the_platform() {
        let mut prng = Prng::new(3);
        for _ in 0..100_000 {
            let x = f64::from_bits((prng.next_u64() & ((1 << 52) - 1)) | (900 + prng.below(200)) << 52);
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            let y = prng.unit() * 600.0 - 200.0;
            assert!((exp(y) - y.exp()).abs() <= 1e-12 * y.exp(), "exp {y}");
        }
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
    }

    /// The mean of 400 000 samples, and the share of samples above a value, compared with the exact values.
    #[test]
    fn samples_have_the_mean_and_the_tail_of_their_distribution() {
        let seed = 18;
        for (text, mean, above, share) in [
            ("7", 7.0, 6.9, 1.0),
            ("uniform:10:30", 20.0, 25.0, 0.25),
            ("exp:5", 5.0, 10.0, (-2.0f64).exp()),
            ("normal:100:10", 100.0, 110.0, 0.15866),
            // The mean of a Pareto distribution with exponent a and least value m is a m / (a - 1).
            ("pareto:3:10:1000000", 15.0, 20.0, 0.125),
            ("list:60*7/590*4/1514*1", (420.0 + 2360.0 + 1514.0) / 12.0, 1000.0, 1.0 / 12.0),
        ] {
            let distribution: Distribution = text.parse().unwrap();
            let mut prng = Prng::new(seed);
            const SAMPLES: u32 = 400_000;
            let (mut sum, mut over) = (0.0, 0u32);
            for _ in 0..SAMPLES {
                let sample = distribution.sample(&mut prng);
                assert!(sample >= 0.0 && sample <= distribution.most(), "{text}: {sample}, seed {seed}");
                sum += sample;
                over += u32::from(sample > above);
            }
            let (found, part) = (sum / f64::from(SAMPLES), f64::from(over) / f64::from(SAMPLES));
            assert!((found - mean).abs() < 0.01 * mean, "{text}: mean {found}, expected {mean}, seed {seed}");
            assert!((part - share).abs() < 0.004, "{text}: share {part} above {above}, expected {share}, seed {seed}");
        }
    }
}
