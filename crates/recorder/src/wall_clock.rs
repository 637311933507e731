//! The clock of the machine, as far as a recorder needs it.

use base::Timestamp;
use std::time::Duration;

/// How far ahead of the clock a timestamp may be; the same tolerance as in retention.
const AHEAD: Duration = Duration::from_secs(3600);

/// The time of day of this machine.
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
