//! IPFIX (RFC 7011), whose messages carry their own templates. [`Encoder`] writes them, [`Decoder`] reads them.

mod decoder;
mod encoder;

pub use decoder::{Decoder, Item, MessageError, StreamCounts};
pub use encoder::Encoder;

/// The version number in the header of an IPFIX message.
pub(crate) const VERSION: u16 = 10;

/// Bytes of a message header.
pub(crate) const HEADER: usize = 16;

/// The message header (RFC 7011, section 3.1).
pub(crate) mod at {
    use std::ops::Range;
    pub const VERSION: Range<usize> = 0..2;
    pub const LENGTH: Range<usize> = 2..4;
    pub const EXPORT_TIME: Range<usize> = 4..8;
    pub const SEQUENCE: Range<usize> = 8..12;
    pub const DOMAIN: Range<usize> = 12..16;
}

/// The ids of sets that contain templates instead of data.
pub(crate) const TEMPLATES: u16 = 2;
pub(crate) const OPTIONS_TEMPLATES: u16 = 3;

/// The template ids that netgrain uses. `FLOWS` is the first of eight consecutive ids, one for each
/// [`crate::template::Shape`].
pub(crate) mod id {
    pub const FLOWS: u16 = 256;
    pub const SERIES: u16 = 272;
    pub const SAMPLING: u16 = 280;
    pub const STATISTICS: u16 = 281;
    pub const LOSS: u16 = 282;
    pub const INTERFACES: u16 = 283;
    pub const ELEMENTS: u16 = 284;
}
