//! All integration tests of this crate. They form one program, so that the linker runs once; each module has one
//! subject.

#[path = "common/captures.rs"]
mod captures;
mod common;
mod disorder;
mod faults;
mod foreign;
mod live;
mod oracle;
mod parts;
mod sealed;
mod timestamps;
