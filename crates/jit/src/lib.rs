//! Floor 2: the packet language as machine code.
//!
//! [`Executable::native`] makes one fused function of a verified program: a loop over a batch of packets, in which all stages have become
//! one, with registers for variables and no call but to tables. A [`Worker`] per core runs it. The interpreter
//! ([`lang::interp`]) is the measure: on any packet both come to the same verdict, hashes, mark, state, acts, counters and maps, and a
//! host that refuses native code gets [`Executable::interpreted`] through the same calls.
//!
//! Unsafe code is here for two reasons: the machine code is called, and it calls back with pointers. What makes that sound is
//! said in `emit.rs`; `docs/NATIVE.md` has the figures.
//!
//! ```
//! use lang::Facts;
//! use lang::ir::{Builder, Cmp, Fact, Layer, Var, VerdictKind};
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
//! let executable = Executable::native(program.clone(), || begun.elapsed()).or_else(|_| Executable::interpreted(program))?;
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
mod host;
mod matcher;
mod memory;
mod packet;
mod refusal;
mod specialisations;
pub mod table;

pub use executable::{Executable, ExecutionInfo, Worker};
pub use matcher::{Frame, Matcher};
pub use packet::{Packet, PacketAction, ParseDepth, Verdict};
pub use refusal::Refusal;
