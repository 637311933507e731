//! All integration tests of this crate in one program, which is linked once; each module is a subject.

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
