//! The structures of the header, field by field; a test compares their layout with the layout in a C compiler.

use std::ffi::c_char;

/// `NETGRAIN_API_VERSION`.
pub const API_VERSION: u32 = 1;

/// `NETGRAIN_TEXT`.
pub const TEXT: usize = 512;

/// `NETGRAIN_COMMUNITY_ID`.
pub const COMMUNITY_ID: usize = 32;

/// `NETGRAIN_ARGUMENT` and the other error codes.
pub mod code {
    pub const ARGUMENT: i32 = 1;
    pub const FILTER: i32 = 2;
    pub const TIME: i32 = 3;
    pub const INTERFACE: i32 = 4;
    pub const READ: i32 = 5;
    pub const BUG: i32 = 6;
}

/// `NETGRAIN_FOLLOW` and the other flags.
pub mod flag {
    pub const FOLLOW: u32 = 1;
    pub const NO_RING: u32 = 2;
    pub const LOW_PRIORITY: u32 = 4;
    pub const ALL: u32 = FOLLOW | NO_RING | LOW_PRIORITY;
}

/// `netgrain_error`.
#[repr(C)]
pub struct Error {
    /// The error code, see [`code`].
    pub code: i32,
    /// One line, terminated by NUL.
    pub text: [c_char; TEXT],
}

/// `netgrain_query`.
#[repr(C)]
pub struct Query {
    /// API version of the header with which the caller was compiled.
    pub version: u32,
    /// See [`flag`].
    pub flags: u32,
    /// Nanoseconds since 1970.
    pub from: u64,
    /// Nanoseconds since 1970, inclusive.
    pub to: u64,
    /// Text, or null.
    pub filter: *const c_char,
    /// `interface_count` texts, or null.
    pub interfaces: *const *const c_char,
    /// Number of interfaces.
    pub interface_count: usize,
}

/// `netgrain_packet`.
#[repr(C)]
pub struct Packet {
    /// Nanoseconds since 1970.
    pub ts: u64,
    /// `caplen` bytes.
    pub data: *const u8,
    /// Captured bytes.
    pub caplen: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Link type in pcap's numbering.
    pub link_type: u32,
    /// Index of the origin.
    pub origin: u32,
    /// Packets lost before it.
    pub lost: u64,
}

/// `netgrain_origin`.
#[repr(C)]
pub struct Origin {
    /// Text.
    pub interface_name: *const c_char,
    /// Text.
    pub filter: *const c_char,
    /// Text.
    pub timestamp_source: *const c_char,
    /// The hardware queue.
    pub queue: u32,
    /// Link type in pcap's numbering.
    pub link_type: u32,
    /// Snaplen.
    pub snaplen: u32,
}

/// `netgrain_tally`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Tally {
    /// Packets.
    pub offered: u64,
    /// Packets.
    pub stored: u64,
    /// Bytes on the wire.
    pub stored_bytes: u64,
    /// Packets.
    pub filtered: u64,
    /// Packets.
    pub duplicate: u64,
    /// Packets, from all causes.
    pub lost: u64,
}

/// `netgrain_cost`.
#[repr(C)]
#[derive(Default)]
#[allow(missing_docs, reason = "query::Cost documents the fields")]
pub struct Cost {
    pub files: u64,
    pub files_skipped: u64,
    pub blocks: u64,
    pub blocks_skipped_time: u64,
    pub blocks_skipped_keys: u64,
    pub blocks_read: u64,
    pub bytes: u64,
    pub bytes_read: u64,
    pub index_bytes_read: u64,
    pub packets: u64,
    pub matched: u64,
    pub from_ring: u64,
}

impl From<query::Cost> for Cost {
    fn from(c: query::Cost) -> Self {
        Self {
            files: c.files,
            files_skipped: c.files_skipped,
            blocks: c.blocks,
            blocks_skipped_time: c.blocks_skipped_time,
            blocks_skipped_keys: c.blocks_skipped_keys,
            blocks_read: c.blocks_read,
            bytes: c.bytes,
            bytes_read: c.bytes_read,
            index_bytes_read: c.index_bytes_read,
            packets: c.packets,
            matched: c.matched,
            from_ring: c.from_ring,
        }
    }
}

impl From<base::Tally> for Tally {
    fn from(t: base::Tally) -> Self {
        Self {
            offered: t.offered,
            stored: t.stored,
            stored_bytes: t.stored_bytes,
            filtered: t.filtered,
            duplicate: t.duplicate,
            lost: t.lost_total(),
        }
    }
}
