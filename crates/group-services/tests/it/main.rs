//! Tests of group programs that the engine's services compile.

mod programs;
mod state;

use group::{Compiled, Delivery, IngressInterface, Packet, Program, ServiceError, Verdict};
use ring::Desc;
use std::sync::Arc;
use wire::build::Frame;

/// An interface that does not exist.
fn source() -> IngressInterface {
    IngressInterface { name: "nosuch0".into(), number: 3 }
}

/// Returns `n` queues of one interface.
fn queues(n: usize) -> Vec<IngressInterface> {
    vec![source(); n]
}

fn compile_for(link_type: u16, text: &str, from: &IngressInterface) -> Result<Arc<dyn Compiled>, ServiceError> {
    netgrain_group_services::standalone_services(7).compile(text, link_type.into(), std::slice::from_ref(from))
}

fn compile(text: &str) -> Arc<dyn Compiled> {
    compile_for(wire::link::ETHERNET, text, &source()).expect("a valid program")
}

/// Returns the instances of a program for `n` queues.
fn instances(text: &str, n: usize) -> Vec<Box<dyn Program>> {
    compile(text).instances(&queues(n), "g").expect("instances")
}

fn instance(text: &str) -> Box<dyn Program> {
    instances(text, 1).remove(0)
}

/// A TCP and a UDP packet.
fn frames() -> [[u8; 60]; 2] {
    let (mut tcp, mut udp) = ([0; 60], [0; 60]);
    Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut tcp);
    Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 53).fill(&mut udp);
    [tcp, udp]
}

fn evaluate(instance: &mut Box<dyn Program>, frames: &[[u8; 60]]) -> Vec<Verdict> {
    let desc = Desc { mark: 5, hash: 77, queue: 2, ..Desc::default() };
    let batch: Vec<_> = frames.iter().map(|bytes| Packet { desc: &desc, bytes, wire_len: 60 }).collect();
    let mut out = vec![Verdict::default(); frames.len()];
    instance.evaluate(&batch, &mut out);
    out
}

/// Returns the number of packets that were not dropped.
fn passed(out: &[Verdict]) -> usize {
    out.iter().filter(|v| v.delivery != Delivery::Drop).count()
}
