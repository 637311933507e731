//! Contains the fuzz targets: one module for each kind of input.

mod block_index;
mod bytes;
mod capture_file;
mod columns;
mod configuration;
mod duplicates;
mod filter;
mod group_message;
mod ipfix;
mod packet;
mod program;
mod stamp_packet;
mod switch_timestamp;
mod train_payload;
mod words;

use crate::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    capture_file::TARGET,
    packet::TARGET,
    block_index::TARGET,
    filter::PACKETS,
    filter::FLOWS,
    program::TARGET,
    configuration::TARGET,
    group_message::TARGET,
    ipfix::TARGET,
    columns::JOURNAL,
    columns::PARQUET,
    stamp_packet::TARGET,
    switch_timestamp::TARGET,
    train_payload::TARGET,
    duplicates::TARGET,
    words::TARGET,
];
