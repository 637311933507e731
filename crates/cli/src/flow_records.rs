//! Reads flow records for the verbs of the command line: the queries, and the sources (a store, files, the network).

pub mod files;
pub mod from_capture;
pub mod names;
pub mod network;
pub mod packets;
pub mod query;
pub mod source;
pub mod tunnel_hint;
