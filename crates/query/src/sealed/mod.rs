//! A store: which of its files are sealed, which are being written, and a supply of cursors over the sealed ones.

mod file;
mod plain;
mod plan;
mod supply;
mod told;

use crate::merge::Merge;
use crate::{Book, QueryError, live};
use base::Timestamp;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::catalogue::{self, Entry, Hours};
use store::{Claim, Hold, names};
use supply::{Files, Snapshot};

/// Hours with files in which the file that a queue is being written to is looked for: a quiet queue may have begun it long
/// ago.
const HOURS_BACK: usize = 24;

/// The same where nobody has claimed the interface; then somebody records without a lock, or nobody at all.
const HOURS_UNCLAIMED: usize = 2;

const HOUR: Duration = Duration::from_secs(3600);

/// Looks at what is being written, until two in a row agree; a recorder that begins files faster than this is not waited
/// for any longer.
const TRIES: usize = 20;

/// Puts everything that a store has into the merge.
///
/// # Errors
/// When the store cannot be listed, or has no such interface.
pub fn begin(store: &Path, merge: &mut Merge, book: &mut Book) -> Result<(), QueryError> {
    let known = catalogue::interfaces(store).map_err(|error| QueryError::Io { path: store.to_owned(), error })?;
    for name in &book.question.interfaces {
        if !known.iter().any(|folder| is_of(store, folder, name)) {
            return Err(QueryError::NoInterface { store: store.to_owned(), name: name.clone(), known });
        }
    }
    for (rank, name) in (0..).zip(&known) {
        let asked = &book.question.interfaces;
        if !asked.is_empty() && !asked.iter().any(|a| is_of(store, name, a)) {
            continue;
        }
        let folder = store.join(name);
        let io = |error| QueryError::Io { path: folder.clone(), error };
        let (open, snapshot) = look(&folder).map_err(io)?;
        for (rank, cursor) in live::cursors(&folder, rank, open, book)? {
            merge.add(rank, cursor);
        }
        merge.supply(Box::new(Files::new(&folder, name, rank, snapshot, book)));
    }
    Ok(())
}

fn is_of(store: &Path, folder: &str, interface: &str) -> bool {
    names::interface_folder(store, interface) == store.join(folder)
}

/// The file that each queue is being written to, and what was sealed at that same moment: had anything been sealed
/// between the two, it would be read twice or not at all, so the look is repeated until nothing has.
fn look(folder: &Path) -> io::Result<(Vec<Entry>, Snapshot)> {
    let mut open = being_written(folder)?;
    let mut taken = Snapshot::default();
    for _ in 0..TRIES {
        let Some(newest) = newest(folder, &open)? else { break };
        taken = snapshot(folder, newest, &open)?;
        let again = being_written(folder)?;
        if again == open {
            break;
        }
        open = again;
    }
    taken.taken.clone_from(&open);
    Ok((open, taken))
}

/// From when on an answer must not look again, because a recorder changes what is there: its newest file's first moment,
/// or, before it has one, the newest hour that there is. `None` if nobody records.
fn newest(folder: &Path, open: &[Entry]) -> io::Result<Option<Timestamp>> {
    let newest = open.iter().map(|entry| entry.start).max();
    if newest.is_some() || Claim::holder(folder).is_none() {
        return Ok(newest);
    }
    let hour = Hours::back(folder, Timestamp::MAX).next()?;
    Ok(Some(hour.map_or(Timestamp::ZERO, |hour| hour.start)))
}

fn snapshot(folder: &Path, newest: Timestamp, open: &[Entry]) -> io::Result<Snapshot> {
    let mut hours = Hours::forward(folder, newest, Timestamp::MAX);
    let from = Some(newest.floor_to(HOUR));
    let mut snapshot = Snapshot { from, hours: BTreeMap::new(), taken: open.to_vec() };
    while let Some(hour) = hours.next()? {
        let held = Hold::reader(&hour.folder).and_then(|hold| Ok((hour.list()?, Arc::new(hold))));
        match held {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => drop(snapshot.hours.insert(hour.start, other?)),
        }
    }
    Ok(snapshot)
}

/// The files that living recorders hold: for each queue the one that is being written, and before it those that are being
/// sealed, whose indexes may not vouch for all of them yet.
fn being_written(folder: &Path) -> io::Result<Vec<Entry>> {
    // What was made ahead of need lies in the interface's folder and tells how many queues to look for.
    let mut queues: Vec<u16> = std::fs::read_dir(folder)?
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_prefix(names::PREPARED)?.strip_prefix('q')?.split('-').next()?.parse().ok())
        .collect();
    queues.sort_unstable();
    queues.dedup();
    let mut found: Vec<Entry> = Vec::new();
    let mut hours = Hours::back(folder, Timestamp::MAX);
    let most = if Claim::holder(folder).is_some() { HOURS_BACK } else { HOURS_UNCLAIMED };
    let mut listed = 0;
    while listed < most
        && let Some(hour) = hours.next()?
    {
        listed += 1;
        let listing = match hour.list() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        found.extend(listing.unfinished.into_iter().filter(is_held));
        let all = queues.iter().all(|queue| found.iter().any(|entry| entry.queue == *queue));
        if all && (listed > 1 || !found.is_empty()) {
            break;
        }
    }
    found.sort();
    Ok(found)
}

/// Whether its recorder lives.
fn is_held(entry: &Entry) -> bool {
    matches!(File::open(&entry.path).map(|file| file.try_lock_shared()), Ok(Err(TryLockError::WouldBlock)))
}
