//! The name of a packet file and of its index, hidden or published.

use base::Timestamp;
use std::path::PathBuf;
use store::names;

/// The parts of a file name.
pub struct FileName {
    /// The hour directory.
    pub directory: PathBuf,
    /// The start time of the file.
    pub start: Timestamp,
    /// The queue; `None` if the interface has one queue.
    pub queue: Option<u16>,
    /// The suffix of the packet file.
    pub suffix: &'static str,
    /// Copy number in the file name; more than 0 if other files of the queue have the same start time.
    pub copy: u32,
}

impl FileName {
    /// The name without directory and suffix.
    pub fn stem(&self) -> String {
        names::stem(self.start, self.queue, self.copy)
    }

    /// The path of the packet file, or of a file that belongs to it, before publication.
    pub fn hidden(&self, suffix: &str) -> PathBuf {
        self.directory.join(names::hidden(&self.stem(), suffix))
    }

    /// The path to which the packet file, or its index, is renamed at publication.
    pub fn published(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}.{suffix}", self.stem()))
    }
}
