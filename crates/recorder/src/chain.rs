//! Finds the latest timestamp in the in-order files of a queue in the store. A new file that begins before this
//! timestamp needs an out-of-order marker ([`store::out_of_order`]).
//!
//! Each in-order file begins no earlier than the previous file ends. So the newest file by name also ends last, and its
//! index contains the latest timestamp: the search usually lists one hour directory and opens one index, however large
//! the store is.

use crate::writer::Config;
use base::Timestamp;
use index::Reader;
use std::io;
use std::path::{Path, PathBuf};
use store::catalogue::{Entry, Hours};
use store::names;
use store::out_of_order::{OutOfOrderMarkers, Span};

/// The largest number of hour directories that a search for a file of the queue lists.
const HOURS: usize = 7 * 24;

/// The latest timestamp of the in-order files; [`Timestamp::ZERO`] if there are none or a directory cannot be listed.
/// An error is ignored here, because the recorder reports an unreadable store when it writes to the store.
pub fn end(config: &Config) -> Timestamp {
    let directory = names::interface_directory(&config.store, &config.header.interface);
    let newest = OrderedFiles::back(&directory, config.header.queue).and_then(|mut in_order| in_order.next());
    newest.ok().flatten().map_or(Timestamp::ZERO, |entry| latest(&entry))
}

/// A sealed file of the queue whose time range includes `start`, so the store may already contain the packets that
/// begin at `start`. The search uses file names for in-order files and markers for out-of-order files.
pub fn covering(config: &Config, start: Timestamp) -> Option<PathBuf> {
    let (directory, queue) = (names::interface_directory(&config.store, &config.header.interface), config.header.queue);
    let markers = OutOfOrderMarkers::read(&directory).ok()?;
    let by_marker = markers
        .iter()
        .filter(|((_, q, _), span, _)| *q == queue && *span != Span::UNKNOWN && span.overlaps(start, start));
    let mut found =
        by_marker.filter_map(|((start, ..), _, stem)| Entry::find(&names::hour_directory(&directory, start), stem));
    if let Some(entry) = found.next() {
        return Some(entry.path);
    }
    let mut hours = Hours::back(&directory, start);
    for _ in 0..HOURS {
        let listing = hours.next().ok()??.list().unwrap_or_default();
        let before = listing.sealed.into_iter().filter(|e| e.queue == queue && e.start <= start);
        let in_order = before.filter(|e| markers.get((e.start, e.queue, e.copy)).is_none());
        if let Some(entry) = in_order.max_by_key(|e| (e.start, e.copy)) {
            return (start <= latest(&entry)).then_some(entry.path);
        }
    }
    None
}

/// Iterates over the files of a queue that have no out-of-order marker, in the order of their names, the newest first.
pub struct OrderedFiles {
    hours: Hours,
    markers: OutOfOrderMarkers,
    queue: u16,
    /// The files of the hour directory that was listed last, not yet returned; the newest file is the last element.
    found: Vec<Entry>,
    /// Number of hour directories that the search may still list.
    left: usize,
}

impl OrderedFiles {
    /// An iterator positioned before the newest file.
    ///
    /// # Errors
    /// When the out-of-order markers cannot be read.
    pub fn back(directory: &Path, queue: u16) -> io::Result<Self> {
        let (hours, markers) = (Hours::back(directory, Timestamp::MAX), OutOfOrderMarkers::read(directory)?);
        Ok(Self { hours, markers, queue, found: Vec::new(), left: HOURS })
    }

    /// The next older file; `None` if there is none within [`HOURS`] hour directories.
    ///
    /// # Errors
    /// When an hour directory cannot be listed.
    #[allow(clippy::should_implement_trait, reason = "the type `Result<Option<_>>` lets callers use `?` in each step")]
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        while self.found.is_empty() && self.left > 0 {
            let Some(hour) = self.hours.next()? else { break };
            let listing = hour.list().unwrap_or_default();
            let all = listing.sealed.into_iter().chain(listing.unfinished).filter(|e| e.queue == self.queue);
            let (out_of_order, in_order): (Vec<Entry>, Vec<Entry>) =
                all.partition(|e| self.markers.get((e.start, e.queue, e.copy)).is_some());
            // Hour directories with out-of-order files do not count towards the limit: any number of such directories
            // may be newer than the newest in-order file.
            self.left -= usize::from(out_of_order.is_empty());
            self.found = in_order;
            self.found.sort_unstable_by_key(|e| (e.start, e.copy));
        }
        Ok(self.found.pop())
    }
}

/// The latest timestamp of the file according to its index.
fn latest(entry: &Entry) -> Timestamp {
    span(entry).1
}

/// The earliest and latest timestamp of the file's packets and ledger rows according to its index, and true if the
/// index is sealed.
pub fn span(entry: &Entry) -> (Timestamp, Timestamp, bool) {
    let index = entry.index.as_ref().and_then(|path| Reader::begin(&sys::nofollow::open(path).ok()?).ok());
    let Some(index) = index else { return (entry.start, entry.start, false) };
    let (first, last) = index.summary().stamps.unwrap_or((entry.start, entry.start));
    (first.min(entry.start), last.max(entry.start), index.is_sealed())
}

/// The file name without its ending, its leading dot and `.partial`.
pub fn stem(entry: &Entry) -> Option<String> {
    [None, Some(entry.queue)].into_iter().find_map(|queue| {
        let stem = names::stem(entry.start, queue, entry.copy);
        Entry::find(entry.path.parent()?, &stem).map(|_| stem)
    })
}
