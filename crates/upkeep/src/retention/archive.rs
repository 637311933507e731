//! Moves one packet file with its index to the archive, under the same names and directories below another root.
//!
//! If the archive is on the same volume, the files are renamed. If it is on another volume, each file is copied under a
//! hidden name, synced, read back, compared, and then published: first the index, then the packet file. Then the
//! directory is synced, and only after that are the files removed from the store. After a kill at any step, the file is
//! still complete in the store. The next attempt compares existing copies instead of copying again, and chooses another
//! name if a different file already has the name. Hidden copies stay open and locked until they are published, so an
//! unlocked copy is a leftover of a killed process.
//!
//! Every file operation may wait for a volume that does not respond, so the constructor performs no file operation.

use super::catalogue::{Key, Part};
use crate::recovery::file_names::interface_of;
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, FileId, Housekeeping};
use store::names;
use store::out_of_order::{self, OutOfOrderMarkers, Span};

/// Bytes copied in one step.
const CHUNK: usize = 1 << 20;

/// Suffix of the hidden name of an incomplete copy; differs from the recorder's suffix, so that no recovery acts on it.
const MOVING: &str = "moving";

/// Number of bytes that stay free on the archive's volume.
const SPARE: u64 = 16 << 20;

/// The reason why a file could not be archived.
#[derive(Debug)]
pub(super) enum Failed {
    /// The file in the store cannot be read or removed.
    Source { path: PathBuf, error: io::Error },
    /// The archive cannot be written.
    Archive { path: PathBuf, text: String },
}

/// The state of one move.
pub(super) struct Move {
    key: Key,
    /// The archive root, the interface directory and the hour directory in the archive.
    archive: PathBuf,
    interface: PathBuf,
    directory: PathBuf,
    parts: Vec<Part>,
    /// Copy number in the name of the file in the archive.
    copy: u32,
    /// Index of the current part.
    at: usize,
    phase: Phase,
    /// True if store and archive are on the same volume.
    renames: bool,
    target: PathBuf,
    /// The id of the volume on which the archive must be; `None` if it is not known yet, so that any volume is
    /// accepted.
    volume: Option<u64>,
    /// True if incomplete copies of other processes must be removed first.
    sweeps: bool,
    /// The hidden and locked copies of this process, which are removed if the move fails.
    made: Vec<(PathBuf, FileId)>,
    /// The files (index, packet file) that already existed in the archive.
    present: Vec<usize>,
    buffer: Vec<u8>,
}

enum Phase {
    /// Test that the archive exists and has enough space.
    Begin,
    /// Test whether the archive contains a file with the same name.
    Examine,
    /// Compare the existing file in the archive with the file in the store.
    Compare { ours: FileId, existing: FileId, offset: u64 },
    /// Copy to the other volume.
    Copy { ours: FileId, copy: FileId, offset: u64, crc: u32 },
    /// Read the copy back.
    ReadBack { copy: FileId, bytes: u64, offset: u64, crc: u32, wanted: u32 },
    /// Index and packet file are copied; publish them.
    Publish,
    /// All parts are published.
    Done,
}

impl Move {
    /// A move that has not begun; `interface` is the interface directory in the archive.
    pub fn new(archive: &Path, interface: PathBuf, volume: Option<u64>, key: Key, parts: Vec<Part>) -> Self {
        let mut this = Self {
            key,
            archive: archive.to_owned(),
            directory: names::hour_directory(&interface, key.start),
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
        this.set_directory();
        this
    }

    /// Makes the move begin with the removal of incomplete copies that other processes left in this interface
    /// directory.
    pub fn sweeping(mut self, sweeps: bool) -> Self {
        self.sweeps = sweeps;
        self
    }

    /// The id of the archive's volume, if known.
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
        let archive =
            device.stat(&self.archive).map_err(|e| unfit(format!("{e}; mount its volume, or create the directory")))?;
        if *self.volume.get_or_insert(archive.volume) != archive.volume {
            return Err(unfit(
                "the archive is on another volume than at the start; mount the volume of the archive again".to_owned(),
            ));
        }
        device.create_directory(&self.directory).map_err(|e| self.refused(e))?;
        // A rename between volumes fails. A rename between a bind mount and the rest of its volume may fail too,
        // although the volume is the same.
        self.renames = archive.volume == volume;
        if self.renames {
            self.phase = Phase::Done;
            return Ok(());
        }
        if self.sweeps {
            sweep(device, &self.interface, 4);
        }
        let space = device.space(&self.archive).map_err(|e| self.refused(e))?;
        if space.free < bytes + SPARE {
            let text = format!("the next file needs {bytes} bytes in the archive, and {} are free", space.free);
            return Err(Failed::Archive { path: self.directory.clone(), text });
        }
        self.phase = Phase::Examine;
        Ok(())
    }

    /// The path of the packet file in the archive.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Performs one step, until [`Move::is_finished`] is true.
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
            Phase::Compare { ours, existing, offset } => {
                let mut other = vec![0; CHUNK];
                let n = self.read(device, ours, offset, &part)?;
                let m = device.read(existing, offset, &mut other).map_err(|e| self.refused(e))?;
                if self.buffer[..n] != other[..m] {
                    self.close(device);
                    self.take_next_name(device);
                } else if n == 0 {
                    self.close(device);
                    self.present.push(self.at);
                    self.next_part();
                } else {
                    self.phase = Phase::Compare { ours, existing, offset: offset + n as u64 };
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
                    let text = format!(
                        "{bytes} bytes were written, but reading them back gave {offset} bytes or other contents; \
                         check the volume of the archive"
                    );
                    return Err(Failed::Archive { path: self.hidden(part.ending), text });
                }
                self.next_part();
            }
            Phase::Begin | Phase::Publish | Phase::Done => {}
        }
        Ok(())
    }

    /// Chooses the first phase of the move for this file (the index or the packet file).
    fn examine<D: Housekeeping>(&mut self, device: &mut D, ours: FileId, ending: &str) -> io::Result<Phase> {
        let published = self.name(ending);
        if device.exists(&published) {
            return Ok(Phase::Compare { ours, existing: device.open(&published)?, offset: 0 });
        }
        let hidden = self.hidden(ending);
        match device.remove(&hidden) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        // `Content::Index` is used for packet files too, because copies are written in pieces of any length through the
        // page cache.
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

    /// Closes the files of the current phase.
    fn close<D: Housekeeping>(&mut self, device: &mut D) {
        match std::mem::replace(&mut self.phase, Phase::Examine) {
            Phase::Compare { ours, existing, .. } => {
                device.close(ours);
                device.close(existing);
            }
            Phase::Copy { ours: file, .. } | Phase::ReadBack { copy: file, .. } => device.close(file),
            other => self.phase = other,
        }
    }

    /// If store and archive are on one volume: renames the files. The caller ensures that no query reads the directory.
    /// Returns true if the files have left the store.
    pub fn rename<D: Housekeeping>(&mut self, device: &mut D) -> Result<bool, Failed> {
        if !self.renames {
            return Ok(false);
        }
        // The index may already be in the archive without a packet file, if a kill interrupted an earlier move between
        // the two renames.
        while names::PACKETS.iter().any(|ending| device.exists(&self.name(ending)))
            || self.parts.iter().any(|p| p.ending == names::INDEX) && device.exists(&self.name(names::INDEX))
        {
            self.copy += 1;
        }
        self.set_directory();
        self.copy_marker(device).map_err(|e| self.refused(e))?;
        for (i, part) in self.parts.clone().into_iter().enumerate() {
            let outcome = device.rename(&part.path, &self.name(part.ending));
            if outcome.is_err() {
                // The index must stay with its packet file, so the rename of the index is undone if that of the packet
                // file fails.
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
        device.sync(&self.directory).map_err(|e| self.refused(e))?;
        Ok(true)
    }

    /// True after the last phase: the copies are published, or, if store and archive are on one volume, the files can
    /// be renamed with [`Self::rename`].
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Undoes an unsuccessful move.
    pub fn abandon<D: Housekeeping>(&mut self, device: &mut D) {
        self.close(device);
        self.discard(device);
        let index = self.parts.iter().position(|part| part.ending == names::INDEX);
        let is_ours = |at: usize| self.present.contains(&at) && !self.is_finished();
        let has_packets = |device: &mut D| names::PACKETS.iter().any(|ending| device.exists(&self.name(ending)));
        if index.is_some_and(is_ours) && !has_packets(device) {
            // This index was published, but its packet file was not.
            let _ = device.remove(&self.name(names::INDEX));
        }
    }

    fn publish<D: Housekeeping>(&mut self, device: &mut D) -> Result<(), Failed> {
        self.copy_marker(device).map_err(|e| self.refused(e))?;
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
        device.sync(&self.directory).map_err(|e| self.refused(e))?;
        self.phase = Phase::Done;
        Ok(())
    }

    /// Copies the out-of-order marker before the packet file is published.
    fn copy_marker<D: Housekeeping>(&self, device: &mut D) -> io::Result<()> {
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

    /// If another file in the archive has the same name, which is rare: chooses the next name, and copies index and
    /// packet file again.
    fn take_next_name<D: Housekeeping>(&mut self, device: &mut D) {
        self.discard(device);
        self.copy += 1;
        self.at = 0;
        self.present.clear();
        self.phase = Phase::Examine;
        self.set_directory();
    }

    fn set_directory(&mut self) {
        let ending = self.parts.last().map_or(names::INDEX, |part| part.ending);
        self.target = self.name(ending);
    }

    fn stem(&self) -> String {
        names::stem(self.key.start, self.key.queue, self.copy)
    }

    fn name(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.stem()))
    }

    fn hidden(&self, ending: &str) -> PathBuf {
        self.directory.join(format!(".{}.{ending}.{MOVING}", self.stem()))
    }

    fn refused(&self, error: io::Error) -> Failed {
        Failed::Archive { path: self.directory.clone(), text: error.to_string() }
    }
}

/// Removes incomplete copies that no process holds; skips files that cannot be examined.
fn sweep<D: Housekeeping>(device: &mut D, directory: &Path, depth: u32) {
    for (name, is_directory) in device.list(directory).unwrap_or_default() {
        let path = directory.join(&name);
        let is_number = name.bytes().all(|b| b.is_ascii_digit());
        if is_directory && is_number && depth > 0 {
            sweep(device, &path, depth - 1);
        } else if !is_directory && name.starts_with('.') && name.ends_with(&format!(".{MOVING}")) {
            let _ = device.remove_unheld(&path);
        }
    }
}
