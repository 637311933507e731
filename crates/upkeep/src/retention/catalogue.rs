//! The files of one interface, oldest first, kept in memory. A directory is listed again only after its modification
//! time has changed, and each file is examined once. For a store with the hour directories of one year, a test of all
//! directories needs about ten thousand stat calls; a hundred thousand files need a few megabytes of memory.
//!
//! The catalogue contains only files whose names follow the naming scheme of the recorder. All other files are foreign:
//! neither counted nor removed.

use base::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::catalogue::parse_stem;
use store::device::Housekeeping;
use store::names;

/// One hour: the length of an hour directory, and the largest time by which the start time in a valid name may be in
/// the future.
const HOUR: Duration = Duration::from_secs(3600);

/// If a directory changed within this time before its listing, it is listed again, because it may change again without
/// a change of its modification time.
const HOT: Duration = Duration::from_secs(2);

/// Number of digits in the names of the directories of years, months, days and hours.
const WIDTHS: [usize; 4] = [4, 2, 2, 2];

/// Endings of the files of one name, in the order of removal: the index is removed first, because an index without a
/// packet file would be an error, while a packet file without an index is only slow to search.
const ENDINGS: [&str; 3] = [names::INDEX, names::PACKETS[0], names::PACKETS[1]];

/// The key of a packet file: start time, queue and copy number from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub start: Timestamp,
    pub queue: Option<u16>,
    pub copy: u32,
}

impl Key {
    /// Parses a file name without its ending.
    pub fn parse(stem: &str) -> Option<Self> {
        let (start, queue, copy) = parse_stem(stem)?;
        let with = |queue| Self { start, queue, copy };
        [with(None), with(Some(queue))].into_iter().find(|key| key.stem() == stem)
    }

    pub fn stem(&self) -> String {
        names::stem(self.start, self.queue, self.copy)
    }

    pub fn hour(&self) -> Timestamp {
        self.start.floor_to(HOUR)
    }
}

/// One of the files (index or packet file) whose names have the same [`Key`].
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub path: PathBuf,
    pub ending: &'static str,
    pub allocated: u64,
}

/// The files of one interface.
pub(super) struct Catalogue {
    root: PathBuf,
    uppers: BTreeMap<PathBuf, Upper>,
    hours: BTreeMap<Timestamp, Hour>,
    /// Bytes allocated to the files in the interface directory that the recorder created in advance.
    ahead: u64,
    published: u64,
    files: u64,
}

/// The interface directory, or the directory of a year, month or day.
#[derive(Default)]
struct Upper {
    seen: Option<Timestamp>,
    inside: Vec<String>,
    empty: bool,
}

#[derive(Default)]
struct Hour {
    seen: Option<Timestamp>,
    /// Allocated bytes of each file, in the order of [`ENDINGS`].
    files: BTreeMap<Key, [Option<u64>; 3]>,
    /// Names of unpublished files, and their allocated bytes.
    hidden: Vec<String>,
    in_work: u64,
    empty: bool,
}

impl Catalogue {
    /// An empty catalogue.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            uppers: BTreeMap::new(),
            hours: BTreeMap::new(),
            ahead: 0,
            published: 0,
            files: 0,
        }
    }

    /// Lists the directories that have changed. If `all` is false, an hour directory that was listed before is skipped,
    /// unless files were being written in it. Removes directories that have been empty for `empty_for`.
    ///
    /// If a directory cannot be listed, its files are dropped from the catalogue, so that retention does not remove
    /// them. The error is returned after the other directories were listed.
    pub fn refresh<D: Housekeeping>(
        &mut self,
        device: &mut D,
        now: Timestamp,
        empty_for: Duration,
        all: bool,
    ) -> Vec<(PathBuf, io::Error)> {
        let mut bad = Vec::new();
        self.list_directories(device, now, empty_for, all, &mut bad);
        // A missing directory is no error: other processes may remove directories, and no directory exists before the
        // first recording.
        bad.retain(|(_, error)| error.kind() != io::ErrorKind::NotFound);
        let all = || self.hours.values().flat_map(|hour| hour.files.values());
        self.published = all().flatten().flatten().sum();
        self.files = all().filter(|allocations| has_packets(allocations)).count() as u64;
        bad
    }

    fn list_directories<D: Housekeeping>(
        &mut self,
        device: &mut D,
        now: Timestamp,
        empty_for: Duration,
        all: bool,
        bad: &mut Vec<(PathBuf, io::Error)>,
    ) {
        self.ahead = 0;
        let mut uppers = std::mem::take(&mut self.uppers);
        let mut hours = std::mem::take(&mut self.hours);
        let mut level = vec![(self.root.clone(), String::new())];
        for (depth, width) in WIDTHS.into_iter().enumerate() {
            let mut next = Vec::new();
            for (path, digits) in level {
                let mut upper = uppers.remove(&path).unwrap_or_default();
                match upper.refresh(device, &path, width, now, empty_for, depth > 0) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(e) => {
                        bad.push((path, e));
                        continue;
                    }
                }
                next.extend(upper.inside.iter().map(|name| (path.join(name), format!("{digits}{name}"))));
                self.uppers.insert(path, upper);
            }
            level = next;
        }
        for (path, digits) in level {
            let Some(start) = hour_of(&digits).filter(|start| names::hour_directory(&self.root, *start) == path) else {
                continue;
            };
            let mut hour = hours.remove(&start).unwrap_or_default();
            if !all && hour.is_quiet() {
                self.hours.insert(start, hour);
                continue;
            }
            match hour.refresh(device, &path, start, now, empty_for) {
                Ok(true) => drop(self.hours.insert(start, hour)),
                // The directories of day, month and year may be empty now, too.
                Ok(false) => {
                    let above = path.ancestors().skip(1).take(WIDTHS.len() - 1);
                    let _ = above.map(|directory| device.remove_directory(directory)).find(Result::is_err);
                }
                Err(e) => bad.push((path, e)),
            }
        }
        for (name, _) in
            device.list(&self.root).unwrap_or_default().iter().filter(|(name, _)| name.starts_with(names::PREPARED))
        {
            self.ahead += device.stat(&self.root.join(name)).map_or(0, |stat| stat.allocated);
        }
    }

    /// The removable files in the order of removal. Files whose start time is in the future come first: a wrong clock
    /// gave them this time, and all new files would count as older than these files. Then the oldest files follow.
    pub fn removable(&self, now: Timestamp) -> impl Iterator<Item = Key> + '_ {
        let believed = now.after(HOUR);
        let future = self.hours.range(believed.floor_to(HOUR)..).flat_map(|(_, hour)| hour.files.keys());
        let future = future.filter(move |key| is_future(key.start, now));
        let others = self.hours.range(..=believed).flat_map(|(_, hour)| hour.files.keys());
        future.chain(others.filter(move |key| !is_future(key.start, now))).copied()
    }

    /// The earliest start time of all files.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.hours.values().find_map(|hour| hour.files.keys().next()).map(|key| key.start)
    }

    /// The start time of the newest file whose start time is not in the future.
    pub fn newest(&self, now: Timestamp) -> Option<Timestamp> {
        let starts = self.hours.values().rev().flat_map(|hour| hour.files.keys().rev()).map(|key| key.start);
        starts.into_iter().find(|start| !is_future(*start, now))
    }

    /// Allocated bytes of all files, including unpublished files.
    pub fn allocated_bytes(&self) -> u64 {
        self.published + self.unpublished_bytes()
    }

    /// Allocated bytes of the files that a recorder writes or has prepared.
    pub fn unpublished_bytes(&self) -> u64 {
        self.ahead + self.hours.values().map(|hour| hour.in_work).sum::<u64>()
    }

    /// Number of published packet files.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// True if this hour contains files of the catalogue.
    pub fn has(&self, hour: Timestamp) -> bool {
        self.hours.get(&hour).is_some_and(|hour| !hour.files.is_empty())
    }

    /// The directory of an hour.
    pub fn directory_of(&self, hour: Timestamp) -> PathBuf {
        names::hour_directory(&self.root, hour)
    }

    /// The files of this name, in the order of removal.
    pub fn parts(&self, key: &Key) -> Vec<Part> {
        let Some(allocations) = self.hours.get(&key.hour()).and_then(|hour| hour.files.get(key)) else {
            return Vec::new();
        };
        let (directory, stem) = (self.directory_of(key.hour()), key.stem());
        let part = |(ending, allocated): (&&'static str, &Option<u64>)| {
            Some(Part { path: directory.join(format!("{stem}.{ending}")), ending, allocated: (*allocated)? })
        };
        ENDINGS.iter().zip(allocations).filter_map(part).collect()
    }

    /// True for a visible index whose packet file is still hidden, because a recorder is publishing the packet file or
    /// was killed while publishing it.
    pub fn is_being_published<D: Housekeeping>(&self, device: &mut D, key: &Key) -> bool {
        let allocations = self.hours.get(&key.hour()).and_then(|hour| hour.files.get(key));
        let (directory, stem) = (self.directory_of(key.hour()), key.stem());
        !allocations.is_some_and(has_packets)
            && names::PACKETS.iter().any(|ending| {
                device.exists(&directory.join(names::hidden(&stem, ending)))
                    || device.exists(&directory.join(format!("{stem}.{ending}")))
            })
    }

    /// Drops a removed file.
    pub fn forget(&mut self, key: &Key) {
        let Some(hour) = self.hours.get_mut(&key.hour()) else { return };
        if let Some(allocations) = hour.files.remove(key) {
            self.published -= allocations.iter().flatten().sum::<u64>();
            self.files -= u64::from(has_packets(&allocations));
        }
    }
}

/// True if a start time is too far in the future to be valid.
pub(super) fn is_future(start: Timestamp, now: Timestamp) -> bool {
    start > now.after(HOUR)
}

/// The oldest hour directory, by directory names, of the interfaces of the store that the worker is not responsible
/// for.
pub(super) fn oldest_hour<D: Housekeeping>(device: &mut D, store: &Path, except: &[String]) -> Option<Timestamp> {
    let ours: Vec<PathBuf> = except.iter().map(|name| names::interface_directory(store, name)).collect();
    let list = device.list(store).ok()?;
    let others = list.into_iter().filter(|(_, is_directory)| *is_directory).map(|(name, _)| store.join(name));
    let mut oldest = None;
    for root in others.filter(|directory| !ours.contains(directory)) {
        let (mut path, mut digits) = (root, String::new());
        for width in WIDTHS {
            let inside = device.list(&path).unwrap_or_default();
            let Some(first) = numbers(inside, width).into_iter().next() else { break };
            path.push(&first);
            digits += &first;
        }
        if let Some(hour) = hour_of(&digits) {
            oldest = oldest.map_or(Some(hour), |o: Timestamp| Some(o.min(hour)));
        }
    }
    oldest
}

impl Upper {
    /// Lists one directory; returns false if the directory was empty and was removed.
    fn refresh<D: Housekeeping>(
        &mut self,
        device: &mut D,
        path: &Path,
        width: usize,
        now: Timestamp,
        empty_for: Duration,
        goes: bool,
    ) -> io::Result<bool> {
        let modified = device.stat(path)?.modified;
        if self.seen != Some(modified) {
            let list = device.list(path)?;
            self.empty = list.is_empty();
            self.inside = numbers(list, width);
            self.seen = is_unchanged(modified, now);
        }
        Ok(!(goes && self.empty && now >= modified.after(empty_for) && device.remove_directory(path).is_ok()))
    }
}

impl Hour {
    /// True if the directory did not change shortly before its last listing, and contained no unpublished file then.
    fn is_quiet(&self) -> bool {
        self.seen.is_some() && self.hidden.is_empty()
    }

    /// Lists an hour directory; returns false if the directory was empty and was removed.
    fn refresh<D: Housekeeping>(
        &mut self,
        device: &mut D,
        path: &Path,
        start: Timestamp,
        now: Timestamp,
        empty_for: Duration,
    ) -> io::Result<bool> {
        let modified = device.stat(path)?.modified;
        if self.seen != Some(modified) {
            self.seen = is_unchanged(modified, now);
            self.list(device, path, start)?;
        }
        self.in_work = 0;
        for name in &self.hidden {
            self.in_work += device.stat(&path.join(name)).map_or(0, |stat| stat.allocated);
        }
        Ok(!(self.empty && now >= modified.after(empty_for) && device.remove_directory(path).is_ok()))
    }

    fn list<D: Housekeeping>(&mut self, device: &mut D, path: &Path, start: Timestamp) -> io::Result<()> {
        let known = std::mem::take(&mut self.files);
        let list = device.list(path)?;
        self.empty = list.is_empty();
        self.hidden.clear();
        for (name, is_directory) in list {
            if is_directory {
                continue;
            }
            if name.starts_with('.') && name.ends_with(names::PARTIAL) {
                self.hidden.push(name);
                continue;
            }
            let Some((stem, at)) = ENDINGS
                .iter()
                .enumerate()
                .find_map(|(at, ending)| Some((name.strip_suffix(ending)?.strip_suffix('.')?, at)))
            else {
                continue;
            };
            let Some(key) = Key::parse(stem).filter(|key| key.hour() == start) else { continue };
            // Published files do not change.
            let allocated = match known.get(&key).and_then(|allocations| allocations[at]) {
                Some(allocated) => allocated,
                None => match device.stat(&path.join(&name)) {
                    Ok(stat) => stat.allocated,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(e),
                },
            };
            self.files.entry(key).or_default()[at] = Some(allocated);
        }
        Ok(())
    }
}

fn has_packets(allocations: &[Option<u64>; 3]) -> bool {
    allocations[1].is_some() || allocations[2].is_some()
}

/// The modification time of the directory, if it is so old that a later change of the directory gets a different
/// modification time; otherwise `None`.
fn is_unchanged(modified: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (now.since(modified).max(modified.since(now)) > HOT).then_some(modified)
}

/// The names of subdirectories that are numbers with `width` digits, in order.
fn numbers(list: Vec<(String, bool)>, width: usize) -> Vec<String> {
    let is_number = |name: &str| name.len() == width && name.bytes().all(|b| b.is_ascii_digit());
    let mut found: Vec<String> = list
        .into_iter()
        .filter(|(name, is_directory)| *is_directory && is_number(name))
        .map(|(name, _)| name)
        .collect();
    found.sort_unstable();
    found
}

/// Parses `2026112119` as a timestamp.
fn hour_of(digits: &str) -> Option<Timestamp> {
    let d = |range| digits.get(range);
    let text = format!("{}-{}-{}T{}:00:00Z", d(0..4)?, d(4..6)?, d(6..8)?, d(8..10)?);
    Timestamp::parse(&text, Timestamp::ZERO).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_recorder_are_parsed_and_all_others_are_foreign() {
        let start = Timestamp::from_secs_nanos(1_795_290_000, 5);
        for (queue, copy) in [(None, 0), (None, 3), (Some(0), 0), (Some(12), 7)] {
            let key = Key { start, queue, copy };
            assert_eq!(Key::parse(&key.stem()), Some(key));
        }
        for foreign in [
            "",
            "Z",
            "trace",
            "20261121T194000Z",
            "20261121T194000.000000005Z_0",
            "20261121T194000.000000005Z_01",
            "20261121T194000.000000005Z-q",
            "20261121T194000.000000005Z-q99999",
            "20261321T194000.000000005Z",
            "20261121X194000.000000005Z",
            "20261121T194000.000000005Z copy",
            "äöüäöüäöüäöüZ",
        ] {
            assert_eq!(Key::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn files_with_names_in_the_future_are_removed_first() {
        let now = Timestamp::from_secs_nanos(1_795_290_000, 0);
        let mut files = Catalogue::new(Path::new("s/eth1"));
        let starts =
            [now.after(100 * HOUR), Timestamp::ZERO, now.before(HOUR), now, now.after(90 * HOUR), now.after(HOUR)];
        for start in starts {
            let key = Key { start, queue: None, copy: 0 };
            files.hours.entry(key.hour()).or_default().files.insert(key, [Some(1), Some(2), None]);
        }
        let order: Vec<Timestamp> = files.removable(now).map(|key| key.start).collect();
        assert_eq!(order, [starts[4], starts[0], starts[1], starts[2], starts[3], starts[5]]);
        assert_eq!(files.oldest(), Some(Timestamp::ZERO));
    }
}
