//! Evaluates a batch of packets of one queue with a worker, and carries out the actions of the program.

use crate::log_limiter::LogLimiter;
use group::{Delivery, MapUsage, Packet, Verdict};
use ir::interp::Action;
use ir::log::LogSubject;
use ir::{COUNTERS, Facts, Log, VerdictKind};
use jit::{PacketAction, Worker};
use std::sync::Arc;

/// The properties that all packets of one queue share.
#[derive(Clone, Debug)]
pub struct QueueContext {
    /// The pcap link type of the frames.
    pub link_type: u16,
    /// The number of the interface.
    pub interface: u16,
    /// See [`ir::Meta::Ingress`].
    pub ingress: u16,
    /// The numbers by which the program's instructions refer to its counters.
    pub counters: Arc<[u8]>,
    /// The group and the interface, for log lines.
    pub label: Arc<str>,
}

/// Memory that the instance of one queue reuses for each batch.
#[derive(Debug, Default)]
pub struct Scratch {
    verdicts: Vec<jit::Verdict>,
    log_limiter: LogLimiter,
}

impl QueueContext {
    /// Evaluates a batch with a worker, and carries out the actions that the program requests.
    pub fn evaluate(&self, worker: &mut Worker, scratch: &mut Scratch, batch: &[Packet<'_>], out: &mut [Verdict]) {
        let mut packets: Vec<jit::Packet<'_>> = batch.iter().map(|p| self.packet(p)).collect();
        let Scratch { verdicts, log_limiter } = scratch;
        verdicts.clear();
        verdicts.resize(batch.len(), jit::Verdict::default());
        worker.evaluate(&mut packets, verdicts);
        out.iter_mut().zip(&*verdicts).for_each(|(out, verdict)| convert(out, verdict));
        let mut traces = worker.traces().iter();
        for PacketAction { packet, action } in worker.actions() {
            let index = *packet as usize;
            match (action, out.get_mut(index), batch.get(index)) {
                (Action::Forward(egress), Some(out), _) => {
                    // The verifier of the packet language limits the number of forwards of a program, so the list of
                    // egress interfaces always has space.
                    let _ = out.forwards.push(*egress as u8);
                }
                (Action::Log(log), _, Some(packet)) => {
                    let Packet { bytes, wire_len, .. } = *packet;
                    let so_far = if *log == Log::Trace { traces.next() } else { None };
                    let subject = LogSubject { bytes, wire_len, link_type: self.link_type, so_far };
                    log_limiter.write(&self.label, packet.desc.ts, *log, worker.of().program(), &subject);
                }
                _ => {}
            }
        }
    }

    /// Returns the worker's program counters minus the values in `base`.
    pub fn counters_since(&self, worker: &Worker, base: &[u64; COUNTERS as usize]) -> Vec<u64> {
        let now = worker.counters();
        self.counters.iter().map(|n| usize::from(*n)).map(|n| now[n].wrapping_sub(base[n])).collect()
    }

    /// Returns the packet with the facts from its descriptor. The hash that the NIC computed is not available here. The
    /// flow hash of the ring replaces it, because each of the two hashes is equal for all packets of a flow.
    fn packet<'a>(&self, packet: &Packet<'a>) -> jit::Packet<'a> {
        let desc = packet.desc;
        let facts = Facts {
            time: desc.ts,
            wire_len: packet.wire_len,
            rss: desc.hash,
            mark: desc.mark,
            port: self.interface,
            queue: desc.queue.into(),
            ingress: self.ingress,
            duplicate: desc.duplicate_class().map_or(0, |class| class as u8),
            outgoing: u8::from(desc.flags & ring::flag::OUTGOING != 0),
            ..Facts::default()
        };
        jit::Packet::new(packet.bytes, self.link_type, facts)
    }
}

impl Scratch {
    /// Returns the number of log lines that the program requested.
    pub fn log_lines(&self) -> u64 {
        self.log_limiter.requested
    }
}

/// Returns the fill levels of a worker's maps.
pub fn map_usage(worker: &Worker) -> Vec<MapUsage> {
    let usage = |(map, used, refused): (&ir::Map, u64, u64)| MapUsage {
        map: map.name.clone(),
        used,
        capacity: map.capacity.into(),
        refused,
    };
    worker.maps().map(usage).collect()
}

#[inline]
fn convert(out: &mut Verdict, verdict: &jit::Verdict) {
    out.delivery = match verdict.kind() {
        VerdictKind::Drop => Delivery::Drop,
        VerdictKind::Copy => Delivery::Copy,
        VerdictKind::Steer => Delivery::Steer(verdict.hash),
        VerdictKind::DoubleSteer => Delivery::DoubleSteer(verdict.hash, verdict.hash2),
        VerdictKind::Pick => Delivery::Pick(verdict.hash),
    };
    (out.classes, out.mark, out.kernel) = (verdict.classes, verdict.mark, verdict.kernel());
}
