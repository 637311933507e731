//! The results of queries of flow records and series rows. They merge the rows of sealed files and growing journals of
//! several interfaces in order of time.
//!
//! A file is opened when the result reaches the timestamp in the file name, and closed after its last row. So memory
//! holds the journals, and a few hundred rows of each sealed file whose time range contains the timestamp of the
//! current row of the result. Reader locks on the hour directories of the day of the current row prevent retention from
//! removing the files in them. The journals are read first, and a sealed file that was made from one of them is
//! skipped, so that no row is returned twice while a journal is being sealed.

use crate::error::ColumnsError;
use crate::file::{Sealed, TableRows};
use crate::file_layout::{self, DataFileKind, FAR, SealedFile};
use crate::journal::{ANOTHER_VERSION, LoadedJournal, MAX_BYTES, NO_COLUMNS, SortedRows, TOO_SHORT};
use crate::query::Query;
use crate::table_row::Order;
use crate::tables::Schema;
use base::Timestamp;
use flow::Record;
use series::Row;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::catalogue::{Hour, Hours};
use store::{Hold, names};

/// Flow records in order of their begin.
///
/// # Errors
/// If the store cannot be read, or has no such interface.
pub fn flows(query: &Query) -> Result<Results<Record>, ColumnsError> {
    Results::begin(query, DataFileKind::Flows)
}

/// One-second rows in the order of time, interface and direction.
///
/// # Errors
/// If the store cannot be read, or has no such interface.
pub fn series(query: &Query) -> Result<Results<Row>, ColumnsError> {
    Results::begin(query, DataFileKind::Series)
}

/// Warnings of a query result and of its file scans.
pub(crate) type Warnings = Arc<Mutex<Vec<String>>>;

pub(crate) fn add_warning(warnings: &Warnings, text: impl ToString) {
    warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text.to_string());
}

/// The sealed files of one interface that may overlap the interval, in order.
pub(crate) struct FileScan {
    kind: DataFileKind,
    /// The begin of the interval.
    from: Timestamp,
    hours: Hours,
    ahead: Option<Hour>,
    day: VecDeque<SealedFile>,
    holds: Vec<Hold>,
    /// Ids of the files whose rows are also in the file that compaction made for the day. These files are skipped, so
    /// that no row is returned twice.
    replaced: BTreeSet<u64>,
    warnings: Warnings,
}

impl FileScan {
    pub fn new(root: &Path, kind: DataFileKind, query: &Query, warnings: &Warnings) -> Self {
        Self {
            kind,
            from: query.from,
            hours: Hours::forward(root, query.from.before(FAR), query.to),
            ahead: None,
            day: VecDeque::new(),
            holds: Vec::new(),
            replaced: BTreeSet::new(),
            warnings: Arc::clone(warnings),
        }
    }

    /// The timestamp in the name of the next file.
    pub fn peek(&mut self) -> Option<Timestamp> {
        while self.day.is_empty() && self.enter_day() {}
        self.day.front().map(|file| file.start)
    }

    /// Opens the next file. Returns `None` if the rows of the file are in another file, or if the file is damaged;
    /// damage is reported as a warning.
    pub fn open(&mut self) -> Option<Sealed> {
        let file = self.day.pop_front()?;
        match Sealed::open(&file.path, self.kind) {
            Ok(sealed) if sealed.origin.id.is_some_and(|id| self.replaced.contains(&id)) => None,
            Ok(sealed) => Some(sealed),
            Err(error) => {
                add_warning(&self.warnings, error);
                None
            }
        }
    }

    /// Locks and lists the hour directories of the next day that has hour directories.
    fn enter_day(&mut self) -> bool {
        const DAY: Duration = Duration::from_secs(86_400);
        let mut hours: Vec<Hour> = self.ahead.take().into_iter().collect();
        loop {
            match self.hours.next() {
                Ok(Some(hour)) => match hours.first() {
                    Some(first) if first.start.floor_to(DAY) != hour.start.floor_to(DAY) => {
                        self.ahead = Some(hour);
                        break;
                    }
                    _ => hours.push(hour),
                },
                Ok(None) => break,
                Err(error) => {
                    add_warning(&self.warnings, format!("a directory of the store cannot be listed: {error}"));
                    break;
                }
            }
        }
        if hours.is_empty() {
            return false;
        }
        // All hour directories of the day are locked before the first of them is listed. Otherwise compaction could
        // remove a file between the listings of two directories.
        self.holds = hours.iter().filter_map(|hour| Hold::reader(&hour.directory).ok()).collect();
        // One warning suffices, because the hour directories of a day most likely cannot be locked for the same reason.
        if let Some(why) = self.holds.iter().find_map(Hold::obstacle) {
            add_warning(&self.warnings, why);
        }
        for hour in &hours {
            match file_layout::in_hour(hour, self.kind) {
                Ok(files) => {
                    let from = self.from;
                    self.day.extend(files.into_iter().filter(|file| file.start.after(file.reach) >= from));
                }
                Err(error) => add_warning(&self.warnings, format!("{}: {error}", hour.directory.display())),
            }
        }
        self.day.make_contiguous().sort();
        self.replaced.clear();
        if self.kind == DataFileKind::Series && self.day.len() > 1 {
            let open = |file: &SealedFile| Sealed::open(&file.path, self.kind).ok();
            self.replaced = self.day.iter().filter_map(open).flat_map(|sealed| sealed.origin.replaces).collect();
        }
        true
    }
}

/// Reads the journals of an interface that may overlap the interval.
pub(crate) fn journals<T: Schema>(
    root: &Path,
    kind: DataFileKind,
    query: &Query,
    warnings: &Warnings,
) -> Vec<LoadedJournal<T>> {
    let (from, to) = (query.from.before(FAR), query.to.after(FAR));
    let listed = match file_layout::journals(root, kind) {
        Ok(listed) => listed,
        Err(error) => {
            add_warning(warnings, format!("{}: {error}", root.display()));
            return Vec::new();
        }
    };
    let mut loaded = Vec::new();
    for (_, path) in listed.into_iter().filter(|(start, _)| (from..=to).contains(start)) {
        match load(&path, kind) {
            Ok(journal) => {
                if let Some(damage) = journal.damage {
                    add_warning(warnings, ColumnsError::Holes { path, damage, sealed: false });
                }
                loaded.push(journal);
            }
            // The journal was sealed meanwhile; the scan of the hour directories finds its sealed file.
            Err(ColumnsError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => add_warning(warnings, error),
        }
    }
    loaded
}

fn load<T: Schema>(path: &Path, kind: DataFileKind) -> Result<LoadedJournal<T>, ColumnsError> {
    let mut bytes = Vec::new();
    let file = sys::nofollow::open(path).map_err(ColumnsError::io(path))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(ColumnsError::io(path))?;
    LoadedJournal::of(bytes, kind).map_err(|what| ColumnsError::damaged(path, what))
}

/// Describes the damage of a journal, of a running or of a crashed writer, with the offset if known. Incompletely
/// written bytes at the end are no damage. A journal of another version, or one that was removed meanwhile, is not
/// reported.
///
/// # Errors
/// If the file cannot be read.
pub fn judge_journal(path: &Path) -> io::Result<Option<(Option<u64>, String)>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is = |kind: DataFileKind| name.ends_with(&format!(".{}.{}", kind.name(), names::PARTIAL));
    let damage = match is(DataFileKind::Flows) {
        true => load::<Record>(path, DataFileKind::Flows).map(|journal| journal.damage),
        false => load::<Row>(path, DataFileKind::Series).map(|journal| journal.damage),
    };
    match damage {
        Ok(damage) => Ok(damage.map(|damage| (Some(damage.at), damage.to_string()))),
        Err(ColumnsError::Damaged { what, .. }) if what == ANOTHER_VERSION || what == TOO_SHORT => Ok(None),
        Err(ColumnsError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(ColumnsError::Io { error, .. }) => Err(error),
        Err(ColumnsError::Damaged { what, .. }) => Ok(Some((None, what))),
        Err(other) => Ok(Some((None, other.to_string()))),
    }
}

/// The origin of a stream of rows: a journal or a sealed file.
enum Feed<T: Schema> {
    Journal(Box<SortedRows<T>>),
    File(Box<TableRows<T>>),
}

struct Stream<T: Schema> {
    feed: Feed<T>,
    /// Rows that were read from the journal or file and not yet returned.
    ready: std::vec::IntoIter<T>,
}

/// The rows that a query selects; see the module.
pub struct Results<T: Schema> {
    query: Query,
    scans: Vec<FileScan>,
    streams: Vec<Option<Stream<T>>>,
    /// The sort key of the next row of each stream, the earliest on top.
    heads: BinaryHeap<Reverse<(Order, usize)>>,
    /// The next row of each stream, indexed by stream; `heads` has the sort keys.
    table_rows: Vec<Option<T>>,
    taken: BTreeSet<u64>,
    warnings: Warnings,
}

impl<T: Schema> Results<T> {
    pub(crate) fn begin(query: &Query, kind: DataFileKind) -> Result<Self, ColumnsError> {
        let warnings = Warnings::default();
        let mut results = Self {
            query: query.clone(),
            scans: Vec::new(),
            streams: Vec::new(),
            heads: BinaryHeap::new(),
            table_rows: Vec::new(),
            taken: BTreeSet::new(),
            warnings: Arc::clone(&warnings),
        };
        for root in query.roots()? {
            let journals = if query.live { journals::<T>(&root, kind, query, &warnings) } else { Vec::new() };
            for journal in journals {
                results.taken.insert(journal.id);
                match SortedRows::new(&journal) {
                    Some(sorted) => results.join(Feed::Journal(Box::new(sorted))),
                    None => add_warning(&warnings, NO_COLUMNS),
                }
            }
            results.scans.push(FileScan::new(&root, kind, query, &warnings));
        }
        Ok(results)
    }

    /// Warnings about the result so far: damaged files that were skipped.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn join(&mut self, feed: Feed<T>) {
        let stream = Some(Stream { feed, ready: Vec::new().into_iter() });
        let place = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
        if place == self.streams.len() {
            self.streams.push(None);
            self.table_rows.push(None);
        }
        self.streams[place] = stream;
        self.advance(place);
    }

    /// Advances a stream and inserts its next row into the heap; a stream without further rows is closed.
    fn advance(&mut self, place: usize) {
        let Some(stream) = &mut self.streams[place] else { return };
        loop {
            let Some(row) = stream.next(&self.warnings) else {
                self.streams[place] = None;
                return;
            };
            if self.query.overlaps(row.span()) && self.query.id.is_none_or(|id| row.order().1 == id) {
                self.heads.push(Reverse((row.order(), place)));
                self.table_rows[place] = Some(row);
                return;
            }
        }
    }

    /// Opens every file that may begin before the next row.
    fn open_files(&mut self) {
        loop {
            let next = |(i, scan): (usize, &mut FileScan)| Some((scan.peek()?, i));
            let Some((start, scan)) = self.scans.iter_mut().enumerate().filter_map(next).min() else { return };
            if let Some(Reverse((order, _))) = self.heads.peek()
                && T::moment(order) < start
            {
                return;
            }
            let Some(sealed) = self.scans[scan].open() else { continue };
            if sealed.origin.id.is_some_and(|id| self.taken.contains(&id)) {
                continue;
            }
            let groups = sealed.groups(&self.query, |error| add_warning(&self.warnings, error));
            if !groups.is_empty() {
                let table_rows = TableRows::new(sealed, groups).of_fields(self.query.fields.clone());
                self.join(Feed::File(Box::new(table_rows)));
            }
        }
    }
}

impl<T: Schema> Stream<T> {
    fn next(&mut self, warnings: &Warnings) -> Option<T> {
        if let Some(row) = self.ready.next() {
            return Some(row);
        }
        let ready = match &mut self.feed {
            Feed::Journal(sorted) => sorted.next().unwrap_or_else(|error| {
                add_warning(warnings, error);
                Vec::new()
            }),
            Feed::File(table_rows) => loop {
                let ready = table_rows.next();
                table_rows.hints().into_iter().for_each(|hint| add_warning(warnings, hint));
                match ready {
                    Ok(ready) => break ready,
                    // Reading continues after the error, because later row groups may be undamaged.
                    Err(error) => add_warning(warnings, error),
                }
            },
        };
        self.ready = ready.into_iter();
        self.ready.next()
    }
}

impl<T: Schema> Iterator for Results<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.open_files();
        let Reverse((_, place)) = self.heads.pop()?;
        let row = self.table_rows[place].take();
        self.advance(place);
        row
    }
}
