//! Lists the content of a store from directory and file names only: interfaces, hour directories in order of time, and
//! the packet files of an hour. This module opens no file, and lists an hour directory only when its files are needed.
//! So the time to the first packet of a query does not depend on the length of the query's interval.
//!
//! Foreign files and directories are ignored: directories whose names do not follow [`names::hour_directory`], files
//! whose names do not follow [`names::stem`], symbolic links, and other hidden files.

use crate::claim::CLAIM;
use crate::names;
use base::Timestamp;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::nofollow::{self, FileKind};

/// Years accepted in names of directories; the largest [`Timestamp`] is in the year 2554.
const YEARS: std::ops::RangeInclusive<u32> = 1970..=2553;

/// The directory of fsck(8) at the root of a volume, which only root may list.
const LOST_AND_FOUND: &str = "lost+found";

/// A packet file, with the properties that its name gives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Start of its time range.
    pub start: Timestamp,
    /// The hardware queue.
    pub queue: u16,
    /// Copy number: 0 for the first file with this start time and queue, then 1, 2, …
    pub copy: u32,
    /// Path of the packet file.
    pub path: PathBuf,
    /// Path of the index of the packet file; `None` if there is no index.
    pub index: Option<PathBuf>,
}

/// An hour directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hour {
    /// Start of the hour.
    pub start: Timestamp,
    /// Path of the directory.
    pub directory: PathBuf,
}

/// The packet files of an hour, in the order of time, queue and copy number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Files that are complete and will not change.
    pub sealed: Vec<Entry>,
    /// Files that are being written, or were being written when their recorder was killed; their names are hidden.
    pub unfinished: Vec<Entry>,
}

/// The names in an hour directory, as the system returned them.
#[derive(Debug, PartialEq, Eq)]
pub struct Names(Vec<(String, FileKind)>);

/// The names of the interfaces of a store, which are the names of their directories.
///
/// # Errors
/// The store cannot be listed.
pub fn interfaces(store: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for (name, kind) in list(store)? {
        let directory = store.join(&name);
        // A recorder writes its description (`CLAIM`) into the directory before it creates the first packet file.
        let is_recorded = || has_a_year(&directory) || nofollow::exists(&directory.join(CLAIM));
        if !name.starts_with('.') && kind == FileKind::Directory && is_recorded() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The names of the directories of a store that this process has no permission to list, so that they may be those of
/// interfaces.
///
/// # Errors
/// The store cannot be listed.
pub fn unreadable(store: &Path) -> io::Result<Vec<String>> {
    let is_denied =
        |name: &str| list(&store.join(name)).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let is_unreadable = |(name, kind): &(String, FileKind)| {
        !name.starts_with('.') && name != LOST_AND_FOUND && *kind == FileKind::Directory && is_denied(name)
    };
    let mut names: Vec<String> = list(store)?.into_iter().filter(is_unreadable).map(|(name, _)| name).collect();
    names.sort();
    Ok(names)
}

impl Entry {
    /// The packet file in an hour directory whose name without ending is `stem`; its name may be hidden. `None` if the
    /// file does not exist.
    pub fn find(hour: &Path, stem: &str) -> Option<Self> {
        let (start, queue, copy) = parse_stem(stem)?;
        let there = |name: String| Some(hour.join(name)).filter(|path| nofollow::exists(path));
        let visible = || there(format!("{stem}.{}", names::INDEX));
        // The hidden name is tested first: a file that is published between the two tests is found by the test of the
        // visible name.
        for ending in names::PACKETS {
            if let Some(path) = there(names::hidden(stem, ending)) {
                let index = there(names::hidden(stem, names::INDEX)).or_else(visible);
                return Some(Self { start, queue, copy, path, index });
            }
        }
        let path = names::PACKETS.iter().find_map(|ending| there(format!("{stem}.{ending}")))?;
        Some(Self { start, queue, copy, path, index: visible() })
    }
}

impl Hour {
    /// The packet files in the directory.
    ///
    /// # Errors
    /// The directory cannot be listed; `NotFound` if the directory was removed meanwhile.
    pub fn list(&self) -> io::Result<Listing> {
        Ok(self.read(&self.names()?))
    }

    /// The names in the directory, not parsed. A caller that only tests whether the directory has changed compares
    /// them, which costs a quarter of [`Hour::list`].
    ///
    /// # Errors
    /// The errors of [`Hour::list`].
    pub fn names(&self) -> io::Result<Names> {
        list(&self.directory).map(Names)
    }

    /// Returns the packet files that have these names.
    pub fn read(&self, names: &Names) -> Listing {
        let mut listing = Listing::default();
        let stems = Stems::of(self.start);
        let mut indexes = HashSet::new();
        let mut packets = Vec::new();
        for (name, _) in names.0.iter().filter(|(_, kind)| *kind == FileKind::File) {
            let (shown, hidden) = shown(name);
            let Some((stem, ending)) = shown.rsplit_once('.') else { continue };
            if ending == names::INDEX {
                indexes.insert((stem, hidden));
            } else if names::PACKETS.contains(&ending)
                && let Some(parts) = stems.parse(stem)
            {
                packets.push((name, stem, hidden, parts));
            }
        }
        for (name, stem, hidden, (start, queue, copy)) in packets {
            // The index is published a moment before its packet file, so a hidden packet file may have a visible index.
            let visible = || indexes.contains(&(stem, false)).then(|| format!("{stem}.{}", names::INDEX));
            let index = match hidden && indexes.contains(&(stem, true)) {
                true => Some(names::hidden(stem, names::INDEX)),
                false => visible(),
            };
            let index = index.map(|name| self.directory.join(name));
            let entry = Entry { start, queue, copy, path: self.directory.join(name), index };
            if hidden { &mut listing.unfinished } else { &mut listing.sealed }.push(entry);
        }
        listing.sealed.sort_unstable();
        listing.unfinished.sort_unstable();
        listing
    }
}

/// A parser for the file names of one hour, which share a prefix: only the rest of each name is parsed.
// PERF: 340 → 138 million instructions for the listings before a query's first packet, of hours with 3600 files of one
// second each (72 → 36 ms, warm). Most of the instructions were needed to parse each name as an arbitrary time and to
// format it again.
struct Stems {
    /// The common prefix of the file names of the hour: date and hour.
    begin: String,
    start: Timestamp,
}

/// Length of the prefix of a stem that gives date and hour.
const TO_THE_HOUR: usize = "20261121T19".len();

impl Stems {
    fn of(hour: Timestamp) -> Self {
        let start = hour.floor_to(Duration::from_secs(3600));
        let mut begin = names::stem(start, None, 0);
        begin.truncate(TO_THE_HOUR);
        Self { begin, start }
    }

    /// Parses a stem like [`parse_stem`], but faster for names of this hour.
    fn parse(&self, stem: &str) -> Option<(Timestamp, u16, u32)> {
        let Some(rest) = stem.strip_prefix(&self.begin) else { return parse_stem(stem) };
        let (minute, rest) = (decimal(rest.get(..2)?)?, &rest[2..]);
        let (second, rest) = (decimal(rest.get(..2)?)?, &rest[2..]);
        let rest = rest.strip_prefix('.')?;
        let (nanos, rest) = (decimal(rest.get(..9)?)?, &rest[9..]);
        let rest = rest.strip_prefix('Z')?;
        if minute > 59 || second > 59 {
            return None;
        }
        let start = self.start.after(Duration::new(60 * minute + second, nanos as u32));
        if rest.is_empty() {
            return Some((start, 0, 0));
        }
        let (queue, copy) = match rest.split_once('_') {
            Some((queue, copy)) => (queue, number(copy).filter(|copy| *copy > 0)?),
            None => (rest, 0),
        };
        let queue = if queue.is_empty() { 0 } else { number(queue.strip_prefix("-q")?)? };
        Some((start, queue, copy))
    }
}

/// Parses a decimal number that consists of digits only; leading zeros are permitted.
fn decimal(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0, |n, digit| digit.is_ascii_digit().then(|| 10 * n + u64::from(digit - b'0')))
}

/// Parses a decimal number without sign and without leading zeros.
fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok())?
}

/// The name without its leading dot and `.partial`, and true if the name had both.
fn shown(name: &str) -> (&str, bool) {
    let inner = name.strip_prefix('.').and_then(|n| n.strip_suffix(names::PARTIAL)?.strip_suffix('.'));
    inner.map_or((name, false), |inner| (inner, true))
}

/// The inverse of [`names::stem`]; `None` for a name that [`names::stem`] cannot produce.
pub fn parse_stem(stem: &str) -> Option<(Timestamp, u16, u32)> {
    let (moment, rest) = stem.split_once('Z')?;
    let (rest, copy) = match rest.split_once('_') {
        Some((rest, copy)) => (rest, copy.parse().ok()?),
        None => (rest, 0),
    };
    let queue = match rest {
        "" => None,
        rest => Some(rest.strip_prefix("-q")?.parse().ok()?),
    };
    let part = |range: std::ops::Range<usize>| moment.get(range);
    let text = format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0..4)?,
        part(4..6)?,
        part(6..8)?,
        part(9..11)?,
        part(11..13)?,
        moment.get(13..)?
    );
    let start = Timestamp::parse(&text, Timestamp::ZERO).ok()?;
    (names::stem(start, queue, copy) == stem).then_some((start, queue.unwrap_or(0), copy))
}

/// The path of a file that has the name of a year, month, day or hour directory of an interface but is not a directory:
/// for example a symbolic link, below which a recorder cannot write. `None` if there is no such file, or if the
/// directory of the interface does not exist. The files of an hour are not listed.
///
/// # Errors
/// A directory cannot be listed.
pub fn not_a_directory(interface_directory: &Path) -> io::Result<Option<PathBuf>> {
    not_a_directory_below(interface_directory, 0)
}

fn not_a_directory_below(directory: &Path, depth: usize) -> io::Result<Option<PathBuf>> {
    let entries = match list(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    for (name, kind) in entries {
        let Some(number) = name.parse::<u32>().ok().filter(|n| directory_name(depth, *n) == name) else { continue };
        if depth == 0 && !YEARS.contains(&number) {
            continue;
        }
        let path = directory.join(name);
        if kind != FileKind::Directory {
            return Ok(Some(path));
        }
        if depth + 1 < LEVELS
            && let Some(found) = not_a_directory_below(&path, depth + 1)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Iterates over the hour directories of an interface; a year, month or day directory is listed when the iteration
/// reaches it.
pub struct Hours {
    root: PathBuf,
    direction: Direction,
    /// The first and the last hour of the iteration, as year, month, day, hour.
    bounds: ([u32; LEVELS], [u32; LEVELS]),
    /// For each listed level of directories, the names that are not visited yet; the next name is the last element.
    open: Vec<Vec<u32>>,
    /// The names of the directories from the interface to the current directory.
    at: Vec<u32>,
}

/// Year, month, day, hour.
const LEVELS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

impl Hours {
    /// Iterates from the hour that contains `from` to the hour that contains `to`.
    pub fn forward(interface_directory: &Path, from: Timestamp, to: Timestamp) -> Self {
        Self::new(interface_directory, from, to, Direction::Forward)
    }

    /// Iterates from the hour that contains `from` back to the beginning of the store.
    pub fn back(interface_directory: &Path, from: Timestamp) -> Self {
        Self::new(interface_directory, Timestamp::ZERO, from, Direction::Back)
    }

    fn new(root: &Path, from: Timestamp, to: Timestamp, direction: Direction) -> Self {
        let parts = |t: Timestamp| {
            let (year, month, day, hour, ..) = t.civil();
            [year as u32, u32::from(month), u32::from(day), u32::from(hour)]
        };
        Self { root: root.to_owned(), direction, bounds: (parts(from), parts(to)), open: Vec::new(), at: Vec::new() }
    }

    /// The next hour; `None` after the last.
    ///
    /// # Errors
    /// A directory cannot be listed. A directory that was removed meanwhile is skipped without an error.
    #[allow(clippy::should_implement_trait, reason = "the type `Result<Option<_>>` lets callers use `?` in each step")]
    pub fn next(&mut self) -> io::Result<Option<Hour>> {
        if self.open.is_empty() {
            let years = self.inside(&self.root.clone())?;
            self.open.push(years);
        }
        while let Some(level) = self.open.last_mut() {
            let Some(name) = level.pop() else {
                self.open.pop();
                if self.at.pop().is_none() {
                    // An empty level stays in `open`: without it, the next call would list the years again.
                    self.open.push(Vec::new());
                    return Ok(None);
                }
                continue;
            };
            self.at.push(name);
            let directory =
                self.at.iter().enumerate().fold(self.root.clone(), |path, (i, n)| path.join(directory_name(i, *n)));
            if self.at.len() == LEVELS {
                let start = moment(&self.at);
                self.at.pop();
                if let Some(start) = start {
                    return Ok(Some(Hour { start, directory }));
                }
                continue;
            }
            let below = self.inside(&directory)?;
            self.open.push(below);
        }
        Ok(None)
    }

    /// The names of the subdirectories whose times are within the bounds, in reverse order of iteration.
    fn inside(&self, directory: &Path) -> io::Result<Vec<u32>> {
        let entries = match list(directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let depth = self.at.len();
        let mut numbers = Vec::new();
        for (name, kind) in entries {
            let Some(number) = name.parse::<u32>().ok().filter(|n| directory_name(depth, *n) == name) else { continue };
            let mut here = self.at.clone();
            here.push(number);
            let within = self.bounds.0[..=depth] <= here[..] && here[..] <= self.bounds.1[..=depth];
            if within && kind == FileKind::Directory {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        if self.direction == Direction::Forward {
            numbers.reverse();
        }
        Ok(numbers)
    }
}

fn directory_name(level: usize, number: u32) -> String {
    if level == 0 { format!("{number:04}") } else { format!("{number:02}") }
}

fn moment(at: &[u32]) -> Option<Timestamp> {
    let [year, month, day, hour] = at else { return None };
    let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:00:00Z");
    YEARS.contains(year).then(|| Timestamp::parse(&text, Timestamp::ZERO).ok())?
}

fn has_a_year(directory: &Path) -> bool {
    let year = |name: &str| name.len() == 4 && name.parse().is_ok_and(|n| YEARS.contains(&n));
    list(directory).is_ok_and(|names| names.iter().any(|(name, _)| year(name)))
}

/// The names in a directory; names that are not UTF-8 are left out.
fn list(directory: &Path) -> io::Result<Vec<(String, FileKind)>> {
    let names = nofollow::list(directory)?.into_iter();
    Ok(names.filter_map(|(name, kind)| Some((name.into_string().ok()?, kind))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::fs;
    use testkit::TempDir;

    fn touch(directory: &Path, name: &str) {
        fs::create_dir_all(directory).expect("a directory");
        fs::write(directory.join(name), b"").expect("a file");
    }

    #[test]
    fn foreign_files_and_directories_are_ignored() {
        let store = TempDir::new("catalogue-foreign");
        let start = Timestamp::from_secs_nanos(1_795_290_000, 5);
        let iface = store.path().join("eth1");
        let hour = names::hour_directory(&iface, start);
        let stem = names::stem(start, None, 0);
        touch(&hour, &format!("{stem}.pcap"));
        touch(&hour, &format!("{stem}.ngi"));
        for name in ["notes.txt", "dump.pcap", "20261121T194000.pcap", ".hidden", "x.ngi", "20261121T194000.000000005Z"]
        {
            touch(&hour, name);
        }
        touch(&hour, &format!("{}.pcap", names::stem(start, None, 0).replace("T19", "T29")));
        fs::create_dir(hour.join(format!("{}.pcap", names::stem(start, Some(1), 0)))).expect("a directory");
        for directory in
            ["eth1/lost+found", "eth1/2026/13/01/00", "eth1/2026/11/21/1", "eth1/2026/11/xx", "eth1/0000/01/01/00"]
        {
            touch(&store.path().join(directory), "20261121T194000.000000005Z.pcap");
        }
        for directory in ["lost+found", "other", ".snapshot/2026/11/21/19"] {
            fs::create_dir_all(store.path().join(directory)).expect("a directory");
        }
        assert_eq!(interfaces(store.path()).expect("a listing"), ["eth1"]);
        let mut hours = Hours::forward(&iface, Timestamp::ZERO, Timestamp::MAX);
        let found = hours.next().expect("an iteration").expect("an hour");
        assert_eq!(
            found,
            Hour { start: start.floor_to(std::time::Duration::from_secs(3600)), directory: hour.clone() }
        );
        assert_eq!((hours.next().expect("an iteration"), hours.next().expect("an iteration")), (None, None));
        let entry = Entry {
            start,
            queue: 0,
            copy: 0,
            path: hour.join(format!("{stem}.pcap")),
            index: Some(hour.join(format!("{stem}.ngi"))),
        };
        assert_eq!(found.list().expect("a listing"), Listing { sealed: vec![entry], unfinished: vec![] });
    }

    #[test]
    fn a_link_or_a_file_in_place_of_a_directory_is_found_at_each_level() {
        let store = TempDir::new("catalogue-not-a-directory");
        let iface = store.path().join("eth1");
        let find = || not_a_directory(&iface).expect("a listing");
        assert_eq!(find(), None, "the directory of the interface does not exist");
        let hour = iface.join("2026/11/21/19");
        touch(&hour, "07");
        for foreign in ["2026.txt", "0000", "99999", "2026/11/note", "2026/11/21/7"] {
            fs::write(iface.join(foreign), b"").expect("a file");
        }
        assert_eq!(find(), None);
        for obstacle in ["2025", "2026/12", "2026/11/22", "2026/11/21/20"] {
            let obstacle = iface.join(obstacle);
            std::os::unix::fs::symlink(store.path(), &obstacle).expect("a link");
            assert_eq!(find().as_ref(), Some(&obstacle));
            fs::remove_file(&obstacle).expect("the link");
            fs::write(&obstacle, b"").expect("a file");
            assert_eq!(find().as_ref(), Some(&obstacle));
            fs::remove_file(&obstacle).expect("the file");
        }
    }

    #[test]
    fn hidden_files_are_listed_as_unfinished_with_their_index() {
        let store = TempDir::new("catalogue-hidden");
        let start = Timestamp::from_secs_nanos(1_795_290_000, 0);
        let hour = Hour { start, directory: store.path().to_owned() };
        let (a, b) = (names::stem(start, Some(0), 0), names::stem(start, Some(1), 3));
        touch(store.path(), &names::hidden(&a, "pcap"));
        touch(store.path(), &names::hidden(&a, "ngi"));
        touch(store.path(), &names::hidden(&b, "raw"));
        touch(store.path(), &format!("{b}.ngi"));
        touch(store.path(), &names::prepared(0, 7, "pcap"));
        let listing = hour.list().expect("a listing");
        assert!(listing.sealed.is_empty());
        let seen: Vec<_> = listing.unfinished.iter().map(|e| (e.queue, e.copy, e.index.clone())).collect();
        let index = |name: String| Some(store.path().join(name));
        assert_eq!(seen, [(0, 0, index(names::hidden(&a, "ngi"))), (1, 3, index(format!("{b}.ngi")))]);
    }

    #[test]
    fn only_names_that_stem_returns_are_parsed() {
        let mut prng = Prng::new(testkit::seed("only_names_that_stem_returns_are_parsed"));
        for _ in 0..5_000 {
            let start = Timestamp::from_nanos(prng.next_u64() >> prng.below(20));
            let queue = (prng.below(2) == 0).then(|| prng.next_u64() as u16);
            let copy = if prng.below(2) == 0 { 0 } else { prng.next_u64() as u32 };
            let stem = names::stem(start, queue, copy);
            assert_eq!(parse_stem(&stem), Some((start, queue.unwrap_or(0), copy)), "{stem}");
            let stems = Stems::of(start);
            assert_eq!(stems.parse(&stem), parse_stem(&stem), "{stem}");
            let mut broken = stem.clone().into_bytes();
            let at = prng.below(broken.len() as u64) as usize;
            broken[at] = b' ' + prng.below(90) as u8;
            let Ok(text) = String::from_utf8(broken) else { continue };
            assert_eq!(stems.parse(&text), parse_stem(&text), "{text}");
            if let Some((start, queue, copy)) = parse_stem(&text) {
                let again = [None, Some(queue)].map(|q| names::stem(start, q, copy));
                assert!(again.contains(&text), "{text}");
            }
        }
        let hour = Stems::of(Timestamp::from_secs_nanos(1_795_290_000, 5));
        for (text, read) in [
            ("20261121T194000.000000005Z", true),
            ("20261121T194000.000000005Z-q7_2", true),
            ("20261121T194000.000000005Zé", false),
            ("20261121T194000.000000005Z_0", false),
            ("20261121T194000.000000005Z_", false),
            ("20261121T194000.000000005Z-q07", false),
            ("20261121T194000.000000005Z-q+7", false),
            ("20261121T194060.000000005Z", false),
            ("20261121T196000.000000005Z", false),
            ("20261121T194000.00000000é", false),
            ("20261121T19é", false),
            ("20261121T19", false),
        ] {
            assert_eq!((hour.parse(text).is_some(), hour.parse(text)), (read, parse_stem(text)), "{text}");
        }
        assert_eq!(parse_stem("ä0261121T194000.000000005Z"), None);
    }

    #[test]
    fn hours_are_iterated_in_order_in_both_directions() {
        let seed = testkit::seed("hours_are_iterated_in_order_in_both_directions");
        let mut prng = Prng::new(seed);
        let store = TempDir::new("catalogue-hours");
        let base = 1_795_000_000u64;
        let mut model: Vec<Timestamp> =
            (0..120).map(|_| Timestamp::from_secs_nanos((base + prng.below(90 * 86_400)) / 3600 * 3600, 0)).collect();
        model.sort();
        model.dedup();
        for hour in &model {
            fs::create_dir_all(names::hour_directory(store.path(), *hour)).expect("a directory");
        }
        let collect_hours = |mut hours: Hours| {
            let mut out = Vec::new();
            while let Some(hour) = hours.next().expect("an iteration") {
                assert_eq!(hour.directory, names::hour_directory(store.path(), hour.start));
                out.push(hour.start);
            }
            out
        };
        for _ in 0..100 {
            let pick = |prng: &mut Prng| Timestamp::from_secs_nanos(base - 100_000 + prng.below(100 * 86_400), 1);
            let (from, to) = (pick(&mut prng), pick(&mut prng));
            let first = from.floor_to(std::time::Duration::from_secs(3600));
            let inside: Vec<_> = model.iter().copied().filter(|h| first <= *h && *h <= to).collect();
            assert_eq!(collect_hours(Hours::forward(store.path(), from, to)), inside, "seed {seed}");
            let mut before: Vec<_> = model.iter().copied().filter(|h| *h <= to).collect();
            before.reverse();
            assert_eq!(collect_hours(Hours::back(store.path(), to)), before, "seed {seed}");
        }
    }
}
