//! The input of a detector: one sample per second.

use crate::state::{Codec, Field};

/// The value of one second, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// The value of the second. A value that is not finite is treated as missing.
    Value(f64),
    /// Nothing is known about the second: it is a gap of the series.
    Missing,
    /// The value of the second is not trusted: the capture lost packets above a limit, or the clock was stepped.
    Untrusted,
}

impl Sample {
    /// The value, if it is finite and trusted.
    pub fn trusted(self) -> Option<f64> {
        match self {
            Self::Value(value) => Some(value).filter(|value| value.is_finite()),
            Self::Missing | Self::Untrusted => None,
        }
    }
}

/// Numbers of seconds by the kind of their samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Seconds with a trusted value.
    pub observed: u64,
    /// Seconds without a value.
    pub missing: u64,
    /// Seconds whose value was not trusted.
    pub untrusted: u64,
}

impl SampleCounts {
    /// Counts a sample.
    pub fn add(&mut self, sample: Sample) {
        match (sample.trusted(), sample) {
            (Some(_), _) => self.observed += 1,
            (None, Sample::Untrusted) => self.untrusted += 1,
            (None, _) => self.missing += 1,
        }
    }

    /// All seconds.
    pub const fn total(&self) -> u64 {
        self.observed + self.missing + self.untrusted
    }
}

impl Field for SampleCounts {
    fn visit(&mut self, codec: &mut dyn Codec) {
        codec.u64(&mut self.observed);
        codec.u64(&mut self.missing);
        codec.u64(&mut self.untrusted);
    }
}
