//! Layer 0: types that all other crates share.
//!
//! * [`Timestamp`] is a time in nanoseconds since 1970; [`TimeSpec`] is a time in the notation of the command line.
//! * [`units`] reads and prints sizes, rates and durations.
//! * [`hash`] has the mixing functions of every hash; they give the same numbers on every platform.
//! * [`Prng`] generates reproducible random numbers.
//! * [`nearest`] finds the name that a misspelt name was probably meant to be.
//! * [`ErrorEstimate`] is the error of a clock in the form of RFC 4656.
//! * [`Distribution`] has the mean, the deviation and the quantiles of values, the latter by a [`Histogram`].
//! * [`memory`] has the hints for the memory of large tables.
//! * [`ledger`] has the counters and their accounting equation.
//! * [`TimestampMethod`] and [`DuplicateClass`] are the annotations of packets.
//! * [`TimestampQuality`] has the methods and the estimated deviation of timestamps, and the state of the system clock.
//!
//! This crate makes no system call and reads no clock: times and seeds arrive as arguments.
#![forbid(unsafe_code)]

mod distribution;
mod duplicate_class;
mod error_estimate;
pub mod events;
pub mod hash;
mod histogram;
pub mod ledger;
pub mod memory;
mod prng;
mod second_map;
mod suggest;
mod tally;
mod time;
mod time_spec;
mod timestamp_method;
mod timestamp_quality;
pub mod units;

pub use distribution::Distribution;
pub use duplicate_class::DuplicateClass;
pub use error_estimate::ErrorEstimate;
pub use events::{Cause, Note};
pub use histogram::{Bucket, Histogram};
pub use ledger::{Ledger, Row};
pub use prng::Prng;
pub use second_map::SecondMap;
pub use suggest::nearest;
pub use tally::Tally;
pub use time::Timestamp;
pub use time_spec::{ParseTimeError, TimeSpec};
pub use timestamp_method::TimestampMethod;
pub use timestamp_quality::{ClockState, ClockSteps, TimestampMethods, TimestampQuality};
