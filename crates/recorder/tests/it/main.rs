//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod common;
mod disk;
mod raw;
mod recorder;
mod trouble;
