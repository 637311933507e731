//! Floor 0: the words that every other room speaks in.
//!
//! Time ([`Timestamp`], as people write it [`TimeSpec`]), sizes and rates as people write them ([`units`]), the portable mixing functions behind every
//! hash ([`hash`]), reproducible randomness ([`Prng`]) and the counters with their accounting equation ([`ledger`]).
//! Nothing here asks the machine for anything: time and seeds arrive as arguments.
#![forbid(unsafe_code)]

pub mod events;
pub mod hash;
pub mod ledger;
mod prng;
mod time;
mod time_spec;
pub mod units;

pub use events::{Cause, Note};
pub use ledger::{Ledger, Row, Tally};
pub use prng::Prng;
pub use time::Timestamp;
pub use time_spec::{ParseTimeError, TimeSpec};
