//! Who asks the indexes of the files that come next, while the answer is still at those before: an index is four or five small
//! reads that wait for each other, and of ten thousand files most have nothing to say.
//!
//! The first file is asked by whoever wants it. Where a filter can exclude files, threads go ahead at once: that file may have
//! nothing, or soon nothing left, and their reads stand beside its own. Where none can, they go from the second file on, so that a
//! short answer costs no thread. They go twice as far with each file. What they find is a value; it enters the answer's book when
//! the file has its turn, in order.

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

/// Files that are asked ahead, at most: each holds its index, and its packets if they are wanted, open.
const FARTHEST: usize = 64;

/// The same of the first file, where there is a filter.
const AT_FIRST: usize = 8;

/// Threads, at most. They wait for the disk most of the time.
const THREADS: usize = 16;

/// A file to be asked, and who wants to know.
type PrefetchJob = (Entry, FileOrder, SyncSender<io::Result<IndexProbe>>);

/// See the module.
pub struct IndexPrefetcher {
    query: FileQuery,
    office: JobQueue,
    /// What is expected of the files ahead, in their order.
    ahead: VecDeque<(PathBuf, Expected)>,
    farthest: usize,
}

enum Expected {
    Still(Receiver<io::Result<IndexProbe>>),
    There(Box<io::Result<IndexProbe>>),
}

impl IndexPrefetcher {
    /// Nobody has gone ahead yet.
    pub fn new(question: &Query) -> Self {
        let need = (!question.filter.is_empty()).then(|| question.filter.need());
        let asked = FileQuery { interval: (question.from, question.to), need, seek: question.seek.clone() };
        let excludes = asked.need.as_ref().is_some_and(|need| *need != KeyCondition::Anything);
        let farthest = if excludes { AT_FIRST } else { 0 };
        Self { query: asked, office: JobQueue::default(), ahead: VecDeque::new(), farthest }
    }

    /// What the index of a file says; scouts go ahead to those that come `behind` it.
    ///
    /// # Errors
    /// What the system says of the file.
    pub fn scout<'a>(
        &mut self,
        entry: &Entry,
        order: FileOrder,
        behind: impl Iterator<Item = (&'a Entry, FileOrder)>,
    ) -> io::Result<IndexProbe> {
        let mut found = None;
        // Files come in the order in which they were due; one that is no longer due was passed over.
        while let Some((path, expected)) = self.ahead.pop_front() {
            if path == entry.path {
                found = Some(expected);
                break;
            }
        }
        self.go_ahead(behind);
        let found = match found {
            Some(Expected::There(scouted)) => Some(*scouted),
            // A scout that has died says nothing.
            Some(Expected::Still(receiver)) => receiver.recv().ok(),
            None => None,
        };
        found.unwrap_or_else(|| probe_index(entry, order, &self.query))
    }

    /// Whether it is known what this file says.
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

/// Where threads fetch their errands, until there is nobody to give them any.
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
    /// Whether somebody runs this errand. Each of the first ones is a reason for another thread.
    fn send(&mut self, job: PrefetchJob, asked: &FileQuery) -> bool {
        if self.threads < THREADS {
            let (receiver, asked) = (Arc::clone(&self.receiver), asked.clone());
            let hired = thread::Builder::new().name("scout".to_owned()).spawn(move || {
                loop {
                    let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((entry, order, sender)) = job else { return };
                    // Nobody waits for it if the answer has ended.
                    let _ = sender.send(probe_index(&entry, order, &asked));
                }
            });
            self.threads += usize::from(hired.is_ok());
        }
        // Where no thread can be had, whoever wants to know asks.
        self.threads > 0 && self.errands.send(job).is_ok()
    }
}
