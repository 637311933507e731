//! Layer 2 of the crates: compiles programs of the packet language to machine code.
//!
//! [`Executable::native`] compiles a verified program to one function: a loop over a batch of packets that contains all
//! stages. Variables of the program are in registers, and the function calls Rust code only for flow maps and a few
//! other operations. One [`Worker`] per core runs the function. The interpreter ([`::ir::interp`]) defines the
//! semantics: for any packet, interpreter and machine code yield the same verdict, hashes, mark, state, actions,
//! counters and maps. If a host does not permit native code, the caller uses [`Executable::interpreted`], which has the
//! same interface.
//!
//! The crate contains unsafe code for two reasons: Rust calls the machine code, and the machine code calls Rust
//! functions with pointers. The documentation in `emit.rs` explains why both are sound; `docs/design/machine-code.md`
//! contains the measurements.
//!
//! ```
//! use ::ir::Facts;
//! use ::ir::{Builder, Cmp, Fact, Layer, Var, VerdictKind};
//! use netgrain_jit::{Executable, Packet, Verdict};
//!
//! // udp >-> mark 42
//! let mut b = Builder::default();
//! let (protocol, other) = (b.fact(Layer::Outer, Fact::Protocol), b.label());
//! b.require(protocol, Cmp::Eq, 17, other);
//! b.set(Var::Mark, 42);
//! b.pass();
//! b.place(other);
//! b.discard();
//! let program = b.finish();
//!
//! let begun = std::time::Instant::now();
//! let native = Executable::native(program.clone(), || begun.elapsed());
//! let executable = native.or_else(|_| Executable::interpreted(program))?;
//! let mut worker = executable.worker(7)?;
//! let mut bytes = [0; 60];
//! let frame = wire::build::Frame::udp4([10, 0, 0, 1], 5353, [10, 0, 0, 2], 53).fill(&mut bytes);
//! let mut packets = [Packet::new(frame, wire::link::ETHERNET, Facts::default()); 2];
//! let mut verdicts = [Verdict::default(); 2];
//! worker.evaluate(&mut packets, &mut verdicts);
//! assert_eq!((verdicts[1].kind(), verdicts[1].mark), (VerdictKind::Copy, 42));
//! # Ok::<(), netgrain_jit::Refusal>(())
//! ```

mod code;
mod emit;
mod executable;
mod frame;
mod host;
mod matcher;
mod memory;
mod packet;
mod refusal;
mod specialisations;
pub mod state_transfer;
pub mod table;
mod task;

pub use executable::{Executable, ExecutionInfo, Worker};
pub use frame::Frame;
pub use matcher::Matcher;
pub use packet::{Packet, PacketAction, ParseDepth, Verdict};
pub use refusal::Refusal;
