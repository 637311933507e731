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
    /// The store has no such interface.
    NoInterface {
        /// The store.
        store: PathBuf,
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The interval ends before it begins.
    Backwards {
        /// What was asked as the first moment.
        from: base::Timestamp,
        /// What was asked as the last.
        to: base::Timestamp,
    },
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NoInterface { store, name, known } if known.is_empty() => {
                write!(f, "{}: nothing was recorded here, on {name} or any other interface", store.display())
            }
            Self::NoInterface { store, name, known } => {
                write!(f, "{}: nothing was recorded on {name}; there is {}", store.display(), known.join(", "))
            }
            Self::Backwards { from, to } => {
                write!(f, "the interval ends ({to}) before it begins ({from}); exchange the two")
            }
        }
    }
}

impl std::error::Error for QueryError {}
