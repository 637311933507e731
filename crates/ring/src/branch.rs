//! A branch: a separate descriptor ring over the packet bytes of a ring, for one reader that gets only some packets.
//!
//! A branch never copies packet bytes. The writer of a branch is a thread that reads the ring and decides which reader
//! gets which packet. The reader of a branch is a [`Listener`]. It copies descriptors from the branch and packet bytes
//! from the ring. Then it checks that the ring's producer has not overwritten the bytes: the claim of the producer (see
//! `protocol`) is the position up to which it may write.
//!
//! Invariant: the writer never waits, and every packet meant for the reader is either in the branch or counted as lost.
//! The writer overwrites only descriptors that the reader has released; without free space it counts the packet as lost
//! and writes a [`Control::Lost`] at that point of the branch. So the writer counts the delivered packets exactly, and
//! a reader that is slow, dead or stores a false cursor loses only its own packets. Only the reader can count the
//! packets whose bytes the ring had overwritten before the reader copied them ([`Listener::torn`]).

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

/// Smallest number of descriptors of a branch: they fill a huge page.
pub const BRANCH_DESCS_MIN: u64 = 64 << 10;
/// Largest number of descriptors of a branch; their memory is 128 MiB.
pub const BRANCH_DESCS_MAX: u64 = 1 << 22;

/// Number of descriptors by which the claim (the descriptor up to which the writer may write) is ahead of the next
/// write.
const CLAIM: u64 = 1024;
/// Number of descriptors that are reserved for control descriptors. A loss, a new generation and the end of the branch
/// may occur at the same point of the stream.
const RESERVE: u64 = 4;
/// Length of the message that transfers a branch to another process, in bytes.
const MESSAGE: usize = 24;

/// The reader's end of a branch.
#[derive(Clone, Debug)]
pub struct Branch {
    memory: Arc<RingMemory>,
    cursor: Arc<CursorPage>,
    shape: RingParameters,
}

/// The end of the branch that the writer holds. When it is dropped, the reader receives the end of the stream.
#[derive(Debug)]
pub struct BranchWriter {
    memory: Arc<RingMemory>,
    cursor: Arc<CursorPage>,
    next: u64,
    controls: u64,
    published: u64,
    claimed: u64,
    /// Packets may be written to all descriptors below this index without a check: the descriptors are free and
    /// claimed, and no control descriptor must be written before the next packet.
    known_free: u64,
    /// The last valid release.
    released: u64,
    /// Number of lost packets that no control descriptor has reported yet.
    unannounced: u64,
    generation: u64,
    announced_generation: u64,
    /// Timestamp of the last packet meant for the reader.
    last: Timestamp,
    tally: Tally,
}

impl Branch {
    /// Creates a branch of `descs` descriptors (rounded up to a power of two, within [`BRANCH_DESCS_MIN`] and
    /// [`BRANCH_DESCS_MAX`]) on a ring with these parameters.
    ///
    /// # Errors
    /// If the machine has not enough memory, or the process has no free file descriptors.
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

    /// A reader in this process.
    pub fn listen(&self) -> Listener {
        let start = Some(DescPosition::default());
        let (memory, cursor) = (Arc::clone(&self.memory), Arc::clone(&self.cursor));
        Listener::new(memory, cursor, self.shape.clone(), Mode::Lossy, start, Registration::Branch)
    }

    /// Sends the reader's end to another process, as the file descriptors of five memory files: packet bytes,
    /// descriptors, control page, the ring's control page, and cursor page.
    ///
    /// # Errors
    /// The error of the send; `BrokenPipe` if the peer has closed the connection.
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

    /// Receives the reader's end that [`Branch::send`] sent.
    ///
    /// # Errors
    /// [`AttachError`]; the function checks every value from the peer before use.
    pub fn receive(connection: &Arc<Connection>) -> Result<Listener, AttachError> {
        let mut message = [0; MESSAGE];
        let (n, fds) = connection.receive(&mut message).map_err(AttachError::Unreachable)?;
        let [bytes, descs, control, stream_base, cursor] = <[_; 5]>::try_from(fds)
            .map_err(|_| AttachError::Protocol("a branch message does not carry five file descriptors"))?;
        if n != MESSAGE {
            return Err(AttachError::Protocol("a branch message is malformed"));
        }
        let page = |fd| {
            let memory = SharedMemory::attach_read_only(fd, PAGE, false).map_err(AttachError::Memory)?;
            ControlPage::attach(memory).map_err(AttachError::Protocol)
        };
        let ((control, shape), (stream_base, ring_shape)) = (page(control)?, page(stream_base)?);
        if shape.bytes != ring_shape.bytes || message[..8] != shape.bytes.to_le_bytes() {
            return Err(AttachError::Protocol("the branch belongs to another ring"));
        }
        if message[8..16] != shape.descs.to_le_bytes() {
            return Err(AttachError::Protocol("the sizes of the branch in the message and in the control page differ"));
        }
        let bytes = SharedMemory::attach_read_only(bytes, shape.bytes as usize, true).map_err(AttachError::Memory)?;
        let descs = SharedMemory::attach_read_only(descs, shape.descs as usize * DESC_BYTES, true)
            .map_err(AttachError::Memory)?;
        let cursor = SharedMemory::attach_read_write(cursor, PAGE).map_err(AttachError::Memory)?;
        let memory = Arc::new(RingMemory::attached(bytes, descs, control, Some(stream_base), &shape));
        let (cursor, registration) =
            (Arc::new(CursorPage::attach(cursor)), Registration::Connection(Arc::clone(connection)));
        Ok(Listener::new(memory, cursor, shape, Mode::Lossy, Some(DescPosition::default()), registration))
    }

    /// The counters that the reader reports, for display only: the number of packets received, and the number of
    /// packets whose bytes were overwritten before the reader had copied them.
    pub fn reported(&self) -> (u64, u64) {
        self.cursor.reported()
    }

    /// The parameters of the branch.
    pub fn shape(&self) -> &RingParameters {
        &self.shape
    }
}

impl BranchWriter {
    /// Delivers one packet. Without free space it returns false and counts the packet as lost.
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

    /// Sets the program generation that evaluates the packets that follow. An older generation is ignored.
    pub fn set_generation(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
        if self.generation != self.announced_generation {
            // Makes the next packet call `make_room`, which writes the generation before the packet.
            self.known_free = 0;
        }
    }

    /// Writes a tick for this second, so that a reader without packets receives the time.
    pub fn tick(&mut self, ts: Timestamp) {
        if self.has_room() && self.unannounced == 0 {
            self.put(Desc::control(Control::Tick, ts));
        }
    }

    /// Publishes all descriptors written so far to the readers. Call it once per batch.
    #[inline]
    pub fn publish(&mut self) {
        if self.next != self.published {
            self.memory.control.positions().publish(self.next, self.controls);
            self.published = self.next;
            self.memory.control.set_flow(&self.tally());
        }
    }

    /// The numbers of packets delivered and lost so far.
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

    /// Packets lost because the reader left no free space.
    pub fn lost(&self) -> u64 {
        self.tally.lost[Cause::RingFull as usize] + self.unannounced
    }

    /// The part of the branch that the reader has not released, as a fraction from 0 to 1.
    pub fn fill(&mut self) -> f64 {
        self.read_cursor();
        (self.next - self.released) as f64 / self.memory.desc_capacity() as f64
    }

    /// Reads the reader's cursor. Ignores an impossible value.
    fn read_cursor(&mut self) {
        let (said, _) = self.cursor.released();
        if (self.released..=self.published).contains(&said) {
            self.released = said;
        }
    }

    /// True if the branch has space for the descriptor of one more packet.
    fn has_room(&mut self) -> bool {
        self.read_cursor();
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
        // At most two control descriptors were written above, and the reserved space is larger.
        true
    }

    /// Writes the control descriptors of the events since the last packet: a loss, a new generation.
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

    /// Writes a control descriptor, for which there is always reserved space.
    fn put(&mut self, control: Desc) {
        self.claim(self.next + 1);
        protocol::store(self.memory.slot(self.next), control);
        self.next += 1;
        self.controls += 1;
    }

    fn claim(&mut self, desc: u64) {
        if desc > self.claimed {
            self.claimed = desc;
            // The producer of the ring, not the writer of the branch, claims the packet bytes; readers of a branch
            // check the producer's claim.
            self.memory.control.positions().claim(desc, 0);
        }
    }
}

impl Drop for BranchWriter {
    fn drop(&mut self) {
        self.read_cursor();
        if self.next + RESERVE <= self.released + self.memory.desc_capacity() {
            self.announce();
            self.put(Desc::control(Control::End, self.last));
        }
        self.publish();
        self.memory.control.set_losses(&self.tally());
        self.memory.control.set_ended();
    }
}
