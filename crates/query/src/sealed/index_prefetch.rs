//! Reads the indexes of the next files ahead, while the merge is still at the files before them: reading an index takes
//! four or five small dependent reads, and of ten thousand files most contain no match.
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
const FARTHEST: usize = 64;

/// The same for the first file, if there is a filter.
const AT_FIRST: usize = 8;

/// Maximum number of threads; mostly they wait for the disk.
const THREADS: usize = 16;

/// A file whose index to read, and the channel for the result.
type PrefetchJob = (Entry, FileOrder, SyncSender<io::Result<IndexProbe>>);

/// Reads indexes ahead.
pub struct IndexPrefetcher {
    query: FileQuery,
    office: JobQueue,
    /// The files read ahead with their pending or complete results, in order.
    ahead: VecDeque<(PathBuf, Expected)>,
    farthest: usize,
}

enum Expected {
    Still(Receiver<io::Result<IndexProbe>>),
    There(Box<io::Result<IndexProbe>>),
}

impl IndexPrefetcher {
    /// No thread is started yet.
    pub fn new(question: &Query) -> Self {
        let need = (!question.filter.is_empty()).then(|| question.filter.need());
        let asked = FileQuery { interval: (question.from, question.to), need, seek: question.seek.clone() };
        let excludes = asked.need.as_ref().is_some_and(|need| *need != KeyCondition::Anything);
        let farthest = if excludes { AT_FIRST } else { 0 };
        Self { query: asked, office: JobQueue::default(), ahead: VecDeque::new(), farthest }
    }

    /// The result for a file; starts to read ahead the files in `behind`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn scout<'a>(
        &mut self,
        entry: &Entry,
        order: FileOrder,
        behind: impl Iterator<Item = (&'a Entry, FileOrder)>,
    ) -> io::Result<IndexProbe> {
        let mut found = None;
        // Files come in order; earlier files in the queue were skipped.
        while let Some((path, expected)) = self.ahead.pop_front() {
            if path == entry.path {
                found = Some(expected);
                break;
            }
        }
        self.go_ahead(behind);
        let found = match found {
            Some(Expected::There(scouted)) => Some(*scouted),
            // A thread that has panicked sends no result.
            Some(Expected::Still(receiver)) => receiver.recv().ok(),
            None => None,
        };
        found.unwrap_or_else(|| probe_index(entry, order, &self.query))
    }

    /// True if the result for this file is available.
    pub fn has(&mut self, entry: &Entry) -> bool {
        let Some((_, expected)) = self.ahead.iter_mut().find(|(path, _)| *path == entry.path) else { return false };
        if let Expected::Still(receiver) = expected
            && let Ok(scouted) = receiver.try_recv()
        {
            *expected = Expected::There(Box::new(scouted));
        }
        matches!(expected, Expected::There(_))
    }

    fn go_ahead<'a>(&mut self, behind: impl Iterator<Item = (&'a Entry, FileOrder)>) {
        if self.farthest > 0 {
            for (entry, order) in behind.take(self.farthest).skip(self.ahead.len()) {
                let (sender, receiver) = sync_channel(1);
                if self.office.send((entry.clone(), order, sender), &self.query) {
                    self.ahead.push_back((entry.path.clone(), Expected::Still(receiver)));
                }
            }
        }
        self.farthest = (2 * self.farthest).clamp(2, FARTHEST);
    }
}

/// The queue from which threads receive jobs until all senders are gone.
struct JobQueue {
    errands: Sender<PrefetchJob>,
    receiver: Arc<Mutex<Receiver<PrefetchJob>>>,
    threads: usize,
}

impl Default for JobQueue {
    fn default() -> Self {
        let (errands, receiver) = channel();
        Self { errands, receiver: Arc::new(Mutex::new(receiver)), threads: 0 }
    }
}

impl JobQueue {
    /// Queues a job; false if no thread exists to run it. Each of the first jobs starts a thread.
    fn send(&mut self, job: PrefetchJob, asked: &FileQuery) -> bool {
        if self.threads < THREADS {
            let (receiver, asked) = (Arc::clone(&self.receiver), asked.clone());
            let hired = thread::Builder::new().name("scout".to_owned()).spawn(move || {
                loop {
                    let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((entry, order, sender)) = job else { return };
                    // The receiver is gone if the query has ended.
                    let _ = sender.send(probe_index(&entry, order, &asked));
                }
            });
            self.threads += usize::from(hired.is_ok());
        }
        // If no thread can be started, the querying thread reads the index itself.
        self.threads > 0 && self.errands.send(job).is_ok()
    }
}
