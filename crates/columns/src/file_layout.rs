//! Where sealed files and journals lie, by name only.
//!
//! A sealed file lies in the hour of its first moment, `STORE/IFACE/YYYY/MM/DD/HH/<first moment>.flows.parquet`; a journal
//! in the interface's own folder, hidden: `.<first moment at its beginning>.flows.partial`. A file of flow records that reaches
//! farther than an hour from the moment in its name says so there: `<first moment>.day.flows.parquet`.

use base::Timestamp;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::catalogue::{Hour, Hours, parse_stem};
use store::device::Housekeeping;
use store::names;
use sys::nofollow;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataFileKind {
    /// Flow records.
    Flows,
    /// One-second rows.
    Series,
}

impl DataFileKind {
    /// In a word, which is also how journals end.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Series => "series",
        }
    }

    /// How sealed files end.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Flows => "flows.parquet",
            Self::Series => "series.parquet",
        }
    }

    /// How long after the moment in its name a sealed file may hold something, unless the name says that it is a file of a day.
    pub const fn reach(self) -> Duration {
        match self {
            Self::Flows => Duration::from_secs(3600),
            Self::Series => FAR,
        }
    }
}

/// How long after the moment in its name any file may hold something. Writers begin another file before; only a single record
/// that is longer itself goes beyond.
pub const FAR: Duration = Duration::from_secs(86_400);

/// What stands in the name of a file that reaches as far, where others of its kind do not.
const DAY: &str = ".day";

/// A sealed file, as its name and its folder tell it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealedFile {
    /// Its first moment.
    pub start: Timestamp,
    /// Number behind the name of the second file and later ones that would have had the same.
    pub copy: u32,
    /// How long after its first moment it may hold something.
    pub reach: Duration,
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
}

/// The sealed files of one kind of one interface, the oldest first.
///
/// # Errors
/// When a folder cannot be listed; one that was removed meanwhile is passed over.
pub fn files(store: &Path, interface: &str, kind: DataFileKind) -> io::Result<Vec<SealedFile>> {
    let root = names::interface_folder(store, interface);
    let mut hours = Hours::forward(&root, Timestamp::ZERO, Timestamp::MAX);
    let mut found = Vec::new();
    while let Some(hour) = hours.next()? {
        found.extend(in_hour(&hour, kind)?);
    }
    Ok(found)
}

/// The same by what any volume says of names; `root` is the interface's folder.
pub(crate) fn files_on(
    disk: &mut dyn Housekeeping,
    root: &Path,
    kind: DataFileKind,
) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let mut found = in_hours(disk, root, |name| start_of(name, kind))?;
    found.sort();
    Ok(found.into_iter().map(|((start, ..), path)| (start, path)).collect())
}

/// The hidden files of one kind that were to become sealed ones, of the dead and of the living.
pub(crate) fn hidden_on(disk: &mut dyn Housekeeping, root: &Path, kind: DataFileKind) -> io::Result<Vec<PathBuf>> {
    let found = in_hours(disk, root, |name| {
        start_of(name.strip_prefix('.')?.strip_suffix(names::PARTIAL)?.strip_suffix('.')?, kind)
    })?;
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// What `known` knows of the names in the folders of hours, in no order.
fn in_hours<T>(
    disk: &mut dyn Housekeeping,
    root: &Path,
    known: impl Fn(&str) -> Option<T>,
) -> io::Result<Vec<(T, PathBuf)>> {
    // One that retention removed meanwhile is empty.
    let mut list = |folder: &Path| match disk.list(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    };
    // Year, month, day, hour.
    let mut folders = vec![root.to_owned()];
    for digits in [4, 2, 2, 2] {
        let is_number = |name: &str| name.len() == digits && name.bytes().all(|byte| byte.is_ascii_digit());
        let mut inside = Vec::new();
        for folder in &folders {
            let names = list(folder)?.into_iter().filter(|(name, is_folder)| *is_folder && is_number(name));
            inside.extend(names.map(|(name, _)| folder.join(name)));
        }
        folders = inside;
    }
    let mut found = Vec::new();
    for folder in folders {
        let names = list(&folder)?.into_iter();
        found.extend(names.filter_map(|(name, _)| Some((known(&name)?, folder.join(name)))));
    }
    Ok(found)
}

/// Those of one hour, in order.
pub(crate) fn in_hour(hour: &Hour, kind: DataFileKind) -> io::Result<Vec<SealedFile>> {
    let mut found = Vec::new();
    let entries = match nofollow::list(&hour.folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        other => other?,
    };
    for (name, _) in entries {
        let Ok(name) = name.into_string() else { continue };
        let Some((start, copy, reach)) = start_of(&name, kind) else { continue };
        let path = hour.folder.join(name);
        match nofollow::stat(&path) {
            Ok(meta) if meta.is_file() => found.push(SealedFile { start, copy, reach, path, bytes: meta.len() }),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// The first moment of a sealed file of this name, its number, and how far it reaches; `None` if it is none of this kind.
pub(crate) fn start_of(name: &str, kind: DataFileKind) -> Option<(Timestamp, u32, Duration)> {
    let stem = name.strip_suffix(kind.ending())?.strip_suffix('.')?;
    let (stem, reach) = stem.strip_suffix(DAY).map_or((stem, kind.reach()), |stem| (stem, FAR));
    match parse_stem(stem)? {
        (start, 0, copy) => Some((start, copy, reach)),
        _ => None,
    }
}

/// The name of a sealed file with things from `start` to `end`.
pub(crate) fn sealed_name(kind: DataFileKind, start: Timestamp, end: Timestamp, copy: u32) -> String {
    let day = if end.since(start) < kind.reach() || kind.reach() == FAR { "" } else { DAY };
    format!("{}{day}.{}", names::stem(start, None, copy), kind.ending())
}

/// The journals in an interface's folder, with the moment in their names, in order.
pub(crate) fn journals(root: &Path, kind: DataFileKind) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let entries = match nofollow::list(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    Ok(journals_of(root, kind, entries.into_iter().filter_map(|(name, _)| name.into_string().ok())))
}

/// Those among these names.
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

/// The journal of this name.
pub(crate) fn journal(root: &Path, kind: DataFileKind, start: Timestamp, copy: u32) -> PathBuf {
    root.join(names::hidden(&names::stem(start, None, copy), kind.name()))
}
