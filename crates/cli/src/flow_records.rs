//! Flow records as the verbs read them: queries, and the sources store, files and network.

pub mod files;
pub mod from_capture;
pub mod names;
pub mod network;
pub mod packets;
pub mod query;
pub mod source;
pub mod tunnel_hint;
