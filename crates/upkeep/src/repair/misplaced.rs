//! Moves files of a store that are in another hour directory than their names say, with their indexes.

use super::{Repair, RepairEvent};
use crate::recovery::FileNames;
use crate::recovery::file_names::{interface_of, place_elsewhere};
use crate::verify::RowFile;
use std::io;
use std::path::{Path, PathBuf};
use store::device::Device;
use store::names::INDEX;

impl<D: Device, M: Fn() -> D, F: FnMut(RepairEvent)> Repair<D, M, F> {
    /// Moves a file with its index into the hour directory that its name says.
    pub(super) fn put_in_place(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let start = FileNames::published(&name).and_then(|called| called.start());
        let start = start.or_else(|| match RowFile::named(&name) {
            Some((RowFile::Sealed(start), _)) => Some(start),
            _ => None,
        });
        // A file that was repaired or renamed meanwhile no longer has this name.
        if !self.device.exists(path) {
            return;
        }
        let Some(place) = start.and_then(|start| place_elsewhere(path, start)) else { return };
        if !self.claimed(&interface_of(path.parent().unwrap_or(path))) {
            return;
        }
        let path = path.to_owned();
        let moved = self.move_into(&path, &place);
        (self.report)(match moved {
            Ok(to) => RepairEvent::Moved { path, to },
            Err(e) => RepairEvent::Refused { path, why: format!("not moved to {}: {e}", place.display()) },
        });
    }

    fn move_into(&mut self, path: &Path, place: &Path) -> io::Result<PathBuf> {
        let Some(file) = self.device.take(path)? else {
            return Err(io::Error::other("a running process has locked the file: wait until that process has ended"));
        };
        let moved = self.move_with_index(path, place);
        self.device.close(file);
        moved
    }

    /// Moves the index first, as a recorder publishes it first: a published packet file has an index at all times.
    fn move_with_index(&mut self, path: &Path, place: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().unwrap_or_default();
        self.device.create_directory(place)?;
        let mut index_name = name.to_owned();
        index_name.push(format!(".{INDEX}"));
        let to = place.join(name);
        let mut moves = vec![(path.with_file_name(&index_name), place.join(&index_name))];
        // A file of flow records or rows has no index.
        if FileNames::published(&name.to_string_lossy()).is_some() {
            moves.push((path.with_extension(INDEX), to.with_extension(INDEX)));
        }
        moves.retain(|(from, _)| self.device.exists(from));
        moves.push((path.to_owned(), to.clone()));
        for (_, to) in &moves {
            if self.device.exists(to) {
                let why = "the directory has a file of this name already; rename or remove one of the two files";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
        }
        for (number, (from, to)) in moves.iter().enumerate() {
            if let Err(e) = self.device.rename(from, to) {
                for (from, to) in &moves[..number] {
                    // The first error is reported; an index that cannot be moved back is an orphan for `verify`.
                    let _ = self.device.rename(to, from);
                }
                return Err(e);
            }
        }
        for directory in [place, path.parent().unwrap_or(place)] {
            let opened = self.device.open_directory(directory)?;
            let synced = crate::recovery::sync(&mut self.device, opened);
            self.device.close(opened);
            match synced {
                // The file system does not support the sync of directories.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                other => other?,
            }
        }
        Ok(to)
    }
}
