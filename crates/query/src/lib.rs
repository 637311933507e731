//! Finding packets again: the ring, the open file and sealed files of a store as one, or foreign captures with an index
//! beside them; in time order, with memory that does not grow with the answer, and with its cost told.
//!
//! [`run`] a [`Query`] of a [`QuerySource`]; the [`Results`] lends one packet after the other. This is also the Rust API for
//! reading packets by interval and filter, as `getPackets` of M3OMon and the loop of libpcap are.
#![forbid(unsafe_code)]

mod block;
mod block_merge;
mod context;
mod cost;
mod cursor;
mod disk;
mod error;
mod foreign;
mod live;
mod merge;
mod priority;
mod query;
mod results;
mod sealed;

use context::QueryContext;

pub use cost::Cost;
pub use error::QueryError;
pub use foreign::indexes;
pub use priority::{Background, lower_priority};
pub use query::{Query, QuerySource, SeekHint};
pub use results::{Batch, FoundPacket, Origin, Results, run};
