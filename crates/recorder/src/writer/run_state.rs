//! The states of a run of the writer, from the first job to the end of the stream.

use crate::cutter::Part;
use crate::writer::file::as_lost;
use index::Rows;
use std::time::Duration;

/// The state of the run.
#[derive(Debug, Default)]
pub(super) enum RunState {
    /// The recorder runs: jobs arrive, and writes that the volume refuses are retried without limit.
    #[default]
    Recording,
    /// The recorder was stopped, or its stream ended, at the time `since`: writes that the volume refuses are retried
    /// for the grace period.
    Stopping { since: Duration, stream: Stream },
    /// The grace period is over: no more packets are written, and the packets of later jobs are counted as lost.
    GivenUp { stream: Stream, losses: Losses },
}

/// The state of the stream of jobs: open or ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stream {
    /// More jobs may come.
    #[default]
    Open,
    /// The stream has ended, so no more jobs arrive.
    Ended,
}

/// The losses of a recording that was given up: the packets in the parts of blocks that will not be written.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The ledger rows of the lost packets, in which they count as lost.
    pub rows: Rows,
    /// Number of the lost packets.
    pub packets: u64,
}

impl RunState {
    /// Returns the state that follows this state when the recorder is stopped.
    pub fn stop(self, now: Duration) -> Self {
        match self {
            Self::Recording => Self::Stopping { since: now, stream: Stream::Open },
            stopped => stopped,
        }
    }

    /// Returns the state that follows this state at the end of the stream, which also stops the recorder.
    pub fn end(self, now: Duration) -> Self {
        match self {
            Self::Recording => Self::Stopping { since: now, stream: Stream::Ended },
            Self::Stopping { since, .. } => Self::Stopping { since, stream: Stream::Ended },
            Self::GivenUp { losses, .. } => Self::GivenUp { stream: Stream::Ended, losses },
        }
    }

    /// Returns the state that follows this state when the grace period has passed.
    pub fn give_up(self) -> Self {
        match self {
            Self::Recording => Self::GivenUp { stream: Stream::Open, losses: Losses::default() },
            Self::Stopping { stream, .. } => Self::GivenUp { stream, losses: Losses::default() },
            given_up @ Self::GivenUp { .. } => given_up,
        }
    }

    /// True after the end of the stream.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Stopping { stream, .. } | Self::GivenUp { stream, .. } if *stream == Stream::Ended)
    }

    /// True after the grace period.
    pub fn has_given_up(&self) -> bool {
        matches!(self, Self::GivenUp { .. })
    }

    /// The begin of the grace period; `None` outside of the grace period.
    pub fn grace_begin(&self) -> Option<Duration> {
        match self {
            Self::Stopping { since, .. } => Some(*since),
            Self::Recording | Self::GivenUp { .. } => None,
        }
    }

    /// The losses after giving up.
    pub fn losses(&mut self) -> Option<&mut Losses> {
        match self {
            Self::GivenUp { losses, .. } => Some(losses),
            Self::Recording | Self::Stopping { .. } => None,
        }
    }

    /// Removes and returns all losses after the end of the stream, when no job can add losses; `None` before, and after
    /// the first call.
    pub fn take_final_losses(&mut self) -> Option<Losses> {
        match self {
            Self::GivenUp { stream: Stream::Ended, losses } => Some(std::mem::take(losses)),
            _ => None,
        }
    }
}

impl Losses {
    /// Adds the packets in a part of a block as lost; returns the ledger rows of the part, with its packets as lost.
    pub fn add(&mut self, part: &Part) -> Rows {
        self.packets += part.new_rows.total().stored;
        let lost = part.new_rows.map(as_lost);
        self.rows.merge(&lost);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn the_grace_period_begins_with_the_first_stop_and_the_end_of_the_stream_is_a_stop() {
        let state = RunState::default().stop(NOW).stop(2 * NOW).end(3 * NOW);
        assert_eq!((state.grace_begin(), state.has_ended()), (Some(NOW), true));
        let state = RunState::default().end(NOW);
        assert_eq!((state.grace_begin(), state.has_ended(), state.has_given_up()), (Some(NOW), true, false));
    }

    #[test]
    fn losses_are_final_when_the_recorder_has_given_up_and_the_stream_has_ended() {
        let mut state = RunState::default().stop(NOW);
        assert!(state.losses().is_none());
        state = state.give_up();
        assert_eq!((state.has_given_up(), state.has_ended(), state.grace_begin()), (true, false, None));
        state.losses().expect("losses").packets = 3;
        assert!(state.take_final_losses().is_none(), "losses must not be final before the end of the stream");
        state = state.end(2 * NOW).give_up();
        assert_eq!(state.take_final_losses().map(|losses| losses.packets), Some(3));
        assert_eq!(
            state.take_final_losses().map(|losses| losses.packets),
            Some(0),
            "final losses must be returned only once"
        );
    }
}
