//! Where the output goes: one file after the other.

use base::Timestamp;
use std::io::{self, Write};

/// Gives the files of a conversion. They are begun and ended one after the other.
pub trait Files {
    /// What takes the bytes; needs no buffering around it.
    type Sink: Write;

    /// Begins a file, the first with number 1. `first` is the moment that the file begins with: of its first packet, or
    /// the boundary where files are split by time.
    ///
    /// # Errors
    /// When it cannot be made.
    fn begin(&mut self, number: u64, first: Timestamp) -> io::Result<Self::Sink>;

    /// Ends a file that is whole. A file of a conversion that failed is not ended.
    ///
    /// # Errors
    /// When it cannot be published.
    fn end(&mut self, sink: Self::Sink) -> io::Result<()>;

    /// Whether a conversion that found no packet gives a file that holds none: a pipe has a reader who waits for one.
    fn takes_empty(&self) -> bool;
}

/// Files in memory, for tests and small things.
#[derive(Debug, Default)]
pub struct Memory {
    /// The first moments of the files that were begun.
    pub firsts: Vec<Timestamp>,
    /// The files that were ended.
    pub whole: Vec<Vec<u8>>,
}

impl Files for Memory {
    type Sink = Vec<u8>;

    fn begin(&mut self, _number: u64, first: Timestamp) -> io::Result<Vec<u8>> {
        self.firsts.push(first);
        Ok(Vec::new())
    }

    fn end(&mut self, sink: Vec<u8>) -> io::Result<()> {
        self.whole.push(sink);
        Ok(())
    }

    fn takes_empty(&self) -> bool {
        true
    }
}
