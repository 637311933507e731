//! SCTP common header (RFC 9260 §3.1).

use crate::bytes::{be16, be32};
use crate::error::take;
use crate::{Layer, ParseError, Port};

pub(crate) mod at {
    pub const SRC: usize = 0;
    pub const DST: usize = 2;
    pub const TAG: usize = 4;
    pub const END: usize = 12;
}

/// A view of an SCTP packet: the 12 bytes of the common header, and the chunks after it.
#[derive(Clone, Copy, Debug)]
pub struct Sctp<'a> {
    head: &'a [u8; at::END],
    rest: &'a [u8],
}

impl<'a> Sctp<'a> {
    /// Length of the header in bytes.
    pub const LEN: usize = at::END;

    /// Parses the header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 12 bytes.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        take(frame, offset, Layer::Sctp).map(|(head, rest)| Self { head, rest })
    }

    /// Source port.
    pub fn src(&self) -> Port {
        Port(be16(self.head, at::SRC))
    }

    /// Destination port.
    pub fn dst(&self) -> Port {
        Port(be16(self.head, at::DST))
    }

    /// Verification tag, which identifies the association.
    pub fn tag(&self) -> u32 {
        be32(self.head, at::TAG)
    }

    /// The captured bytes of the SCTP chunks.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }
}
