//! Examination of a packet file whose end, index or contents may be damaged, and the rebuilding of its index.
//!
//! [`examine`] compares each block with the checksum of its index entry, and determines which records are kept, and the
//! ledger rows for all other packets. [`rebuild`] reads the kept records again and writes their index and, if
//! truncation does not suffice, a copy of the file without the damaged parts. The functions of this module do not name,
//! remove or publish files.

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

/// Bytes of a block, the unit of the index: 1 MiB.
pub const BLOCK: u64 = 1 << 20;
