//! What lies on one interface's shelf, oldest first, known without looking at it all again: a folder is listed anew only
//! when its time of change is another, and a file is looked at once. A year of hours costs some ten thousand looks at
//! folders; a hundred thousand files cost some megabytes of memory and nothing more.
//!
//! Only what is named as the recorder names things is known here. Everything else is foreign: not counted, not touched.

use base::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::catalogue::parse_stem;
use store::device::Housekeeping;
use store::names;

/// An hour of names; also how far in the future a name may lie that is believed.
const HOUR: Duration = Duration::from_secs(3600);

/// A folder that changed this recently may change again in the same tick of its clock.
const HOT: Duration = Duration::from_secs(2);

/// Digits of the names of years, months, days, hours.
const WIDTHS: [usize; 4] = [4, 2, 2, 2];

/// How the files of one name end, in the order in which they go: an index without packets says something that is not so,
/// packets without an index are slow to search and nothing worse.
const ENDINGS: [&str; 3] = [names::INDEX, names::PACKETS[0], names::PACKETS[1]];

/// A packet file by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub start: Timestamp,
    pub queue: Option<u16>,
    pub copy: u32,
}

impl Key {
    /// Reads a name without its ending.
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

/// One file of a key.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub path: PathBuf,
    pub ending: &'static str,
    pub room: u64,
}

/// See the module.
pub(super) struct Catalogue {
    root: PathBuf,
    uppers: BTreeMap<PathBuf, Upper>,
    hours: BTreeMap<Timestamp, Hour>,
    /// Room of files made ahead, in the interface's own folder.
    ahead: u64,
    published: u64,
    files: u64,
}

/// A year, month or day, or the interface itself.
#[derive(Default)]
struct Upper {
    seen: Option<Timestamp>,
    inside: Vec<String>,
    empty: bool,
}

#[derive(Default)]
struct Hour {
    seen: Option<Timestamp>,
    /// Room of each file by [`ENDINGS`].
    files: BTreeMap<Key, [Option<u64>; 3]>,
    /// Files in work, and their room.
    hidden: Vec<String>,
    in_work: u64,
    empty: bool,
}

impl Catalogue {
    /// Nothing is known yet.
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

    /// Looks at what changed: in new hours and those in which files are being written, or in all. Folders that have been
    /// empty for `patience` are removed.
    ///
    /// What cannot be looked at is not known any more, and so is not removed; it is told, and the rest is looked at all the
    /// same.
    pub fn refresh<D: Housekeeping>(
        &mut self,
        device: &mut D,
        now: Timestamp,
        patience: Duration,
        all: bool,
    ) -> Vec<(PathBuf, io::Error)> {
        let mut bad = Vec::new();
        self.list_directories(device, now, patience, all, &mut bad);
        // Somebody may remove folders, and no recorder may have made any yet.
        bad.retain(|(_, error)| error.kind() != io::ErrorKind::NotFound);
        let all = || self.hours.values().flat_map(|hour| hour.files.values());
        self.published = all().flatten().flatten().sum();
        self.files = all().filter(|rooms| has_packets(rooms)).count() as u64;
        bad
    }

    fn list_directories<D: Housekeeping>(
        &mut self,
        device: &mut D,
        now: Timestamp,
        patience: Duration,
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
                match upper.refresh(device, &path, width, now, patience, depth > 0) {
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
            let Some(start) = hour_of(&digits).filter(|start| names::hour_folder(&self.root, *start) == path) else {
                continue;
            };
            let mut hour = hours.remove(&start).unwrap_or_default();
            if !all && hour.is_quiet() {
                self.hours.insert(start, hour);
                continue;
            }
            match hour.refresh(device, &path, start, now, patience) {
                Ok(true) => drop(self.hours.insert(start, hour)),
                // Its day, month and year may have been for this hour only.
                Ok(false) => {
                    let above = path.ancestors().skip(1).take(WIDTHS.len() - 1);
                    let _ = above.map(|folder| device.remove_folder(folder)).find(Result::is_err);
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

    /// Files that may go, in the order in which they should: those whose names cannot be true yet first, because the
    /// clock was wrong when they were named and every new file would have to go before them; then the oldest.
    pub fn removable(&self, now: Timestamp) -> impl Iterator<Item = Key> + '_ {
        let believed = now.after(HOUR);
        let future = self.hours.range(believed.floor_to(HOUR)..).flat_map(|(_, hour)| hour.files.keys());
        let future = future.filter(move |key| is_future(key.start, now));
        let others = self.hours.range(..=believed).flat_map(|(_, hour)| hour.files.keys());
        future.chain(others.filter(move |key| !is_future(key.start, now))).copied()
    }

    /// The first moment in a name.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.hours.values().find_map(|hour| hour.files.keys().next()).map(|key| key.start)
    }

    /// The first moment of the newest file, of those whose names can be true.
    pub fn newest(&self, now: Timestamp) -> Option<Timestamp> {
        let starts = self.hours.values().rev().flat_map(|hour| hour.files.keys().rev()).map(|key| key.start);
        starts.into_iter().find(|start| !is_future(*start, now))
    }

    /// Bytes of the volume that everything known takes, files in work included.
    pub fn allocated_bytes(&self) -> u64 {
        self.published + self.ahead + self.hours.values().map(|hour| hour.in_work).sum::<u64>()
    }

    /// Published packet files.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Whether anything known lies in this hour.
    pub fn has(&self, hour: Timestamp) -> bool {
        self.hours.get(&hour).is_some_and(|hour| !hour.files.is_empty())
    }

    /// The folder of an hour.
    pub fn folder_of(&self, hour: Timestamp) -> PathBuf {
        names::hour_folder(&self.root, hour)
    }

    /// The files of this name, in the order in which they go.
    pub fn parts(&self, key: &Key) -> Vec<Part> {
        let Some(rooms) = self.hours.get(&key.hour()).and_then(|hour| hour.files.get(key)) else { return Vec::new() };
        let (folder, stem) = (self.folder_of(key.hour()), key.stem());
        let part = |(ending, room): (&&'static str, &Option<u64>)| {
            Some(Part { path: folder.join(format!("{stem}.{ending}")), ending, room: (*room)? })
        };
        ENDINGS.iter().zip(rooms).filter_map(part).collect()
    }

    /// Whether this is an index whose packets are about to get their name, or would have if their recorder had lived.
    pub fn is_being_published<D: Housekeeping>(&self, device: &mut D, key: &Key) -> bool {
        let rooms = self.hours.get(&key.hour()).and_then(|hour| hour.files.get(key));
        let (folder, stem) = (self.folder_of(key.hour()), key.stem());
        !rooms.is_some_and(has_packets)
            && names::PACKETS.iter().any(|ending| {
                device.exists(&folder.join(names::hidden(&stem, ending)))
                    || device.exists(&folder.join(format!("{stem}.{ending}")))
            })
    }

    /// It is gone.
    pub fn forget(&mut self, key: &Key) {
        let Some(hour) = self.hours.get_mut(&key.hour()) else { return };
        if let Some(rooms) = hour.files.remove(key) {
            self.published -= rooms.iter().flatten().sum::<u64>();
            self.files -= u64::from(has_packets(&rooms));
        }
    }
}

/// Whether a name lies so far ahead that it cannot be true.
pub(super) fn is_future(start: Timestamp, now: Timestamp) -> bool {
    start > now.after(HOUR)
}

/// The oldest hour of any other interface in the store, by the names of its folders.
pub(super) fn oldest_hour<D: Housekeeping>(device: &mut D, store: &Path, except: &[String]) -> Option<Timestamp> {
    let ours: Vec<PathBuf> = except.iter().map(|name| names::interface_folder(store, name)).collect();
    let list = device.list(store).ok()?;
    let others = list.into_iter().filter(|(_, is_folder)| *is_folder).map(|(name, _)| store.join(name));
    let mut oldest = None;
    for root in others.filter(|folder| !ours.contains(folder)) {
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
    /// False when it was empty and is gone.
    fn refresh<D: Housekeeping>(
        &mut self,
        device: &mut D,
        path: &Path,
        width: usize,
        now: Timestamp,
        patience: Duration,
        goes: bool,
    ) -> io::Result<bool> {
        let modified = device.stat(path)?.modified;
        if self.seen != Some(modified) {
            let list = device.list(path)?;
            self.empty = list.is_empty();
            self.inside = numbers(list, width);
            self.seen = is_unchanged(modified, now);
        }
        Ok(!(goes && self.empty && now >= modified.after(patience) && device.remove_folder(path).is_ok()))
    }
}

impl Hour {
    /// Whether nothing was being written there when it was looked at last, nor shortly before.
    fn is_quiet(&self) -> bool {
        self.seen.is_some() && self.hidden.is_empty()
    }

    /// False when it was empty and is gone.
    fn refresh<D: Housekeeping>(
        &mut self,
        device: &mut D,
        path: &Path,
        start: Timestamp,
        now: Timestamp,
        patience: Duration,
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
        Ok(!(self.empty && now >= modified.after(patience) && device.remove_folder(path).is_ok()))
    }

    fn list<D: Housekeeping>(&mut self, device: &mut D, path: &Path, start: Timestamp) -> io::Result<()> {
        let known = std::mem::take(&mut self.files);
        let list = device.list(path)?;
        self.empty = list.is_empty();
        self.hidden.clear();
        for (name, is_folder) in list {
            if is_folder {
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
            // What is published does not change any more.
            let room = match known.get(&key).and_then(|rooms| rooms[at]) {
                Some(room) => room,
                None => match device.stat(&path.join(&name)) {
                    Ok(stat) => stat.allocated,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(e),
                },
            };
            self.files.entry(key).or_default()[at] = Some(room);
        }
        Ok(())
    }
}

fn has_packets(rooms: &[Option<u64>; 3]) -> bool {
    rooms[1].is_some() || rooms[2].is_some()
}

/// A time of change that is old enough to tell a later change from this one.
fn is_unchanged(modified: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (now.since(modified).max(modified.since(now)) > HOT).then_some(modified)
}

/// Names of folders that are numbers of so many digits, in order.
fn numbers(list: Vec<(String, bool)>, width: usize) -> Vec<String> {
    let is_number = |name: &str| name.len() == width && name.bytes().all(|b| b.is_ascii_digit());
    let mut found: Vec<String> =
        list.into_iter().filter(|(name, is_folder)| *is_folder && is_number(name)).map(|(name, _)| name).collect();
    found.sort_unstable();
    found
}

/// `2026112119` as a moment.
fn hour_of(digits: &str) -> Option<Timestamp> {
    let d = |range| digits.get(range);
    let text = format!("{}-{}-{}T{}:00:00Z", d(0..4)?, d(4..6)?, d(6..8)?, d(8..10)?);
    Timestamp::parse(&text, Timestamp::ZERO).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours_come_out_as_they_went_in_and_others_are_foreign() {
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
    fn a_wrong_clock_of_the_past_comes_first_and_one_of_the_future_before_it() {
        let now = Timestamp::from_secs_nanos(1_795_290_000, 0);
        let mut shelf = Catalogue::new(Path::new("s/eth1"));
        let starts =
            [now.after(100 * HOUR), Timestamp::ZERO, now.before(HOUR), now, now.after(90 * HOUR), now.after(HOUR)];
        for start in starts {
            let key = Key { start, queue: None, copy: 0 };
            shelf.hours.entry(key.hour()).or_default().files.insert(key, [Some(1), Some(2), None]);
        }
        let order: Vec<Timestamp> = shelf.removable(now).map(|key| key.start).collect();
        assert_eq!(order, [starts[4], starts[0], starts[1], starts[2], starts[3], starts[5]]);
        assert_eq!(shelf.oldest(), Some(Timestamp::ZERO));
    }
}
