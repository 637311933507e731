//! From tests to the intermediate form. A byte that is not there ends the whole filter, past every `not`.

use super::arith::{Base, Number};
use super::link::{Place, Test};
use crate::ir::{Builder, Cmp, Label, Meta, Op, Reg};

/// To `yes` if the test holds, else to `no`.
pub fn emit(b: &mut Builder, test: &Test, yes: Label, no: Label) {
    Emit { b, reject: no }.test(test, yes, no);
}

struct Emit<'a> {
    b: &'a mut Builder,
    reject: Label,
}

/// Arithmetic of filters has 32 bits.
const WORD: u64 = 0xffff_ffff;

impl Emit<'_> {
    fn test(&mut self, test: &Test, yes: Label, no: Label) {
        match test {
            Test::Always(is) => self.b.jump(if *is { yes } else { no }),
            Test::Not(t) => self.test(t, no, yes),
            Test::And(s, t) => {
                let both = self.b.label();
                self.test(s, both, no);
                self.b.place(both);
                self.test(t, yes, no);
            }
            Test::Or(s, t) => {
                let neither = self.b.label();
                self.test(s, yes, neither);
                self.b.place(neither);
                self.test(t, yes, no);
            }
            Test::Field { place, width, mask, cmp, value } => {
                let mut field = self.field(*place, *width);
                if *mask != u64::MAX {
                    field = self.b.op(Op::And, field, *mask);
                }
                self.b.branch(field, *cmp, *value, yes, no);
            }
            Test::Relation(left, cmp, right) => {
                let left = self.number(left);
                match right.constant() {
                    Some(right) => self.b.branch(left, *cmp, u64::from(right), yes, no),
                    None => {
                        let right = self.number(right);
                        self.b.branch(left, *cmp, right, yes, no);
                    }
                }
            }
        }
    }

    fn field(&mut self, place: Place, width: u8) -> Reg {
        match place {
            Place::At(offset) => {
                self.b.fits(None, offset, width.into(), self.reject);
                self.b.load(None, offset, width)
            }
            Place::BehindIpv4 { header, offset } => {
                let len = self.ipv4_len(header);
                self.b.fits(Some(len), header + offset, width.into(), self.reject);
                self.b.load(Some(len), header + offset, width)
            }
        }
    }

    fn ipv4_len(&mut self, header: u32) -> Reg {
        self.b.fits(None, header, 1, self.reject);
        let first = self.b.load(None, header, 1);
        let words = self.b.op(Op::And, first, 0xf);
        self.b.op(Op::Shl, words, 2)
    }

    fn number(&mut self, n: &Number) -> Reg {
        if let Some(n) = n.constant() {
            return self.b.constant(n.into());
        }
        match n {
            Number::Is(n) => self.b.constant((*n).into()),
            Number::Len => self.b.meta(Meta::WireLen),
            Number::Op(op, a, b) => {
                let (a, b) = (self.number(a), self.number(b));
                match op {
                    Op::Div | Op::Rem => self.b.require(b, Cmp::Ne, 0, self.reject),
                    // A shift by 32 or more leaves nothing: then it is done by 63, which leaves nothing of 32 bits to the right;
                    // to the left the low 32 bits are what counts.
                    Op::Shl | Op::Shr => {
                        let by = self.b.op(Op::Min, b, 63);
                        let moved = self.b.op(*op, a, by);
                        return self.b.op(Op::And, moved, WORD);
                    }
                    _ => (),
                }
                let result = self.b.op(*op, a, b);
                if matches!(op, Op::Add | Op::Sub | Op::Mul) { self.b.op(Op::And, result, WORD) } else { result }
            }
            Number::Load { base, index, width } => {
                let (offset, header) = match base {
                    Base::At(offset) => (*offset, None),
                    Base::BehindIpv4(header) => (*header, Some(self.ipv4_len(*header))),
                };
                // A constant is added to the offset when the filter is made, and there a negative one leads back.
                let (index, offset) = match index.constant().map(|n| offset.wrapping_add(n)) {
                    Some(n) if n <= crate::ir::MAX_OFFSET / 2 => {
                        self.b.fits(header, n, (*width).into(), self.reject);
                        return self.b.load(header, n, *width);
                    }
                    Some(n) => (self.b.constant(n.into()), 0),
                    None => (self.number(index), offset),
                };
                let mut at = index;
                if let Some(header) = header {
                    at = self.b.op(Op::Add, at, header);
                }
                // Registers have 32 bits, and what is added to them in a load does not wrap: behind a negative index lies nothing.
                let at = self.b.op(Op::And, at, WORD);
                self.b.fits(Some(at), offset, (*width).into(), self.reject);
                self.b.load(Some(at), offset, *width)
            }
        }
    }
}
