//! Maintenance of a store: recovery, verification, repair and retention.
//!
//! When a recorder starts, `recovery` completes and publishes the files that a killed recorder left unpublished. Users
//! start `verify`, which reports damaged and incomplete files, and `repair`, which completes or rebuilds them.
//! `retention` removes old files. All four modules access files through a [`store::Device`], so that a test can make
//! each step fail.
#![forbid(unsafe_code)]

mod packet_file;
pub mod recovery;
pub mod repair;
pub mod retention;
pub mod verify;
