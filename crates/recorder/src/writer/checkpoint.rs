//! A checkpoint makes the current content of an open file survive a power failure; it is made twice a second. It syncs
//! the packets first, and then the index with the checksums of the packets. The first checkpoint of a file also syncs
//! its directory entries. After a power failure, the checksums show which later writes have survived.
//!
//! After a power failure, the index entries on disk must verify the packets on disk. So the entry of the block that is
//! being filled is not updated between the begin of the packets' sync and the end of the index's sync. On an interface
//! with much traffic this delays no entry, because checkpoints then begin at the end of a block. A synced entry is not
//! overwritten before a newer entry is written ([`index::Growing`]), and if an entry survives without its packets,
//! recovery uses the previous entry.
//!
//! A failed sync of a checkpoint is not repeated, because the kernel may have dropped the pages that it could not write
//! and would then report success. The file is not published then, just as after a failed sync at the end of the file.

use std::io;
use std::path::Path;
use std::time::Duration;
use store::device::{Device, FileId, Op};

/// The shortest time between the begins of two checkpoints; a checkpoint begins at the end of a block, or after twice
/// this time if no block becomes full. At a low packet rate, packets also wait in the ring for up to one second, and a
/// sync takes time, so a power failure loses the packets of the last second or slightly more.
const PERIOD: Duration = Duration::from_millis(500);

/// The state of a file's checkpoints.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// True if data was written since the last checkpoint began.
    dirty: bool,
    /// Begin of the last checkpoint.
    begun: Duration,
    step: Step,
    /// True if the directory was synced with the names of the packet file and its index.
    named: bool,
    /// The block whose entry was not final when the sync of the packets began.
    filling: Option<u32>,
    /// The error of a failed checkpoint.
    failed: Option<io::Error>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Rest,
    /// The sync of the packets is in progress; the field is the token of the sync.
    Data(u64),
    /// The sync of the packets is complete, and the sync of the index must be started.
    IndexDue,
    Index(u64),
    /// The sync of the index is complete, and the sync of the directory must be started.
    DirectoryDue,
    Directory(FileId, u64),
}

/// The files of a checkpoint.
pub(super) struct SyncedFile<'a> {
    pub data: FileId,
    pub index: FileId,
    pub directory: &'a Path,
    /// The block whose index entry is not final.
    pub filling: Option<u32>,
}

/// The sync that was started.
pub(super) enum StartedSync {
    /// The sync of the index.
    Index,
    /// The sync of the packets or of the directory.
    Other,
}

impl Checkpoint {
    /// Registers that data was written.
    pub fn touch(&mut self) {
        self.dirty = true;
    }

    /// Removes and returns the error of a failed checkpoint, so that it is reported once.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// The token of the sync in progress.
    pub fn token(&self) -> Option<u64> {
        match self.step {
            Step::Data(token) | Step::Index(token) | Step::Directory(_, token) => Some(token),
            Step::Rest | Step::IndexDue | Step::DirectoryDue => None,
        }
    }

    /// True if the index entry of this block must not be updated now, because a checkpoint is syncing the packets or
    /// the index.
    pub fn guards(&self, block: u32) -> bool {
        self.filling == Some(block) && matches!(self.step, Step::Data(_) | Step::IndexDue | Step::Index(_))
    }

    /// True if a sync is in progress.
    pub fn is_in_progress(&self) -> bool {
        self.token().is_some()
    }

    fn is_due(&self, now: Duration, filling: Option<u32>) -> bool {
        let pause = if filling.is_some() { 2 * PERIOD } else { PERIOD };
        self.dirty && self.failed.is_none() && now.saturating_sub(self.begun) >= pause
    }

    /// Starts the sync that is due, with this token; `None` if none is due. If the device is busy or refuses the sync,
    /// the next call retries.
    pub fn start<D: Device>(
        &mut self,
        device: &mut D,
        file: &SyncedFile<'_>,
        token: u64,
        now: Duration,
    ) -> Option<StartedSync> {
        let (synced, next) = match self.step {
            Step::Rest if self.is_due(now, file.filling) => (file.data, Step::Data(token)),
            Step::IndexDue => (file.index, Step::Index(token)),
            // The error is not reported here: publication of the file gets the same error and reports it.
            Step::DirectoryDue => {
                let directory = device.open_directory(file.directory).ok()?;
                (directory, Step::Directory(directory, token))
            }
            _ => return None,
        };
        if device.start(synced, Op::Sync, token).is_err() {
            if let Step::Directory(directory, _) = next {
                device.close(directory);
            }
            return None;
        }
        let started = match next {
            Step::Data(_) => {
                (self.dirty, self.begun, self.filling) = (false, now, file.filling);
                StartedSync::Other
            }
            Step::Index(_) => StartedSync::Index,
            _ => StartedSync::Other,
        };
        self.step = next;
        Some(started)
    }

    /// Processes the completion of the sync in progress. Returns true if the index was synced successfully.
    pub fn complete<D: Device>(&mut self, device: &mut D, result: io::Result<usize>) -> bool {
        let is_index_synced = matches!((&self.step, &result), (Step::Index(_), Ok(_)));
        self.step = match (std::mem::take(&mut self.step), result) {
            (Step::Data(_), Ok(_)) => Step::IndexDue,
            (Step::Index(_), Ok(_)) if !self.named => Step::DirectoryDue,
            // A failed sync of the directory is not an error here: the names are in the file system's journal, and
            // publication syncs the directory again.
            (Step::Directory(directory, _), _) => {
                self.named = true;
                device.close(directory);
                Step::Rest
            }
            (_, Ok(_)) => Step::Rest,
            (_, Err(error)) => {
                self.failed = Some(error);
                Step::Rest
            }
        };
        is_index_synced
    }
}
