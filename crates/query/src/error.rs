//! Why there is no answer.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Names the thing and says what to do.
#[derive(Debug)]
pub enum QueryError {
    /// A file or folder cannot be read.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for QueryError {}
