//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod control;
mod model;
mod support;
mod untrusted_clients;
mod yielding;
