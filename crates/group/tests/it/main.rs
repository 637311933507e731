//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod door;
mod model;
mod strangers;
mod support;
mod yielding;
