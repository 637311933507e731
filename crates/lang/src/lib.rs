//! Floor 1: the packet language. What happens to a packet, and who gets it, is a small pure program, checked before it runs.
//!
//! * [`ir`]: the intermediate form, its verifier, printer and costs: the contract of every back end. [`Facts`]: what a program may
//!   know of a packet beside its bytes.
//! * [`interp`]: what a program means.
//! * [`term`]: programs with all functions applied; [`lower`] makes the intermediate form of them.
//! * [`tcpdump`]: the other surface.
//! * [`Key`]: what state is kept by, and what several keys have in common.
#![forbid(unsafe_code)]

pub mod facts;
pub mod interp;
pub mod ir;
pub mod key;
pub mod lower;
mod prefix;
pub mod syntax;
pub mod tcpdump;
pub mod term;

pub use facts::Facts;
pub use key::{Field, Key};
pub use prefix::Prefix;
