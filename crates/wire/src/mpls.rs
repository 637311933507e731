//! MPLS label stack (RFC 3032 §2.1). Nothing in the stack says what lies under it, so the first half-byte after the
//! bottom label decides, as RFC 4928 §3 describes: 4 is IPv4, 6 is IPv6, anything else is not looked into.

use crate::bytes::be32;
use crate::error::take;
use crate::{EtherType, Layer, ParseError};

/// Bytes of one stack entry.
pub const LABEL_LEN: usize = 4;

/// The most labels that are looked through; a deeper stack is treated as an unknown payload.
pub const MAX_LABELS: usize = 16;

/// One stack entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The label, 20 bits.
    pub label: u32,
    /// Whether it is the last one.
    pub bottom: bool,
    /// Hops left.
    pub ttl: u8,
}

impl Label {
    /// The entry at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 4 bytes.
    pub fn parse(frame: &[u8], offset: usize) -> Result<Self, ParseError> {
        take::<LABEL_LEN>(frame, offset, Layer::Mpls).map(|(head, _)| Self::from_word(be32(head, 0)))
    }

    /// From the four bytes as one number.
    #[inline]
    pub const fn from_word(word: u32) -> Self {
        Self { label: word >> 12, bottom: word & 0x100 != 0, ttl: word as u8 }
    }
}

/// What begins with this byte, if the stack above it does not say.
#[inline]
pub const fn payload_ethertype(first: u8) -> EtherType {
    match first >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => EtherType::MPLS,
    }
}
