//! Maintenance of a store: recovery, verification, repair and retention.
//!
//! When a recorder starts, `recovery` completes the files that a killed recorder left unpublished. `verify` reports
//! damaged and incomplete files, and `repair` completes or rebuilds them; users start both. `retention` removes old
//! files. All of them access files through a [`store::Device`], so that a test can make each step fail.
#![forbid(unsafe_code)]

mod packet_file;
pub mod recovery;
pub mod repair;
pub mod retention;
pub mod verify;
