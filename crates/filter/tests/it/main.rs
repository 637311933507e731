//! All integration tests of this crate in one executable, which links faster than several.

mod anylink;
mod common;
mod flow;
mod libpcap;
mod links;
mod need;
mod words;
