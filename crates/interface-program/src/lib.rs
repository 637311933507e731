//! Layer 2: the program of an interface, in the packet language. It evaluates every packet before the ring.
//!
//! ```text
//!        ┌ kernel (AF_XDP): first stages ┐   record before    ┌ engine thread: the rest ┐
//!  NIC ─►│ drop · forward · host         ├──── the packet ───►│ drop · forward          ├─► filter, ring
//!        └───────────────────────────────┘                    └─────────────────────────┘
//! ```
//! On AF_XDP the first stages, as far as they can, run in the kernel ([`kernel_programs`]); the rest, and on other
//! sources the whole program, runs in the engine thread. A packet that the program drops, forwards or passes to the
//! host counts as *filtered* in the ledger. The descriptor of a packet that goes on to the ring has its mark and, if
//! the program steers, its hash. Classes have no effect here: they select members of groups, and there are none before
//! the ring.
//!
//! **A swap** ([`InterfaceProgram::swap`]) first does everything that can fail: it checks the text, compiles the user part,
//! and lets the kernel verify the kernel part. Then it leaves the new user part in the mailbox of every queue, and
//! after that it replaces the kernel part. A program that is refused at any step replaces nothing.
#![forbid(unsafe_code)]

mod accounting;
mod check;
mod egress_monitor;
mod error;
mod forward_queue;
mod interface_program;
mod mailbox;
mod report;
mod user_part;

pub use check::{Access, ProgramContext, ProgramPlan};
pub use error::{ImpossibleOperation, ProgramError};
pub use interface_program::InterfaceProgram;
pub use report::{KernelOutcomes, MapReport, MapUsage, ProgramReport, QueueOutcomes, UserOutcomes};
pub use user_part::{IncomingPacket, ProgramSequence, QueueInfo, RingPacket};
