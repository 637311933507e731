//! Results and exit status of a verb: 0 for success, 1 if nothing was found or a check failed, 2 for an error. An
//! output pipe that its reader closes is a success.

use capture::SourceError;
use capture::file::repair_advice;
use engine::{EngineError, Report};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Exit status of success: the verb is done, the result is healthy, or data was found.
pub const YES: u8 = 0;
/// Exit status of a negative result: nothing was found, packets were lost, or a check failed.
pub const NO: u8 = 1;
/// Exit status of an error: the verb could not be carried out.
pub const FAILED: u8 = 2;

/// The result of a verb that ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit status 0.
    Yes,
    /// Exit status 1.
    No,
}

impl Outcome {
    /// `Yes` if `yes` is true, otherwise `No`.
    pub fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// The failure of a verb.
#[derive(Debug)]
pub enum Failure {
    /// The reader of the output closed the pipe.
    ClosedPipe,
    /// The error and the advice, in one line.
    Said(String),
}

impl Failure {
    /// A failure with this text.
    pub fn say(text: impl fmt::Display) -> Self {
        Self::Said(text.to_string())
    }

    /// Returns the failure for a file that cannot be read.
    pub fn unreadable(path: &Path, e: &io::Error) -> Self {
        Self::Said(format!("{}: {}", path.display(), sys::advice::unreadable(e)))
    }

    /// Returns the failure for a file that cannot be created.
    pub fn uncreatable(path: &Path, e: &io::Error) -> Self {
        Self::Said(format!("{}: {}", path.display(), sys::advice::uncreatable(e)))
    }

    /// Returns the failure with this advice appended to its text.
    #[must_use]
    pub fn with(self, advice: Option<&str>) -> Self {
        match (self, advice) {
            (Self::Said(text), Some(advice)) => Self::Said(format!("{text}; {advice}")),
            (other, _) => other,
        }
    }

    /// Returns the failure for an invalid filter. On a terminal, a mark below the filter shows the position of the
    /// error.
    pub fn filter(e: &filter::FilterError) -> Self {
        Self::Said(if io::stderr().is_terminal() { format!("filter: {e:#}") } else { format!("filter: {e}") })
    }
}

/// Evaluates the end of a capture. If the capture file was truncated or damaged, prints a warning and returns false:
/// the packets before the damaged byte were stored and reported, and the number of packets after it is unknown. A file
/// without any readable packet is a failure, like a missing file.
///
/// # Errors
/// All other errors.
pub fn ended(outcome: Result<(), EngineError>, report: &Report) -> Result<bool, Failure> {
    match outcome {
        // An error at byte 0 means that the file is no capture.
        Err(EngineError::Source(e @ SourceError::Corrupt { offset: 1.., .. }))
            if report.counts.offered > report.counts.lost_total =>
        {
            let advice = repair_advice(&e);
            sys::say!(
                "netgrain: {e}; all packets before this byte were processed, and at least one packet was lost \
                 there{advice}"
            );
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
