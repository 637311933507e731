//! All integration tests of this crate in one program, which is linked once; each module is a subject.

mod anylink;
mod common;
mod flow;
mod libpcap;
mod links;
mod need;
mod words;
