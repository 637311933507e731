//! The events of recovery.

use super::Outcome;
use base::Cause;
use base::units::{plural, show_bytes};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An action or a finding of recovery. Its text is one line.
#[derive(Debug)]
pub enum Event {
    /// Files that a killed recorder had prepared in advance were removed.
    Released {
        /// The directory.
        directory: PathBuf,
        /// Number of files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A file of a killed recorder was recovered.
    Recovered {
        /// The path before the recovery.
        path: PathBuf,
        /// The outcome.
        outcome: Outcome,
    },
    /// An index without packet file was found, and kept.
    Orphan {
        /// The index.
        path: PathBuf,
    },
    /// A killed recorder was offered packets that no file accounts for.
    UnwrittenPackets {
        /// The directory of the interface.
        directory: PathBuf,
        /// The queue.
        queue: u16,
        /// Number of packets.
        packets: u64,
    },
    /// The recovery examined the newest hour directories and skipped the others, because there are too many.
    Bounded {
        /// The directory of the interface.
        directory: PathBuf,
        /// Number of directories examined.
        examined: usize,
    },
    /// An operation failed.
    Trouble {
        /// The file or directory.
        path: PathBuf,
        /// The error that the system call returned.
        error: io::Error,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released { directory, files, bytes } => write!(
                f,
                "{}: removed {} that a killed recorder had prepared, {}",
                directory.display(),
                plural(*files, "empty file", "empty files"),
                show_bytes(*bytes)
            ),
            Self::Recovered { path, outcome } => match outcome {
                Outcome::Published { path, tally, aside, .. } => {
                    let lost = tally.lost[Cause::Crash as usize];
                    write!(f, "{}: recovered from a killed recorder, {} packets", path.display(), tally.stored)?;
                    if lost > 0 {
                        write!(f, ", {lost} lost (crash)")?;
                    }
                    match aside {
                        Some(aside) => write!(
                            f,
                            "; the bytes that no checksum verifies are kept as {0}: netgrain repair {0} saves their \
                             complete packets",
                            aside.display()
                        ),
                        None => Ok(()),
                    }
                }
                Outcome::Removed => {
                    write!(f, "{}: empty file of a killed recorder, removed", path.display())
                }
                Outcome::Held => {
                    write!(f, "{}: not recovered, because a running process has locked it", path.display())
                }
                Outcome::Unknown => write!(
                    f,
                    "{}: a killed recorder left this file, but its content does not match its name; not changed: run \
                     netgrain repair on it",
                    path.display()
                ),
            },
            Self::Orphan { path } => write!(
                f,
                "{}: an index without its packet file, which was removed; the index is kept for its counts of lost \
                 packets",
                path.display()
            ),
            Self::UnwrittenPackets { directory, queue, packets } => write!(
                f,
                "{}: the recorder of queue {queue} was killed, and its file was removed or published since: {packets} \
                 packets that it was offered are in no file and in no ledger",
                directory.display()
            ),
            Self::Bounded { directory, examined } => write!(
                f,
                "{}: searched the {examined} newest directories for files of killed recorders; netgrain repair \
                 searches all",
                directory.display()
            ),
            Self::Trouble { path, error } => {
                write!(f, "{}: cannot be recovered: {error}; to try again, run netgrain repair", path.display())
            }
        }
    }
}
