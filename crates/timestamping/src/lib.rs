//! Timestamps of packets: those of a thread that takes packets in batches, those of a NIC's clock, and those of
//! aggregation switches.
//!
//! A thread that polls a NIC finds several packets at a time, and the NIC has not recorded when each packet arrived.
//! The thesis of HPCAP (Moreno 2015, section 4.2) compares methods of timestamping: reading the clock for each packet
//! (`poll`), or once for each batch (`batch`), and apportioning the time between two batches to the packets, equally
//! (`udts`) or in proportion to their length on the wire (`wdts`). [`Stamper`] has these methods and `adaptive`, which
//! the thesis proposes as future work. [`NicClock`] converts the time of a NIC's clock to system time, and
//! [`SwitchTimestamps`] reads the timestamps that switches add to frames.
//!
//! Invariant: the timestamps of a [`Stamper`] never decrease, and no timestamp is later than the poll that found the
//! packet, unless the clock itself went back.
//!
//! This crate reads no clock: the times of the polls arrive as arguments.
#![forbid(unsafe_code)]

mod apportionment;
mod error_estimate;
mod hold;
mod link_rate;
mod nic_clock;
mod setting;
mod stamper;
mod switch_timestamp;

pub use error_estimate::ErrorEstimate;
pub use link_rate::{LinkRate, WIRE_OVERHEAD};
pub use nic_clock::{NicClock, NicClockState, NicReading};
pub use setting::{ParseSettingError, TimestampSetting};
pub use stamper::{Batch, BatchMethod, Stamper};
pub use switch_timestamp::{ParseSwitchTimestampsError, SwitchTimestamp, SwitchTimestamps};
