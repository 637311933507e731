//! Simplifies the stages that run in the kernel. The simplified stages are correct only for packets about which the
//! kernel decides. Also removes dead code.

use super::{EmitOptions, Refusal};
use ir::{Block, BlockId, End, Fact, Inst, Layer, Meta, Operand, Program, Reg};

/// Replaces values that are known at compile time by constants, and facts of the inner layer by those of the outer
/// layer. `whole` is true if the kernel leaves all fragments undecided; the returned program then runs only for
/// unfragmented packets.
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

/// Replaces a branch by a jump if the compared register has a constant that is written in the same block, and empties
/// the blocks that become unreachable.
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

/// Removes computations that serve only the verdict record, for programs whose verdict record the kernel does not pass
/// to user space. The code that decides whether the packet passes is not changed.
pub fn without_record(head: &Program) -> Program {
    let mut program = head.clone();
    // When a branch is removed, computations become unused; when unused computations are removed, blocks become empty.
    // So both steps are repeated until nothing changes.
    loop {
        let any = drop_unread(&mut program);
        straighten(&mut program);
        if !drop_unused(&mut program) && !any {
            return program;
        }
    }
}

/// Removes writes to variables of the verdict record that no later instruction reads. Returns true if it removed any.
fn drop_unread(program: &mut Program) -> bool {
    let mut any = false;
    // For each block, a bit mask of the variables that this block or a later block reads. Jumps lead only to later
    // blocks, so one pass from the last block to the first is sufficient.
    let mut reads = vec![0_u8; program.blocks.len()];
    for at in (0..program.blocks.len()).rev() {
        let block = &mut program.blocks[at];
        let mut now = block.end.targets().fold(0, |all, to| all | reads[to.0 as usize]);
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
        (block.code, reads[at]) = (kept, now);
    }
    any
}

/// Redirects edges that lead to an empty block to its successor, and replaces a branch with two equal targets by a
/// jump.
fn straighten(program: &mut Program) {
    let blocks = &mut program.blocks;
    // Several empty blocks with the same end can be replaced by the last of them. Every edge must lead to a later
    // block; this remains true, because the last of these blocks is later than the source of every edge to one of them.
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

/// Gives each stage registers that no other stage uses. No register is live across stages; but if several stages use
/// the same register number, the register allocation treats this register as live from the first of these stages to the
/// last.
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

/// Removes instructions whose result no instruction reads. Returns true if it removed any.
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

/// Calls `see` with each register that the instruction reads or writes.
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
        Inst::Duplicate { to, .. } => see(to),
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
