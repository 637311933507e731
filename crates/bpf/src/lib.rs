//! Programs for the kernel: written as raw instructions, loaded, attached, replaced, tried out.
//!
//! [`Code`] comes from the room `ebpf`, [`Map`] holds state that programs and we share,
//! [`Program`] is code that the verifier accepted, and [`Link`] keeps it attached to an interface for as long as the link
//! lives. No object files, no compiler, no type information: what is loaded is what was written here.

#![forbid(unsafe_code)]

mod link;
mod map;
mod maps;
mod program;

pub use ebpf::{Alu, Asm, AsmError, Code, Condition, Helper, Insn, Label, Reg, Size};
pub use link::{AttachError, AttachMode, Link, XdpMode};
pub use map::{Map, MapKind, PerCpuMap, Pod};
pub use maps::{MapError, MapSet, MapSpec, RawMap};
pub use program::{Frames, LoadError, Program, TestRun, XdpAction};
