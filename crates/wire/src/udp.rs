//! UDP header (RFC 768).

use crate::bytes::be16;
use crate::error::take;
use crate::{Layer, ParseError, Port};

pub(crate) mod at {
    pub const SRC: usize = 0;
    pub const DST: usize = 2;
    pub const LEN: usize = 4;
    pub const CHECKSUM: usize = 6;
    pub const END: usize = 8;
}

/// A view of a UDP datagram: the 8 bytes of the header, and the bytes after it.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    head: &'a [u8; at::END],
    rest: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Length of the header in bytes.
    pub const LEN: usize = at::END;

    /// Parses the header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 8 bytes; [`ParseError::Contradiction`] if the length field is below 8.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        let layer = Layer::Udp;
        let (head, rest) = take(frame, offset, layer)?;
        let len = be16(head, at::LEN);
        if usize::from(len) < at::END {
            return Err(ParseError::Contradiction { layer, offset, field: "length", value: len.into(), least: 8 });
        }
        Ok(Self { head, rest: rest.get(..usize::from(len) - at::END).unwrap_or(rest) })
    }

    /// Source port.
    pub fn src(&self) -> Port {
        Port(be16(self.head, at::SRC))
    }

    /// Destination port.
    pub fn dst(&self) -> Port {
        Port(be16(self.head, at::DST))
    }

    /// The length field: number of bytes of header and payload.
    pub fn len(&self) -> u16 {
        be16(self.head, at::LEN)
    }

    /// True if the datagram has no payload.
    pub fn is_empty(&self) -> bool {
        usize::from(self.len()) == at::END
    }

    /// The checksum as sent; 0 means none.
    pub fn checksum(&self) -> u16 {
        be16(self.head, at::CHECKSUM)
    }

    /// The captured bytes of the payload.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }
}
