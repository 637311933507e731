//! A writer with its own thread: the caller continues to read packets while the volume or the pipe is slow. A reader of
//! a pipe gets all bytes within [`TIMEOUT`], even if no further packet arrives.
//!
//! The bytes of one `write` call are never divided between two chunks, so that no reader waits for the second half of a
//! packet.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The preferred size of a write call in bytes. Up to about three chunks of this size are buffered in memory.
const CHUNK: usize = 1 << 20;

/// The longest time that bytes wait in memory for their chunk to be filled before they are written.
const TIMEOUT: Duration = Duration::from_millis(50);

/// A background writer; see the module. If dropped without [`BackgroundWriter::finish`], it writes the remaining bytes
/// and ignores errors.
pub struct BackgroundWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    closed: bool,
    /// The error of the first failed write; later bytes are refused.
    failed: Option<(io::ErrorKind, String)>,
    written: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Neither thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }
}

impl BackgroundWriter {
    /// Starts a writer into `sink`.
    pub fn new(sink: impl Write + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || drain(&of_thread, sink));
        match thread {
            Ok(thread) => Self { shared, thread: Some(thread) },
            Err(e) => {
                shared.lock().failed = Some((e.kind(), format!("cannot start the writing thread: {e}")));
                Self { shared, thread: None }
            }
        }
    }

    /// Waits until all bytes are written; returns their number.
    ///
    /// # Errors
    /// The first error of the sink.
    pub fn finish(mut self) -> io::Result<u64> {
        self.close();
        let state = self.shared.lock();
        state.check().map(|()| state.written)
    }

    fn close(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the message of the panic has been printed already.
            let _ = thread.join();
        }
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.close();
    }
}

impl Write for BackgroundWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        while state.waiting.len() >= CHUNK && state.failed.is_none() {
            state = self.shared.wait(state);
        }
        state.check()?;
        let before = state.waiting.len();
        state.waiting.extend_from_slice(bytes);
        let wakes_thread = before == 0 || before < CHUNK && state.waiting.len() >= CHUNK;
        drop(state);
        if wakes_thread {
            self.shared.changed.notify_all();
        }
        Ok(bytes.len())
    }

    /// A flush only reports errors; the thread writes all bytes within [`TIMEOUT`] without it.
    fn flush(&mut self) -> io::Result<()> {
        self.shared.lock().check()
    }
}

fn drain(shared: &Shared, mut sink: impl Write) {
    let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
    loop {
        let mut state = shared.lock();
        while state.waiting.is_empty() && !state.closed {
            state = shared.wait(state);
        }
        if state.waiting.len() < CHUNK && !state.closed {
            let (more, _) = shared
                .changed
                .wait_timeout_while(state, TIMEOUT, |s| s.waiting.len() < CHUNK && !s.closed)
                .unwrap_or_else(PoisonError::into_inner);
            state = more;
        }
        let last = state.closed;
        std::mem::swap(&mut chunk, &mut state.waiting);
        drop(state);
        shared.changed.notify_all();
        let done = sink.write_all(&chunk).and_then(|()| sink.flush());
        let mut state = shared.lock();
        match done {
            Ok(()) => state.written += chunk.len() as u64,
            Err(e) => {
                state.failed = Some((e.kind(), e.to_string()));
                shared.changed.notify_all();
                return;
            }
        }
        if last && state.waiting.is_empty() {
            return;
        }
        chunk.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::sync::mpsc;

    /// A writer that accepts a few bytes and then fails.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_the_sink_reaches_the_caller_and_never_blocks_it() {
        let mut out = BackgroundWriter::new(Full(3 * CHUNK));
        let reported =
            (0..100).find_map(|_| out.write_all(&[7; CHUNK]).err()).expect("the sink is full after a few chunks");
        assert_eq!(reported.kind(), io::ErrorKind::StorageFull);
        assert_eq!(out.finish().expect_err("still").kind(), io::ErrorKind::StorageFull);
        let mut out = BackgroundWriter::new(Full(2));
        out.write_all(b"abc").expect("the error of the sink is not known yet");
        assert!(out.finish().is_err(), "finish reports that the last bytes were not written");
    }

    #[test]
    fn all_bytes_arrive_in_order_for_any_write_sizes() {
        struct Into(mpsc::Sender<Vec<u8>>);
        impl Write for Into {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut prng = Prng::new(4);
        let (sender, receiver) = mpsc::channel();
        let mut out = BackgroundWriter::new(Into(sender));
        let mut expected = Vec::new();
        for _ in 0..300 {
            let most = if prng.below(20) == 0 { 3 * CHUNK as u64 } else { 3000 };
            let mut bytes = vec![0; prng.below(most) as usize];
            prng.fill(&mut bytes);
            out.write_all(&bytes).expect("the writer accepts all bytes");
            expected.extend(bytes);
        }
        assert_eq!(out.finish().expect("all is written"), expected.len() as u64);
        assert!(receiver.iter().flatten().eq(expected), "the sink received other bytes");
    }

    #[test]
    fn a_small_write_arrives_without_further_writes() {
        struct Lengths(mpsc::Sender<usize>);
        impl Write for Lengths {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, receiver) = mpsc::channel();
        let mut out = BackgroundWriter::new(Lengths(sender));
        out.write_all(b"one packet").expect("the writer accepts all bytes");
        assert_eq!(receiver.recv(), Ok(10));
        drop(out);
    }
}
