//! The next packet file is created in advance under a name without a time, so that the begin of a new file does not
//! wait for the file system. It is moved to its hour directory when its segment begins.

use super::file::OpenFile;
use super::{Event, Writer};
use crate::{chain, future_files};
use base::Timestamp;
use index::Header;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use store::device::{Content, Device, FileId, Op};
use store::names;

/// The next packet file.
#[derive(Default)]
pub(super) struct NextFile {
    state: NextState,
    /// The number in the temporary name of the next file.
    number: u32,
}

/// The state of the file that is created in advance.
#[derive(Default)]
enum NextState {
    /// The file does not exist.
    #[default]
    None,
    /// The device is preallocating the file; the token of the operation.
    Allocating { file: FileId, path: PathBuf, token: u64 },
    /// The file is ready to be moved to its hour directory.
    Ready { file: FileId, path: PathBuf },
}

impl NextFile {
    /// True if the device is preallocating the file.
    pub fn is_allocating(&self) -> bool {
        matches!(self.state, NextState::Allocating { .. })
    }
}

impl NextState {
    /// Processes the completion of the operation with this token. If this operation is the preallocation of the next
    /// file, the state becomes `Ready`, and the second value is the file.
    fn allocated(self, done: u64) -> (Self, Option<FileId>) {
        match self {
            Self::Allocating { file, path, token } if token == done => (Self::Ready { file, path }, Some(file)),
            other => (other, None),
        }
    }
}

impl<D: Device> Writer<D> {
    /// Processes the end of the preallocation; returns false if the token belongs to another operation.
    pub(super) fn allocated(&mut self, token: u64, is_ok: bool) -> bool {
        let (state, file) = std::mem::take(&mut self.next.state).allocated(token);
        self.next.state = state;
        let Some(file) = file else { return false };
        if !is_ok {
            // A volume that cannot preallocate still accepts writes; the truncation frees a partial preallocation.
            let _ = self.device.truncate(file, 0);
        }
        true
    }

    /// Creates the next file under a temporary name without a time, unless it is already created.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        if !matches!(self.next.state, NextState::None) {
            return Ok(());
        }
        let root = self.config.directory();
        self.device.create_directory(&root)?;
        let name = names::prepared(self.config.header.queue, self.next.number, self.config.format.suffix());
        let path = root.join(name);
        self.next.number += 1;
        let file = self.device.create(&path, Content::Packets)?;
        self.next.state = if self.config.allocate == 0 {
            NextState::Ready { file, path }
        } else {
            let token = self.new_token();
            match self.device.start(file, Op::Allocate(self.config.allocate), token) {
                Ok(()) => NextState::Allocating { file, path, token },
                // If preallocation cannot be started, the file is written without it.
                Err(_) => NextState::Ready { file, path },
            }
        };
        Ok(())
    }

    /// Opens the file of a segment; returns false if the caller must retry.
    pub(super) fn open(&mut self, pos: u64, start: Timestamp, now: Duration) -> bool {
        let root = self.config.directory();
        match self.prepare() {
            Ok(()) => {}
            // A killed recorder left a file of this temporary name, so the next number is tried immediately.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return self.open(pos, start, now),
            Err(e) => {
                self.fail("create a file in", root, e, now);
                return false;
            }
        }
        if start < self.begun.latest && matches!(self.next.state, NextState::Ready { .. }) {
            self.prepare_next();
        }
        let NextState::Ready { file, path } = &self.next.state else {
            // The file is still being preallocated. The volume counts as blocked until the file is in its hour
            // directory. Otherwise an earlier failure would be reported as resolved too early.
            self.volume.is_blocked = true;
            return false;
        };
        let header = Header { first_pos: pos, start, ..self.config.header.clone() };
        let queue = (self.config.queues > 1).then_some(header.queue);
        let directory = names::hour_directory(&root, start);
        let marker_root = (start < self.begun.latest).then_some(&*root);
        let suffix = self.config.format.suffix();
        match OpenFile::place(&mut self.device, (*file, path), &directory, &header, queue, suffix, marker_root) {
            Ok(open) => {
                if !std::mem::replace(&mut self.begun.has_file, true)
                    && let Some(path) = chain::covering(&self.config, start)
                {
                    self.events.push(Event::TimeOverlap { path, start });
                }
                self.files.push(open);
                self.next.state = NextState::None;
                if let Some(page) = &self.config.offered_page {
                    page.file(start, pos, self.begun.offered);
                }
                true
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    // Another process removed the prepared file or the hour directory: the retry creates them again.
                    self.drop_next();
                }
                self.fail("create a file in", directory, error, now);
                false
            }
        }
    }

    /// Called if the next file begins before the end of an in-order file. If the clock was ahead when the older files
    /// were recorded, these older files get out-of-order markers, so that later files need none. If the markers cannot
    /// be written, the writer tries again when it begins the following file.
    fn prepare_next(&mut self) {
        let Some(wall) = self.config.wall.map(|read_clock| read_clock()) else { return };
        let root = self.config.directory();
        if self.begun.latest <= wall.latest_plausible() || !future_files::is_right(&root, &wall) {
            return;
        }
        let is_ahead = |file: &&mut OpenFile| {
            file.order.is_in_order() && file.order.latest > wall.latest_plausible() && !file.is_named()
        };
        let mut unnamed = self.files.iter_mut().filter(is_ahead);
        let (device, config) = (&mut self.device, &self.config);
        let noted = unnamed
            .try_for_each(|file| file.write_marker(device, &root))
            .and_then(|()| future_files::write_markers(device, config, &wall));
        let Ok(found) = noted else { return };
        // The latest timestamps of published files were read from the store. The latest timestamps of unpublished files
        // of this run are taken from memory, because packets whose writes are in progress may be missing in the store.
        let ours =
            self.files.iter().filter(|file| file.order.is_in_order() && !file.is_named()).map(|file| file.order.latest);
        self.begun.latest = ours.fold(found.reached, Timestamp::max);
        self.events.extend(found.warning(&root, &wall).map(Event::Warning));
    }

    /// Removes the file that was created in advance, which also frees its preallocated space.
    pub(super) fn drop_next(&mut self) {
        if let NextState::Ready { file, path } | NextState::Allocating { file, path, .. } =
            std::mem::take(&mut self.next.state)
        {
            self.device.close(file);
            let _ = self.device.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_completion_of_its_own_preallocation_makes_a_file_ready() {
        let allocating = NextState::Allocating { file: FileId(3), path: PathBuf::from("next"), token: 7 };
        let (state, file) = allocating.allocated(6);
        assert!(file.is_none() && matches!(state, NextState::Allocating { .. }));
        let (state, file) = state.allocated(7);
        assert!(file == Some(FileId(3)) && matches!(state, NextState::Ready { .. }));
        assert!(state.allocated(7).1.is_none(), "a completion must not be processed twice");
    }
}
