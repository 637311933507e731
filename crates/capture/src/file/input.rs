//! The byte source of a capture: a file or a pipe, decompressed if necessary.

use super::zstd::Zstd;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Size of the read buffer for compressed input; uncompressed input is read without this buffer.
const COMPRESSED_READ: usize = 64 << 10;

/// The number of bytes that the thread of a pipe reads at once (the capacity of a Linux pipe), and the number of pieces
/// of this size that it reads ahead.
const PIECE: usize = 64 << 10;
const PIECES_AHEAD: usize = 16;

/// An open capture, decompressed.
pub(super) struct Input {
    source: Bytes,
    compression: Option<&'static str>,
}

enum Bytes {
    Here(Box<dyn Read + Send>),
    Piped(Pipe),
}

impl Input {
    /// Opens a path, or standard input for `-`. A separate thread reads an input whose reads may block.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::piped(io::stdin());
        }
        let file = std::fs::File::open(path)?;
        if file.metadata()?.is_file() { Self::in_calling_thread(file) } else { Self::piped(file) }
    }

    /// Reads from `source` in the calling thread.
    pub fn in_calling_thread(source: impl Read + Send + 'static) -> io::Result<Self> {
        let (source, compression) = decompress(source)?;
        Ok(Self { source: Bytes::Here(source), compression })
    }

    /// Reads from `source` in a thread, which ends when the source ends or the capture is dropped. Dropping does not
    /// wait for a thread that is blocked in a `read`.
    fn piped(source: impl Read + Send + 'static) -> io::Result<Self> {
        let (first, begun) = mpsc::sync_channel(1);
        let (pieces, receiver) = mpsc::sync_channel(PIECES_AHEAD);
        std::thread::Builder::new().name("capture-pipe".to_owned()).spawn(move || {
            let (source, compression) = match decompress(source) {
                Ok((source, compression)) => (source, Ok(compression)),
                Err(error) => (Box::new(io::empty()) as Box<dyn Read + Send>, Err(error)),
            };
            if first.send(compression).is_ok() {
                read_ahead(source, &pieces);
            }
        })?;
        let compression = begun.recv().unwrap_or_else(|_| Err(thread_died()))?;
        let pipe = Pipe { receiver, piece: Vec::new(), at: 0, until: None, ended: false };
        Ok(Self { source: Bytes::Piped(pipe), compression })
    }

    /// The name of the compression of the input; `None` if it is not compressed.
    pub fn compression(&self) -> Option<&'static str> {
        self.compression
    }

    /// True if a read may block until another process writes.
    pub fn is_piped(&self) -> bool {
        matches!(self.source, Bytes::Piped(_))
    }

    /// After this call, a read of a pipe that receives no bytes within `wait` returns `WouldBlock`.
    #[inline]
    pub fn wait_at_most(&mut self, wait: Duration) {
        if let Bytes::Piped(pipe) = &mut self.source {
            // If the end of the wait exceeds the range of `Instant`, the wait has no end.
            pipe.until = Instant::now().checked_add(wait);
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.source {
            Bytes::Here(source) => source.read(into),
            Bytes::Piped(pipe) => pipe.read(into),
        }
    }
}

/// Returns a reader of the decompressed content, and the name of the compression, which the first bytes of `source`
/// show.
fn decompress(mut source: impl Read + Send + 'static) -> io::Result<(Box<dyn Read + Send>, Option<&'static str>)> {
    let mut head = Vec::with_capacity(ZSTD.len());
    source.by_ref().take(ZSTD.len() as u64).read_to_end(&mut head)?;
    let (gzip, zstd) = (head.starts_with(&GZIP), head.starts_with(&ZSTD));
    let whole = Cursor::new(head).chain(BufReader::with_capacity(COMPRESSED_READ, source));
    Ok(if gzip {
        (Box::new(MultiGzDecoder::new(whole)), Some("gzip"))
    } else if zstd {
        (Box::new(Zstd::new(whole)), Some("zstd"))
    } else {
        (Box::new(whole), None)
    })
}

/// Length of a capture file that is not compressed; `None` if the length of the content is unknown: compressed files,
/// pipes, and files that cannot be opened.
pub fn plain_bytes(path: &Path) -> Option<u64> {
    let about = if path == Path::new("-") { None } else { path.metadata().ok().filter(std::fs::Metadata::is_file) }?;
    let mut head = Vec::with_capacity(ZSTD.len());
    std::fs::File::open(path).ok()?.take(ZSTD.len() as u64).read_to_end(&mut head).ok()?;
    (!head.starts_with(&GZIP) && !head.starts_with(&ZSTD)).then_some(about.len())
}

/// A `Read` of the bytes that another thread has read ahead and sends through a channel.
struct Pipe {
    receiver: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
    until: Option<Instant>,
    ended: bool,
}

/// Reads pieces from the source and sends them until the receiver is dropped or the source ends. An empty piece is sent
/// for the end of the source.
fn read_ahead(mut source: Box<dyn Read + Send>, pieces: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut piece = vec![0; PIECE];
        let read = match source.read(&mut piece) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            read => read,
        };
        let last = !matches!(read, Ok(1..));
        let sent = pieces.send(read.map(|len| {
            piece.truncate(len);
            piece
        }));
        if last || sent.is_err() {
            return;
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() && !self.ended {
            (self.piece, self.at) = (self.next()?, 0);
            self.ended = self.piece.is_empty();
        }
        let len = into.len().min(self.piece.len() - self.at);
        into[..len].copy_from_slice(&self.piece[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

impl Pipe {
    fn next(&mut self) -> io::Result<Vec<u8>> {
        let received = match self.until {
            None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => self.receiver.try_recv().map_err(|e| match e {
                    mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
                    mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                }),
                wait => self.receiver.recv_timeout(wait),
            },
        };
        match received {
            Ok(piece) => piece,
            Err(RecvTimeoutError::Timeout) => Err(ErrorKind::WouldBlock.into()),
            Err(RecvTimeoutError::Disconnected) => Err(thread_died()),
        }
    }
}

fn thread_died() -> io::Error {
    io::Error::other("the thread that reads the pipe has panicked; please report this")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `Read` that blocks until the channel delivers bytes, as a pipe does.
    struct BlockingReader(Receiver<Vec<u8>>);

    impl Read for BlockingReader {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Ok(bytes) = self.0.recv() else { return Ok(0) };
            into[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    #[test]
    fn a_pipe_without_data_returns_would_block_and_continues_later() {
        let (writer, receiver) = mpsc::channel();
        writer.send(b"head".to_vec()).unwrap();
        let mut input = Input::piped(BlockingReader(receiver)).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(input.read(&mut bytes).unwrap(), 4);
        input.wait_at_most(Duration::from_millis(1));
        assert_eq!(input.read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        input.wait_at_most(Duration::ZERO);
        assert_eq!(input.read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        writer.send(b"more".to_vec()).unwrap();
        input.wait_at_most(Duration::MAX);
        assert_eq!(input.read(&mut bytes).unwrap(), 4);
        assert_eq!(&bytes[..4], b"more");
        drop(writer);
        assert_eq!((input.read(&mut bytes).unwrap(), input.read(&mut bytes).unwrap()), (0, 0));
    }

    #[test]
    fn an_error_of_the_pipe_is_returned_unchanged() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(5))
            }
        }
        assert_eq!(Input::piped(Broken).err().and_then(|e| e.raw_os_error()), Some(5));
        let mut later = Input::piped((&b"head"[..]).chain(Broken)).unwrap();
        let mut all = Vec::new();
        assert_eq!(later.read_to_end(&mut all).unwrap_err().raw_os_error(), Some(5));
        assert_eq!(all, b"head");
    }
}
