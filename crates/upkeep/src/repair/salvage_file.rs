//! Writes the complete records of a damaged capture into a new file, and keeps the original under another name. The
//! module [`super::salvage`] finds the records.

use super::salvage::{self, SalvageResult};
use super::{Repair, RepairEvent};
use crate::packet_file::Window;
use crate::recovery::DAMAGED;
use std::io;
use std::path::{Path, PathBuf};
use store::device::{Content, Device, FileId};

impl<D: Device, M: Fn() -> D, F: FnMut(RepairEvent)> Repair<D, M, F> {
    /// Salvages the complete records of a capture that is foreign or was renamed as damaged.
    pub(super) fn salvage(&mut self, path: &Path, name: &str) -> io::Result<RepairEvent> {
        let Some(file) = self.device.take(path)? else {
            return Err(io::Error::other("a running process has locked the file: wait until that process has ended"));
        };
        let saved = self.salvage_into(path, name, file);
        self.device.close(file);
        saved
    }

    /// An error if nothing can be salvaged from this capture.
    pub(super) fn can_salvage(&mut self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = self.device.open(path)?;
        let found = self.salvageable(&name, file);
        self.device.close(file);
        found.map(|_| ())
    }

    /// The complete records of a capture; an error if there is nothing to save.
    fn salvageable(&mut self, name: &str, file: FileId) -> io::Result<SalvageResult> {
        let unchanged =
            |e: io::Error| io::Error::new(e.kind(), format!("{e}: nothing can be saved; the file was not changed"));
        let name = name.strip_suffix(&format!(".{DAMAGED}")).unwrap_or(name);
        // Further originals of the same name have a number: `NAME_1.damaged`.
        let numbered = name.rsplit_once('_').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
        let name = numbered.map_or(name, |(name, _)| name);
        let found =
            salvage::find(&mut Window::new(&mut self.device, file, u64::MAX)?, name).map_err(|e| match e.kind() {
                io::ErrorKind::InvalidData => unchanged(e),
                _ => e,
            })?;
        match found.packets {
            0 if found.left_out > 0 => {
                Err(unchanged(io::Error::new(io::ErrorKind::InvalidData, "the file has no complete packet")))
            }
            _ => Ok(found),
        }
    }

    fn salvage_into(&mut self, path: &Path, name: &str, file: FileId) -> io::Result<RepairEvent> {
        let temporary = path.with_file_name(format!(".{name}.repaired"));
        let aside = name.strip_suffix(&format!(".{DAMAGED}"));
        let to = aside.map_or_else(|| path.to_owned(), |name| path.with_file_name(format!("{name}.salvaged")));
        if aside.is_some() && self.device.exists(&to) {
            let why = format!("{} exists, from an earlier repair: move or remove that file first", to.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        match self.device.remove(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let found = self.salvageable(name, file)?;
        if found.left_out == 0 && aside.is_none() {
            return Ok(RepairEvent::Undamaged(path.to_owned()));
        }
        let salvaged = self.write_salvaged(path, name, file, &found, &temporary);
        if salvaged.is_err() {
            // The error is reported; a second error of the removal would hide it.
            let _ = self.device.remove(&temporary);
        }
        let original = salvaged?;
        self.device.rename(&temporary, &to)?;
        Ok(RepairEvent::Salvaged { path: to, original, packets: found.packets, bytes: found.left_out })
    }

    /// Writes the salvaged records into a temporary file with the permissions of the original, and renames the original
    /// unless it has been renamed before. Returns the path of the original.
    fn write_salvaged(
        &mut self,
        path: &Path,
        name: &str,
        file: FileId,
        found: &SalvageResult,
        temporary: &Path,
    ) -> io::Result<PathBuf> {
        let copy = self.device.create(temporary, Content::Index)?;
        let copied = self.device.copy_permissions(file, copy).and_then(|()| self.copy(file, copy, &found.kept));
        let synced = copied.and_then(|()| crate::recovery::sync(&mut self.device, copy));
        self.device.close(copy);
        synced?;
        let examined = found.left_out + found.kept.iter().map(|kept| kept.end - kept.start).sum::<u64>();
        if self.device.len(file)? != examined {
            return Err(io::Error::other("the file is still being written: wait until its writer has ended"));
        }
        if name.ends_with(&format!(".{DAMAGED}")) {
            return Ok(path.to_owned());
        }
        let mut number = 0;
        loop {
            let suffix = if number > 0 { format!("_{number}") } else { String::new() };
            let original = path.with_file_name(format!("{name}{suffix}.{DAMAGED}"));
            match self.device.rename(path, &original) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                other => return other.map(|()| original),
            }
        }
    }

    fn copy(&mut self, file: FileId, copy: FileId, kept: &[std::ops::Range<u64>]) -> io::Result<()> {
        let mut window = Window::new(&mut self.device, file, u64::MAX)?;
        let mut to = 0;
        for kept in kept {
            let mut from = kept.start;
            while from < kept.end {
                let part = window.get(from, (kept.end - from).min(1 << 20) as usize)?.to_vec();
                if part.is_empty() {
                    break;
                }
                window.device().put(copy, to, &part)?;
                (from, to) = (from + part.len() as u64, to + part.len() as u64);
            }
        }
        Ok(())
    }
}
