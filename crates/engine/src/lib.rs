//! Layer 3: capture pipelines. A [`Plan`] is the validated configuration of a capture, and a [`Capture`] is the capture
//! that runs.
//!
//! ```text
//! source --frames--> engine thread --ring--> recorder (lossless): index thread -> writer thread -> files
//!                    (one per queue)   |---> meter (lossless, all queues): flow records and rows -> store, collectors
//!                                      \---> listeners in other processes (lossy or lossless)
//! ```
#![forbid(unsafe_code)]

mod batch_clock;
mod capture;
mod duplicate_report;
mod duplicates;
mod error;
mod generator;
mod hash_key;
mod meter_key;
mod metrics;
mod network;
mod observer;
mod plan;
mod prepare;
mod recording;
mod recovery;
mod report;
mod republish;
mod retention;
mod retention_report;
mod rings;
mod sizes;
mod stage;
mod supervisor;
mod switch_stamps;
mod timestamp_choice;
mod timestamp_warnings;
mod train_report;
mod train_sender;
mod volume;
mod worker;
mod worker_links;

pub use crate::capture::Capture;
pub use crate::duplicates::{DuplicateAction, DuplicatePlan, DuplicateScope, SharedDuplicates};
pub use duplicate_report::DuplicateReport;
pub use error::EngineError;
pub use generator::{Generator, Method, Sent};
pub use hash_key::random_key;
pub use meter_key::{choose_key, key_of_files};
pub use metrics::{MetricsServer, exposition};
pub use network::{another_pair, private_pair};
pub use observer::Observer;
pub use plan::{Format, InterfacePlan, Plan, SocketPlan, SourcePlan, StorePlan, WRITE_DEPTH, default_socket};
pub use prepare::PreparedCapture;
pub use recorder::ThreadWaits;
pub use recording::RecorderReport;
pub use report::{ClockReport, Counts, ListenerReport, QueueReport, Report, Second};
pub use retention::{Retention, RetentionPlan};
pub use retention_report::{FileTotals, RetentionReport};
pub use sizes::{SizesError, default_flows, default_ring};
pub use train_report::{GapErrors, TrainReport};
pub use train_sender::{LaunchMethod, TrainSender};
pub use volume::{SegmentError, SegmentProblem};
pub use worker::BATCH;
pub use worker_links::WorkerStatus;
