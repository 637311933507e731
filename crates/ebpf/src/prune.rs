//! Removes unreachable code, and jumps to the next instruction. Code generators emit such jumps and unreachable code
//! where they join parts of a program. The kernel's verifier rejects programs with unreachable code.

use crate::asm::Asm;
use crate::insn::{Insn, class, part};

impl Asm {
    /// Removes unreachable instructions and jumps to the next instruction. Jumps to labels that are not placed remain;
    /// [`Asm::finish`] reports them.
    pub fn prune(&mut self) {
        loop {
            let keep = self.needed();
            if keep.iter().all(|k| *k) {
                return;
            }
            // The new position of each slot. A removed slot is mapped to the new position of the next slot that is not
            // removed.
            let mut to = Vec::with_capacity(keep.len() + 1);
            let mut next = 0;
            for kept in &keep {
                to.push(next);
                next += usize::from(*kept);
            }
            to.push(next);
            let mut kept = keep.iter();
            self.slots.retain(|_| *kept.next().unwrap_or(&true));
            self.labels.iter_mut().flatten().for_each(|at| *at = to[*at]);
            self.jumps.retain(|(slot, _)| keep[*slot]);
            self.jumps.iter_mut().for_each(|(slot, _)| *slot = to[*slot]);
        }
    }

    /// Marks the slots that are retained: they are reachable, and they are not jumps to the next instruction.
    fn needed(&self) -> Vec<bool> {
        let mut keep = vec![false; self.slots.len()];
        let mut targets = vec![None; self.slots.len()];
        for (slot, label) in &self.jumps {
            targets[*slot] = self.target(*label);
        }
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            if at >= keep.len() || keep[at] {
                continue;
            }
            keep[at] = true;
            match ControlFlow::of(self.slots[at]) {
                ControlFlow::On => open.push(at + 1),
                ControlFlow::Wide => {
                    if let Some(upper) = keep.get_mut(at + 1) {
                        *upper = true;
                    }
                    open.push(at + 2);
                }
                ControlFlow::Jump => open.extend(targets[at]),
                ControlFlow::Branch => {
                    open.push(at + 1);
                    open.extend(targets[at]);
                }
                ControlFlow::End => (),
            }
        }
        for (at, target) in targets.iter().enumerate() {
            if *target == Some(at + 1) {
                keep[at] = false;
            }
        }
        keep
    }
}

/// The positions at which execution can continue after an instruction.
enum ControlFlow {
    On,
    Wide,
    Jump,
    Branch,
    End,
}

impl ControlFlow {
    fn of(insn: Insn) -> Self {
        let operation = insn.code() & 0xf0;
        match insn.code() & 0x07 {
            class::LD if insn.code() == part::WIDE | class::LD => Self::Wide,
            class::JMP if operation == part::ALWAYS => Self::Jump,
            class::JMP if operation == part::EXIT => Self::End,
            class::JMP if operation == part::CALL => Self::On,
            class::JMP | class::JMP32 => Self::Branch,
            _ => Self::On,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Asm, Condition, Reg};

    #[test]
    fn unreachable_code_is_removed() {
        let mut asm = Asm::new();
        let (end, never, next) = (asm.label(), asm.label(), asm.label());
        asm.jump_if(Condition::Eq, Reg::R1, 0, end);
        asm.jump(next);
        asm.place(never);
        asm.wide(Reg::R0, u64::MAX);
        asm.jump(never);
        asm.place(next);
        asm.wide(Reg::R0, 1 << 40);
        asm.exit();
        asm.place(end);
        asm.mov(Reg::R0, 2);
        asm.exit();
        asm.prune();
        let listing = format!("{:?}", asm.finish().expect("every label is placed"));
        let expected = "0: if r1 == 0 goto 4\n1: r0 = 0x10000000000 ll\n3: exit\n4: r0 = 2\n5: exit\n";
        assert_eq!(listing, expected);
    }
}
