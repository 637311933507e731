//! Programs of the packet language, run by its interpreter: the meaning itself, the slowest of its executions.

use group::{Compiled, Delivery, Packet, Program, Verdict};
use lang::Facts;
use lang::interp::{Action, Interpreter, Memory, Outcome};
use lang::ir::{self, Effect, Kind};
use ring::flag;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A verified program.
struct Interpreted {
    program: Arc<ir::Program>,
    text: String,
    /// The counters that it uses, and their names.
    counters: Arc<[u8]>,
    names: Vec<String>,
    wants_kernel: bool,
    ground: Ground,
}

/// Where a program runs.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Of the frames, as pcap numbers it.
    pub link_type: u16,
    /// Of the hashes; the same on all queues.
    pub hash_key: u64,
    /// Name of the port that the frames come from.
    pub port: String,
}

/// One queue's instance.
struct Run {
    program: Arc<ir::Program>,
    memory: Memory,
    counters: Arc<[u8]>,
    link_type: u16,
    /// See [`ir::Meta::Ingress`].
    ingress: u16,
    sequence: u64,
}

/// Makes a program of its source.
///
/// # Errors
/// In words, with the place in the source and what to write instead.
pub fn compile(source: &str, ground: &Ground) -> Result<Arc<dyn Compiled>, String> {
    let program = lang::compile(source).map_err(|e| explain(&e, source))?.program;
    if program.devices.len() > usize::from(u8::MAX) + 1 {
        return Err(format!("{} ports; a program forwards to at most 256", program.devices.len()));
    }
    let wants_kernel = program.effects().has(Effect::Kernel);
    let counters = counters_of(&program);
    Ok(Arc::new(Interpreted {
        program: Arc::new(program),
        text: source.to_owned(),
        names: counters.iter().map(u8::to_string).collect(),
        counters: counters.into(),
        wants_kernel,
        ground: ground.clone(),
    }))
}

/// The counters that a program uses, in ascending order.
fn counters_of(program: &ir::Program) -> Vec<u8> {
    let used = program.blocks.iter().flat_map(|b| &b.code).filter_map(|inst| match inst {
        ir::Inst::Count { counter, .. } => Some(*counter),
        _ => None,
    });
    used.collect::<BTreeSet<u8>>().into_iter().collect()
}

/// In one line, as an answer is: where, what, and what to write instead.
fn explain(e: &lang::Error, source: &str) -> String {
    let (line, column) = e.place(source);
    let help = e.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    format!("program, line {line}, column {column}: {}{help}", e.what)
}

impl Compiled for Interpreted {
    fn instance(&self) -> Box<dyn Program> {
        let from = self.program.devices.iter().position(|d| *d == self.ground.port);
        Box::new(Run {
            program: Arc::clone(&self.program),
            memory: Memory::of(&self.program, self.ground.hash_key),
            counters: Arc::clone(&self.counters),
            link_type: self.ground.link_type,
            ingress: from.map_or(0, |i| i as u16 + 1),
            sequence: 0,
        })
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn ports(&self) -> &[String] {
        &self.program.devices
    }

    fn counters(&self) -> &[String] {
        &self.names
    }

    fn wants_kernel(&self) -> bool {
        self.wants_kernel
    }
}

impl Program for Run {
    fn judge(&mut self, batch: &[Packet<'_>], out: &mut [Verdict]) {
        let mut interpreter = Interpreter::new(&self.program);
        for (packet, verdict) in batch.iter().zip(out) {
            let desc = packet.desc;
            let facts = Facts {
                time: desc.ts,
                sequence: self.sequence,
                mark: desc.mark,
                queue: desc.queue.into(),
                ingress: self.ingress,
                outgoing: u8::from(desc.flags & flag::OUTGOING != 0),
                ..Facts::of(packet.bytes, packet.wire_len, self.link_type)
            };
            self.sequence += 1;
            *verdict = verdict_of(&interpreter.run(packet.bytes, &facts, &mut self.memory));
        }
    }

    fn counters(&self) -> Vec<u64> {
        self.counters.iter().filter_map(|n| self.memory.counters.get(usize::from(*n)).copied()).collect()
    }
}

fn verdict_of(outcome: &Outcome) -> Verdict {
    let mut verdict = Verdict {
        delivery: match outcome.kind {
            Kind::Drop => Delivery::Drop,
            Kind::Copy => Delivery::Copy,
            Kind::Steer => Delivery::Steer(outcome.hash),
            Kind::Double => Delivery::DoubleSteer(outcome.hash, outcome.hash2),
            Kind::Pick => Delivery::Pick(outcome.hash),
        },
        classes: outcome.classes,
        mark: outcome.mark,
        kernel: outcome.kernel,
        ..Verdict::default()
    };
    for action in &outcome.actions {
        if let Action::Forward(device) = action {
            // The verifier has seen to it that there are no more than there is room for.
            let _ = verdict.forwards.push(*device as u8);
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Desc;
    use wire::{build::Frame, link};

    fn ground() -> Ground {
        Ground { link_type: link::ETHERNET, hash_key: 7, port: "eth0".into() }
    }

    /// What a program says of a TCP and of a UDP packet; then its ports and its counters.
    fn judge(source: &str) -> ([Verdict; 2], Vec<String>, Vec<u64>) {
        let program = compile(source, &ground()).expect("sound");
        let (mut tcp, mut udp) = ([0; 60], [0; 60]);
        Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut tcp);
        Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 53).fill(&mut udp);
        let desc = Desc { mark: 5, ..Desc::default() };
        let batch = [&tcp, &udp].map(|bytes| Packet { desc: &desc, bytes, wire_len: 60 });
        let (mut run, mut out) = (program.instance(), [Verdict::default(); 2]);
        run.judge(&batch, &mut out);
        (out, program.ports().to_vec(), run.counters())
    }

    #[test]
    fn a_program_steers_marks_forwards_and_drops() {
        let ([tcp, udp], ports, _) = judge("main = ip >-> when is_tcp (mark 42 >-> forward \"eth1\") >-> steer_flow");
        assert!(matches!((tcp.delivery, udp.delivery), (Delivery::Steer(a), Delivery::Steer(b)) if a != b));
        assert_eq!((tcp.mark, udp.mark), (42, 5));
        assert_eq!((tcp.forwards.as_slice(), udp.forwards.as_slice()), (&[0][..], &[][..]));
        assert_eq!(ports, ["eth1"]);
        let ([tcp, udp], _, counters) = judge("main = inc 3 >-> udp");
        assert_eq!((tcp.delivery, udp.delivery, counters), (Delivery::Drop, Delivery::Copy, vec![2]));
    }

    #[test]
    fn both_directions_of_a_flow_are_steered_alike() {
        let program = compile("main = steer_flow", &ground()).expect("sound");
        let (mut there, mut back) = ([0; 60], [0; 60]);
        Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).fill(&mut there);
        Frame::tcp4([10, 0, 0, 2], 443, [10, 0, 0, 1], 1).fill(&mut back);
        let desc = Desc::default();
        let batch = [&there, &back].map(|bytes| Packet { desc: &desc, bytes, wire_len: 60 });
        let mut out = [Verdict::default(); 2];
        program.instance().judge(&batch, &mut out);
        assert_eq!(out[0].delivery, out[1].delivery);
        assert!(matches!(out[0].delivery, Delivery::Steer(_)));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_its_place() {
        let why = compile("main = ip >-> forward eth1", &ground()).err().expect("not sound");
        assert!(why.starts_with("program, line 1, column 23: ") && why.lines().count() == 1, "{why}");
    }

    #[test]
    fn a_program_that_hands_to_the_host_says_so() {
        assert!(compile("main = kernel", &ground()).expect("sound").wants_kernel());
        assert!(!compile("main = ip", &ground()).expect("sound").wants_kernel());
    }
}
