//! The user half of a port's program: one per queue, in its engine thread, between the source and the ring.
//!
//! A packet comes decided in part (its record stands before it: the rest of the program goes on from there), or undecided
//! (the whole program judges it), and with the number of the program that looked at it or, where that is the one that the queue has seen
//! last, perhaps without ([`Steer::acknowledge`]). The next program waits in a letter box
//! until the first packet of its own arrives: a queue sees the programs of the kernel one after the other, so every packet is
//! finished by the half that belongs to the half that began it, without a lock on the packets' path.

use super::accounting::MapUsage;
use super::forward_queue::ForwardQueue;
use crate::egress::Egress;
use base::Timestamp;
use capture::afxdp::XdpDispatcher;
use ir::Facts;
use ir::interp::Action;
use ir::{COUNTERS, Map, VerdictKind};
use jit::{Packet, Verdict, Worker};
use kernel_programs::{KernelVerdict, METADATA_BYTES};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A queue's memory holds fewer packets: behind so many without a number there is none that came before the exchange.
const MAX_UNDER_WAY: u64 = 1 << 17;

/// What one program brings to one queue.
pub(crate) struct UserPart {
    /// Its number; each program of a port has one more than the one before.
    pub generation: u32,
    /// Whether a packet may come without its number.
    pub may_be_silent: bool,
    /// Whether nothing is left to do behind that part.
    pub all_in_kernel: bool,
    /// Judges.
    pub worker: Worker,
    /// One plus the index of the port among the program's devices, or 0.
    pub ingress: u16,
    /// What this host sent is forwarded as well.
    pub forwards_own: bool,
    /// The program's devices.
    pub devices: Arc<Vec<Egress>>,
}

/// Where the next programs of a queue wait.
#[derive(Default)]
pub(crate) struct ProgramMailbox {
    waiting: AtomicBool,
    /// The last generation that the kernel was told to have been seen.
    reported: AtomicU32,
    mailbox: Mutex<Mailbox>,
}

#[derive(Default)]
struct Mailbox {
    user_parts: VecDeque<UserPart>,
    /// The port, where a program in its driver has packets say which half is theirs. The sources hold it.
    port: Option<Weak<XdpDispatcher>>,
}

/// What user space did with packets by the program's decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserOutcomes {
    /// Dropped.
    pub dropped: u64,
    /// Sent out of another port, and not stored.
    pub forwarded: u64,
    /// Left to the host, and not stored.
    pub to_host: u64,
    /// Should have been sent out of ports, none of which took them, or given to the host, which was not possible. With the three above:
    /// all packets that do not go on to the ring.
    pub unsent: u64,
    /// Copies sent out of other ports of packets that are stored.
    pub copies: u64,
    /// Copies that a port did not take, once for each such port, of packets of which something else became: they are stored, left by
    /// another port, or are the host's.
    pub copies_unsent: u64,
    /// Meant for ports, but this host had sent the packet itself: to send it on would let it circle between its ports.
    pub forward_own: u64,
}

/// The programs of one queue, one after the other.
pub(crate) struct ProgramSequence {
    user_part: UserPart,
    mailbox: Arc<ProgramMailbox>,
    /// How packets come.
    place: QueueInfo,
    decided: UserOutcomes,
    forward_queue: ForwardQueue,
    /// Packets that came with an older number than one before them, or with one that nobody knows: bugs.
    strays: u64,
    newest: u32,
    /// Packets that came without a number while a program was waiting.
    silent: u64,
    /// One of this batch has asked the kernel whether they are of that program.
    asked: bool,
}

/// What a queue knows of its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueInfo {
    /// Of the frames, as pcap numbers it.
    pub link_type: u16,
    /// Its number.
    pub queue: u16,
    /// The host gets what arrives, whatever we do.
    pub host_has_it: bool,
}

/// A packet before the ring.
pub(crate) struct IncomingPacket<'a> {
    /// What the kernel's half wrote.
    pub metadata: &'a [u8],
    /// Its bytes, as they would be stored.
    pub bytes: &'a [u8],
    /// On the wire.
    pub wire_len: u32,
    /// Its time.
    pub ts: Timestamp,
    /// Sent by this host.
    pub outgoing: bool,
}

/// How a packet goes on to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPacket {
    /// What the program steers by, where it does.
    pub hash: Option<u32>,
    /// Its mark.
    pub mark: u32,
}

impl UserOutcomes {
    /// What became of one more packet.
    pub(super) fn account(&mut self, one: &Self) {
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
    /// Leaves the next program.
    pub fn post(&self, half: UserPart) {
        let mut letters = self.lock();
        letters.user_parts.push_back(half);
        self.waiting.store(true, Ordering::Release);
    }

    /// Takes back a program that did not come to run.
    pub fn retract(&self, generation: u32) {
        let mut letters = self.lock();
        letters.user_parts.retain(|half| half.generation != generation);
        self.waiting.store(!letters.user_parts.is_empty(), Ordering::Release);
    }

    /// The packets come from this port from now on; one that has just been opened was told of no program yet.
    pub fn comes_from(&self, port: Option<Weak<XdpDispatcher>>) {
        let mut letters = self.lock();
        letters.port = port;
        self.reported.store(0, Ordering::Release);
    }

    /// The next program, if a packet of `queue` that came with this number (or with none) is one of its own.
    fn take(&self, came_with: Option<u32>, queue: u16) -> Option<UserPart> {
        let mut letters = self.lock();
        let due = letters.user_parts.front().is_some_and(|next| match (came_with, &letters.port) {
            (Some(generation), _) => next.generation <= generation,
            (None, None) => true,
            // It met the program before, unless what met this one cannot say so.
            (None, Some(port)) => {
                let mute = port.upgrade().and_then(|port| port.last_untagged(queue.into()).ok());
                mute.is_some_and(|mute| next.generation <= mute)
            }
        });
        let next = if due { letters.user_parts.pop_front() } else { None };
        self.waiting.store(!letters.user_parts.is_empty(), Ordering::Release);
        next
    }

    /// Lets the kernel know that a packet of `queue` came that met this program: those behind it need not say so.
    fn send(&self, queue: u16, generation: u32) {
        let letters = self.lock();
        if self.reported.swap(generation, Ordering::AcqRel) == generation {
            return;
        }
        if let Some(port) = letters.port.as_ref().and_then(Weak::upgrade) {
            // Where the kernel does not learn it, each packet goes on saying it.
            let _ = port.acknowledge(queue.into(), generation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgramSequence {
    pub fn new(half: UserPart, letters: Arc<ProgramMailbox>, place: QueueInfo) -> Self {
        let newest = half.generation;
        let (decided, outbox) = Default::default();
        Self {
            user_part: half,
            mailbox: letters,
            place,
            decided,
            forward_queue: outbox,
            strays: 0,
            newest,
            silent: 0,
            asked: false,
        }
    }

    /// What becomes of the packet; `None` if it does not go on to the ring.
    #[inline]
    pub fn judge(&mut self, packet: &IncomingPacket<'_>) -> Option<RingPacket> {
        let current = self.user_part.generation;
        // Where this program writes nothing, a driver that uses memory again which it did not hand to us may have left what one before wrote.
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
        // What was done to the packet belongs to the run that was just made for it, if there was one.
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

    /// The end of a batch: sends what is to be sent.
    pub fn send(&mut self) {
        self.asked = false;
        self.send_now();
    }

    fn send_now(&mut self) {
        self.forward_queue.send(&self.user_part.devices, &self.place, &mut self.decided);
    }

    /// What was done with packets so far.
    pub fn decided(&self) -> UserOutcomes {
        self.decided
    }

    /// What the program counted in user space.
    pub fn counters(&self) -> [u64; COUNTERS as usize] {
        *self.user_part.worker.counters()
    }

    /// What it remembers in user space, by the name of the map.
    pub fn held(&self) -> Vec<(String, MapUsage)> {
        let one = |(map, used, refused): (&Map, u64, u64)| {
            (map.name.clone(), MapUsage { used: Some(used), capacity: map.capacity.into(), refused })
        };
        self.user_part.worker.maps().map(one).collect()
    }

    /// Packets whose number was not that of the program before or the next one.
    pub fn wrong_generation(&self) -> u64 {
        self.strays
    }

    /// Whether the packet was seen by the kernel's half of the program that runs here; one that was not is a fault.
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

    /// The rest of the program for a packet that the kernel has begun with.
    #[inline]
    fn go_on(&mut self, handed: &KernelVerdict, packet: &IncomingPacket<'_>, in_turn: bool) -> (Verdict, bool) {
        let r = &handed.record;
        let record = Verdict::resumed(r.kind, r.classes, [r.hash, r.hash2], r.mark, r.state);
        if !in_turn {
            // The rest is not known any more; what was decided stands.
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
            // Where packets can say their number, one that says none met the program before. Where they cannot, the kernel is asked.
            let can_say = self.mailbox.reported.load(Ordering::Acquire) == self.user_part.generation;
            if self.asked || can_say && self.silent < MAX_UNDER_WAY {
                return;
            }
            self.asked = true;
        }
        // Numbers of devices are the program's own.
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

    /// A record as the kernel's half of this generation writes it, with mark 9.
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
        // A program that writes before each packet overwrites what was there, so an older word is the packet's.
        let mut speaking = judging(3, false);
        assert_eq!(mark(&mut speaking, record(3)), (Some(9), 0));
        assert_eq!(mark(&mut speaking, record(2)), (Some(9), 1));
    }
}
