//! Queues whose dispatchers did not answer a command, as reported to the client.

use crate::engine_services::RingHandle;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The state of a dispatcher that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DispatcherState {
    /// The dispatcher runs and may still answer.
    Late,
    /// The dispatcher ended before its stream.
    Failed,
}

/// A queue whose dispatcher did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresponsiveQueue {
    /// The interface.
    #[serde(rename = "interface")]
    pub port: String,
    /// The queue number on the interface.
    pub queue: u16,
    /// The dispatcher's state.
    pub state: DispatcherState,
    /// A text that describes the state.
    #[serde(rename = "reason")]
    pub why: String,
}

impl UnresponsiveQueue {
    /// Makes the value for a dispatcher that has panicked.
    pub(crate) fn failed(track: &RingHandle) -> Self {
        let why = "its dispatcher ended before its stream, and nobody judges its packets any more; restart the engine and please report \
                   this";
        Self::of(track, DispatcherState::Failed, why.into())
    }

    /// Makes the value for a dispatcher that did not report its accounting for `patience`.
    pub(crate) fn unanswered(track: &RingHandle, patience: Duration) -> Self {
        let why = format!("its dispatcher has not told its books for {patience:?}; its numbers are older ones");
        Self::of(track, DispatcherState::Late, why)
    }

    /// Makes the value for a dispatcher that did not carry out a command for `patience`.
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

/// Prints `queue 1 of eth1: its dispatcher …`.
impl fmt::Display for UnresponsiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of {}: {}", self.queue, self.port, self.why)
    }
}
