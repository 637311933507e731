//! Queries on a store: lists its sealed files and its growing files, and supplies cursors over the sealed files.

mod file;
pub(crate) mod index_ledger;
mod index_prefetch;
mod indexed;
mod marked_files;
mod named_files;
mod out_of_order_file;
mod plan;
mod read_plan;
mod unindexed;

use crate::merge::Merge;
use crate::{QueryContext, QueryError, live};
use base::Timestamp;
use indexed::is_hidden;
use marked_files::MarkedFiles;
use named_files::{NamedFiles, Snapshot, is};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::catalogue::{self, Entry, Hour, Hours, Listing, Names};
use store::out_of_order::{OutOfOrderMarkers, Span};
use store::{Claim, Hold, names};

/// The number of newest non-empty hour directories in which the growing files of an interface are searched; it is more
/// than one because a queue with little traffic may have begun its file long ago.
const HOURS_BACK: usize = 24;

/// The number of hour directories that are searched for growing files if no recorder has the claim of the interface,
/// because no recorder is running, or the file system has no locks.
const HOURS_UNCLAIMED: usize = 2;

const HOUR: Duration = Duration::from_secs(3600);

/// The newest hours are listed again until two successive listings are equal, but at most this often. If a recorder
/// begins files so fast that no two listings are equal, the query uses the last listing.
const TRIES: usize = 20;

/// Adds all cursors of a store to the merge.
///
/// # Errors
/// If the store cannot be listed, or does not have one of the interfaces that the query names.
pub fn begin(store: &Path, merge: &mut Merge, context: &mut QueryContext) -> Result<(), QueryError> {
    let known = catalogue::interfaces(store).map_err(|error| QueryError::Io { path: store.to_owned(), error })?;
    for name in &context.query.interfaces {
        if !known.iter().any(|directory| is_of(store, directory, name)) {
            return Err(QueryError::NoInterface { store: store.to_owned(), name: name.clone(), known });
        }
    }
    for (rank, name) in (0..).zip(&known) {
        let asked = &context.query.interfaces;
        if !asked.is_empty() && !asked.iter().any(|a| is_of(store, name, a)) {
            continue;
        }
        let directory = store.join(name);
        let io = |error| QueryError::Io { path: directory.clone(), error };
        let (open, mut snapshot) = list(&directory).map_err(io)?;
        let (cursors, taken) = live::cursors(&directory, rank, open, |entry| snapshot.has(entry), context)?;
        snapshot.taken.extend(taken);
        for (rank, cursor) in cursors {
            merge.add(rank, cursor);
        }
        if let Some(markers) = MarkedFiles::new(&directory, name, rank, &snapshot, context) {
            merge.add_source(Box::new(markers));
        }
        merge.add_source(Box::new(NamedFiles::new(&directory, name, rank, snapshot, context)));
    }
    Ok(())
}

fn is_of(store: &Path, directory: &str, interface: &str) -> bool {
    names::interface_directory(store, interface) == store.join(directory)
}

/// Returns the growing files, and a snapshot of the sealed files from the same moment. The listing is repeated until it
/// does not change, because a file that is sealed between two listings could be read twice or not at all.
fn list(directory: &Path) -> io::Result<(Vec<Entry>, Snapshot)> {
    let mut top = Top::default();
    let mut markers = OutOfOrderMarkers::read(directory)?;
    for _ in 0..=TRIES {
        let settled = top.relist(directory, &markers)?;
        // The markers are read after the listing, because a file that was sealed before the listing already has its
        // out-of-order marker.
        let before = std::mem::replace(&mut markers, OutOfOrderMarkers::read(directory)?);
        if settled && before == markers {
            break;
        }
    }
    let (open, mut snapshot) = top.finish();
    snapshot.marked = Arc::new(markers);
    Ok((open, snapshot))
}

/// The newest hour directories of an interface, back to the hour in which the growing file of any queue can be.
// PERF: before the first packet of an hour with 3600 files, the query made seven listings of the hour; now it makes
// three, and parses only two of them.
#[derive(Default)]
struct Top {
    hours: Vec<HourSnapshot>,
    /// Hour directories that contain only files with out-of-order markers, with the file names in each directory.
    only_marked: BTreeMap<Timestamp, Names>,
    /// The start of the newest hour with a file that has no out-of-order marker.
    newest: Option<Timestamp>,
    /// The files that running recorders have locked: for each queue the growing file, and before it the files that are
    /// being sealed, whose indexes may not yet cover all blocks. Recorders write blocks in order, so every file after a
    /// locked file in the stream of the same queue is locked too.
    open: Vec<Entry>,
    /// Growing files outside of the newest hour directories, found by their out-of-order markers.
    marked_open: Vec<Entry>,
}

/// An hour directory, with the names in it.
struct HourSnapshot {
    hour: Hour,
    names: Names,
    listing: Listing,
    hold: Arc<Hold>,
}

impl Top {
    /// Lists the hours again; returns true if the listing equals the previous one. A listing during a rename may
    /// contain the renamed file twice or not at all (readdir(3)), so only two equal successive listings are reliable.
    fn relist(&mut self, directory: &Path, markers: &OutOfOrderMarkers) -> io::Result<bool> {
        let before = std::mem::take(self);
        let mut known: BTreeMap<Timestamp, HourSnapshot> =
            before.hours.into_iter().map(|seen| (seen.hour.start, seen)).collect();
        let (mut only_marked, mut settled) = (before.only_marked, true);
        // The recorder creates the next packet file of each queue in advance, in the interface directory. The names of
        // these files show which queues exist.
        let mut queues: BTreeSet<u16> = sys::nofollow::list(directory)?
            .into_iter()
            .filter_map(|(name, _)| name.into_string().ok())
            .filter_map(|name| name.strip_prefix(names::PREPARED)?.strip_prefix('q')?.split('-').next()?.parse().ok())
            .collect();
        let mut let_go: BTreeSet<u16> = BTreeSet::new();
        let mut hours = Hours::back(directory, Timestamp::MAX);
        let most = if Claim::holder(directory).is_some() { HOURS_BACK } else { HOURS_UNCLAIMED };
        let mut listed = 0;
        let is_marked = |entry: &Entry| markers.get((entry.start, entry.queue, entry.copy)).is_some();
        while listed < most
            && let Some(hour) = hours.next()?
        {
            let (hold, names) = match Hold::reader(&hour.directory).and_then(|hold| Ok((hold, hour.names()?))) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            let seen = match known.remove(&hour.start) {
                Some(seen) if seen.names == names => seen,
                _ => {
                    let listing = hour.read(&names);
                    settled &= only_marked.remove(&hour.start).as_ref() == Some(&names);
                    HourSnapshot { hour, names, listing, hold: Arc::new(hold) }
                }
            };
            let_go.extend(seen.listing.sealed.iter().filter(|entry| !is_marked(entry)).map(|entry| entry.queue));
            for entry in &seen.listing.unfinished {
                queues.insert(entry.queue);
                match is_held(entry) {
                    true => self.open.push(entry.clone()),
                    false if is_marked(entry) => {}
                    false => drop(let_go.insert(entry.queue)),
                }
            }
            let mut all = seen.listing.sealed.iter().chain(&seen.listing.unfinished).peekable();
            // After a time in which the clock was far ahead, some hour directories contain only files with out-of-order
            // markers. These directories do not help to find the growing files, and queries find the files in them by
            // the markers.
            if all.peek().is_some() && all.all(is_marked) {
                drop(all);
                self.only_marked.insert(seen.hour.start, seen.names);
                continue;
            }
            drop(all);
            listed += 1;
            self.newest.get_or_insert(seen.hour.start);
            self.hours.push(seen);
            if !let_go.is_empty() && queues.is_subset(&let_go) {
                break;
            }
        }
        self.open.sort();
        // After the clock was set back, the growing file may be in an older hour directory than the newest one.
        let unfinished = markers.iter().filter(|(_, span, _)| *span == Span::UNKNOWN);
        let found = unfinished
            .filter_map(|((start, ..), _, stem)| Entry::find(&names::hour_directory(directory, start), stem))
            .filter(|entry| !self.open.iter().any(|open| is(open, entry)) && is_hidden(entry) && is_held(entry));
        self.marked_open = found.collect();
        let same = self.open == before.open && self.marked_open == before.marked_open && self.newest == before.newest;
        Ok(settled && known.is_empty() && only_marked.is_empty() && same)
    }

    /// The growing files, and the snapshot of the hours that the query must not list again, because a recorder that is
    /// running or starts now changes them. These are the hours from the begin of the newest growing file on; without a
    /// growing file, from the newest hour on.
    fn finish(self) -> (Vec<Entry>, Snapshot) {
        let newest = self.open.iter().map(|entry| entry.start).max().or(self.newest).unwrap_or(Timestamp::ZERO);
        let from = newest.floor_to(HOUR);
        let kept = self.hours.into_iter().filter(|seen| from <= seen.hour.start);
        let hours = kept.map(|seen| (seen.hour.start, (seen.listing, seen.hold))).collect();
        let mut open = self.open;
        open.extend(self.marked_open);
        let snapshot = Snapshot { from: Some(from), hours, taken: open.clone(), marked: Arc::default() };
        (open, snapshot)
    }
}

/// True if the recorder of the file is running and therefore has locked the file.
fn is_held(entry: &Entry) -> bool {
    matches!(sys::nofollow::open(&entry.path).map(|file| file.try_lock_shared()), Ok(Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use testkit::TempDir;

    #[test]
    fn files_that_recorders_hold_are_found_also_in_earlier_hours() {
        let dir = TempDir::new("being-written");
        let directory = dir.join("eth1");
        let now = Timestamp::from_secs_nanos(1_795_290_000, 0);
        let place = |hours: u64, queue: u16, hidden: bool| {
            let start = now.before(Duration::from_secs(3600 * hours));
            let (hour, stem) = (names::hour_directory(&directory, start), names::stem(start, Some(queue), 0));
            let name = if hidden { names::hidden(&stem, "pcap") } else { format!("{stem}.pcap") };
            std::fs::create_dir_all(&hour).expect("an hour");
            let file = File::create(hour.join(&name)).expect("a file");
            (start, queue, file)
        };
        // In this test, queue 0 rotated at each hour; queue 1 has little traffic and rotated only once. Both queues
        // have a file that is still being sealed.
        let held = [place(0, 0, true), place(1, 0, true), place(2, 1, true), place(5, 1, true)];
        held.iter().for_each(|(.., file)| file.try_lock().expect("a lock"));
        let _others = [place(3, 0, false), place(6, 1, true), place(7, 1, false)];
        let claim = Claim::take(&directory, &store::Claimant::this(now, None, Vec::new())).expect("a claim");
        let (found, _) = list(&directory).expect("a store");
        let mut expected: Vec<(Timestamp, u16)> = held.iter().map(|(start, queue, _)| (*start, *queue)).collect();
        expected.sort();
        assert_eq!(found.iter().map(|e| (e.start, e.queue)).collect::<Vec<_>>(), expected);
        drop(claim);
    }

    #[test]
    fn a_growing_file_is_found_before_many_hours_of_a_wrong_clock() {
        let dir = TempDir::new("being-written-far");
        let directory = dir.join("eth1");
        let now = Timestamp::from_secs_nanos(1_795_290_000, 0);
        let mut device = store::DiskDevice::new(1);
        let mut place = |start: Timestamp, hidden: bool, span: Option<Span>| {
            let (hour, stem) = (names::hour_directory(&directory, start), names::stem(start, None, 0));
            let name = if hidden { names::hidden(&stem, "pcap") } else { format!("{stem}.pcap") };
            std::fs::create_dir_all(&hour).expect("an hour");
            span.map_or(Ok(()), |span| store::out_of_order::write_marker(&mut device, &directory, &stem, Some(span)))
                .expect("a marker");
            File::create(hour.join(&name)).expect("a file")
        };
        // The store gets one more hour directory than the query searches for growing files.
        for hour in 0..=HOURS_BACK as u32 {
            let start = now.after(73 * 365 * 24 * HOUR).after(hour * HOUR);
            place(start, false, Some(Span { first: start, last: start, is_out_of_order: false }));
        }
        place(now.before(HOUR), false, None);
        let held = place(now, true, None);
        held.try_lock().expect("a lock");
        let claim = Claim::take(&directory, &store::Claimant::this(now, None, Vec::new())).expect("a claim");
        let (found, snapshot) = list(&directory).expect("a store");
        assert_eq!(found.iter().map(|e| e.start).collect::<Vec<_>>(), [now]);
        assert_eq!(snapshot.from, Some(now.floor_to(HOUR)));
        drop(claim);
    }
}
