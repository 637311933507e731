//! The assembler for eBPF. It appends instructions, and resolves the labels of jumps when the program is finished.
//!
//! A jump may refer to a label before the label is placed. [`Asm::finish`] replaces each such reference by the distance
//! in the kernel's encoding: the number of slots, counted from the instruction after the jump.

use crate::insn::{Alu, Condition, Helper, Insn, Reg, Size, class, part};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A finished program that the kernel's verifier has not checked yet. Its `Debug` form is a listing of the
/// instructions.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    slots: Vec<Insn>,
}

/// A position in the program to which jumps can refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// The reason why the assembler cannot finish a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsmError {
    /// The jump at `slot` goes to a label that was never placed.
    Unplaced {
        /// Slot of the jump.
        slot: usize,
    },
    /// The jump at `slot` spans `distance` slots, which does not fit into the signed 16-bit offset.
    TooFar {
        /// Slot of the jump.
        slot: usize,
        /// Distance in slots.
        distance: i64,
    },
    /// The load at `slot` refers to a map for which the caller passed no descriptor.
    NoMap {
        /// Slot of the load.
        slot: usize,
        /// Index of the map.
        map: i32,
    },
}

/// Builds [`Code`].
///
/// ```
/// use netgrain_ebpf::{Asm, Condition, Reg};
/// let mut asm = Asm::new();
/// let out = asm.label();
/// asm.mov(Reg::R0, 2);
/// asm.jump_if(Condition::Eq, Reg::R1, 0, out);
/// asm.mov(Reg::R0, 1);
/// asm.place(out);
/// asm.exit();
/// let code = asm.finish().unwrap();
/// assert_eq!(format!("{code:?}"), "0: r0 = 2\n1: if r1 == 0 goto 3\n2: r0 = 1\n3: exit\n");
/// ```
#[derive(Default)]
pub struct Asm {
    pub(crate) slots: Vec<Insn>,
    pub(crate) labels: Vec<Option<usize>>,
    pub(crate) jumps: Vec<(usize, Label)>,
}

impl Asm {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a label that is not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label at the next instruction, which becomes the target of jumps to the label.
    ///
    /// # Panics
    /// The label is already placed.
    pub fn place(&mut self, label: Label) {
        let old = self.labels[label.0].replace(self.slots.len());
        assert_eq!(old, None, "the label is already placed");
    }

    /// Appends `dst = imm`
    pub fn mov(&mut self, dst: Reg, imm: i32) {
        self.alu(Alu::Mov, dst, imm);
    }

    /// Appends `dst = src`
    pub fn mov_reg(&mut self, dst: Reg, src: Reg) {
        self.alu_reg(Alu::Mov, dst, src);
    }

    /// Appends `dst op= imm` with 64 bits; the immediate is sign-extended.
    pub fn alu(&mut self, op: Alu, dst: Reg, imm: i32) {
        self.push(class::ALU64 | op as u8, dst, 0, 0, imm);
    }

    /// Appends `dst op= src`, 64 bits.
    pub fn alu_reg(&mut self, op: Alu, dst: Reg, src: Reg) {
        self.push(class::ALU64 | op as u8 | part::BY_REG, dst, src.number(), 0, 0);
    }

    /// Appends `dst op= src` with 32 bits; the upper half of `dst` becomes zero.
    pub fn alu32_reg(&mut self, op: Alu, dst: Reg, src: Reg) {
        self.push(class::ALU | op as u8 | part::BY_REG, dst, src.number(), 0, 0);
    }

    /// Appends `dst op= imm` with 32 bits; the upper half of `dst` becomes zero.
    pub fn alu32(&mut self, op: Alu, dst: Reg, imm: i32) {
        self.push(class::ALU | op as u8, dst, 0, 0, imm);
    }

    /// Converts the low `bits` bits (16, 32 or 64) of `dst` from the byte order of the host to network byte order, or
    /// back.
    pub fn big_endian(&mut self, dst: Reg, bits: i32) {
        self.push(class::ALU | part::SWAP | part::BY_REG, dst, 0, 0, bits);
    }

    /// Appends `dst = value`, with all 64 bits; the instruction takes two slots.
    pub fn wide(&mut self, dst: Reg, value: u64) {
        self.push(part::WIDE | class::LD, dst, 0, 0, value as u32 as i32);
        self.push(0, Reg::R0, 0, 0, (value >> 32) as i32);
    }

    /// Appends `dst = map`, the first argument of helpers that take a map; the instruction takes two slots. A loaded
    /// program keeps the map alive; until the program is loaded, the caller must keep the descriptor of the map open.
    pub fn map(&mut self, dst: Reg, map: &impl AsFd) {
        self.push(part::WIDE | class::LD, dst, part::PSEUDO_MAP_FD, 0, map.as_fd().as_raw_fd());
        self.push(0, Reg::R0, 0, 0, 0);
    }

    /// Appends a load of a map into `dst`. [`Code::with_maps`] binds the map to the map slot `slot` when the program is
    /// loaded. The instruction takes two instruction slots.
    pub fn map_slot(&mut self, dst: Reg, slot: u16) {
        self.push(part::WIDE | class::LD, dst, part::PSEUDO_MAP_SLOT, 0, slot.into());
        self.push(0, Reg::R0, 0, 0, 0);
    }

    /// Appends a load of the address of the first value of an array map into `dst`. [`Code::with_maps`] binds the map
    /// to the map slot `slot` when the program is loaded. The instruction takes two instruction slots.
    pub fn value_slot(&mut self, dst: Reg, slot: u16) {
        self.push(part::WIDE | class::LD, dst, part::PSEUDO_MAP_SLOT_VALUE, 0, slot.into());
        self.push(0, Reg::R0, 0, 0, 0);
    }

    /// Appends `dst = *(size *)(src + off)`
    pub fn load(&mut self, size: Size, dst: Reg, src: Reg, off: i16) {
        self.push(class::LDX | part::MEM | size as u8, dst, src.number(), off, 0);
    }

    /// Appends `*(size *)(dst + off) = src`
    pub fn store(&mut self, size: Size, dst: Reg, off: i16, src: Reg) {
        self.push(class::STX | part::MEM | size as u8, dst, src.number(), off, 0);
    }

    /// Appends `*(size *)(dst + off) = imm`
    pub fn store_imm(&mut self, size: Size, dst: Reg, off: i16, imm: i32) {
        self.push(class::ST | part::MEM | size as u8, dst, 0, off, imm);
    }

    /// Appends `lock *(size *)(dst + off) += src`; `size` is 4 or 8 bytes.
    pub fn atomic_add(&mut self, size: Size, dst: Reg, off: i16, src: Reg) {
        self.push(class::STX | part::ATOMIC | size as u8, dst, src.number(), off, 0);
    }

    /// Appends the same addition as [`Asm::atomic_add`]; in addition, `src` becomes the value from before the addition.
    pub fn atomic_fetch_add(&mut self, size: Size, dst: Reg, off: i16, src: Reg) {
        self.push(class::STX | part::ATOMIC | size as u8, dst, src.number(), off, part::FETCH);
    }

    /// Appends `goto label`
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.slots.len(), label));
        self.push(class::JMP | part::ALWAYS, Reg::R0, 0, 0, 0);
    }

    /// Appends `if dst ? imm goto label`, where `?` stands for `condition`; 64 bits are compared, and the immediate is
    /// sign-extended.
    pub fn jump_if(&mut self, condition: Condition, dst: Reg, imm: i32, label: Label) {
        self.jumps.push((self.slots.len(), label));
        self.push(class::JMP | condition as u8, dst, 0, 0, imm);
    }

    /// Appends `if dst ? src goto label`, where `?` stands for `condition`; 64 bits are compared.
    pub fn jump_if_reg(&mut self, condition: Condition, dst: Reg, src: Reg, label: Label) {
        self.jumps.push((self.slots.len(), label));
        self.push(class::JMP | condition as u8 | part::BY_REG, dst, src.number(), 0, 0);
    }

    /// Calls a kernel helper. The arguments are in r1 to r5, which the call clobbers; the result is in r0.
    pub fn call(&mut self, helper: Helper) {
        self.push(class::JMP | part::CALL, Reg::R0, 0, 0, helper as i32);
    }

    /// Calls a function of the kernel (kfunc) by its id in the BTF of the kernel ([`crate::btf::function_id`]).
    pub fn call_kernel_function(&mut self, id: u32) {
        self.push(class::JMP | part::CALL, Reg::R0, part::PSEUDO_KERNEL_FUNCTION, 0, id as i32);
    }

    /// Ends the program; the value of r0 is returned.
    pub fn exit(&mut self) {
        self.push(class::JMP | part::EXIT, Reg::R0, 0, 0, 0);
    }

    /// Resolves the jumps.
    ///
    /// # Errors
    /// [`AsmError`] if the label of a jump is not placed or is too far away.
    pub fn finish(mut self) -> Result<Code, AsmError> {
        for (slot, label) in self.jumps {
            let target = self.labels[label.0].ok_or(AsmError::Unplaced { slot })?;
            let distance = target as i64 - slot as i64 - 1;
            let off = i16::try_from(distance).map_err(|_| AsmError::TooFar { slot, distance })?;
            self.slots[slot] = self.slots[slot].with_off(off);
        }
        Ok(Code { slots: self.slots })
    }

    /// The position of a label.
    pub(crate) fn target(&self, label: Label) -> Option<usize> {
        self.labels[label.0]
    }

    fn push(&mut self, code: u8, dst: Reg, src: u8, off: i16, imm: i32) {
        self.slots.push(Insn::new(code, dst, src, off, imm));
    }
}

impl Code {
    /// The slots of the program in order; a 64-bit load takes two slots.
    pub fn insns(&self) -> impl ExactSizeIterator<Item = Insn> + '_ {
        self.slots.iter().copied()
    }

    /// Returns the code with map descriptors instead of map slots ([`Asm::map_slot`], [`Asm::value_slot`]). `maps`
    /// contains one descriptor for each slot; the descriptors must stay open until the program is loaded.
    ///
    /// # Errors
    /// [`AsmError::NoMap`] if there is no descriptor for a slot.
    pub fn with_maps(&self, maps: &[BorrowedFd<'_>]) -> Result<Self, AsmError> {
        let mut slots = self.slots.clone();
        for (slot, insn) in slots.iter_mut().enumerate() {
            let bound = match (insn.code() == part::WIDE | class::LD, insn.src()) {
                (true, part::PSEUDO_MAP_SLOT) => part::PSEUDO_MAP_FD,
                (true, part::PSEUDO_MAP_SLOT_VALUE) => part::PSEUDO_MAP_VALUE,
                _ => continue,
            };
            let map = insn.imm();
            let fd = maps.get(map as usize).ok_or(AsmError::NoMap { slot, map })?.as_raw_fd();
            *insn = insn.of_map(bound, fd);
        }
        Ok(Self { slots })
    }
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unplaced { slot } => write!(f, "the jump at slot {slot} goes to a label that was never placed"),
            Self::TooFar { slot, distance } => {
                write!(f, "the jump at slot {slot} spans {distance} slots, which does not fit into 16 bits")
            }
            Self::NoMap { slot, map } => {
                write!(f, "slot {slot} refers to map {map}, for which no descriptor was given")
            }
        }
    }
}

impl std::error::Error for AsmError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::Reg as R;

    #[test]
    fn a_jump_to_an_unplaced_label_is_an_error() {
        let mut asm = Asm::new();
        let nowhere = asm.label();
        asm.mov(R::R0, 0);
        asm.jump(nowhere);
        assert_eq!(asm.finish(), Err(AsmError::Unplaced { slot: 1 }));
    }

    #[test]
    fn a_jump_beyond_16_bits_is_an_error() {
        let mut asm = Asm::new();
        let far = asm.label();
        asm.jump(far);
        for _ in 0..=i16::MAX as usize {
            asm.mov(R::R0, 0);
        }
        asm.place(far);
        asm.exit();
        assert_eq!(asm.finish(), Err(AsmError::TooFar { slot: 0, distance: 32_768 }));
    }

    #[test]
    fn jumps_go_forward_and_backward() {
        let mut asm = Asm::new();
        let (top, end) = (asm.label(), asm.label());
        asm.place(top);
        asm.jump_if(Condition::Eq, R::R1, 0, end);
        asm.alu(Alu::Sub, R::R1, 1);
        asm.jump(top);
        asm.place(end);
        asm.exit();
        let offs: Vec<i16> = asm.finish().unwrap().insns().map(Insn::off).collect();
        assert_eq!(offs, [2, 0, -3, 0]);
    }

    /// The expected bytes of the test were encoded by hand from the tables of RFC 9669.
    #[test]
    fn encodings_match_rfc_9669() {
        type Case = (fn(&mut Asm), [u8; 8]);
        let cases: [Case; 13] = [
            (|a| a.mov(R::R0, 1), [0xb7, 0x00, 0, 0, 1, 0, 0, 0]),
            (|a| a.mov_reg(R::R6, R::R1), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]),
            (|a| a.alu(Alu::Add, R::R2, -4), [0x07, 0x02, 0, 0, 0xfc, 0xff, 0xff, 0xff]),
            (|a| a.alu32_reg(Alu::Xor, R::R3, R::R3), [0xac, 0x33, 0, 0, 0, 0, 0, 0]),
            (|a| a.big_endian(R::R1, 16), [0xdc, 0x01, 0, 0, 16, 0, 0, 0]),
            (|a| a.load(Size::W, R::R2, R::R1, 16), [0x61, 0x12, 16, 0, 0, 0, 0, 0]),
            (|a| a.load(Size::B, R::R2, R::R1, 0), [0x71, 0x12, 0, 0, 0, 0, 0, 0]),
            (|a| a.store(Size::W, R::R10, -4, R::R2), [0x63, 0x2a, 0xfc, 0xff, 0, 0, 0, 0]),
            (|a| a.store_imm(Size::Dw, R::R10, -8, 7), [0x7a, 0x0a, 0xf8, 0xff, 7, 0, 0, 0]),
            (|a| a.atomic_add(Size::Dw, R::R0, 8, R::R1), [0xdb, 0x10, 8, 0, 0, 0, 0, 0]),
            (|a| a.call(Helper::RedirectMap), [0x85, 0x00, 0, 0, 51, 0, 0, 0]),
            (|a| a.call_kernel_function(0x0102_0304), [0x85, 0x20, 0, 0, 4, 3, 2, 1]),
            (Asm::exit, [0x95, 0x00, 0, 0, 0, 0, 0, 0]),
        ];
        for (write, bytes) in cases {
            let mut asm = Asm::new();
            write(&mut asm);
            let code = asm.finish().unwrap();
            assert_eq!(code.insns().next().unwrap().bytes(), bytes, "{code:?}");
        }
    }

    #[test]
    fn a_wide_value_takes_two_slots() {
        let mut asm = Asm::new();
        asm.wide(R::R1, 0x1122_3344_5566_7788);
        let code = asm.finish().unwrap();
        let slots: Vec<[u8; 8]> = code.insns().map(Insn::bytes).collect();
        assert_eq!(slots, [[0x18, 1, 0, 0, 0x88, 0x77, 0x66, 0x55], [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]]);
    }
}
