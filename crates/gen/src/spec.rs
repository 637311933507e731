//! The specification of traffic in text form: `60`, `1000,flows=100k,rate=1Mpps`, `imix`, `backbone,flows=1M,truth`.

use crate::layout::{MAX_FRAME, MIN_FRAME};
use base::units::{Rate, parse_count, parse_rate, parse_span};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The largest number of flows: one flow for each of the 2^24 source addresses.
pub const MAX_FLOWS: u32 = 1 << 24;

/// The default number of flows, unless the frame sizes are `backbone`.
const DEFAULT_FLOWS: u32 = 1024;
const DEFAULT_BACKBONE_FLOWS: u32 = 100_000;

/// The largest weight of a frame length in an IMIX.
const MAX_WEIGHT: u16 = 1000;

/// Frame lengths in bytes, without frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All frames have this many bytes, 60 to 9014.
    Fixed(u16),
    /// The internet mix of frame sizes: 60, 590 and 1514 bytes (64, 594 and 1518 on the wire) in these proportions, in
    /// random order.
    Imix([u16; 3]),
    /// Nine frame sizes from 60 to 1514 bytes with a mean of 871, in random order.
    Backbone,
}

impl Sizes {
    /// The usual internet mix.
    pub const IMIX: Self = Self::Imix([7, 4, 1]);

    /// Each length with its weight.
    pub(crate) fn weights(self) -> Vec<(u16, u16)> {
        match self {
            Self::Fixed(len) => vec![(len, 1)],
            Self::Imix(weights) => [60, 590, 1514].into_iter().zip(weights).filter(|(_, w)| *w > 0).collect(),
            Self::Backbone => crate::backbone::SIZES.to_vec(),
        }
    }
}

/// The rule that chooses the flow of each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each flow sends one frame in turn (round robin); no flow ends.
    Even,
    /// The flow lengths have the heavy-tailed distribution of a backbone. `flows` flows are active at a time, short
    /// flows begin and end, and long flows carry most packets. This takes 16 bytes of memory per active flow.
    Heavy,
}

/// A complete description of the test traffic to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Frame lengths.
    pub sizes: Sizes,
    /// Number of flows that are active at the same time, 1 to [`MAX_FLOWS`].
    pub flows: u32,
    /// The order of flows.
    pub order: Order,
    /// Chooses sizes, flows and filling.
    pub seed: u64,
    /// Rate of packets or bits.
    pub rate: Rate,
    /// Stop after this many frames.
    pub packets: Option<u64>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// True if frames carry the signature: sequence number, departure time and CRC.
    pub signature: bool,
}

impl Spec {
    /// Traffic with these sizes and every default: at full speed, without end and without signature.
    pub const fn new(sizes: Sizes) -> Self {
        let (flows, order) = match sizes {
            Sizes::Backbone => (DEFAULT_BACKBONE_FLOWS, Order::Heavy),
            _ => (DEFAULT_FLOWS, Order::Even),
        };
        Self { sizes, flows, order, seed: 1, rate: Rate::Flat, packets: None, duration: None, signature: false }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split(',').map(str::trim);
        let mut spec = Self::new(sizes(parts.next().unwrap_or_default())?);
        for part in parts {
            let (key, value) = part.split_once('=').map_or((part, None), |(k, v)| (k, Some(v)));
            let bad = |expected| SpecError::Value { part: part.to_owned(), expected };
            let count = |text: Option<&str>| text.and_then(|t| parse_count(t).ok());
            match key {
                "flows" => {
                    let flows = count(value).filter(|n| (1..=u64::from(MAX_FLOWS)).contains(n));
                    spec.flows = flows.ok_or(bad("a number of flows from 1 to 16777216: flows=100k"))? as u32;
                }
                "seed" => spec.seed = count(value).ok_or(bad("a whole number: seed=7"))?,
                "packets" => spec.packets = Some(count(value).ok_or(bad("a number of packets: packets=10M"))?),
                "rate" => {
                    let rate = value.and_then(|v| parse_rate(v).ok());
                    spec.rate = rate.ok_or(bad("a rate: rate=1.6Mpps, rate=10Gbit or rate=flat"))?;
                }
                "duration" => {
                    let span = value.and_then(|v| parse_span(v).ok());
                    spec.duration = Some(span.ok_or(bad("a span of time: duration=10s"))?);
                }
                "order" => {
                    spec.order = match value {
                        Some("even") => Order::Even,
                        Some("heavy") => Order::Heavy,
                        _ => {
                            return Err(bad(
                                "an order: order=even (all flows in turn) or order=heavy (as on a backbone)",
                            ));
                        }
                    }
                }
                "truth" if value.is_none() => spec.signature = true,
                "truth" => return Err(bad("the word truth without a value")),
                _ => return Err(SpecError::Key(part.to_owned())),
            }
        }
        Ok(spec)
    }
}

fn sizes(text: &str) -> Result<Sizes, SpecError> {
    let bad = || SpecError::Sizes(text.to_owned());
    match text {
        "backbone" => Ok(Sizes::Backbone),
        "imix" => Ok(Sizes::IMIX),
        _ if text.starts_with("imix") => {
            let weights: Vec<u16> =
                text[4..].split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
            let weights: [u16; 3] = weights.try_into().map_err(|_| bad())?;
            let usable = weights.iter().all(|w| *w <= MAX_WEIGHT) && weights.iter().any(|w| *w > 0);
            if usable { Ok(Sizes::Imix(weights)) } else { Err(bad()) }
        }
        _ => {
            let len: u16 = text.parse().map_err(|_| bad())?;
            if (MIN_FRAME..=MAX_FRAME).contains(&usize::from(len)) { Ok(Sizes::Fixed(len)) } else { Err(bad()) }
        }
    }
}

/// Writes the shortest text that [`Spec::from_str`] parses to an equal specification.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sizes {
            Sizes::Fixed(len) => write!(f, "{len}")?,
            Sizes::IMIX => f.write_str("imix")?,
            Sizes::Imix([a, b, c]) => write!(f, "imix{a}:{b}:{c}")?,
            Sizes::Backbone => f.write_str("backbone")?,
        }
        let default = Self::new(self.sizes);
        if self.flows != default.flows {
            write!(f, ",flows={}", self.flows)?;
        }
        if self.order != default.order {
            write!(f, ",order={}", if self.order == Order::Even { "even" } else { "heavy" })?;
        }
        if self.seed != default.seed {
            write!(f, ",seed={}", self.seed)?;
        }
        match self.rate {
            Rate::Flat => {}
            Rate::Packets(rate) => write!(f, ",rate={rate}pps")?,
            Rate::Bits(rate) => write!(f, ",rate={rate}bit")?,
        }
        if let Some(packets) = self.packets {
            write!(f, ",packets={packets}")?;
        }
        if let Some(duration) = self.duration {
            write!(f, ",duration={}ns", duration.as_nanos())?;
        }
        if self.signature { f.write_str(",truth") } else { Ok(()) }
    }
}

/// The reason why a text is not a valid specification of traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The first part of the specification does not name frame sizes.
    Sizes(String),
    /// A part with an unknown key.
    Key(String),
    /// A known key with an invalid value.
    Value {
        /// The part as written.
        part: String,
        /// A description of valid values.
        expected: &'static str,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sizes(text) => write!(
                f,
                "a traffic specification begins with the frame sizes, not {text:?}: write a length from {MIN_FRAME} to \
                 {MAX_FRAME} (bytes without frame check sequence), imix, imix7:4:1 (at most {MAX_WEIGHT} each), or \
                 backbone"
            ),
            Self::Key(part) => write!(
                f,
                "unknown part {part:?} of a traffic specification: write flows=, order=, seed=, rate=, packets=, \
                 duration= or truth, separated by commas"
            ),
            Self::Value { part, expected } => write!(f, "{part:?} should be {expected}"),
        }
    }
}

impl std::error::Error for SpecError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_specifications_are_rejected_with_advice() {
        for (bad, advice) in [
            ("", "begins with the frame sizes"),
            ("59", "from 60 to 9014"),
            ("9015", "from 60 to 9014"),
            ("imix7:4", "imix7:4:1"),
            ("imix0:0:0", "imix7:4:1"),
            ("imix1:1:1001", "at most 1000"),
            ("flows=3", "begins with the frame sizes"),
            ("60,flows=0", "from 1 to 16777216"),
            ("60,flows=17M", "from 1 to 16777216"),
            ("60,flows", "flows=100k"),
            ("60,seed=-1", "seed=7"),
            ("60,rate=10", "rate=1.6Mpps"),
            ("60,packets=1.5", "packets=10M"),
            ("60,packets=1.2345k", "packets=10M"),
            ("60,packets=99999999999G", "packets=10M"),
            ("60,duration=soon", "duration=10s"),
            ("60,order=odd", "order=heavy"),
            ("60,truth=yes", "without a value"),
            ("60,colour=red", "unknown part \"colour=red\""),
            ("60,", "unknown part \"\""),
            ("60,packets=é", "packets=10M"),
        ] {
            let error = bad.parse::<Spec>().expect_err(bad).to_string();
            assert!(error.contains(advice), "{bad}: {error}");
        }
    }

    #[test]
    fn a_specification_is_parsed_with_blanks_and_units() {
        let spec: Spec = "1000, flows=100k, seed=7, rate=1Mpps, packets=2.5M, duration=10s, truth".parse().unwrap();
        assert_eq!(spec.sizes, Sizes::Fixed(1000));
        assert_eq!((spec.flows, spec.seed, spec.packets), (100_000, 7, Some(2_500_000)));
        assert_eq!((spec.rate, spec.duration), (Rate::Packets(1e6), Some(Duration::from_secs(10))));
        assert!(spec.signature);
        assert_eq!("imix".parse::<Spec>().unwrap().sizes, Sizes::Imix([7, 4, 1]));
        assert_eq!("backbone".parse::<Spec>().unwrap().order, Order::Heavy);
    }

    #[test]
    fn a_displayed_specification_parses_to_the_same_value() {
        for text in [
            "60",
            "imix",
            "imix1:0:3",
            "backbone",
            "backbone,flows=5,order=even",
            "1514,flows=16777216,order=heavy,seed=18446744073709551615,rate=1600000.5pps,packets=0,duration=1ns,truth",
            "60,rate=10000000000bit",
        ] {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        }
    }
}
