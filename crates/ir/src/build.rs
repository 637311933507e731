//! Builds a program block by block. Each label is placed at the start of a later block than all jumps to it, so jumps
//! lead only forward.
//!
//! A label can be the target of jumps before it is placed. Placing a label ends the current block, with a jump to the
//! label if that block is not yet ended, and begins a new block at the label. Blocks that no jump reaches are omitted.

use super::{Block, BlockId, Cmp, End, Fact, Inst, Layer, Meta, Op, Operand, Program, Reg, Stage, Var};

/// A jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u32);

/// A program under construction; the module documentation describes the rules for labels.
#[derive(Debug)]
pub struct Builder {
    program: Program,
    /// For each label: the block that begins at the label, or `None` if the label is not placed yet.
    placed: Vec<Option<BlockId>>,
    /// For each label: true if a jump refers to the label.
    used: Vec<bool>,
    code: Vec<Inst>,
    /// True if execution can reach the instruction that is appended next.
    live: bool,
    next: u16,
    highest: u16,
}

impl Default for Builder {
    fn default() -> Self {
        let program = Program::default();
        Self { program, placed: vec![], used: vec![], code: vec![], live: true, next: 0, highest: 0 }
    }
}

impl Builder {
    /// The program under construction, through which the caller can access its tables (egress interfaces, messages,
    /// maps, sets).
    pub fn tables(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Returns the index of the egress interface with this name; adds the interface to the program if it is new.
    pub fn egress_interface(&mut self, name: &str) -> u16 {
        index_of(&mut self.program.egress_interfaces, name)
    }

    /// Returns the index of this log message; adds the message to the program if it is new.
    pub fn message(&mut self, text: &str) -> u16 {
        index_of(&mut self.program.messages, text)
    }

    /// Returns the index of this set of addresses; adds the set to the program if it is new.
    pub fn set_table(&mut self, set: &super::Set) -> u16 {
        let sets = &mut self.program.sets;
        let found = sets.iter().position(|s| s == set).unwrap_or_else(|| {
            sets.push(set.clone());
            sets.len() - 1
        });
        found as u16
    }

    /// A new register.
    pub fn reg(&mut self) -> Reg {
        let r = Reg(self.next);
        self.next = self.next.saturating_add(1);
        self.highest = self.highest.max(self.next);
        r
    }

    /// A new label, not yet placed.
    pub fn label(&mut self) -> Label {
        self.placed.push(None);
        self.used.push(false);
        Label(self.placed.len() as u32 - 1)
    }

    /// Begins a stage with a new block. Registers that the previous stage wrote are undefined in the new stage.
    pub fn stage(&mut self, text: &str) {
        if !self.program.stages.is_empty() || !self.program.blocks.is_empty() || !self.code.is_empty() {
            let here = self.label();
            self.jump(here);
            self.place(here);
        }
        self.next = 0;
        let first = BlockId(self.program.blocks.len() as u32);
        if self.live {
            self.program.stages.push(Stage { text: text.to_owned(), first });
        }
    }

    /// True if execution can reach the instruction that is appended next.
    pub const fn is_live(&self) -> bool {
        self.live
    }

    /// Places the label: ends the current block, if it has no end yet, with a jump to the label, and begins the block
    /// of the label.
    pub fn place(&mut self, label: Label) {
        if self.live {
            self.end(End::Jump(BlockId(label.0)), true);
        }
        if self.used[label.0 as usize] {
            self.placed[label.0 as usize] = Some(BlockId(self.program.blocks.len() as u32));
            self.live = true;
        }
    }

    fn end(&mut self, end: End, uses: bool) {
        if !self.live {
            self.code.clear();
            return;
        }
        if uses {
            end.targets().for_each(|t| self.used[t.0 as usize] = true);
        }
        self.program.blocks.push(Block { code: std::mem::take(&mut self.code), end });
        self.live = false;
    }

    /// Ends the current block with a jump to `label`.
    pub fn jump(&mut self, label: Label) {
        self.end(End::Jump(BlockId(label.0)), true);
    }

    /// Ends the current block with a branch: to `yes` if the comparison holds, otherwise to `no`.
    pub fn branch(&mut self, a: Reg, cmp: Cmp, b: impl Into<Operand>, yes: Label, no: Label) {
        self.end(End::If { cmp, a, b: b.into(), yes: BlockId(yes.0), no: BlockId(no.0) }, true);
    }

    /// If the comparison holds, execution continues with the next instruction; otherwise it jumps to `no`.
    pub fn require(&mut self, a: Reg, cmp: Cmp, b: impl Into<Operand>, no: Label) {
        let yes = self.label();
        self.branch(a, cmp, b, yes, no);
        self.place(yes);
    }

    /// If the packet bytes were captured, execution continues with the next instruction; otherwise it jumps to `no`.
    pub fn fits(&mut self, base: Option<Reg>, offset: u32, len: u32, no: Label) {
        let yes = self.label();
        self.end(End::Fits { base, offset, len, yes: BlockId(yes.0), no: BlockId(no.0) }, true);
        self.place(yes);
    }

    /// Ends the block with `pass`.
    pub fn pass(&mut self) {
        self.end(End::Pass, false);
    }

    /// Ends the block with `drop`.
    pub fn discard(&mut self) {
        self.end(End::Drop, false);
    }

    /// Appends an instruction.
    pub fn push(&mut self, inst: Inst) {
        if self.live {
            self.code.push(inst);
        }
    }

    /// Writes a constant to a new register and returns the register.
    pub fn constant(&mut self, value: u64) -> Reg {
        let to = self.reg();
        self.push(Inst::Const { to, value });
        to
    }

    /// Writes the result of an arithmetic operation to a new register and returns the register.
    pub fn op(&mut self, op: Op, a: Reg, b: impl Into<Operand>) -> Reg {
        let to = self.reg();
        self.push(Inst::Op { to, op, a, b: b.into() });
        to
    }

    /// Writes the result of [`Inst::Mix`] to a new register and returns the register.
    pub fn mix(&mut self, from: Reg) -> Reg {
        let to = self.reg();
        self.push(Inst::Mix { to, from });
        to
    }

    /// Writes a packet fact of one layer (outer or inner) to a new register and returns the register.
    pub fn fact(&mut self, layer: Layer, fact: Fact) -> Reg {
        let to = self.reg();
        self.push(Inst::Fact { to, layer, fact });
        to
    }

    /// Writes a packet fact that is the same for both layers to a new register and returns the register.
    pub fn meta(&mut self, meta: Meta) -> Reg {
        let to = self.reg();
        self.push(Inst::Meta { to, meta });
        to
    }

    /// Loads packet bytes into a new register; the caller must have tested that these bytes were captured.
    pub fn load(&mut self, base: Option<Reg>, offset: u32, width: u8) -> Reg {
        let to = self.reg();
        self.push(Inst::Load { to, base, offset, width });
        to
    }

    /// Copies a variable of the verdict record to a new register and returns the register.
    pub fn get(&mut self, var: Var) -> Reg {
        let to = self.reg();
        self.push(Inst::Get { to, var });
        to
    }

    /// Writes a variable of the verdict record.
    pub fn set(&mut self, var: Var, from: impl Into<Operand>) {
        self.push(Inst::Set { var, from: from.into() });
    }

    /// Returns the finished program; a block that has no end yet ends with `pass`.
    pub fn finish(mut self) -> Program {
        self.pass();
        let placed = |id: BlockId, placed: &[Option<BlockId>]| placed[id.0 as usize].unwrap_or(id);
        let mut program = self.program;
        for block in &mut program.blocks {
            match &mut block.end {
                End::Jump(to) => *to = placed(*to, &self.placed),
                End::If { yes, no, .. } | End::Fits { yes, no, .. } => {
                    (*yes, *no) = (placed(*yes, &self.placed), placed(*no, &self.placed));
                }
                End::Pass | End::Drop => (),
            }
        }
        program.registers = self.highest;
        program
    }
}

fn index_of(table: &mut Vec<String>, name: &str) -> u16 {
    let found = table.iter().position(|n| n == name).unwrap_or_else(|| {
        table.push(name.to_owned());
        table.len() - 1
    });
    found as u16
}
