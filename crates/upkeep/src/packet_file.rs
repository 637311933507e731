//! Examination of a packet file whose end, index or contents may be damaged, and the rebuilding of its index.
//!
//! [`examine`] compares each block with the checksum of its index entry, and determines the records to keep and the
//! ledger rows for the others. [`rebuild`] reads the kept records again and writes the index and, if truncation does
//! not suffice, a copy without the damaged parts. The functions of this module do not name, remove or publish files.

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

/// Bytes of a block of the index.
pub const BLOCK: u64 = 1 << 20;
