//! Floor 3: pipelines. A [`Plan`] says what to capture and what to do with it; a [`Capture`] does it.
//!
//! ```text
//! source --frames--> engine thread --ring--> recorder (gate): index thread -> writer thread -> files
//!                    (one per queue)   |---> meter (gate, all queues): flow records and rows -> store, collectors
//!                                      \---> listeners in other processes (lossy, or gates)
//! ```
#![forbid(unsafe_code)]

mod capture;
mod egress;
mod error;
mod generator;
mod group;
mod heritage;
mod mending;
mod meter;
mod metrics;
mod network;
mod observer;
mod plan;
mod program;
mod recording;
mod recovery;
mod retention;
mod sizes;
mod stage;
mod status;
mod volume;
mod worker;

pub use crate::capture::{Capture, Made, random_key};
pub use crate::group::{GroupPlan, MemberPlan, Settled, check_group_program, groups_socket, lent_to_groups};
pub use columns::Rules as ColumnRules;
pub use error::EngineError;
pub use generator::{Generator, Method, Sent};
pub use heritage::{Anew, Heritage};
pub use meter::{
    CollectorOutlet, Destination, GrainKeeping, GrainRules, MadeOffline, MeterPlan, MeterReport, OfCapture, Outlet,
    OutletReport, Pace, Quick, ReadOffline, StoreOutlet, TunnelReport, count_packet,
};
pub use metrics::{MetricsServer, exposition};
pub use network::{another_pair, private_pair};
pub use observer::Observer;
pub use plan::{
    Format, InterfacePlan, Plan, ProgramPlan, SocketPlan, SourcePlan, StorePlan, WRITE_DEPTH, default_socket,
};
pub use program::{Decided, Disposals, Filling, MapReport, ProgramReport};
pub use recorder::Waiting;
pub use retention::{Gone, Retention, RetentionPlan, RetentionReport};
pub use sizes::{default_flows, default_ring};
pub use status::{Counts, ListenerReport, QueueReport, RecorderReport, Report, Second, WorkerStatus};
pub use worker::BATCH;
