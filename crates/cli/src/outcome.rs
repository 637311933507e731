//! How a verb answers and ends: 0 yes, 1 nothing found or unhealthy, 2 error; a closed pipe is success.

use capture::SourceError;
use engine::{EngineError, Report};
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Exit status: done, healthy, found.
pub const YES: u8 = 0;
/// Exit status: nothing found, packets lost, or a check that failed.
pub const NO: u8 = 1;
/// Exit status: could not be done.
pub const FAILED: u8 = 2;

/// A verb that could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit status 0.
    Yes,
    /// Exit status 1.
    No,
}

impl Outcome {
    /// Yes if so.
    pub fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// A verb that could not be done.
#[derive(Debug)]
pub enum Failure {
    /// Whoever read our output has enough.
    ClosedPipe,
    /// In one line, what happened and what to do.
    Said(String),
}

impl Failure {
    /// In words.
    pub fn say(text: impl fmt::Display) -> Self {
        Self::Said(text.to_string())
    }

    /// What is wrong with a filter. On a terminal, a mark below the filter shows where.
    pub fn filter(e: &filter::FilterError) -> Self {
        Self::Said(if io::stderr().is_terminal() { format!("filter: {e:#}") } else { format!("filter: {e}") })
    }
}

/// What became of a capture that has ended; false, and said so, if it was cut off or damaged: what was before that is stored and told,
/// and how much lay behind nobody knows. A file of which nothing could be taken is a failure, like one that is not there.
///
/// # Errors
/// All else.
pub fn ended(outcome: Result<(), EngineError>, report: &Report) -> Result<bool, Failure> {
    match outcome {
        // At byte 0 it is no capture at all.
        Err(e @ EngineError::Source(SourceError::Corrupt { offset: 1.., .. }))
            if report.counts.offered > report.counts.lost_total =>
        {
            sys::say!("netgrain: {e}; all packets before it were taken, at least one was lost there");
            Ok(false)
        }
        other => Ok(other.map(|()| true)?),
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Self::ClosedPipe } else { Self::Said(format!("output: {e}")) }
    }
}

impl From<EngineError> for Failure {
    fn from(e: EngineError) -> Self {
        Self::say(e)
    }
}

/// Adds the key `schema_version` to a document (`docs/reference/json.md`).
pub fn versioned(mut document: serde_json::Value) -> serde_json::Value {
    document["schema_version"] = export::text::SCHEMA_VERSION.into();
    document
}

/// Writes a document as one line of standard output, with its `schema_version`.
pub fn json(document: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", versioned(document.clone()))?;
    out.flush()
}
