//! Layer 0 of the crates: assembler and disassembler for eBPF instructions (RFC 9669). Jumps refer to labels.
//!
//! [`Asm`] builds [`Code`]; another crate loads programs into the kernel. An instruction refers to a map by a slot, to
//! which a map is bound when the program is loaded, or by a file descriptor of this process.

#![forbid(unsafe_code)]

mod asm;
mod disasm;
mod insn;
mod prune;

pub use asm::{Asm, AsmError, Code, Label};
pub use insn::{Alu, Condition, Helper, Insn, Reg, Size};
