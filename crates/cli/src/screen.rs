//! Text output during a capture and at its end.

mod line;
mod summary;
mod warnings;

pub use line::StatusLine;
pub use summary::{data_types, summary};
pub use warnings::Warnings;

use std::time::Duration;

/// The time between two lines of output during a capture.
pub const PERIOD: Duration = Duration::from_secs(1);
