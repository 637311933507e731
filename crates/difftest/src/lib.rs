//! Differential tests: random programs of the packet language run on every back end, and the results are compared with
//! a second model. Crates that contain a back end use this crate as a dev-dependency.
//!
//! ```text
//! function table ─► Source ─► text ─► lang::compile ─┬─► semantics: the terms, on headers parsed by `wire` ─┐
//!                                                    └─► an Execution (interpreted, native, in a kernel) ───┴─► equal?
//! values ─────────────► frames ──────────────────────────────► both
//! ```
//! * [`Source`]: a program as a syntax tree. [`write()`] generates it at random from the table of the language's
//!   functions. It can be printed in two notations.
//! * [`frames`]: generates packets that take different paths through a program (intact, corrupted, truncated, tagged,
//!   tunnelled, fragmented), and reads packets of capture files.
//! * [`semantics`]: a second implementation of the packet language, the model. It uses neither the IR nor the packet
//!   facts.
//! * [`naive_duplicates`]: a second implementation of the detection of duplicates, which compares all bytes.
//! * [`Trial`]: runs many programs over many packets on one [`BackEnd`] and compares the results with the model. A
//!   mismatch is reduced ([`shrink`]) and reported as source text, bytes and seed.
#![forbid(unsafe_code)]

mod case;
pub mod frames;
mod interpreted;
mod literals;
pub mod naive_duplicates;
mod report;
pub mod semantics;
pub mod shrink;
mod source;
mod trial;
mod values;
mod writer;

pub use case::{Case, Packet};
pub use interpreted::{InParts, Interpreted, facts};
pub use report::Report;
pub use semantics::{ObservedAction, PacketOutcome, Record};
pub use source::{Binding, CallStyle, Expr, Node, Source};
pub use trial::{BackEnd, CompiledCase, Execution, ExecutionResult, MapContents, Mismatch, StateSnapshot, Trial};
pub use writer::{action, write};
