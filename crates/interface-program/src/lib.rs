//! Layer 2: the program of an interface, in the packet language. The program runs for every packet before the packet
//! enters the ring.
//!
//! ```text
//!        ┌ kernel (AF_XDP): first stages ┐   record before    ┌ engine thread: the rest ┐
//!  NIC ─►│ drop · forward · host         ├──── the packet ───►│ drop · forward          ├─► filter, ring
//!        └───────────────────────────────┘                    └─────────────────────────┘
//! ```
//! On AF_XDP the first stages run in the kernel ([`kernel_programs`]), up to the first stage that the kernel cannot
//! run. The remaining stages run in the engine thread. On other sources the whole program runs in the engine thread. A
//! packet that the program drops, forwards or passes to the host counts as *filtered* in the ledger. The descriptor of
//! a packet that enters the ring contains the packet's mark and, if the program steers, its hash. Classes have no
//! effect here: they select members of groups, and groups read packets from the ring.
//!
//! **A swap** ([`InterfaceProgram::swap`]) first does everything that can fail: it checks the text, compiles the user
//! part, and has the kernel verify the kernel part. Then it puts the new user part into the mailbox of every queue, and
//! after that it replaces the kernel part. If any step fails, the running program continues.
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
