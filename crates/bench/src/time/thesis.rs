//! The scenarios and figures of tables 4.1 and 4.2 of the thesis of HPCAP.

use super::methods::Method;
use super::model::Lengths;
use timestamping::BatchMethod;

/// Mean and standard deviation of the inter-arrival error in nanoseconds, as the thesis measured them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Mean.
    pub mean_ns: i32,
    /// Standard deviation.
    pub deviation_ns: u32,
}

/// The load of the link.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Per cent of the line rate.
    Share(u32),
    /// Bits of frames per second.
    BitsPerSecond(f64),
}

/// Traffic and load.
pub struct Scenario {
    /// The name in the output.
    pub traffic: &'static str,
    /// The lengths of the frames.
    pub lengths: Lengths,
    /// The load of the link.
    pub load: Load,
    /// The figures of the thesis for a method.
    pub figures: fn(Method) -> Option<Figures>,
}

impl Load {
    /// The load from 0 to 1 for frames of these lengths.
    pub fn of(self, lengths: Lengths) -> f64 {
        match self {
            Self::Share(percent) => f64::from(percent) / 100.0,
            Self::BitsPerSecond(rate) => lengths.load(rate),
        }
    }
}

/// The three scenarios of the thesis. The thesis replayed a trace of a backbone of the year 2014; the model has the
/// lengths of the simulator's traffic `backbone`.
pub const SCENARIOS: [Scenario; 3] = [
    Scenario {
        traffic: "1514 B, line rate",
        lengths: Lengths::Constant(1514),
        load: Load::Share(100),
        figures: |method| pick(method, [(2, 3400), (2, 167), (2, 170), (2, 612)]),
    },
    Scenario {
        traffic: "backbone, line rate",
        lengths: Lengths::Backbone,
        load: Load::Share(100),
        figures: |method| pick(method, [(13, 3171), (12, 608), (5, 111), (-1, 418)]),
    },
    Scenario {
        traffic: "backbone, 564 Mb/s",
        lengths: Lengths::Backbone,
        load: Load::BitsPerSecond(564e6),
        figures: |method| pick(method, [(-26, 19_399), (-40, 13_671), (-42, 14_893), (-43, 1093)]),
    },
];

/// The figures of the method from those of driver-level batches of 32 packets, UDTS, WDTS and KPT.
fn pick(method: Method, figures: [(i32, u32); 4]) -> Option<Figures> {
    let (mean_ns, deviation_ns) = match method {
        Method::Batch(BatchMethod::Batch) => figures[0],
        Method::Batch(BatchMethod::Udts) => figures[1],
        Method::Batch(BatchMethod::Wdts) => figures[2],
        Method::Poll => figures[3],
        Method::Batch(BatchMethod::Adaptive) => return None,
    };
    Some(Figures { mean_ns, deviation_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_564_megabits_per_second_includes_preamble_fcs_and_gap() {
        let load = Load::BitsPerSecond(564e6).of(Lengths::Backbone);
        assert!((0.0579..0.0581).contains(&load), "{load}");
    }
}
