//! Stores flow records and time series in the same store as the packet files: in a journal while a file grows, then in
//! a sealed Parquet file.
//!
//! [`Writer`] receives the flow records and series rows of one interface. [`flows`] and [`series()`] return them in
//! order of time, merged from sealed files and growing journals. [`FlowLoop`] and [`SeriesLoop`] also return the
//! records and rows that are journaled later. [`scan`] reads single columns of many records. Sealed files are ordinary
//! Parquet files, which other programs can read (`docs/reference/parquet.md`).
//!
//! Invariants: journaled and synced records survive a crash; a published file is complete and immutable; a reader gets
//! every record exactly once, also while its journal is being sealed.
#![forbid(unsafe_code)]

mod batch;
mod block;
mod builder;
mod chunk;
mod compact;
mod decode;
mod digest;
mod encode;
mod error;
mod file;
mod file_layout;
mod follow;
mod journal;
mod lateness;
mod missing_flow_records;
mod missing_rows;
mod packed_column;
mod packed_column_builder;
mod page_compression;
mod query;
mod recover;
mod results;
mod retain;
mod scan;
mod schema;
mod seal;
mod sealer;
mod shared;
mod standalone;
mod stripe;
mod table;
mod table_row;
mod tables;
mod text;
mod tile;
mod uncompacted_days;
mod volume;
mod writer;

pub use batch::Damage;
pub use compact::{compact, compact_on};
pub use error::ColumnsError;
pub use file::{judge_sealed, widths};
pub use file_layout::{DataFileKind, SealedFile, files};
pub use follow::{FLOW_LATE, FlowLoop, SeriesLoop, Step};
pub use lateness::{flow_lateness, keep_flow_lateness, kept_flow_lateness};
pub use missing_flow_records::missing_flow_records;
pub use missing_rows::missing_rows;
pub use query::Query;
pub use recover::{DamagedJournal, RecoveryReport, recover, recover_on};
pub use results::{Results, flows, judge_journal, series};
pub use retain::{HeldSince, RetentionResult, RetentionRules, retain, would_retain};
pub use scan::{Batch, Column, scan, scan_shared};
pub use shared::Event;
pub use standalone::{StandaloneFile, read_flows, read_series, write_flows, write_series};
pub use table::{TableColumn, TableWriter, Values, write_table};
pub use uncompacted_days::uncompacted_days;
pub use volume::{Disk, Disks};
pub use writer::{Config, Counts, Writer};
