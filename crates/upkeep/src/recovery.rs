//! What a killed recorder left in the folder of its interface, mended at the next start.
//!
//! Every file that is being written, and every index, is locked by whoever writes it; so what has a hidden name and no
//! lock is left over. Each such file is compared with its index, cut behind the last packet for which a checksum vouches,
//! given an index that says what was lost, and published. How much was offered, and is in no file at all, the heartbeat of
//! the dead recorder tells ([`store::offered_page`]); where there is none, the ledger says that nobody knows. A half-done publication is finished, what was only prepared is
//! removed. Nothing that is not understood is touched.
//!
//! [`Recovery::prepare`] is what cannot wait: it gives back the room that a dead recorder had prepared, which may be the
//! only room there is. The rest looks at one folder in each [`Recovery::step`], the newest first and a bounded number of
//! them, so that a large store neither delays the first packet nor is read to its end; it may go on while a recorder
//! writes into the same folder.

mod event;
mod file;
pub(crate) mod file_names;

pub use event::Event;
pub use file::Outcome;
pub use file_names::{DAMAGED, FileNames};

use crate::packet_file::{Layout, VerifiedIndex, Window};
use file::{FileRecovery, same_file};
use index::Header;
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

/// Folders looked at, at most: more than a month of hours.
pub const MAX_FOLDERS: usize = 1000;

/// Hours in which a file is looked for that a failure of the power has taken out of its hour.
const NEWEST: usize = 3;

/// The head of a packet file, which all of them have in common.
const MEANINGLESS: u32 = pcap::classic::FILE_HEADER as u32;

/// The first second that no stamp can have.
const LATEST: u64 = u64::MAX / 1_000_000_000;

/// Link type of a file without packets, of which nobody knows.
const ETHERNET: u16 = 1;

/// How often a file is asked for that was there before this recovery and is still held, and how long it waits in between.
/// The kernel ends what a killed process had begun to write before it lets go of its files, some time after its death.
const AGAIN: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// How long the device is asked before it is asked again whether something has ended.
const WAIT: Duration = Duration::from_millis(100);

/// See the module.
pub struct Recovery<D> {
    volume: Volume<D>,
    /// To be looked at, the newest last.
    folders: Vec<PathBuf>,
    examined: usize,
    most: usize,
    /// Hidden files of the newest hours that were there before the caller made any.
    before: BTreeSet<PathBuf>,
    /// Of these, those that somebody still holds.
    held: Vec<(PathBuf, FileNames)>,
    again: u32,
    /// Only files of this queue are looked at.
    queue: Option<u16>,
    /// Something could not be mended.
    troubled: bool,
    events: Vec<Event>,
    /// Set by whoever cannot wait any longer.
    stop: Arc<AtomicBool>,
}

impl<D: Device> Recovery<D> {
    /// Of the folder of an interface. The caller holds its claim, or knows that nobody does.
    pub fn new(device: D, root: &Path) -> Self {
        let volume = Volume::new(device, root.to_owned());
        let (folders, stop) = (vec![root.to_owned()], Arc::default());
        Self {
            volume,
            folders,
            examined: 0,
            most: MAX_FOLDERS,
            before: BTreeSet::new(),
            held: Vec::new(),
            again: 0,
            queue: None,
            troubled: false,
            events: Vec::new(),
            stop,
        }
    }

    /// With what the dead recorders of this interface kept of their counts. Each is forgotten once it is entered.
    #[must_use]
    pub fn with_orphaned_counts(mut self, tails: Vec<OrphanedCount>) -> Self {
        self.volume.tails = tails;
        self
    }

    /// Looks at every folder, however many there are.
    #[must_use]
    pub fn thorough(self) -> Self {
        Self { most: usize::MAX, ..self }
    }

    /// Looks at one folder and what is below it, not at all of the interface.
    #[must_use]
    pub fn below(self, folder: &Path) -> Self {
        Self { folders: vec![folder.to_owned()], ..self }
    }

    /// Mends files of one queue and leaves those of the others alone: what their recorders know of them is not known
    /// here.
    #[must_use]
    pub fn of_queue(self, queue: u16) -> Self {
        Self { queue: Some(queue), ..self }
    }

    /// Ends before the next file once this is set. The device may fail what it reads from then on: a file that is left half
    /// done is taken up by the next recovery, as after a kill, and nothing is said of it.
    #[must_use]
    pub fn until(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// What was done and found since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Removes what a dead recorder made ahead of need and never wrote to, and places what it did write to.
    pub fn prepare(&mut self) {
        for folder in self.newest_hours() {
            let names = self.volume.names(&folder).unwrap_or_default();
            self.before.extend(names.iter().filter(|n| FileNames::hidden(n).is_some()).map(|n| folder.join(n)));
        }
        self.give_back();
        self.forget();
    }

    /// Takes back notes of files that have been removed. Nobody makes any at this moment.
    fn forget(&mut self) {
        let root = self.volume.root.clone();
        let Ok(noted) = OutOfOrderMarkers::list(&mut self.volume.device, &root) else { return };
        for ((start, ..), span, stem) in noted.iter() {
            let hour = names::hour_folder(&root, start);
            let mut named = names::PACKETS.iter().flat_map(|e| [format!("{stem}.{e}"), names::hidden(stem, e)]);
            if !named.any(|name| self.volume.device.exists(&hour.join(name))) {
                // One that stays is a note without a file.
                for span in [None, Some(span)] {
                    let _ = out_of_order::take_back(&mut self.volume.device, &root, stem, span);
                }
            }
        }
    }

    fn give_back(&mut self) {
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
            self.events.push(Event::Released { folder: root, files, bytes });
        }
    }

    /// Looks at one more folder; false once there is none.
    pub fn step(&mut self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let Some(folder) = self.folders.pop() else {
            let more = self.retry();
            if !more {
                self.forget_tails();
            }
            return more;
        };
        self.examined += 1;
        self.examine(&folder);
        if self.examined == self.most && !self.folders.is_empty() {
            self.folders.clear();
            self.events.push(Event::Bounded { folder: self.volume.root.clone(), examined: self.examined });
        }
        let more = !self.folders.is_empty() || !self.held.is_empty();
        if !more {
            self.forget_tails();
        }
        more
    }

    /// All that was left is mended: what the heartbeats said is in the ledger now. One of a file that could not be mended, or was
    /// not looked at, waits for the next recovery.
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
                let folder = self.volume.root.clone();
                self.events.push(Event::UnwrittenPackets { folder, queue: tail.queue, packets: untold });
            }
        }
    }

    /// Makes a file without packets whose ledger has what a recorder was offered that died before its first file; false
    /// if it could not be made, which is told.
    fn enter_unfiled(&mut self, tail: &OrphanedCount) -> bool {
        let start = base::Timestamp::from_secs_nanos(tail.second, 0);
        let folder = names::hour_folder(&self.volume.root, start);
        let called = match self.place_unfiled(tail, start, &folder) {
            Ok(Some(called)) => called,
            Ok(None) => return true,
            Err(error) => {
                self.trouble(folder, error);
                return false;
            }
        };
        // As if that file had been in work.
        let mut tail = tail.clone();
        tail.file = Some((start, 0));
        self.volume.tails = vec![tail.clone()];
        self.recover(&folder, called);
        self.volume.tails.clear();
        self.volume.entered.contains(&tail)
    }

    /// The hidden file with a head and nothing else; `None` if an earlier recovery has entered it and was killed before
    /// it could say so.
    fn place_unfiled(
        &mut self,
        tail: &OrphanedCount,
        start: base::Timestamp,
        folder: &Path,
    ) -> io::Result<Option<FileNames>> {
        self.volume.device.create_folder(folder)?;
        let names = self.volume.names(folder)?;
        for copy in 0.. {
            let stem = names::stem(start, (tail.queue > 0).then_some(tail.queue), copy);
            let called = FileNames { stem, ending: names::PACKETS[0] };
            if names.contains(&called.index()) {
                let told = VerifiedIndex::read(&mut self.volume.device, &folder.join(called.index()))?.map(|vouched| {
                    let rows = vouched.blocks.iter().map(|promise| promise.rows.total());
                    rows.fold((0, 0), |(offered, stored), row| (offered + row.offered, stored + row.stored))
                });
                if told == Some((tail.offered, 0)) {
                    return Ok(None);
                }
            } else if !names.contains(&called.hidden_packets()) && !names.contains(&called.packets()) {
                let file = self.volume.device.create(&folder.join(called.hidden_packets()), Content::Index)?;
                let head = pcap::classic::file_header(pcap::classic::Resolution::Nanos, ETHERNET);
                let put = self.volume.device.put(file, 0, &head).and_then(|()| self.volume.sync(file));
                self.volume.device.close(file);
                return put.map(|()| Some(called));
            }
        }
        Ok(None)
    }

    /// Looks again at what was held; false once there is nothing of that, or it has been asked for often enough.
    fn retry(&mut self) -> bool {
        if self.held.is_empty() || self.again == AGAIN {
            return false;
        }
        self.again += 1;
        std::thread::sleep(PAUSE);
        for (folder, called) in std::mem::take(&mut self.held) {
            self.recover(&folder, called);
        }
        self.give_back();
        !self.held.is_empty() && self.again < AGAIN
    }

    fn is_asked(&self, stem: &str) -> bool {
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

    /// Everything, one after the other.
    pub fn run(&mut self) {
        self.prepare();
        while self.step() {}
    }

    /// One prepared file: the room it gave back, if it was removed.
    fn prepared(&mut self, path: &Path, name: &str, ending: &'static str) -> io::Result<Option<u64>> {
        let device = &mut self.volume.device;
        let file = device.open(path)?;
        let blank = Window::new(device, file, u64::MAX).and_then(|mut w| w.is_blank(0, 1 << 20));
        self.volume.device.close(file);
        if blank? {
            return self.volume.device.remove_unheld(path);
        }
        // Only a failure of the power takes a name back from a file that was written to.
        self.place(path, name, ending)?;
        Ok(None)
    }

    /// Gives a file that has packets and still its first name the one that it had when the power failed: that of the
    /// index that knows its first block, or else of its first packet.
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
        for folder in self.newest_hours() {
            let names = self.volume.names(&folder)?;
            for stem in names.iter().filter_map(|n| file_names::hidden_index(n)).filter(|s| names::queue_of(s) == queue)
            {
                let called = FileNames { stem: stem.to_owned(), ending: layout.ending() };
                let index = folder.join(called.hidden_index());
                if !names.contains(&called.hidden_packets())
                    && let Some(vouched) = VerifiedIndex::read(&mut self.volume.device, &index)?
                    && self.is_of(file, &vouched)?
                {
                    return Ok(Some(folder.join(called.hidden_packets())));
                }
            }
        }
        let mut window = Window::new(&mut self.volume.device, file, u64::MAX)?;
        let begins = layout.begins(window.get(0, layout.file_header() as usize)?);
        let first = layout.next(&mut window, layout.file_header(), base::Timestamp::ZERO)?;
        let Some(first) = first.filter(|_| begins) else { return Ok(None) };
        let folder = names::hour_folder(&self.volume.root, first.ts);
        let names = self.volume.names(&folder).unwrap_or_default();
        self.volume.device.create_folder(&folder)?;
        for copy in 0.. {
            let queue = (queue > 0).then_some(queue);
            let called = FileNames { stem: names::stem(first.ts, queue, copy), ending: layout.ending() };
            if !names.contains(&called.hidden_packets()) && !names.contains(&called.packets()) {
                return Ok(Some(folder.join(called.hidden_packets())));
            }
        }
        Ok(None)
    }

    /// Whether an index knows any block of this file.
    fn is_of(&mut self, file: FileId, vouched: &VerifiedIndex) -> io::Result<bool> {
        let mut window = Window::new(&mut self.volume.device, file, u64::MAX)?;
        for promise in vouched.blocks.iter().filter(|p| p.bytes > MEANINGLESS) {
            if promise.holds(&mut window)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The hours in which a file may have been that lost its name.
    fn newest_hours(&mut self) -> Vec<PathBuf> {
        let mut folders = vec![self.volume.root.clone()];
        for _ in ["year", "month", "day", "hour"] {
            let mut inner = Vec::new();
            for folder in &folders {
                let list = self.volume.device.list(folder).unwrap_or_default();
                let numbers = list.into_iter().filter(|(name, is_folder)| *is_folder && is_number(name));
                inner.extend(numbers.map(|(name, _)| folder.join(name)));
            }
            inner.sort_unstable_by(|a, b| b.cmp(a));
            inner.truncate(NEWEST);
            folders = inner;
        }
        folders
    }

    fn examine(&mut self, folder: &Path) {
        let list = match self.volume.device.list(folder) {
            Ok(list) => list,
            // Retention has removed it, or nothing was ever recorded.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.events.push(Event::Trouble { path: folder.to_owned(), error }),
        };
        let mut dead = BTreeSet::new();
        for (name, is_folder) in &list {
            if *is_folder {
                self.folders.push(folder.join(name));
            } else if let Some(called) = FileNames::hidden(name).or_else(|| FileNames::recovered_stem(name))
                && self.is_asked(&called.stem)
            {
                dead.insert(called);
            }
        }
        let root = &self.volume.root;
        self.folders.sort_by_cached_key(|folder| (is_dated(folder, root), folder.clone()));
        for called in dead {
            if self.is_stopped() {
                return;
            }
            self.recover(folder, called);
        }
        // After the packets, because mending them takes their indexes away.
        let names = self.volume.names(folder).unwrap_or_default();
        for name in &names {
            if self.is_stopped() {
                return;
            }
            let index = file_names::hidden_index(name).or_else(|| file_names::sealed_index(name));
            let outcome = match index.or_else(|| file_names::recovered_index(name)) {
                Some(stem) if !self.is_asked(stem) => Ok(()),
                Some(stem) => self.lone_index(folder, name, stem),
                None if file_names::is_recovered(name) && self.queue.is_none() => {
                    self.volume.remove_unheld(&folder.join(name)).map(|_| ())
                }
                None => Ok(()),
            };
            if let Err(error) = outcome {
                self.trouble(folder.join(name), error);
            }
        }
        let published = names.iter().filter_map(|n| file_names::published_index(n));
        let published: Vec<&str> = published.filter(|stem| self.is_asked(stem)).collect();
        for stem in published {
            let mut packets = names::PACKETS.iter().map(|ending| format!("{stem}.{ending}"));
            // A capture of somebody else keeps its ending in the name of its index.
            if !names.contains(stem) && !packets.any(|p| names.contains(&p)) {
                self.events.push(Event::Orphan { path: folder.join(format!("{stem}.{}", names::INDEX)) });
            }
        }
    }

    fn recover(&mut self, folder: &Path, called: FileNames) {
        let hidden = folder.join(called.hidden_packets());
        let path = if self.volume.device.exists(&hidden) { hidden } else { folder.join(called.recovered_packets()) };
        let alone = path.ends_with(called.recovered_packets());
        let growing = called.hidden_index();
        let Some(mut mending) = FileRecovery::new(&mut self.volume, folder, called.clone()) else { return };
        let outcome = if alone { mending.finish_copy(&growing) } else { mending.hidden() };
        match outcome {
            Ok(Outcome::Held) if self.before.contains(&path) => self.held.push((folder.to_owned(), called)),
            Ok(Outcome::Held) => {}
            Ok(outcome) => self.events.push(Event::Recovered { path, outcome }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.trouble(path, error),
        }
    }

    /// A hidden index whose packets are not there, or have their name already: it is kept only if it knows of packets
    /// that no other index tells of.
    fn lone_index(&mut self, folder: &Path, name: &str, stem: &str) -> io::Result<()> {
        let path = folder.join(name);
        for ending in names::PACKETS {
            let called = FileNames { stem: stem.to_owned(), ending };
            if self.volume.device.exists(&folder.join(called.hidden_packets())) {
                return Ok(());
            }
        }
        if file_names::hidden_index(name).is_some()
            && let Some(vouched) = VerifiedIndex::read(&mut self.volume.device, &path)?
            && vouched.blocks.iter().any(|p| !p.rows.is_empty())
            && !self.is_reported(folder, stem, &vouched)?
        {
            if !self.volume.device.is_held(&path) {
                self.events.push(Event::Orphan { path });
            }
            return Ok(());
        }
        self.volume.remove_unheld(&path).map(|_| ())
    }

    /// Whether a published index is of the same file.
    fn is_reported(&mut self, folder: &Path, stem: &str, vouched: &VerifiedIndex) -> io::Result<bool> {
        let called = FileNames { stem: stem.to_owned(), ending: names::PACKETS[0] };
        for number in 0.. {
            let path = folder.join(called.numbered(number).index());
            if !self.volume.device.exists(&path) && number > called.number() {
                break;
            }
            if VerifiedIndex::read(&mut self.volume.device, &path)?
                .is_some_and(|v| same_file(&v.header, &vouched.header))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a folder is one of years, months, days and hours: those of somebody else are looked at after all of them.
fn is_dated(folder: &Path, root: &Path) -> bool {
    folder.strip_prefix(root).is_ok_and(|below| below.iter().all(|part| part.to_str().is_some_and(is_number)))
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

/// A device, and where on it.
pub(crate) struct Volume<D> {
    pub device: D,
    root: PathBuf,
    token: u64,
    /// What is known of packets that are in no file.
    tails: Vec<OrphanedCount>,
    /// Of these, those that are in the ledger of a file that has its name.
    entered: Vec<OrphanedCount>,
}

impl<D: Device> Volume<D> {
    fn new(device: D, root: PathBuf) -> Self {
        Self { device, root, token: 0, tails: Vec::new(), entered: Vec::new() }
    }

    /// What the recorder of this file kept of its counts, if it was in work when it died; `Err` if nothing is known of any file of
    /// the queue.
    fn tail(&self, header: &Header) -> Result<Option<&OrphanedCount>, CountsUnavailable> {
        let mut of_queue = self.tails.iter().filter(|t| t.queue == header.queue).peekable();
        if of_queue.peek().is_none() {
            return Err(CountsUnavailable);
        }
        let is_it = |pos: u64| pos == header.first_pos || header.first_pos == index::UNKNOWN_POS;
        Ok(of_queue.find(|t| t.file.is_some_and(|(start, pos)| start == header.start && is_it(pos))))
    }

    /// The interface that this folder is of, as far as its name says.
    fn interface(&self) -> String {
        self.root.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The names in a folder that are not folders.
    fn names(&mut self, folder: &Path) -> io::Result<BTreeSet<String>> {
        let list = self.device.list(folder)?;
        Ok(list.into_iter().filter(|(_, is_folder)| !is_folder).map(|(name, _)| name).collect())
    }

    /// Removes a file, if it is there.
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        match self.device.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn remove_unheld(&mut self, path: &Path) -> io::Result<Option<u64>> {
        match self.device.remove_unheld(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other,
        }
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.token += 1;
        self.device.start(file, Op::Sync, self.token)?;
        let mut done = Vec::new();
        loop {
            self.device.reap(WAIT, &mut done)?;
            if let Some(at) = done.iter().position(|c| c.token == self.token) {
                return done.swap_remove(at).result.map(|_| ());
            }
        }
    }

    /// Sets an index aside of which nothing can be read.
    fn unreadable_aside(&mut self, index: &Path) -> io::Result<()> {
        if !self.device.exists(index) || VerifiedIndex::read(&mut self.device, index)?.is_some() {
            return Ok(());
        }
        for number in 0.. {
            let number = if number > 0 { format!("_{number}") } else { String::new() };
            let mut to = index.as_os_str().to_owned();
            to.push(format!("{number}.{DAMAGED}"));
            match self.device.rename(index, Path::new(&to)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Makes the names in a folder survive a failure of the power, where the file system knows how.
    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        let file = self.device.open_folder(folder)?;
        let synced = self.sync(file);
        self.device.close(file);
        match synced {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }
}

/// Whatever counted the packets of a dead recorder is gone.
struct CountsUnavailable;

/// Mends a file that has its name and is damaged all the same, or has lost its index: it gets back its hidden name, and
/// is then recovered as if its recorder had died. What is damaged is kept aside.
pub(crate) fn repair_published<D: Device>(device: D, path: &Path) -> io::Result<Outcome> {
    // A bare name lies in the folder that everybody stands in, which has no name to be read by.
    let path = &match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new(".").join(path),
        _ => path.to_owned(),
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Ok(Outcome::Unknown);
    };
    let Some(called) = FileNames::published(name).or_else(|| FileNames::hidden(name)) else {
        return Ok(Outcome::Unknown);
    };
    let mut volume = Volume::new(device, file_names::interface_of(folder));
    let Some(file) = volume.device.take(path)? else { return Ok(Outcome::Held) };
    let hidden = folder.join(called.hidden_packets());
    let ready = match *path == hidden {
        true => Ok(()),
        false => {
            volume.unreadable_aside(&folder.join(called.index())).and_then(|()| volume.device.rename(path, &hidden))
        }
    };
    volume.device.close(file);
    ready?;
    let Some(mending) = FileRecovery::new(&mut volume, folder, called) else { return Ok(Outcome::Unknown) };
    match mending.careful().hidden() {
        Ok(Outcome::Unknown) if *path != hidden => volume.device.rename(&hidden, path).map(|()| Outcome::Unknown),
        // How far it came is not known here, so the name stays under which it can be taken up.
        Err(e) if *path != hidden && volume.device.exists(&hidden) => {
            let text = format!("{e}; it lies there as {} now: netgrain repair of that file goes on", hidden.display());
            Err(io::Error::new(e.kind(), text))
        }
        other => other,
    }
}

/// Makes the content of a file survive a failure of the power.
pub(crate) fn sync<D: Device>(device: &mut D, file: FileId) -> io::Result<()> {
    device.start(file, Op::Sync, 0)?;
    let mut done = Vec::new();
    while done.is_empty() {
        device.reap(WAIT, &mut done)?;
    }
    done.swap_remove(0).result.map(|_| ())
}
