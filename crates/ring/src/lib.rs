//! The shared packet ring: one writer, many listeners, in this process or others.

mod desc;

pub use desc::{BLOCK, Control, DESC_BYTES, Desc, FILE_HEADER, RECORD_HEADER, flag};
