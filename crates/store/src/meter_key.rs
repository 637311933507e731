//! The secret key with which the meter of an interface hashes addresses, and the file that keeps the key.
//!
//! A UDP sender can choose source addresses freely. If the sender knew the key, it could choose many addresses that the
//! estimate of distinct addresses counts as one (so that a scan is invisible in the time series), or one address that
//! the estimate counts as millions. So each interface has a random key from its first recording on. The key is stored
//! in the store ([`METER_KEY`] in the directory of the interface), so that metering the same packets again gives the
//! same estimates. A user who can read the key can also read the packets. Files outside of a store are metered with the
//! public key [`MeterKey::OPEN`], so that each replay gives the same rows. A public key is harmless for such files,
//! because no sender can add addresses to an existing file.

use crate::names::{METER_KEY, interface_directory};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use sys::nofollow::{self, OpenOptions};

/// Number of directory levels from a packet file up to the directory of its interface: hour, day, month, year,
/// interface.
const DEPTH: usize = 5;

/// The secret key of the address hash: sixteen hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterKey(pub u64);

impl MeterKey {
    /// The public key for packets outside of a store.
    pub const OPEN: Self = Self(0);

    /// Reads the key from an interface directory; `None` if the directory contains no key.
    ///
    /// # Errors
    /// The file cannot be read, or does not contain a key.
    pub fn read(directory: &Path) -> Result<Option<Self>, MeterKeyError> {
        let path = directory.join(METER_KEY);
        match nofollow::read_to_string(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(key) => Ok(Some(key)),
                Err(error) => Err(MeterKeyError::Invalid { path, error }),
            },
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(MeterKeyError::Io { path, error }),
        }
    }

    /// The key of an interface in a store; [`MeterKey::OPEN`] if the interface has no key.
    ///
    /// # Errors
    /// The errors of [`MeterKey::read`].
    pub fn of_interface(store: &Path, interface: &str) -> Result<Self, MeterKeyError> {
        Ok(Self::read(&interface_directory(store, interface))?.unwrap_or(Self::OPEN))
    }

    /// The key with which a packet file of a store was first metered. `None` for a file outside of a store. Also `None`
    /// for a missing file: the caller opens the file afterwards and gets the error then.
    ///
    /// # Errors
    /// The errors of [`MeterKey::read`].
    pub fn of_file(path: &Path) -> Result<Option<Self>, MeterKeyError> {
        let Ok(path) = path.canonicalize() else { return Ok(None) };
        for directory in path.ancestors().skip(1).take(DEPTH) {
            if let Some(key) = Self::read(directory)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Writes the key into an interface directory, unless a key exists and `replace` is false; returns the valid key.
    ///
    /// # Errors
    /// The directory or the file cannot be written.
    pub fn keep(self, directory: &Path, replace: bool) -> Result<Self, MeterKeyError> {
        // The key is the first file written into a store, so an unwritable store is reported here.
        nofollow::create_directories(directory).map_err(|error| MeterKeyError::Store {
            store: directory.parent().unwrap_or(directory).to_owned(),
            error,
        })?;
        let (path, complete) =
            (directory.join(METER_KEY), directory.join(format!("{METER_KEY}.{}", std::process::id())));
        let written = self.write(&complete).and_then(|()| {
            if replace {
                return nofollow::rename(&complete, &path);
            }
            // Another run on the same interface may write its key first. link(2) either publishes a complete key or
            // fails if a key exists.
            let linked = nofollow::link(&complete, &path);
            nofollow::remove(&complete)?;
            linked
        });
        match written {
            Ok(()) => Ok(self),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(Self::read(directory)?.unwrap_or(self)),
            Err(error) => Err(MeterKeyError::Io { path, error }),
        }
    }

    fn write(self, path: &Path) -> io::Result<()> {
        // The hidden file of an earlier run that was killed at this point is overwritten.
        let options = OpenOptions { write: true, create: Some(0o640), ..OpenOptions::default() };
        let mut file = nofollow::open_as(path, options)?;
        file.set_len(0)?;
        writeln!(file, "{self}")?;
        file.sync_all()
    }
}

impl FromStr for MeterKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let value = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        value.map(Self).ok_or_else(|| NotAKey(text.to_owned()))
    }
}

impl fmt::Display for MeterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The error for a text that is not a secret key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAKey(pub String);

impl fmt::Display for NotAKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a secret key: write sixteen hexadecimal digits", self.0)
    }
}

impl std::error::Error for NotAKey {}

/// The reason why a key cannot be read or written.
#[derive(Debug)]
pub enum MeterKeyError {
    /// The directory of the interface cannot be created.
    Store {
        /// The store.
        store: PathBuf,
        /// The error that the system call returned.
        error: io::Error,
    },
    /// The file of the key cannot be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// The error that the system call returned.
        error: io::Error,
    },
    /// The file does not contain a key.
    Invalid {
        /// The file.
        path: PathBuf,
        /// Its contents.
        error: NotAKey,
    },
}

impl fmt::Display for MeterKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store { store, error } => write!(
                f,
                "{}: cannot record into this directory: {}; name a directory on a writable volume with --store",
                store.display(),
                sys::advice::cause(error)
            ),
            Self::Io { path, error } => write!(
                f,
                "{}: {}; this file contains the secret key of the interface (docs/reference/run.md)",
                path.display(),
                sys::advice::cause(error)
            ),
            Self::Invalid { path, error } => {
                write!(f, "{}: {error}; remove the file; the next run creates a new key", path.display())
            }
        }
    }
}

impl std::error::Error for MeterKeyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use testkit::TempDir;

    #[test]
    fn the_first_key_stays_unless_it_is_replaced() {
        let dir = TempDir::new("the_first_key_stays");
        let directory = dir.join("eth1");
        assert_eq!(MeterKey::read(&directory).expect("a missing directory"), None);
        assert_eq!(MeterKey(7).keep(&directory, false).expect("a key"), MeterKey(7));
        assert_eq!(MeterKey(8).keep(&directory, false).expect("a key"), MeterKey(7));
        assert_eq!(MeterKey::of_interface(dir.path(), "eth1").expect("a key"), MeterKey(7));
        assert_eq!(MeterKey(8).keep(&directory, true).expect("a key"), MeterKey(8));
        assert_eq!(MeterKey::read(&directory).expect("a key"), Some(MeterKey(8)));
        assert_eq!(MeterKey::of_interface(dir.path(), "eth2").expect("no key"), MeterKey::OPEN);
    }

    #[test]
    fn a_file_has_the_key_of_its_store() {
        let dir = TempDir::new("a_file_has_the_key_of_its_store");
        let hour = dir.join("eth1/2026/11/22/05");
        fs::create_dir_all(&hour).expect("directories");
        fs::write(hour.join("a.pcap"), "").expect("a file");
        fs::write(dir.join("b.pcap"), "").expect("a file");
        MeterKey(5).keep(&dir.join("eth1"), false).expect("a key");
        assert_eq!(MeterKey::of_file(&hour.join("a.pcap")).expect("a key"), Some(MeterKey(5)));
        assert_eq!(MeterKey::of_file(&dir.join("b.pcap")).expect("no key"), None);
        assert_eq!(MeterKey::of_file(&dir.join("missing")).expect("no key"), None);
    }

    #[test]
    fn an_unwritable_store_and_an_invalid_key_are_errors_with_a_path() {
        let dir = TempDir::new("an_unwritable_store");
        let store = dir.join("store");
        fs::write(&store, "").expect("a file");
        let error = MeterKey(1)
            .keep(&store.join("eth1"), false)
            .expect_err("a store path that is a file is an error")
            .to_string();
        assert!(error.starts_with(&format!("{}: cannot record into this directory", store.display())), "{error}");
        assert!(error.contains("--store") && !error.contains(METER_KEY), "{error}");
        fs::write(dir.join(METER_KEY), "abc").expect("a file");
        let error = MeterKey::read(dir.path()).expect_err("no key").to_string();
        assert!(error.contains(METER_KEY) && error.contains("sixteen"), "{error}");
    }
}
