//! Reads the indexes of the next files in advance, while the merge is still at the files before them. This saves time
//! because an index needs four or five small reads, each of which depends on the previous one, and because a query may
//! have to test the indexes of thousands of files without a match.
//!
//! The querying thread reads the first index itself. If the filter can exclude files, other threads read the next
//! indexes in parallel with this read, because the first file may contain few or no matches. If the filter cannot
//! exclude files, other threads start to read only with the second file, so that a short query starts no thread. The
//! number of files that are read in advance doubles with each file. The threads return their results as values, which
//! the query adds to its context in the order of the files.

use super::plan::{FileOrder, FileQuery, IndexProbe, probe_index};
use crate::Query;
use filter::KeyCondition;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use store::catalogue::Entry;

/// The largest number of files whose indexes are read in advance; it is limited because each has an open index and
/// perhaps an open packet file.
const DISTANCE_MAX: usize = 64;

/// The number of indexes that are read in advance during the read of the first index, if the query has a filter.
const DISTANCE_FIRST: usize = 8;

/// The largest number of threads, which mostly wait for the disk.
const THREADS: usize = 16;

/// A job for a thread: the file whose index must be read, and the channel for the result.
type PrefetchJob = (Entry, FileOrder, SyncSender<io::Result<IndexProbe>>);

/// Reads indexes ahead.
pub struct IndexPrefetcher {
    query: FileQuery,
    job_queue: JobQueue,
    /// The files whose indexes are being read in advance, in order, with the channels for their results.
    ahead: VecDeque<(PathBuf, Prefetched)>,
    distance: usize,
}

enum Prefetched {
    Pending(Receiver<io::Result<IndexProbe>>),
    Done(Box<io::Result<IndexProbe>>),
}

impl IndexPrefetcher {
    /// A prefetcher without threads.
    pub fn new(from: &Query) -> Self {
        let need = (!from.filter.is_empty()).then(|| from.filter.need());
        let interval = (from.from, from.to);
        let with_timestamp_quality = from.with_timestamp_quality;
        let query = FileQuery { interval, need, seek: from.seek.clone(), with_timestamp_quality };
        let excludes = query.need.as_ref().is_some_and(|need| *need != KeyCondition::Anything);
        let distance = if excludes { DISTANCE_FIRST } else { 0 };
        Self { query, job_queue: JobQueue::default(), ahead: VecDeque::new(), distance }
    }

    /// Returns the evaluated index of a file, and starts to read the indexes of the files in `following` in advance.
    ///
    /// # Errors
    /// If the index or the packet file cannot be opened or read.
    pub fn probe<'a>(
        &mut self,
        entry: &Entry,
        order: FileOrder,
        following: impl Iterator<Item = (&'a Entry, FileOrder)>,
    ) -> io::Result<IndexProbe> {
        let mut found = None;
        // Files are requested in order, so earlier files in the queue were skipped and are dropped.
        while let Some((path, expected)) = self.ahead.pop_front() {
            if path == entry.path {
                found = Some(expected);
                break;
            }
        }
        self.read_ahead(following);
        let found = match found {
            Some(Prefetched::Done(probed)) => Some(*probed),
            // A thread that has panicked sends no result.
            Some(Prefetched::Pending(receiver)) => receiver.recv().ok(),
            None => None,
        };
        found.unwrap_or_else(|| probe_index(entry, order, &self.query))
    }

    /// True if a thread has read and evaluated the index of this file.
    pub fn has(&mut self, entry: &Entry) -> bool {
        let Some((_, expected)) = self.ahead.iter_mut().find(|(path, _)| *path == entry.path) else { return false };
        if let Prefetched::Pending(receiver) = expected
            && let Ok(probed) = receiver.try_recv()
        {
            *expected = Prefetched::Done(Box::new(probed));
        }
        matches!(expected, Prefetched::Done(_))
    }

    fn read_ahead<'a>(&mut self, following: impl Iterator<Item = (&'a Entry, FileOrder)>) {
        if self.distance > 0 {
            for (entry, order) in following.take(self.distance).skip(self.ahead.len()) {
                let (sender, receiver) = sync_channel(1);
                if self.job_queue.send((entry.clone(), order, sender), &self.query) {
                    self.ahead.push_back((entry.path.clone(), Prefetched::Pending(receiver)));
                }
            }
        }
        self.distance = (2 * self.distance).clamp(2, DISTANCE_MAX);
    }
}

/// The job queue, from which threads receive jobs until its sender is dropped.
struct JobQueue {
    jobs: Sender<PrefetchJob>,
    receiver: Arc<Mutex<Receiver<PrefetchJob>>>,
    threads: usize,
}

impl Default for JobQueue {
    fn default() -> Self {
        let (jobs, receiver) = channel();
        Self { jobs, receiver: Arc::new(Mutex::new(receiver)), threads: 0 }
    }
}

impl JobQueue {
    /// Queues a job; returns false if no thread exists that could execute it. Each of the first jobs starts a thread.
    fn send(&mut self, job: PrefetchJob, query: &FileQuery) -> bool {
        if self.threads < THREADS {
            let (receiver, query) = (Arc::clone(&self.receiver), query.clone());
            let spawned = thread::Builder::new().name("probe".to_owned()).spawn(move || {
                loop {
                    let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((entry, order, sender)) = job else { return };
                    // A send error is ignored: the query may have ended and dropped the receiver.
                    let _ = sender.send(probe_index(&entry, order, &query));
                }
            });
            self.threads += usize::from(spawned.is_ok());
        }
        // If no thread can be started, the querying thread reads the index itself.
        self.threads > 0 && self.jobs.send(job).is_ok()
    }
}
