//! Queues whose dispatchers did not respond to a command, as reported to the client.

use crate::engine_services::RingHandle;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The state of a dispatcher that did not respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DispatcherState {
    /// The dispatcher runs and may still respond.
    Late,
    /// The dispatcher ended before the stream of its ring ended.
    Failed,
}

/// A queue whose dispatcher did not respond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresponsiveQueue {
    /// The interface.
    #[serde(rename = "interface")]
    pub port: String,
    /// The queue number on the interface.
    pub queue: u16,
    /// The dispatcher's state.
    pub state: DispatcherState,
    /// A text that describes the state of the dispatcher.
    #[serde(rename = "reason")]
    pub why: String,
}

impl UnresponsiveQueue {
    /// Makes the value for a dispatcher that has panicked.
    pub(crate) fn failed(ring: &RingHandle) -> Self {
        let why = "its dispatcher ended before its stream, and no program evaluates its packets any more; restart the \
                   engine, and please report this";
        Self::of(ring, DispatcherState::Failed, why.into())
    }

    /// Makes the value for a dispatcher that did not report its accounting within `timeout`.
    pub(crate) fn unanswered(ring: &RingHandle, timeout: Duration) -> Self {
        let why = format!(
            "its dispatcher has not reported its counters for {timeout:?}; the last reported counters are used"
        );
        Self::of(ring, DispatcherState::Late, why)
    }

    /// Makes the value for a dispatcher that did not carry out a command within `timeout`.
    pub(crate) fn idle(ring: &RingHandle, timeout: Duration) -> Self {
        let why = format!(
            "its dispatcher has not carried out the command for {timeout:?}, because it is blocked or overloaded; it \
             carries out the command before its next batch"
        );
        Self::of(ring, DispatcherState::Late, why)
    }

    fn of(ring: &RingHandle, state: DispatcherState, why: String) -> Self {
        Self { port: ring.source.name.clone(), queue: ring.queue, state, why }
    }
}

/// Prints `queue 1 of eth1: its dispatcher …`.
impl fmt::Display for UnresponsiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of {}: {}", self.queue, self.port, self.why)
    }
}
