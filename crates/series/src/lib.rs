//! Floor 1: a port's curve, second by second.
#![forbid(unsafe_code)]

mod row;

pub use row::{Direction, Kind, Peak, Row, SIZE_BOUNDS, SIZES, Volume};
