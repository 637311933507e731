//! The block index beside each packet file (`.ngi`): time range, counts, lost packets and key sets of each block.
//!
//! An index has two layouts. While the packet file grows, its index grows too: the recorder appends one [`Entry`] after
//! the other, and writes the entries of the block that is being filled into slots ([`Growing`]). Each part of an index
//! ends in its own CRC32C, so that a truncated index is readable up to its last complete part. When the packet file is
//! complete, a [`Builder`] writes a sealed index, which stores all data about one key together, so that a query reads
//! only a few kilobytes of the index. A [`Reader`] answers queries from both layouts; an [`Index`] is a complete index
//! of either layout in memory. `docs/design/block-index.md` gives the reasons for the structure, with measurements.
#![forbid(unsafe_code)]

mod block;
mod build;
mod builder;
mod bytes;
mod contents;
mod entry;
mod error;
mod growing;
mod header;
mod host_sub_blocks;
mod key;
mod read;
mod read_at;
mod reader;
mod rows;
mod sealed;
mod set;
mod set_builder;
mod set_query;
mod set_sizing;
mod sub_blocks;
mod timestamps;

pub use block::Block;
pub use build::{BlockKeys, SETS_BUDGET};
pub use builder::{Builder, Sealing};
pub use contents::{Footer, Index, Tail};
pub use entry::Entry;
pub use error::IndexError;
pub use growing::{Growing, IndexWrite};
pub use header::{Content, Format, Header, UNKNOWN_POS};
pub use key::{KeyKind, Sets};
pub use read_at::ReadAt;
pub use reader::Reader;
pub use rows::{Rows, Run};
pub use sealed::Summary;
pub use set::{GROUP, Set};
pub use sub_blocks::{SUB_BLOCK, SUB_BLOCKS, SubBlockMask, SubBlockRange, SubBlocks, sub_block_of};

/// The file name suffix of an index.
pub const SUFFIX: &str = "ngi";

/// The version of the format.
const VERSION: u16 = 8;
