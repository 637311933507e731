//! The dispatcher: one thread for each ring, which reads the ring losslessly and runs the programs of the groups.
//!
//! The dispatcher is a lossless reader, because the accounting of the groups' members must be exact. Recording has
//! precedence over groups, so the dispatcher sheds load as the meter does (decision 17). When the dispatcher is more
//! than half of the ring behind the producer, it skips packets and counts them as skipped, until it is less than a
//! quarter of the ring behind. The dispatcher checks its distance from the producer before each group evaluates a chunk
//! of the batch (up to 64 packets), so a slow program delays the release of packets by no more than one chunk. If the
//! dispatcher has to stop at a group, that group evaluates first in the next batch. After the end of a live stream the
//! dispatcher continues for at most [`GRACE`]. If the source can wait, as a capture file can, the dispatcher skips no
//! packet.
//!
//! Invariant: groups change only between two batches and only on this thread. Other threads queue
//! [`DispatcherCommand`]s, and the dispatcher replies when it has carried out the command. Therefore the packet path
//! needs no lock for a swap, and all counters of a report were read between the same two batches. While there is no
//! group, the dispatcher has no reader in the ring.

use crate::group::{CHUNK, Group, GroupAccounting, Swap};
use crate::members::Membership;
use crate::verdict::{Packet, Program};
use ring::{
    BranchWriter, Control, Desc, DescPosition, FILE_HEADER, JoinError, ListenerRegistry, LosslessReader, OfferedRing,
    Producer, RECORD_HEADER, RingMemory,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Descriptors per batch.
pub const BATCH: usize = 256;

/// Name of the dispatcher's lossless reader in tables and in loss causes.
const READER_NAME: &str = "groups";

/// Sleep time when the ring has no new descriptors. The time is short, so that packets reach the members with little
/// delay. A command wakes the thread.
pub const IDLE_SLEEP: Duration = Duration::from_micros(300);

/// Sleep time while there is no group. A command wakes the thread, so this time only bounds how late the thread sees
/// the end of the stream.
const IDLE_SLEEP_WITHOUT_GROUP: Duration = Duration::from_millis(100);

/// The time for which the dispatcher continues to evaluate packets after the end of a live stream. Without this limit,
/// a slow program could delay the end of a recording.
pub const GRACE: Duration = Duration::from_secs(2);

/// A command to a dispatcher.
pub enum DispatcherCommand {
    /// Add a group.
    Add {
        /// The group.
        group: Box<Group>,
        /// The channel on which the dispatcher reports that it has joined the ring. From then on the group receives
        /// every packet.
        joined: Sender<()>,
    },
    /// Remove a group and reply with its final accounting.
    Remove(u32, Sender<Option<GroupAccounting>>),
    /// Change the members of a group in one member slot.
    Change {
        /// The group's id.
        group: u32,
        /// All members from now on.
        membership: Arc<Membership>,
        /// The member slot that changed.
        slot: u8,
        /// The branch of the member that has joined in this slot; `None` if no member has joined.
        branch: Option<BranchWriter>,
        /// Notified when the change is done.
        done: Sender<()>,
    },
    /// Swap the program of a group.
    Swap {
        /// The group's id.
        group: u32,
        /// The new program.
        swap: Swap,
        /// Gets the result.
        done: Sender<SwapResult>,
    },
    /// Reply with the accounting of all groups.
    Report(Sender<Vec<GroupAccounting>>),
    /// End the thread.
    Stop,
}

/// The result of a swap.
pub struct SwapResult {
    /// Time of the swap, measured by the dispatcher. The thread that sent the command may be scheduled much later.
    pub at: Instant,
    /// The program before the swap. The sender of the command drops this program, because the drop can take long.
    pub before: Option<Box<dyn Program>>,
}

/// The commands that wait for a dispatcher.
#[derive(Default)]
pub struct CommandQueue {
    /// The thread to wake.
    dispatcher: OnceLock<Thread>,
    pending: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    list: Vec<DispatcherCommand>,
    /// The final accounting, once the dispatcher has ended.
    ended: Option<Vec<GroupAccounting>>,
    /// True if the dispatcher ended before the stream of its ring ended, and without a stop command.
    early: bool,
}

impl CommandQueue {
    /// Queues a command. If the dispatcher has ended, the command is dropped, which closes its reply channel.
    pub fn push(&self, command: DispatcherCommand) {
        let mut inner = self.lock();
        if inner.ended.is_none() {
            inner.list.push(command);
            self.pending.store(true, Ordering::Release);
        }
        drop(inner);
        if let Some(thread) = self.dispatcher.get() {
            thread.unpark();
        }
    }

    /// Returns the final accounting of a dispatcher that has ended.
    pub fn last_accounting(&self) -> Option<Vec<GroupAccounting>> {
        self.lock().ended.clone()
    }

    /// True if the dispatcher has ended although the stream of its ring continued. This happens only if the dispatcher
    /// panicked.
    pub fn has_failed(&self) -> bool {
        self.lock().early
    }

    /// True if the dispatcher has ended because the stream of its ring ended, or because of a stop command.
    pub fn has_ended_well(&self) -> bool {
        let inner = self.lock();
        inner.ended.is_some() && !inner.early
    }

    #[inline]
    fn take(&self) -> Vec<DispatcherCommand> {
        if !self.pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inner = self.lock();
        self.pending.store(false, Ordering::Release);
        std::mem::take(&mut inner.list)
    }

    fn close(&self, accounting: Vec<GroupAccounting>, early: bool) {
        let mut inner = self.lock();
        inner.early = early;
        inner.list.clear();
        inner.ended = Some(accounting);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic cannot leave the plain data under this lock inconsistent, so a poisoned lock is used too.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnResult {
    /// The dispatcher processed this many descriptors.
    Batch(usize),
    /// There were no new descriptors.
    Idle,
    /// The stream has ended, or a stop command arrived.
    End,
}

/// The state of a dispatcher; see the module documentation.
pub struct Dispatcher {
    memory: Arc<RingMemory>,
    registry: Arc<ListenerRegistry>,
    commands: Arc<CommandQueue>,
    /// True if the source cannot wait until the ring has space, so the dispatcher must shed load.
    live: bool,
    reader: Option<LosslessReader>,
    groups: Vec<Group>,
    /// The channels on which the dispatcher reports that it has joined the ring.
    joining: Vec<Sender<()>>,
    descs: Vec<Desc>,
    done: DescPosition,
    shedding: bool,
    /// Index of the group that evaluates first.
    first: usize,
    grace: Duration,
    /// The time at which the dispatcher first saw the end of the stream.
    ended: Option<Instant>,
    stopped: bool,
}

impl Dispatcher {
    /// Makes a dispatcher for this ring. The dispatcher joins the ring when the first group is added.
    pub fn new(offer: &OfferedRing, commands: Arc<CommandQueue>, live: bool) -> Self {
        Self {
            memory: Arc::clone(&offer.memory),
            registry: Arc::clone(&offer.registry),
            commands,
            live,
            reader: None,
            groups: Vec::new(),
            joining: Vec::new(),
            descs: Vec::with_capacity(BATCH),
            done: DescPosition::default(),
            shedding: false,
            first: 0,
            grace: GRACE,
            ended: None,
            stopped: false,
        }
    }

    /// Sets the time limit that replaces `GRACE`.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Joins the ring before the producer starts, so that the groups added so far receive every packet.
    ///
    /// # Errors
    /// The ring has no slot for another lossless reader.
    pub fn join_ring(&mut self, producer: &mut Producer) -> Result<(), JoinError> {
        let (memory, registry) = (&self.memory, &self.registry);
        let reader = std::thread::scope(|scope| {
            let thread = scope.spawn(|| LosslessReader::join(memory, registry, READER_NAME));
            // The producer's thread does not run yet, so this loop serves the join request instead of that thread.
            while !thread.is_finished() {
                producer.service();
                std::thread::sleep(Duration::from_micros(100));
            }
            thread.join().unwrap_or(Err(JoinError::NoAnswer))
        })?;
        self.take_reader(reader);
        Ok(())
    }

    fn take_reader(&mut self, reader: LosslessReader) {
        (self.done, self.shedding) = (reader.released(), false);
        self.reader = Some(reader);
    }

    /// Runs until the stream ends.
    pub fn run(mut self) {
        sys::cpu::sleep_exactly();
        // `set` succeeds, because no other dispatcher uses this command queue.
        let _ = self.commands.dispatcher.set(std::thread::current());
        loop {
            match self.turn() {
                TurnResult::Batch(_) => {}
                TurnResult::Idle => {
                    std::thread::park_timeout(if self.reader.is_some() { IDLE_SLEEP } else { IDLE_SLEEP_WITHOUT_GROUP })
                }
                TurnResult::End => return,
            }
        }
    }

    /// Carries out the waiting commands, then processes one batch.
    pub fn turn(&mut self) -> TurnResult {
        for command in self.commands.take() {
            self.carry_out(command);
        }
        if self.stopped {
            return TurnResult::End;
        }
        if self.groups.is_empty() {
            self.reader = None;
            // Notify all threads that wait until the dispatcher has joined the ring, also those whose group was removed
            // before that.
            for joined in self.joining.drain(..) {
                let _ = joined.send(());
            }
            // The dispatcher has no reader, so only the end flag of the ring shows that the stream has ended.
            return if self.memory.control.ended() { TurnResult::End } else { TurnResult::Idle };
        }
        if self.reader.is_none() {
            // The producer serves a join request between two batches. The join fails if the producer has not started,
            // or if no slot for a lossless reader is free.
            let Ok(reader) = LosslessReader::join(&self.memory, &self.registry, READER_NAME) else {
                return if self.memory.control.ended() { TurnResult::End } else { TurnResult::Idle };
            };
            self.take_reader(reader);
        }
        for joined in self.joining.drain(..) {
            let _ = joined.send(());
        }
        self.batch()
    }

    fn carry_out(&mut self, command: DispatcherCommand) {
        // If a reply cannot be sent, the sender of the command no longer waits, because its time limit has passed. So
        // these errors are ignored.
        match command {
            DispatcherCommand::Add { group, joined } => {
                self.groups.push(*group);
                self.joining.push(joined);
            }
            DispatcherCommand::Remove(id, reply) => {
                let gone = self.groups.iter().position(|g| g.id() == id).map(|i| self.groups.remove(i).accounting());
                let _ = reply.send(gone);
            }
            DispatcherCommand::Change { group, membership, slot, branch, done } => {
                if let Some(group) = self.groups.iter_mut().find(|g| g.id() == group) {
                    group.change(membership, slot, branch);
                }
                let _ = done.send(());
            }
            DispatcherCommand::Swap { group, swap, done } => {
                let group = self.groups.iter_mut().find(|g| g.id() == group);
                let before = group.and_then(|group| group.swap(swap));
                let _ = done.send(SwapResult { at: Instant::now(), before });
            }
            DispatcherCommand::Report(reply) => {
                let _ = reply.send(self.accounting());
            }
            DispatcherCommand::Stop => self.stopped = true,
        }
    }

    fn accounting(&mut self) -> Vec<GroupAccounting> {
        self.groups.iter_mut().map(Group::accounting).collect()
    }

    fn batch(&mut self) -> TurnResult {
        let Some(reader) = &mut self.reader else { return TurnResult::Idle };
        // Read the end flag before the descriptors. If the flag is set, the read that follows returns everything
        // published before the end.
        let ended = reader.ended();
        self.descs.clear();
        self.descs.extend_from_slice(reader.next(BATCH));
        if self.descs.is_empty() {
            return if ended { TurnResult::End } else { TurnResult::Idle };
        }
        if ended {
            self.ended.get_or_insert_with(Instant::now);
        }
        let Self { memory, live, groups, descs, done, shedding, first, grace, ended, .. } = self;
        let is_late =
            |part| *live && (is_behind(memory, *done, part) || ended.is_some_and(|at| at.elapsed() >= *grace));
        *shedding = is_late(if *shedding { 4 } else { 2 });
        let reader = &*reader;
        let packets = descs.iter().filter(|d| d.is_packet());
        if *shedding {
            let packets = packets.count() as u64;
            groups.iter_mut().for_each(|g| g.skip(packets));
        } else {
            let mut batch = Vec::with_capacity(descs.len());
            batch.extend(packets.map(|desc| Packet {
                desc,
                bytes: reader.bytes(desc.pos() + RECORD_HEADER as u64, desc.caplen.into()),
                wire_len: wire_len(reader, desc),
            }));
            let (begin, count) = (*first, groups.len());
            for some in batch.chunks(CHUNK) {
                for index in (0..count).map(|i| (begin + i) % count) {
                    if !*shedding && is_late(2) {
                        (*shedding, *first) = (true, index);
                    }
                    if *shedding {
                        groups[index].skip(some.len() as u64);
                    } else {
                        groups[index].judge(some);
                    }
                }
            }
            groups.iter_mut().for_each(Group::publish);
        }
        for desc in &self.descs {
            match desc.as_control() {
                None if desc.is_packet() => self.done.pos = desc.end(),
                Some(Control::Segment { pos, .. }) => self.done.pos = pos + FILE_HEADER as u64,
                Some(Control::Tick) => self.groups.iter_mut().for_each(|g| g.tick(desc.timestamp())),
                _ => {}
            }
        }
        self.done.desc += self.descs.len() as u64;
        if let Some(reader) = &mut self.reader {
            reader.release(self.done);
        }
        TurnResult::Batch(self.descs.len())
    }
}

/// True if the position `done` is behind the position of the producer by more than the ring's capacity, in bytes or in
/// descriptors, divided by `part`.
fn is_behind(memory: &RingMemory, done: DescPosition, part: u64) -> bool {
    let written = memory.control.positions();
    written.oldest_pos(memory.byte_capacity() / part) > done.pos
        || written.oldest_desc(memory.desc_capacity() / part) > done.desc
}

/// Returns the length on the wire. The length in the descriptor saturates at 65,535; in that case the record header
/// contains the exact length.
#[inline]
fn wire_len(reader: &LosslessReader, desc: &Desc) -> u32 {
    if desc.wire_len < u16::MAX {
        return desc.wire_len.into();
    }
    let header = reader.bytes(desc.pos() + 12, 4);
    header.try_into().map_or(u32::from(u16::MAX), u32::from_le_bytes)
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // Leave the ring before any waiting thread is notified.
        self.reader = None;
        let accounting = self.accounting();
        self.commands.close(accounting, !self.stopped && !self.memory.control.ended());
    }
}
