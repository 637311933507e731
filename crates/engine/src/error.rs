//! The reasons why a capture could not start or failed, as texts with advice.

use capture::SourceError;
use group_services::GroupsError;
use interface_program::ProgramError;
use meter::MeterError;
use std::fmt;
use store::claim::ClaimError;

/// The reason why a capture could not start or failed.
#[derive(Debug)]
pub enum EngineError {
    /// The source cannot be opened or failed.
    Source(SourceError),
    /// The capture filter is invalid.
    Filter(filter::FilterError),
    /// The interface cannot run the program.
    Program(ProgramError),
    /// The capture started without a program, so there is none to swap.
    NoProgram,
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
    /// The meter or a sink failed.
    Meter(MeterError),
    /// The groups failed.
    Groups(GroupsError),
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
                    "{}: cannot let listeners in: {e}; choose another place, or none (record: --socket PATH; \
                     run: --set listen.socket=PATH)",
                    path.display()
                )
            }
            Self::Flows(text) | Self::Store(text) => f.write_str(text),
            Self::Claim(e) => e.fmt(f),
            Self::Program(e) => e.fmt(f),
            Self::NoProgram => f.write_str("an interface gets a program only at the start of the capture"),
            Self::Groups(e) => e.fmt(f),
            Self::Meter(e) => e.fmt(f),
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

impl From<GroupsError> for EngineError {
    fn from(e: GroupsError) -> Self {
        match e {
            GroupsError::Socket(path, e) => Self::Socket(path, e),
            e => Self::Groups(e),
        }
    }
}

impl From<ProgramError> for EngineError {
    fn from(e: ProgramError) -> Self {
        Self::Program(e)
    }
}

impl From<MeterError> for EngineError {
    fn from(e: MeterError) -> Self {
        Self::Meter(e)
    }
}

impl From<ClaimError> for EngineError {
    fn from(e: ClaimError) -> Self {
        Self::Claim(e)
    }
}
