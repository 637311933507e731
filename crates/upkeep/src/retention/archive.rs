//! One file and its index on their way to the archive: the same names in the same folders under another root.
//!
//! On the same volume they are renamed. On another one each is copied under a hidden name, synced, read back and compared,
//! and gets its name only then: index first, then packets, then the folder is synced, and only after that does the store
//! lose its own. A kill at any step leaves the file whole in the store; begun again, what is already there is compared and
//! not copied twice, and a name that another file has is not taken. Hidden copies stay open, and so held, until they have
//! their names: what nobody holds was left behind by somebody who was killed.
//!
//! Every call may wait for a volume that does not answer, so nothing of this happens before the first step.

use super::catalogue::{Key, Part};
use crate::recovery::file_names::interface_of;
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, FileId, Housekeeping};
use store::names;
use store::out_of_order::{self, OutOfOrderMarkers, Span};

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
    /// The archive, and in it the folder of the interface and that of the hour.
    archive: PathBuf,
    interface: PathBuf,
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
    /// The volume that the archive is to lie on; any, and then this one, if it is not known.
    volume: Option<u64>,
    /// Whether copies that others left behind are to be cleared away first.
    sweeps: bool,
    /// Hidden copies, held, that are to be removed if this comes to nothing.
    made: Vec<(PathBuf, FileId)>,
    /// Parts that were there before.
    present: Vec<usize>,
    buffer: Vec<u8>,
}

enum Phase {
    /// Is the archive there, and has it room?
    Begin,
    /// What has the name there already?
    Examine,
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
    /// To be begun; `interface` is the folder in the archive.
    pub fn new(archive: &Path, interface: PathBuf, volume: Option<u64>, key: Key, parts: Vec<Part>) -> Self {
        let mut this = Self {
            key,
            archive: archive.to_owned(),
            folder: names::hour_folder(&interface, key.start),
            interface,
            parts,
            copy: key.copy,
            at: 0,
            phase: Phase::Begin,
            renames: false,
            target: PathBuf::new(),
            volume,
            sweeps: false,
            made: Vec::new(),
            present: Vec::new(),
            buffer: Vec::new(),
        };
        this.aim();
        this
    }

    /// Clears away first what others left behind on their way to this interface's folder.
    pub fn sweeping(mut self, sweeps: bool) -> Self {
        self.sweeps = sweeps;
        self
    }

    /// The volume of the archive, as far as it is known.
    pub fn volume(&self) -> Option<u64> {
        self.volume
    }

    fn begin<D: Housekeeping>(&mut self, device: &mut D) -> Result<(), Failed> {
        let mut bytes = 0;
        let mut volume = 0;
        for part in &self.parts {
            let stat = device.stat(&part.path).map_err(|error| Failed::Source { path: part.path.clone(), error })?;
            (bytes, volume) = (bytes + stat.bytes, stat.volume);
        }
        let unfit = |text: String| Failed::Archive { path: self.archive.clone(), text };
        let there = device.stat(&self.archive).map_err(|e| unfit(format!("{e}; mount it, or make the folder")))?;
        if *self.volume.get_or_insert(there.volume) != there.volume {
            return Err(unfit("it is on another volume than at the start; mount it again".to_owned()));
        }
        device.create_folder(&self.folder).map_err(|e| self.refused(e))?;
        // Renaming over the border of volumes fails; a bind mount is the same volume and may still refuse it.
        self.renames = there.volume == volume;
        if self.renames {
            self.phase = Phase::Done;
            return Ok(());
        }
        if self.sweeps {
            sweep(device, &self.interface, 4);
        }
        let space = device.space(&self.archive).map_err(|e| self.refused(e))?;
        if space.free < bytes + SPARE {
            let text = format!("{bytes} bytes are to be moved there and {} are free", space.free);
            return Err(Failed::Archive { path: self.folder.clone(), text });
        }
        self.phase = Phase::Examine;
        Ok(())
    }

    /// Where the packets will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// One step, until [`Move::is_whole`].
    pub fn step<D: Housekeeping>(&mut self, device: &mut D) -> Result<(), Failed> {
        match self.phase {
            Phase::Begin => return self.begin(device),
            Phase::Publish => return self.publish(device),
            _ => {}
        }
        let Some(part) = self.parts.get(self.at).cloned() else {
            self.phase = Phase::Done;
            return Ok(());
        };
        if self.buffer.is_empty() {
            self.buffer = vec![0; CHUNK];
        }
        match self.phase {
            Phase::Examine => {
                let ours =
                    device.open(&part.path).map_err(|error| Failed::Source { path: part.path.clone(), error })?;
                self.phase = match self.examine(device, ours, part.ending) {
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
                    return Ok(());
                }
                self.close(device);
                if (offset, crc) != (bytes, wanted) {
                    let text = format!("of {bytes} bytes written {offset} came back, or others; check that volume");
                    return Err(Failed::Archive { path: self.hidden(part.ending), text });
                }
                self.next_part();
            }
            Phase::Begin | Phase::Publish | Phase::Done => {}
        }
        Ok(())
    }

    /// How this part is begun.
    fn examine<D: Housekeeping>(&mut self, device: &mut D, ours: FileId, ending: &str) -> io::Result<Phase> {
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
        self.made.push((hidden, copy));
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
        match std::mem::replace(&mut self.phase, Phase::Examine) {
            Phase::Compare { ours, theirs, .. } => {
                device.close(ours);
                device.close(theirs);
            }
            Phase::Copy { ours: file, .. } | Phase::ReadBack { copy: file, .. } => device.close(file),
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
        self.note(device).map_err(|e| self.refused(e))?;
        for (i, part) in self.parts.clone().into_iter().enumerate() {
            let outcome = device.rename(&part.path, &self.name(part.ending));
            if outcome.is_err() {
                // An index stays with its packets.
                for done in &self.parts[..i] {
                    let _ = device.rename(&self.name(done.ending), &done.path);
                }
            }
            match outcome {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                    (self.renames, self.phase) = (false, Phase::Examine);
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

    /// Whether the copies are safe and have their names, or there is nothing to copy but to be renamed.
    pub fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Takes back what was made and came to nothing.
    pub fn abandon<D: Housekeeping>(&mut self, device: &mut D) {
        self.close(device);
        self.discard(device);
        let index = self.parts.iter().position(|part| part.ending == names::INDEX);
        let is_ours = |at: usize| self.present.contains(&at) && !self.is_whole();
        let has_packets = |device: &mut D| names::PACKETS.iter().any(|ending| device.exists(&self.name(ending)));
        if index.is_some_and(is_ours) && !has_packets(device) {
            // It has its name, and its packets will not follow.
            let _ = device.remove(&self.name(names::INDEX));
        }
    }

    fn publish<D: Housekeeping>(&mut self, device: &mut D) -> Result<(), Failed> {
        self.note(device).map_err(|e| self.refused(e))?;
        for (i, part) in self.parts.iter().enumerate() {
            if self.present.contains(&i) {
                continue;
            }
            let (hidden, name) = (self.hidden(part.ending), self.name(part.ending));
            device.rename(&hidden, &name).map_err(|e| self.refused(e))?;
            self.present.push(i);
            if let Some(at) = self.made.iter().position(|(made, _)| *made == hidden) {
                device.close(self.made.swap_remove(at).1);
            }
        }
        device.sync(&self.folder).map_err(|e| self.refused(e))?;
        self.phase = Phase::Done;
        Ok(())
    }

    /// What is noted of the file goes with it: it is there before the packets have their name.
    fn note<D: Housekeeping>(&self, device: &mut D) -> io::Result<()> {
        let Some(hour) = self.parts.first().and_then(|part| part.path.parent()) else { return Ok(()) };
        let noted = OutOfOrderMarkers::list(device, &interface_of(hour))?;
        let Key { start, queue, copy, .. } = self.key;
        match noted.get((start, queue.unwrap_or(0), copy)) {
            Some(Span::UNKNOWN) => out_of_order::write_marker(device, &self.interface, &self.stem(), None),
            Some(span) => out_of_order::write_marker(device, &self.interface, &self.stem(), Some(span)),
            None => Ok(()),
        }
    }

    /// Removes the hidden copies.
    fn discard<D: Housekeeping>(&mut self, device: &mut D) {
        for (hidden, file) in self.made.drain(..) {
            let _ = device.remove(&hidden);
            device.close(file);
        }
    }

    fn next_part(&mut self) {
        self.at += 1;
        self.phase = if self.at < self.parts.len() { Phase::Examine } else { Phase::Publish };
    }

    /// Another file has the name. What was copied so far is copied again: this is rare.
    fn take_next_name<D: Housekeeping>(&mut self, device: &mut D) {
        self.discard(device);
        self.copy += 1;
        self.at = 0;
        self.present.clear();
        self.phase = Phase::Examine;
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

/// Removes copies that are not whole and that nobody works on any more; what cannot be looked at is left as it is.
fn sweep<D: Housekeeping>(device: &mut D, folder: &Path, depth: u32) {
    for (name, is_folder) in device.list(folder).unwrap_or_default() {
        let path = folder.join(&name);
        let is_number = name.bytes().all(|b| b.is_ascii_digit());
        if is_folder && is_number && depth > 0 {
            sweep(device, &path, depth - 1);
        } else if !is_folder && name.starts_with('.') && name.ends_with(&format!(".{MOVING}")) {
            let _ = device.remove_unheld(&path);
        }
    }
}
