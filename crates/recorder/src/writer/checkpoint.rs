//! Twice a second, what an open file has so far is made to survive a power failure: its packets first, then the index that
//! vouches for them, and the first time their names too. Whatever part of later writes survives besides, the checksums tell.
//!
//! What survives must vouch for packets that survive, so nothing new is said of the block that is filling from the sync of
//! its packets to that of the index; a port with much traffic is not held up by that, because there a checkpoint waits for
//! the end of a block. What was synced is not written over before newer words are ([`index::Growing`]), and of words that
//! survive although their packets did not, recovery goes back to those before.
//!
//! A sync that failed is not repeated: the kernel may have dropped what it could not write and would then report success.
//! Such a file is not published, as when the sync at its end fails.

use super::Writer;
use crate::writer::file::OpenFile;
use std::io;
use std::time::Duration;
use store::device::{Device, FileId, Op};

/// From the beginning of one to that of the next, at least; twice that where no block fills in the meantime. With the second that packets may wait in the ring on a quiet port, and
/// the time that a sync takes, a power failure costs the last second or little more.
const PERIOD: Duration = Duration::from_millis(500);

/// How far the safety of an open file has come.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// Something was written since the last one began.
    dirty: bool,
    /// When the last one began.
    begun: Duration,
    step: Step,
    /// The folder was synced with both names in it.
    named: bool,
    /// The block whose entry vouches for a part of it, since the packets' sync began.
    filling: Option<u32>,
    /// Why one failed.
    failed: Option<io::Error>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Rest,
    /// The packets are on their way, with this token.
    Data(u64),
    /// The index is to follow.
    IndexDue,
    Index(u64),
    /// So are the names.
    FolderDue,
    Folder(FileId, u64),
}

impl Checkpoint {
    /// Something was written.
    pub fn touch(&mut self) {
        self.dirty = true;
    }

    /// Why an earlier one failed: told once.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    fn token(&self) -> Option<u64> {
        match self.step {
            Step::Data(token) | Step::Index(token) | Step::Folder(_, token) => Some(token),
            Step::Rest | Step::IndexDue | Step::FolderDue => None,
        }
    }

    /// Whether nothing new may be said of this block now.
    pub fn guards(&self, block: u32) -> bool {
        self.filling == Some(block) && matches!(self.step, Step::Data(_) | Step::IndexDue | Step::Index(_))
    }

    /// Whether it waits for the device.
    pub fn is_under_way(&self) -> bool {
        self.token().is_some()
    }

    fn is_due(&self, now: Duration, filling: Option<u32>) -> bool {
        let pause = if filling.is_some() { 2 * PERIOD } else { PERIOD };
        self.dirty && self.failed.is_none() && now.saturating_sub(self.begun) >= pause
    }
}

impl<D: Device> Writer<D> {
    /// Begins what is due. A device that has its hands full, or refuses to begin, is asked again at the next step.
    pub(super) fn checkpoint(&mut self, now: Duration) {
        for i in 0..self.files.len() {
            let token = self.token + 1;
            let filling = self.files[i].filling();
            let OpenFile { data, index, checkpoint, folder, .. } = &mut self.files[i];
            let (file, next) = match checkpoint.step {
                Step::Rest if checkpoint.is_due(now, filling) => (*data, Step::Data(token)),
                Step::IndexDue => (*index, Step::Index(token)),
                // A folder that cannot be opened is met, and told of, when the file is published.
                Step::FolderDue => match self.device.open_folder(folder) {
                    Ok(folder) => (folder, Step::Folder(folder, token)),
                    Err(_) => continue,
                },
                _ => continue,
            };
            if !self.files[i].is_open() || self.device.start(file, Op::Sync, token).is_err() {
                if let Step::Folder(folder, _) = next {
                    self.device.close(folder);
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

    /// Takes the end of one; false if the token is not of any.
    pub(super) fn checkpointed(&mut self, token: u64, result: &mut io::Result<usize>) -> bool {
        let Some(file) = self.files.iter_mut().find(|f| f.checkpoint.token() == Some(token)) else { return false };
        let checkpoint = &mut file.checkpoint;
        let result = std::mem::replace(result, Ok(0));
        if matches!((&checkpoint.step, &result), (Step::Index(_), Ok(_))) {
            file.growing.sync_ends();
        }
        checkpoint.step = match (std::mem::take(&mut checkpoint.step), result) {
            (Step::Data(_), Ok(_)) => Step::IndexDue,
            (Step::Index(_), Ok(_)) if !checkpoint.named => Step::FolderDue,
            // Names are in the journal, not in a cache that was dropped, and are synced again when the file has its own.
            (Step::Folder(folder, _), _) => {
                checkpoint.named = true;
                self.device.close(folder);
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
