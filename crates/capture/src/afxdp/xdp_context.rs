//! Offsets in the context of an XDP program (`struct xdp_md` of linux/bpf.h).

pub const DATA: i16 = 0;
pub const DATA_META: i16 = 8;
pub const RX_QUEUE_INDEX: i16 = 16;
