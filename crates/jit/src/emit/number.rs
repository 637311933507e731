//! Emits arithmetic, comparisons and tests of address sets, with the semantics that [`ir`] defines.

use super::Emitter;
use crate::host::HostCall;
use crate::refusal::Refusal;
use ::ir::{Cmp, Op, Operand, Reg, Set};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

/// A set with at most this number of ranges is tested range by range; larger sets are searched by a Rust function.
const INLINE_RANGES: usize = 6;

impl Emitter<'_> {
    pub(super) fn op(&mut self, op: Op, a: Reg, b: Operand) -> Value {
        let (a, b) = (self.reg(a), self.operand(b));
        match op {
            Op::Add => self.b.ins().iadd(a, b),
            Op::Sub => self.b.ins().isub(a, b),
            Op::Mul => self.b.ins().imul(a, b),
            Op::And => self.b.ins().band(a, b),
            Op::Or => self.b.ins().bor(a, b),
            Op::Xor => self.b.ins().bxor(a, b),
            // Both [`ir`] and Cranelift take the shift count modulo the width, so no masking is needed.
            Op::Shl => self.b.ins().ishl(a, b),
            Op::Shr => self.b.ins().ushr(a, b),
            Op::Min => {
                let less = self.b.ins().icmp(IntCC::UnsignedLessThan, a, b);
                self.b.ins().select(less, a, b)
            }
            Op::Max => {
                let more = self.b.ins().icmp(IntCC::UnsignedGreaterThan, a, b);
                self.b.ins().select(more, a, b)
            }
            Op::Div | Op::Rem => {
                let (zero, one) = (self.number(0), self.number(1));
                let by_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
                let safe = self.b.ins().select(by_zero, one, b);
                if op == Op::Div {
                    let quotient = self.b.ins().udiv(a, safe);
                    self.b.ins().select(by_zero, zero, quotient)
                } else {
                    let rest = self.b.ins().urem(a, safe);
                    self.b.ins().select(by_zero, a, rest)
                }
            }
        }
    }

    /// [`base::hash::mix64`].
    pub(super) fn mix(&mut self, from: Reg) -> Value {
        let mut x = self.reg(from);
        for (shift, factor) in [(30, Some(0xbf58_476d_1ce4_e5b9)), (27, Some(0x94d0_49bb_1331_11eb)), (31, None)] {
            let shift = self.number(shift);
            let moved = self.b.ins().ushr(x, shift);
            x = self.b.ins().bxor(x, moved);
            if let Some(factor) = factor {
                let factor = self.number(factor);
                x = self.b.ins().imul(x, factor);
            }
        }
        x
    }

    /// Emits a comparison; the result is a truth value of eight bits.
    pub(super) fn holds(&mut self, cmp: Cmp, a: Reg, b: Operand) -> Value {
        let (a, b) = (self.reg(a), self.operand(b));
        let plain = match cmp {
            Cmp::Eq => IntCC::Equal,
            Cmp::Ne => IntCC::NotEqual,
            Cmp::Lt => IntCC::UnsignedLessThan,
            Cmp::Le => IntCC::UnsignedLessThanOrEqual,
            Cmp::Gt => IntCC::UnsignedGreaterThan,
            Cmp::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cmp::AnyBit => {
                let (both, zero) = (self.b.ins().band(a, b), self.number(0));
                return self.b.ins().icmp(IntCC::NotEqual, both, zero);
            }
            Cmp::AllBits => {
                let both = self.b.ins().band(a, b);
                return self.b.ins().icmp(IntCC::Equal, both, b);
            }
        };
        self.b.ins().icmp(plain, a, b)
    }

    pub(super) fn member(&mut self, set: u16, hi: Reg, lo: Reg) -> Result<Value, Refusal> {
        let set = &self.sets[usize::from(set)];
        let (hi, lo) = (self.reg(hi), self.reg(lo));
        let ranges = match set {
            Set::Host => return Ok(self.number(0)),
            Set::Ranges(ranges) => ranges,
        };
        let simple: Option<Vec<_>> = ranges.iter().map(|r| Simple::of(*r)).collect();
        let Some(simple) = simple.filter(|s| s.len() <= INLINE_RANGES) else {
            let at = self.number(std::ptr::from_ref(set) as u64);
            return self.call(HostCall::Member, 0, &[at, hi, lo]);
        };
        let mut any = self.b.ins().iconst(I8, 0);
        for range in simple {
            let inside = match range {
                Simple::Low { hi: high, from, span } => {
                    let high = self.number(high);
                    let same = self.b.ins().icmp(IntCC::Equal, hi, high);
                    let inside = self.within(lo, from, span);
                    self.b.ins().band(same, inside)
                }
                Simple::High { from, span } => self.within(hi, from, span),
            };
            any = self.b.ins().bor(any, inside);
        }
        Ok(self.b.ins().uextend(I64, any))
    }

    fn within(&mut self, value: Value, from: u64, span: u64) -> Value {
        let (from, span) = (self.number(from), self.number(span));
        let above = self.b.ins().isub(value, from);
        self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, above, span)
    }
}

/// An address range for which one subtraction and one comparison of 64-bit words are sufficient.
enum Simple {
    /// Addresses with a common upper half of 64 bits, and a range of lower halves.
    Low { hi: u64, from: u64, span: u64 },
    /// Addresses with a range of upper halves, and any lower half.
    High { from: u64, span: u64 },
}

impl Simple {
    fn of((first, last): (u128, u128)) -> Option<Self> {
        let halves = |n: u128| ((n >> 64) as u64, n as u64);
        let ((first_hi, first_lo), (last_hi, last_lo)) = (halves(first), halves(last));
        if (first_lo, last_lo) == (0, u64::MAX) {
            return Some(Self::High { from: first_hi, span: last_hi - first_hi });
        }
        (first_hi == last_hi).then_some(Self::Low {
            hi: first_hi,
            from: first_lo,
            span: last_lo.wrapping_sub(first_lo),
        })
    }
}
