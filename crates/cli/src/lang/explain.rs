//! What a program is: types, effects, where its stages run, and what they cost.

use super::ExplainArgs;
use crate::outcome::{Failure, Outcome};
use crate::record::json;
use lang::Compiled;
use lang::ir::{Placement, placement};
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

/// For people.
pub fn table(compiled: &Compiled, out: &mut impl Write) -> io::Result<()> {
    for b in &compiled.bindings {
        writeln!(out, "{} : {}   (effects, at most: {})", b.name, b.of, b.effects)?;
    }
    let program = &compiled.program;
    writeln!(out, "\n{:<8} {:>12} {:>8}  {:<28} stage", "runs in", "instructions", "longest", "effects")?;
    for (i, place) in placement(program).iter().enumerate() {
        let cost = program.cost_of(program.blocks_of(i));
        let (place, why) = match place {
            Placement::Kernel => ("kernel", String::new()),
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
    writeln!(out, "{:<8} {:>12} {:>8}  {} at the least", "all", cost.size, cost.longest, cost.shortest)?;
    for map in &program.maps {
        writeln!(out, "map {map}")?;
    }
    let clusters = lang::clusters(&[program]);
    for (key, maps) in &clusters {
        let names: Vec<_> = maps.iter().filter_map(|m| program.maps.get(*m)).map(|m| m.name.as_str()).collect();
        writeln!(out, "packets can be spread by {key} for {}", names.join(", "))?;
    }
    if clusters.len() > 1 {
        writeln!(out, "no key serves all maps: each line above needs workers, and copies of the packets, of its own")?;
    }
    Ok(())
}

fn object(compiled: &Compiled) -> serde_json::Value {
    let program = &compiled.program;
    let places = placement(program);
    let stages: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(i, place)| {
            let cost = program.cost_of(program.blocks_of(i));
            let (kernel, why) = match place {
                Placement::Kernel => (true, None),
                Placement::User(why) => (false, Some(why)),
            };
            json!({"stage": program.stages[i].text, "kernel": kernel, "why": why, "instructions": cost.size,
               "longest": cost.longest, "effects": program.effects_of(i).to_string()})
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
    json!({"bindings": bindings, "stages": stages, "instructions": program.cost().size, "longest": program.cost().longest,
           "maps": maps, "clusters": clusters})
}
