//! Loads eBPF programs, attaches them to interfaces, replaces them, and runs them for tests.
//!
//! [`Code`] (raw instructions) comes from the crate `ebpf`; a [`Map`] is memory that programs and this process share; a
//! [`Program`] is code that the kernel's verifier has accepted; and a [`Link`] attaches a program to an interface until
//! the link is dropped. The crate needs no object files and no compiler: it loads exactly the given instructions. It
//! reads BTF only for the id of a kernel function that a program calls ([`kernel_function`]).

#![forbid(unsafe_code)]

mod kernel_function;
mod link;
mod map;
mod maps;
mod program;

pub use ebpf::{Alu, Asm, AsmError, Code, Condition, Helper, Insn, Label, Reg, Size};
pub use kernel_function::{KernelFunctionError, kernel_function};
pub use link::{AttachError, AttachMode, Link, XdpMode};
pub use map::{Map, MapKind, PerCpuMap, Pod};
pub use maps::{MapError, MapSet, MapSpec, RawMap};
pub use program::{Frames, LoadError, Program, TestRun, XdpAction};
