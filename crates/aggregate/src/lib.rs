//! Floor 1: what flow records add up to.
//!
//! A [`Plan`] says by what to group ([`Field`]), what to add up ([`Measure`]) and how many of the greatest are wanted;
//! [`Aggregator`] takes records, one after the other, and is exact: no sampling, no sketch. Partial sums of several threads
//! or files are merged. Memory is bounded by the plan's limit of groups, and beyond it there is an error that says how to
//! ask for less, never an answer that is quietly wrong.
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
