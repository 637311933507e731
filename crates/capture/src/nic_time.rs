//! The system time of a NIC's timestamps: the clock of the NIC is read once a second together with the system clock.

use base::Timestamp;
use std::time::{Duration, Instant};
use sys::ethtool;
use sys::ptp::PtpClock;
use timestamping::{NicClock, NicClockState, NicReading};

/// Interval between two bursts of readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The clock of the NIC of an interface.
#[derive(Debug)]
pub struct NicTime {
    /// `None` if the clock cannot be read. Its timestamps are then not converted.
    device: Option<PtpClock>,
    clock: NicClock,
    due: Instant,
}

impl NicTime {
    /// Opens and reads the clock of the NIC of the interface `name`. If the clock cannot be read, the second value is a
    /// warning.
    pub fn open(name: &str) -> (Self, Option<String>) {
        let opened = match ethtool::stamping(name).map(|stamping| stamping.clock) {
            Ok(Some(number)) => match PtpClock::open(number) {
                Ok(device) => {
                    device.read().map(|_| device).map_err(|e| format!("/dev/ptp{number} cannot be read: {e}"))
                }
                Err(e) => Err(format!("/dev/ptp{number} cannot be opened: {e}")),
            },
            Ok(None) => Err("the driver reports no PTP clock".to_owned()),
            Err(e) => Err(format!("the driver does not report its PTP clock: {e}")),
        };
        let (device, warning) = match opened {
            Ok(device) => (Some(device), None),
            Err(reason) => (None, Some(unconverted(&reason))),
        };
        let mut time = Self { device, clock: NicClock::default(), due: Instant::now() };
        time.renew();
        (time, warning)
    }

    /// Reads the clock again if a second has passed.
    pub fn renew(&mut self) {
        let Some(device) = &self.device else { return };
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + INTERVAL;
        // After a failed reading, the present line is used further.
        let Ok(readings) = device.read() else { return };
        let burst: Vec<NicReading> = readings
            .into_iter()
            .map(|reading| NicReading { before: reading.before, nic_nanos: reading.nic_nanos, after: reading.after })
            .collect();
        self.clock.observe(&burst);
    }

    /// The system time of a timestamp of the NIC; the timestamp itself if the clock cannot be read.
    #[inline]
    pub fn convert(&mut self, nic_nanos: u64) -> Timestamp {
        self.clock.convert(nic_nanos).unwrap_or(Timestamp::from_nanos(nic_nanos))
    }

    /// The time of the NIC's clock at a system time; the system time itself if the clock cannot be read.
    pub fn nic_nanos_at(&self, system: Timestamp) -> u64 {
        self.clock.nic_nanos_at(system).unwrap_or(system.nanos())
    }

    /// The relation of the two clocks; `None` if the NIC's clock cannot be read.
    pub fn state(&self) -> Option<NicClockState> {
        self.clock.state()
    }
}

fn unconverted(reason: &str) -> String {
    format!(
        "the NIC's timestamps are not converted to system time, because {reason}; synchronise the NIC's clock with the \
         system clock (phc2sys), or use timestamps of the kernel"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_a_clock_that_cannot_be_read_are_not_converted_and_a_warning_says_so() {
        let (mut time, warning) = NicTime::open("lo");
        let warning = warning.expect("the loopback interface has no PTP clock");
        assert!(warning.contains("PTP clock") && warning.contains("phc2sys"), "{warning}");
        assert_eq!((time.convert(1234), time.state()), (Timestamp::from_nanos(1234), None));
    }
}
