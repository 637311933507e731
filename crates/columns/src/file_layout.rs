//! Paths of sealed files and journals. These functions read only the names of files, not their contents.
//!
//! A sealed file lies in the hour directory of its first timestamp, `STORE/IFACE/YYYY/MM/DD/HH/<first
//! timestamp>.flows.parquet`. A journal lies in the interface's own directory under a hidden name, `.<first timestamp
//! at its creation>.flows.partial`. A file of flow records with a row that ends more than an hour after the timestamp
//! in the file name is named `<first timestamp>.day.flows.parquet`.

use base::Timestamp;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::catalogue::{Hour, Hours, parse_stem};
use store::device::Housekeeping;
use store::names;
use sys::nofollow;

/// The table (flow records or series rows) that a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataFileKind {
    /// Flow records.
    Flows,
    /// One-second rows.
    Series,
}

impl DataFileKind {
    /// The name of this table, which is part of the file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Series => "series",
        }
    }

    /// The last part of the names of sealed files of this table.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Flows => "flows.parquet",
            Self::Series => "series.parquet",
        }
    }

    /// The longest time from the timestamp in the name of a sealed file to any row of the file, unless the name
    /// contains the marker `.day`.
    pub const fn reach(self) -> Duration {
        match self {
            Self::Flows => Duration::from_secs(3600),
            Self::Series => FAR,
        }
    }
}

/// The longest time from the timestamp in the name of any file to any row of the file. Writers begin another file
/// before this time is exceeded; only a single record that lasts longer exceeds it.
pub const FAR: Duration = Duration::from_secs(86_400);

/// The marker in the name of a file whose last row ends up to a day after the timestamp in the name.
const DAY: &str = ".day";

/// A sealed file, described from its name and directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealedFile {
    /// Its first timestamp.
    pub start: Timestamp,
    /// The number that distinguishes files of equal first timestamp; 0 for the first of them.
    pub copy: u32,
    /// The longest time from the first timestamp of the file to any of its rows.
    pub reach: Duration,
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The sealed files of one kind of one interface, the oldest first.
///
/// # Errors
/// If a directory cannot be listed; a directory that was removed meanwhile is skipped.
pub fn files(store: &Path, interface: &str, kind: DataFileKind) -> io::Result<Vec<SealedFile>> {
    let root = names::interface_directory(store, interface);
    let mut hours = Hours::forward(&root, Timestamp::ZERO, Timestamp::MAX);
    let mut found = Vec::new();
    while let Some(hour) = hours.next()? {
        found.extend(in_hour(&hour, kind)?);
    }
    Ok(found)
}

/// Like the function `files`, but lists the interface's directory `root` through `disk`, and returns the timestamp in
/// the name and the path of each file.
pub(crate) fn files_on(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let mut found = in_hours(disk, root, |name| start_of(name, kind))?;
    found.sort();
    Ok(found.into_iter().map(|((start, ..), path)| (start, path)).collect())
}

/// The hidden files of one kind, of running and of ended processes.
pub(crate) fn hidden_on(disk: &mut dyn Housekeeping, root: &Path, kind: DataFileKind) -> io::Result<Vec<PathBuf>> {
    let found = in_hours(disk, root, |name| {
        start_of(name.strip_prefix('.')?.strip_suffix(names::PARTIAL)?.strip_suffix('.')?, kind)
    })?;
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The files in all hour directories whose names `known` recognises, each with the result of `known`; unsorted.
fn in_hours<T>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    known: impl Fn(&str) -> Option<T>,
) -> io::Result<Vec<(T, PathBuf)>> {
    // A directory that retention removed meanwhile counts as empty.
    let mut list = |directory: &Path| match disk.list(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    };
    // Levels: year, month, day, hour.
    let mut directories = vec![root.to_owned()];
    for digits in [4, 2, 2, 2] {
        let is_number = |name: &str| name.len() == digits && name.bytes().all(|byte| byte.is_ascii_digit());
        let mut inside = Vec::new();
        for directory in &directories {
            let names = list(directory)?.into_iter().filter(|(name, is_directory)| *is_directory && is_number(name));
            inside.extend(names.map(|(name, _)| directory.join(name)));
        }
        directories = inside;
    }
    let mut found = Vec::new();
    for directory in directories {
        let names = list(&directory)?.into_iter();
        found.extend(names.filter_map(|(name, _)| Some((known(&name)?, directory.join(name)))));
    }
    Ok(found)
}

/// The sealed files of one hour directory, sorted.
pub(crate) fn in_hour(hour: &Hour, kind: DataFileKind) -> io::Result<Vec<SealedFile>> {
    let mut found = Vec::new();
    let entries = match nofollow::list(&hour.directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        other => other?,
    };
    for (name, _) in entries {
        let Ok(name) = name.into_string() else { continue };
        let Some((start, copy, reach)) = start_of(&name, kind) else { continue };
        let path = hour.directory.join(name);
        match nofollow::stat(&path) {
            Ok(meta) if meta.is_file() => found.push(SealedFile { start, copy, reach, path, bytes: meta.len() }),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// The first timestamp, the copy number and the reach (the longest time from this timestamp to any row) in the name of
/// a sealed file; `None` if the name is not of this kind.
pub(crate) fn start_of(name: &str, kind: DataFileKind) -> Option<(Timestamp, u32, Duration)> {
    let stem = name.strip_suffix(kind.ending())?.strip_suffix('.')?;
    let (stem, reach) = stem.strip_suffix(DAY).map_or((stem, kind.reach()), |stem| (stem, FAR));
    match parse_stem(stem)? {
        (start, 0, copy) => Some((start, copy, reach)),
        _ => None,
    }
}

/// The name of a sealed file with rows from `start` to `end`.
pub(crate) fn sealed_name(kind: DataFileKind, start: Timestamp, end: Timestamp, copy: u32) -> String {
    let day = if end.since(start) < kind.reach() || kind.reach() == FAR { "" } else { DAY };
    format!("{}{day}.{}", names::stem(start, None, copy), kind.ending())
}

/// The journals in an interface's directory with the timestamps in their names, sorted.
pub(crate) fn journals(root: &Path, kind: DataFileKind) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let entries = match nofollow::list(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    Ok(journals_of(root, kind, entries.into_iter().filter_map(|(name, _)| name.into_string().ok())))
}

/// Like the function `journals`, but takes the file names from the list `names` and does not list the directory.
pub(crate) fn journals_of(
    root: &Path,
    kind: DataFileKind,
    names: impl Iterator<Item = String>,
) -> Vec<(Timestamp, PathBuf)> {
    let start = |name: &str| {
        let stem = name.strip_prefix('.')?.strip_suffix(names::PARTIAL)?.strip_suffix('.')?;
        Some(parse_stem(stem.strip_suffix(kind.name())?.strip_suffix('.')?)?.0)
    };
    let mut found: Vec<_> = names.filter_map(|name| Some((start(&name)?, root.join(name)))).collect();
    found.sort();
    found
}

/// The path of a journal.
pub(crate) fn journal(root: &Path, kind: DataFileKind, start: Timestamp, copy: u32) -> PathBuf {
    root.join(names::hidden(&names::stem(start, None, copy), kind.name()))
}
