//! What a store is: a folder of packet files with their indexes, how they are named, and the volume that it lies on.
//!
//! [`names`] says where files lie; [`Device`] is everything that can fail on a disk. The `recorder` writes stores, `query`
//! reads them, `upkeep` keeps them whole and in their bounds.

pub mod bytes;
pub mod catalogue;
pub mod claim;
pub mod device;
pub mod hold;
pub mod names;
pub mod offered_page;
pub mod out_of_order;
pub mod owner;

pub use bytes::{Bytes, Slice};
pub use claim::{Claim, Claimant};
pub use device::{Device, DiskDevice, MemoryDevice};
pub use hold::Hold;
pub use out_of_order::OutOfOrderMarkers;
