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

use super::Writer;
use crate::writer::file::OpenFile;
use std::io;
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

impl Checkpoint {
    /// Registers that data was written.
    pub fn touch(&mut self) {
        self.dirty = true;
    }

    /// Removes and returns the error of a failed checkpoint, so that it is reported once.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    fn token(&self) -> Option<u64> {
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
}

impl<D: Device> Writer<D> {
    /// Starts the syncs that are due. If the device is busy or refuses a sync, the next step retries.
    pub(super) fn checkpoint(&mut self, now: Duration) {
        for i in 0..self.files.len() {
            let token = self.token + 1;
            let filling = self.files[i].filling();
            let OpenFile { data, index, checkpoint, directory, .. } = &mut self.files[i];
            let (file, next) = match checkpoint.step {
                Step::Rest if checkpoint.is_due(now, filling) => (*data, Step::Data(token)),
                Step::IndexDue => (*index, Step::Index(token)),
                // The error is not reported here: publication of the file gets the same error and reports it.
                Step::DirectoryDue => match self.device.open_directory(directory) {
                    Ok(directory) => (directory, Step::Directory(directory, token)),
                    Err(_) => continue,
                },
                _ => continue,
            };
            if !self.files[i].is_open() || self.device.start(file, Op::Sync, token).is_err() {
                if let Step::Directory(directory, _) = next {
                    self.device.close(directory);
                }
                continue;
            }
            self.token = token;
            if matches!(next, Step::Index(_)) {
                self.files[i].growing.sync_begins();
            }
            let checkpoint = &mut self.files[i].checkpoint;
            if matches!(next, Step::Data(_)) {
                (checkpoint.dirty, checkpoint.begun, checkpoint.filling) = (false, now, filling);
            }
            checkpoint.step = next;
        }
    }

    /// Processes the completion of a checkpoint's sync; returns false if the token belongs to no checkpoint.
    pub(super) fn checkpointed(&mut self, token: u64, result: &mut io::Result<usize>) -> bool {
        let Some(file) = self.files.iter_mut().find(|f| f.checkpoint.token() == Some(token)) else { return false };
        let checkpoint = &mut file.checkpoint;
        let result = std::mem::replace(result, Ok(0));
        if matches!((&checkpoint.step, &result), (Step::Index(_), Ok(_))) {
            file.growing.sync_ends();
        }
        checkpoint.step = match (std::mem::take(&mut checkpoint.step), result) {
            (Step::Data(_), Ok(_)) => Step::IndexDue,
            (Step::Index(_), Ok(_)) if !checkpoint.named => Step::DirectoryDue,
            // A failed sync of the directory is not an error here: the names are in the file system's journal, and
            // publication syncs the directory again.
            (Step::Directory(directory, _), _) => {
                checkpoint.named = true;
                self.device.close(directory);
                Step::Rest
            }
            (_, Ok(_)) => Step::Rest,
            (_, Err(error)) => {
                checkpoint.failed = Some(error);
                Step::Rest
            }
        };
        true
    }
}
