//! Queues whose dispatchers do not answer, as whoever asked them is told.

use crate::engine_services::RingHandle;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How it stands with a dispatcher that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DispatcherState {
    /// It may yet answer.
    Late,
    /// It has ended before its stream.
    Failed,
}

/// A queue whose dispatcher does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresponsiveQueue {
    /// Its interface.
    #[serde(rename = "interface")]
    pub port: String,
    /// Its number there.
    pub queue: u16,
    /// How it stands with it.
    pub state: DispatcherState,
    /// What that means, in words.
    #[serde(rename = "reason")]
    pub why: String,
}

impl UnresponsiveQueue {
    /// Its dispatcher has panicked.
    pub(crate) fn failed(track: &RingHandle) -> Self {
        let why = "its dispatcher ended before its stream, and nobody judges its packets any more; restart the engine and please report \
                   this";
        Self::of(track, DispatcherState::Failed, why.into())
    }

    /// Its dispatcher has not told its books for so long.
    pub(crate) fn unanswered(track: &RingHandle, patience: Duration) -> Self {
        let why = format!("its dispatcher has not told its books for {patience:?}; its numbers are older ones");
        Self::of(track, DispatcherState::Late, why)
    }

    /// Its dispatcher has not carried an order out for so long.
    pub(crate) fn idle(track: &RingHandle, patience: Duration) -> Self {
        let why = format!(
            "its dispatcher has not carried this out for {patience:?}: it stands still, or has too much to do; it will before its next batch"
        );
        Self::of(track, DispatcherState::Late, why)
    }

    fn of(track: &RingHandle, state: DispatcherState, why: String) -> Self {
        Self { port: track.source.name.clone(), queue: track.queue, state, why }
    }
}

/// `queue 1 of eth1: its dispatcher …`
impl fmt::Display for UnresponsiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of {}: {}", self.queue, self.port, self.why)
    }
}
