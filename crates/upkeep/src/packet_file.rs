//! Examination of a packet file whose end, index or contents may be damaged, and the rebuilding of its index.
//!
//! [`examine`] compares each block with the checksum of its index entry, and says which records to keep and what the
//! ledger must count for the others. [`rebuild`] reads the kept records again and writes the index and, if truncation
//! does not suffice, a copy without the damaged parts. Nothing here names, removes or publishes a file.

mod chain;
mod examine;
mod rebuild;
mod verified;
mod window;

pub use chain::{Layout, Record};
pub use examine::{Findings, examine};
pub use rebuild::{Rebuilt, rebuild};
pub use verified::{IndexedBlock, VerifiedIndex};
pub use window::{DeviceFile, Window};

/// Bytes of an index block.
pub const BLOCK: u64 = 1 << 20;
