//! All integration tests of this crate. They form one program, so that the linker runs once; each module has one
//! subject.

mod common;
mod disk;
mod raw;
mod recorder;
mod timestamps;
mod trouble;
