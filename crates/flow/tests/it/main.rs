//! All integration tests of this crate in one program, which is linked once; each module is a subject.

#[path = "common/captures.rs"]
mod captures;
mod flowtest;
mod shards;
mod tunnels;
