//! The clock of the timestamps that the XDP program writes before frames, and its conversion to UTC.

use super::timestamps::{self, XdpTimestamps};
use crate::nic_time::NicTime;
use base::Timestamp;
use timestamping::NicClockState;

/// Converts the timestamps that the XDP program wrote to UTC.
pub(super) enum StampClock {
    /// The kernel's TAI.
    Kernel {
        /// Nanoseconds that TAI is ahead of UTC.
        ahead: u64,
    },
    /// The clock of the NIC.
    Nic(NicTime),
}

impl StampClock {
    /// The clock of these timestamps of the interface `name`, and a warning; `None` for no timestamps.
    pub(super) fn open(timestamps: XdpTimestamps, name: &str) -> (Option<Self>, Option<String>) {
        match timestamps {
            XdpTimestamps::None => (None, None),
            XdpTimestamps::Kernel => {
                let mut clock = Self::Kernel { ahead: 0 };
                clock.renew();
                (Some(clock), None)
            }
            XdpTimestamps::Hardware => {
                let (clock, warning) = NicTime::open(name);
                (Some(Self::Nic(clock)), warning)
            }
        }
    }

    /// Reads again how far the clock is ahead. A time service may set the difference of TAI from UTC at any time.
    pub(super) fn renew(&mut self) {
        match self {
            Self::Kernel { ahead } => {
                if let Ok(status) = sys::timex::clock_status() {
                    *ahead = u64::try_from(status.tai_offset).unwrap_or(0) * 1_000_000_000;
                }
            }
            Self::Nic(clock) => clock.renew(),
        }
    }

    /// The time that the program wrote before a frame.
    #[inline]
    pub(super) fn read(&mut self, before: &[u8]) -> Option<Timestamp> {
        let stamp = timestamps::read(before)?;
        Some(match self {
            Self::Kernel { ahead } => Timestamp::from_nanos(stamp.saturating_sub(*ahead)),
            Self::Nic(clock) => clock.convert(stamp),
        })
    }

    /// The relation of the NIC's clock to the system clock, if it is known.
    pub(super) fn state(&self) -> Option<NicClockState> {
        match self {
            Self::Kernel { .. } => None,
            Self::Nic(clock) => clock.state(),
        }
    }
}
