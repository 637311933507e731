//! Register allocation: assigns each value of the program to a machine register or to a stack slot.
//!
//! Jumps lead only to later blocks, and blocks are emitted in order. So on every path a register of the program is live
//! at most from the first instruction in this order that writes it to the last instruction that reads it. The live
//! ranges are therefore intervals, which are allocated in one pass (Poletto and Sarkar, "Linear scan register
//! allocation", 1999). Helper calls preserve r6 to r9 but not r3 to r5; r0 to r2 are not allocated and serve as scratch
//! registers.

use ebpf::Reg as R;
use ir::{Block, End, Inst, KernelPrefix, Operand, Program};

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The value is in this machine register.
    Reg(R),
    /// The value is in the stack slot with this number; a slot has eight bytes.
    Slot(usize),
}

/// A value to which the allocation assigns a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef {
    /// The number in a register of the program.
    Number(ir::Reg),
    /// A pointer into the packet, computed from the offset in a register of the program.
    Pointer(ir::Reg),
}

/// The result of the allocation.
#[derive(Debug)]
pub struct Allocation {
    homes: Vec<Option<Location>>,
    /// For each register of the program: its value, if the value is constant. A constant has no location; the code
    /// generator loads it where it is needed.
    constants: Vec<Option<u64>>,
    registers: usize,
    /// The number of stack slots in use.
    pub slots: usize,
}

/// The live range of a value: the positions of its first and of its last use.
#[derive(Clone, Copy, Debug)]
struct Interval {
    what: usize,
    from: usize,
    to: usize,
    over_call: bool,
}

const OVER_CALLS: [R; 4] = [R::R6, R::R7, R::R8, R::R9];
const BETWEEN_CALLS: [R; 3] = [R::R3, R::R4, R::R5];

impl Allocation {
    /// Allocates the values of the reachable blocks. In each block, only the instructions count that the kernel runs
    /// ([`reached_code`]). `calls` returns true for instructions that call a kernel helper.
    pub fn of(program: &Program, prefix: &KernelPrefix, calls: impl Fn(&Inst) -> bool) -> Self {
        let registers = usize::from(program.registers);
        let constants = constants(program);
        let mut intervals: Vec<Option<Interval>> = vec![None; 2 * registers];
        let mut called = Vec::new();
        let mut place = 0;
        let mut see = |what: usize, place: usize| {
            let i = intervals[what].get_or_insert(Interval { what, from: place, to: place, over_call: false });
            i.to = place;
        };
        for (at, block) in program.blocks.iter().enumerate().filter(|b| prefix.reached[b.0]) {
            for inst in reached_code(block, prefix.stops[at].map(|s| s.0)) {
                place += 1;
                inst.sources(|r| see(r.0.into(), place));
                if let Inst::Load { base: Some(base), .. } = inst {
                    see(registers + usize::from(base.0), place);
                }
                if let Some(to) = inst.target() {
                    see(to.0.into(), place);
                }
                if calls(inst) {
                    called.push(place);
                }
            }
            place += 1;
            if prefix.stops[at].is_some() {
                continue;
            }
            match block.end {
                End::If { a, b, .. } => {
                    see(a.0.into(), place);
                    if let Operand::Reg(b) = b {
                        see(b.0.into(), place);
                    }
                }
                End::Fits { base: Some(base), .. } => {
                    see(base.0.into(), place);
                    see(registers + usize::from(base.0), place);
                }
                _ => (),
            }
        }
        let mut line: Vec<Interval> = intervals.into_iter().flatten().collect();
        for i in &mut line {
            let after = called.partition_point(|c| *c <= i.from);
            i.over_call = called.get(after).is_some_and(|c| *c < i.to);
        }
        line.retain(|i| constants.get(i.what).is_none_or(Option::is_none));
        line.sort_unstable_by_key(|i| (i.from, i.what));
        Self::scan(&line, registers, constants)
    }

    fn scan(line: &[Interval], registers: usize, constants: Vec<Option<u64>>) -> Self {
        let mut out = Self { homes: vec![None; 2 * registers], constants, registers, slots: 0 };
        let mut free: Vec<R> = OVER_CALLS.into_iter().chain(BETWEEN_CALLS).collect();
        // For each stack slot: the end of the live range of the last value that was assigned to it.
        let mut busy: Vec<usize> = Vec::new();
        let mut active: Vec<Interval> = Vec::new();
        for now in line {
            active.retain(|old| {
                let alive = old.to > now.from;
                if let (false, Some(Location::Reg(r))) = (alive, out.homes[old.what]) {
                    free.push(r);
                }
                alive
            });
            let suits = |r: &R| !now.over_call || OVER_CALLS.contains(r);
            // If a value is dead before the next call, a register that calls clobber is preferred for it, so that
            // preserved registers stay available for other values.
            let best = (0..free.len())
                .filter(|i| suits(&free[*i]))
                .min_by_key(|i| (OVER_CALLS.contains(&free[*i]) && !now.over_call, free[*i].number()));
            let home = match best {
                Some(i) => Location::Reg(free.swap_remove(i)),
                None => {
                    // If no register is free, the value whose live range ends last is moved to a stack slot.
                    let longest = active
                        .iter()
                        .filter(|o| matches!(out.homes[o.what], Some(Location::Reg(r)) if suits(&r)))
                        .max_by_key(|o| o.to)
                        .filter(|o| o.to > now.to)
                        .copied();
                    // A value that is moved to a stack slot is there for its whole live range.
                    let moved = longest.unwrap_or(*now);
                    let slot = busy.iter().position(|until| *until <= moved.from).unwrap_or(busy.len());
                    if slot == busy.len() {
                        busy.push(0);
                    }
                    busy[slot] = moved.to;
                    match longest {
                        Some(o) => out.homes[o.what].replace(Location::Slot(slot)).unwrap_or(Location::Slot(slot)),
                        None => Location::Slot(slot),
                    }
                }
            };
            out.homes[now.what] = Some(home);
            active.push(*now);
        }
        out.slots = busy.len();
        out
    }

    /// The value of the register if it is constant.
    pub fn constant(&self, r: ir::Reg) -> Option<u64> {
        self.constants[usize::from(r.0)]
    }

    /// The location of a value; `None` for a constant, and for a value that the reachable code does not use.
    pub fn of_what(&self, what: ValueRef) -> Option<Location> {
        match what {
            ValueRef::Number(r) => self.homes[usize::from(r.0)],
            ValueRef::Pointer(r) => self.homes[self.registers + usize::from(r.0)],
        }
    }
}

/// For each register of the program: its constant value, if exactly one instruction writes the register and that
/// instruction writes a constant.
fn constants(program: &Program) -> Vec<Option<u64>> {
    let mut known = vec![None; program.registers.into()];
    let mut written = vec![false; program.registers.into()];
    for inst in program.blocks.iter().flat_map(|b| &b.code) {
        let Some(to) = inst.target().map(|to| usize::from(to.0)) else { continue };
        known[to] = match inst {
            Inst::Const { value, .. } if !written[to] => Some(*value),
            _ => None,
        };
        written[to] = true;
    }
    known
}

/// The instructions of a block before `stop`, the index of the first instruction that the kernel cannot run.
pub fn reached_code(block: &Block, stop: Option<usize>) -> &[Inst] {
    &block.code[..stop.unwrap_or(block.code.len())]
}
