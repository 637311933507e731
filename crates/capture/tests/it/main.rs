//! All integration tests of this crate in one program, so that they are linked once. Each module has one subject.

mod afxdp;
mod common;
mod conformance;
mod file;
mod live_frames;
mod rigs;
mod tpacket;
