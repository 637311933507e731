//! Why a capture could not start, or how it ended, in words that say what to do.

use capture::SourceError;
use std::fmt;
use store::claim::ClaimError;

/// Why a capture could not start, or how it ended.
#[derive(Debug)]
pub enum EngineError {
    /// The source.
    Source(SourceError),
    /// The capture filter.
    Filter(filter::FilterError),
    /// The port's program, in its own words.
    Program(String),
    /// Memory for the ring, with the number of bytes wanted.
    Ring(u64, std::io::Error),
    /// Memory for the flow table, in words.
    Flows(String),
    /// The listeners' socket, with its path.
    Socket(std::path::PathBuf, std::io::Error),
    /// The store, in its own words.
    Store(String),
    /// Somebody else records this interface into this store, or it cannot be claimed.
    Claim(ClaimError),
    /// A group that is planned, in its own words.
    Group(String),
    /// A thread could not be made, or died.
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
                    "{}: cannot let listeners in: {e}; choose another place, or none (record: --socket PATH; \
                     run: --set listen.socket=PATH)",
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
