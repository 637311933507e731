//! Packet sources: one trait, several implementations.
//!
//! A [`Source`] delivers frames in the order of their arrival, reports its losses with their causes, and after a stop
//! still delivers the frames that it has already received. [`afxdp`] receives the frames of a queue instead of the
//! host, [`tpacket`] shares the interface with the host, [`file`](mod@file) replays capture files and [`sim`] generates
//! frames. All sources pass the same test suite, `tests/it/conformance.rs`. A source lends each frame for one call; the
//! engine copies it once, into the shared ring.
#![forbid(unsafe_code)]

pub mod afxdp;
mod any;
pub mod auto;
mod contract;
pub mod egress;
pub mod file;
mod frame_sink;
pub mod live_frames;
mod nic_time;
pub mod sim;
pub mod tpacket;

pub use any::AnySource;
pub use contract::{Counts, Frame, Polled, ProgramOutcomes, Source, SourceError, SourceInfo, TimestampSource, VlanTag};
pub use frame_sink::{AHEAD_MAX, EachFrame, FoundFrames, FrameSink};
pub use nic_time::NicTime;
