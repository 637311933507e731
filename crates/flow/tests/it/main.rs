//! All integration tests of this crate. They form one program, so that the linker runs once; each module has one
//! subject.

#[path = "common/captures.rs"]
mod captures;
mod flowtest;
mod shards;
mod tunnels;
