//! The events of a retention worker.

use super::RemovalReason;
use base::Timestamp;
use base::units::show_bytes;
use std::fmt;
use std::path::PathBuf;
use store::device::Space;
use sys::locks::{Holder, holder_names};

/// An event for the log. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet file and its index were deleted.
    Removed {
        /// Path of the packet file, or of the index if there was no packet file.
        path: PathBuf,
        /// Bytes of the volume that packet file and index took.
        bytes: u64,
        /// The rule.
        why: RemovalReason,
        /// True if an archive is configured, but retention removed the file without archiving it, to free space
        /// immediately.
        unarchived: bool,
    },
    /// A packet file and its index were moved to the archive.
    Archived {
        /// The path in the store.
        path: PathBuf,
        /// The path in the archive.
        to: PathBuf,
        /// Bytes of the store's volume that packet file and index took.
        bytes: u64,
        /// The rule.
        why: RemovalReason,
    },
    /// Files in this directory should be removed, but a query holds it; retention waits.
    Held {
        /// The hour directory.
        directory: PathBuf,
        /// The processes that hold the directory, as far as they are visible to this process.
        by: Vec<Holder>,
    },
    /// The wait for the query has ended, and no file outside of this directory can be removed: retention removes the
    /// files in this directory although the query holds it.
    Overruled {
        /// The hour directory.
        directory: PathBuf,
        /// The processes that hold the directory, as far as they are visible to this process.
        by: Vec<Holder>,
    },
    /// An operation failed.
    Warning(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed { path, bytes, why, unarchived } => {
                let archive = if *unarchived { " without archiving" } else { "" };
                write!(f, "{}: removed{archive}, {}: {}", path.display(), show_bytes(*bytes), why.description())
            }
            Self::Archived { path, to, bytes, why } => {
                let (bytes, why) = (show_bytes(*bytes), why.description());
                write!(f, "{}: moved to {}, {bytes}: {why}", path.display(), to.display())
            }
            Self::Held { directory, by } => {
                let by = holder_names(by);
                write!(
                    f,
                    "{}: {by} holds this hour, as a query does; retention removes its files when the hold ends, or \
                     when no other files can be removed",
                    directory.display()
                )
            }
            Self::Overruled { directory, by } => {
                let by = holder_names(by);
                write!(
                    f,
                    "{}: {by} still holds this hour, and no other files can be removed: retention removes the files of \
                     this hour; the process keeps the files that it has open, and may miss the others",
                    directory.display()
                )
            }
            Self::Warning(text) => f.write_str(text),
        }
    }
}

/// A number of packet files, and the bytes of the volume that they took with their indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packet files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// The status of a retention worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionState {
    /// Published files in the store.
    pub files: u64,
    /// Bytes of the volume that the interfaces take, unpublished files included.
    pub bytes: u64,
    /// The part of `bytes` that unpublished files take: files that are being written, and prepared files.
    pub unpublished_bytes: u64,
    /// The start time of the oldest file.
    pub oldest: Option<Timestamp>,
    /// Files removed.
    pub removed: Count,
    /// Files moved to the archive.
    pub archived: Count,
    /// Files that were removed without being moved to the archive, although an archive is configured.
    pub unarchived: Count,
    /// Number of hour directories that retention skipped because queries hold them.
    pub held: u64,
    /// The space of the volume.
    pub space: Space,
    /// The last failure of the worker; `None` once the failure is resolved.
    pub trouble: Option<String>,
}
