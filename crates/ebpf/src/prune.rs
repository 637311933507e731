//! Code that is never reached, and jumps to where the program goes anyhow: who writes code piece by piece leaves both behind, and
//! the kernel refuses the former.

use crate::asm::Asm;
use crate::insn::{Insn, class, part};

impl Asm {
    /// Takes out what no way leads to, and jumps over nothing. What a jump to a label that stands nowhere would reach is left to
    /// [`Asm::finish`].
    pub fn prune(&mut self) {
        loop {
            let keep = self.needed();
            if keep.iter().all(|k| *k) {
                return;
            }
            // Where each slot goes; what is taken out stands for what comes after it.
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

    /// Which slots are reached and do something.
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

/// Where control goes from an instruction.
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
    fn what_no_way_leads_to_is_taken_out() {
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
        let listing = format!("{:?}", asm.finish().expect("all is placed"));
        let expected = "0: if r1 == 0 goto 4\n1: r0 = 0x10000000000 ll\n3: exit\n4: r0 = 2\n5: exit\n";
        assert_eq!(listing, expected);
    }
}
