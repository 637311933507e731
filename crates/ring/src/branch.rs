//! A branch: descriptors of its own over the packet bytes of a ring, for one reader that gets only some of the packets.
//!
//! Payload is never copied. The writer of a branch is a thread that reads the ring and decides who gets what; the reader is
//! a [`Listener`] like any other: it copies descriptors out of the branch, and looks at the payload in the ring, judged by
//! the claim of the ring's own writer (`protocol`).
//!
//! Invariant: the writer waits for nobody, and every packet that was meant for the reader is either in the branch or counted
//! as lost. It overwrites only what the reader says it has released; where that leaves no room the packet is lost, and a
//! [`Control::Lost`] stands in the branch where it would have been. So what was delivered is known here, exactly, and a
//! reader that is slow, dead or lies about its cursor loses its own packets and nobody else's. What the reader then came
//! too late for, because the ring had overwritten the bytes meanwhile, only it can know ([`Listener::torn`]).

use crate::attach::AttachError;
use crate::desc::{Control, DESC_BYTES, Desc, DescPosition};
use crate::layout::{ControlPage, CursorPage, NAME, PAGE, RingParameters};
use crate::listener::{Listener, Registration};
use crate::listener_registry::Mode;
use crate::memory::RingMemory;
use crate::protocol;
use base::{Cause, Tally, Timestamp};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use sys::memory::SharedMemory;
use sys::unix::Connection;

/// Fewest descriptors of a branch: a huge page of them.
pub const BRANCH_DESCS_MIN: u64 = 64 << 10;
/// Most descriptors of a branch: 128 MiB of them.
pub const BRANCH_DESCS_MAX: u64 = 1 << 22;

/// Descriptors announced ahead of the writer at a time.
const CLAIM: u64 = 1024;
/// Descriptors that packets leave free for controls: a loss, a generation and the end may come together.
const RESERVE: u64 = 4;
/// Bytes of the message that hands a branch over.
const MESSAGE: usize = 24;

/// What a branch is given on the way in: its reader's end.
#[derive(Clone, Debug)]
pub struct Branch {
    memory: Arc<RingMemory>,
    cursor: Arc<CursorPage>,
    shape: RingParameters,
}

/// The writing end; the reader learns of the end of the stream when it is dropped.
#[derive(Debug)]
pub struct BranchWriter {
    memory: Arc<RingMemory>,
    cursor: Arc<CursorPage>,
    next: u64,
    controls: u64,
    published: u64,
    claimed: u64,
    /// Below this a descriptor needs no thought.
    known_free: u64,
    /// The last credible release.
    released: u64,
    /// Lost, and not yet told in the stream.
    unannounced: u64,
    generation: u64,
    announced_generation: u64,
    /// Stamp of the last packet meant for the reader.
    last: Timestamp,
    tally: Tally,
}

impl Branch {
    /// Makes a branch of `descs` descriptors (rounded up to a power of two, within [`BRANCH_DESCS_MIN`] and
    /// [`BRANCH_DESCS_MAX`]) on a ring of this shape.
    ///
    /// # Errors
    /// When the machine has not that much memory, or the process no more file descriptors.
    pub fn grow(
        trunk: &RingMemory,
        shape: &RingParameters,
        name: &str,
        descs: u64,
    ) -> io::Result<(BranchWriter, Self)> {
        let descs = descs.clamp(BRANCH_DESCS_MIN, BRANCH_DESCS_MAX).next_power_of_two();
        let mut label = name.to_owned();
        while label.len() > NAME {
            label.pop();
        }
        let shape = RingParameters { descs, name: label, ..shape.clone() };
        let memory = Arc::new(trunk.branch(&shape)?);
        let cursor = Arc::new(CursorPage::create(0, 0)?);
        let writer = BranchWriter {
            memory: Arc::clone(&memory),
            cursor: Arc::clone(&cursor),
            next: 0,
            controls: 0,
            published: 0,
            claimed: 0,
            known_free: 0,
            released: 0,
            unannounced: 0,
            generation: 0,
            announced_generation: 0,
            last: Timestamp::ZERO,
            tally: Tally::default(),
        };
        Ok((writer, Self { memory, cursor, shape }))
    }

    /// The reader, in this process.
    pub fn listen(&self) -> Listener {
        let start = Some(DescPosition::default());
        let (memory, cursor) = (Arc::clone(&self.memory), Arc::clone(&self.cursor));
        Listener::new(memory, cursor, self.shape.clone(), Mode::Lossy, start, Registration::Branch)
    }

    /// Hands the reader's end to another process: packet bytes, descriptors, control page, the ring's control page, cursor.
    ///
    /// # Errors
    /// What sending says; `BrokenPipe` when the peer has gone.
    pub fn send(&self, connection: &Connection) -> io::Result<()> {
        let mut message = [0; MESSAGE];
        let words = [self.shape.bytes, self.shape.descs, self.shape.queue.into()];
        for (to, from) in message.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        let memory = &self.memory;
        connection.send(
            &message,
            &[
                memory.bytes().as_fd(),
                memory.descs().as_fd(),
                memory.control.memory().as_fd(),
                memory.stream_base().memory().as_fd(),
                self.cursor.memory().as_fd(),
            ],
        )
    }

    /// Takes what [`Branch::send`] has sent.
    ///
    /// # Errors
    /// [`AttachError`]; nothing of what the other side says is believed before it was checked.
    pub fn receive(connection: &Arc<Connection>) -> Result<Listener, AttachError> {
        let mut message = [0; MESSAGE];
        let (n, fds) = connection.receive(&mut message).map_err(AttachError::Unreachable)?;
        let [bytes, descs, control, ground, cursor] =
            <[_; 5]>::try_from(fds).map_err(|_| AttachError::Protocol("a branch without its five descriptors"))?;
        if n != MESSAGE {
            return Err(AttachError::Protocol("a branch of another form"));
        }
        let page = |fd| {
            let memory = SharedMemory::attach_read_only(fd, PAGE, false).map_err(AttachError::Memory)?;
            ControlPage::attach(memory).map_err(AttachError::Protocol)
        };
        let ((control, shape), (ground, below)) = (page(control)?, page(ground)?);
        if shape.bytes != below.bytes || message[..8] != shape.bytes.to_le_bytes() {
            return Err(AttachError::Protocol("a branch that grows on another ring"));
        }
        if message[8..16] != shape.descs.to_le_bytes() {
            return Err(AttachError::Protocol("a branch of two sizes"));
        }
        let bytes = SharedMemory::attach_read_only(bytes, shape.bytes as usize, true).map_err(AttachError::Memory)?;
        let descs = SharedMemory::attach_read_only(descs, shape.descs as usize * DESC_BYTES, true)
            .map_err(AttachError::Memory)?;
        let cursor = SharedMemory::attach_read_write(cursor, PAGE).map_err(AttachError::Memory)?;
        let memory = Arc::new(RingMemory::attached(bytes, descs, control, Some(ground), &shape));
        let (cursor, stay) = (Arc::new(CursorPage::attach(cursor)), Registration::Connection(Arc::clone(connection)));
        Ok(Listener::new(memory, cursor, shape, Mode::Lossy, Some(DescPosition::default()), stay))
    }

    /// What the reader says that it was given, and that it came too late for; for display only.
    pub fn reported(&self) -> (u64, u64) {
        self.cursor.reported()
    }

    /// Its shape.
    pub fn shape(&self) -> &RingParameters {
        &self.shape
    }
}

impl BranchWriter {
    /// Delivers one packet; false, and counted, where the reader has left no room.
    #[inline]
    pub fn push(&mut self, desc: Desc) -> bool {
        self.last = desc.timestamp();
        if self.next >= self.known_free && !self.make_room() {
            self.unannounced += 1;
            return false;
        }
        protocol::store(self.memory.slot(self.next), desc);
        self.next += 1;
        self.tally.stored += 1;
        self.tally.stored_bytes += u64::from(desc.wire_len);
        true
    }

    /// What follows was judged by this generation. It never goes back.
    pub fn set_generation(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
        if self.generation != self.announced_generation {
            // The next packet thinks, and says so before it.
            self.known_free = 0;
        }
    }

    /// Time has reached this second, for readers that nothing else comes to.
    pub fn tick(&mut self, ts: Timestamp) {
        if self.has_room() && self.unannounced == 0 {
            self.put(Desc::control(Control::Tick, ts));
        }
    }

    /// Makes everything written so far visible; call once per batch.
    #[inline]
    pub fn publish(&mut self) {
        if self.next != self.published {
            self.memory.control.positions().publish(self.next, self.controls);
            self.published = self.next;
            self.memory.control.set_flow(&self.tally());
        }
    }

    /// Packets delivered and lost so far.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally;
        tally.add_lost(Cause::RingFull, self.unannounced);
        tally.offered += tally.stored;
        tally
    }

    /// Packets delivered.
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.tally.stored
    }

    /// Packets lost because the reader left no room.
    pub fn lost(&self) -> u64 {
        self.tally.lost[Cause::RingFull as usize] + self.unannounced
    }

    /// How far the reader is behind, as a fraction of the branch.
    pub fn fill(&mut self) -> f64 {
        self.find_slot();
        (self.next - self.released) as f64 / self.memory.desc_capacity() as f64
    }

    /// Looks how far the reader has come, as far as that can be true.
    fn find_slot(&mut self) {
        let (said, _) = self.cursor.released();
        if (self.released..=self.published).contains(&said) {
            self.released = said;
        }
    }

    /// Whether one packet more would find room.
    fn has_room(&mut self) -> bool {
        self.find_slot();
        self.next < self.released + self.memory.desc_capacity() - RESERVE
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        if !self.has_room() {
            self.known_free = 0;
            return false;
        }
        self.announce();
        let end = self.released + self.memory.desc_capacity();
        self.claim((self.next + CLAIM).min(end));
        self.known_free = self.claimed.min(end - RESERVE);
        // Two controls may have been told, and their reserve is larger than that.
        true
    }

    /// Writes down what has changed since the last packet.
    fn announce(&mut self) {
        if self.unannounced > 0 {
            let packets = std::mem::take(&mut self.unannounced);
            let lost = Control::Lost { cause: Cause::RingFull, reader: 0, packets };
            self.put(Desc::control(lost, self.last));
            self.tally.add_lost(Cause::RingFull, packets);
            self.memory.control.set_losses(&self.tally());
        }
        if self.generation != self.announced_generation {
            self.announced_generation = self.generation;
            self.put(Desc::program(self.generation, self.last));
        }
    }

    /// Writes a control; there is room for it in the reserve.
    fn put(&mut self, control: Desc) {
        self.claim(self.next + 1);
        protocol::store(self.memory.slot(self.next), control);
        self.next += 1;
        self.controls += 1;
    }

    fn claim(&mut self, desc: u64) {
        if desc > self.claimed {
            self.claimed = desc;
            // The bytes are not ours to claim; readers of a branch ask their owner.
            self.memory.control.positions().claim(desc, 0);
        }
    }
}

impl Drop for BranchWriter {
    fn drop(&mut self) {
        self.find_slot();
        if self.next + RESERVE <= self.released + self.memory.desc_capacity() {
            self.announce();
            self.put(Desc::control(Control::End, self.last));
        }
        self.publish();
        self.memory.control.set_losses(&self.tally());
        self.memory.control.set_ended();
    }
}
