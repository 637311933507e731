//! All integration tests of this crate in one program, which is linked once; each module is a subject.

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
