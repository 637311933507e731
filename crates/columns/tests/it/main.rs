//! All integration tests of this crate in one program, which is linked once; each module has one subject.

mod common;
mod engines;
mod faults;
mod follow;
mod round_trip;
mod store;
mod vocabulary;
