//! Finds the files to read, and their order.

use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of nested directory levels; `STORE/IFACE/YYYY/MM/DD/HH` has six.
const MAX_DEPTH: usize = 16;

/// The format in which a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Pcap,
    Raw,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "pcap" => Some(Self::Pcap),
            "raw" => Some(Self::Raw),
            _ => None,
        }
    }
}

/// The capture files in and below `paths`. The files of one path are in the order of their names, which in a store is
/// the order of time. A file given as a path is read whatever its name, as pcap unless the name ends in `.raw`.
pub(crate) fn find(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Format)>, (PathBuf, io::Error)> {
    let mut found = Vec::new();
    for path in paths {
        let metadata = path.metadata().map_err(|e| (path.clone(), e))?;
        if metadata.is_dir() {
            list_files(path, MAX_DEPTH, &mut found)?;
        } else {
            found.push((path.clone(), Format::of(path).unwrap_or(Format::Pcap)));
        }
    }
    Ok(found)
}

fn list_files(directory: &Path, depth: usize, found: &mut Vec<(PathBuf, Format)>) -> Result<(), (PathBuf, io::Error)> {
    let failed = |e| (directory.to_owned(), e);
    if depth == 0 {
        return Err(failed(io::Error::other(format!("directories are nested more than {MAX_DEPTH} levels deep"))));
    }
    let mut entries = std::fs::read_dir(directory).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // Symbolic links to directories are not followed, because they could form a loop.
        if entry.file_type().map_err(failed)?.is_dir() {
            list_files(&path, depth - 1, found)?;
        } else if let Some(format) = Format::of(&path) {
            found.push((path, format));
        }
    }
    Ok(())
}
