//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod agreement;
mod common;
mod growing;
mod sealed;
