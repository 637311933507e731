//! Offsets in `struct xdp_md`, the context of an XDP program.

pub const DATA: i16 = 0;
pub const DATA_META: i16 = 8;
pub const RX_QUEUE_INDEX: i16 = 16;
