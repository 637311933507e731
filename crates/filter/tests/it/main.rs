//! All integration tests of this crate are in one executable, because one executable links faster than several.

mod anylink;
mod common;
mod flow;
mod libpcap;
mod links;
mod need;
mod words;
