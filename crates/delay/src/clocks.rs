//! The largest possible offset between the clock of the sender and the clock of the receiver.

use base::ErrorEstimate;
use std::time::Duration;

/// The clock that made the arrival times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverClock {
    /// The clock of the sender.
    SameAsSender,
    /// A clock that is synchronised to UTC with this largest error.
    Synchronised(Duration),
    /// A clock that is not synchronised, or whose state is not known.
    Unknown,
}

/// The relation between the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockRelation {
    /// One clock made the departure times and the arrival times. The offset is 0.
    Same,
    /// Both clocks are synchronised. The offset is at most the sum of their errors.
    Synchronised {
        /// The largest error of the sender's clock.
        sender: Duration,
        /// The largest error of the receiver's clock.
        receiver: Duration,
    },
    /// At least one clock is not synchronised. The offset is unknown, so only differences between delays are
    /// meaningful.
    Unknown {
        /// True if the sender states that its clock is synchronised.
        is_sender_synchronised: bool,
        /// True if the receiver's clock is synchronised.
        is_receiver_synchronised: bool,
    },
}

impl ClockRelation {
    /// The relation between the sender's clock and the receiver's clock. `sender` is the error estimate from the
    /// packets; `None` if no packet arrived.
    pub fn of(sender: Option<ErrorEstimate>, receiver: ReceiverClock) -> Self {
        let stated = sender.filter(|estimate| estimate.is_synchronised());
        match (stated, receiver) {
            (_, ReceiverClock::SameAsSender) => Self::Same,
            (Some(sender), ReceiverClock::Synchronised(receiver)) => {
                Self::Synchronised { sender: sender.error(), receiver }
            }
            _ => Self::Unknown {
                is_sender_synchronised: stated.is_some(),
                is_receiver_synchronised: matches!(receiver, ReceiverClock::Synchronised(_)),
            },
        }
    }

    /// The largest offset between the clocks; `None` if the offset is unknown.
    pub fn offset_max(&self) -> Option<Duration> {
        match self {
            Self::Same => Some(Duration::ZERO),
            Self::Synchronised { sender, receiver } => Some(sender.saturating_add(*receiver)),
            Self::Unknown { .. } => None,
        }
    }

    /// The name of the relation in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Synchronised { .. } => "synchronised",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// The worse of two error estimates. The estimate of a clock that is not synchronised is worse than that of a
/// synchronised clock. If both clocks have the same state, the estimate with the larger error is worse.
pub fn worse(a: ErrorEstimate, b: ErrorEstimate) -> ErrorEstimate {
    let badness = |estimate: ErrorEstimate| (!estimate.is_synchronised(), estimate.error());
    if badness(b) > badness(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_known_only_for_one_clock_or_two_synchronised_clocks() {
        let micros = Duration::from_micros;
        let (good, bad) = (ErrorEstimate::of(micros(1), true), ErrorEstimate::of(micros(1), false));
        let offset = |sender, receiver| ClockRelation::of(sender, receiver).offset_max();
        let synchronised = ReceiverClock::Synchronised(micros(9));
        assert_eq!(offset(Some(bad), synchronised), None);
        assert_eq!(offset(None, synchronised), None);
        assert_eq!(offset(Some(good), ReceiverClock::Unknown), None);
        assert_eq!(offset(Some(bad), ReceiverClock::SameAsSender), Some(Duration::ZERO));
        assert_eq!(offset(Some(good), synchronised), Some(good.error() + micros(9)));
    }

    #[test]
    fn an_unsynchronised_estimate_is_worse_than_a_synchronised_estimate() {
        let (good, bad) = (ErrorEstimate::of(Duration::from_secs(1), true), ErrorEstimate::of(Duration::ZERO, false));
        assert_eq!((worse(good, bad), worse(bad, good)), (bad, bad));
        let better = ErrorEstimate::of(Duration::ZERO, true);
        assert_eq!((worse(good, better), worse(better, good)), (good, good));
    }
}
