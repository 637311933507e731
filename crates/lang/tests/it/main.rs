//! All integration tests of this crate in one executable, which links faster than several.

mod datagrams;
mod ebpf;
mod examples_of_users;
mod filters;
mod found;
mod ir;
mod laws;
mod printed;
mod programs;
mod table;
mod tunnels;
