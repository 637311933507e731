//! Queries for stored packets. The source of a query is a store (with the rings, growing files and sealed files of its
//! interfaces), or a list of foreign captures with or without an index. Packets are returned in order of time. Memory
//! does not grow with the size of the result, and each query reports its cost.
//!
//! [`run`] starts a [`Query`] on a [`QuerySource`]; [`Results`] returns one packet after the other. These functions are
//! the Rust API for reading packets by interval and filter, like `getPackets` of M3OMon and the read loop of libpcap.
//!
//! Two modules join packets with the other data types: [`FlowPackets`] finds the packets of flow records, and
//! [`SeriesOfPackets`] computes the time series of a filter from packets. [`SumColumns`] sums flow records and reads
//! only the columns that the sums need.
#![forbid(unsafe_code)]

mod block;
mod block_merge;
mod context;
mod cost;
mod cursor;
mod disk;
mod error;
mod flow_packets;
mod flow_sums;
mod foreign;
mod found_packet;
mod inventory;
mod live;
mod merge;
mod priority;
mod query;
mod results;
mod sealed;
mod series_of_packets;

use context::QueryContext;

pub use cost::Cost;
pub use error::QueryError;
pub use flow_packets::FlowPackets;
pub use flow_sums::{SumColumns, SumError};
pub use foreign::indexes;
pub use found_packet::{Batch, FoundPacket, Origin};
pub use inventory::InterfaceInventory;
pub use priority::{Background, lower_priority};
pub use query::{Query, QuerySource, SeekHint};
pub use results::{Results, run};
pub use series_of_packets::{SeriesError, SeriesOfPackets};
