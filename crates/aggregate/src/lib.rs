//! Layer 1: sums of flow records by the values of fields (`GROUP BY`).
//!
//! A [`Plan`] has the fields to group by ([`Field`]), the amounts to sum ([`Measure`]) and the length of the ranking.
//! An [`Aggregator`] adds one record after the other. Its result is exact, because it uses neither sampling nor
//! sketches. Partial sums of several threads or files can be merged. The plan's limit of groups also limits the memory.
//! If there are more groups, the aggregation ends with an error, whose text advises how to reduce the query; no result
//! is incomplete without an error.
#![forbid(unsafe_code)]

mod aggregator;
mod error;
mod field;
mod measure;
mod plan;
mod table;
mod terms;
mod top;

pub use aggregator::{Aggregation, Aggregator, GroupRow};
pub use error::ReportError;
pub use field::{Field, Value};
pub use measure::{Measure, MergeRule};
pub use plan::{GROUPS_MAX, Plan};
pub use terms::terms;
