//! Publishes a file in steps: truncation to its length, sealed index, sync of both files, rename of the index, rename
//! of the packet file, sync of the directory. Each step begins when the previous step has succeeded; blocks of the next
//! file are written meanwhile. If a file ends early because the volume refused further writes, it retains all bytes
//! that the growing index describes until the sealed index is synced, and is truncated to its final length afterwards.
//! If there is no space for a sealed index, recovery finds all packets that were counted as stored. The growing index
//! is removed only after the packet file was renamed, so that recovery can complete an interrupted publication with the
//! growing index.

use super::file::{OpenFile, Step};
use super::volume::VolumeFailure;
use super::{Event, Writer};
use index;
use std::io;
use std::time::Duration;
use store::device::{Device, Op, is_full};

impl<D: Device> Writer<D> {
    /// For each file, executes the publication steps that are possible at this time.
    pub(super) fn seal_files(&mut self, now: Duration) {
        let mut i = 0;
        while i < self.files.len() {
            if self.files[i].step == Step::Done {
                self.published(i);
                continue;
            }
            if self.files[i].trouble.as_ref().is_some_and(|t| t.pauses(now)) {
                i += 1;
                continue;
            }
            if self.files[i].step == Step::SyncData(None)
                && let Some(error) = self.files[i].checkpoint.take_failure()
            {
                self.leave_hidden(i, "sync", error);
                continue;
            }
            match self.seal_step(i) {
                Ok(true) => {
                    let file = &mut self.files[i];
                    if file.token().is_none() {
                        file.trouble = None;
                    }
                }
                Ok(false) => i += 1,
                // The device is busy: the next step of the writer retries.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => i += 1,
                Err(error) => i += usize::from(self.refused(i, error, now)),
            }
        }
    }

    /// Handles a publication step that the volume refused for one file; other files and writes continue. Returns true
    /// if the file is retained for a retry.
    fn refused(&mut self, i: usize, error: io::Error, now: Duration) -> bool {
        let file = &mut self.files[i];
        let named = matches!(file.step, Step::SyncDirectory(_));
        let what = if named { "sync the directory of" } else { "publish" };
        let since = file.trouble.as_ref().map_or(now, |t| t.since);
        // For a published file, the grace period begins when the sync of its directory fails, and not when the recorder
        // is stopped; otherwise the file descriptors of all files with this failure would stay open.
        let from = if named { Some(since) } else { self.run.grace_begin().map(|stopped| stopped.max(since)) };
        let hopeless = error.kind() == io::ErrorKind::NotFound
            || self.run.has_given_up()
            || from.is_some_and(|from| now >= from + self.config.grace)
            || named && self.volume.is_unsynced_reported;
        match (hopeless, named) {
            (true, true) => self.finish_unsynced(i, &error),
            (true, false) => {
                self.leave_hidden(i, what, error);
                return false;
            }
            (false, _) => {
                if is_full(&error) {
                    self.drop_next();
                }
                let (kind, path) = (error.kind(), self.files[i].path.clone());
                if self.files[i].trouble.is_none() {
                    self.report_failure(what, path, error, now);
                }
                let file = &mut self.files[i];
                file.trouble.get_or_insert_with(|| VolumeFailure::new(kind, now)).again(now);
            }
        }
        true
    }

    /// Ends the publication of a renamed file although its directory cannot be synced; warns once.
    fn finish_unsynced(&mut self, i: usize, error: &io::Error) {
        self.files[i].step = Step::Done;
        self.files[i].trouble = None;
        if !std::mem::replace(&mut self.volume.is_unsynced_reported, true) {
            let directory = self.files[i].name.directory.display();
            let warning = format!(
                "{directory}: cannot sync this directory: {error}; its files are published, but a power failure \
                 shortly afterwards may undo the renaming of a file; {}",
                sys::advice::to_write(error)
            );
            self.events.push(Event::Warning(warning));
        }
    }

    /// Executes the next publication step of one file; returns false if the file must wait.
    fn seal_step(&mut self, i: usize) -> io::Result<bool> {
        let (token, root) = (self.new_token(), self.config.directory());
        let (file, device) = (&mut self.files[i], &mut self.device);
        file.step = match file.step {
            // Truncation is the first step, because it frees preallocated space that the sealed index may need.
            Step::Truncate => {
                device.truncate(file.data, file.extent.indexed_len())?;
                Step::Seal
            }
            Step::Shorten => {
                device.truncate(file.data, file.extent.len())?;
                file.extent.shortened();
                Step::SyncData(None)
            }
            // Each step of the writer writes one chunk of the index, so that blocks of the next file do not wait for a
            // complete index.
            Step::Seal => {
                if !file.seal(device)? {
                    file.trouble = None;
                    return Ok(false);
                }
                Step::SyncData(None)
            }
            Step::SyncData(None) => {
                device.start(file.data, Op::Sync, token)?;
                Step::SyncData(Some(token))
            }
            Step::SyncIndex(None) => {
                let Some(sealed) = file.sealed.file else { return Ok(false) };
                device.start(sealed, Op::Sync, token)?;
                Step::SyncIndex(Some(token))
            }
            Step::PublishIndex => publish_index(file, device)?,
            Step::PublishData => {
                let name = file.name.published(file.name.suffix);
                file.write_final_marker(device, &root)?;
                match device.rename(&file.path, &name) {
                    Ok(()) => {
                        file.path = name;
                        // If the removal of the growing index fails, recovery removes it later.
                        let _ = device.remove(&file.index.path);
                        Step::SyncDirectory(None)
                    }
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                        file.remove_final_marker(device, &root)?;
                        file.name.copy += 1;
                        Step::PublishIndex
                    }
                    Err(e) => return Err(e),
                }
            }
            Step::SyncDirectory(None) => {
                let directory = device.open_directory(&file.name.directory)?;
                if let Err(e) = device.start(directory, Op::Sync, token) {
                    device.close(directory);
                    return Err(e);
                }
                Step::SyncDirectory(Some((directory, token)))
            }
            Step::Open | Step::Cut | Step::SyncData(_) | Step::SyncIndex(_) | Step::SyncDirectory(_) | Step::Done => {
                return Ok(false);
            }
        };
        Ok(true)
    }

    /// Processes the end of a sync. A failed sync of a file is not repeated: the kernel may have dropped the pages that
    /// it could not write and would then report success. The file keeps its hidden name, and recovery finds the valid
    /// content with the help of the checksums.
    pub(super) fn sealed_step(&mut self, i: usize, result: io::Result<()>, now: Duration) {
        let file = &mut self.files[i];
        match (file.step, result) {
            (Step::SyncData(_), Ok(())) => file.step = Step::SyncIndex(None),
            (Step::SyncIndex(_), Ok(())) if file.extent.is_long() => file.step = Step::Shorten,
            (Step::SyncIndex(_), Ok(())) => file.step = Step::PublishIndex,
            (Step::SyncDirectory(under_way), result) => {
                if let Some((directory, _)) = under_way {
                    self.device.close(directory);
                }
                let file = &mut self.files[i];
                match result {
                    Ok(()) => {
                        (file.step, file.trouble) = (Step::Done, None);
                        self.volume.is_unsynced_reported = false;
                    }
                    // Some network and FUSE file systems do not support the sync of directories. The recorder then
                    // relies on the file system for the durability of file names.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        (file.step, file.trouble) = (Step::Done, None);
                    }
                    // A failed sync of a directory can be retried, because the names are still in the file system's
                    // journal.
                    Err(error) => {
                        file.step = Step::SyncDirectory(None);
                        self.refused(i, error, now);
                    }
                }
            }
            (_, Err(error)) => self.leave_hidden(i, "sync", error),
            (_, Ok(())) => {}
        }
    }

    pub(super) fn leave_hidden(&mut self, i: usize, what: &'static str, error: io::Error) {
        let file = self.files.remove(i);
        self.close_files(&file);
        let has_hidden_index = file.sealed.file.is_some() && file.step.is_before_publication();
        if has_hidden_index && file.extent.agrees_with_growing_index() {
            let _ = self.device.remove(&file.sealed.path);
        }
        self.totals.hidden += 1;
        // Unless the error is `NotFound`, the file is assumed to exist, because on a failing volume the existence check
        // may fail too.
        let is_there = error.kind() != io::ErrorKind::NotFound || self.device.exists(&file.path);
        self.events.push(if is_there {
            Event::LeftHidden { path: file.path, what, error }
        } else {
            let (path, packets) = (file.path.display(), file.ledger.total().stored);
            Event::Warning(format!(
                "{path}: cannot {what} this file: {error}; another process removed it while it was being written, with \
                 {packets} packets that are counted as stored; do not remove or rename the hidden files of a recorder"
            ))
        });
    }

    pub(super) fn close_files(&mut self, file: &OpenFile) {
        [Some(file.data), Some(file.index.file), file.sealed.file]
            .into_iter()
            .flatten()
            .for_each(|f| self.device.close(f));
    }

    fn published(&mut self, i: usize) {
        let file = self.files.remove(i);
        self.close_files(&file);
        self.totals.published += 1;
        let packets = file.ledger.total().stored;
        self.events.push(Event::Published { path: file.path, packets, bytes: file.extent.len() });
    }
}

/// Renames the index to its final name. The copy number in the name is increased until neither an index nor a packet
/// file has the name.
fn publish_index<D: Device>(file: &mut OpenFile, device: &mut D) -> io::Result<Step> {
    loop {
        let name = file.name.published(index::SUFFIX);
        if !device.exists(&file.name.published(file.name.suffix)) {
            match device.rename(&file.sealed.path, &name) {
                Ok(()) => {
                    file.sealed.path = name;
                    return Ok(Step::PublishData);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        file.name.copy += 1;
    }
}
