//! All integration tests of this crate are in one executable, because one executable links faster than several.

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
