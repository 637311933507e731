//! Emits arithmetic and comparisons. Operations of [`ir`] have the same results as those of eBPF: x / 0 is 0, and x % 0
//! is x.

use super::Emitter;
use crate::alloc::{Location, ValueRef};
use crate::{frame, meta};
use ebpf::{Alu, Condition, Label, Reg as R, Size};
use ir::{Cmp, Op, Operand, Reg, Var, VerdictKind};

/// The number as a 32-bit immediate, which eBPF sign-extends to 64 bits; `None` if sign extension would yield a
/// different number.
pub(super) const fn immediate(n: u64) -> Option<i32> {
    let short = n as i32;
    if short as i64 as u64 == n { Some(short) } else { None }
}

impl Emitter<'_> {
    /// Emits code that writes a constant to a register of the program.
    pub fn number(&mut self, to: Reg, value: u64) {
        match self.form.allocation.of_what(ValueRef::Number(to)) {
            Some(Location::Reg(r)) => self.constant(r, value),
            Some(Location::Slot(s)) => match immediate(value) {
                Some(n) => self.asm.store_imm(Size::Dw, R::R10, frame::slot(s), n),
                None => {
                    self.constant(R::R0, value);
                    self.asm.store(Size::Dw, R::R10, frame::slot(s), R::R0);
                }
            },
            None => (),
        }
    }

    /// Emits code that loads a constant into a machine register.
    pub fn constant(&mut self, to: R, value: u64) {
        match immediate(value) {
            Some(n) => self.asm.mov(to, n),
            None => self.asm.wide(to, value),
        }
    }

    /// If the operand is a register with a constant value, returns the constant, otherwise the operand itself.
    fn known(&self, operand: Operand) -> Operand {
        match operand {
            Operand::Reg(r) => self.form.allocation.constant(r).map_or(operand, Operand::Imm),
            Operand::Imm(_) => operand,
        }
    }

    /// Returns the machine register that contains the operand; `scratch` if the value must be loaded.
    pub fn operand(&mut self, from: Operand, scratch: R) -> R {
        match from {
            Operand::Reg(r) => self.read(r, scratch),
            Operand::Imm(n) => {
                self.constant(scratch, n);
                scratch
            }
        }
    }

    pub(super) fn op(&mut self, to: Reg, op: Op, a: Reg, b: Operand) {
        let a = self.read(a, R::R1);
        let b = self.known(b);
        let (b, short) = match b {
            Operand::Imm(n) => match immediate(if matches!(op, Op::Shl | Op::Shr) { n & 63 } else { n }) {
                Some(n) => (None, n),
                None => (Some(self.operand(b, R::R2)), 0),
            },
            Operand::Reg(_) => (Some(self.operand(b, R::R2)), 0),
        };
        // The result must not overwrite `b` before `b` is read. So commutative operations exchange their operands, and
        // other operations compute the result in r0.
        let turns = matches!(op, Op::Add | Op::Mul | Op::And | Op::Or | Op::Xor | Op::Min | Op::Max);
        let (a, b) = match (self.target(to), b) {
            (into, Some(b)) if into == b && turns => (b, Some(a)),
            (_, b) => (a, b),
        };
        let into = if Some(self.target(to)) == b { R::R0 } else { self.target(to) };
        let alu = match op {
            Op::Add => Alu::Add,
            Op::Sub => Alu::Sub,
            Op::Mul => Alu::Mul,
            Op::Div => Alu::Div,
            Op::Rem => Alu::Mod,
            Op::And => Alu::And,
            Op::Or => Alu::Or,
            Op::Xor => Alu::Xor,
            Op::Shl => Alu::Shl,
            Op::Shr => Alu::Shr,
            Op::Min | Op::Max => {
                let condition = if op == Op::Min { Condition::Le } else { Condition::Ge };
                let done = self.asm.label();
                if into != a {
                    self.asm.mov_reg(into, a);
                }
                match b {
                    Some(b) => {
                        self.asm.jump_if_reg(condition, into, b, done);
                        self.asm.mov_reg(into, b);
                    }
                    None => {
                        self.asm.jump_if(condition, into, short, done);
                        self.asm.mov(into, short);
                    }
                }
                self.asm.place(done);
                return self.write(to, into);
            }
        };
        match (op, b) {
            // For a division by the constant 0, only the known result is emitted: the kernel's verifier would reject
            // the division.
            (Op::Div, None) if short == 0 => self.asm.mov(into, 0),
            (Op::Rem, None) if short == 0 => self.asm.mov_reg(into, a),
            (Op::Shl | Op::Shr, Some(b)) => {
                if b != R::R2 {
                    self.asm.mov_reg(R::R2, b);
                }
                self.asm.alu(Alu::And, R::R2, 63);
                if into != a {
                    self.asm.mov_reg(into, a);
                }
                self.asm.alu_reg(alu, into, R::R2);
            }
            (_, b) => {
                if into != a {
                    self.asm.mov_reg(into, a);
                }
                match b {
                    Some(b) => self.asm.alu_reg(alu, into, b),
                    None => self.asm.alu(alu, into, short),
                }
            }
        }
        self.write(to, into);
    }

    /// [`base::hash::mix64`].
    pub(super) fn mix(&mut self, to: Reg, from: Reg) {
        let (from, x) = (self.read(from, R::R0), self.target(to));
        if from != x {
            self.asm.mov_reg(x, from);
        }
        for (shift, factor) in [(30, Some(0xbf58_476d_1ce4_e5b9)), (27, Some(0x94d0_49bb_1331_11eb)), (31, None)] {
            self.asm.mov_reg(R::R1, x);
            self.asm.alu(Alu::Shr, R::R1, shift);
            self.asm.alu_reg(Alu::Xor, x, R::R1);
            if let Some(factor) = factor {
                self.asm.wide(R::R2, factor);
                self.asm.alu_reg(Alu::Mul, x, R::R2);
            }
        }
        self.write(to, x);
    }

    pub(super) fn is(&mut self, to: Reg, cmp: Cmp, a: Reg, b: Operand) {
        let (yes, end) = (self.asm.label(), self.asm.label());
        self.branch(cmp, a, b, yes);
        self.asm.mov(R::R0, 0);
        self.asm.jump(end);
        self.asm.place(yes);
        self.asm.mov(R::R0, 1);
        self.asm.place(end);
        self.write(to, R::R0);
    }

    /// Emits a jump to `yes` that is taken if the comparison holds.
    pub(super) fn branch(&mut self, cmp: Cmp, a: Reg, b: Operand, yes: Label) {
        let a = self.read(a, R::R1);
        let condition = match cmp {
            Cmp::Eq => Condition::Eq,
            Cmp::Ne => Condition::Ne,
            Cmp::Lt => Condition::Lt,
            Cmp::Le => Condition::Le,
            Cmp::Gt => Condition::Gt,
            Cmp::Ge => Condition::Ge,
            Cmp::AnyBit => Condition::Set,
            Cmp::AllBits => {
                let b = self.operand(b, R::R2);
                self.asm.mov_reg(R::R0, a);
                self.asm.alu_reg(Alu::And, R::R0, b);
                return self.asm.jump_if_reg(Condition::Eq, R::R0, b, yes);
            }
        };
        match self.known(b) {
            Operand::Imm(n) if immediate(n).is_some() => self.asm.jump_if(condition, a, n as i32, yes),
            _ => {
                let b = self.operand(b, R::R2);
                self.asm.jump_if_reg(condition, a, b, yes);
            }
        }
    }

    /// Emits code that writes a variable of the verdict record.
    pub(super) fn set(&mut self, var: Var, from: Operand) {
        let (size, at) = meta::at::of(var);
        let at = frame::RECORD + at as i16;
        match (var, from) {
            (Var::Kind, Operand::Imm(n)) => {
                self.asm.store_imm(size, R::R10, at, VerdictKind::from_number(n) as i32);
            }
            (Var::Kind, Operand::Reg(from)) => {
                let (from, known) = (self.read(from, R::R0), self.asm.label());
                self.asm.mov_reg(R::R0, from);
                self.asm.jump_if(Condition::Le, R::R0, VerdictKind::Pick as i32, known);
                self.asm.mov(R::R0, VerdictKind::Drop as i32);
                self.asm.place(known);
                self.asm.store(size, R::R10, at, R::R0);
            }
            (Var::Classes, Operand::Imm(n)) if immediate(n).is_none() => {
                self.asm.wide(R::R0, n);
                self.asm.store(size, R::R10, at, R::R0);
            }
            (_, Operand::Imm(n)) => self.asm.store_imm(size, R::R10, at, n as i32),
            (_, Operand::Reg(from)) => {
                let from = self.read(from, R::R0);
                self.asm.store(size, R::R10, at, from);
            }
        }
    }
}
