//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod common;
mod disorder;
mod leftovers;
mod recovery;
mod repair;
mod retention;
mod stopped;
