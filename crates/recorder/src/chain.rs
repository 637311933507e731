//! How far a queue's files in the store reach that are in order: what begins before that needs a note ([`store::disorder`]).
//!
//! Of files in order, each begins no earlier than the one before it ends. So the newest of them, by name, is the one that ends
//! last, and its index tells when: one hour is listed and one index is opened, however large the store is.

use crate::writer::Config;
use base::Timestamp;
use index::Reader;
use std::fs::File;
use std::path::{Path, PathBuf};
use store::catalogue::{Entry, Hours};
use store::disorder::{Disorder, Span};
use store::names;

/// Hours with files in which one of the queue is looked for.
const HOURS: usize = 7 * 24;

/// The latest stamp of the files in order; the beginning of time where there are none, or nothing can be listed: whoever
/// cannot read the store will be told so when it writes there.
pub fn end(config: &Config) -> Timestamp {
    let folder = names::interface_folder(&config.store, &config.header.interface);
    newest(&folder, config.header.queue).map_or(Timestamp::ZERO, |entry| latest(&entry))
}

/// A whole file of the queue that has packets from before and behind this moment, or of it: what begins then is there already, it
/// may be. Looked for where the names say, and by the notes.
pub fn covering(config: &Config, start: Timestamp) -> Option<PathBuf> {
    let (folder, queue) = (names::interface_folder(&config.store, &config.header.interface), config.header.queue);
    let noted = Disorder::read(&folder).ok()?;
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

fn newest(folder: &Path, queue: u16) -> Option<Entry> {
    let noted = Disorder::read(folder).ok()?;
    let mut hours = Hours::back(folder, Timestamp::MAX);
    for _ in 0..HOURS {
        let listing = hours.next().ok()??.list().unwrap_or_default();
        let all = listing.sealed.into_iter().chain(listing.unfinished);
        let of_queue = all.filter(|e| e.queue == queue && noted.get((e.start, e.queue, e.copy)).is_none());
        if let Some(entry) = of_queue.max_by_key(|e| (e.start, e.copy)) {
            return Some(entry);
        }
    }
    None
}

/// Its latest stamp, as far as its index knows.
fn latest(entry: &Entry) -> Timestamp {
    let index = entry.index.as_ref().and_then(|path| Reader::begin(&File::open(path).ok()?).ok());
    index.and_then(|index| index.summary().stamps).map_or(entry.start, |(_, last)| last.max(entry.start))
}
