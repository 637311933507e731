//! Where packets come from: one contract, several sources.
//!
//! A [`Source`] hands over frames in the order in which they arrived, says what it lost and why, and can be stopped so
//! that nothing it already holds is forgotten. [`afxdp`] takes a queue of a port away from the host, [`tpacket`] shares
//! the port with it, [`file`](mod@file) replays captures and [`sim`] makes frames up. All of them pass one suite,
//! `tests/conformance.rs`. Frames are borrowed from the source for one call: the engine copies each of them once, into
//! the shared ring, and nobody else ever needs to.
#![forbid(unsafe_code)]

pub mod afxdp;
mod any;
pub mod auto;
mod contract;
pub mod file;
pub mod live_frames;
pub mod sim;
pub mod tpacket;

pub use any::AnySource;
pub use contract::{Counts, Frame, Polled, ProgramOutcomes, Source, SourceError, SourceInfo, TimestampSource, VlanTag};
