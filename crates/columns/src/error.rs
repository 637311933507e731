//! Reasons why a file cannot be written or read.

use crate::batch::Damage;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error that names the file or interface and the reason.
#[derive(Debug)]
pub enum ColumnsError {
    /// A file or directory cannot be read or written.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A netgrain file that is damaged; operations on several files skip it.
    Damaged {
        /// The file.
        path: PathBuf,
        /// A description of the damage.
        what: String,
    },
    /// Parts of a journal are damaged; the undamaged rows are in the query result, or in the sealed file.
    Holes {
        /// Path of the journal; after sealing, the path to which the damaged journal was renamed.
        path: PathBuf,
        /// Offset of the first damaged byte, and the number of damaged bytes.
        damage: Damage,
        /// True if the undamaged rows were sealed into a file.
        sealed: bool,
    },
    /// Some rows of a file cannot be read; the damage does not affect the other rows.
    Rows {
        /// The file.
        path: PathBuf,
        /// A description of the damage.
        what: String,
        /// The first unreadable row, counted from 0 at the beginning of the file.
        from: u64,
        /// Number of unreadable rows.
        rows: u64,
        /// Number of rows of the file.
        of: u64,
    },
    /// A part of a file that this query does not need is damaged; the result is complete.
    Hint {
        /// The file.
        path: PathBuf,
        /// A description of the damage.
        what: String,
    },
    /// The store has no such interface.
    NoInterface {
        /// The store.
        store: PathBuf,
        /// The requested name.
        name: String,
        /// The interfaces that exist.
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
            Self::Io { path, error } => write!(f, "{}: {}", path.display(), sys::advice::cause(error)),
            Self::Damaged { path, what } => {
                write!(
                    f,
                    "{}: {what}; the file is skipped; move it out of the store to end this warning",
                    path.display()
                )
            }
            Self::Holes { path, damage, sealed } => {
                write!(f, "{}: {damage}; ", path.display())?;
                f.write_str(match sealed {
                    true => "the other rows are sealed, and this file is the damaged journal",
                    false => "the other rows are in the result",
                })
            }
            Self::Rows { path, what, rows, of, .. } if rows == of => {
                write!(
                    f,
                    "{}: {what}; the {rows} rows of the file cannot be read, and it has no other rows",
                    path.display()
                )
            }
            Self::Rows { path, what, from, rows, of } => write!(
                f,
                "{}: {what}; {rows} rows from row {from} on cannot be read; this damage does not affect the other {} \
                 rows of the file",
                path.display(),
                of.saturating_sub(*rows)
            ),
            Self::Hint { path, what } => write!(f, "{}: {what}", path.display()),
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
        }
    }
}

impl std::error::Error for ColumnsError {}
