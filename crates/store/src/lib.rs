//! The store: a directory tree of packet files with their indexes, its naming scheme, and the operations on its volume.
//!
//! [`names`] defines directories and file names. Every disk operation that can fail is a function of [`Device`]. The
//! crate `recorder` writes stores, `query` reads them, and `upkeep` verifies and repairs them and applies retention.

pub mod bytes;
pub mod catalogue;
pub mod claim;
pub mod device;
pub mod hold;
pub mod meter_key;
pub mod names;
pub mod offered_page;
pub mod out_of_order;
pub mod owner;

pub use bytes::{Bytes, Slice};
pub use claim::{Claim, Claimant};
pub use device::{Device, DiskDevice, MemoryDevice};
pub use hold::Hold;
pub use meter_key::MeterKey;
pub use out_of_order::OutOfOrderMarkers;
