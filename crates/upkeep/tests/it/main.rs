//! All integration tests of this crate. They form one program, so that the linker runs once; each module has one
//! subject.

mod common;
mod disorder;
mod leftovers;
mod recovery;
mod repair;
mod retention;
mod stopped;
