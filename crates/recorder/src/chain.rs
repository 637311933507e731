//! How far a queue's files in the store reach that are in order: what begins before that needs a note ([`store::out_of_order`]).
//!
//! Of files in order, each begins no earlier than the one before it ends. So the newest of them, by name, is the one that ends
//! last, and its index tells when: one hour is listed and one index is opened, however large the store is.

use crate::writer::Config;
use base::Timestamp;
use index::Reader;
use std::io;
use std::path::{Path, PathBuf};
use store::catalogue::{Entry, Hours};
use store::names;
use store::out_of_order::{OutOfOrderMarkers, Span};

/// Hours in which a file of the queue is looked for.
const HOURS: usize = 7 * 24;

/// The latest stamp of the files in order; the beginning of time where there are none, or nothing can be listed: whoever
/// cannot read the store will be told so when it writes there.
pub fn end(config: &Config) -> Timestamp {
    let folder = names::interface_folder(&config.store, &config.header.interface);
    let newest = OrderedFiles::back(&folder, config.header.queue).and_then(|mut in_order| in_order.next());
    newest.ok().flatten().map_or(Timestamp::ZERO, |entry| latest(&entry))
}

/// A whole file of the queue that has packets from before and behind this moment, or of it: what begins then is there already, it
/// may be. Looked for where the names say, and by the notes.
pub fn covering(config: &Config, start: Timestamp) -> Option<PathBuf> {
    let (folder, queue) = (names::interface_folder(&config.store, &config.header.interface), config.header.queue);
    let noted = OutOfOrderMarkers::read(&folder).ok()?;
    let by_note = noted
        .iter()
        .filter(|((_, q, _), span, _)| *q == queue && *span != Span::UNKNOWN && span.overlaps(start, start));
    let mut found = by_note.filter_map(|((start, ..), _, stem)| Entry::find(&names::hour_folder(&folder, start), stem));
    if let Some(entry) = found.next() {
        return Some(entry.path);
    }
    let mut hours = Hours::back(&folder, start);
    for _ in 0..HOURS {
        let listing = hours.next().ok()??.list().unwrap_or_default();
        let before = listing.sealed.into_iter().filter(|e| e.queue == queue && e.start <= start);
        let in_order = before.filter(|e| noted.get((e.start, e.queue, e.copy)).is_none());
        if let Some(entry) = in_order.max_by_key(|e| (e.start, e.copy)) {
            return (start <= latest(&entry)).then_some(entry.path);
        }
    }
    None
}

/// The files of a queue that have no note, by their names, from the newest on.
pub struct OrderedFiles {
    hours: Hours,
    noted: OutOfOrderMarkers,
    queue: u16,
    /// Those of the hour that was listed last; the newest is last.
    found: Vec<Entry>,
    /// Hours that are still listed.
    left: usize,
}

impl OrderedFiles {
    /// Before the newest.
    ///
    /// # Errors
    /// When the notes cannot be read.
    pub fn back(folder: &Path, queue: u16) -> io::Result<Self> {
        let (hours, noted) = (Hours::back(folder, Timestamp::MAX), OutOfOrderMarkers::read(folder)?);
        Ok(Self { hours, noted, queue, found: Vec::new(), left: HOURS })
    }

    /// The next one; `None` if there is none in so many hours.
    ///
    /// # Errors
    /// When a folder cannot be listed.
    #[allow(clippy::should_implement_trait, reason = "an iterator of results would end after its first error")]
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        while self.found.is_empty() && self.left > 0 {
            let Some(hour) = self.hours.next()? else { break };
            let listing = hour.list().unwrap_or_default();
            let all = listing.sealed.into_iter().chain(listing.unfinished).filter(|e| e.queue == self.queue);
            let (noted, in_order): (Vec<Entry>, Vec<Entry>) =
                all.partition(|e| self.noted.get((e.start, e.queue, e.copy)).is_some());
            // Hours of files with notes may be any number, and what is looked for is behind them.
            self.left -= usize::from(noted.is_empty());
            self.found = in_order;
            self.found.sort_unstable_by_key(|e| (e.start, e.copy));
        }
        Ok(self.found.pop())
    }
}

/// Its latest stamp, as far as its index knows.
fn latest(entry: &Entry) -> Timestamp {
    span(entry).1
}

/// From when to when a file has packets, or something to tell, as far as its index knows; and whether it is whole.
pub fn span(entry: &Entry) -> (Timestamp, Timestamp, bool) {
    let index = entry.index.as_ref().and_then(|path| Reader::begin(&sys::nofollow::open(path).ok()?).ok());
    let Some(index) = index else { return (entry.start, entry.start, false) };
    let (first, last) = index.summary().stamps.unwrap_or((entry.start, entry.start));
    (first.min(entry.start), last.max(entry.start), index.is_sealed())
}

/// Its name without an ending, and without what hides it.
pub fn stem(entry: &Entry) -> Option<String> {
    [None, Some(entry.queue)].into_iter().find_map(|queue| {
        let stem = names::stem(entry.start, queue, entry.copy);
        Entry::find(entry.path.parent()?, &stem).map(|_| stem)
    })
}
