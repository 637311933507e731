//! Lists the files of an interface in the order of their names, one hour directory after the other, as the timestamp of
//! the result reaches them.
//!
//! The name of a file contains its start time, and its index contains its last timestamp. Out-of-order files have a
//! marker, and [`super::marked_files`] finds them. To find files that begin before the interval and extend into it, the
//! source searches backwards, for each queue until [`ATTEMPTS`] successive files end before the interval begins. One
//! such file would suffice if clocks were never set back; after a clock was set back, a long file may precede shorter
//! files that began later and ended earlier. After the end of the interval, the source continues to read indexes as
//! long as files contain packets that are older than the time in the file name; stores that were recorded before
//! out-of-order markers existed have such files.

use super::index_prefetch::IndexPrefetcher;
use super::indexed;
use super::plan::{self, FileOrder};
use crate::cursor::{CursorSource, Ranked};
use crate::{QueryContext, QueryError};
use base::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::Hold;
use store::catalogue::{Entry, Hour, Hours, Listing};
use store::out_of_order::OutOfOrderMarkers;

/// The backward search ends for a queue after this number of successive files that end before the interval.
const ATTEMPTS: u32 = 8;

/// The backward search lists at least this number of non-empty hour directories if the file names contain queue
/// numbers, because a queue may have had no traffic for a long time. If the interface has only one queue, the search
/// may end earlier.
const HOURS_BACK: u32 = 24;

/// The backward search lists at most this number of non-empty hour directories.
const MAX_HOURS_BACK: u32 = 7 * 24;

const HOUR: Duration = Duration::from_secs(3600);

/// A snapshot of the newest hour directories, taken at the start of the query. The names of their files are stored,
/// because a running recorder changes these directories during the query.
#[derive(Default)]
pub struct Snapshot {
    /// Start of the oldest hour whose directory is in the snapshot.
    pub from: Option<Timestamp>,
    /// For each hour of the snapshot, its files except those that other cursors read.
    pub hours: BTreeMap<Timestamp, (Listing, Arc<Hold>)>,
    /// Files that other cursors read.
    pub taken: Vec<Entry>,
    /// Files with out-of-order markers.
    pub marked: Arc<OutOfOrderMarkers>,
}

impl Snapshot {
    /// True if the snapshot contains this file, under its hidden or its published name.
    pub fn has(&self, entry: &Entry) -> bool {
        let files =
            |(listing, _): &(Listing, _)| listing.sealed.iter().chain(&listing.unfinished).any(|e| is(e, entry));
        self.hours.get(&entry.start.floor_to(HOUR)).is_some_and(files)
    }
}

/// True if both entries belong to the same packet file.
pub fn is(a: &Entry, b: &Entry) -> bool {
    (a.start, a.queue, a.copy) == (b.start, b.queue, b.copy)
}

/// The files of an hour directory, and the hold that prevents their removal.
type HourFiles = (Vec<Entry>, Arc<Hold>);

/// A source of cursors over the files of an interface.
pub struct NamedFiles {
    directory: PathBuf,
    interface: String,
    rank: u32,
    snapshot: Snapshot,
    hours: Hours,
    /// The next files to open, in order.
    due: VecDeque<(Entry, Arc<Hold>)>,
    /// Reads the indexes of the files in `due` in advance.
    prefetcher: IndexPrefetcher,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Before,
    Inside,
    Behind,
    Over,
}

impl NamedFiles {
    /// A source of cursors that has not listed any directory except those of the snapshot.
    pub fn new(directory: &Path, interface: &str, rank: u32, snapshot: Snapshot, context: &QueryContext) -> Self {
        let (from, to) = (context.query.from, context.query.to);
        Self {
            directory: directory.to_owned(),
            interface: interface.to_owned(),
            rank,
            snapshot,
            hours: Hours::forward(directory, from, to),
            due: VecDeque::new(),
            prefetcher: IndexPrefetcher::new(&context.query),
            stage: Stage::Before,
        }
    }

    /// Takes a hold on an hour directory and lists its files; `None` if the directory was removed.
    fn list(&self, hour: &Hour, context: &mut QueryContext) -> Result<Option<HourFiles>, QueryError> {
        let io = |error| QueryError::Io { path: hour.directory.clone(), error };
        let gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
        let (listing, hold) = if self.snapshot.from.is_some_and(|from| from <= hour.start) {
            match self.snapshot.hours.get(&hour.start) {
                Some((listing, hold)) => (listing.clone(), Arc::clone(hold)),
                None => return Ok(None),
            }
        } else {
            // The hold is taken before the listing, so that no listed file is removed.
            let hold = match Hold::reader(&hour.directory) {
                Err(e) if gone(&e) => return Ok(None),
                other => Arc::new(other.map_err(io)?),
            };
            if let Some(why) = hold.obstacle() {
                context.warning(why.to_owned());
            }
            match hour.list() {
                Err(e) if gone(&e) => return Ok(None),
                other => (other.map_err(io)?, hold),
            }
        };
        let mut files = listing.sealed;
        // A listing during a rename may contain both names of a file.
        let hidden: Vec<Entry> = listing.unfinished.into_iter().filter(|e| !files.iter().any(|f| is(f, e))).collect();
        files.extend(hidden);
        let noted = |e: &Entry| self.snapshot.marked.get((e.start, e.queue, e.copy)).is_some();
        files.retain(|entry| !noted(entry) && !self.snapshot.taken.iter().any(|taken| is(taken, entry)));
        files.sort();
        Ok(Some((files, hold)))
    }

    fn next_hour(&self, hours: &mut Hours) -> Result<Option<Hour>, QueryError> {
        hours.next().map_err(|error| QueryError::Io { path: self.directory.clone(), error })
    }

    /// Finds files that begin before the interval and extend into it.
    fn reach_back(&mut self, context: &mut QueryContext) -> Result<(), QueryError> {
        let from = context.query.from;
        if from == Timestamp::ZERO {
            return Ok(());
        }
        let mut hours = Hours::back(&self.directory, from);
        // For each queue, the number of successive files that end before the interval.
        let mut misses: BTreeMap<u16, u32> = BTreeMap::new();
        let (mut listed, mut several) = (0, false);
        while listed < MAX_HOURS_BACK
            && let Some(hour) = self.next_hour(&mut hours)?
        {
            let Some((files, hold)) = self.list(&hour, context)? else { continue };
            listed += 1;
            for entry in files.into_iter().rev().filter(|entry| entry.start < from) {
                several |= entry.path.to_string_lossy().contains("Z-q");
                let misses = misses.entry(entry.queue).or_default();
                if *misses >= ATTEMPTS {
                    continue;
                }
                if self.reaches(&entry, context) {
                    *misses = 0;
                    self.due.push_front((entry, Arc::clone(&hold)));
                } else {
                    *misses += 1;
                    context.cost.files += 1;
                    context.cost.files_skipped += 1;
                }
            }
            let settled = !misses.is_empty() && misses.values().all(|n| *n >= ATTEMPTS);
            if settled && !several || listed >= HOURS_BACK && misses.values().all(|n| *n > 0) {
                break;
            }
        }
        self.due.make_contiguous().sort_by(|a, b| a.0.cmp(&b.0));
        Ok(())
    }

    /// True if a file that begins before the interval may contain packets of the interval.
    fn reaches(&self, entry: &Entry, context: &mut QueryContext) -> bool {
        if indexed::is_hidden(entry) {
            return true;
        }
        let Ok(indexed) = indexed::begin_index(entry) else { return true };
        context.cost.index_bytes_read += indexed.reader.bytes_read();
        !indexed.reader.is_sealed() || indexed.overlaps(context.query.from, Timestamp::MAX)
    }

    /// Finds files whose names give a time after the interval, but which contain packets of the interval.
    fn reach_ahead(&mut self, context: &mut QueryContext) -> Result<(), QueryError> {
        let to = context.query.to;
        if to.nanos() > u64::MAX - 2 * HOUR.as_nanos() as u64 {
            return Ok(());
        }
        let mut settled: BTreeMap<u16, bool> = BTreeMap::new();
        let mut hours = Hours::forward(&self.directory, to, Timestamp::MAX);
        while let Some(hour) = self.next_hour(&mut hours)? {
            let Some((files, hold)) = self.list(&hour, context)? else { continue };
            for entry in files.into_iter().filter(|entry| entry.start > to && !indexed::is_hidden(entry)) {
                let settled = settled.entry(entry.queue).or_default();
                if *settled {
                    continue;
                }
                let Ok(indexed) = indexed::begin_index(&entry) else {
                    // Files without an index are skipped, because only a complete read could show whether they contain
                    // packets of the interval. If they were not skipped, the query would read all later files of a
                    // store without indexes.
                    *settled = true;
                    continue;
                };
                context.cost.index_bytes_read += indexed.reader.bytes_read();
                *settled = indexed.reader.summary().stamps.is_none_or(|(first, _)| first >= entry.start);
                if indexed.overlaps(context.query.from, to) {
                    self.due.push_back((entry, Arc::clone(&hold)));
                }
            }
            if !settled.is_empty() && settled.values().all(|s| *s) {
                break;
            }
        }
        Ok(())
    }

    /// Lists hour directories until `due` contains files.
    fn fill(&mut self, context: &mut QueryContext) -> Result<(), QueryError> {
        while self.due.is_empty() {
            match self.stage {
                Stage::Before => {
                    self.reach_back(context)?;
                    self.stage = Stage::Inside;
                }
                Stage::Inside => {
                    let mut hours = std::mem::replace(&mut self.hours, Hours::back(&self.directory, Timestamp::ZERO));
                    let hour = self.next_hour(&mut hours);
                    self.hours = hours;
                    match hour? {
                        Some(hour) => {
                            let (from, to) = (context.query.from, context.query.to);
                            if let Some((files, hold)) = self.list(&hour, context)? {
                                let inside = files.into_iter().filter(|e| from <= e.start && e.start <= to);
                                self.due.extend(inside.map(|entry| (entry, Arc::clone(&hold))));
                            }
                            self.snapshot.hours.remove(&hour.start);
                        }
                        None => self.stage = Stage::Behind,
                    }
                }
                Stage::Behind => {
                    self.reach_ahead(context)?;
                    self.stage = Stage::Over;
                }
                Stage::Over => return Ok(()),
            }
        }
        Ok(())
    }
}

impl CursorSource for NamedFiles {
    fn begins(&mut self, context: &mut QueryContext) -> Result<Option<Timestamp>, QueryError> {
        self.fill(context)?;
        Ok(self.due.front().map(|(entry, _)| entry.start))
    }

    fn is_ready(&mut self) -> bool {
        self.due.front().is_some_and(|(entry, _)| self.prefetcher.has(entry))
    }

    fn open(&mut self, context: &mut QueryContext) -> Result<Option<Ranked>, QueryError> {
        self.fill(context)?;
        let Some((entry, hold)) = self.due.pop_front() else { return Ok(None) };
        let behind = self.due.iter().map(|(entry, _)| (entry, FileOrder::InOrder));
        let probed = self.prefetcher.probe(&entry, FileOrder::InOrder, behind);
        let cursor = plan::open(&entry, probed, &self.interface, &hold, context)?;
        Ok(cursor.map(|cursor| ((self.rank, entry.queue), cursor)))
    }
}
