//! Maintenance of a store: recovery, verification, repair and retention.
//!
//! `recovery` completes at start the files that a killed recorder left unpublished; `verify` and `repair` do the same
//! on demand; `retention` removes old files. All of them work on a [`store::Device`], so that a test can make each step
//! fail.
#![forbid(unsafe_code)]

mod packet_file;
pub mod recovery;
pub mod repair;
pub mod retention;
pub mod verify;
