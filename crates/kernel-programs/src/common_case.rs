//! The first stages of a program as they are for a plain packet, and without what they do for nothing.

use super::{EmitOptions, Refusal};
use ir::{Block, BlockId, End, Fact, Inst, Layer, Meta, Operand, Program, Reg};

/// What is known beforehand is a number, and the inner layer is the outer one. `whole`: fragments do not come.
pub fn plain(head: &Program, options: &EmitOptions, whole: bool) -> Result<Program, Refusal> {
    let mut plain = head.clone();
    for inst in plain.blocks.iter_mut().flat_map(|b| &mut b.code) {
        match inst {
            Inst::Fact { to, fact: Fact::Fragment, .. } | Inst::Meta { to, meta: Meta::Part } if whole => {
                *inst = Inst::Const { to: *to, value: 0 };
            }
            Inst::Meta { to, meta: Meta::Part } => {
                *inst = Inst::Fact { to: *to, layer: Layer::Outer, fact: Fact::Fragment };
            }
            Inst::Datagram { to, value: Operand::Reg(from), .. } => *inst = Inst::Copy { to: *to, from: *from },
            Inst::Datagram { to, value: Operand::Imm(value), .. } => *inst = Inst::Const { to: *to, value: *value },
            Inst::Fact { layer, .. } => *layer = Layer::Outer,
            Inst::Meta { to, meta } => {
                let value = match meta {
                    Meta::Depth | Meta::Outgoing => 0,
                    Meta::Ethernet => 1,
                    Meta::Port => options.port.into(),
                    Meta::Ingress => options.ingress.into(),
                    Meta::HashKey => options.hash_key,
                    _ => continue,
                };
                *inst = Inst::Const { to: *to, value };
            }
            _ => (),
        }
    }
    if whole {
        decide(&mut plain);
    }
    while drop_unused(&mut plain) {}
    rename(&mut plain)?;
    Ok(plain)
}

/// Takes out the questions about numbers that are known in their block, and what nothing leads to any more.
fn decide(program: &mut Program) {
    let mut reached = vec![false; program.blocks.len()];
    reached[0] = true;
    for at in 0..program.blocks.len() {
        let block = &mut program.blocks[at];
        if !reached[at] {
            *block = Block { code: vec![], end: End::Pass };
            continue;
        }
        if let End::If { cmp, a, b: Operand::Imm(b), yes, no } = block.end
            && let Some(Inst::Const { value, .. }) = block.code.iter().rev().find(|inst| inst.target() == Some(a))
        {
            block.end = End::Jump(if cmp.holds(*value, b) { yes } else { no });
        }
        block.end.targets().for_each(|to| reached[to.0 as usize] = true);
    }
}

/// What is left of a program whose record nobody gets to see: the ways that its packets go. What is computed for the record, and
/// what is asked only to do so, goes.
pub fn without_record(head: &Program) -> Program {
    let mut program = head.clone();
    // A question that is not asked any more leaves code that nobody needs, and that a block that does nothing.
    loop {
        let any = drop_unread(&mut program);
        straighten(&mut program);
        if !drop_unused(&mut program) && !any {
            return program;
        }
    }
}

/// Takes out what is written to the record where nobody asks for it on the way from there; whether there was something.
fn drop_unread(program: &mut Program) -> bool {
    let mut any = false;
    // By block, the variables that are asked for from there on, as bits. Ways lead forward only.
    let mut asked = vec![0_u8; program.blocks.len()];
    for at in (0..program.blocks.len()).rev() {
        let block = &mut program.blocks[at];
        let mut now = block.end.targets().fold(0, |all, to| all | asked[to.0 as usize]);
        let mut kept: Vec<Inst> = Vec::with_capacity(block.code.len());
        for inst in block.code.drain(..).rev() {
            match inst {
                Inst::Get { var, .. } => now |= 1 << var as u8,
                Inst::Set { var, .. } if now >> var as u8 & 1 == 0 => {
                    any = true;
                    continue;
                }
                Inst::Set { var, .. } => now &= !(1 << var as u8),
                _ => (),
            }
            kept.push(inst);
        }
        kept.reverse();
        (block.code, asked[at]) = (kept, now);
    }
    any
}

/// Goes around blocks that do nothing, and does not ask where both answers lead to the same place.
fn straighten(program: &mut Program) {
    let blocks = &mut program.blocks;
    // The last one of those that only pass or drop stands for all of them: every way may lead there.
    let last = |end: End, blocks: &[Block]| {
        let at = blocks.iter().rposition(|b| b.code.is_empty() && b.end == end)?;
        Some(BlockId(at as u32))
    };
    let (pass, drop) = (last(End::Pass, blocks), last(End::Drop, blocks));
    for at in (0..blocks.len()).rev() {
        let beyond = |to: BlockId| match &blocks[to.0 as usize] {
            b if !b.code.is_empty() => to,
            b => match b.end {
                End::Jump(on) => on,
                End::Pass => pass.unwrap_or(to),
                End::Drop => drop.unwrap_or(to),
                _ => to,
            },
        };
        let end = match blocks[at].end {
            End::Jump(to) => End::Jump(beyond(to)),
            End::If { cmp, a, b, yes, no } => match (beyond(yes), beyond(no)) {
                (yes, no) if yes == no => End::Jump(yes),
                (yes, no) => End::If { cmp, a, b, yes, no },
            },
            End::Fits { base, offset, len, yes, no } => match (beyond(yes), beyond(no)) {
                (yes, no) if yes == no => End::Jump(yes),
                (yes, no) => End::Fits { base, offset, len, yes, no },
            },
            end => end,
        };
        blocks[at].end = end;
    }
}

/// Each stage gets registers of its own. None lives from one to the next, but they have the same numbers, and by its number a
/// register would seem to live from the first stage to the last.
fn rename(program: &mut Program) -> Result<(), Refusal> {
    let stages: Vec<_> = (0..program.stages.len()).map(|s| program.blocks_of(s)).collect();
    let mut next = 0;
    for blocks in stages {
        let mut names: Vec<Option<u16>> = vec![None; program.registers.into()];
        for block in &mut program.blocks[blocks] {
            let mut rename = |r: &mut Reg| {
                let name = names[usize::from(r.0)].get_or_insert_with(|| {
                    next += 1;
                    (next - 1) as u16
                });
                *r = Reg(*name);
            };
            block.code.iter_mut().for_each(|inst| registers(inst, &mut rename));
            match &mut block.end {
                End::If { a, b, .. } => {
                    rename(a);
                    if let Operand::Reg(b) = b {
                        rename(b);
                    }
                }
                End::Fits { base: Some(base), .. } => rename(base),
                _ => (),
            }
        }
    }
    program.registers = u16::try_from(next).map_err(|_| Refusal::TooLong { distance: next })?;
    Ok(())
}

/// Takes out what makes a number that nobody reads; whether there was something.
pub fn drop_unused(program: &mut Program) -> bool {
    let mut last = vec![0; program.registers.into()];
    let mut place = 0;
    for block in &program.blocks {
        for inst in &block.code {
            place += 1;
            inst.sources(|r| last[usize::from(r.0)] = place);
        }
        place += 1;
        match block.end {
            End::If { a, b, .. } => {
                last[usize::from(a.0)] = place;
                if let Operand::Reg(b) = b {
                    last[usize::from(b.0)] = place;
                }
            }
            End::Fits { base: Some(base), .. } => last[usize::from(base.0)] = place,
            _ => (),
        }
    }
    let (mut place, mut any) = (0, false);
    for block in &mut program.blocks {
        block.code.retain(|inst| {
            place += 1;
            let acts = matches!(inst, Inst::MapAdd { .. } | Inst::MapGet { .. });
            let unused = !acts && inst.target().is_some_and(|to| last[usize::from(to.0)] <= place);
            any |= unused;
            !unused
        });
        place += 1;
    }
    any
}

/// Calls `see` with each register that an instruction names.
fn registers(inst: &mut Inst, see: &mut impl FnMut(&mut Reg)) {
    let operand = |o: &mut Operand, see: &mut dyn FnMut(&mut Reg)| {
        if let Operand::Reg(r) = o {
            see(r);
        }
    };
    match inst {
        Inst::Const { to, .. } | Inst::Fact { to, .. } | Inst::Meta { to, .. } | Inst::Get { to, .. } => see(to),
        Inst::Copy { to, from } | Inst::Mix { to, from } => {
            see(from);
            see(to);
        }
        Inst::Op { to, a, b, .. } | Inst::Is { to, a, b, .. } => {
            see(a);
            operand(b, see);
            see(to);
        }
        Inst::Load { to, base, .. } => {
            base.iter_mut().for_each(&mut *see);
            see(to);
        }
        Inst::Set { from, .. } => operand(from, see),
        Inst::Datagram { to, value, .. } => {
            operand(value, see);
            see(to);
        }
        Inst::Member { to, hi, lo, .. } => {
            see(hi);
            see(lo);
            see(to);
        }
        Inst::Has { to, key, .. } | Inst::MapGet { to, key, .. } => {
            key.iter_mut().for_each(&mut *see);
            see(to);
        }
        Inst::MapAdd { to, key, by, .. } => {
            key.iter_mut().for_each(&mut *see);
            operand(by, see);
            see(to);
        }
        Inst::MapPut { key, value, .. } => {
            key.iter_mut().for_each(&mut *see);
            operand(value, see);
        }
        Inst::MapDelete { key, .. } => key.iter_mut().for_each(see),
        Inst::Count { by, .. } => operand(by, see),
        Inst::Forward { .. } | Inst::Kernel | Inst::Log(_) => (),
    }
}
