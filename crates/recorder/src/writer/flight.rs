//! A job in progress: the writes at the device that belong to the job.

use crate::cutter::{Part, Release};
use base::Timestamp;
use std::io;
use store::bytes::{PAGE, Slice};
use store::device::{Device, FileId, Op};

/// The state of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The write is not started, or must be started again.
    Waiting,
    /// The write is in progress at the device, with this token.
    Flying(u64),
    /// Written.
    Done,
}

/// One write: the complete pages of a part of a block, or the last page of this part, padded with zeros.
pub(super) struct WriteOp {
    pub file: FileId,
    pub offset: u64,
    pub slice: Slice,
    pub state: State,
    /// True if the write was started before and failed.
    pub has_failed: bool,
}

impl WriteOp {
    /// Submits the write; if the device is busy, the next step of the writer tries again.
    pub fn start<D: Device>(&mut self, device: &mut D, token: u64) {
        let op = Op::Write { offset: self.offset, slice: self.slice.clone() };
        if device.start(self.file, op, token).is_ok() {
            self.state = State::Flying(token);
        }
    }

    /// Processes the device's result. A short write continues after the last complete page.
    pub fn complete(&mut self, result: io::Result<usize>) -> io::Result<()> {
        self.state = State::Waiting;
        let written = match result {
            Ok(n) if n >= self.slice.len() => {
                self.state = State::Done;
                return Ok(());
            }
            Ok(n) => n - n % PAGE as usize,
            Err(e) => {
                self.has_failed = true;
                return Err(e);
            }
        };
        if written == 0 {
            self.has_failed = true;
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the volume wrote less than a page"));
        }
        self.offset += written as u64;
        self.slice = self.slice.after(written);
        Ok(())
    }
}

/// A job that was begun.
pub(super) struct Flight {
    pub file: Option<FileId>,
    pub part: Option<Box<Part>>,
    pub pieces: Vec<WriteOp>,
    /// Length and end time of the file, if this job closes the file.
    pub close: Option<(u64, Timestamp)>,
    pub release: Release,
}

impl Flight {
    pub fn write(file: FileId, part: Box<Part>) -> Self {
        let (len, page) = (part.bytes.len(), PAGE as usize);
        let whole = len - len % page;
        let mut pieces = Vec::with_capacity(2);
        let mut piece =
            |offset, slice| pieces.push(WriteOp { file, offset, slice, state: State::Waiting, has_failed: false });
        if whole > 0 {
            piece(part.offset, part.bytes.until(whole));
        }
        if whole < len {
            piece(part.offset + whole as u64, Slice::padded(part.bytes.after(whole).bytes()));
        }
        Self { file: Some(file), release: part.release, part: Some(part), pieces, close: None }
    }

    pub fn close(file: Option<FileId>, len: u64, end: Timestamp, release: Release) -> Self {
        Self { file, part: None, pieces: Vec::new(), close: Some((len, end)), release }
    }

    pub fn release(release: Release) -> Self {
        Self { file: None, part: None, pieces: Vec::new(), close: None, release }
    }

    pub fn is_complete(&self) -> bool {
        self.pieces.iter().all(|p| p.state == State::Done)
    }

    pub fn is_flying(&self) -> bool {
        self.pieces.iter().any(|p| matches!(p.state, State::Flying(_)))
    }
}
