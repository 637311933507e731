//! The errors of programs, of sinks and of the groups of an engine.

use capture::egress::EgressError;
use filter::FilterError;
use jit::Refusal;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why a group cannot run a program.
#[derive(Debug)]
pub enum GroupProgramError {
    /// The text is not a program of the packet language.
    Language {
        /// The error.
        error: lang::Error,
        /// The line of the error, from 1.
        line: usize,
        /// The column of the error, from 1.
        column: usize,
    },
    /// The program forwards to more interfaces than are supported. The error contains the number of interfaces.
    Interfaces(usize),
    /// The program is `copy`, `steer` or `drop` with an invalid filter.
    Filter(FilterError),
    /// The program can run neither as machine code nor interpreted.
    Refused(Refusal),
}

impl fmt::Display for GroupProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Language { error, line, column } => {
                write!(f, "program, line {line}, column {column}: {}", error.what)?;
                error.help.iter().try_for_each(|help| write!(f, "; {help}"))
            }
            Self::Interfaces(n) => write!(f, "the program forwards to {n} interfaces; at most 256 are possible"),
            Self::Filter(e) => write!(f, "filter: {e}"),
            Self::Refused(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for GroupProgramError {}

/// The reason why a sink cannot be opened.
#[derive(Debug)]
pub enum SinkError {
    /// The egress interface cannot be opened.
    Egress(EgressError),
    /// The file exists already.
    Exists(PathBuf),
    /// The file cannot be created.
    File(PathBuf, io::Error),
    /// The system cannot create a thread.
    Thread(io::Error),
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Egress(e) => e.fmt(f),
            Self::Exists(path) => write!(f, "{}: exists already; name another file", path.display()),
            Self::File(path, e) => write!(f, "{}: cannot be written: {e}", path.display()),
            Self::Thread(e) => write!(f, "cannot create a thread for a sink: {e}"),
        }
    }
}

impl std::error::Error for SinkError {}

/// The reason why a group of the configuration could not be created or changed as planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlanError {
    /// The group.
    pub group: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for GroupPlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}: {}", self.group, self.reason)
    }
}

impl std::error::Error for GroupPlanError {}

/// The reason why the groups could not start or ended early.
#[derive(Debug)]
pub enum GroupsError {
    /// A dispatcher cannot join its ring.
    Join(ring::JoinError),
    /// A group of the configuration cannot be created.
    Plan(GroupPlanError),
    /// The control socket for groups failed. The error contains the path of the socket.
    Socket(PathBuf, io::Error),
    /// A dispatcher's thread could not be started.
    Thread(io::Error),
    /// A dispatcher panicked.
    Panicked,
}

impl fmt::Display for GroupsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(e) => write!(f, "a dispatcher of groups cannot join the ring: {e}"),
            Self::Plan(e) => e.fmt(f),
            Self::Socket(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Thread(e) => write!(f, "cannot create a thread: {e}"),
            Self::Panicked => f.write_str("the thread of a dispatcher of groups panicked"),
        }
    }
}

impl std::error::Error for GroupsError {}
