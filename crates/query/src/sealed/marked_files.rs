//! The files of an interface with out-of-order markers, in the order of their earliest packets
//! ([`store::out_of_order`]). The source skips files whose marker is outside of the interval.

use super::index_prefetch::IndexPrefetcher;
use super::named_files::{Snapshot, is};
use super::plan::{self, FileOrder};
use crate::cursor::{CursorSource, Ranked};
use crate::{QueryContext, QueryError};
use base::Timestamp;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::catalogue::Entry;
use store::{Hold, names};

/// Number of files that are found in advance, so that the prefetcher can read their indexes.
const AHEAD: usize = 64;

/// A source of cursors over files with out-of-order markers.
pub struct MarkedFiles {
    directory: PathBuf,
    interface: String,
    rank: u32,
    /// The markers whose files were not searched yet, in descending order of their earliest packets, so that `pop`
    /// returns the earliest.
    markers: Vec<MarkedFile>,
    due: VecDeque<Due>,
    prefetcher: IndexPrefetcher,
    /// The hour directory in which the previous file was found, with the lock ([`Hold`]) that protects its files.
    hold: Option<(PathBuf, Arc<Hold>)>,
}

struct MarkedFile {
    first: Timestamp,
    start: Timestamp,
    stem: String,
    order: FileOrder,
}

struct Due {
    first: Timestamp,
    entry: Entry,
    order: FileOrder,
    hold: Arc<Hold>,
}

impl MarkedFiles {
    /// A source of the files with markers that overlap the interval and that no other cursor reads; `None` if there are
    /// none.
    pub fn new(
        directory: &Path,
        interface: &str,
        rank: u32,
        snapshot: &Snapshot,
        context: &QueryContext,
    ) -> Option<Self> {
        let (from, to) = (context.query.from, context.query.to);
        let mut markers = Vec::new();
        for ((start, queue, copy), span, stem) in snapshot.marked.iter().filter(|(_, span, _)| span.overlaps(from, to))
        {
            let this = Entry { start, queue, copy, path: PathBuf::new(), index: None };
            if !snapshot.taken.iter().any(|taken| is(taken, &this)) {
                let order = if span.is_out_of_order { FileOrder::OutOfOrder } else { FileOrder::InOrder };
                markers.push(MarkedFile { first: span.first, start, stem: stem.to_owned(), order });
            }
        }
        markers.sort_by(|a, b| (b.first, b.start, &b.stem).cmp(&(a.first, a.start, &a.stem)));
        (!markers.is_empty()).then(|| Self {
            directory: directory.to_owned(),
            interface: interface.to_owned(),
            rank,
            markers,
            due: VecDeque::new(),
            prefetcher: IndexPrefetcher::new(&context.query),
            hold: None,
        })
    }

    /// Finds the files of the next markers. A marker whose file was removed is ignored.
    fn fill(&mut self) -> Result<(), QueryError> {
        while self.due.len() < AHEAD
            && let Some(MarkedFile { first, start, stem, order }) = self.markers.pop()
        {
            let hour = names::hour_directory(&self.directory, start);
            let Some(hold) = self.hold(&hour).map_err(|error| QueryError::Io { path: hour.clone(), error })? else {
                continue;
            };
            if let Some(entry) = Entry::find(&hour, &stem) {
                self.due.push_back(Due { first, entry, order, hold });
            }
        }
        Ok(())
    }

    fn hold(&mut self, hour: &Path) -> io::Result<Option<Arc<Hold>>> {
        if let Some((path, hold)) = &self.hold
            && path == hour
        {
            return Ok(Some(Arc::clone(hold)));
        }
        match Hold::reader(hour) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            hold => {
                let hold = Arc::new(hold?);
                self.hold = Some((hour.to_owned(), Arc::clone(&hold)));
                Ok(Some(hold))
            }
        }
    }
}

impl CursorSource for MarkedFiles {
    fn begins(&mut self, _context: &mut QueryContext) -> Result<Option<Timestamp>, QueryError> {
        self.fill()?;
        Ok(self.due.front().map(|due| due.first))
    }

    fn is_ready(&mut self) -> bool {
        self.due.front().is_some_and(|due| self.prefetcher.has(&due.entry))
    }

    fn open(&mut self, context: &mut QueryContext) -> Result<Option<Ranked>, QueryError> {
        self.fill()?;
        let Some(Due { entry, order, hold, .. }) = self.due.pop_front() else { return Ok(None) };
        let probed = self.prefetcher.probe(&entry, order, self.due.iter().map(|due| (&due.entry, due.order)));
        let cursor = plan::open(&entry, probed, &self.interface, &hold, context)?;
        Ok(cursor.map(|cursor| ((self.rank, entry.queue), cursor)))
    }
}
