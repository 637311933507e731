//! The reasons why a capture could not start or failed, as texts with advice.

use crate::sizes::{SizesError, no_ring};
use crate::volume::SegmentError;
use capture::SourceError;
use group_services::GroupsError;
use interface_program::ProgramError;
use meter::MeterError;
use recorder::cutter::BrokenStream;
use std::fmt;
use std::io;
use std::path::PathBuf;
use store::claim::ClaimError;

/// The reason why a capture could not start or failed.
#[derive(Debug)]
pub enum EngineError {
    /// The source cannot be opened, or it failed during the capture.
    Source(SourceError),
    /// The capture filter is invalid.
    Filter(filter::FilterError),
    /// The settings of the detection of duplicates are out of range.
    Duplicates(::duplicates::SettingsError),
    /// The interface cannot run the program.
    Program(ProgramError),
    /// The capture was started without a program, so there is no program that can be replaced.
    NoProgram,
    /// The memory of this process is too small for the plan.
    Sizes(SizesError),
    /// The ring cannot be allocated. The error contains the number of bytes requested.
    Ring(u64, io::Error),
    /// The listeners' socket cannot be opened. The error contains the path of the socket.
    Socket(PathBuf, io::Error),
    /// The store cannot be written.
    Store(PathBuf, io::Error),
    /// A file of the store has the name of a year, month, day or hour directory but is not a directory.
    NotDirectory(PathBuf),
    /// The packet files do not fit on the volume.
    Segment(SegmentError),
    /// The recorder cannot join the ring.
    RecorderJoin(ring::JoinError),
    /// The descriptors that a recorder read contradict each other.
    BrokenStream(BrokenStream),
    /// Another process records this interface into this store, or the claim failed for another reason.
    Claim(ClaimError),
    /// The meter or a sink failed.
    Meter(MeterError),
    /// The groups failed.
    Groups(GroupsError),
    /// The system cannot create a thread.
    Spawn(io::Error),
    /// The thread with this name panicked.
    Panicked(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(e) => e.fmt(f),
            Self::Filter(e) => write!(f, "filter: {e}"),
            Self::Duplicates(e) => write!(f, "duplicates: {e}"),
            Self::Sizes(e) => e.fmt(f),
            Self::Ring(bytes, e) => f.write_str(&no_ring(*bytes, e)),
            Self::Socket(path, e) => {
                write!(
                    f,
                    "{}: cannot open the socket for listeners: {e}; choose another path with --socket PATH, or admit \
                     no listeners with --socket none",
                    path.display()
                )
            }
            Self::Store(dir, e) => write!(
                f,
                "{}: cannot write packet files in this directory: {}; name a directory on a writable volume with \
                 --store",
                dir.display(),
                sys::advice::cause(e)
            ),
            Self::NotDirectory(path) => write!(
                f,
                "{}: packet files cannot be written below this path: it is a symbolic link or a file, and the recorder \
                 follows no link inside a store; make it a directory (to keep its files on another volume: mount \
                 --bind), or name another --store",
                path.display()
            ),
            Self::Segment(e) => e.fmt(f),
            Self::RecorderJoin(e) => write!(f, "the recorder cannot join the ring: {e}"),
            Self::BrokenStream(e) => e.fmt(f),
            Self::Claim(e) => e.fmt(f),
            Self::Program(e) => e.fmt(f),
            Self::NoProgram => f.write_str(
                "the capture was started without a program, and a program can only replace another; restart the \
                 capture with a program",
            ),
            Self::Groups(e) => e.fmt(f),
            Self::Meter(e) => e.fmt(f),
            Self::Spawn(e) => write!(f, "cannot create a thread: {e}"),
            Self::Panicked(thread) => write!(f, "the thread of {thread} panicked"),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<::duplicates::SettingsError> for EngineError {
    fn from(e: ::duplicates::SettingsError) -> Self {
        Self::Duplicates(e)
    }
}

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

impl From<SizesError> for EngineError {
    fn from(e: SizesError) -> Self {
        Self::Sizes(e)
    }
}

impl From<SegmentError> for EngineError {
    fn from(e: SegmentError) -> Self {
        Self::Segment(e)
    }
}
