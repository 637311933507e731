//! Floor 1: a port's curve, second by second.
//!
//! A [`Counter`] is told every packet and tells a [`Row`] for every second and direction: volumes by protocol and size,
//! TCP's beginnings and ends, distinct addresses, microbursts, flows, and the ledger. Counters of several queues merge
//! exactly. [`Roller`] makes minutes and hours of seconds, [`across`] one curve of several interfaces, and
//! [`quantities`] is the one table of what a row holds, from which addition, roll-ups, formats and documentation are
//! made.
#![forbid(unsafe_code)]

mod add;
mod counter;
mod distinct;
mod quantity;
mod rollup;
mod row;
mod second;

pub use add::{Added, across, added};
pub use counter::{Counter, Counts};
pub use distinct::{Distinct, address_hash};
pub use quantity::{Adds, Quantity, quantities};
pub use rollup::{Roller, Rollup, Step};
pub use row::{Direction, Kind, Peak, Row, SIZE_BOUNDS, SIZES, Volume};
