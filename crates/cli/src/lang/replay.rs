//! Interprets a program of the packet language for each packet of a capture, and counts its verdicts and actions.

use super::RunArgs;
use crate::outcome::{Failure, Outcome, json, versioned};
use ir::Facts;
use ir::interp::{Action, Execution, Interpreter, ProgramState};
use ir::log::{LogSubject, classes};
use ir::{Log, Program, VerdictKind};
use lang::Compiled;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

/// Counts of the verdicts and actions for all packets.
#[derive(Default)]
struct Sums {
    packets: u64,
    /// Packets whose record has a wire length below the captured length.
    wire_raised: u64,
    kinds: [u64; 5],
    kernel: u64,
    forwarded: BTreeMap<String, u64>,
    logs: u64,
    /// For each mask of classes, the number of packets that were delivered to these classes.
    classes: BTreeMap<u64, u64>,
}

/// Runs the program that `compile` makes for the link type of the capture's first frame.
pub fn run(args: &RunArgs, compile: impl FnOnce(u16) -> Result<Compiled, Failure>) -> Result<Outcome, Failure> {
    let name = args.read.display().to_string();
    let fail = |e: &dyn std::fmt::Display| Failure::Said(format!("{name}: {e}"));
    let source = crate::convert::open::open(&args.read).map_err(|e| fail(&e))?;
    let mut reader = pcap::Reader::open(source).map_err(|e| fail(&e))?;
    let mut next = reader.next().map_err(|e| fail(&e));
    let link_type = next.as_ref().ok().and_then(Option::as_ref).map_or(wire::link::ETHERNET, |packet| packet.link_type);
    let program = &compile(link_type)?.program;
    let (mut state, mut interpreter) = (ProgramState::of(program, args.hash_key), Interpreter::new(program));
    let mut sums = Sums::default();
    let mut time = 0;
    let mut out = BufWriter::new(io::stdout().lock());
    let end = loop {
        let packet = match next {
            Ok(Some(packet)) if args.packets.is_none_or(|most| sums.packets < most) => packet,
            Ok(_) => break Ok(()),
            Err(e) => break Err(e),
        };
        sums.wire_raised += u64::from(packet.wire_raised);
        program.fits_link(packet.link_type).map_err(|e| fail(&e))?;
        let mut facts = Facts::of(packet.data, packet.wire_len, packet.link_type);
        time = packet.ts.map_or(time, |ts| ts.nanos());
        (facts.time, facts.sequence) = (time, sums.packets);
        facts.outgoing = (packet.direction == pcap::Direction::Outbound).into();
        let execution = interpreter.run(packet.data, &facts, &mut state);
        sums.add(program, &execution);
        let (bytes, wire_len, link_type) = (packet.data, packet.wire_len, packet.link_type);
        let about = LogSubject { bytes, wire_len, link_type, so_far: None };
        if args.print && args.program.json {
            writeln!(out, "{}", versioned(line_json(program, sums.packets, &execution, &about)))?;
        } else if args.print {
            writeln!(out, "{}", line(program, sums.packets, &execution, &about))?;
        }
        next = reader.next().map_err(|e| fail(&e));
    };
    out.flush()?;
    drop(out);
    if args.program.json {
        json(&sums.object(program, &state, time))?
    } else {
        sums.show(program, &state, time)?
    }
    if sums.wire_raised > 0 {
        sys::say!("netgrain: {name}: {}", pcap::wire_raised(sums.wire_raised));
    }
    // If the capture ends with an error, the counts of the packets before the error have been printed.
    end.map(|()| Outcome::Yes)
}

const KINDS: [VerdictKind; 5] =
    [VerdictKind::Drop, VerdictKind::Copy, VerdictKind::Steer, VerdictKind::DoubleSteer, VerdictKind::Pick];

impl Sums {
    fn add(&mut self, program: &Program, execution: &Execution) {
        self.packets += 1;
        self.kinds[execution.kind as usize] += 1;
        self.kernel += u64::from(execution.kernel);
        if execution.kind != VerdictKind::Drop {
            *self.classes.entry(execution.classes).or_default() += 1;
        }
        for action in &execution.actions {
            match action {
                Action::Forward(device) => *self.forwarded.entry(device_name(program, *device)).or_default() += 1,
                Action::Log(_) => self.logs += 1,
            }
        }
    }

    fn show(&self, program: &Program, state: &ProgramState, time: u64) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{} packets", self.packets)?;
        for kind in KINDS.into_iter().filter(|k| self.kinds[*k as usize] > 0) {
            writeln!(out, "  {kind:<8} {}", self.kinds[kind as usize])?;
        }
        for (mask, n) in &self.classes {
            writeln!(out, "  to {:<5} {n}", classes(*mask))?;
        }
        for (device, n) in &self.forwarded {
            writeln!(out, "  forwarded to {device} {n}")?;
        }
        for (what, n) in [("to the stack", self.kernel), ("logged", self.logs)] {
            if n > 0 {
                writeln!(out, "  {what} {n}")?;
            }
        }
        for (i, n) in state.counters.iter().enumerate().filter(|c| *c.1 != 0) {
            writeln!(out, "  counter {i} {}", *n as i64)?;
        }
        for (map, table) in program.maps.iter().zip(&state.tables) {
            writeln!(out, "  map {} {} flows, {} refused", map.name, table.entries(time).len(), table.refused())?;
        }
        Ok(())
    }

    fn object(&self, program: &Program, state: &ProgramState, time: u64) -> serde_json::Value {
        let kinds: BTreeMap<_, _> = KINDS.iter().map(|k| (k.to_string(), self.kinds[*k as usize])).collect();
        let classes: BTreeMap<_, _> = self.classes.iter().map(|(mask, n)| (classes(*mask), n)).collect();
        let counters: BTreeMap<_, _> =
            state.counters.iter().enumerate().filter(|c| *c.1 != 0).map(|(i, n)| (i.to_string(), *n as i64)).collect();
        let maps: Vec<_> = program.maps.iter().zip(&state.tables).map(|(map, table)| {
            json!({"name": map.name, "flows": table.entries(time).len(), "refused": table.refused()})
        }).collect();
        json!({"packets": self.packets, "wire_raised": self.wire_raised, "kinds": kinds, "classes": classes,
               "forwarded": self.forwarded, "kernel": self.kernel, "logged": self.logs,
               "counters": counters, "maps": maps})
    }
}

fn device_name(program: &Program, device: u16) -> String {
    program.devices.get(usize::from(device)).cloned().unwrap_or_default()
}

/// The actions of the program on a packet except delivery, in the order of execution; a log action is shown with its
/// text.
fn actions(program: &Program, execution: &Execution, packet: &LogSubject<'_>) -> Vec<String> {
    let mut traces = execution.traces.iter();
    let mut all: Vec<_> = execution
        .actions
        .iter()
        .map(|action| match action {
            Action::Forward(device) => format!("forward {}", device_name(program, *device)),
            Action::Log(log) => {
                let so_far = if *log == Log::Trace { traces.next() } else { None };
                format!("log \"{}\"", LogSubject { so_far, ..*packet }.line(*log, program))
            }
        })
        .collect();
    all.extend(execution.kernel.then(|| "kernel".to_owned()));
    all
}

fn line(program: &Program, number: u64, execution: &Execution, packet: &LogSubject<'_>) -> String {
    let mut parts = vec![format!("{number} {}", execution.kind)];
    match execution.kind {
        VerdictKind::Drop => (),
        VerdictKind::Copy => parts.push(format!("class {}", classes(execution.classes))),
        VerdictKind::Pick => parts.push(format!("{} class {}", execution.hash, classes(execution.classes))),
        VerdictKind::Steer => parts.push(format!("{:08x} class {}", execution.hash, classes(execution.classes))),
        VerdictKind::DoubleSteer => {
            parts.push(format!("{:08x} {:08x} class {}", execution.hash, execution.hash2, classes(execution.classes)))
        }
    }
    parts.extend((execution.mark != 0).then(|| format!("mark {}", execution.mark)));
    parts.extend(actions(program, execution, packet));
    parts.join("  ")
}

fn line_json(program: &Program, number: u64, execution: &Execution, packet: &LogSubject<'_>) -> serde_json::Value {
    json!({"packet": number, "kind": execution.kind.to_string(), "classes": classes(execution.classes),
           "hash": execution.hash, "hash2": execution.hash2, "mark": execution.mark, "state": execution.state,
           "actions": actions(program, execution, packet)})
}
