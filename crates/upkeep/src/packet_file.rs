//! What can be said of a packet file whose end, or index, or middle is in doubt; and the index that tells it.
//!
//! [`examine`] compares the bytes with what an index vouches for, block by block, and says which records are to be kept
//! and what the ledger must say of the others. [`rebuild`] walks the kept records once more and makes the index, and where
//! the file cannot simply be cut, a copy without what is damaged. Nothing here names, removes or publishes a file.

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
