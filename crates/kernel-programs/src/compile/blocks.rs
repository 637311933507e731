//! Emits the code of the blocks of a program: their instructions, the jumps between them, and the accesses to packet
//! bytes and to the values of the program.

use super::{Emitter, LEN_MAX, Specialisation, context};
use crate::alloc::{Location, ValueRef, reached_code};
use crate::frame;
use ebpf::{Alu, Condition, Label, Reg as R, Size};
use ir::{BlockId, End, Fact, Inst, Meta};

impl<'a> Emitter<'a> {
    /// Generates the code of the blocks of a variant.
    pub fn body(&mut self, form: &'a Specialisation) {
        let Specialisation { program, prefix, .. } = form;
        self.form = form;
        self.blocks = program.blocks.iter().map(|_| self.asm.label()).collect();
        self.pointers = vec![None; program.blocks.len()];
        let reached: Vec<usize> = (0..program.blocks.len()).filter(|b| prefix.reached[*b]).collect();
        let registers = usize::from(program.registers);
        for (i, at) in reached.iter().enumerate() {
            let next = reached.get(i + 1).copied();
            self.asm.place(self.blocks[*at]);
            let mut pointers = self.pointers[*at].take().unwrap_or_else(|| vec![false; registers]);
            let block = &program.blocks[*at];
            for inst in reached_code(block, prefix.stops[*at].map(|s| s.0)) {
                self.inst(inst, &pointers);
                if let Some(to) = inst.target() {
                    pointers[usize::from(to.0)] = false;
                }
            }
            if prefix.stops[*at].is_some() {
                self.asm.jump(self.exits.undecided);
                continue;
            }
            self.end(block.end, next, &pointers);
            for target in block.end.targets() {
                let mut then = pointers.clone();
                if let End::Fits { base: Some(base), yes, no, .. } = block.end
                    && target == yes
                    && yes != no
                {
                    then[usize::from(base.0)] = true;
                }
                match &mut self.pointers[target.0 as usize] {
                    Some(there) => there.iter_mut().zip(&then).for_each(|(a, b)| *a &= b),
                    empty => *empty = Some(then),
                }
            }
        }
    }

    fn end(&mut self, end: End, next: Option<usize>, pointers: &[bool]) {
        match end {
            End::Jump(to) => self.go(to, next),
            End::Pass => self.asm.jump(self.exits.user),
            End::Drop => self.asm.jump(self.exits.drop),
            End::If { cmp, a, b, yes, no } => {
                // If `yes` is the block that follows in the code, one jump to `no` on the negated comparison is
                // sufficient.
                match cmp.turned().filter(|_| next == Some(yes.0 as usize)) {
                    Some(not) => self.branch(not, a, b, self.blocks[no.0 as usize]),
                    None => {
                        self.branch(cmp, a, b, self.blocks[yes.0 as usize]);
                        self.go(no, next);
                    }
                }
            }
            End::Fits { base, offset, len, yes, no } => {
                let no = self.blocks[no.0 as usize];
                if offset + len > LEN_MAX as u32 {
                    return self.asm.jump(no);
                }
                let pointer = match base {
                    None => self.first_byte(),
                    Some(base) if pointers[usize::from(base.0)] => self.pointer(base),
                    Some(base) => {
                        self.point(base, no);
                        self.keep(ValueRef::Pointer(base), R::R1);
                        R::R1
                    }
                };
                self.captured(pointer, (offset + len) as i32, no);
                self.go(yes, next);
            }
        }
    }

    fn go(&mut self, to: BlockId, next: Option<usize>) {
        if next != Some(to.0 as usize) {
            self.asm.jump(self.blocks[to.0 as usize]);
        }
    }

    /// Emits a jump to `no` that is taken unless the first `end` bytes after `pointer` were captured. Clobbers r2;
    /// afterwards r0 is the end of the frame.
    pub fn captured(&mut self, pointer: R, end: i32, no: Label) {
        self.asm.mov_reg(R::R2, pointer);
        self.asm.alu(Alu::Add, R::R2, end);
        self.asm.load(Size::Dw, R::R0, R::R10, frame::DATA_END);
        self.asm.jump_if_reg(Condition::Gt, R::R2, R::R0, no);
    }

    /// Loads the address of the packet byte at the offset in `base` into r1; jumps to `no` if the offset exceeds
    /// `LEN_MAX`.
    fn point(&mut self, base: ir::Reg, no: Label) {
        let offset = self.read(base, R::R2);
        if !self.form.short[usize::from(base.0)] {
            self.asm.jump_if(Condition::Gt, offset, LEN_MAX, no);
        }
        self.asm.load(Size::Dw, R::R1, R::R10, frame::DATA);
        self.asm.alu_reg(Alu::Add, R::R1, offset);
    }

    /// The register that contains the pointer for `base`; r1 if the pointer is in a stack slot and must be loaded.
    fn pointer(&mut self, base: ir::Reg) -> R {
        match self.form.allocation.of_what(ValueRef::Pointer(base)) {
            Some(Location::Reg(r)) => r,
            Some(Location::Slot(s)) => {
                self.asm.load(Size::Dw, R::R1, R::R10, frame::slot(s));
                R::R1
            }
            None => R::R1,
        }
    }

    /// Loads the address of the first byte of the frame into r1.
    fn first_byte(&mut self) -> R {
        self.asm.load(Size::Dw, R::R1, R::R10, frame::DATA);
        R::R1
    }

    /// The machine register that contains the value of the IR register `from`; `scratch` if the value is not in a
    /// machine register and must be loaded.
    pub fn read(&mut self, from: ir::Reg, scratch: R) -> R {
        match self.form.allocation.of_what(ValueRef::Number(from)) {
            Some(Location::Reg(r)) => r,
            Some(Location::Slot(s)) => {
                self.asm.load(Size::Dw, scratch, R::R10, frame::slot(s));
                scratch
            }
            None => {
                if let Some(n) = self.form.allocation.constant(from) {
                    self.constant(scratch, n);
                }
                scratch
            }
        }
    }

    /// The machine register into which the value of the IR register `to` is to be written; r0 if that value is assigned
    /// to a stack slot.
    pub fn target(&self, to: ir::Reg) -> R {
        match self.form.allocation.of_what(ValueRef::Number(to)) {
            Some(Location::Reg(r)) => r,
            _ => R::R0,
        }
    }

    /// Stores the machine register `from` at the location that is assigned to the value `what`.
    pub fn keep(&mut self, what: ValueRef, from: R) {
        match self.form.allocation.of_what(what) {
            Some(Location::Reg(r)) if r != from => self.asm.mov_reg(r, from),
            Some(Location::Slot(s)) => self.asm.store(Size::Dw, R::R10, frame::slot(s), from),
            _ => (),
        }
    }

    /// Stores the machine register `from` at the location that is assigned to the IR register `to`.
    pub fn write(&mut self, to: ir::Reg, from: R) {
        self.keep(ValueRef::Number(to), from);
    }

    /// Loads bytes of the packet into a register and converts them from network byte order. Clobbers r2. If the width
    /// requires several loads, `to` must not be `pointer`.
    fn bytes(&mut self, to: R, pointer: R, offset: i16, width: u8) {
        let a = &mut self.asm;
        let (mut at, mut left) = (offset, width);
        for (size, bytes) in [(Size::Dw, 8), (Size::W, 4), (Size::H, 2), (Size::B, 1)] {
            if left < bytes {
                continue;
            }
            let bits = i32::from(bytes) * 8;
            let into = if left == width { to } else { R::R2 };
            a.load(size, into, pointer, at);
            if bytes > 1 {
                a.big_endian(into, bits);
            }
            if into != to {
                a.alu(Alu::Shl, to, bits);
                a.alu_reg(Alu::Or, to, into);
            }
            (at, left) = (at + i16::from(bytes), left - bytes);
        }
    }

    fn inst(&mut self, inst: &Inst, pointers: &[bool]) {
        match inst {
            Inst::Const { to, value } => self.number(*to, *value),
            Inst::Copy { to, from } => {
                let from = self.read(*from, R::R0);
                self.write(*to, from);
            }
            Inst::Op { to, op, a, b } => self.op(*to, *op, *a, *b),
            Inst::Is { to, cmp, a, b } => self.is(*to, *cmp, *a, *b),
            Inst::Mix { to, from } => self.mix(*to, *from),
            Inst::Fact { to, fact, .. } => {
                let (size, at) = fact_at(*fact);
                self.fetch(*to, size, at);
            }
            Inst::Meta { to, meta } => self.meta(*to, *meta),
            Inst::Load { to, base, offset, width } => {
                let pointer = match base {
                    None => self.first_byte(),
                    Some(base) if pointers[usize::from(base.0)] => self.pointer(*base),
                    Some(base) => {
                        // The program tested the bounds with another register of the same value, but the kernel's
                        // verifier does not recognise that both values are equal. So the bounds are tested again.
                        self.point(*base, self.exits.drop);
                        self.captured(R::R1, (*offset + u32::from(*width)) as i32, self.exits.drop);
                        R::R1
                    }
                };
                let into = self.target(*to);
                let into = if into == pointer { R::R0 } else { into };
                self.bytes(into, pointer, *offset as i16, *width);
                self.write(*to, into);
            }
            Inst::Get { to, var } => {
                let (size, at) = crate::meta::at::of(*var);
                self.fetch(*to, size, frame::RECORD + at as i16);
            }
            Inst::Set { var, from } => self.set(*var, *from),
            Inst::Member { to, set, hi, lo } => self.member(*to, *set, *hi, *lo),
            Inst::Has { to, map, key } => self.has(*to, *map, key),
            Inst::MapGet { to, map, key } => self.map_get(*to, *map, key),
            Inst::MapPut { map, key, value } => self.map_put(*map, key, *value),
            Inst::MapAdd { to, map, key, by } => self.map_add(*to, *map, key, *by),
            Inst::MapDelete { map, key } => self.map_delete(*map, key),
            Inst::Count { counter, by } => self.count(*counter, *by),
            Inst::Forward { interface } => {
                self.asm.store_imm(Size::H, R::R10, frame::fact::SINK, i32::from(*interface) + 2);
            }
            Inst::Kernel => self.asm.store_imm(Size::H, R::R10, frame::fact::SINK, 1),
            // Log, duplicate and fragment tracking instructions need no code: a program in the kernel stops before a
            // log or duplicate instruction, and the function `plain` has replaced the fragment tracking instructions by
            // copies.
            Inst::Log(_) | Inst::Datagram { .. } | Inst::Duplicate { .. } => (),
        }
    }

    /// Loads a number from the stack and stores it at the location that is assigned to the IR register `to`.
    fn fetch(&mut self, to: ir::Reg, size: Size, at: i16) {
        let into = self.target(to);
        self.asm.load(size, into, R::R10, at);
        self.write(to, into);
    }

    fn meta(&mut self, to: ir::Reg, meta: Meta) {
        match meta {
            Meta::WireLen | Meta::CapLen => {
                self.asm.load(Size::Dw, R::R0, R::R10, frame::DATA_END);
                self.asm.load(Size::Dw, R::R1, R::R10, frame::DATA);
                self.asm.alu_reg(Alu::Sub, R::R0, R::R1);
                self.write(to, R::R0);
            }
            Meta::Time => self.fetch(to, Size::Dw, frame::TIME),
            Meta::Vlan => self.fetch(to, Size::H, frame::fact::VLAN),
            Meta::Queue => {
                self.asm.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
                self.asm.load(Size::W, R::R0, R::R1, context::RX_QUEUE_INDEX);
                self.write(to, R::R0);
            }
            // The following facts need no code: the function `plain` has replaced the reads of constant facts by
            // constants, and a program in the kernel stops before an instruction that reads one of the other facts.
            Meta::Port
            | Meta::Rss
            | Meta::Sequence
            | Meta::Duplicate
            | Meta::Outgoing
            | Meta::Ethernet
            | Meta::Depth
            | Meta::Part
            | Meta::Ingress
            | Meta::HashKey => (),
        }
    }
}

const fn fact_at(fact: Fact) -> (Size, i16) {
    match fact {
        Fact::Ethertype => (Size::H, frame::fact::ETHERTYPE),
        Fact::Family => (Size::B, frame::fact::FAMILY),
        Fact::Protocol => (Size::B, frame::fact::PROTOCOL),
        Fact::Fragment => (Size::B, frame::fact::FRAGMENT),
        Fact::L3 => (Size::B, frame::fact::L3),
        Fact::L4 => (Size::B, frame::fact::L4),
    }
}
