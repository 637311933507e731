//! ICMP (RFC 792) and ICMPv6 (RFC 4443 §2.1) headers; the first 8 bytes have the same layout.

use crate::bytes::{be16, copy};
use crate::error::take;
use crate::{Layer, ParseError};

pub(crate) mod at {
    pub const TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const CHECKSUM: usize = 2;
    pub const REST: usize = 4;
    pub const END: usize = 8;
}

/// A view of an ICMP message: its first 8 bytes, and the bytes after them.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a> {
    head: &'a [u8; at::END],
    rest: &'a [u8],
}

impl<'a> Icmp<'a> {
    /// Length of the header in bytes.
    pub const LEN: usize = at::END;

    /// Parses the header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 8 bytes.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        take(frame, offset, Layer::Icmp).map(|(head, rest)| Self { head, rest })
    }

    /// The ICMP type.
    pub fn kind(&self) -> u8 {
        self.head[at::TYPE]
    }

    /// The ICMP code.
    pub fn code(&self) -> u8 {
        self.head[at::CODE]
    }

    /// The checksum as sent.
    pub fn checksum(&self) -> u16 {
        be16(self.head, at::CHECKSUM)
    }

    /// Four bytes whose meaning depends on the type, for example identifier and sequence number of an echo request.
    pub fn rest_of_header(&self) -> [u8; 4] {
        copy(self.head, at::REST)
    }

    /// The captured bytes after the header.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }
}
