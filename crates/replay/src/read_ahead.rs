//! Reads the capture ahead of the sending loop, in a separate thread, into a bounded number of blocks.
//!
//! Invariant: the blocks are allocated at the begin and circulate between the two threads, so the memory does not
//! depend on the length of the capture. The reading thread waits for an empty block, the sending loop for a full block.

use crate::prepare::{BLOCK_BYTES, Block, Preparer};
use crate::stream::{OpenStream, StreamError, StreamFindings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// The smallest number of blocks: the sending loop sends one block while the reading thread fills the other.
const LEAST_BLOCKS: usize = 2;

/// The longest wait between two checks of the stop flag.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// The longest wait for a full buffer before the replay begins.
const FILL_MAX: Duration = Duration::from_secs(2);

enum Message {
    Block(Block),
    End(Result<StreamFindings, StreamError>),
}

/// The receiving end of the reading thread: the sending loop takes full blocks and returns empty blocks.
pub struct ReadAhead {
    full: Receiver<Message>,
    empty: SyncSender<Block>,
    state: Arc<State>,
    blocks: usize,
    end: Option<StreamFindings>,
    waits: u64,
}

#[derive(Default)]
struct State {
    full: AtomicUsize,
    ended: AtomicBool,
}

impl ReadAhead {
    /// Starts the thread. It reads the capture `passes` times (0: without end) and buffers about `bytes` bytes.
    ///
    /// # Errors
    /// If the system permits no further thread.
    pub fn start(open: OpenStream, passes: u64, preparer: Preparer, bytes: usize) -> std::io::Result<Self> {
        let blocks = (bytes / BLOCK_BYTES).max(LEAST_BLOCKS);
        let (sender, full) = sync_channel(blocks + 1);
        let (empty, receiver) = sync_channel(blocks);
        for _ in 0..blocks {
            let _ = empty.send(Block::default());
        }
        let state = Arc::new(State::default());
        let mut filler = Filler { full: sender, empty: receiver, state: Arc::clone(&state) };
        std::thread::Builder::new().name("replay-reader".to_owned()).spawn(move || {
            if let Some(end) = filler.read(open, passes, preparer).transpose() {
                filler.state.ended.store(true, Ordering::Release);
                let _ = filler.full.send(Message::End(end));
            }
        })?;
        Ok(Self { full, empty, state, blocks, end: None, waits: 0 })
    }

    /// Waits until the buffer is full or the capture was read to its end, at most two seconds.
    pub fn fill(&self, stop: &AtomicBool) {
        let begun = Instant::now();
        while self.state.full.load(Ordering::Acquire) < self.blocks
            && !self.state.ended.load(Ordering::Acquire)
            && !stop.load(Ordering::Relaxed)
            && begun.elapsed() < FILL_MAX
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The next block; `None` at the end, or when `stop` is set.
    ///
    /// # Errors
    /// The error that ended the reading of the capture. All blocks that were read before the error have been returned.
    pub fn next(&mut self, stop: &AtomicBool) -> Result<Option<Block>, StreamError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let message = match self.full.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => return Err(StreamError::ReaderDied),
            Err(TryRecvError::Empty) => {
                self.waits += 1;
                loop {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    match self.full.recv_timeout(STOP_CHECK) {
                        Ok(message) => break message,
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return Err(StreamError::ReaderDied),
                    }
                }
            }
        };
        match message {
            Message::Block(block) => {
                self.state.full.fetch_sub(1, Ordering::AcqRel);
                Ok(Some(block))
            }
            Message::End(Ok(findings)) => {
                self.end = Some(findings);
                Ok(None)
            }
            Message::End(Err(e)) => {
                self.end = Some(StreamFindings::default());
                Err(e)
            }
        }
    }

    /// Returns an empty block to the reading thread.
    pub fn recycle(&self, mut block: Block) {
        block.clear();
        let _ = self.empty.try_send(block);
    }

    /// Number of times that the sending loop had to wait for the reading thread.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Damage and other findings in the inputs during the first pass; `None` if the capture was not read to its end.
    pub fn findings(&self) -> Option<&StreamFindings> {
        self.end.as_ref()
    }
}

/// The reading thread.
struct Filler {
    full: SyncSender<Message>,
    empty: Receiver<Block>,
    state: Arc<State>,
}

impl Filler {
    /// Reads all passes over the capture; `None` if the sending loop ended before all passes were read.
    fn read(
        &mut self,
        mut open: OpenStream,
        passes: u64,
        mut preparer: Preparer,
    ) -> Result<Option<StreamFindings>, StreamError> {
        let mut findings = None;
        let mut pass = 0;
        while passes == 0 || pass < passes {
            let mut stream = open()?;
            let Some(mut block) = self.empty_block() else { return Ok(None) };
            let mut has_frames = false;
            loop {
                let packet = match stream.next() {
                    Ok(Some(packet)) => packet,
                    Ok(None) => break,
                    Err(e) => {
                        self.push(block);
                        return Err(e);
                    }
                };
                let mut is_complete = preparer.take(&packet, pass, &mut block);
                while !is_complete || block.is_full() {
                    has_frames = true;
                    let Some(next) = self.empty_block_after(block) else { return Ok(None) };
                    block = next;
                    is_complete = preparer.more(&mut block);
                }
            }
            has_frames |= !block.frames.is_empty();
            block.ends_pass = true;
            if !self.push(block) {
                return Ok(None);
            }
            findings.get_or_insert_with(|| stream.findings());
            pass += 1;
            // If no frame is made of the capture, further passes would send nothing, and with `passes` 0 they would
            // have no end.
            if !has_frames {
                break;
            }
        }
        Ok(Some(findings.unwrap_or_default()))
    }

    fn empty_block(&self) -> Option<Block> {
        self.empty.recv().ok()
    }

    fn empty_block_after(&self, full: Block) -> Option<Block> {
        self.push(full).then(|| self.empty_block())?
    }

    /// Passes a block to the sending loop; false if the loop has ended.
    fn push(&self, block: Block) -> bool {
        self.state.full.fetch_add(1, Ordering::AcqRel);
        self.full.send(Message::Block(block)).is_ok()
    }
}
