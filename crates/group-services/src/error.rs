//! The reasons why the groups of an engine could not start or ended early.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why the groups could not start or ended early.
#[derive(Debug)]
pub enum GroupsError {
    /// A dispatcher cannot join its ring.
    Join(ring::JoinError),
    /// A group of the configuration failed; with the reason.
    Group(String),
    /// The control socket failed; with its path.
    Socket(PathBuf, io::Error),
    /// A dispatcher's thread could not be started.
    Thread(io::Error),
    /// A dispatcher panicked.
    Panicked,
}

impl fmt::Display for GroupsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(e) => write!(f, "no gate for groups: {e}"),
            Self::Group(text) => f.write_str(text),
            Self::Socket(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Thread(e) => write!(f, "thread: {e}"),
            Self::Panicked => f.write_str("thread: a dispatcher of groups panicked"),
        }
    }
}

impl std::error::Error for GroupsError {}
