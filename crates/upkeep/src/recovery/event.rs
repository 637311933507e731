//! What recovery tells people.

use super::Outcome;
use base::Cause;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Something that was done or found. Its text is one line.
#[derive(Debug)]
pub enum Event {
    /// Room that a dead recorder had prepared was given back.
    Released {
        /// Where.
        folder: PathBuf,
        /// How many files were removed.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A file of a dead recorder was dealt with.
    Recovered {
        /// The name that it had.
        path: PathBuf,
        /// What became of it.
        outcome: Outcome,
    },
    /// An index without its packets was found, and kept.
    Orphan {
        /// Which.
        path: PathBuf,
    },
    /// A dead recorder had been offered packets that no file tells of.
    UnwrittenPackets {
        /// Of which interface.
        folder: PathBuf,
        /// And queue.
        queue: u16,
        /// How many.
        packets: u64,
    },
    /// There are more folders than are looked at when a recorder starts.
    Bounded {
        /// Of which interface.
        folder: PathBuf,
        /// How many were looked at.
        examined: usize,
    },
    /// Something could not be done.
    Trouble {
        /// To what.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released { folder, files, bytes } => write!(
                f,
                "{}: removed {files} empty files that a killed recorder had prepared, {bytes} bytes",
                folder.display()
            ),
            Self::Recovered { path, outcome } => match outcome {
                Outcome::Published { path, tally, aside, .. } => {
                    let lost = tally.lost[Cause::Crash as usize];
                    write!(f, "{}: recovered from a killed recorder, {} packets", path.display(), tally.stored)?;
                    if lost > 0 {
                        write!(f, ", {lost} lost (crash)")?;
                    }
                    match aside {
                        Some(aside) => {
                            write!(f, "; what could not be vouched for is kept as {}", aside.display())
                        }
                        None => Ok(()),
                    }
                }
                Outcome::Removed => {
                    write!(f, "{}: left by a killed recorder with nothing in it, removed", path.display())
                }
                Outcome::Held => write!(f, "{}: held by a living process, left alone", path.display()),
                Outcome::Unknown => write!(
                    f,
                    "{}: left by a killed recorder, but not what its name says; left alone: look at it with netgrain repair",
                    path.display()
                ),
            },
            Self::Orphan { path } => write!(
                f,
                "{}: an index without its packet file, which somebody removed; the index is kept for what it says of losses",
                path.display()
            ),
            Self::UnwrittenPackets { folder, queue, packets } => write!(
                f,
                "{}: a recorder of queue {queue} died with a file that somebody removed or published: {packets} \
                 packets that it was offered are in no file and in no ledger",
                folder.display()
            ),
            Self::Bounded { folder, examined: looked } => write!(
                f,
                "{}: looked for leftovers in its {looked} newest folders; netgrain repair looks at all",
                folder.display()
            ),
            Self::Trouble { path, error } => {
                write!(f, "{}: cannot be recovered: {error}; netgrain repair tries again", path.display())
            }
        }
    }
}
