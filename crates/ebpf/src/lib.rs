//! This crate of layer 0 contains an assembler and a disassembler for eBPF instructions (RFC 9669).
//!
//! [`Asm`] builds [`Code`]; another crate loads programs into the kernel. Jumps refer to labels. An instruction refers
//! to a map either by the number of a slot, to which the loader binds a map, or by a file descriptor of this process. A
//! call of a kernel function refers to the function by its id in the kernel's BTF, which [`btf`] finds by name.

#![forbid(unsafe_code)]

mod asm;
pub mod btf;
mod disasm;
mod insn;
mod prune;

pub use asm::{Asm, AsmError, Code, Label};
pub use insn::{Alu, Condition, Helper, Insn, Reg, Size};
