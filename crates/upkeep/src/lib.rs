//! Keeping a store whole and in its bounds.
//!
//! `recovery` mends what a killed recorder left, at the next start; `verify` and `repair` do it by hand; `retention` makes
//! room. All of it works on a [`store::Device`], so that each step can be made to fail in a test.
#![forbid(unsafe_code)]

mod packet_file;
pub mod recovery;
pub mod repair;
pub mod retention;
pub mod verify;
