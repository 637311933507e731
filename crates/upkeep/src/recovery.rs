//! Recovery runs when a recorder starts. It completes and publishes the files that a killed recorder left in the
//! directory of the interface.
//!
//! A recorder locks every packet file that it writes, and the file's index. So a file with a hidden name and no lock is
//! a leftover of a killed recorder. Recovery compares each such file with its index, truncates it after the last
//! verified packet, writes an index whose ledger contains the losses, and publishes the file. From the offered counter
//! page of the killed recorder, recovery computes the number of offered packets that are in no file
//! ([`store::offered_page`]); without the page, the ledger marks the number as unknown. Recovery also completes an
//! interrupted publication, and removes files that were only created in advance. It does not change foreign files.
//!
//! A recorder must call [`Recovery::prepare`] before it creates files. This function frees the space of the files that
//! a killed recorder had created in advance, which may be the only free space. Afterwards, each [`Recovery::step`]
//! examines one directory. Recovery examines the newest directories first, and only a limited number of directories. So
//! it does not read all of a large store and does not delay the first packet. It may run while a recorder writes into
//! the same directory.

mod event;
mod file;
pub(crate) mod file_names;
mod volume;

pub use event::Event;
pub use file::Outcome;
pub use file_names::{DAMAGED, FileNames};

use crate::packet_file::{Layout, VerifiedIndex, Window};
use file::{FileRecovery, same_file};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::device::{Content, Device, FileId, Op};
use store::names;
use store::offered_page::OrphanedCount;
use store::out_of_order::{self, OutOfOrderMarkers};
pub(crate) use volume::Volume;
use volume::WAIT;

/// The largest number of directories that recovery examines: the hour directories of more than a month.
pub const MAX_DIRECTORIES: usize = 1000;

/// Number of the newest hours in which recovery searches for the original name of a packet file whose rename a power
/// failure has undone.
const NEWEST: usize = 3;

/// Length of the pcap file header. The header is the same in all packet files, so a block without further bytes does
/// not show to which file an index belongs.
const MEANINGLESS: u32 = pcap::classic::FILE_HEADER as u32;

/// The first second since 1970 that is too large for a timestamp.
const LATEST: u64 = u64::MAX / 1_000_000_000;

/// Link type in the header of a created file without packets, whose real link type is unknown.
const ETHERNET: u16 = 1;

/// The number of attempts to lock a file that existed before this recovery and is still locked, and the pause between
/// two attempts. The kernel releases the locks of a killed process only after it has completed the pending writes of
/// that process, some time after the process ends.
const AGAIN: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// The recovery of one interface.
pub struct Recovery<D> {
    volume: Volume<D>,
    /// The directories that are not yet examined, the newest last.
    directories: Vec<PathBuf>,
    examined: usize,
    most: usize,
    /// Hidden files in the newest hour directories that existed before this recovery. The recorder that called the
    /// recovery had created no files at that time.
    before: BTreeSet<PathBuf>,
    /// The files that existed before this recovery and that another process still locks.
    held: Vec<(PathBuf, FileNames)>,
    again: u32,
    /// If set, recovery examines only files of this queue.
    queue: Option<u16>,
    /// True if the recovery of a file failed.
    troubled: bool,
    events: Vec<Event>,
    /// Set by the caller to end the recovery early.
    stop: Arc<AtomicBool>,
}

impl<D: Device> Recovery<D> {
    /// A recovery of the directory of an interface. The caller must have the claim of the interface, or exclude other
    /// processes in another way.
    pub fn new(device: D, root: &Path) -> Self {
        let volume = Volume::new(device, root.to_owned());
        let (directories, stop) = (vec![root.to_owned()], Arc::default());
        Self {
            volume,
            directories,
            examined: 0,
            most: MAX_DIRECTORIES,
            before: BTreeSet::new(),
            held: Vec::new(),
            again: 0,
            queue: None,
            troubled: false,
            events: Vec::new(),
            stop,
        }
    }

    /// Adds the offered counts that the dead recorders of this interface left. Recovery removes the offered counter
    /// page of each count after it has added the count to a ledger.
    #[must_use]
    pub fn with_orphaned_counts(mut self, tails: Vec<OrphanedCount>) -> Self {
        self.volume.tails = tails;
        self
    }

    /// Makes the recovery examine all directories, and not only a limited number of them.
    #[must_use]
    pub fn thorough(self) -> Self {
        Self { most: usize::MAX, ..self }
    }

    /// Restricts the recovery to one directory and all directories below it.
    #[must_use]
    pub fn below(self, directory: &Path) -> Self {
        Self { directories: vec![directory.to_owned()], ..self }
    }

    /// Restricts the recovery to the files of one queue, because the offered counts of the recorders of other queues
    /// are unknown.
    #[must_use]
    pub fn of_queue(self, queue: u16) -> Self {
        Self { queue: Some(queue), ..self }
    }

    /// As soon as the flag `stop` is set, the recovery ends before the next file. If the device has the same flag, its
    /// reads fail then. A file that is not completed because of the flag causes no event; the next recovery completes
    /// it, as after a kill.
    #[must_use]
    pub fn until(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Removes and returns the events of the recovery since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Removes the files that a dead recorder prepared but never wrote, and renames prepared files that contain
    /// packets.
    pub fn prepare(&mut self) {
        for directory in self.newest_hours() {
            let names = self.volume.names(&directory).unwrap_or_default();
            self.before.extend(names.iter().filter(|n| FileNames::hidden(n).is_some()).map(|n| directory.join(n)));
        }
        self.remove_prepared();
        self.forget();
    }

    /// Removes the out-of-order markers of removed files. This is safe because no other process creates markers for
    /// this interface at this moment.
    fn forget(&mut self) {
        let root = self.volume.root.clone();
        let Ok(noted) = OutOfOrderMarkers::list(&mut self.volume.device, &root) else { return };
        for ((start, ..), span, stem) in noted.iter() {
            let hour = names::hour_directory(&root, start);
            let mut named = names::PACKETS.iter().flat_map(|e| [format!("{stem}.{e}"), names::hidden(stem, e)]);
            if !named.any(|name| self.volume.device.exists(&hour.join(name))) {
                // An error is ignored, because an out-of-order marker without its packet file has no effect.
                for span in [None, Some(span)] {
                    let _ = out_of_order::remove_marker(&mut self.volume.device, &root, stem, span);
                }
            }
        }
    }

    fn remove_prepared(&mut self) {
        let root = self.volume.root.clone();
        let (mut files, mut bytes) = (0, 0);
        for name in self.volume.names(&root).unwrap_or_default() {
            let Some(ending) = file_names::prepared(&name) else { continue };
            let path = root.join(&name);
            match self.prepared(&path, &name, ending) {
                Ok(Some(room)) => (files, bytes) = (files + 1, bytes + room),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.events.push(Event::Trouble { path, error }),
            }
        }
        if files > 0 {
            self.events.push(Event::Released { directory: root, files, bytes });
        }
    }

    /// Examines the next directory; returns false if no directory is left.
    pub fn step(&mut self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let Some(directory) = self.directories.pop() else {
            let more = self.retry();
            if !more {
                self.forget_tails();
            }
            return more;
        };
        self.examined += 1;
        self.examine(&directory);
        if self.examined == self.most && !self.directories.is_empty() {
            self.directories.clear();
            self.events.push(Event::Bounded { directory: self.volume.root.clone(), examined: self.examined });
        }
        let more = !self.directories.is_empty() || !self.held.is_empty();
        if !more {
            self.forget_tails();
        }
        more
    }

    /// Removes the offered counts after all leftovers were recovered and the counts are in the ledger. If a file could
    /// not be recovered or was not examined, its count is kept for the next recovery.
    fn forget_tails(&mut self) {
        let complete = self.examined < self.most && self.held.is_empty() && !self.is_stopped();
        for tail in std::mem::take(&mut self.volume.tails) {
            let untold = tail.offered.saturating_sub(tail.before);
            let is_unfiled = tail.file.is_none() && untold > 0 && (1..LATEST).contains(&tail.second);
            let mut entered = self.volume.entered.contains(&tail);
            if !entered && complete && !self.troubled && is_unfiled {
                entered = self.enter_unfiled(&tail);
            }
            if entered || complete && !self.troubled {
                tail.forget();
            }
            if !entered && complete && !self.troubled && untold > 0 && !tail.ended {
                let directory = self.volume.root.clone();
                self.events.push(Event::UnwrittenPackets { directory, queue: tail.queue, packets: untold });
            }
        }
    }

    /// Creates a file without packets whose ledger contains, as lost, the packets offered to a recorder that was killed
    /// before its first file. Returns false after an error, which is reported.
    fn enter_unfiled(&mut self, tail: &OrphanedCount) -> bool {
        let start = base::Timestamp::from_secs_nanos(tail.second, 0);
        let directory = names::hour_directory(&self.volume.root, start);
        let called = match self.create_unfiled(tail, start, &directory) {
            Ok(Some(called)) => called,
            Ok(None) => return true,
            Err(error) => {
                self.trouble(directory, error);
                return false;
            }
        };
        // Recovery treats the new file as if the killed recorder had been writing it.
        let mut tail = tail.clone();
        tail.file = Some((start, 0));
        self.volume.tails = vec![tail.clone()];
        self.recover(&directory, called);
        self.volume.tails.clear();
        self.volume.entered.contains(&tail)
    }

    /// Creates a hidden packet file that contains only a file header, and returns its names. `None` if a ledger already
    /// contains the offered count `tail`, because an earlier recovery was killed before it removed the offered counter
    /// page.
    fn create_unfiled(
        &mut self,
        tail: &OrphanedCount,
        start: base::Timestamp,
        directory: &Path,
    ) -> io::Result<Option<FileNames>> {
        self.volume.device.create_directory(directory)?;
        let names = self.volume.names(directory)?;
        for copy in 0.. {
            let stem = names::stem(start, (tail.queue > 0).then_some(tail.queue), copy);
            let called = FileNames { stem, ending: names::PACKETS[0] };
            if names.contains(&called.index()) {
                let reported =
                    VerifiedIndex::read(&mut self.volume.device, &directory.join(called.index()))?.map(|verified| {
                        let rows = verified.blocks.iter().map(|indexed| indexed.rows.total());
                        rows.fold((0, 0), |(offered, stored), row| (offered + row.offered, stored + row.stored))
                    });
                if reported == Some((tail.offered, 0)) {
                    return Ok(None);
                }
            } else if !names.contains(&called.hidden_packets()) && !names.contains(&called.packets()) {
                let file = self.volume.device.create(&directory.join(called.hidden_packets()), Content::Index)?;
                let head = pcap::classic::file_header(pcap::classic::Resolution::Nanos, ETHERNET);
                let put = self.volume.device.put(file, 0, &head).and_then(|()| self.volume.sync(file));
                self.volume.device.close(file);
                return put.map(|()| Some(called));
            }
        }
        Ok(None)
    }

    /// Examines again the files that another process had locked; returns false if no such file is left, or after the
    /// last attempt.
    fn retry(&mut self) -> bool {
        if self.held.is_empty() || self.again == AGAIN {
            return false;
        }
        self.again += 1;
        std::thread::sleep(PAUSE);
        for (directory, called) in std::mem::take(&mut self.held) {
            self.recover(&directory, called);
        }
        self.remove_prepared();
        !self.held.is_empty() && self.again < AGAIN
    }

    fn is_selected(&self, stem: &str) -> bool {
        self.queue.is_none_or(|queue| names::queue_of(stem) == queue)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn trouble(&mut self, path: PathBuf, error: io::Error) {
        self.troubled = true;
        if !self.is_stopped() {
            self.events.push(Event::Trouble { path, error });
        }
    }

    /// Runs the whole recovery.
    pub fn run(&mut self) {
        self.prepare();
        while self.step() {}
    }

    /// Removes a prepared file if its first MiB contains only zeros, and returns the number of bytes freed; otherwise
    /// renames it, as [`Self::place`] does.
    fn prepared(&mut self, path: &Path, name: &str, ending: &'static str) -> io::Result<Option<u64>> {
        let device = &mut self.volume.device;
        let file = device.open(path)?;
        let blank = Window::new(device, file, u64::MAX).and_then(|mut w| w.is_blank(0, 1 << 20));
        self.volume.device.close(file);
        if blank? {
            return self.volume.device.remove_unheld(path);
        }
        // A prepared file has content only if a power failure has undone the rename of the file.
        self.place(path, name, ending)?;
        Ok(None)
    }

    /// Renames a prepared file with packets to the name that it had before the power failure. The name is that of the
    /// index that matches a block of the file; without such an index, the name is made from the timestamp of the first
    /// packet.
    fn place(&mut self, path: &Path, name: &str, ending: &'static str) -> io::Result<()> {
        let Some(layout) = Layout::of(ending) else { return Ok(()) };
        let Some(file) = self.volume.device.take(path)? else { return Ok(()) };
        let found = self.find_place(file, layout, name);
        let placed = match found {
            Ok(Some(to)) => self.volume.device.rename(path, &to),
            Ok(None) => {
                self.events.push(Event::Recovered { path: path.to_owned(), outcome: Outcome::Unknown });
                Ok(())
            }
            Err(e) => Err(e),
        };
        self.volume.device.close(file);
        placed
    }

    fn find_place(&mut self, file: FileId, layout: Layout, name: &str) -> io::Result<Option<PathBuf>> {
        let queue = file_names::prepared_queue(name);
        for directory in self.newest_hours() {
            let names = self.volume.names(&directory)?;
            for stem in names.iter().filter_map(|n| file_names::hidden_index(n)).filter(|s| names::queue_of(s) == queue)
            {
                let called = FileNames { stem: stem.to_owned(), ending: layout.ending() };
                let index = directory.join(called.hidden_index());
                if !names.contains(&called.hidden_packets())
                    && let Some(verified) = VerifiedIndex::read(&mut self.volume.device, &index)?
                    && self.is_of(file, &verified)?
                {
                    return Ok(Some(directory.join(called.hidden_packets())));
                }
            }
        }
        let mut window = Window::new(&mut self.volume.device, file, u64::MAX)?;
        let begins = layout.begins(window.get(0, layout.file_header() as usize)?);
        let first = layout.next(&mut window, layout.file_header(), base::Timestamp::ZERO)?;
        let Some(first) = first.filter(|_| begins) else { return Ok(None) };
        let directory = names::hour_directory(&self.volume.root, first.ts);
        let names = self.volume.names(&directory).unwrap_or_default();
        self.volume.device.create_directory(&directory)?;
        for copy in 0.. {
            let queue = (queue > 0).then_some(queue);
            let called = FileNames { stem: names::stem(first.ts, queue, copy), ending: layout.ending() };
            if !names.contains(&called.hidden_packets()) && !names.contains(&called.packets()) {
                return Ok(Some(directory.join(called.hidden_packets())));
            }
        }
        Ok(None)
    }

    /// True if the index matches any block of this file.
    fn is_of(&mut self, file: FileId, verified: &VerifiedIndex) -> io::Result<bool> {
        let mut window = Window::new(&mut self.volume.device, file, u64::MAX)?;
        for indexed in verified.blocks.iter().filter(|p| p.bytes > MEANINGLESS) {
            if indexed.matches(&mut window)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The hour directories in which a file may have been before a power failure undid its rename.
    fn newest_hours(&mut self) -> Vec<PathBuf> {
        let mut directories = vec![self.volume.root.clone()];
        for _ in ["year", "month", "day", "hour"] {
            let mut inner = Vec::new();
            for directory in &directories {
                let list = self.volume.device.list(directory).unwrap_or_default();
                let numbers = list.into_iter().filter(|(name, is_directory)| *is_directory && is_number(name));
                inner.extend(numbers.map(|(name, _)| directory.join(name)));
            }
            inner.sort_unstable_by(|a, b| b.cmp(a));
            inner.truncate(NEWEST);
            directories = inner;
        }
        directories
    }

    fn examine(&mut self, directory: &Path) {
        let list = match self.volume.device.list(directory) {
            Ok(list) => list,
            // The directory is missing because retention has removed it, or because no file was ever recorded.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.events.push(Event::Trouble { path: directory.to_owned(), error }),
        };
        let mut dead = BTreeSet::new();
        for (name, is_directory) in &list {
            if *is_directory {
                self.directories.push(directory.join(name));
            } else if let Some(called) = FileNames::hidden(name).or_else(|| FileNames::recovered_stem(name))
                && self.is_selected(&called.stem)
                // A recorder gives no such name to a file in an hour directory, so the file is foreign.
                && (called.start().is_some() || !names::is_hour(directory))
            {
                dead.insert(called);
            }
        }
        let root = &self.volume.root;
        self.directories.sort_by_cached_key(|directory| (is_dated(directory, root), directory.clone()));
        for called in dead {
            if self.is_stopped() {
                return;
            }
            self.recover(directory, called);
        }
        // Indexes are examined after the packet files, because the recovery of a packet file also publishes or removes
        // its index.
        let names = self.volume.names(directory).unwrap_or_default();
        for name in &names {
            if self.is_stopped() {
                return;
            }
            let index = file_names::hidden_index(name).or_else(|| file_names::sealed_index(name));
            let outcome = match index.or_else(|| file_names::recovered_index(name)) {
                Some(stem) if !self.is_selected(stem) => Ok(()),
                Some(stem) => self.lone_index(directory, name, stem),
                None if file_names::is_recovered(name) && self.queue.is_none() => {
                    self.volume.remove_unheld(&directory.join(name)).map(|_| ())
                }
                None => Ok(()),
            };
            if let Err(error) = outcome {
                self.trouble(directory.join(name), error);
            }
        }
        let published = names.iter().filter_map(|n| file_names::published_index(n));
        let is_own = |stem: &&str| file_names::is_stem_of_store(stem) || !names::is_hour(directory);
        let published: Vec<&str> = published.filter(|stem| self.is_selected(stem)).filter(is_own).collect();
        for stem in published {
            let mut packets = names::PACKETS.iter().map(|ending| format!("{stem}.{ending}"));
            // The name of a foreign capture's index contains the complete file name of the capture.
            if !names.contains(stem) && !packets.any(|p| names.contains(&p)) {
                self.events.push(Event::Orphan { path: directory.join(format!("{stem}.{}", names::INDEX)) });
            }
        }
    }

    fn recover(&mut self, directory: &Path, called: FileNames) {
        let hidden = directory.join(called.hidden_packets());
        let path = if self.volume.device.exists(&hidden) { hidden } else { directory.join(called.recovered_packets()) };
        let alone = path.ends_with(called.recovered_packets());
        let growing = called.hidden_index();
        let Some(mut mending) = FileRecovery::new(&mut self.volume, directory, called.clone()) else { return };
        let outcome = if alone { mending.finish_copy(&growing) } else { mending.hidden() };
        match outcome {
            Ok(Outcome::Held) if self.before.contains(&path) => self.held.push((directory.to_owned(), called)),
            Ok(Outcome::Held) => {}
            Ok(outcome) => self.events.push(Event::Recovered { path, outcome }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.trouble(path, error),
        }
    }

    /// Handles a hidden index whose packet file is missing or already published. Recovery keeps the index only if it
    /// describes packets that no other index describes.
    fn lone_index(&mut self, directory: &Path, name: &str, stem: &str) -> io::Result<()> {
        let path = directory.join(name);
        for ending in names::PACKETS {
            let called = FileNames { stem: stem.to_owned(), ending };
            if self.volume.device.exists(&directory.join(called.hidden_packets())) {
                return Ok(());
            }
        }
        if file_names::hidden_index(name).is_some()
            && let Some(verified) = VerifiedIndex::read(&mut self.volume.device, &path)?
            && verified.blocks.iter().any(|p| !p.rows.is_empty())
            && !self.is_reported(directory, stem, &verified)?
        {
            if !self.volume.device.is_held(&path) {
                self.events.push(Event::Orphan { path });
            }
            return Ok(());
        }
        self.volume.remove_unheld(&path).map(|_| ())
    }

    /// True if a published index describes the same packet file as this index.
    fn is_reported(&mut self, directory: &Path, stem: &str, verified: &VerifiedIndex) -> io::Result<bool> {
        let called = FileNames { stem: stem.to_owned(), ending: names::PACKETS[0] };
        for number in 0.. {
            let path = directory.join(called.numbered(number).index());
            if !self.volume.device.exists(&path) && number > called.number() {
                break;
            }
            if VerifiedIndex::read(&mut self.volume.device, &path)?
                .is_some_and(|v| same_file(&v.header, &verified.header))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// True if the name of the directory is that of a year, month, day or hour; recovery examines other directories later.
fn is_dated(directory: &Path, root: &Path) -> bool {
    directory.strip_prefix(root).is_ok_and(|below| below.iter().all(|part| part.to_str().is_some_and(is_number)))
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

/// Repairs a published file that is damaged or has no index: renames it to its hidden name, and then recovers it like a
/// file of a killed recorder. A damaged original is retained under another name.
pub(crate) fn repair_published<D: Device>(device: D, path: &Path) -> io::Result<Outcome> {
    // A file name without a directory means the current directory, for which `parent` returns an empty path.
    let path = &match path.parent() {
        Some(directory) if directory.as_os_str().is_empty() => Path::new(".").join(path),
        _ => path.to_owned(),
    };
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Ok(Outcome::Unknown);
    };
    let Some(called) = FileNames::published(name).or_else(|| FileNames::hidden(name)) else {
        return Ok(Outcome::Unknown);
    };
    let mut volume = Volume::new(device, file_names::interface_of(directory));
    let Some(file) = volume.device.take(path)? else { return Ok(Outcome::Held) };
    let hidden = directory.join(called.hidden_packets());
    let ready = match *path == hidden {
        true => Ok(()),
        false => {
            volume.unreadable_aside(&directory.join(called.index())).and_then(|()| volume.device.rename(path, &hidden))
        }
    };
    volume.device.close(file);
    ready?;
    let Some(mending) = FileRecovery::new(&mut volume, directory, called) else { return Ok(Outcome::Unknown) };
    match mending.careful().hidden() {
        Ok(Outcome::Unknown) if *path != hidden => volume.device.rename(&hidden, path).map(|()| Outcome::Unknown),
        // After an error, the file keeps its hidden name, so that the next recovery can continue the repair.
        Err(e) if *path != hidden && volume.device.exists(&hidden) => {
            let text =
                format!("{e}; the file now has the name {}: to continue, run netgrain repair on it", hidden.display());
            Err(io::Error::new(e.kind(), text))
        }
        other => other,
    }
}

/// Syncs the content of a file, so that it survives a power failure.
pub(crate) fn sync<D: Device>(device: &mut D, file: FileId) -> io::Result<()> {
    device.start(file, Op::Sync, 0)?;
    let mut done = Vec::new();
    while done.is_empty() {
        device.reap(WAIT, &mut done)?;
    }
    done.swap_remove(0).result.map(|_| ())
}
