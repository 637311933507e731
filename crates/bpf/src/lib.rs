//! eBPF programs: loading, attaching, replacing and test runs.
//!
//! [`Code`] (raw instructions) comes from the crate `ebpf`, [`Map`] holds state that programs and this process share,
//! [`Program`] is code that the verifier accepted, and [`Link`] keeps a program attached to an interface until it is
//! dropped. The crate needs no object files, no compiler and no BTF: it loads exactly the given instructions.

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
