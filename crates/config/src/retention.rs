//! The retention rules that a user configures, and their conversion to rules for the files of a store.

use crate::table::Config;
use crate::units::{MIN_SEGMENT, exact_size};
use crate::value::KeepFree;
use base::units::show_bytes;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::DiskDevice;
use store::device::{Housekeeping, Space};
use upkeep::retention::{Free, Rules};

/// The minimum number of files for which an interface must have space: the file being written, the file prepared after
/// it, the file being completed, and one file to keep.
const MIN_FILES: u64 = 4;

/// The smallest permitted value of a maximum age: retention by age never removes a file that is younger.
pub const MIN_AGE: Duration = Duration::from_secs(1);

/// The reason why retention rules cannot be applied to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetentionError {
    /// The maximum total size is too small for the files that a recorder needs.
    MaxSize {
        /// The maximum total size in bytes.
        max_size: u64,
        /// The size in bytes of the files that a recorder makes; `None` if the rules are applied without a recorder.
        segment: Option<u64>,
    },
    /// The maximum age is less than [`MIN_AGE`].
    MaxAge,
    /// The space to keep free is more than half of the volume.
    KeepFree {
        /// The space to keep free in bytes.
        wanted: u64,
        /// The directory of the store.
        store: PathBuf,
        /// The size in bytes of the volume of the store.
        total: u64,
    },
    /// The archive is not a directory.
    NoArchive(PathBuf),
    /// The archive is in the store.
    ArchiveInStore(PathBuf),
}

impl RetentionError {
    /// The key of the section `packets` whose value causes this error.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::MaxSize { .. } => "packets.max_size",
            Self::MaxAge => "packets.max_age",
            Self::KeepFree { .. } => "packets.keep_free",
            Self::NoArchive(_) | Self::ArchiveInStore(_) => "packets.archive",
        }
    }
}

impl fmt::Display for RetentionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxSize { max_size, segment } => {
                let (files, advice) = match segment {
                    Some(segment) => (exact_size(*segment), "write a larger size, or a smaller --segment"),
                    None => {
                        let files = format!("{}, the smallest size of a packet file", exact_size(MIN_SEGMENT));
                        (files, "write a larger size with its unit, as in 200GB")
                    }
                };
                let max_size = exact_size(*max_size);
                write!(f, "--max-size {max_size} is less than {MIN_FILES} files of {files}: {advice}")
            }
            Self::MaxAge => f.write_str("--max-age: less than a second would empty the store: write 30d, 12h"),
            Self::KeepFree { wanted, store, total } => write!(
                f,
                "--keep-free {}: the volume of {} has {}, of which at most half can be kept free: write less, or up \
                 to 50%",
                exact_size(*wanted),
                store.display(),
                show_bytes(*total)
            ),
            Self::NoArchive(archive) => {
                write!(f, "--archive {}: no such directory; mount its volume, or create it", archive.display())
            }
            Self::ArchiveInStore(archive) => {
                let archive = archive.display();
                write!(f, "--archive {archive} is inside of the store; name a directory outside of it")
            }
        }
    }
}

impl std::error::Error for RetentionError {}

/// The retention rules for the packet files of an interface.
#[derive(Clone, Debug)]
pub struct RetentionRules {
    /// Space to keep free; `None` lets a recorder make space for its next files.
    pub keep_free: Option<KeepFree>,
    /// The maximum total size in bytes of the files of each interface.
    pub max_size: Option<u64>,
    /// The maximum age of a file.
    pub max_age: Option<Duration>,
    /// The directory to which files are moved instead of being removed.
    pub archive: Option<PathBuf>,
    /// The longest time that retention waits for a query that reads the files to remove.
    pub wait_for_readers: Duration,
}

impl RetentionRules {
    /// The rules of the section `packets` of the configuration.
    pub fn of(config: &Config) -> Self {
        let packets = &config.packets;
        Self {
            keep_free: packets.keep_free.0,
            max_size: packets.max_size.map(|size| size.0),
            max_age: packets.max_age.map(|age| age.0),
            archive: packets.archive.clone(),
            wait_for_readers: config.store.wait_for_readers,
        }
    }

    /// The retention rules for the files of a store; `segment` is the size in bytes of the files that a recorder makes.
    ///
    /// # Errors
    /// The rules would keep no file, or the volume or the archive cannot satisfy them.
    pub fn for_files_of(&self, store: &Path, segment: Option<u64>) -> Result<Rules, RetentionError> {
        let smallest = segment.unwrap_or(MIN_SEGMENT);
        if let Some(max_size) = self.max_size.filter(|most| most / MIN_FILES < smallest) {
            return Err(RetentionError::MaxSize { max_size, segment });
        }
        if self.max_age.is_some_and(|age| age < MIN_AGE) {
            return Err(RetentionError::MaxAge);
        }
        if let Some(KeepFree::Some(Free::Bytes(wanted))) = self.keep_free
            && let Some(Space { total, .. }) = volume(store)
            && wanted > total / 2
        {
            return Err(RetentionError::KeepFree { wanted, store: store.to_owned(), total });
        }
        if let Some(archive) = &self.archive {
            let inside = |directory: &Path| directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
            if !archive.is_dir() {
                return Err(RetentionError::NoArchive(archive.clone()));
            }
            if inside(archive).starts_with(inside(store)) {
                return Err(RetentionError::ArchiveInStore(archive.clone()));
            }
        }
        let keep_free = match self.keep_free {
            Some(KeepFree::Some(free)) => Some(free),
            Some(KeepFree::None) | None => None,
        };
        let archive = self.archive.clone();
        let wait = self.wait_for_readers;
        Ok(Rules { keep_free, max_size: self.max_size, max_age: self.max_age, ahead: 0, archive, wait })
    }
}

/// Returns the space of the volume that contains the store. If the store does not exist, the function uses the volume
/// of its nearest existing parent directory.
fn volume(store: &Path) -> Option<Space> {
    let whole = std::path::absolute(store).ok()?;
    let there = whole.ancestors().find(|directory| directory.is_dir())?;
    DiskDevice::plain().space(there).ok().filter(|space| space.total > 0)
}
