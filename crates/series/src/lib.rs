//! Floor 1: a port's curve, second by second.
//!
//! A [`SeriesMeter`] is told every packet and tells a [`Row`] for every second and direction: volumes by protocol and size,
//! TCP's beginnings and ends, distinct addresses, microbursts, flows, and the ledger. Counters of several queues merge
//! exactly. [`RollupBuilder`] makes minutes and hours of seconds, [`sum_interfaces`] one curve of several interfaces, and
//! [`quantities`] is the one table of what a row holds, from which addition, roll-ups, formats and documentation are
//! made.
#![forbid(unsafe_code)]

mod distinct;
mod merge;
mod meter;
mod quantity;
mod rollup;
mod row;
mod second;

pub use distinct::{Distinct, address_hash};
pub use merge::{MergedRows, merge_rows, sum_interfaces};
pub use meter::{Counts, SeriesMeter};
pub use quantity::{MergeRule, Quantity, quantities};
pub use rollup::{Rollup, RollupBuilder, Step};
pub use row::{Direction, Peak, Row, SIZE_BOUNDS, SIZES, TrafficClass, Volume};
