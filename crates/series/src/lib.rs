//! Layer 1: the time series of an interface, one row per second and direction.
//!
//! A [`SeriesMeter`] counts every packet and emits a [`Row`] for each second and direction. A row contains volumes by
//! protocol and size, TCP packets with SYN, FIN and RST, distinct addresses, microbursts, flows, and the counts of the
//! ledger of losses (numbers of offered, stored and lost packets). Counters of several queues merge exactly.
//! [`RollupBuilder`] merges seconds into minutes and hours; [`sum_interfaces`] sums several interfaces to one time
//! series. [`quantities`] is the only table of the numbers in a row: addition, roll-ups, formats and documentation
//! derive from this table.
#![forbid(unsafe_code)]

mod distinct;
mod merge;
mod meter;
mod packet_input;
mod quantity;
mod rollup;
mod row;
mod second;
mod timestamp_counters;

pub use distinct::{Distinct, address_hash};
pub use merge::{MergedRows, merge_rows, sum_interfaces};
pub use meter::{Counts, SeriesMeter};
pub use packet_input::count_packet;
pub use quantity::{MergeRule, Quantity, quantities};
pub use rollup::{Rollup, RollupBuilder, Step};
pub use row::{Direction, Peak, Row, SIZE_BOUNDS, SIZES, TrafficClass, Volume};
pub use timestamp_counters::TimestampCounters;
