//! The directory of an interface, the [`Device`] through which its files are accessed, and the operations on these
//! files that recovery needs.

use super::file_names::DAMAGED;
use crate::packet_file::VerifiedIndex;
use index::Header;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::device::{Device, FileId, Op};
use store::offered_page::OrphanedCount;

/// The longest time for which one call waits until an I/O operation is complete.
pub(super) const WAIT: Duration = Duration::from_millis(100);

/// The directory of an interface (`root`), and the [`Device`] through which its files are accessed.
pub(crate) struct Volume<D> {
    pub device: D,
    pub root: PathBuf,
    token: u64,
    /// The counts of offered packets that dead recorders have left in offered counter pages.
    pub tails: Vec<OrphanedCount>,
    /// Those counts in the field `tails` that recovery has added to the ledger of a published file.
    pub entered: Vec<OrphanedCount>,
}

impl<D: Device> Volume<D> {
    pub fn new(device: D, root: PathBuf) -> Self {
        Self { device, root, token: 0, tails: Vec::new(), entered: Vec::new() }
    }

    /// The count of offered packets that the killed recorder of this file left, if the recorder was writing the file
    /// when it was killed; an error if no count for any file of the queue exists.
    pub(super) fn tail(&self, header: &Header) -> Result<Option<&OrphanedCount>, CountsUnavailable> {
        let mut of_queue = self.tails.iter().filter(|t| t.queue == header.queue).peekable();
        if of_queue.peek().is_none() {
            return Err(CountsUnavailable);
        }
        let is_it = |pos: u64| pos == header.first_pos || header.first_pos == index::UNKNOWN_POS;
        Ok(of_queue.find(|t| t.file.is_some_and(|(start, pos)| start == header.start && is_it(pos))))
    }

    /// The interface of this directory, from the directory name.
    pub fn interface(&self) -> String {
        self.root.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The names of the files in a directory.
    pub fn names(&mut self, directory: &Path) -> io::Result<BTreeSet<String>> {
        let list = self.device.list(directory)?;
        Ok(list.into_iter().filter(|(_, is_directory)| !is_directory).map(|(name, _)| name).collect())
    }

    /// Removes a file; a missing file is no error.
    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        match self.device.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub fn remove_unheld(&mut self, path: &Path) -> io::Result<Option<u64>> {
        match self.device.remove_unheld(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other,
        }
    }

    pub fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.token += 1;
        self.device.start(file, Op::Sync, self.token)?;
        let mut done = Vec::new();
        loop {
            self.device.reap(WAIT, &mut done)?;
            if let Some(at) = done.iter().position(|c| c.token == self.token) {
                return done.swap_remove(at).result.map(|_| ());
            }
        }
    }

    /// Renames an unreadable index, so that it is not used.
    pub fn unreadable_aside(&mut self, index: &Path) -> io::Result<()> {
        if !self.device.exists(index) || VerifiedIndex::read(&mut self.device, index)?.is_some() {
            return Ok(());
        }
        for number in 0.. {
            let number = if number > 0 { format!("_{number}") } else { String::new() };
            let mut to = index.as_os_str().to_owned();
            to.push(format!("{number}.{DAMAGED}"));
            match self.device.rename(index, Path::new(&to)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Syncs a directory, so that its names survive a power failure; no error if the file system does not support it.
    pub fn sync_directory(&mut self, directory: &Path) -> io::Result<()> {
        let file = self.device.open_directory(directory)?;
        let synced = self.sync(file);
        self.device.close(file);
        match synced {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }
}

/// The error for a dead recorder whose counts of offered packets no longer exist.
pub(super) struct CountsUnavailable;
