//! The state of the receiver's clock, which the user states or the kernel reports.

use crate::values::ValueError;
use base::units::parse_span;
use delay::ReceiverClock;
use std::time::Duration;

/// The value of `--clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockArg {
    /// For live packets, the state that the kernel reports for this host's clock. For stored packets, the state is
    /// unknown.
    Auto,
    /// The state that the user states.
    Stated(ReceiverClock),
}

impl ClockArg {
    /// Parses the value of the flag.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(match text {
            "auto" => Self::Auto,
            "same" => Self::Stated(ReceiverClock::SameAsSender),
            "unknown" => Self::Stated(ReceiverClock::Unknown),
            _ => {
                let error: Result<Duration, _> = parse_span(text);
                let error = error.map_err(|_| {
                    ValueError::new(format!(
                        "{text:?} should be auto, same, unknown, or the largest error of the receiver's clock: 20us"
                    ))
                })?;
                Self::Stated(ReceiverClock::Synchronised(error))
            }
        })
    }

    /// The state of the clock that made the timestamps of stored packets.
    pub fn of_stored(self) -> ReceiverClock {
        match self {
            Self::Auto => ReceiverClock::Unknown,
            Self::Stated(clock) => clock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_a_state_or_an_error() {
        assert_eq!(ClockArg::parse("auto"), Ok(ClockArg::Auto));
        assert_eq!(ClockArg::parse("same").map(ClockArg::of_stored), Ok(ReceiverClock::SameAsSender));
        let stated = ReceiverClock::Synchronised(Duration::from_micros(20));
        assert_eq!(ClockArg::parse("20us").map(ClockArg::of_stored), Ok(stated));
        assert_eq!(ClockArg::Auto.of_stored(), ReceiverClock::Unknown);
        assert!(ClockArg::parse("20").is_err_and(|e| e.to_string().contains("20us")));
    }
}
