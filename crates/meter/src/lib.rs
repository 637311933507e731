//! Layer 2: the metering process. Each interface has a meter: a thread that reads the rings of the interface losslessly
//! and makes flow records and series rows. Sinks receive the records and rows: the store ([`StoreSink`]) and collectors
//! ([`CollectorSink`]).
//!
//! Invariant (accounting): the meter counts each stored packet as metered or as unmetered. Each metered packet is
//! counted in one series row. If it is an IP packet, it is also counted in the records of one flow. If the counters
//! contradict this, the meter reports a bug.
#![forbid(unsafe_code)]

mod collector;
mod error;
mod meter;
mod offline;
mod packet_bytes;
mod plan;
mod queue_merge;
mod report;
mod sink;
mod store;
mod table;
mod work;

pub use collector::{CollectorSink, Destination, Pace};
pub use error::{DestinationError, MeterError};
pub use meter::{Meter, MeterGauge};
pub use offline::{MeterOutput, OfflineMeter, OfflineResult};
pub use plan::MeterPlan;
pub use queue_merge::QueueReader;
pub use report::{MeterReport, SinkReport, TunnelReport};
pub use sink::Sink;
pub use store::{RowRetention, RowRetentionRules, STORE_NAME, StoreSink};
pub use table::MemoryHints;
