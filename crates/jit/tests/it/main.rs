//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod agree;
mod behind;
mod examples;
mod memory;
mod proof;
mod random;
