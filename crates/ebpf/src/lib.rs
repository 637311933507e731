//! Layer 0: assembler and disassembler for eBPF instructions (RFC 9669). Jumps refer to labels.
//!
//! [`Asm`] builds [`Code`]. Loading a program into the kernel belongs to another crate. An instruction names a map by
//! the slot that the map takes when the program is loaded, or by a file descriptor of this process.

#![forbid(unsafe_code)]

mod asm;
mod disasm;
mod insn;
mod prune;

pub use asm::{Asm, AsmError, Code, Label};
pub use insn::{Alu, Condition, Helper, Insn, Reg, Size};
