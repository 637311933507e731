//! The clock of the machine, as far as a recorder needs it.

use base::Timestamp;
use std::time::Duration;

/// A timestamp may be ahead of the clock by this time; retention has the same tolerance.
const AHEAD: Duration = Duration::from_secs(3600);

/// The time of the system clock, and whether the clock is synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The time that the clock shows.
    pub now: Timestamp,
    /// True if the kernel reports the clock as synchronised.
    pub synchronised: bool,
}

impl WallClock {
    /// The latest plausible timestamp.
    pub fn latest_plausible(&self) -> Timestamp {
        self.now.after(AHEAD)
    }
}
