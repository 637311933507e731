//! What a keeper tells.

use super::RemovalReason;
use base::Timestamp;
use base::units::show_bytes;
use std::fmt;
use std::path::PathBuf;
use store::device::Space;
use sys::locks::{Holder, holder_names};

/// Something people should know. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet file and its index are gone.
    Removed {
        /// The packet file; the index where there was only that.
        path: PathBuf,
        /// Bytes of the volume that both took.
        bytes: u64,
        /// By which rule.
        why: RemovalReason,
        /// There is an archive, and it could not be waited for.
        unarchived: bool,
    },
    /// They are in the archive now.
    Archived {
        /// Where it was.
        path: PathBuf,
        /// Where it is.
        to: PathBuf,
        /// Bytes of the store's volume that they took.
        bytes: u64,
        /// By which rule.
        why: RemovalReason,
    },
    /// Files in this folder should go, but a query reads there; it is waited for.
    Held {
        /// The folder of an hour.
        folder: PathBuf,
        /// The living processes that hold it, as far as they can be seen.
        by: Vec<Holder>,
    },
    /// The query was waited for long enough, and no other files can go: these go while it reads.
    Overruled {
        /// The folder of an hour.
        folder: PathBuf,
        /// As above.
        by: Vec<Holder>,
    },
    /// Something cannot be done.
    Warning(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed { path, bytes, why, unarchived } => {
                let archive = if *unarchived { ", without the archive, which could not be waited for" } else { "" };
                write!(f, "{}: removed{archive}, {}: {}", path.display(), show_bytes(*bytes), why.description())
            }
            Self::Archived { path, to, bytes, why } => {
                let (bytes, why) = (show_bytes(*bytes), why.description());
                write!(f, "{}: moved to {}, {bytes}: {why}", path.display(), to.display())
            }
            Self::Held { folder, by } => {
                let by = holder_names(by);
                write!(
                    f,
                    "{}: {by} holds this hour, as a query does; its files go when that has ended, or when no others \
                           are left to go",
                    folder.display()
                )
            }
            Self::Overruled { folder, by } => {
                let by = holder_names(by);
                write!(
                    f,
                    "{}: {by} still holds this hour, and no other files can go: these go; it keeps what it has open, \
                           and may miss the rest",
                    folder.display()
                )
            }
            Self::Warning(text) => f.write_str(text),
        }
    }
}

/// So many files, and the bytes of the volume that they took with their indexes.
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

/// How things stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionState {
    /// Published files that are kept.
    pub files: u64,
    /// Bytes of the volume that the interfaces take, files in work included.
    pub bytes: u64,
    /// The first moment of the oldest file kept.
    pub oldest: Option<Timestamp>,
    /// What was removed.
    pub removed: Count,
    /// What was moved to the archive.
    pub archived: Count,
    /// Those of the removed that the archive should have had.
    pub unarchived: Count,
    /// Hours that should have given files, but queries hold them.
    pub held: u64,
    /// The volume.
    pub space: Space,
    /// What cannot be done at this moment.
    pub trouble: Option<String>,
}
