//! Floor 2: flow records and series for other programs.
//!
//! What a record means to others stands in one table of information elements ([`element`]); [`ipfix`] and [`netflow9`]
//! write it, [`ipfix::Decoder`] reads it back. Encoders are pure machines that turn records and time into messages;
//! [`Exporter`] is the edge: a queue that never holds a meter up, a thread, a [`Target`], and a count for every record.
//! [`Subscriber`] and [`file::Reader`] are the other end.
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

/// The page for programs of one's own: what it shows of this crate is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/rust-and-c-api.md")]
struct ApiPage;
