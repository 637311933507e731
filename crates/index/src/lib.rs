//! The block index that lies beside each packet file (`.ngi`): when, how much, what was lost, and who is in each block.
//!
//! ```text
//! header | entry of block 0 | entry of block 1 | … | footer
//! ```
//! All numbers are little-endian; each part ends in a CRC32C of itself, so that a file cut off anywhere is readable up to
//! there. While a block is still filling, its entry is rewritten in place; the footer comes when the packet file is whole.
#![forbid(unsafe_code)]

mod build;
mod format;
mod key;
mod read;
mod reader;
mod rows;
mod set;

pub use build::Keys;
pub use format::{Entry, Footer, Header, Sets};
pub use key::{FlowKey, Key};
pub use read::{Index, IndexError, Tail};
pub use reader::{Block, ReadAt, Reader};
pub use rows::{Rows, Run};
pub use set::Set;

/// How the name of an index ends.
pub const SUFFIX: &str = "ngi";

/// Bytes that the key sets of one block may take: with its other fields an entry stays below 1 % of the block.
pub const SETS_BUDGET: usize = 9_984;
