//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod afxdp;
mod common;
mod conformance;
mod file;
mod live_frames;
mod rigs;
mod tpacket;
