//! Errors that end a query.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error that ends a query. Its text names the file or interface, and advises what to do.
#[derive(Debug)]
pub enum QueryError {
    /// A file or directory cannot be read.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system call that failed.
        error: io::Error,
    },
    /// The store has no interface with this name.
    NoInterface {
        /// The store.
        store: PathBuf,
        /// The name in the query.
        name: String,
        /// The names of the store's interfaces.
        known: Vec<String>,
    },
    /// The interval ends before it begins.
    Backwards {
        /// The first timestamp of the interval.
        from: base::Timestamp,
        /// The last timestamp of the interval.
        to: base::Timestamp,
    },
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {}", path.display(), sys::advice::unreadable(error)),
            Self::NoInterface { store, name, known } if known.is_empty() => {
                write!(f, "{}: nothing was recorded here, on {name} or any other interface", store.display())
            }
            Self::NoInterface { store, name, known } => {
                write!(
                    f,
                    "{}: nothing was recorded on {name}; recorded interfaces: {}",
                    store.display(),
                    known.join(", ")
                )
            }
            Self::Backwards { from, to } => {
                write!(f, "the interval ends ({to}) before it begins ({from}); exchange the two")
            }
        }
    }
}

impl std::error::Error for QueryError {}
