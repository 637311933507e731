//! IPFIX files (RFC 5655): a sequence of messages, templates first.

use crate::ipfix::{Decoder, HEADER, Item, MessageError, StreamCounts, VERSION, at};
use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

/// Opens a file for appending messages. An existing file is truncated after its last complete message, because a crash
/// may have left an incomplete one. The file is locked until it is closed: two writers would overwrite each other's
/// messages.
///
/// # Errors
/// `ResourceBusy` while another exporter writes to the file, `InvalidData` if an existing file is not IPFIX; otherwise
/// errors of the file system.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    if let Some(why) = claim(|| file.try_lock())? {
        sys::say!(
            "netgrain: {}: the file cannot be locked ({why}); make sure that no other program writes to it",
            path.display()
        );
    }
    let len = file.metadata()?.len();
    let mut end = 0;
    let mut header = [0; HEADER];
    while len - end >= HEADER as u64 {
        file.seek(SeekFrom::Start(end))?;
        file.read_exact(&mut header)?;
        let fault = |e| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("no IPFIX message at byte {end}: {e}; name another file"),
            )
        };
        let message = u64::from(length(&header).map_err(fault)?);
        if message > len - end {
            break;
        }
        end += message;
    }
    if end == 0 && len > 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file exists and is not an IPFIX file; name another file",
        ));
    }
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    Ok(file)
}

/// Locks the file, and waits briefly for a previous writer to release the lock. If the file system does not support
/// locks, returns the error of the lock as a warning.
fn claim(mut lock: impl FnMut() -> Result<(), TryLockError>) -> io::Result<Option<io::Error>> {
    let until = Instant::now() + HANDOVER;
    loop {
        match lock() {
            Ok(()) => return Ok(None),
            Err(TryLockError::Error(error)) if error.raw_os_error().is_some_and(|e| NO_LOCKS.contains(&e)) => {
                return Ok(Some(error));
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(HANDOVER / 100),
            Err(TryLockError::WouldBlock) => {
                let text = "another exporter writes to this file; name another file";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
        }
    }
}

/// Errors of file systems without flock(2): ENOLCK, ENOSYS, EOPNOTSUPP (asm-generic/errno.h).
const NO_LOCKS: [i32; 3] = [37, 38, 95];

/// How long to wait for a previous exporter to close the file.
const HANDOVER: Duration = Duration::from_secs(1);

/// Reads the message length from a message header.
fn length(header: &[u8; HEADER]) -> Result<u16, MessageError> {
    let half = |range: std::ops::Range<usize>| u16::from_be_bytes([header[range.start], header[range.start + 1]]);
    match (half(at::VERSION), half(at::LENGTH)) {
        (VERSION, len) if usize::from(len) >= HEADER => Ok(len),
        (VERSION, len) => Err(MessageError::TooShort { offset: 0, need: HEADER, have: len.into() }),
        (version, _) => Err(MessageError::Version(version)),
    }
}

/// The reason why an IPFIX file cannot be read beyond a certain offset.
#[derive(Debug)]
pub enum FileError {
    /// An I/O error.
    Io(io::Error),
    /// The file ends within a message.
    Torn {
        /// Offset in the file at which the incomplete message begins.
        offset: u64,
    },
    /// A message is invalid.
    Message {
        /// Offset at which it begins.
        offset: u64,
        /// The reason.
        error: MessageError,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Torn { offset } => {
                write!(f, "the message at byte {offset} is incomplete; all messages before it have been read")
            }
            Self::Message { offset, error } => write!(f, "message at byte {offset}: {error}"),
        }
    }
}

impl std::error::Error for FileError {}

/// Reads an IPFIX file, or any stream of messages, such as a TCP connection.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    offset: u64,
    decoder: Decoder,
    items: VecDeque<Item>,
    buffer: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// A reader of input that begins with an IPFIX message. `pen` is the enterprise number of our own elements.
    pub fn new(input: R, pen: u32) -> Self {
        Self { input, offset: 0, decoder: Decoder::new(pen), items: VecDeque::new(), buffer: Vec::new() }
    }

    /// Counters of the messages and records that were read so far.
    pub fn arrived(&self) -> StreamCounts {
        self.decoder.arrived()
    }

    /// The next item of the file; `None` at its end.
    ///
    /// # Errors
    /// [`FileError`] has the reason why the file ends early, and the offset at which the invalid or incomplete message
    /// begins.
    pub fn next_item(&mut self) -> Result<Option<Item>, FileError> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(Some(item));
            }
            if !self.read_message()? {
                return Ok(None);
            }
            let (items, offset) = (&mut self.items, self.offset);
            self.decoder
                .message(&self.buffer, &mut |item| items.push_back(item))
                .map_err(|error| FileError::Message { offset, error })?;
            self.offset += self.buffer.len() as u64;
        }
    }

    /// Reads one message into the buffer; returns false at the end of the file.
    fn read_message(&mut self) -> Result<bool, FileError> {
        let offset = self.offset;
        self.buffer.clear();
        self.fill(HEADER)?;
        if self.buffer.is_empty() {
            return Ok(false);
        }
        let Ok(header) = <&[u8; HEADER]>::try_from(&self.buffer[..]) else { return Err(FileError::Torn { offset }) };
        let len = usize::from(length(header).map_err(|error| FileError::Message { offset, error })?);
        self.fill(len - HEADER)?;
        if self.buffer.len() == len { Ok(true) } else { Err(FileError::Torn { offset }) }
    }

    /// Reads until the buffer has `len` bytes or the input ends.
    fn fill(&mut self, len: usize) -> Result<(), FileError> {
        (&mut self.input).take(len as u64).read_to_end(&mut self.buffer).map(|_| ()).map_err(FileError::Io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_is_accepted_with_a_warning() {
        let refused = |errno| claim(|| Err(TryLockError::Error(io::Error::from_raw_os_error(errno))));
        for errno in NO_LOCKS {
            let why = refused(errno).expect("no reason to fail").expect("a warning");
            assert_eq!(why.raw_os_error(), Some(errno));
        }
        const EIO: i32 = 5;
        assert_eq!(refused(EIO).expect_err("another error").raw_os_error(), Some(EIO));
        let mut free = [false, true].into_iter();
        let lock = || if free.next() == Some(true) { Ok(()) } else { Err(TryLockError::WouldBlock) };
        assert!(claim(lock).expect("in the end").is_none(), "the lock is taken after its release");
    }
}
