//! Random programs of the packet language, and what every execution of them has to come to (a dev-dependency of the rooms that execute).
//!
//! ```text
//! table of functions ─► Source ─► text ─► lang::compile ─┬─► meaning: the terms, over what `wire` finds      ─┐
//!                                                        └─► an Execution (interpreted, native, in a kernel) ─┴─► the same?
//! values ─────────────► frames ──────────────────────────────► both
//! ```
//! * [`Source`]: a program as a tree, written at random from the one table of functions ([`write()`]) and printed in two ways.
//! * [`frames`]: packets that those programs tell apart: whole, bent, cut, tagged, in tunnels, in fragments; and real ones.
//! * [`meaning`]: a second opinion on what a program means. It uses neither the intermediate form nor the facts made for it.
//! * [`Trial`]: many programs over many packets through one [`BackEnd`], beside the meaning. What differs is made smaller
//!   ([`shrink`]) and shown as source text, bytes and seed.
#![forbid(unsafe_code)]

pub mod frames;
mod interpreted;
mod literals;
mod report;
pub mod semantics;
pub mod shrink;
mod source;
mod trial;
mod values;
mod writer;

pub use interpreted::{InParts, Interpreted, facts};
pub use report::Report;
pub use semantics::{ObservedAction, PacketOutcome, Record};
pub use source::{Binding, CallStyle, Expr, Node, Source};
pub use trial::{
    BackEnd, Case, CompiledCase, Execution, ExecutionResult, MapContents, Mismatch, Packet, StateSnapshot, Trial,
};
pub use writer::{action, write};
