//! Floor 1: flow records.
//!
//! Packets in, [`Record`]s out; time is that of the packets.
#![forbid(unsafe_code)]

mod record;

pub use record::{Around, Early, EndReason, Key, Locator, Moments, Record, Side, Sink, TcpState};
