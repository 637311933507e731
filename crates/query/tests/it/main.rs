//! All integration tests of this crate in one program, which is linked once; each module is a subject.

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
