//! Reads the indexes of the next files ahead, while the merge is still at the files before them: reading an index takes
//! four or five small dependent reads, and most of ten thousand files contain no match.
//!
//! The querying thread reads the first index itself. If the filter can exclude files, threads start reading ahead
//! immediately, in parallel with that read, since the first file may contain few or no matches. Otherwise they start
//! with the second file, so that a short query starts no thread. The read-ahead distance doubles with each file.
//! Results are values; the query adds them to its context in file order.

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

/// Maximum number of files read ahead: each keeps its index open, and its packet file if needed.
const DISTANCE_MAX: usize = 64;

/// The same for the first file, if there is a filter.
const DISTANCE_FIRST: usize = 8;

/// Maximum number of threads; mostly they wait for the disk.
const THREADS: usize = 16;

/// A file whose index to read, and the channel for the result.
type PrefetchJob = (Entry, FileOrder, SyncSender<io::Result<IndexProbe>>);

/// Reads indexes ahead.
pub struct IndexPrefetcher {
    query: FileQuery,
    job_queue: JobQueue,
    /// The files read ahead with their pending or complete results, in order.
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
        let query = FileQuery { interval: (from.from, from.to), need, seek: from.seek.clone() };
        let excludes = query.need.as_ref().is_some_and(|need| *need != KeyCondition::Anything);
        let distance = if excludes { DISTANCE_FIRST } else { 0 };
        Self { query, job_queue: JobQueue::default(), ahead: VecDeque::new(), distance }
    }

    /// The result for a file; starts to read ahead the files in `following`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn probe<'a>(
        &mut self,
        entry: &Entry,
        order: FileOrder,
        following: impl Iterator<Item = (&'a Entry, FileOrder)>,
    ) -> io::Result<IndexProbe> {
        let mut found = None;
        // Files come in order; earlier files in the queue were skipped.
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

    /// True if the result for this file is available.
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

/// The queue from which threads receive jobs until all senders are dropped.
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
    /// Queues a job; false if no thread exists to run it. Each of the first jobs starts a thread.
    fn send(&mut self, job: PrefetchJob, query: &FileQuery) -> bool {
        if self.threads < THREADS {
            let (receiver, query) = (Arc::clone(&self.receiver), query.clone());
            let spawned = thread::Builder::new().name("probe".to_owned()).spawn(move || {
                loop {
                    let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((entry, order, sender)) = job else { return };
                    // The query may have ended and dropped the receiver.
                    let _ = sender.send(probe_index(&entry, order, &query));
                }
            });
            self.threads += usize::from(spawned.is_ok());
        }
        // If no thread can be started, the querying thread reads the index itself.
        self.threads > 0 && self.jobs.send(job).is_ok()
    }
}
