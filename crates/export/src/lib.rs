//! Layer 2: flow records and time series for other programs.
//!
//! One table of information elements ([`element`]) defines the exported fields; [`ipfix`] and [`netflow9`] encode them,
//! [`ipfix::Decoder`] decodes them. Encoders do no I/O: they turn records and time into messages. [`Exporter`] sends
//! the messages: a meter adds records to its queue without blocking, a thread encodes the records and sends them to a
//! [`Target`], and counters account for every record. [`Subscriber`] and [`file::Reader`] receive messages.
#![forbid(unsafe_code)]

mod channel;
pub mod document;
pub mod element;
pub mod encode;
mod exporter;
mod fields;
pub mod file;
pub mod ipfix;
mod message_builder;
pub mod netflow9;
mod rows;
mod subscriber;
mod target;
mod template;
pub mod text;

pub use encode::{
    Config, Encode, EncodeResult, Fields, MESSAGE_MAX, MESSAGE_MIN, MESSAGE_UDP, Refresh, Sampling, TooLarge,
};
pub use exporter::{Clock, Counts, Exporter, Handle, Protocol, QUEUE, Settings, StartError, Unsent};
pub use subscriber::{EXPORTERS_MAX, Subscriber};
pub use target::{ExportKind, IPFIX_PORT, NETFLOW_PORT, ParseTargetError, TTL, Target, group};

/// Compiles the examples for this crate in the page about the API.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/rust-and-c-api.md")]
struct ApiPage;
