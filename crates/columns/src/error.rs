//! Why something cannot be written or read.

use crate::batch::Damage;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Names the thing, and what is the matter with it.
#[derive(Debug)]
pub enum ColumnsError {
    /// A file or folder cannot be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file that should be ours and whole is not; it is passed over by whoever reads more than this file.
    Damaged {
        /// Which.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Parts of a journal are damaged; the rest of it is in the answer, or sealed.
    Holes {
        /// Which; once it is sealed, under the name that it is kept by.
        path: PathBuf,
        /// Where the first of them is, and their bytes.
        damage: Damage,
        /// Whether the rest is sealed.
        sealed: bool,
    },
    /// Some rows of a file cannot be read; the others are in the answer.
    Rows {
        /// Which file.
        path: PathBuf,
        /// What was found.
        what: String,
        /// The first of those rows, counted from 0 at the beginning of the file.
        from: u64,
        /// How many.
        rows: u64,
    },
    /// A part of a file that this answer does not need is damaged; the answer is whole.
    Hint {
        /// Which.
        path: PathBuf,
        /// What was found.
        what: String,
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
}

impl ColumnsError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |error| Self::Io { path, error }
    }

    pub(crate) fn damaged(path: &Path, what: impl fmt::Display) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.to_string() }
    }
}

impl fmt::Display for ColumnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Damaged { path, what } => {
                write!(f, "{}: {what}; the file is passed over, move it away to be told no more", path.display())
            }
            Self::Holes { path, damage, sealed } => {
                write!(f, "{}: {damage}; ", path.display())?;
                f.write_str(match sealed {
                    true => "the rest is sealed, and this is the damaged journal",
                    false => "the rest is read",
                })
            }
            Self::Rows { path, what, from, rows } => {
                write!(f, "{}: {what}: {rows} rows, the first at {from}, cannot be read; ", path.display())?;
                f.write_str("the answer is without them, and the other rows of the file are read")
            }
            Self::Hint { path, what } => write!(f, "{}: {what}", path.display()),
            Self::NoInterface { store, name, known } if known.is_empty() => {
                write!(f, "{}: nothing was recorded here, on {name} or any other interface", store.display())
            }
            Self::NoInterface { store, name, known } => {
                write!(f, "{}: nothing was recorded on {name}; there is {}", store.display(), known.join(", "))
            }
        }
    }
}

impl std::error::Error for ColumnsError {}
