//! Examination of a packet file whose end, index or contents may be damaged, and the rebuilding of its index.
//!
//! [`examine`] compares each block with the checksum of its index entry, determines which records are kept, and creates
//! the ledger rows, in which all packets that are not kept count as lost. [`rebuild`] reads the kept records again and
//! writes their index. If truncation of the file does not suffice to remove the damaged parts, [`rebuild`] also writes
//! a copy of the file without them. The functions of this module do not name, remove or publish files.

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
