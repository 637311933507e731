//! The dispatcher: one thread for each ring, which reads it as a gate and lets the groups judge.
//!
//! It is a gate because its readers are to be told exactly what they miss, and it yields because packets are evidence and
//! come first (as the meter does, decision 17): more than half a ring behind, it lets packets go and counts them as skipped,
//! until it is less than a quarter behind. It looks before each group judges some packets, so that a slow program holds the ring
//! for no longer than it takes for those, and the group at which it had to stop is the first to judge the next. A live stream
//! that has ended is judged for a while ([`GRACE`]) and no longer. A source that can wait is never shed.
//!
//! Invariant: whatever changes a group changes it between two batches, on this thread. Others leave [`DispatcherCommand`]s and are
//! answered when they have been carried out, so a program is exchanged without a lock on the packets' path, and the answer
//! to a question about the books is of one moment. While there is no group, the ring has no gate.

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

/// Descriptors judged at a time.
pub const BATCH: usize = 256;

/// What the dispatcher's gate is called in tables and in the names of losses.
const READER_NAME: &str = "groups";

/// How long to sleep when there is nothing, so that readers do not wait long; an order wakes.
pub const IDLE_SLEEP: Duration = Duration::from_micros(300);

/// How long to sleep while there is no group.
const REST: Duration = Duration::from_millis(2);

/// How long what is left of a live stream is judged after its end. Nobody is to wait for the end of a recording because a
/// program is slow.
pub const GRACE: Duration = Duration::from_secs(2);

/// What a dispatcher is asked to do.
pub enum DispatcherCommand {
    /// One group more.
    Add {
        /// The group.
        group: Box<Group>,
        /// Told when it gets every packet from there on: the dispatcher has its place at the ring.
        seated: Sender<()>,
    },
    /// One group fewer; its last books.
    Remove(u32, Sender<Option<GroupAccounting>>),
    /// Members of a group have changed, in this place.
    Change {
        /// Which group.
        group: u32,
        /// All of them, from now on.
        membership: Arc<Membership>,
        /// The place.
        slot: u8,
        /// The branch of a newcomer.
        branch: Option<BranchWriter>,
        /// Told when it is done.
        done: Sender<()>,
    },
    /// Another program.
    Swap {
        /// Which group.
        group: u32,
        /// The program.
        swap: Swap,
        /// Told when it is done.
        done: Sender<SwapResult>,
    },
    /// The books of all groups.
    Report(Sender<Vec<GroupAccounting>>),
    /// End.
    Stop,
}

/// A swap that was carried out.
pub struct SwapResult {
    /// When. Whoever ordered it may have to wait for a processor before it hears of it.
    pub at: Instant,
    /// What judged before: whoever ordered it has the time to throw it away.
    pub before: Option<Box<dyn Program>>,
}

/// Where orders are left for a dispatcher.
#[derive(Default)]
pub struct CommandQueue {
    /// Whom to wake.
    dispatcher: OnceLock<Thread>,
    pending: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    list: Vec<DispatcherCommand>,
    /// The dispatcher has ended; its last books.
    ended: Option<Vec<GroupAccounting>>,
    /// It ended before its stream did, and nobody had asked it to.
    early: bool,
}

impl CommandQueue {
    /// Leaves an order. One for a dispatcher that has ended is dropped, and with it whoever waits for the answer is told.
    pub fn leave(&self, order: DispatcherCommand) {
        let mut inner = self.lock();
        if inner.ended.is_none() {
            inner.list.push(order);
            self.pending.store(true, Ordering::Release);
        }
        drop(inner);
        if let Some(thread) = self.dispatcher.get() {
            thread.unpark();
        }
    }

    /// The last books of a dispatcher that has ended.
    pub fn last_accounting(&self) -> Option<Vec<GroupAccounting>> {
        self.lock().ended.clone()
    }

    /// Whether the dispatcher has ended although its stream went on: it panicked.
    pub fn has_failed(&self) -> bool {
        self.lock().early
    }

    /// Whether the dispatcher has ended with its stream, or because it was asked to.
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

    fn close(&self, books: Vec<GroupAccounting>, early: bool) {
        let mut inner = self.lock();
        inner.early = early;
        inner.list.clear();
        inner.ended = Some(books);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock leaves plain data behind, which is as good as before.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a turn was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnResult {
    /// So many descriptors were dealt with.
    Batch(usize),
    /// Nothing now.
    Idle,
    /// The stream has ended, or a stop was ordered.
    End,
}

/// See the module's text.
pub struct Dispatcher {
    memory: Arc<RingMemory>,
    registry: Arc<ListenerRegistry>,
    commands: Arc<CommandQueue>,
    /// Packets come whether there is room or not.
    live: bool,
    reader: Option<LosslessReader>,
    groups: Vec<Group>,
    /// Who waits until their groups get packets.
    newcomers: Vec<Sender<()>>,
    descs: Vec<Desc>,
    done: DescPosition,
    shedding: bool,
    /// The group that judges first.
    first: usize,
    grace: Duration,
    /// When the stream's end was first seen.
    ended: Option<Instant>,
    stopped: bool,
}

impl Dispatcher {
    /// For this ring. It joins when the first group comes.
    pub fn new(offer: &OfferedRing, orders: Arc<CommandQueue>, live: bool) -> Self {
        Self {
            memory: Arc::clone(&offer.memory),
            registry: Arc::clone(&offer.hub),
            commands: orders,
            live,
            reader: None,
            groups: Vec::new(),
            newcomers: Vec::new(),
            descs: Vec::with_capacity(BATCH),
            done: DescPosition::default(),
            shedding: false,
            first: 0,
            grace: GRACE,
            ended: None,
            stopped: false,
        }
    }

    /// Judges for so long after the end of a live stream.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Joins before the ring's writer begins, so that the groups that are there by then get everything.
    ///
    /// # Errors
    /// When the ring has no place for one more gate.
    pub fn slot(&mut self, producer: &mut Producer) -> Result<(), JoinError> {
        let (memory, hub) = (&self.memory, &self.registry);
        let gate = std::thread::scope(|scope| {
            let asking = scope.spawn(|| LosslessReader::join(memory, hub, READER_NAME));
            // Nobody writes yet: the request is answered here, as the writer will later.
            while !asking.is_finished() {
                producer.service();
                std::thread::sleep(Duration::from_micros(100));
            }
            asking.join().unwrap_or(Err(JoinError::NoAnswer))
        })?;
        self.take_reader(gate);
        Ok(())
    }

    fn take_reader(&mut self, gate: LosslessReader) {
        (self.done, self.shedding) = (gate.released(), false);
        self.reader = Some(gate);
    }

    /// Works until the stream ends.
    pub fn run(mut self) {
        sys::cpu::sleep_exactly();
        // Set once: a dispatcher has its orders for itself.
        let _ = self.commands.dispatcher.set(std::thread::current());
        loop {
            match self.turn() {
                TurnResult::Batch(_) => {}
                TurnResult::Idle => std::thread::park_timeout(if self.reader.is_some() { IDLE_SLEEP } else { REST }),
                TurnResult::End => return,
            }
        }
    }

    /// Carries out what was ordered, then deals with one batch.
    pub fn turn(&mut self) -> TurnResult {
        for order in self.commands.take() {
            self.carry_out(order);
        }
        if self.stopped {
            return TurnResult::End;
        }
        if self.groups.is_empty() {
            self.reader = None;
            // Those whose groups have gone again wait no longer either.
            for seated in self.newcomers.drain(..) {
                let _ = seated.send(());
            }
            // Without a gate it sees no end but this one.
            return if self.memory.control.ended() { TurnResult::End } else { TurnResult::Idle };
        }
        if self.reader.is_none() {
            // The ring's writer answers between two of its batches. It may not have begun yet, or all places may be taken.
            let Ok(gate) = LosslessReader::join(&self.memory, &self.registry, READER_NAME) else {
                return if self.memory.control.ended() { TurnResult::End } else { TurnResult::Idle };
            };
            self.take_reader(gate);
        }
        for seated in self.newcomers.drain(..) {
            let _ = seated.send(());
        }
        self.batch()
    }

    fn carry_out(&mut self, order: DispatcherCommand) {
        // Whoever no longer waits for an answer does not need it.
        match order {
            DispatcherCommand::Add { group, seated } => {
                self.groups.push(*group);
                self.newcomers.push(seated);
            }
            DispatcherCommand::Remove(id, reply) => {
                let gone = self.groups.iter().position(|g| g.id() == id).map(|i| self.groups.remove(i).accounting());
                let _ = reply.send(gone);
            }
            DispatcherCommand::Change { group, membership, slot: place, branch, done } => {
                if let Some(group) = self.groups.iter_mut().find(|g| g.id() == group) {
                    group.change(membership, place, branch);
                }
                let _ = done.send(());
            }
            DispatcherCommand::Swap { group, swap, done } => {
                let group = self.groups.iter_mut().find(|g| g.id() == group);
                let before = group.and_then(|group| group.swap(swap));
                let _ = done.send(SwapResult { at: Instant::now(), before });
            }
            DispatcherCommand::Report(reply) => {
                let _ = reply.send(self.books());
            }
            DispatcherCommand::Stop => self.stopped = true,
        }
    }

    fn books(&mut self) -> Vec<GroupAccounting> {
        self.groups.iter_mut().map(Group::accounting).collect()
    }

    fn batch(&mut self) -> TurnResult {
        let Some(gate) = &mut self.reader else { return TurnResult::Idle };
        // Asked first: what was published before the end is seen by the look that follows.
        let ended = gate.ended();
        self.descs.clear();
        self.descs.extend_from_slice(gate.next(BATCH));
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
        let gate = &*gate;
        let packets = descs.iter().filter(|d| d.is_packet());
        if *shedding {
            let packets = packets.count() as u64;
            groups.iter_mut().for_each(|g| g.skip(packets));
        } else {
            let mut batch = Vec::with_capacity(descs.len());
            batch.extend(packets.map(|desc| Packet {
                desc,
                bytes: gate.bytes(desc.pos + RECORD_HEADER as u64, desc.caplen.into()),
                wire_len: wire_len(gate, desc),
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
        if let Some(gate) = &mut self.reader {
            gate.release(self.done);
        }
        TurnResult::Batch(self.descs.len())
    }
}

/// More than a ring's `part` lies between this place and the writer.
fn is_behind(memory: &RingMemory, done: DescPosition, part: u64) -> bool {
    let written = memory.control.positions();
    written.oldest_pos(memory.byte_capacity() / part) > done.pos
        || written.oldest_desc(memory.desc_capacity() / part) > done.desc
}

/// Its length on the wire; the descriptor has no room for long ones.
#[inline]
fn wire_len(gate: &LosslessReader, desc: &Desc) -> u32 {
    if desc.wire_len < u16::MAX {
        return desc.wire_len.into();
    }
    let header = gate.bytes(desc.pos + 12, 4);
    header.try_into().map_or(u32::from(u16::MAX), u32::from_le_bytes)
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // The ring is let go before anybody is told.
        self.reader = None;
        let books = self.books();
        self.commands.close(books, !self.stopped && !self.memory.control.ended());
    }
}
