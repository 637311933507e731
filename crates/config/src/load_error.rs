//! The reasons why a configuration file, or a program file that the configuration names, cannot be used.

use crate::error::ConfigError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The maximum length of a configuration file in bytes. A longer file is rejected.
pub(crate) const FILE_MAX: u64 = 1 << 20;

/// The reason why a configuration cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The file is too large for a configuration.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
    },
    /// The file has errors.
    Invalid {
        /// The file.
        path: PathBuf,
        /// The first error in the order of the lines of the file.
        first: ConfigError,
        /// The number of further errors.
        more: usize,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ADVICE: &str = "name a configuration file (netgrain config --dump prints one)";
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "{}: {}; {ADVICE}", path.display(), sys::advice::cause(error))
            }
            Self::TooLarge { path, length } => {
                let path = path.display();
                write!(f, "{path}: a configuration has at most {FILE_MAX} bytes, this file has {length}; {ADVICE}")
            }
            Self::Invalid { path, first, more } => {
                let path = path.display();
                write!(f, "{path}: {first}")?;
                match more {
                    0 => Ok(()),
                    n => write!(f, " (and {n} more; netgrain config --check {path} lists all)"),
                }
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// The file of a program cannot be read.
#[derive(Debug)]
pub struct UnreadableProgram {
    /// The file.
    pub path: PathBuf,
    /// The error of the system.
    pub error: io::Error,
}

impl fmt::Display for UnreadableProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = sys::advice::cause(&self.error);
        write!(f, "{}: {cause}; name a file with a program (netgrain lang check FILE)", self.path.display())
    }
}

impl std::error::Error for UnreadableProgram {}
