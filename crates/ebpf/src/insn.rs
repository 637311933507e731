//! Defines an eBPF instruction (RFC 9669 section 3) and its parts: registers, sizes, operations and conditions.
//!
//! ```text
//! +--------+----+----+----------------+--------------------------------+
//! |  code  |dst |src |     offset     |           immediate            |
//! |   8    | 4  | 4  |       16       |               32               |
//! +--------+----+----+----------------+--------------------------------+
//! ```
//! A 64-bit immediate takes a second slot, of which only the immediate is used.

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(u8);

impl Reg {
    /// Register for the return value of a call and of the program.
    pub const R0: Self = Self(0);
    /// Register for the first argument of a call; a call clobbers it. At the start of the program it contains the
    /// context.
    pub const R1: Self = Self(1);
    /// Register for the second argument of a call; a call clobbers it.
    pub const R2: Self = Self(2);
    /// Register for the third argument of a call; a call clobbers it.
    pub const R3: Self = Self(3);
    /// Register for the fourth argument of a call; a call clobbers it.
    pub const R4: Self = Self(4);
    /// Register for the fifth argument of a call; a call clobbers it.
    pub const R5: Self = Self(5);
    /// Preserved across calls.
    pub const R6: Self = Self(6);
    /// Preserved across calls.
    pub const R7: Self = Self(7);
    /// Preserved across calls.
    pub const R8: Self = Self(8);
    /// Preserved across calls.
    pub const R9: Self = Self(9);
    /// The frame pointer, which is read-only: the end of the 512-byte stack, which grows down.
    pub const R10: Self = Self(10);

    /// The number of the register, 0 to 10.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// 1 byte.
    B = 0x10,
    /// 2 bytes.
    H = 0x08,
    /// 4 bytes.
    W = 0x00,
    /// 8 bytes.
    Dw = 0x18,
}

/// Arithmetic operations (RFC 9669 section 4.1). `x / 0` is 0, and `x % 0` is `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants are named after the operations")]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Shl = 0x60,
    Shr = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
    /// Arithmetic right shift.
    Sar = 0xc0,
}

/// The condition of a jump (RFC 9669 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Equal.
    Eq = 0x10,
    /// Greater, unsigned.
    Gt = 0x20,
    /// Greater or equal, unsigned.
    Ge = 0x30,
    /// `a & b != 0`.
    Set = 0x40,
    /// Not equal.
    Ne = 0x50,
    /// Greater, signed.
    Sgt = 0x60,
    /// Greater or equal, signed.
    Sge = 0x70,
    /// Less, unsigned.
    Lt = 0xa0,
    /// Less or equal, unsigned.
    Le = 0xb0,
    /// Less, signed.
    Slt = 0xc0,
    /// Less or equal, signed.
    Sle = 0xd0,
}

/// Kernel helpers that a program may call (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the variants are named after the helpers in the kernel")]
pub enum Helper {
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    KtimeGetNs = 5,
    TailCall = 12,
    Redirect = 23,
    RedirectMap = 51,
    XdpAdjustMeta = 54,
    KtimeGetTaiNs = 208,
}

/// One slot of eight bytes: an instruction, or one half of a 64-bit load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Insn {
    code: u8,
    regs: u8,
    off: i16,
    imm: i32,
}

/// Instruction classes (RFC 9669 section 3.1), in the low three bits of the opcode.
pub(crate) mod class {
    pub const LD: u8 = 0;
    pub const LDX: u8 = 1;
    pub const ST: u8 = 2;
    pub const STX: u8 = 3;
    pub const ALU: u8 = 4;
    pub const JMP: u8 = 5;
    pub const JMP32: u8 = 6;
    pub const ALU64: u8 = 7;
}

/// Other parts of the opcode, and special values of the `src` and `imm` fields.
pub(crate) mod part {
    /// If this bit of the opcode is set, the second operand is a register; otherwise it is the immediate.
    pub const BY_REG: u8 = 0x08;
    /// Plain memory access.
    pub const MEM: u8 = 0x60;
    /// Atomic memory access. The immediate selects the operation; 0 means addition.
    pub const ATOMIC: u8 = 0xc0;
    /// Byte swap, in class ALU.
    pub const SWAP: u8 = 0xd0;
    /// Unconditional jump.
    pub const ALWAYS: u8 = 0x00;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    /// The opcode of `ld_imm64`: class LD, mode IMM, size DW.
    pub const WIDE: u8 = 0x18;
    /// In the `src` field of a 64-bit load: the immediate is the file descriptor of a map.
    pub const PSEUDO_MAP_FD: u8 = 1;
    /// In the `src` field of a 64-bit load: like `PSEUDO_MAP_FD`, but the load yields the address of the map's first
    /// value plus the upper immediate.
    pub const PSEUDO_MAP_VALUE: u8 = 2;
    /// In the `src` field of a 64-bit load: the immediate is an index into the list of maps that is passed when the
    /// program is loaded.
    pub const PSEUDO_MAP_SLOT: u8 = 5;
    /// In the `src` field of a 64-bit load: like `PSEUDO_MAP_SLOT`, but the load yields the address of the map's first
    /// value plus the upper immediate.
    pub const PSEUDO_MAP_SLOT_VALUE: u8 = 6;
    /// In the `src` field of a call: the immediate is the BTF id of a kernel function.
    pub const PSEUDO_KERNEL_FUNCTION: u8 = 2;
    /// In the immediate of an atomic access: the instruction also returns the value from before the operation.
    pub const FETCH: i32 = 1;
}

impl Insn {
    pub(crate) const fn new(code: u8, dst: Reg, src: u8, off: i16, imm: i32) -> Self {
        Self { code, regs: dst.0 | src << 4, off, imm }
    }

    pub(crate) const fn with_off(self, off: i16) -> Self {
        Self { off, ..self }
    }

    /// Returns the 64-bit load with another reference to a map: replaces the `src` field and the immediate.
    pub(crate) const fn of_map(self, pseudo: u8, imm: i32) -> Self {
        Self { regs: self.regs & 0xf | pseudo << 4, imm, ..self }
    }

    /// The opcode, composed of class, operation and source bit.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// Number of the destination register.
    pub const fn dst(self) -> u8 {
        self.regs & 0xf
    }

    /// Number of the source register.
    pub const fn src(self) -> u8 {
        self.regs >> 4
    }

    /// The offset.
    pub const fn off(self) -> i16 {
        self.off
    }

    /// The immediate.
    pub const fn imm(self) -> i32 {
        self.imm
    }

    /// The second byte of an instruction: the destination register in the low four bits, and the source register in the
    /// high four bits.
    pub const fn regs(self) -> u8 {
        self.regs
    }

    /// The eight bytes of the slot, in the memory order of a little-endian machine.
    pub fn bytes(self) -> [u8; 8] {
        let mut out = [self.code, self.regs, 0, 0, 0, 0, 0, 0];
        out[2..4].copy_from_slice(&self.off.to_le_bytes());
        out[4..].copy_from_slice(&self.imm.to_le_bytes());
        out
    }
}
