//! The block index that lies beside each packet file (`.ngi`): when, how much, what was lost, and who is in each block.
//!
//! It has two layouts. While the packet file grows, so does its index, one [`Entry`] after the other, with slots for the
//! block that is filling ([`Growing`]); each part ends in a CRC32C of itself, so that an index cut off anywhere is
//! readable up to there. When the packet file is whole, a [`Builder`] writes a sealed one, in which everything about one key lies together, so that a
//! question reads kilobytes of it. A [`Reader`] asks either; an [`Index`] is either in memory. Which structure, and why, is
//! told with numbers in `docs/INDEX.md`.
#![forbid(unsafe_code)]

mod build;
mod builder;
mod bytes;
mod entry;
mod growing;
mod header;
mod host_sub_blocks;
mod key;
mod read;
mod reader;
mod rows;
mod sealed;
mod set;
mod set_builder;
mod set_query;
mod set_sizing;
mod sub_blocks;

pub use build::{BlockKeys, SETS_BUDGET};
pub use builder::{Builder, Sealing};
pub use entry::Entry;
pub use growing::{Growing, IndexWrite};
pub use header::{Content, Format, Header, UNKNOWN_POS};
pub use key::{KeyKind, Sets};
pub use read::{Footer, Index, IndexError, Tail};
pub use reader::{Block, ReadAt, Reader};
pub use rows::{Rows, Run};
pub use sealed::Summary;
pub use set::{GROUP, Set};
pub use sub_blocks::{SUB_BLOCK, SUB_BLOCKS, SubBlockMask, SubBlockRange, SubBlocks, sub_block_of};

/// How the name of an index ends.
pub const SUFFIX: &str = "ngi";
