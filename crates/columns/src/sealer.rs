//! The thread that seals the complete journals of a writer.
//!
//! The journals of a replay writer ([`Config::wait_when_full`](crate::Config::wait_when_full)) are sealed in groups.
//! The Parquet files and the journals of a group are synced together, and each directory is synced once. A journal that
//! waits for its group is not synced alone. Its rows are nevertheless on disk within a second, because a group is small
//! ([`BATCH_BYTES`]) and is complete after [`GATHERED`].

use crate::error::ColumnsError;
use crate::file_layout::DataFileKind;
use crate::journal::Journal;
use crate::recover::{DamagedJournal, Draft, FromJournal, draft, finish};
use crate::shared::{Event, Shared};
use crate::volume::Disk;
use base::Timestamp;
use flow::Record;
use series::Row;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use store::names;
use sys::priority::{Background, lower_priority};

/// How long the buffer for reading a journal is kept for the next journal.
const ROOM_KEPT: Duration = Duration::from_secs(1);

/// How long a complete journal of a replay writer waits for further journals, so that they are sealed in one group.
const GATHERED: Duration = Duration::from_millis(250);

/// Greatest size of a group of journals that are sealed together; a longer journal is sealed alone.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;

/// Greatest number of journals in a group: each has two open files.
const BATCH_FILES: usize = 64;

/// A complete journal.
pub(crate) struct CompleteJournal {
    pub kind: DataFileKind,
    /// The first timestamp of the rows of the journal.
    pub first: Timestamp,
    /// The open journal, whose file is locked until it is removed.
    pub journal: Journal,
}

/// The state of the thread that seals journals; see the module.
pub(crate) struct Sealer {
    root: PathBuf,
    disk: Disk,
    wait_when_full: bool,
    /// Number of threads that encode the columns of one file.
    threads: usize,
    shared: Arc<Shared>,
    /// Buffer for reading journals.
    room: Vec<u8>,
}

impl Sealer {
    pub fn new(root: PathBuf, disk: Disk, wait_when_full: bool, threads: usize, shared: Arc<Shared>) -> Self {
        Self { root, disk, wait_when_full, threads, shared, room: Vec::new() }
    }

    pub fn run(mut self, whole: &Receiver<CompleteJournal>) {
        // If lowering the priority is refused, sealing competes with recording at equal priority.
        let _ = lower_priority(Background::Batch);
        loop {
            let first = whole.recv_timeout(ROOM_KEPT).or_else(|_| {
                // The buffer for reading journals is freed, because the next journal may not be complete for a long
                // time.
                self.room = Vec::new();
                whole.recv()
            });
            let Ok(first) = first else { break };
            let (begun, mut bytes, mut batch) = (Instant::now(), first.journal.bytes(), vec![first]);
            while self.wait_when_full && bytes < BATCH_BYTES && batch.len() < BATCH_FILES {
                let Ok(next) = whole.recv_timeout(GATHERED.saturating_sub(begun.elapsed())) else { break };
                bytes += next.journal.bytes();
                batch.push(next);
            }
            self.seal(batch);
            self.shared.closed.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn seal(&mut self, batch: Vec<CompleteJournal>) {
        let hours: Vec<PathBuf> = batch.iter().map(|whole| names::hour_directory(&self.root, whole.first)).collect();
        let directories = self.disk.create_directories(&hours.iter().map(|hour| &**hour).collect::<Vec<_>>());
        match directories.map_err(ColumnsError::io(&self.root)) {
            Ok(()) => {
                let drafts: Vec<_> = batch
                    .iter()
                    .filter_map(|whole| Some((whole.kind, self.draft(whole.kind, &whole.journal.path)?)))
                    .collect();
                let unsynced = batch.iter().filter(|whole| whole.journal.is_unsynced());
                let unsynced: Vec<&Path> = unsynced.map(|whole| &*whole.journal.path).collect();
                let (sealed, synced) = finish(&mut *self.disk, &self.root, drafts, &unsynced);
                for (path, outcome) in unsynced.iter().zip(synced) {
                    if let Err(error) = outcome {
                        self.shared.report(Event::Trouble(ColumnsError::io(path)(error)));
                    }
                }
                sealed.into_iter().for_each(|sealed| self.report(sealed));
            }
            // The unsealed journals remain, and are sealed at the next start.
            Err(error) => self.shared.report(Event::Trouble(error)),
        }
        batch.into_iter().for_each(|whole| whole.journal.close());
    }

    fn draft(&mut self, kind: DataFileKind, path: &Path) -> Option<Draft> {
        let (disk, root, room) = (&mut *self.disk, &self.root, &mut self.room);
        let draft = match kind {
            DataFileKind::Flows => draft::<Record>(disk, root, kind, path, false, self.threads, room),
            DataFileKind::Series => draft::<Row>(disk, root, kind, path, false, self.threads, room),
        };
        draft.map_err(|error| self.shared.report(Event::Trouble(error))).ok()
    }

    fn report(&self, sealed: Result<FromJournal, ColumnsError>) {
        let shared = &self.shared;
        match sealed {
            Ok(sealed) => {
                shared.sealed.fetch_add(sealed.rows, Ordering::Relaxed);
                if let Some(DamagedJournal { path, damage }) = sealed.damaged {
                    shared.report(Event::Trouble(ColumnsError::Holes { path, damage, sealed: true }));
                }
                if let Some(path) = sealed.path {
                    shared.files.fetch_add(1, Ordering::Relaxed);
                    shared.report(Event::Sealed { path, rows: sealed.rows });
                }
            }
            Err(error) => shared.report(Event::Trouble(error)),
        }
    }
}
