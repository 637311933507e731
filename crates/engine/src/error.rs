//! The reasons why a capture could not start or failed, as texts with advice.

use capture::SourceError;
use std::fmt;
use store::claim::ClaimError;

/// The reason why a capture could not start or failed.
#[derive(Debug)]
pub enum EngineError {
    /// The source cannot be opened or failed.
    Source(SourceError),
    /// The capture filter is invalid.
    Filter(filter::FilterError),
    /// The interface's program failed; with the reason.
    Program(String),
    /// There is no memory for the ring; with the number of bytes requested.
    Ring(u64, std::io::Error),
    /// There is no memory for the flow table; with the bytes needed.
    Flows(String),
    /// The listeners' socket failed; with its path.
    Socket(std::path::PathBuf, std::io::Error),
    /// The store failed; with the reason.
    Store(String),
    /// Another process records this interface into this store, or the claim failed otherwise.
    Claim(ClaimError),
    /// A group of the configuration failed; with the reason.
    Group(String),
    /// A thread could not be started, or panicked.
    Thread(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(e) => e.fmt(f),
            Self::Filter(e) => write!(f, "filter: {e}"),
            Self::Ring(bytes, e) => {
                write!(
                    f,
                    "no memory for a ring of {}: {e}; choose a smaller one with --ring, or raise what limits the memory (ulimit -v, the \
                     control group's memory.max)",
                    base::units::show_bytes(*bytes)
                )
            }
            Self::Socket(path, e) => {
                write!(
                    f,
                    "{}: cannot let listeners in: {e}; choose another place with --socket PATH, or none",
                    path.display()
                )
            }
            Self::Flows(text) | Self::Program(text) | Self::Store(text) | Self::Group(text) => f.write_str(text),
            Self::Claim(e) => e.fmt(f),
            Self::Thread(text) => write!(f, "thread: {text}"),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<SourceError> for EngineError {
    fn from(e: SourceError) -> Self {
        Self::Source(e)
    }
}

impl From<ClaimError> for EngineError {
    fn from(e: ClaimError) -> Self {
        Self::Claim(e)
    }
}
