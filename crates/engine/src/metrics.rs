//! The page `/metrics` in the Prometheus text format, made from the same [`Report`](crate::Report) as the other
//! outputs.

mod exposition;
mod groups;
mod page;
mod server;

pub use exposition::exposition;
pub use server::MetricsServer;
