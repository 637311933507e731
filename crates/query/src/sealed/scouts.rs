//! Who asks the indexes of the files that come next, while the answer is still at those before: an index is four or five small
//! reads that wait for each other, and of ten thousand files most have nothing to say.
//!
//! The first file is asked by whoever wants it. From the second on, threads go ahead, twice as far with each file, so that a
//! short answer costs none. What they find is a value; it enters the answer's book when the file has its turn, in order.

use super::plan::{Asked, Scouted, scout};
use crate::Question;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use store::catalogue::Entry;

/// Files that are asked ahead, at most: each holds its index, and its packets if they are wanted, open.
const FARTHEST: usize = 32;

/// Threads. They wait for the disk most of the time.
const THREADS: usize = 4;

/// A file to be asked, and who wants to know.
type Errand = (Entry, SyncSender<io::Result<Scouted>>);

/// See the module.
pub struct Scouts {
    asked: Asked,
    errands: Option<Sender<Errand>>,
    /// What is expected of the files ahead, in their order.
    ahead: VecDeque<(PathBuf, Expected)>,
    farthest: usize,
}

enum Expected {
    Still(Receiver<io::Result<Scouted>>),
    There(Box<io::Result<Scouted>>),
}

impl Scouts {
    /// Nobody has gone ahead yet.
    pub fn new(question: &Question) -> Self {
        let need = (!question.filter.is_empty()).then(|| question.filter.need());
        let asked = Asked { interval: (question.from, question.to), need, seek: question.seek.clone() };
        Self { asked, errands: None, ahead: VecDeque::new(), farthest: 0 }
    }

    /// What the index of a file says; scouts go ahead to those that come `behind` it.
    ///
    /// # Errors
    /// What the system says of the file.
    pub fn scout<'a>(&mut self, entry: &Entry, behind: impl Iterator<Item = &'a Entry>) -> io::Result<Scouted> {
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
        found.unwrap_or_else(|| scout(entry, &self.asked))
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

    fn go_ahead<'a>(&mut self, behind: impl Iterator<Item = &'a Entry>) {
        if self.farthest > 0 {
            for entry in behind.take(self.farthest).skip(self.ahead.len()) {
                let (sender, receiver) = sync_channel(1);
                let errands = self.errands.get_or_insert_with(|| hire(&self.asked));
                if errands.send((entry.clone(), sender)).is_ok() {
                    self.ahead.push_back((entry.path.clone(), Expected::Still(receiver)));
                }
            }
        }
        self.farthest = (2 * self.farthest).clamp(2, FARTHEST);
    }
}

/// Threads that run errands until there is nobody to give them any.
fn hire(asked: &Asked) -> Sender<Errand> {
    let (sender, receiver) = channel::<Errand>();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..THREADS {
        let (receiver, asked) = (Arc::clone(&receiver), asked.clone());
        // Where no thread can be had, whoever wants to know asks.
        let _ = thread::Builder::new().name("scout".to_owned()).spawn(move || {
            loop {
                let errand = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((entry, sender)) = errand else { return };
                // Nobody waits for it if the answer has ended.
                let _ = sender.send(scout(&entry, &asked));
            }
        });
    }
    sender
}
