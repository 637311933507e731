//! A volume in memory for tests of the recorder and of retention. The volume can be full, return errors, write fewer
//! bytes than requested, be slow, complete operations out of order, and lose its power between two calls.
//!
//! After a power failure, the volume contains only the data that POSIX guarantees. Each write since the last sync of a
//! file may survive, be torn, or be lost. Of the name changes since the last sync of a directory, a random number of
//! the first changes survive; all later changes are lost.

mod housekeeping;

use super::{Completion, Content, Device, FileId, Lock, Op};
use crate::bytes::Bytes;
use base::Prng;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The injected faults. All chances are numbers of failures per thousand operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    /// Capacity of the volume in bytes; a write beyond it fails with `ENOSPC`.
    pub capacity: Option<u64>,
    /// True if the capacity is the quota of a user, so that a write beyond it fails with `EDQUOT`.
    pub quota: bool,
    /// [`Device::reap`] fails.
    pub completions_fail: bool,
    /// Chance that a write or another operation on a file fails with `EIO`.
    pub io_error: u64,
    /// Chance that a write writes fewer bytes than requested.
    pub short: u64,
    /// Chance that a sync fails.
    pub sync_error: u64,
    /// True if operations are delayed and complete in any order.
    pub slow: bool,
    /// Each sync of a directory fails with this errno.
    pub directory_sync: Option<i32>,
    /// A rename fails with `EIO` if the path ends with this text.
    pub no_rename: Option<&'static str>,
    /// The power fails at the call with this number, counted from 0.
    pub crash_at: Option<u64>,
    /// Paths with this prefix are on a second volume: a rename between the two volumes fails with `EXDEV`.
    pub second_volume: Option<&'static str>,
    /// Capacity of the second volume in bytes.
    pub second_volume_capacity: Option<u64>,
    /// True if removed files free no space on the first volume, because other users immediately fill the freed space.
    pub space_taken_by_others: bool,
    /// Listing this directory fails.
    pub unlistable: Option<&'static str>,
    /// `stat` fails for each path with this prefix, as on a volume that is not mounted.
    pub missing: Option<&'static str>,
}

impl Fault {
    fn is_on_second_volume(&self, path: &Path) -> bool {
        self.second_volume.is_some_and(|second_volume| path.starts_with(second_volume))
    }
}

/// File contents by name.
pub type Surviving = BTreeMap<PathBuf, Vec<u8>>;

/// A [`Device`] that stores its files in memory. Clones share the volume.
#[derive(Clone)]
pub struct MemoryDevice(Arc<Mutex<Volume>>);

#[derive(Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    since: Vec<Change>,
}

enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Change {
    fn apply(&self, data: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => {
                let end = *offset as usize + bytes.len();
                if data.len() < end {
                    data.resize(end, 0);
                }
                data[*offset as usize..end].copy_from_slice(bytes);
            }
            Self::Length(len) => data.resize(*len as usize, 0),
        }
    }
}

enum Naming {
    Add(PathBuf, usize),
    Move(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Add(path, inode) => drop(names.insert(path.clone(), *inode)),
            Self::Move(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(path) => drop(names.remove(path)),
        }
    }
}

struct Volume {
    fault: Fault,
    prng: Prng,
    calls: u64,
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    naming: Vec<Naming>,
    open: BTreeMap<FileId, Open>,
    pending: Vec<(u64, Option<usize>, Op)>,
    /// Directories that readers hold, with one element for each hold.
    held: Vec<PathBuf>,
    /// Bytes that other users have filled ([`Fault::space_taken_by_others`]).
    taken: u64,
    /// Number of name changes.
    named: u64,
}

/// An open file. `inode` is `None` for a directory and for a closed file.
#[derive(Clone, Copy, Default)]
struct Open {
    inode: Option<usize>,
    held: bool,
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
const ENOTDIR: i32 = 20;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

impl MemoryDevice {
    /// An empty volume without faults; `seed` starts the random numbers of the faults.
    pub fn new(seed: u64) -> Self {
        Self::with(seed, Surviving::new())
    }

    /// A volume with these files, which are already synced, so that they survive a power failure.
    pub fn with(seed: u64, files: Surviving) -> Self {
        let names: BTreeMap<PathBuf, usize> = files.keys().cloned().zip(0..).collect();
        let inode = |bytes: Vec<u8>| Inode { durable: bytes.clone(), now: bytes, since: Vec::new() };
        Self(Arc::new(Mutex::new(Volume {
            fault: Fault::default(),
            prng: Prng::new(seed),
            calls: 0,
            inodes: files.into_values().map(inode).collect(),
            durable_names: names.clone(),
            names,
            naming: Vec::new(),
            open: BTreeMap::new(),
            pending: Vec::new(),
            held: Vec::new(),
            named: 0,
            taken: 0,
        })))
    }

    fn volume(&self) -> MutexGuard<'_, Volume> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets the injected faults.
    pub fn set_fault(&self, fault: Fault) {
        self.volume().fault = fault;
    }

    /// Number of calls.
    pub fn calls(&self) -> u64 {
        self.volume().calls
    }

    /// True if the power has failed.
    pub fn crashed(&self) -> bool {
        self.volume().crashed()
    }

    /// Simulates a kill of the process: its files are closed and unlocked, and operations in progress are discarded.
    pub fn kill(&self) {
        let mut volume = self.volume();
        volume.open.values_mut().for_each(|open| *open = Open::default());
        volume.pending.clear();
    }

    /// All files with their present content, synced or not.
    pub fn files(&self) -> Surviving {
        let volume = self.volume();
        volume.names.iter().map(|(path, i)| (path.clone(), volume.inodes[*i].now.clone())).collect()
    }

    /// The files that survive any power failure at this moment: synced names with synced content.
    pub fn synced(&self) -> Surviving {
        let volume = self.volume();
        volume.durable_names.iter().map(|(path, i)| (path.clone(), volume.inodes[*i].durable.clone())).collect()
    }

    /// The files after a random power failure at this moment.
    pub fn surviving(&self, prng: &mut Prng) -> Surviving {
        let volume = self.volume();
        let mut names = volume.durable_names.clone();
        let kept = prng.below(volume.naming.len() as u64 + 1) as usize;
        volume.naming[..kept].iter().for_each(|n| n.apply(&mut names));
        names
            .into_iter()
            .map(|(path, i)| {
                let mut data = volume.inodes[i].durable.clone();
                for change in &volume.inodes[i].since {
                    match (prng.below(3), change) {
                        (0, _) => {}
                        (1, Change::Write(offset, bytes)) => {
                            let torn = prng.below(bytes.len() as u64 + 1) as usize;
                            Change::Write(*offset, bytes[..torn].to_vec()).apply(&mut data);
                        }
                        _ => change.apply(&mut data),
                    }
                }
                (path, data)
            })
            .collect()
    }
}

impl Volume {
    fn crashed(&self) -> bool {
        self.fault.crash_at.is_some_and(|at| self.calls > at)
    }

    /// Counts one call. The call fails with this chance (per thousand), and always after a power failure.
    fn call(&mut self, chance: u64) -> io::Result<()> {
        self.calls += 1;
        let unlucky = self.prng.below(1000) < chance;
        if unlucky || self.crashed() { Err(error(EIO)) } else { Ok(()) }
    }

    fn used(&self, second_volume: bool) -> u64 {
        let here = self.names.iter().filter(|(path, _)| self.fault.is_on_second_volume(path) == second_volume);
        let taken = if second_volume { 0 } else { self.taken };
        taken + here.map(|(_, i)| self.inodes[*i].now.len() as u64).sum::<u64>()
    }

    /// True if the volume of this file has fewer than `more` free bytes.
    fn is_full(&self, inode: usize, more: u64) -> bool {
        let path = self.names.iter().find(|(_, i)| **i == inode).map(|(path, _)| path);
        let second_volume = path.is_some_and(|path| self.fault.is_on_second_volume(path));
        let capacity = if second_volume { self.fault.second_volume_capacity } else { self.fault.capacity };
        capacity.is_some_and(|c| self.used(second_volume) + more > c)
    }

    fn change(&mut self, inode: usize, change: Change) -> io::Result<()> {
        let old = self.inodes[inode].now.len() as u64;
        let new = match &change {
            Change::Write(offset, bytes) => old.max(offset + bytes.len() as u64),
            Change::Length(len) => *len,
        };
        if new > old && self.is_full(inode, new - old) {
            return Err(error(if self.fault.quota { EDQUOT } else { ENOSPC }));
        }
        change.apply(&mut self.inodes[inode].now);
        self.inodes[inode].since.push(change);
        Ok(())
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.naming.push(naming);
        self.named += 1;
    }

    fn inode(&self, file: FileId) -> io::Result<usize> {
        self.open.get(&file).and_then(|open| open.inode).ok_or_else(|| error(EIO))
    }

    fn keep(&mut self, inode: Option<usize>, held: bool) -> FileId {
        let id = FileId(self.open.len() as u32);
        self.open.insert(id, Open { inode, held });
        id
    }

    /// The inode of the file with this path, for opening it.
    fn named(&mut self, path: &Path) -> io::Result<usize> {
        if self.crashed() {
            return Err(error(EIO));
        }
        self.names.get(path).copied().ok_or_else(|| error(ENOENT))
    }

    fn holds(&self, inode: usize) -> bool {
        self.open.values().any(|open| open.held && open.inode == Some(inode))
    }

    fn perform(&mut self, inode: Option<usize>, op: Op) -> io::Result<usize> {
        match (op, inode) {
            (Op::Write { offset, slice }, Some(i)) => {
                self.call(self.fault.io_error)?;
                let mut len = slice.len();
                if self.prng.below(1000) < self.fault.short {
                    len = self.prng.below(len as u64) as usize;
                }
                self.change(i, Change::Write(offset, slice.bytes()[..len].to_vec()))?;
                Ok(len)
            }
            (Op::Allocate(len), Some(i)) => {
                self.call(0)?;
                let len = len.max(self.inodes[i].now.len() as u64);
                self.change(i, Change::Length(len)).map(|()| 0)
            }
            (Op::Sync, Some(i)) => {
                self.call(self.fault.sync_error)?;
                let inode = &mut self.inodes[i];
                inode.durable.clone_from(&inode.now);
                inode.since.clear();
                Ok(0)
            }
            (Op::Sync, None) => {
                self.call(self.fault.sync_error)?;
                if let Some(code) = self.fault.directory_sync {
                    return Err(error(code));
                }
                self.durable_names.clone_from(&self.names);
                self.naming.clear();
                Ok(0)
            }
            _ => Err(error(EIO)),
        }
    }
}

impl Device for MemoryDevice {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn is_best(&self) -> bool {
        true
    }

    fn adopt(&mut self, _: &Arc<dyn Bytes>) -> Option<String> {
        None
    }

    fn create_directory(&mut self, _: &Path) -> io::Result<()> {
        let mut v = self.volume();
        let chance = v.fault.io_error;
        v.call(chance)
    }

    fn create(&mut self, path: &Path, _: Content) -> io::Result<FileId> {
        let mut v = self.volume();
        let chance = v.fault.io_error;
        v.call(chance)?;
        if v.names.contains_key(path) {
            return Err(error(EEXIST));
        }
        v.inodes.push(Inode::default());
        let inode = v.inodes.len() - 1;
        v.name(Naming::Add(path.to_owned(), inode));
        Ok(v.keep(Some(inode), true))
    }

    fn open_directory(&mut self, _: &Path) -> io::Result<FileId> {
        let mut v = self.volume();
        v.call(0)?;
        Ok(v.keep(None, false))
    }

    fn open(&mut self, path: &Path) -> io::Result<FileId> {
        let mut v = self.volume();
        let inode = v.named(path)?;
        Ok(v.keep(Some(inode), false))
    }

    fn take(&mut self, path: &Path) -> io::Result<Option<FileId>> {
        let mut v = self.volume();
        let inode = v.named(path)?;
        Ok(if v.holds(inode) { None } else { Some(v.keep(Some(inode), true)) })
    }

    fn len(&mut self, file: FileId) -> io::Result<u64> {
        let v = self.volume();
        Ok(v.inodes[v.inode(file)?].now.len() as u64)
    }

    // A read changes no file, so it is not counted as a call at which the power can fail.
    fn read(&mut self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut v = self.volume();
        let inode = v.inode(file)?;
        let unlucky = v.fault.io_error > 0 && v.prng.below(1000) < v.fault.io_error;
        if unlucky || v.crashed() {
            return Err(error(EIO));
        }
        let bytes = v.inodes[inode].now.get(offset as usize..).unwrap_or(&[]);
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn start(&mut self, file: FileId, op: Op, token: u64) -> io::Result<()> {
        let mut v = self.volume();
        let inode = v.open.get(&file).ok_or_else(|| error(EIO))?.inode;
        v.pending.push((token, inode, op));
        Ok(())
    }

    fn reap(&mut self, _: Duration, out: &mut Vec<Completion>) -> io::Result<()> {
        let mut v = self.volume();
        let mut left = v.pending.len();
        if v.crashed() || v.fault.completions_fail {
            return Err(error(EIO));
        }
        while left > 0 && !v.crashed() {
            left -= 1;
            let at = if v.fault.slow { v.prng.below(left as u64 + 1) as usize } else { 0 };
            if v.fault.slow && v.prng.below(2) == 0 {
                continue;
            }
            let (token, inode, op) = v.pending.remove(at);
            let result = v.perform(inode, op);
            if !v.crashed() {
                out.push(Completion { token, result });
            }
        }
        Ok(())
    }

    fn put(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut v = self.volume();
        let chance = v.fault.io_error;
        let inode = v.inode(file)?;
        v.call(chance)?;
        v.change(inode, Change::Write(offset, bytes.to_vec()))
    }

    fn truncate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        let mut v = self.volume();
        let chance = v.fault.io_error;
        let inode = v.inode(file)?;
        v.call(chance)?;
        v.change(inode, Change::Length(len))
    }

    /// Files in memory have no permissions.
    fn copy_permissions(&mut self, _: FileId, _: FileId) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, file: FileId) {
        // The entry of the closed file stays in the map, so that its id is not used again.
        self.volume().open.insert(file, Open::default());
    }

    fn exists(&mut self, path: &Path) -> bool {
        self.volume().names.contains_key(path)
    }

    fn list(&mut self, directory: &Path) -> io::Result<Vec<(String, bool)>> {
        let v = self.volume();
        if v.names.contains_key(directory) {
            return Err(error(ENOTDIR));
        }
        if v.fault.unlistable.is_some_and(|path| directory == Path::new(path)) {
            return Err(error(EIO));
        }
        let inside = v.names.keys().filter_map(|path| path.strip_prefix(directory).ok());
        let mut list: Vec<(String, bool)> = inside
            .filter_map(|path| {
                let mut parts = path.components();
                let first = parts.next()?.as_os_str().to_str()?;
                Some((first.to_owned(), parts.next().is_some()))
            })
            .collect();
        list.dedup();
        Ok(list)
    }

    fn is_held(&mut self, path: &Path) -> bool {
        let v = self.volume();
        v.names.get(path).is_some_and(|inode| v.holds(*inode))
    }

    fn hold(&mut self, directory: &Path) -> io::Result<Lock> {
        Ok(Box::new(MemoryDevice::hold(self, directory)))
    }

    fn remove_unheld(&mut self, path: &Path) -> io::Result<Option<u64>> {
        if self.is_held(path) {
            return Ok(None);
        }
        let room = self.files().get(path).map(|bytes| bytes.len() as u64);
        self.remove(path).map(|()| room)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut v = self.volume();
        let chance = v.fault.io_error;
        v.call(chance)?;
        if v.fault.no_rename.is_some_and(|end| from.to_string_lossy().ends_with(end)) {
            return Err(error(EIO));
        }
        if !v.names.contains_key(from) {
            return Err(error(ENOENT));
        }
        if v.names.contains_key(to) {
            return Err(error(EEXIST));
        }
        if v.fault.is_on_second_volume(from) != v.fault.is_on_second_volume(to) {
            return Err(error(EXDEV));
        }
        v.name(Naming::Move(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let mut v = self.volume();
        v.call(0)?;
        let Some(inode) = v.names.get(path).copied() else { return Err(error(ENOENT)) };
        if v.fault.space_taken_by_others && !v.fault.is_on_second_volume(path) {
            v.taken += v.inodes[inode].now.len() as u64;
        }
        v.name(Naming::Remove(path.to_owned()));
        Ok(())
    }
}
