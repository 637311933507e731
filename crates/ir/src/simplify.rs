//! Removes tests whose result is certain at compile time. Stages are compiled independently, and no register is live
//! across stages. So several stages often contain the same test of a packet fact, and after the first of these tests
//! the result of the others is certain.
//!
//! The method is value numbering in a single pass over the blocks in order, like that of the verifier. Two registers
//! that are computed in the same way from the same packet have the same *value*, even in different stages. Along each
//! edge of the control flow, the pass records what the branch has proved: which comparisons hold or do not hold, and
//! which bytes were captured. A branch with a proved result becomes a jump; a register with a constant value becomes
//! that constant; an unreachable block becomes empty.
//!
//! The simplified program has the same meaning, but may fail verification: the verifier requires that a bounds test and
//! the load use the same register, and the remaining bounds test may use another register with the same value. Hence
//! only back ends use the simplified program.

use super::{
    Block, BlockId, Cmp, CommonCase, DEFAULT_CLASS, End, Fact, Inst, Layer, Meta, Op, Operand, Program, Reg, Var,
    VerdictKind,
};
use std::collections::{BTreeMap, HashMap};

/// Programs for which the number of blocks times the number of registers exceeds this limit are not simplified; this
/// bounds the compile time.
const MAX_STATE: usize = 1 << 22;

/// The state of the verdict record at the start of the program, as far as the compiler can rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The verdict record contains its initial values, because no part of the program has run.
    Fresh,
    /// The verdict record contains unknown values, because another part of the program has already run.
    Resumed,
}

impl Program {
    /// Returns the program without the tests whose result is certain. Only back ends may use the returned program:
    /// [`Program::verify`] may reject it, because the verifier may not recognise that all loads are within tested
    /// bounds. Blocks and stages have the same numbers as before.
    pub fn simplified(&self, start: Start) -> Self {
        self.with(simplify(&self.blocks, self.registers, start, None))
    }

    /// The program specialised for packets of a common case.
    pub fn simplified_for(&self, plain: CommonCase, start: Start) -> Self {
        let blocks = self.blocks.iter().map(|block| {
            let code = block.code.iter().map(|inst| plain.known(inst)).collect();
            Block { code, ..*block }
        });
        let blocks: Vec<_> = blocks.collect();
        self.with(simplify(&blocks, self.registers, start, Some(plain)))
    }

    /// A copy of the program with these blocks in place of its own.
    fn with(&self, blocks: Vec<Block>) -> Self {
        Self { blocks, ..self.clone() }
    }
}

fn simplify(program: &[Block], registers: u16, start: Start, plain: Option<CommonCase>) -> Vec<Block> {
    if program.len() * usize::from(registers).max(64) > MAX_STATE {
        return program.to_vec();
    }
    let mut pass = Pass { values: Values::default(), opaque: 0, protocol: None };
    let mut before: Vec<Option<KnownValues>> = vec![None; program.len()];
    before[0] = Some(pass.start(registers, start, plain));
    let mut blocks = Vec::with_capacity(program.len());
    for (at, block) in program.iter().enumerate() {
        let Some(mut known) = before[at].take() else {
            blocks.push(Block { code: vec![], end: End::Pass });
            continue;
        };
        let code = block.code.iter().map(|inst| pass.inst(inst, &mut known)).collect();
        let (end, edges) = pass.end(block.end, known);
        for (to, then) in edges {
            match &mut before[to] {
                Some(known) => pass.meet(known, &then),
                empty => *empty = Some(then),
            }
        }
        blocks.push(Block { code, end });
    }
    shorten(&mut blocks);
    blocks
}

/// Redirects edges that lead to an empty block to the successor of that block. A branch with two equal targets becomes
/// a jump.
fn shorten(blocks: &mut [Block]) {
    // Visits blocks in reverse order. Jumps lead only to later blocks, so the targets of a block are already final when
    // the block is visited.
    for at in (0..blocks.len()).rev() {
        let past = |to: BlockId| match &blocks[to.0 as usize] {
            Block { code, end: End::Jump(further) } if code.is_empty() => *further,
            _ => to,
        };
        let end = match blocks[at].end {
            End::Jump(to) => End::Jump(past(to)),
            End::If { yes, no, .. } | End::Fits { yes, no, .. } if past(yes) == past(no) => End::Jump(past(yes)),
            End::If { cmp, a, b, yes, no } => End::If { cmp, a, b, yes: past(yes), no: past(no) },
            End::Fits { base, offset, len, yes, no } => End::Fits { base, offset, len, yes: past(yes), no: past(no) },
            end @ (End::Pass | End::Drop) => end,
        };
        blocks[at].end = end;
    }
}

/// A value number. Two registers with the same number contain the same value.
type Value = u32;

/// The way in which a value is computed. The packet does not change while a program runs, so equal loads yield equal
/// values.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Expr {
    Const(u64),
    Fact(Layer, Fact),
    Meta(Meta),
    Mark,
    Load(Option<Value>, u32, u8),
    Op(Op, Value, Value),
    Is(Cmp, Value, Value),
    Mix(Value),
    Member(u16, Value, Value),
    /// A value about which nothing is known; it equals only itself.
    Opaque(u32),
}

#[derive(Default)]
struct Values {
    numbers: HashMap<Expr, Value>,
    exprs: Vec<Expr>,
}

impl Values {
    fn of(&mut self, expr: Expr) -> Value {
        *self.numbers.entry(expr).or_insert_with(|| {
            self.exprs.push(expr);
            self.exprs.len() as Value - 1
        })
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.exprs[value as usize] {
            Expr::Const(n) => Some(n),
            _ => None,
        }
    }
}

/// A comparison in normal form: one of `Eq`, `Lt`, `AnyBit` or `AllBits`.
type Comparison = (u8, Value, Value);

/// The values, and the results of comparisons and bounds tests, that are certain at one point of the program.
#[derive(Clone)]
struct KnownValues {
    registers: Vec<Value>,
    record: [Value; 6],
    results: BTreeMap<Comparison, bool>,
    numbers: BTreeMap<Value, u64>,
    proven: BTreeMap<Option<Value>, u32>,
}

struct Pass {
    values: Values,
    opaque: u32,
    /// The value of the IP protocol field. It is known only in a common case, in which it is one of
    /// [`CommonCase::PROTOCOLS`].
    protocol: Option<Value>,
}

impl Pass {
    fn start(&mut self, registers: u16, start: Start, plain: Option<CommonCase>) -> KnownValues {
        let (zero, mark) = (self.values.of(Expr::Const(0)), self.values.of(Expr::Mark));
        let mut record = [zero; 6];
        record[Var::Kind as usize] = self.values.of(Expr::Const(VerdictKind::Copy as u64));
        record[Var::Classes as usize] = self.values.of(Expr::Const(DEFAULT_CLASS));
        record[Var::Mark as usize] = mark;
        if start == Start::Resumed {
            record = record.map(|_| self.unknown());
        }
        let registers = vec![zero; registers.into()];
        let (results, numbers, mut proven): (_, _, BTreeMap<_, _>) = Default::default();
        if let Some(plain) = plain {
            proven.insert(None, plain.captured());
            self.protocol = Some(self.values.of(Expr::Load(None, plain.protocol(), 1)));
        }
        KnownValues { registers, record, results, numbers, proven }
    }

    fn unknown(&mut self) -> Value {
        self.opaque += 1;
        self.values.of(Expr::Opaque(self.opaque))
    }

    /// Called where two paths join. Removes from `known` all values and results that are not also certain in `other`.
    fn meet(&mut self, known: &mut KnownValues, other: &KnownValues) {
        let mut joined: HashMap<(Value, Value), Value> = HashMap::new();
        let pairs = known.registers.iter_mut().zip(&other.registers).chain(known.record.iter_mut().zip(&other.record));
        for (a, b) in pairs {
            if a != b {
                // Two registers that have equal values on both paths also have equal values after the join.
                *a = *joined.entry((*a, *b)).or_insert_with(|| self.unknown());
            }
        }
        known.results.retain(|q, result| other.results.get(q) == Some(result));
        known.numbers.retain(|v, n| other.numbers.get(v) == Some(n));
        known.proven.retain(|base, end| match other.proven.get(base) {
            Some(theirs) => {
                *end = (*end).min(*theirs);
                true
            }
            None => false,
        });
    }

    fn operand(&mut self, operand: Operand, known: &KnownValues) -> Value {
        match operand {
            Operand::Reg(r) => known.registers[usize::from(r.0)],
            Operand::Imm(n) => self.values.of(Expr::Const(n)),
        }
    }

    /// Replaces an operand by a constant, if its register has a constant value.
    fn plain(&self, operand: Operand, known: &KnownValues) -> Operand {
        match operand {
            Operand::Reg(r) => self.values.constant(known.registers[usize::from(r.0)]).map_or(operand, Operand::Imm),
            Operand::Imm(_) => operand,
        }
    }

    /// Returns the simplified instruction, and records the value of its result in `known`.
    fn inst(&mut self, inst: &Inst, known: &mut KnownValues) -> Inst {
        let of = |r: &Reg| known.registers[usize::from(r.0)];
        let mut inst = inst.clone();
        let value = match &mut inst {
            Inst::Const { value, .. } => self.values.of(Expr::Const(*value)),
            Inst::Copy { from, .. } => of(from),
            Inst::Op { op, a, b, .. } => {
                let (x, y) = (of(a), self.operand(*b, known));
                *b = self.plain(*b, known);
                match (self.values.constant(x), self.values.constant(y)) {
                    (Some(x), Some(y)) => self.values.of(Expr::Const(op.apply(x, y))),
                    _ => self.values.of(Expr::Op(*op, x, y)),
                }
            }
            Inst::Is { cmp, a, b, .. } => {
                let (x, y) = (of(a), self.operand(*b, known));
                *b = self.plain(*b, known);
                match self.result(*cmp, x, y, known) {
                    Some(result) => self.values.of(Expr::Const(result.into())),
                    None => self.values.of(Expr::Is(*cmp, x, y)),
                }
            }
            Inst::Mix { from, .. } => {
                let from = of(from);
                match self.values.constant(from) {
                    Some(n) => self.values.of(Expr::Const(base::hash::mix64(n))),
                    None => self.values.of(Expr::Mix(from)),
                }
            }
            Inst::Fact { layer, fact, .. } => self.values.of(Expr::Fact(*layer, *fact)),
            Inst::Meta { meta, .. } => self.values.of(Expr::Meta(*meta)),
            Inst::Load { base, offset, width, .. } => {
                let place = base.as_ref().map(of);
                if let Some(from_start) = self.absolute(place, *offset) {
                    (*base, *offset) = (None, from_start);
                }
                self.values.of(Expr::Load(base.as_ref().and(place), *offset, *width))
            }
            Inst::Get { var, .. } => known.record[*var as usize],
            Inst::Member { set, hi, lo, .. } => self.values.of(Expr::Member(*set, of(hi), of(lo))),
            Inst::Has { .. } | Inst::MapGet { .. } | Inst::Duplicate { .. } => self.unknown(),
            Inst::MapAdd { by: other, .. } | Inst::Datagram { value: other, .. } => {
                *other = self.plain(*other, known);
                self.unknown()
            }
            Inst::Set { var, from } => {
                let (var, value) = (*var, self.operand(*from, known));
                *from = self.plain(*from, known);
                known.record[var as usize] = self.kept(var, value);
                return inst;
            }
            Inst::MapPut { value: other, .. } | Inst::Count { by: other, .. } => {
                *other = self.plain(*other, known);
                return inst;
            }
            Inst::MapDelete { .. } | Inst::Forward { .. } | Inst::Kernel | Inst::Log(_) => return inst,
        };
        let Some(to) = inst.target() else { return inst };
        known.registers[usize::from(to.0)] = value;
        match self.values.constant(value) {
            Some(value) => Inst::Const { to, value },
            None => inst,
        }
    }

    /// Returns `base` plus `offset`, as an offset from the first byte of the frame, if `base` is a constant.
    fn absolute(&self, base: Option<Value>, offset: u32) -> Option<u32> {
        let base = u32::try_from(self.values.constant(base?)?).ok()?;
        base.checked_add(offset).filter(|at| *at < 1 << 31)
    }

    /// The value that a variable of the verdict record has after `value` was stored in it; most variables retain only
    /// the low 32 bits.
    fn kept(&mut self, var: Var, value: Value) -> Value {
        match (var, self.values.constant(value)) {
            (Var::Classes, _) => value,
            (Var::Kind, Some(n)) => self.values.of(Expr::Const(VerdictKind::from_number(n) as u64)),
            (Var::Kind, None) => self.unknown(),
            (_, Some(n)) => self.values.of(Expr::Const(n & u64::from(u32::MAX))),
            (_, None) => {
                let mask = self.values.of(Expr::Const(u32::MAX.into()));
                self.values.of(Expr::Op(Op::And, value, mask))
            }
        }
    }

    /// Returns the simplified last instruction of a block, and for each block to which it leads, the values that are
    /// certain at the start of that block.
    fn end(&mut self, end: End, mut known: KnownValues) -> (End, Vec<(usize, KnownValues)>) {
        match end {
            End::Pass | End::Drop => (end, vec![]),
            End::Jump(to) => (end, vec![(to.0 as usize, known)]),
            End::If { cmp, a, b, yes, no } => {
                let (x, y) = (known.registers[usize::from(a.0)], self.operand(b, &known));
                if let Some(result) = self.result(cmp, x, y, &known) {
                    let to = if result { yes } else { no };
                    return (End::Jump(to), vec![(to.0 as usize, known)]);
                }
                let b = self.plain(b, &known);
                let mut otherwise = known.clone();
                self.learn(cmp, x, y, true, &mut known);
                self.learn(cmp, x, y, false, &mut otherwise);
                (End::If { cmp, a, b, yes, no }, vec![(yes.0 as usize, known), (no.0 as usize, otherwise)])
            }
            End::Fits { base, offset, len, yes, no } => {
                let place = base.map(|r| known.registers[usize::from(r.0)]);
                let (base, place, offset) = match self.absolute(place, offset) {
                    Some(from_start) => (None, None, from_start),
                    None => (base, place, offset),
                };
                let end = End::Fits { base, offset, len, yes, no };
                if known.proven.get(&place).is_some_and(|have| *have >= offset + len) {
                    return (End::Jump(yes), vec![(yes.0 as usize, known)]);
                }
                let otherwise = known.clone();
                let have = known.proven.entry(place).or_default();
                *have = (*have).max(offset + len);
                (end, vec![(yes.0 as usize, known), (no.0 as usize, otherwise)])
            }
        }
    }

    /// Returns the comparison in normal form, and true if its result must be negated. A comparison of a truth value
    /// with 0 or 1 is reduced to the comparison that produced the truth value.
    fn normal_form(&self, cmp: Cmp, a: Value, b: Value) -> (Comparison, bool) {
        if let (Expr::Is(inner, x, y), Some(n @ (0 | 1)), Cmp::Eq | Cmp::Ne) =
            (self.values.exprs[a as usize], self.values.constant(b), cmp)
        {
            let (comparison, turned) = self.normal_form(inner, x, y);
            return (comparison, turned ^ ((n == 0) == (cmp == Cmp::Eq)));
        }
        match cmp {
            Cmp::Eq => ((0, a.min(b), a.max(b)), false),
            Cmp::Ne => ((0, a.min(b), a.max(b)), true),
            Cmp::Lt => ((1, a, b), false),
            Cmp::Ge => ((1, a, b), true),
            Cmp::Gt => ((1, b, a), false),
            Cmp::Le => ((1, b, a), true),
            Cmp::AnyBit => ((2, a, b), false),
            Cmp::AllBits => ((3, a, b), false),
        }
    }

    fn result(&self, cmp: Cmp, a: Value, b: Value, known: &KnownValues) -> Option<bool> {
        let number = |v: Value| self.values.constant(v).or_else(|| known.numbers.get(&v).copied());
        if let (Some(a), Some(b)) = (number(a), number(b)) {
            return Some(cmp.holds(a, b));
        }
        if let (true, Some(b)) = (self.protocol == Some(a), number(b)) {
            let [one, other] = CommonCase::PROTOCOLS.map(|a| cmp.holds(a, b));
            if one == other {
                return Some(one);
            }
        }
        let (comparison, turned) = self.normal_form(cmp, a, b);
        known.results.get(&comparison).map(|result| result ^ turned)
    }

    fn learn(&self, cmp: Cmp, a: Value, b: Value, holds: bool, known: &mut KnownValues) {
        let (comparison, turned) = self.normal_form(cmp, a, b);
        let result = holds ^ turned;
        known.results.insert(comparison, result);
        let (kind, x, y) = comparison;
        if kind == 0 && result {
            for (value, other) in [(x, y), (y, x)] {
                if let Some(n) = self.values.constant(other) {
                    known.numbers.insert(value, n);
                }
            }
        }
        if let (0, false, Some(protocol)) = (kind, result, self.protocol) {
            let other = if x == protocol { y } else { x };
            let is_not = self.values.constant(other).filter(|_| x == protocol || y == protocol);
            let [one, another] = CommonCase::PROTOCOLS;
            match is_not {
                Some(n) if n == one => _ = known.numbers.insert(protocol, another),
                Some(n) if n == another => _ = known.numbers.insert(protocol, one),
                _ => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    fn branches(program: &Program) -> usize {
        program.blocks.iter().filter(|b| matches!(b.end, End::If { .. } | End::Fits { .. })).count()
    }

    fn require_fact(b: &mut Builder, fact: Fact, value: u64) {
        let (end, no) = (b.label(), b.label());
        let r = b.fact(Layer::Outer, fact);
        b.require(r, Cmp::Eq, value, no);
        let l3 = b.fact(Layer::Outer, Fact::L3);
        b.fits(Some(l3), 0, 20, no);
        let ttl = b.load(Some(l3), 8, 1);
        b.set(Var::State, ttl);
        b.jump(end);
        b.place(no);
        b.discard();
        b.place(end);
    }

    #[test]
    fn a_test_proved_by_an_earlier_stage_is_removed() {
        let mut b = Builder::default();
        for _ in 0..3 {
            b.stage("family");
            require_fact(&mut b, Fact::Family, 4);
        }
        b.stage("another");
        require_fact(&mut b, Fact::Family, 6);
        let program = b.finish();
        assert_eq!((branches(&program), branches(&program.simplified(Start::Fresh))), (8, 2));
    }

    #[test]
    fn a_test_proved_on_only_one_path_is_kept() {
        let mut b = Builder::default();
        let (no, both) = (b.label(), b.label());
        let r = b.fact(Layer::Outer, Fact::Protocol);
        b.require(r, Cmp::Eq, 6, no);
        b.set(Var::Mark, 42);
        b.jump(both);
        b.place(no);
        b.set(Var::Mark, 43);
        b.place(both);
        let (again, end) = (b.fact(Layer::Outer, Fact::Protocol), b.label());
        b.require(again, Cmp::Eq, 6, end);
        let mark = b.get(Var::Mark);
        b.require(mark, Cmp::Eq, 42, end);
        b.discard();
        b.place(end);
        let program = b.finish();
        assert_eq!(branches(&program.simplified(Start::Fresh)), branches(&program));
    }

    #[test]
    fn a_stored_truth_value_is_the_same_comparison() {
        let mut b = Builder::default();
        let (r, no) = (b.fact(Layer::Outer, Fact::Protocol), b.label());
        b.require(r, Cmp::Lt, 17, no);
        let is = b.reg();
        b.push(Inst::Is { to: is, cmp: Cmp::Ge, a: r, b: Operand::Imm(17) });
        b.require(is, Cmp::Eq, 0, no);
        b.set(Var::Mark, 1);
        b.place(no);
        assert_eq!(branches(&b.finish().simplified(Start::Fresh)), 1);
    }
}
