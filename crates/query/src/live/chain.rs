//! Determines the order of the files of a queue, while a recorder seals and renames them.
//!
//! A recorder begins each file at the first block of the stream after the previous file, and the index of each file
//! contains its stream position. So the next file of a recording is recognised by its position and its name. A
//! directory listing during a rename may contain neither the old nor the new name of the file; then the query lists the
//! directory again.

use super::growing::{Growing, is_hidden};
use crate::QueryContext;
use filter::KeyCondition;
use ring::BLOCK;
use std::io;
use std::path::Path;
use std::time::Duration;
use store::catalogue::{Entry, Hours, Listing};
use store::names;
use store::out_of_order::{OutOfOrderMarkers, Span};

const HOUR: Duration = Duration::from_secs(3600);

/// The files of a queue from this file on (this file included). They are determined from names only.
///
/// # Errors
/// If a directory cannot be listed.
pub fn from(directory: &Path, queue: u16, first: base::Timestamp) -> io::Result<Vec<Entry>> {
    let mut out = Vec::new();
    let mut hours = Hours::forward(directory, first, base::Timestamp::MAX);
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

/// The latest file of a queue by name, among the files that are growing or have no out-of-order marker. The name of a
/// file with a marker does not show its position in the sequence.
///
/// # Errors
/// If a directory cannot be listed.
pub fn latest(directory: &Path, queue: u16) -> io::Result<Option<Entry>> {
    let noted = OutOfOrderMarkers::read(directory)?;
    let is_astray = |e: &Entry| noted.get((e.start, e.queue, e.copy)).is_some_and(|span| span != Span::UNKNOWN);
    let mut hours = Hours::back(directory, base::Timestamp::MAX);
    while let Some(hour) = hours.next()? {
        let listing = match hour.list() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let all = listing.sealed.into_iter().chain(listing.unfinished);
        let all = all.filter(|e| e.queue == queue && !is_astray(e));
        if let Some(entry) = all.max_by_key(|e| (e.start, e.copy)) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Unfinished files of all queues: those in the two newest hours that contain files without out-of-order markers, and
/// all growing files with an out-of-order marker.
///
/// # Errors
/// If a directory cannot be listed.
pub fn unfinished(directory: &Path) -> io::Result<Vec<Entry>> {
    let noted = OutOfOrderMarkers::read(directory)?;
    let is_noted = |e: &Entry| noted.get((e.start, e.queue, e.copy)).is_some();
    let mut out = Vec::new();
    let mut hours = Hours::back(directory, base::Timestamp::MAX);
    let mut left = 2;
    while left > 0 {
        let Some(hour) = hours.next()? else { break };
        let listing = match hour.list() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Listing::default(),
            other => other?,
        };
        let mut all = listing.sealed.iter().chain(&listing.unfinished).peekable();
        left -= usize::from(all.peek().is_none() || !all.all(is_noted));
        out.extend(listing.unfinished.into_iter().filter(|e| !is_noted(e)));
    }
    let written = noted.iter().filter(|(_, span, _)| *span == Span::UNKNOWN);
    let found =
        written.filter_map(|((start, ..), _, stem)| Entry::find(&names::hour_directory(directory, start), stem));
    out.extend(found.filter(|e| is_hidden(&e.path)));
    Ok(out)
}

/// The file after a file.
pub enum Next {
    /// The next file, which follows directly in the stream.
    Follows(Box<Growing>),
    /// A later file of the recording. The files between it and the current file were removed, or are being renamed at
    /// this moment.
    Later(Box<Growing>),
    /// No later file yet.
    None,
}

/// The file after a complete file of the same recording.
///
/// # Errors
/// If a directory cannot be listed, or a file or its index cannot be read.
pub fn behind(
    directory: &Path,
    queue: u16,
    file: &Growing,
    need: &KeyCondition,
    context: &mut QueryContext,
) -> io::Result<Next> {
    let expected = end_of(file);
    let after = |e: &Entry| (e.start, e.copy) > (file.entry.start, file.entry.copy);
    for entry in from(directory, queue, file.entry.start)?.into_iter().filter(after) {
        let Some(next) = Growing::open(&entry, need, context)? else { continue };
        // A lower position means a new recording, because each recording starts at position 0.
        return Ok(match next.first_pos() {
            pos if pos == expected || (file.is_raw() && pos > file.first_pos()) => Next::Follows(Box::new(next)),
            pos if pos > expected => Next::Later(Box::new(next)),
            _ => back(directory, queue, file, need, context)?,
        });
    }
    back(directory, queue, file, need, context)
}

/// Like [`behind`], but after the clock was set back, so that the next file has an earlier time in its name than the
/// previous file. The running recorder must hold the found file or a file after it, because other recordings may have
/// files at the same positions.
fn back(
    directory: &Path,
    queue: u16,
    file: &Growing,
    need: &KeyCondition,
    context: &mut QueryContext,
) -> io::Result<Next> {
    let expected = end_of(file);
    let mut held = None;
    for entry in unfinished(directory)?.into_iter().filter(|e| e.queue == queue && e.start < file.entry.start) {
        held =
            Growing::open(&entry, need, context)?.filter(|f| !f.is_raw() && f.is_held() && f.first_pos() >= expected);
        if held.is_some() {
            break;
        }
    }
    let Some(held) = held else { return Ok(Next::None) };
    let mut first = held.first_pos();
    if first == expected {
        return Ok(Next::Follows(Box::new(held)));
    }
    let hour = held.entry.start.floor_to(HOUR).before(HOUR);
    let before = from(directory, queue, hour)?.into_iter().rev().skip_while(|e| e.start >= held.entry.start);
    for entry in before {
        let Some(one) = Growing::open(&entry, need, context)?.filter(|one| end_of(one) == first) else { break };
        first = one.first_pos();
        if first == expected {
            return Ok(Next::Follows(Box::new(one)));
        }
    }
    Ok(Next::Later(Box::new(held)))
}

/// The stream position at which the segment after a complete file begins.
pub fn end_of(file: &Growing) -> u64 {
    file.first_pos().saturating_add(file.covered_bytes()).next_multiple_of(BLOCK)
}

/// The file of a recording that contains a stream position, if the recording has a file that begins at `start`.
///
/// # Errors
/// If a directory cannot be listed, or a file or its index cannot be read.
pub fn covering(
    directory: &Path,
    queue: u16,
    start: base::Timestamp,
    pos: u64,
    need: &KeyCondition,
    context: &mut QueryContext,
) -> io::Result<Option<Growing>> {
    let mut best: Option<Growing> = None;
    for entry in from(directory, queue, start)? {
        let Some(file) = Growing::open(&entry, need, context)? else { continue };
        let least = best.as_ref().map_or(0, Growing::first_pos);
        if file.first_pos() > pos || file.first_pos() < least {
            break;
        }
        best = Some(file);
    }
    Ok(best)
}
