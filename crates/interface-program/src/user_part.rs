//! The user part of an interface's program. Each queue has one instance, in the engine thread, between the source and
//! the ring.
//!
//! A packet arrives partly decided or undecided. For a partly decided packet the kernel part wrote a verdict record
//! before the packet, and the user part continues the program from that verdict record. For an undecided packet the
//! user part runs the whole program. A packet also arrives with the generation of the program that processed it; the
//! generation may be missing if it is the last one that the queue has acknowledged
//! ([`capture::afxdp::XdpDispatcher::acknowledge`]). The user part of the next program remains in a mailbox until the
//! first packet of its generation arrives. The packets of a queue pass the kernel's programs in succession, so the user
//! part and the kernel part that process a packet always belong to the same program, without a lock per packet.

use crate::forward_queue::ForwardQueue;
use crate::mailbox::{ProgramMailbox, UserPart};
use crate::report::{MapUsage, QueueOutcomes, UserOutcomes};
use base::Timestamp;
use ir::Facts;
use ir::Map;
use ir::VerdictKind;
use ir::interp::Action;
use jit::{Packet, Verdict};
use kernel_programs::{KernelVerdict, METADATA_BYTES};
use std::sync::Arc;

/// A number that is greater than the number of packets that fit into the receive memory of a queue. After a swap, once
/// this number of packets without a generation has been read, all packets that arrived before the swap have been read
/// too.
const WITHOUT_GENERATION_MAX: u64 = 1 << 17;

/// Runs the user part of the current program of a queue, and after a swap that of the next program.
pub struct ProgramSequence {
    user_part: UserPart,
    mailbox: Arc<ProgramMailbox>,
    queue: QueueInfo,
    outcomes: UserOutcomes,
    forward_queue: ForwardQueue,
    /// Number of packets whose generation is unknown, or older than that of an earlier packet of the queue. Any such
    /// packet shows a bug in netgrain.
    wrong_generation: u64,
    newest: u32,
    /// Number of packets without a generation that arrived, since the last swap, while the mailbox contained the next
    /// program.
    without_generation: u64,
    /// True if the kernel was already queried in this batch to find the program to which packets without a generation
    /// belong.
    has_queried_kernel: bool,
}

/// The properties of a queue that apply to all its packets.
#[derive(Clone, Copy, Debug)]
pub struct QueueInfo {
    /// The pcap link type of the frames.
    pub link_type: u16,
    /// The queue's number.
    pub queue: u16,
    /// True if the host gets all packets, whatever the program decides.
    pub host_gets_all: bool,
}

/// A packet before the ring.
pub struct IncomingPacket<'a> {
    /// The metadata that the kernel part wrote before the packet.
    pub metadata: &'a [u8],
    /// The packet's bytes, as they will be stored.
    pub bytes: &'a [u8],
    /// The length on the wire.
    pub wire_len: u32,
    /// The packet's timestamp.
    pub ts: Timestamp,
    /// True if this host sent the packet.
    pub outgoing: bool,
}

/// The descriptor fields of a packet that enters the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPacket {
    /// The hash by which the program steers the packet; `None` if it does not steer.
    pub hash: Option<u32>,
    /// The mark.
    pub mark: u32,
}

impl ProgramSequence {
    pub(crate) fn new(user_part: UserPart, mailbox: Arc<ProgramMailbox>, queue: QueueInfo) -> Self {
        Self {
            newest: user_part.generation,
            user_part,
            mailbox,
            queue,
            outcomes: UserOutcomes::default(),
            forward_queue: ForwardQueue::default(),
            wrong_generation: 0,
            without_generation: 0,
            has_queried_kernel: false,
        }
    }

    /// Runs the program for the packet. Returns `None` if the packet does not enter the ring.
    #[inline]
    pub fn evaluate(&mut self, packet: &IncomingPacket<'_>) -> Option<RingPacket> {
        let current = self.user_part.generation;
        // If this program writes no metadata, the metadata may be that of an earlier program: a driver may reuse memory
        // of a packet that it did not pass to the engine.
        let is_stale = |verdict: &KernelVerdict| self.user_part.may_lack_generation && verdict.generation < current;
        let kernel_verdict = packet.metadata.first_chunk::<METADATA_BYTES>();
        let kernel_verdict = kernel_verdict.and_then(|bytes| KernelVerdict::read(bytes, self.newest));
        let kernel_verdict = kernel_verdict.filter(|of| !is_stale(of));
        let generation = kernel_verdict.as_ref().map(|of| of.generation);
        let is_known = generation == Some(current) && self.mailbox.has_acknowledged(current);
        if !is_known && (generation.is_some() || self.mailbox.is_waiting()) {
            self.take_next(generation);
        }
        let is_current = generation.is_none_or(|generation| self.is_current(generation));
        let (verdict, ran) = match &kernel_verdict {
            Some(of) if of.stages > 0 => self.resume(of, packet, is_current),
            _ => (self.run(packet, None), true),
        };
        let stored = verdict.kind() != VerdictKind::Drop;
        // The worker's list of actions belongs to this packet only if the worker evaluated this packet.
        let egresses = self.user_part.worker.actions().iter().filter(|_| ran).filter_map(|act| match act.action {
            Action::Forward(egress) => Some(egress),
            _ => None,
        });
        let is_withheld = packet.outgoing && !self.user_part.forwards_own;
        let forwards = egresses.clone().count();
        if is_withheld {
            self.outcomes.forward_own += forwards as u64;
        }
        if forwards > 0 && !is_withheld {
            self.forward_queue.put(packet.bytes, egresses, stored, verdict.kernel());
            if self.forward_queue.is_full() {
                self.send_now();
            }
        } else if !stored {
            let outcome = match verdict.kernel() {
                true if self.queue.host_gets_all => &mut self.outcomes.to_host,
                true => &mut self.outcomes.unsent,
                false => &mut self.outcomes.dropped,
            };
            *outcome += 1;
        }
        let steers = matches!(verdict.kind(), VerdictKind::Steer | VerdictKind::DoubleSteer);
        stored.then(|| RingPacket { hash: steers.then_some(verdict.hash), mark: verdict.mark })
    }

    /// Ends a batch: sends the frames in the forwarding queue.
    pub fn send(&mut self) {
        self.has_queried_kernel = false;
        self.send_now();
    }

    fn send_now(&mut self) {
        self.forward_queue.send(&self.user_part.egresses, self.queue.host_gets_all, &mut self.outcomes);
    }

    /// Writes the counters of the user part into the counters of the queue.
    pub fn report(&self, to: &mut QueueOutcomes) {
        let worker = &self.user_part.worker;
        let usage = |(map, used, refused): (&Map, u64, u64)| {
            (map.name.clone(), MapUsage { used: Some(used), capacity: map.capacity.into(), refused })
        };
        to.user = self.outcomes;
        to.counters = worker.counters().to_vec();
        to.maps = worker.maps().map(usage).collect();
    }

    /// Returns the number of packets whose generation was neither the generation of the running program nor that of the
    /// next program.
    pub fn wrong_generation(&self) -> u64 {
        self.wrong_generation
    }

    /// True if the kernel part of the current program processed the packet. A packet of another program is a bug.
    #[inline]
    fn is_current(&mut self, generation: u32) -> bool {
        let is_current = generation >= self.newest && generation == self.user_part.generation;
        if is_current {
            self.newest = generation;
        } else {
            self.wrong_generation += 1;
        }
        is_current
    }

    /// Continues the program for a packet for which the kernel part ran the first stages.
    #[inline]
    fn resume(&mut self, of: &KernelVerdict, packet: &IncomingPacket<'_>, is_current: bool) -> (Verdict, bool) {
        let r = &of.record;
        let record = Verdict::resumed(r.kind, r.classes, [r.hash, r.hash2], r.mark, r.state);
        if !is_current {
            // The kernel part of another program processed this packet, and the user part of that program does not
            // exist any more, so that program cannot continue. Therefore the verdict of its kernel part is final.
            return (record, false);
        }
        if self.user_part.all_in_kernel { (record, false) } else { (self.run(packet, Some(record)), true) }
    }

    #[inline]
    fn run(&mut self, packet: &IncomingPacket<'_>, record: Option<Verdict>) -> Verdict {
        let facts = Facts {
            time: packet.ts.nanos(),
            wire_len: packet.wire_len,
            queue: self.queue.queue,
            ingress: self.user_part.ingress,
            outgoing: packet.outgoing.into(),
            mark: record.map_or(0, |r| r.mark),
            ..Facts::default()
        };
        let mut packets = [Packet::new(packet.bytes, self.queue.link_type, facts)];
        let mut verdicts = [record.unwrap_or_default()];
        match record {
            Some(_) => self.user_part.worker.resume(&mut packets, &mut verdicts),
            None => self.user_part.worker.evaluate(&mut packets, &mut verdicts),
        }
        verdicts[0]
    }

    /// Takes the next programs from the mailbox, if a packet with this generation (or with none) belongs to them.
    #[cold]
    fn take_next(&mut self, generation: Option<u32>) {
        if generation.is_none() {
            self.without_generation += 1;
            // If the queue has acknowledged the generation of the current program, packets of the next program will
            // carry their generation. So a packet without a generation belongs to the current program. If the queue has
            // not acknowledged that generation, the packet may belong to the next program: the mailbox must then read
            // from the kernel which generations could not be written to packets.
            let can_carry = self.mailbox.has_acknowledged(self.user_part.generation);
            if self.has_queried_kernel || can_carry && self.without_generation < WITHOUT_GENERATION_MAX {
                return;
            }
            self.has_queried_kernel = true;
        }
        // The frames in the forwarding queue are sent before the program is replaced, because the queue contains
        // indexes into the egress list of the current program.
        self.send_now();
        while let Some(mut next) = self.mailbox.take(generation, self.queue.queue) {
            std::mem::swap(&mut self.user_part, &mut next);
            self.user_part.worker.transfer_state(&mut next.worker);
            (self.newest, self.without_generation) = (self.user_part.generation, 0);
        }
        if generation == Some(self.user_part.generation) {
            self.mailbox.acknowledge(self.queue.queue, self.user_part.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::FragmentTracker;
    use jit::Executable;
    use wire::build::Frame;

    fn sequence(generation: u32, may_lack_generation: bool) -> ProgramSequence {
        let program = lang::compile(&format!("main = mark {generation} >-> steer_flow")).expect("a program").program;
        let executable = Executable::interpreted_behind(program, 2).expect("a valid program");
        let user_part = UserPart {
            generation,
            may_lack_generation,
            all_in_kernel: true,
            worker: executable.worker_among(7, Arc::new(FragmentTracker::new(7))).expect("memory"),
            ingress: 0,
            forwards_own: false,
            egresses: Arc::default(),
        };
        let queue = QueueInfo { link_type: wire::link::ETHERNET, queue: 0, host_gets_all: false };
        ProgramSequence::new(user_part, Arc::default(), queue)
    }

    /// Metadata whose verdict record has mark 9, as the kernel part of this generation writes them.
    fn record(generation: u32) -> [u8; METADATA_BYTES] {
        let mut bytes = [0; METADATA_BYTES];
        bytes[..4].copy_from_slice(&generation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&9u32.to_ne_bytes());
        bytes[28..].copy_from_slice(&[VerdictKind::Copy as u8, 2, 0x4e, 0x47]);
        bytes
    }

    #[test]
    fn left_over_metadata_of_an_earlier_program_is_ignored() {
        let mut bytes = [0; 60];
        let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fill(&mut bytes);
        let mark = |sequence: &mut ProgramSequence, metadata: [u8; METADATA_BYTES]| {
            let ts = Timestamp::from_nanos(1);
            let packet = IncomingPacket { metadata: &metadata, bytes: frame, wire_len: 60, ts, outgoing: false };
            (sequence.evaluate(&packet).map(|stored| stored.mark), sequence.wrong_generation())
        };
        let mut without = sequence(3, true);
        assert_eq!(
            mark(&mut without, [0; METADATA_BYTES]),
            (Some(3), 0),
            "without metadata the user part evaluates the packet"
        );
        assert_eq!(mark(&mut without, record(2)), (Some(3), 0), "metadata of an earlier program is ignored");
        // A program that writes metadata before each packet overwrites the metadata of earlier programs, so the
        // metadata before a packet is always that of the program that processed it.
        let mut with = sequence(3, false);
        assert_eq!(mark(&mut with, record(3)), (Some(9), 0));
        assert_eq!(mark(&mut with, record(2)), (Some(9), 1));
    }
}
