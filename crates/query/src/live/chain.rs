//! Which file of a queue follows which, while files are sealed and named.
//!
//! A recording begins each file at the first block of the stream behind the one before, and the index of each says where;
//! so files of one recording are told from those of others by their positions as well as by their names. A folder that is
//! listed while a file is renamed may show it under neither name: what was not found is looked for again.

use super::growing::Growing;
use crate::Book;
use ring::BLOCK;
use std::io;
use std::path::Path;
use store::catalogue::{Entry, Hours};
use wire::filter::Need;

/// The files of a queue from this one on, by name only, itself included.
///
/// # Errors
/// When a folder cannot be listed.
pub fn from(folder: &Path, queue: u16, first: base::Timestamp) -> io::Result<Vec<Entry>> {
    let mut out = Vec::new();
    let mut hours = Hours::forward(folder, first, base::Timestamp::MAX);
    while let Some(hour) = hours.next()? {
        let listing = match hour.list() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let all = listing.sealed.into_iter().chain(listing.unfinished);
        out.extend(all.filter(|e| e.queue == queue && e.start >= first));
    }
    out.sort_by_key(|e| (e.start, e.copy));
    Ok(out)
}

/// The latest file of a queue, by name.
///
/// # Errors
/// When a folder cannot be listed.
pub fn latest(folder: &Path, queue: u16) -> io::Result<Option<Entry>> {
    let mut hours = Hours::back(folder, base::Timestamp::MAX);
    while let Some(hour) = hours.next()? {
        let listing = match hour.list() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let all = listing.sealed.into_iter().chain(listing.unfinished).filter(|e| e.queue == queue);
        if let Some(entry) = all.max_by_key(|e| (e.start, e.copy)) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Unfinished files of all queues in the two newest hours.
///
/// # Errors
/// When a folder cannot be listed.
pub fn unfinished(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut out = Vec::new();
    let mut hours = Hours::back(folder, base::Timestamp::MAX);
    for _ in 0..2 {
        let Some(hour) = hours.next()? else { break };
        match hour.list() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => out.extend(other?.unfinished),
        }
    }
    Ok(out)
}

/// What follows a file.
pub enum Next {
    /// This one, directly.
    Follows(Box<Growing>),
    /// This one, but what was between them is gone, or not named at this moment.
    Later(Box<Growing>),
    /// None yet.
    None,
}

/// The file behind a complete one of the same recording.
///
/// # Errors
/// What the system says.
pub fn behind(folder: &Path, queue: u16, file: &Growing, need: &Need, book: &mut Book) -> io::Result<Next> {
    let expected = end_of(file);
    let after = |e: &Entry| (e.start, e.copy) > (file.entry.start, file.entry.copy);
    for entry in from(folder, queue, file.entry.start)?.into_iter().filter(after) {
        let Some(next) = Growing::open(&entry, need, book)? else { continue };
        // Positions begin anew with each recording.
        return Ok(match next.first_pos() {
            pos if pos == expected || (file.is_raw() && pos > file.first_pos()) => Next::Follows(Box::new(next)),
            pos if pos > expected => Next::Later(Box::new(next)),
            _ => Next::None,
        });
    }
    Ok(Next::None)
}

/// Where the segment behind a complete file begins.
pub fn end_of(file: &Growing) -> u64 {
    file.first_pos().saturating_add(file.vouched()).next_multiple_of(BLOCK)
}

/// The file of a recording that has a position of the stream, if the recording has one that begins at `start`.
///
/// # Errors
/// What the system says.
pub fn covering(
    folder: &Path,
    queue: u16,
    start: base::Timestamp,
    pos: u64,
    need: &Need,
    book: &mut Book,
) -> io::Result<Option<Growing>> {
    let mut best: Option<Growing> = None;
    for entry in from(folder, queue, start)? {
        let Some(file) = Growing::open(&entry, need, book)? else { continue };
        let least = best.as_ref().map_or(0, Growing::first_pos);
        if file.first_pos() > pos || file.first_pos() < least {
            break;
        }
        best = Some(file);
    }
    Ok(best)
}
