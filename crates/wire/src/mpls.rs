//! A view of the MPLS label stack (RFC 3032 §2.1). The stack does not identify the protocol of its payload. As RFC 4928
//! §3 describes, the decoder infers the protocol from the first half-byte after the bottom label: 4 is IPv4, 6 is IPv6,
//! other values are unknown.

use crate::bytes::be32;
use crate::error::take;
use crate::{EtherType, Layer, ParseError};

/// Length in bytes of one entry of the label stack.
pub const LABEL_LEN: usize = 4;

/// The largest number of labels that the decoder follows; a deeper stack is treated as an unknown payload.
pub const MAX_LABELS: usize = 16;

/// One stack entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The label, 20 bits.
    pub label: u32,
    /// The bottom-of-stack bit: true for the last label.
    pub bottom: bool,
    /// Time to live: the hops left.
    pub ttl: u8,
}

impl Label {
    /// Parses the entry of the label stack at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 4 bytes.
    pub fn parse(frame: &[u8], offset: usize) -> Result<Self, ParseError> {
        take::<LABEL_LEN>(frame, offset, Layer::Mpls).map(|(head, _)| Self::from_word(be32(head, 0)))
    }

    /// The entry with these four bytes, read as a big-endian number.
    #[inline]
    pub const fn from_word(word: u32) -> Self {
        Self { label: word >> 12, bottom: word & 0x100 != 0, ttl: word as u8 }
    }
}

/// The ethertype of the payload below a label stack, where `first` is the first byte of the payload.
#[inline]
pub const fn payload_ethertype(first: u8) -> EtherType {
    match first >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => EtherType::MPLS,
    }
}
