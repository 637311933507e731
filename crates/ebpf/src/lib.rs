//! Floor 0: instructions of the kernel's machine (RFC 9669), written one after the other with labels, and listed again.
//!
//! [`Asm`] builds [`Code`]; who loads it is on another floor. Maps are named by the slot that they take when the program is loaded, or
//! by a descriptor of this process.

#![forbid(unsafe_code)]

mod asm;
mod disasm;
mod insn;
mod prune;

pub use asm::{Asm, AsmError, Code, Label};
pub use insn::{Alu, Condition, Helper, Insn, Reg, Size};
