//! The operations of retention on the volume in memory. In this volume, a directory exists only while it contains a
//! file. Paths that begin with [`super::Fault::second_volume`] are on a second volume with its own capacity.

use super::{EIO, ENOENT, MemoryDevice, Volume, error};
use crate::device::{Housekeeping, Lock, Space, Stat};
use base::Timestamp;
use std::io;
use std::path::{Path, PathBuf};

const ENOTEMPTY: i32 = 39;

/// The size that is reported for a volume without a configured capacity.
const PLENTY: u64 = 1 << 50;

/// A reader's hold of a directory.
pub struct ReadHold(MemoryDevice, PathBuf);

impl Drop for ReadHold {
    fn drop(&mut self) {
        let mut volume = self.0.volume();
        if let Some(at) = volume.held.iter().position(|directory| *directory == self.1) {
            volume.held.swap_remove(at);
        }
    }
}

impl MemoryDevice {
    /// Holds a directory as a reader does, until the returned value is dropped.
    pub fn hold(&self, directory: &Path) -> ReadHold {
        self.volume().held.push(directory.to_owned());
        ReadHold(self.clone(), directory.to_owned())
    }
}

impl Volume {
    fn inode_at(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| error(ENOENT))
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.names.keys().any(|name| name != path && name.starts_with(path))
    }
}

impl Housekeeping for MemoryDevice {
    fn space(&mut self, path: &Path) -> io::Result<Space> {
        let mut v = self.volume();
        v.call(0)?;
        let second_volume = v.fault.is_on_second_volume(path);
        let total = if second_volume { v.fault.second_volume_capacity } else { v.fault.capacity }.unwrap_or(PLENTY);
        Ok(Space { free: total.saturating_sub(v.used(second_volume)), total })
    }

    fn stat(&mut self, path: &Path) -> io::Result<Stat> {
        let mut v = self.volume();
        v.call(0)?;
        let volume = u64::from(v.fault.is_on_second_volume(path));
        if v.fault.missing.is_some_and(|missing| path.starts_with(missing)) {
            return Err(error(ENOENT));
        }
        match v.inode_at(path) {
            Ok(inode) => {
                let bytes = v.inodes[inode].now.len() as u64;
                Ok(Stat { bytes, allocated: bytes, modified: Timestamp::ZERO, volume })
            }
            // The number of name changes is returned as the time of the last change, because it differs after each
            // change of a name.
            Err(_) if v.is_directory(path) || v.fault.second_volume.is_some_and(|e| path == Path::new(e)) => {
                Ok(Stat { modified: Timestamp::from_nanos(v.named), volume, ..Stat::default() })
            }
            Err(e) => Err(e),
        }
    }

    fn lock_for_removal(&mut self, directory: &Path) -> io::Result<Option<Lock>> {
        let mut v = self.volume();
        v.call(0)?;
        Ok((!v.held.iter().any(|held| held == directory)).then(|| Box::new(()) as Lock))
    }

    fn holders(&mut self, _directory: &Path) -> Vec<sys::locks::Holder> {
        Vec::new()
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        let mut v = self.volume();
        let chance = v.fault.sync_error;
        v.call(chance)?;
        if let Ok(inode) = v.inode_at(path) {
            let inode = &mut v.inodes[inode];
            inode.durable.clone_from(&inode.now);
            inode.since.clear();
        } else if v.fault.directory_sync.is_some() {
            return Err(error(v.fault.directory_sync.unwrap_or(EIO)));
        } else {
            let names = v.names.clone();
            v.durable_names = names;
            v.naming.clear();
        }
        Ok(())
    }

    fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        let mut v = self.volume();
        v.call(0)?;
        if v.is_directory(path) { Err(error(ENOTEMPTY)) } else { Err(error(ENOENT)) }
    }
}
