//! The user part of an interface's program: one instance per queue, in the engine thread, between the source and the
//! ring.
//!
//! A packet arrives partly decided or undecided. For a partly decided packet the kernel part wrote a record before the
//! packet, and the user part continues the program from that record. For an undecided packet the user part runs the
//! whole program. A packet also arrives with the generation of the program that processed it; the generation may be
//! missing if it is the last one that the queue has acknowledged ([`XdpDispatcher::acknowledge`]). The next program
//! waits in a mailbox until the first packet of its generation arrives. A queue sees the kernel's programs in
//! succession, so the user part and the kernel part that process a packet always belong to the same program, without a
//! lock per packet.

use crate::accounting::MapUsage;
use crate::forward_queue::ForwardQueue;
use base::Timestamp;
use capture::afxdp::XdpDispatcher;
use capture::egress::Egress;
use ir::Facts;
use ir::interp::Action;
use ir::{COUNTERS, Map, VerdictKind};
use jit::{Packet, Verdict, Worker};
use kernel_programs::{KernelVerdict, METADATA_BYTES};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// More than the packets that a queue's memory can hold: after this many packets without a generation, all packets that
/// arrived before the swap have been read.
const MAX_UNDER_WAY: u64 = 1 << 17;

/// The user part of one program for one queue.
pub(crate) struct UserPart {
    /// The generation; each program of an interface has one more than the previous program.
    pub generation: u32,
    /// True if a packet may arrive without its generation.
    pub may_be_silent: bool,
    /// True if the kernel part runs all stages.
    pub all_in_kernel: bool,
    /// The instance that evaluates packets.
    pub worker: Worker,
    /// One plus the index of the interface among the program's devices, or 0.
    pub ingress: u16,
    /// True if the program also forwards packets that this host sent.
    pub forwards_own: bool,
    /// The program's egress interfaces.
    pub devices: Arc<Vec<Egress>>,
}

/// The next programs of a queue.
#[derive(Default)]
pub(crate) struct ProgramMailbox {
    waiting: AtomicBool,
    /// The last generation that the queue acknowledged to the kernel.
    reported: AtomicU32,
    mailbox: Mutex<Mailbox>,
}

#[derive(Default)]
struct Mailbox {
    user_parts: VecDeque<UserPart>,
    /// The interface, if its XDP program marks packets with their generation. The sources own it.
    port: Option<Weak<XdpDispatcher>>,
}

/// Outcomes of the packets that the program decided in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserOutcomes {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets sent out of another interface and not stored.
    pub forwarded: u64,
    /// Packets passed to the host and not stored.
    pub to_host: u64,
    /// Packets that no egress interface took, or that could not be passed to the host. Together with the three counters
    /// above: all packets that do not go on to the ring.
    pub unsent: u64,
    /// Copies of stored packets sent out of other interfaces.
    pub copies: u64,
    /// Copies that an egress interface did not take, counted once per interface, of packets that were stored, were sent
    /// out of another interface or were passed to the host.
    pub copies_unsent: u64,
    /// Packets that the program forwards but that this host had sent: to forward them could make them circulate between
    /// its interfaces.
    pub forward_own: u64,
}

/// The programs of one queue, in succession.
pub struct ProgramSequence {
    user_part: UserPart,
    mailbox: Arc<ProgramMailbox>,
    /// The properties of the queue.
    place: QueueInfo,
    decided: UserOutcomes,
    forward_queue: ForwardQueue,
    /// Packets with an older generation than a packet before them, or with an unknown generation: bugs.
    strays: u64,
    newest: u32,
    /// Packets without a generation while a program was waiting.
    silent: u64,
    /// True if a packet of this batch has already queried the kernel for the generation of packets that have none.
    asked: bool,
}

/// The properties of a queue that apply to all its packets.
#[derive(Clone, Copy, Debug)]
pub struct QueueInfo {
    /// The pcap link type of the frames.
    pub link_type: u16,
    /// The queue's number.
    pub queue: u16,
    /// True if the host gets all packets, independent of the program.
    pub host_has_it: bool,
}

/// A packet before the ring.
pub struct IncomingPacket<'a> {
    /// The bytes that the kernel part wrote.
    pub metadata: &'a [u8],
    /// The packet's bytes, as they would be stored.
    pub bytes: &'a [u8],
    /// The length on the wire.
    pub wire_len: u32,
    /// The packet's timestamp.
    pub ts: Timestamp,
    /// True if this host sent the packet.
    pub outgoing: bool,
}

/// The descriptor fields of a packet that goes on to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPacket {
    /// The hash by which the program steers, if it does.
    pub hash: Option<u32>,
    /// The mark.
    pub mark: u32,
}

impl UserOutcomes {
    /// Adds the outcome of one more packet.
    pub(crate) fn account(&mut self, one: &Self) {
        self.dropped += one.dropped;
        self.forwarded += one.forwarded;
        self.to_host += one.to_host;
        self.unsent += one.unsent;
        self.copies += one.copies;
        self.copies_unsent += one.copies_unsent;
        self.forward_own += one.forward_own;
    }
}

impl ProgramMailbox {
    /// Appends the next program.
    pub fn post(&self, half: UserPart) {
        let mut letters = self.lock();
        letters.user_parts.push_back(half);
        self.waiting.store(true, Ordering::Release);
    }

    /// Removes a program whose swap failed.
    pub fn retract(&self, generation: u32) {
        let mut letters = self.lock();
        letters.user_parts.retain(|half| half.generation != generation);
        self.waiting.store(!letters.user_parts.is_empty(), Ordering::Release);
    }

    /// Sets the interface that the packets come from. The queue has acknowledged no generation to a newly opened
    /// interface.
    pub fn comes_from(&self, port: Option<Weak<XdpDispatcher>>) {
        let mut letters = self.lock();
        letters.port = port;
        self.reported.store(0, Ordering::Release);
    }

    /// Returns the next program if a packet of `queue` with this generation (or with none) belongs to that program.
    fn take(&self, came_with: Option<u32>, queue: u16) -> Option<UserPart> {
        let mut letters = self.lock();
        let due = letters.user_parts.front().is_some_and(|next| match (came_with, &letters.port) {
            (Some(generation), _) => next.generation <= generation,
            (None, None) => true,
            // The current program processed the packet, unless packets of the next program cannot carry their
            // generation.
            (None, Some(port)) => {
                let mute = port.upgrade().and_then(|port| port.last_untagged(queue.into()).ok());
                mute.is_some_and(|mute| next.generation <= mute)
            }
        });
        let next = if due { letters.user_parts.pop_front() } else { None };
        self.waiting.store(!letters.user_parts.is_empty(), Ordering::Release);
        next
    }

    /// Acknowledges to the kernel that a packet of this generation has arrived in `queue`: later packets need no
    /// generation.
    fn send(&self, queue: u16, generation: u32) {
        let letters = self.lock();
        if self.reported.swap(generation, Ordering::AcqRel) == generation {
            return;
        }
        if let Some(port) = letters.port.as_ref().and_then(Weak::upgrade) {
            // If the acknowledgement fails, packets continue to carry their generation.
            let _ = port.acknowledge(queue.into(), generation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgramSequence {
    pub(crate) fn new(half: UserPart, letters: Arc<ProgramMailbox>, place: QueueInfo) -> Self {
        let newest = half.generation;
        let (decided, forward_queue) = Default::default();
        Self {
            user_part: half,
            mailbox: letters,
            place,
            decided,
            forward_queue,
            strays: 0,
            newest,
            silent: 0,
            asked: false,
        }
    }

    /// Evaluates the packet; `None` if it does not go on to the ring.
    #[inline]
    pub fn judge(&mut self, packet: &IncomingPacket<'_>) -> Option<RingPacket> {
        let current = self.user_part.generation;
        // If this program writes no metadata, the metadata may be that of an earlier program: a driver may reuse memory
        // that it did not hand to the engine.
        let is_left = |h: &KernelVerdict| self.user_part.may_be_silent && h.generation < current;
        let handed =
            packet.metadata.first_chunk::<METADATA_BYTES>().and_then(|bytes| KernelVerdict::read(bytes, self.newest));
        let handed = handed.filter(|h| !is_left(h));
        let came_with = handed.as_ref().map(|h| h.generation);
        let is_known = came_with == Some(current) && self.mailbox.reported.load(Ordering::Acquire) == current;
        if !is_known && (came_with.is_some() || self.mailbox.waiting.load(Ordering::Acquire)) {
            self.turn(came_with);
        }
        let in_turn = came_with.is_none_or(|generation| self.comes_in_turn(generation));
        let (verdict, ran) = match &handed {
            Some(h) if h.stages > 0 => self.go_on(h, packet, in_turn),
            _ => (self.run(packet, None), true),
        };
        let stored = verdict.kind() != VerdictKind::Drop;
        // The worker's actions are those of this packet only if the worker ran for it.
        let devices = self.user_part.worker.actions().iter().filter(|_| ran).filter_map(|act| match act.action {
            Action::Forward(device) => Some(device),
            _ => None,
        });
        let withheld = packet.outgoing && !self.user_part.forwards_own;
        let forwards = devices.clone().count();
        if withheld {
            self.decided.forward_own += forwards as u64;
        }
        if forwards > 0 && !withheld {
            self.forward_queue.put(packet.bytes, devices, stored, verdict.kernel());
            if self.forward_queue.is_full() {
                self.send_now();
            }
        } else if !stored {
            let fate = match verdict.kernel() {
                true if self.place.host_has_it => &mut self.decided.to_host,
                true => &mut self.decided.unsent,
                false => &mut self.decided.dropped,
            };
            *fate += 1;
        }
        let steers = matches!(verdict.kind(), VerdictKind::Steer | VerdictKind::DoubleSteer);
        stored.then(|| RingPacket { hash: steers.then_some(verdict.hash), mark: verdict.mark })
    }

    /// Ends a batch: sends the frames of the forwarding queue.
    pub fn send(&mut self) {
        self.asked = false;
        self.send_now();
    }

    fn send_now(&mut self) {
        self.forward_queue.send(&self.user_part.devices, &self.place, &mut self.decided);
    }

    /// Returns the outcomes so far.
    pub fn decided(&self) -> UserOutcomes {
        self.decided
    }

    /// Returns the counters that the program incremented in user space.
    pub fn counters(&self) -> [u64; COUNTERS as usize] {
        *self.user_part.worker.counters()
    }

    /// Returns the fill levels of the flow maps in user space, by map name.
    pub fn held(&self) -> Vec<(String, MapUsage)> {
        let one = |(map, used, refused): (&Map, u64, u64)| {
            (map.name.clone(), MapUsage { used: Some(used), capacity: map.capacity.into(), refused })
        };
        self.user_part.worker.maps().map(one).collect()
    }

    /// Returns the number of packets whose generation was neither that of the running program nor that of the next.
    pub fn wrong_generation(&self) -> u64 {
        self.strays
    }

    /// True if the kernel part of the current program processed the packet; a packet for which this is false is a bug.
    #[inline]
    fn comes_in_turn(&mut self, generation: u32) -> bool {
        let in_turn = generation >= self.newest && generation == self.user_part.generation;
        if in_turn {
            self.newest = generation;
        } else {
            self.strays += 1;
        }
        in_turn
    }

    /// Continues the program for a packet that the kernel part has begun.
    #[inline]
    fn go_on(&mut self, handed: &KernelVerdict, packet: &IncomingPacket<'_>, in_turn: bool) -> (Verdict, bool) {
        let r = &handed.record;
        let record = Verdict::resumed(r.kind, r.classes, [r.hash, r.hash2], r.mark, r.state);
        if !in_turn {
            // The rest of that program is no longer known, so the kernel part's verdict stands.
            return (record, false);
        }
        if self.user_part.all_in_kernel { (record, false) } else { (self.run(packet, Some(record)), true) }
    }

    #[inline]
    fn run(&mut self, packet: &IncomingPacket<'_>, record: Option<Verdict>) -> Verdict {
        let facts = Facts {
            time: packet.ts.nanos(),
            wire_len: packet.wire_len,
            queue: self.place.queue,
            ingress: self.user_part.ingress,
            outgoing: packet.outgoing.into(),
            mark: record.map_or(0, |r| r.mark),
            ..Facts::default()
        };
        let mut packets = [Packet::new(packet.bytes, self.place.link_type, facts)];
        let mut verdicts = [record.unwrap_or_default()];
        match record {
            Some(_) => self.user_part.worker.resume(&mut packets, &mut verdicts),
            None => self.user_part.worker.evaluate(&mut packets, &mut verdicts),
        }
        verdicts[0]
    }

    #[cold]
    fn turn(&mut self, came_with: Option<u32>) {
        if came_with.is_none() {
            self.silent += 1;
            // If packets can carry a generation, a packet without it belongs to the current program. Otherwise the
            // mailbox must query the kernel.
            let can_say = self.mailbox.reported.load(Ordering::Acquire) == self.user_part.generation;
            if self.asked || can_say && self.silent < MAX_UNDER_WAY {
                return;
            }
            self.asked = true;
        }
        // Device numbers in the forwarding queue are those of the current program.
        self.send_now();
        while let Some(mut next) = self.mailbox.take(came_with, self.place.queue) {
            std::mem::swap(&mut self.user_part, &mut next);
            self.user_part.worker.transfer_state(&mut next.worker);
            (self.newest, self.silent) = (self.user_part.generation, 0);
        }
        if came_with == Some(self.user_part.generation) {
            self.mailbox.send(self.place.queue, self.user_part.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::FragmentTracker;
    use jit::Executable;
    use wire::build::Frame;

    fn judging(generation: u32, may_be_silent: bool) -> ProgramSequence {
        let program = lang::compile(&format!("main = mark {generation} >-> steer_flow")).expect("a program").program;
        let judge = Executable::interpreted_behind(program, 2).expect("a sound program");
        let half = UserPart {
            generation,
            may_be_silent,
            all_in_kernel: true,
            worker: judge.worker_among(7, Arc::new(FragmentTracker::new(7))).expect("memory"),
            ingress: 0,
            forwards_own: false,
            devices: Arc::default(),
        };
        let place = QueueInfo { link_type: wire::link::ETHERNET, queue: 0, host_has_it: false };
        ProgramSequence::new(half, Arc::default(), place)
    }

    /// A record as the kernel part of this generation writes it, with mark 9.
    fn record(generation: u32) -> [u8; METADATA_BYTES] {
        let mut bytes = [0; METADATA_BYTES];
        bytes[..4].copy_from_slice(&generation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&9u32.to_ne_bytes());
        bytes[28..].copy_from_slice(&[VerdictKind::Copy as u8, 2, 0x4e, 0x47]);
        bytes
    }

    #[test]
    fn what_a_driver_left_of_a_program_before_is_not_this_packets_record() {
        let mut bytes = [0; 60];
        let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fill(&mut bytes);
        let mark = |judging: &mut ProgramSequence, metadata: [u8; METADATA_BYTES]| {
            let ts = Timestamp::from_nanos(1);
            let before = IncomingPacket { metadata: &metadata, bytes: frame, wire_len: 60, ts, outgoing: false };
            (judging.judge(&before).map(|stored| stored.mark), judging.wrong_generation())
        };
        let mut silent = judging(3, true);
        assert_eq!(mark(&mut silent, [0; METADATA_BYTES]), (Some(3), 0), "no word: judged here");
        assert_eq!(mark(&mut silent, record(2)), (Some(3), 0), "an old word is none");
        // A program that writes metadata before each packet overwrites older metadata, so older metadata belongs to the
        // packet.
        let mut speaking = judging(3, false);
        assert_eq!(mark(&mut speaking, record(3)), (Some(9), 0));
        assert_eq!(mark(&mut speaking, record(2)), (Some(9), 1));
    }
}
