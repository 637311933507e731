//! The verifier proves that a program can run safely: it terminates, reads no undefined register, loads no byte outside
//! the tested bounds, and refers only to existing table entries. Every program is verified before it runs, regardless
//! of its origin; back ends rely on the proof.
//!
//! Jumps lead only to later blocks, so a single pass over the blocks in order is sufficient. At the start of a block,
//! the verifier relies on a fact only if the fact holds at the ends of all predecessors of the block.

use super::{
    Block, BlockId, COUNTERS, End, Inst, Log, MAX_BLOCKS, MAX_CAPACITY, MAX_DETECTORS, MAX_FORWARDS, MAX_INSTRUCTIONS,
    MAX_KEY_WORDS, MAX_MAPS, MAX_OFFSET, MAX_REGISTERS, Program, Reg, Var,
};
use std::collections::BTreeMap;
use std::fmt;

/// The reason why a program failed verification, and the position in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyError {
    /// The program has no block.
    Empty,
    /// A limit is exceeded.
    TooMany {
        /// The counted objects.
        what: &'static str,
        /// The actual number.
        have: usize,
        /// The maximum.
        most: usize,
    },
    /// The window of a detector of duplicates is 0 or too long.
    Window {
        /// The detector.
        detector: usize,
    },
    /// A block jumps to itself, to an earlier block, or to a block that does not exist.
    Jump {
        /// The jumping block.
        block: u32,
        /// The target.
        to: u32,
    },
    /// A register is read that was not written on every path to the instruction.
    Undefined {
        /// The block.
        block: u32,
        /// The register.
        reg: Reg,
    },
    /// A register has a number that is not below the declared number of registers.
    Register {
        /// The block.
        block: u32,
        /// The register.
        reg: Reg,
    },
    /// The program loads packet bytes, but on some path to the load no bounds test proved that the bytes were captured.
    Unguarded {
        /// The block.
        block: u32,
        /// The base of the load.
        base: Option<Reg>,
        /// The number of bytes after the base address that the load requires.
        need: u32,
        /// The number of bytes after the base address that the program has tested.
        have: u32,
    },
    /// A load has a width of 0 bytes or of more than 8 bytes.
    Width {
        /// The block.
        block: u32,
        /// The width in bytes.
        width: u8,
    },
    /// An instruction refers to a table entry that does not exist.
    Missing {
        /// The block.
        block: u32,
        /// The table.
        table: &'static str,
        /// The index of the entry.
        index: usize,
    },
    /// A key has a number of words that differs from the declaration of its map.
    KeyWords {
        /// The block.
        block: u32,
        /// The map.
        map: u16,
        /// The number of words of the key that the instruction uses.
        have: usize,
        /// The number of words per key that the map declares.
        need: u8,
    },
    /// A map with invalid parameters.
    Map {
        /// The index of the map.
        map: usize,
        /// The reason.
        why: &'static str,
    },
    /// A variable of the verdict record is set to a value that the variable cannot have.
    Value {
        /// The block.
        block: u32,
        /// The variable.
        var: Var,
        /// The value.
        value: u64,
    },
    /// The stages are out of order, or the first stage does not begin with b0.
    Stages,
    /// A jump enters a stage at a block other than its first, or from a stage other than the previous one.
    Crossing {
        /// The jumping block.
        block: u32,
        /// The target.
        to: u32,
    },
    /// The ranges of a set overlap or are not in ascending order.
    Set {
        /// The index of the set.
        set: usize,
    },
}

/// The facts that the verifier has proved at one point of the program.
#[derive(Clone)]
struct ProvenFacts {
    defined: Vec<u64>,
    /// For each base address of loads, the number of bytes after this address that were captured.
    proven: BTreeMap<Option<Reg>, u32>,
    forwards: u32,
}

impl ProvenFacts {
    fn has(&self, r: Reg) -> bool {
        self.defined[usize::from(r.0) / 64] >> (r.0 % 64) & 1 == 1
    }

    fn write(&mut self, r: Reg) {
        self.defined[usize::from(r.0) / 64] |= 1 << (r.0 % 64);
        self.proven.remove(&Some(r));
    }

    /// Called where two paths join. Keeps only the proved facts that hold on both paths.
    fn meet(&mut self, other: &Self) {
        self.defined.iter_mut().zip(&other.defined).for_each(|(a, b)| *a &= b);
        self.proven.retain(|base, end| match other.proven.get(base) {
            Some(theirs) => {
                *end = (*end).min(*theirs);
                true
            }
            None => false,
        });
        self.forwards = self.forwards.max(other.forwards);
    }
}

impl Program {
    /// Verifies the program.
    ///
    /// # Errors
    /// The first condition that the program violates.
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.verify_tables()?;
        let start = ProvenFacts {
            defined: vec![0; usize::from(self.registers).div_ceil(64)],
            proven: BTreeMap::new(),
            forwards: 0,
        };
        let mut known: Vec<Option<ProvenFacts>> = vec![None; self.blocks.len()];
        known[0] = Some(start.clone());
        for (at, block) in self.blocks.iter().enumerate() {
            // An unreachable block is verified too, as if execution entered it at the start of the program.
            let mut now = known[at].take().unwrap_or_else(|| start.clone());
            if self.begins_stage(at) {
                now = ProvenFacts { forwards: now.forwards, ..start.clone() };
            }
            self.verify_block(at as u32, block, &mut now)?;
            for to in block.end.targets() {
                let mut then = now.clone();
                if let End::Fits { base, offset, len, yes, no } = block.end
                    && to == yes
                    && yes != no
                {
                    let end = then.proven.entry(base).or_default();
                    *end = (*end).max(offset + len);
                }
                let index = self.target(at, to)?;
                match &mut known[index] {
                    Some(before) => before.meet(&then),
                    empty => *empty = Some(then),
                }
            }
        }
        Ok(())
    }

    fn begins_stage(&self, block: usize) -> bool {
        self.stages.binary_search_by_key(&block, |s| s.first.0 as usize).is_ok()
    }

    /// Returns the index of the target, if block `at` may jump to block `to`.
    fn target(&self, at: usize, to: BlockId) -> Result<usize, VerifyError> {
        let index = to.0 as usize;
        if index <= at || index >= self.blocks.len() {
            return Err(VerifyError::Jump { block: at as u32, to: to.0 });
        }
        let stage_of = |block: usize| self.stages.partition_point(|s| s.first.0 as usize <= block);
        let (here, there) = (stage_of(at), stage_of(index));
        let enters = there == here + 1 && self.begins_stage(index);
        if here == there || enters { Ok(index) } else { Err(VerifyError::Crossing { block: at as u32, to: to.0 }) }
    }

    fn verify_tables(&self) -> Result<(), VerifyError> {
        if self.blocks.is_empty() {
            return Err(VerifyError::Empty);
        }
        let instructions = self.blocks.iter().map(|b| b.code.len()).sum();
        for (what, have, most) in [
            ("blocks", self.blocks.len(), MAX_BLOCKS),
            ("instructions", instructions, MAX_INSTRUCTIONS),
            ("registers", self.registers.into(), MAX_REGISTERS.into()),
            ("maps", self.maps.len(), MAX_MAPS),
            ("detectors", self.detectors.len(), MAX_DETECTORS),
        ] {
            if have > most {
                return Err(VerifyError::TooMany { what, have, most });
            }
        }
        for (map, m) in self.maps.iter().enumerate() {
            if m.words == 0 || usize::from(m.words) > MAX_KEY_WORDS {
                return Err(VerifyError::Map { map, why: "a key has 1 to 8 words" });
            }
            if m.capacity == 0 || m.capacity > MAX_CAPACITY {
                return Err(VerifyError::Map { map, why: "a map holds between 1 and 2^26 entries" });
            }
        }
        for (detector, detection) in self.detectors.iter().enumerate() {
            if !(1..=crate::duplicate_detectors::WINDOW_MAX).contains(&detection.window) {
                return Err(VerifyError::Window { detector });
            }
        }
        for (set, s) in self.sets.iter().enumerate() {
            if let super::Set::Ranges(ranges) = s
                && (ranges.iter().any(|r| r.0 > r.1) || ranges.windows(2).any(|w| w[0].1 >= w[1].0))
            {
                return Err(VerifyError::Set { set });
            }
        }
        let ascending = self.stages.windows(2).all(|w| w[0].first < w[1].first);
        let begins = self.stages.first().is_none_or(|s| s.first == BlockId(0));
        let exists = self.stages.last().is_none_or(|s| (s.first.0 as usize) < self.blocks.len());
        if ascending && begins && exists { Ok(()) } else { Err(VerifyError::Stages) }
    }

    fn verify_block(&self, at: u32, block: &Block, known: &mut ProvenFacts) -> Result<(), VerifyError> {
        for inst in &block.code {
            let mut fault = Ok(());
            inst.sources(|r| {
                if fault.is_ok() {
                    fault = self.readable(at, r, known);
                }
            });
            fault?;
            self.verify_inst(at, inst, known)?;
            if let Some(to) = inst.target() {
                if to.0 >= self.registers {
                    return Err(VerifyError::Register { block: at, reg: to });
                }
                known.write(to);
            }
        }
        match block.end {
            End::If { a, b, .. } => {
                self.readable(at, a, known)?;
                if let super::Operand::Reg(b) = b {
                    self.readable(at, b, known)?;
                }
            }
            End::Fits { base, offset, len, .. } => {
                if let Some(base) = base {
                    self.readable(at, base, known)?;
                }
                if offset > MAX_OFFSET || len > MAX_OFFSET {
                    let have = offset.max(len) as usize;
                    return Err(VerifyError::TooMany { what: "bytes in a bound", have, most: MAX_OFFSET as usize });
                }
            }
            End::Jump(_) | End::Pass | End::Drop => (),
        }
        Ok(())
    }

    fn readable(&self, block: u32, reg: Reg, known: &ProvenFacts) -> Result<(), VerifyError> {
        if reg.0 >= self.registers {
            return Err(VerifyError::Register { block, reg });
        }
        if known.has(reg) { Ok(()) } else { Err(VerifyError::Undefined { block, reg }) }
    }

    fn verify_inst(&self, block: u32, inst: &Inst, known: &mut ProvenFacts) -> Result<(), VerifyError> {
        let entry = |table: &'static str, index: u16, len: usize| {
            let index = usize::from(index);
            if index < len { Ok(()) } else { Err(VerifyError::Missing { block, table, index }) }
        };
        match inst {
            Inst::Load { base, offset, width, .. } => {
                if !(1..=8).contains(width) {
                    return Err(VerifyError::Width { block, width: *width });
                }
                let have = known.proven.get(base).copied().unwrap_or(0);
                let need = offset.saturating_add(u32::from(*width));
                if need > have {
                    return Err(VerifyError::Unguarded { block, base: *base, need, have });
                }
            }
            Inst::Set { var: Var::Kind, from: super::Operand::Imm(value) }
                if *value > super::VerdictKind::Pick as u64 =>
            {
                return Err(VerifyError::Value { block, var: Var::Kind, value: *value });
            }
            Inst::Member { set, .. } => entry("sets", *set, self.sets.len())?,
            Inst::Duplicate { detector, .. } => entry("detectors", *detector, self.detectors.len())?,
            Inst::Has { map, key, .. }
            | Inst::MapGet { map, key, .. }
            | Inst::MapPut { map, key, .. }
            | Inst::MapAdd { map, key, .. }
            | Inst::MapDelete { map, key } => {
                entry("maps", *map, self.maps.len())?;
                let need = self.maps[usize::from(*map)].words;
                if key.len() != usize::from(need) {
                    return Err(VerifyError::KeyWords { block, map: *map, have: key.len(), need });
                }
            }
            Inst::Count { counter, .. } => entry("counters", (*counter).into(), COUNTERS.into())?,
            Inst::Forward { interface } => {
                entry("egress interfaces", *interface, self.egress_interfaces.len())?;
                known.forwards += 1;
                if known.forwards > MAX_FORWARDS {
                    let (have, most) = (known.forwards as usize, MAX_FORWARDS as usize);
                    return Err(VerifyError::TooMany { what: "forwards of one packet", have, most });
                }
            }
            Inst::Log(Log::Message(text)) => entry("messages", *text, self.messages.len())?,
            _ => (),
        }
        Ok(())
    }
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the program has no block"),
            Self::TooMany { what, have, most } => write!(f, "{have} {what}; at most {most} are possible"),
            Self::Jump { block, to } => write!(f, "block b{block} jumps to b{to}, which is not a later block"),
            Self::Undefined { block, reg } => {
                write!(f, "block b{block} reads r{}, which is not written on every path to it", reg.0)
            }
            Self::Register { block, reg } => {
                write!(f, "block b{block} uses r{}, which is not among the declared registers", reg.0)
            }
            Self::Unguarded { block, base, need, have } => {
                let base = base.map_or_else(|| "the frame's start".to_owned(), |r| format!("r{}", r.0));
                write!(f, "block b{block} loads {need} bytes after {base}, but only {have} bytes were tested")
            }
            Self::Width { block, width } => {
                write!(f, "block b{block} loads {width} bytes at once; 1 to 8 are possible")
            }
            Self::Missing { block, table, index } => {
                write!(f, "block b{block} refers to entry {index} of {table}, which does not exist")
            }
            Self::KeyWords { block, map, have, need } => {
                write!(f, "block b{block} uses a key of {have} words for map {map}, which declares {need}")
            }
            Self::Window { detector } => write!(f, "detector {detector}: a window has 1 ns to 60 s"),
            Self::Map { map, why } => write!(f, "map {map}: {why}"),
            Self::Value { block, var, value } => {
                write!(f, "block b{block} sets {var:?} to {value}, which is not a valid value of this variable")
            }
            Self::Stages => f.write_str("the stages are out of order, or the first stage does not begin with b0"),
            Self::Crossing { block, to } => write!(f, "block b{block} jumps to b{to}, which is inside another stage"),
            Self::Set { set } => write!(f, "set {set} has ranges that overlap or are out of order"),
        }
    }
}

impl std::error::Error for VerifyError {}
