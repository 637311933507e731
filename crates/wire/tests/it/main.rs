//! All integration tests of this crate. They form one program, so that the linker runs once; each module has one
//! subject.

mod build;
#[path = "common/captures.rs"]
mod captures;
mod common;
mod community_id;
mod decode;
mod decode_random;
mod decode_tshark;
mod flow;
mod fragments;
mod headers;
mod sessions;
