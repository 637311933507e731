//! The output files of a conversion.

use base::Timestamp;
use std::io::{self, Write};

/// Creates the output files of a conversion, one after the other.
pub trait Files {
    /// The writer of one output file. The conversion buffers the data before it calls `write`, so this type needs no
    /// buffer.
    type Sink: Write;

    /// Begins a file; the first file has number 1. `first` is the timestamp of the file's first packet, or, if files
    /// are split by time, the time boundary at which the file begins.
    ///
    /// # Errors
    /// If the file cannot be created.
    fn begin(&mut self, number: u64, first: Timestamp) -> io::Result<Self::Sink>;

    /// Ends a complete file. Not called for a file whose conversion failed.
    ///
    /// # Errors
    /// If the file cannot be published.
    fn end(&mut self, sink: Self::Sink) -> io::Result<()>;

    /// True if a conversion without packets should write a file without packets. A pipe needs such a file, because its
    /// reader waits for a file header.
    fn takes_empty(&self) -> bool;
}

/// No files: the packets are read and counted only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl Files for Discard {
    type Sink = io::Sink;

    fn begin(&mut self, _number: u64, _first: Timestamp) -> io::Result<io::Sink> {
        Ok(io::sink())
    }

    fn end(&mut self, _sink: io::Sink) -> io::Result<()> {
        Ok(())
    }

    fn takes_empty(&self) -> bool {
        false
    }
}

/// Files in memory, for tests and small conversions.
#[derive(Debug, Default)]
pub struct Memory {
    /// The first timestamp of each file that was begun.
    pub firsts: Vec<Timestamp>,
    /// The bytes of each file that was ended.
    pub files: Vec<Vec<u8>>,
}

impl Files for Memory {
    type Sink = Vec<u8>;

    fn begin(&mut self, _number: u64, first: Timestamp) -> io::Result<Vec<u8>> {
        self.firsts.push(first);
        Ok(Vec::new())
    }

    fn end(&mut self, sink: Vec<u8>) -> io::Result<()> {
        self.files.push(sink);
        Ok(())
    }

    fn takes_empty(&self) -> bool {
        true
    }
}
