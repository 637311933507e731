//! Explains a program: types, effects, place of execution and cost of its stages.

use super::ExplainArgs;
use crate::outcome::{Failure, Outcome, json};
use ir::{Placement, Program, placement};
use kernel_programs::{Clock, EmitOptions, Metadata, Object, Refusal, ToUser, emit};
use lang::Compiled;
use serde_json::json;
use std::io::{self, Write};

pub fn explain(compiled: &Compiled, args: &ExplainArgs) -> Result<Outcome, Failure> {
    if args.program.json {
        json(&object(compiled))?;
    } else {
        let mut out = io::stdout().lock();
        table(compiled, &mut out)?;
        if args.ir {
            write!(out, "\n{}", compiled.program)?;
        }
    }
    Ok(Outcome::Yes)
}

/// Prints the explanation as text.
pub fn table(compiled: &Compiled, out: &mut impl Write) -> io::Result<()> {
    for b in &compiled.bindings {
        writeln!(out, "{} : {}   (effects, at most: {})", b.name, b.of, b.effects)?;
    }
    let program = &compiled.program;
    writeln!(out, "\n{:<8} {:>12} {:>8}  {:<28} stage", "runs in", "instructions", "longest", "effects")?;
    let in_kernel = in_kernel(program);
    // The kernel limits the size of a program, so stages that could run in the kernel may run in user space.
    let kernel_stages = in_kernel.as_ref().map_or(0, |object| object.stages);
    let mut named = false;
    for (i, place) in placement(program).iter().enumerate() {
        let cost = program.cost_of(program.blocks_of(i));
        let (place, why) = match place {
            Placement::Kernel { .. } if i >= kernel_stages => ("user", format!("   -- {}", user_reason(&in_kernel))),
            Placement::Kernel { undecided } if undecided.is_empty() => ("kernel", String::new()),
            Placement::Kernel { undecided } => {
                named = true;
                ("kernel", format!("   -- undecided: {}", undecided.join(", ")))
            }
            Placement::User(why) => ("user", format!("   -- {why}")),
        };
        let effects = program.effects_of(i).to_string();
        writeln!(
            out,
            "{place:<8} {:>12} {:>8}  {effects:<28} {}{why}",
            cost.size, cost.longest, program.stages[i].text
        )?;
    }
    let cost = program.cost();
    writeln!(out, "{:<8} {:>12} {:>8}  shortest path: {}", "all", cost.size, cost.longest, cost.shortest)?;
    match &in_kernel {
        Ok(object) => {
            let (stages, instructions) = (object.stages, object.code.insns().len());
            let rest = program.stages.len() - stages;
            let what = if rest == 0 { "all".to_owned() } else { format!("the first {stages}") };
            writeln!(out, "in the kernel: {what} of {} stages, {instructions} instructions", program.stages.len())?;
            let left: Vec<_> =
                [(named, "the undecided packets of the stages above"), (object.parses_headers, UNPARSED)]
                    .into_iter()
                    .filter_map(|(is_left, what)| is_left.then_some(what))
                    .collect();
            if !left.is_empty() {
                writeln!(out, "passed to user space before any action: {}", left.join(", and "))?;
            }
            if object.is_evaluated_again {
                writeln!(out, "computed in user space for packets that the kernel part passes: {RECORD}")?;
            }
            if object.flow_maps().next().is_some() {
                writeln!(out, "{SEPARATE_MAPS}")?;
            }
        }
        Err(why) => writeln!(out, "{why}")?,
    }
    if in_kernel.is_ok() {
        writeln!(out, "{INTERFACE_ONLY}")?;
    }
    for map in &program.maps {
        writeln!(out, "map {map}")?;
    }
    let clusters = lang::clusters(&[program]);
    for (key, maps) in &clusters {
        let names: Vec<_> = maps.iter().filter_map(|m| program.maps.get(*m)).map(|m| m.name.as_str()).collect();
        writeln!(out, "for the flow maps {}, packets can be distributed to workers by {key}", names.join(", "))?;
    }
    if clusters.len() > 1 {
        writeln!(
            out,
            "no key suits all flow maps: the maps of each line above need separate workers with copies of the packets"
        )?;
    }
    Ok(())
}

/// The reason why a stage that could run in the kernel runs in user space.
fn user_reason(in_kernel: &Result<Object, Refusal>) -> String {
    in_kernel.as_ref().map_or_else(ToString::to_string, |_| "the kernel part cannot hold more stages".to_owned())
}

/// The packets for which a program that reads headers always runs in user space.
const UNPARSED: &str = "packets whose headers the kernel part does not parse to the end";

/// The kinds of programs for which a kernel part exists.
const INTERFACE_ONLY: &str = "the kernel part exists only for the program of an interface (--program, \
    docs/design/kernel-programs.md); the program of a group runs in user space";

/// The results that a program always computes in user space.
const RECORD: &str = "marks, hashes and classes, because the kernel part does not pass them on";

/// The note about flow maps. It is printed if the kernel does not decide all packets but passes some of them on to user
/// space.
const SEPARATE_MAPS: &str = "user space has its own copy of the flow maps: if the kernel decides only some packets of \
    a flow, both have state of that flow (docs/design/kernel-programs.md)";

/// The part of the program that runs in the kernel.
fn in_kernel(program: &Program) -> Result<Object, Refusal> {
    let options = EmitOptions {
        link_type: wire::link::ETHERNET,
        hash_key: 0,
        generation: 0,
        port: 0,
        ingress: 0,
        queues: 1,
        clock: Clock::Running,
        to_user: ToUser::Sockets,
        metadata: Metadata::default(),
    };
    emit(program, &options)
}

fn object(compiled: &Compiled) -> serde_json::Value {
    let program = &compiled.program;
    let (places, in_kernel) = (placement(program), in_kernel(program));
    let kernel_stages = in_kernel.as_ref().map_or(0, |object| object.stages);
    let stages: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(i, place)| {
            let cost = program.cost_of(program.blocks_of(i));
            let (kernel, why, undecided) = match place {
                Placement::Kernel { .. } if i >= kernel_stages => (false, Some(user_reason(&in_kernel)), &[][..]),
                Placement::Kernel { undecided } => (true, None, undecided.as_slice()),
                Placement::User(why) => (false, Some(why.to_string()), &[][..]),
            };
            json!({"stage": program.stages[i].text, "kernel": kernel, "reason": why, "undecided": undecided,
               "instructions": cost.size, "longest": cost.longest, "effects": program.effects_of(i).to_string()})
        })
        .collect();
    let bindings: Vec<_> = compiled
        .bindings
        .iter()
        .map(|b| json!({"name": b.name, "type": b.of.to_string(), "effects": b.effects.to_string()}))
        .collect();
    let clusters: Vec<_> = lang::clusters(&[program])
        .into_iter()
        .map(|(key, maps)| json!({"key": key.to_string(), "maps": maps}))
        .collect();
    let maps: Vec<_> = program.maps.iter().map(ToString::to_string).collect();
    json!({"bindings": bindings, "stages": stages,
           "instructions": program.cost().size, "longest": program.cost().longest,
           "kernel": in_kernel.map_or_else(
               |why| json!({"stages": 0, "reason": why.to_string()}),
               |object| json!({"stages": object.stages, "instructions": object.code.insns().len(),
                               "evaluated_again": object.is_evaluated_again, "parses_headers": object.parses_headers})),
           "maps": maps, "clusters": clusters})
}
