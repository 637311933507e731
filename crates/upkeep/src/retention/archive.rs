//! One file and its index on their way to the archive: the same names in the same folders under another root.
//!
//! On the same volume they are renamed. On another one each is copied under a hidden name, synced, read back and compared,
//! and gets its name only then: index first, then packets, then the folder is synced, and only after that does the store
//! lose its own. A kill at any step leaves the file whole in the store; begun again, what is already there is compared and
//! not copied twice, and a name that another file has is not taken.

use super::catalogue::{Key, Part};
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, FileId, Housekeeping};
use store::names;

/// Bytes copied in one step.
const CHUNK: usize = 1 << 20;

/// How the hidden name of a copy ends that is not whole. Not as those of a recorder: nobody should mend it.
const MOVING: &str = "moving";

/// Free bytes of the archive's volume that are left alone.
const SPARE: u64 = 16 << 20;

/// Why a file is not in the archive.
#[derive(Debug)]
pub(super) enum Failed {
    /// It cannot be read or taken away.
    Source { path: PathBuf, error: io::Error },
    /// The archive does not take it.
    Archive { path: PathBuf, text: String },
}

/// See the module.
pub(super) struct Move {
    key: Key,
    folder: PathBuf,
    parts: Vec<Part>,
    /// The number behind the name there.
    copy: u32,
    /// The part that is being worked on.
    at: usize,
    phase: Phase,
    /// Both are on one volume.
    renames: bool,
    target: PathBuf,
    /// Hidden copies that are to be removed if this comes to nothing.
    made: Vec<PathBuf>,
    /// Parts that were there before.
    present: Vec<usize>,
    buffer: Vec<u8>,
}

enum Phase {
    /// What has the name there already?
    Look,
    /// Is it this file?
    Compare { ours: FileId, theirs: FileId, offset: u64 },
    /// Onto the other volume.
    Copy { ours: FileId, copy: FileId, offset: u64, crc: u32 },
    /// And back.
    ReadBack { copy: FileId, bytes: u64, offset: u64, crc: u32, wanted: u32 },
    /// All parts are there.
    Publish,
    /// They have their names.
    Done,
}

impl Move {
    /// Begins; `archive` is the folder of the interface there.
    pub fn begin<D: Housekeeping>(device: &mut D, archive: &Path, key: Key, parts: Vec<Part>) -> Result<Self, Failed> {
        let mut bytes = 0;
        let mut volume = 0;
        for part in &parts {
            let stat = device.stat(&part.path).map_err(|error| Failed::Source { path: part.path.clone(), error })?;
            (bytes, volume) = (bytes + stat.bytes, stat.volume);
        }
        let folder = names::hour_folder(archive, key.start);
        let fail = |error: io::Error| Failed::Archive { path: folder.clone(), text: error.to_string() };
        device.create_folder(&folder).map_err(fail)?;
        // Renaming over the border of volumes fails; a bind mount is the same volume and may still refuse it.
        let there = device.stat(archive.parent().unwrap_or(archive)).map_err(fail)?;
        let renames = there.volume == volume;
        let space = device.space(archive).map_err(fail)?;
        if !renames && space.free < bytes + SPARE {
            let text = format!("{bytes} bytes are to be moved there and {} are free", space.free);
            return Err(Failed::Archive { path: folder, text });
        }
        let phase = if renames { Phase::Done } else { Phase::Look };
        let mut this = Self {
            key,
            folder,
            parts,
            copy: key.copy,
            at: 0,
            phase,
            renames,
            target: PathBuf::new(),
            made: Vec::new(),
            present: Vec::new(),
            buffer: Vec::new(),
        };
        this.aim();
        Ok(this)
    }

    /// Where the packets will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// One step; true once the copies are safe and have their names (or will be renamed).
    pub fn step<D: Housekeeping>(&mut self, device: &mut D) -> Result<bool, Failed> {
        if matches!(self.phase, Phase::Publish) {
            return self.publish(device).map(|()| false);
        }
        let Some(part) = self.parts.get(self.at).cloned() else { return Ok(true) };
        if self.buffer.is_empty() {
            self.buffer = vec![0; CHUNK];
        }
        match self.phase {
            Phase::Look => {
                let ours =
                    device.open(&part.path).map_err(|error| Failed::Source { path: part.path.clone(), error })?;
                self.phase = match self.look(device, ours, part.ending) {
                    Ok(phase) => phase,
                    Err(error) => {
                        device.close(ours);
                        return Err(self.refused(error));
                    }
                };
            }
            Phase::Compare { ours, theirs, offset } => {
                let mut other = vec![0; CHUNK];
                let n = self.read(device, ours, offset, &part)?;
                let m = device.read(theirs, offset, &mut other).map_err(|e| self.refused(e))?;
                if self.buffer[..n] != other[..m] {
                    self.close(device);
                    self.take_next_name(device);
                } else if n == 0 {
                    self.close(device);
                    self.present.push(self.at);
                    self.next_part();
                } else {
                    self.phase = Phase::Compare { ours, theirs, offset: offset + n as u64 };
                }
            }
            Phase::Copy { ours, copy, offset, crc } => {
                let n = self.read(device, ours, offset, &part)?;
                if n > 0 {
                    device.put(copy, offset, &self.buffer[..n]).map_err(|e| self.refused(e))?;
                    let crc = crc32c::crc32c_append(crc, &self.buffer[..n]);
                    self.phase = Phase::Copy { ours, copy, offset: offset + n as u64, crc };
                } else {
                    self.close(device);
                    let hidden = self.hidden(part.ending);
                    device.sync(&hidden).map_err(|e| self.refused(e))?;
                    let copy = device.open(&hidden).map_err(|e| self.refused(e))?;
                    self.phase = Phase::ReadBack { copy, bytes: offset, offset: 0, crc: 0, wanted: crc };
                }
            }
            Phase::ReadBack { copy, bytes, offset, crc, wanted } => {
                let n = device.read(copy, offset, &mut self.buffer).map_err(|e| self.refused(e))?;
                let crc = crc32c::crc32c_append(crc, &self.buffer[..n]);
                if n > 0 {
                    self.phase = Phase::ReadBack { copy, bytes, offset: offset + n as u64, crc, wanted };
                    return Ok(false);
                }
                self.close(device);
                if (offset, crc) != (bytes, wanted) {
                    let text = format!("of {bytes} bytes written {offset} came back, or others; check that volume");
                    return Err(Failed::Archive { path: self.hidden(part.ending), text });
                }
                self.next_part();
            }
            Phase::Publish | Phase::Done => return Ok(true),
        }
        Ok(false)
    }

    /// How this part is begun.
    fn look<D: Housekeeping>(&mut self, device: &mut D, ours: FileId, ending: &str) -> io::Result<Phase> {
        let there = self.name(ending);
        if device.exists(&there) {
            return Ok(Phase::Compare { ours, theirs: device.open(&there)?, offset: 0 });
        }
        let hidden = self.hidden(ending);
        match device.remove(&hidden) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        // Content of any length: the copy goes through the page cache, in pieces.
        let copy = device.create(&hidden, Content::Index)?;
        self.made.push(hidden);
        Ok(Phase::Copy { ours, copy, offset: 0, crc: 0 })
    }

    fn read<D: Housekeeping>(
        &mut self,
        device: &mut D,
        file: FileId,
        offset: u64,
        part: &Part,
    ) -> Result<usize, Failed> {
        let read = device.read(file, offset, &mut self.buffer);
        read.map_err(|error| Failed::Source { path: part.path.clone(), error })
    }

    /// Closes what this phase has open.
    fn close<D: Housekeeping>(&mut self, device: &mut D) {
        match std::mem::replace(&mut self.phase, Phase::Look) {
            Phase::Compare { ours: a, theirs: b, .. } | Phase::Copy { ours: a, copy: b, .. } => {
                device.close(a);
                device.close(b);
            }
            Phase::ReadBack { copy, .. } => device.close(copy),
            other => self.phase = other,
        }
    }

    /// On one volume: moves the file itself. To be called when nobody reads there; true if it is gone from the store.
    pub fn rename<D: Housekeeping>(&mut self, device: &mut D) -> Result<bool, Failed> {
        if !self.renames {
            return Ok(false);
        }
        // The index may be there already, if a kill came between the two renames, and then has no packets beside it.
        while names::PACKETS.iter().any(|ending| device.exists(&self.name(ending)))
            || self.parts.iter().any(|p| p.ending == names::INDEX) && device.exists(&self.name(names::INDEX))
        {
            self.copy += 1;
        }
        self.aim();
        for part in self.parts.clone() {
            match device.rename(&part.path, &self.name(part.ending)) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                    (self.renames, self.phase) = (false, Phase::Look);
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Failed::Source { path: part.path, error });
                }
                Err(e) => return Err(self.refused(e)),
            }
        }
        device.sync(&self.folder).map_err(|e| self.refused(e))?;
        Ok(true)
    }

    /// Whether there is nothing left to copy.
    pub fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Takes back what has no name yet.
    pub fn abandon<D: Housekeeping>(&mut self, device: &mut D) {
        self.close(device);
        self.made.drain(..).for_each(|hidden| drop(device.remove(&hidden)));
    }

    fn publish<D: Housekeeping>(&mut self, device: &mut D) -> Result<(), Failed> {
        for (i, part) in self.parts.iter().enumerate() {
            if self.present.contains(&i) {
                continue;
            }
            let (hidden, name) = (self.hidden(part.ending), self.name(part.ending));
            device.rename(&hidden, &name).map_err(|e| self.refused(e))?;
            self.made.retain(|made| *made != hidden);
        }
        device.sync(&self.folder).map_err(|e| self.refused(e))?;
        self.phase = Phase::Done;
        Ok(())
    }

    fn next_part(&mut self) {
        self.at += 1;
        self.phase = if self.at < self.parts.len() { Phase::Look } else { Phase::Publish };
    }

    /// Another file has the name. What was copied so far is copied again: this is rare.
    fn take_next_name<D: Housekeeping>(&mut self, device: &mut D) {
        self.made.drain(..).for_each(|hidden| drop(device.remove(&hidden)));
        self.copy += 1;
        self.at = 0;
        self.present.clear();
        self.phase = Phase::Look;
        self.aim();
    }

    fn aim(&mut self) {
        let ending = self.parts.last().map_or(names::INDEX, |part| part.ending);
        self.target = self.name(ending);
    }

    fn stem(&self) -> String {
        names::stem(self.key.start, self.key.queue, self.copy)
    }

    fn name(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.stem()))
    }

    fn hidden(&self, ending: &str) -> PathBuf {
        self.folder.join(format!(".{}.{ending}.{MOVING}", self.stem()))
    }

    fn refused(&self, error: io::Error) -> Failed {
        Failed::Archive { path: self.folder.clone(), text: error.to_string() }
    }
}
