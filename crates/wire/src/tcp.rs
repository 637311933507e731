//! TCP header (RFC 9293 §3.1).

use crate::bytes::{be16, be32};
use crate::error::take;
use crate::{Layer, ParseError, Port};

pub(crate) mod at {
    pub const SRC: usize = 0;
    pub const DST: usize = 2;
    pub const SEQ: usize = 4;
    pub const ACK: usize = 8;
    pub const OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const WINDOW: usize = 14;
    pub const CHECKSUM: usize = 16;
    pub const URGENT: usize = 18;
    pub const END: usize = 20;
}

/// Bits of [`Tcp::flags`].
#[allow(missing_docs, reason = "the constants are named after the flags of RFC 9293")]
pub mod flags {
    pub const FIN: u8 = 1 << 0;
    pub const SYN: u8 = 1 << 1;
    pub const RST: u8 = 1 << 2;
    pub const PSH: u8 = 1 << 3;
    pub const ACK: u8 = 1 << 4;
    pub const URG: u8 = 1 << 5;
    pub const ECE: u8 = 1 << 6;
    pub const CWR: u8 = 1 << 7;
}

/// A view of a TCP segment: the first 20 bytes of the header, the options, and the bytes after the header.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    head: &'a [u8; at::END],
    options: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Length in bytes of the header without options.
    pub const LEN: usize = at::END;

    /// Parses the header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] if header or options are truncated; [`ParseError::Contradiction`] if the data offset is
    /// less than the length of the fixed header.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        let layer = Layer::Tcp;
        let (head, after) = take(frame, offset, layer)?;
        let words = u32::from(head[at::OFFSET] >> 4);
        if words < 5 {
            return Err(ParseError::Contradiction { layer, offset, field: "data offset", value: words, least: 5 });
        }
        let need = words as usize * 4;
        let (options, rest) = after.split_at_checked(need - at::END).ok_or(ParseError::TooShort {
            layer,
            offset,
            need,
            have: at::END + after.len(),
        })?;
        Ok(Self { head, options, rest })
    }

    /// Source port.
    pub fn src(&self) -> Port {
        Port(be16(self.head, at::SRC))
    }

    /// Destination port.
    pub fn dst(&self) -> Port {
        Port(be16(self.head, at::DST))
    }

    /// Sequence number of the first payload byte.
    pub fn seq(&self) -> u32 {
        be32(self.head, at::SEQ)
    }

    /// The next sequence number expected from the peer.
    pub fn ack(&self) -> u32 {
        be32(self.head, at::ACK)
    }

    /// Bits of [`flags`].
    pub fn flags(&self) -> u8 {
        self.head[at::FLAGS]
    }

    /// Receive window, unscaled.
    pub fn window(&self) -> u16 {
        be16(self.head, at::WINDOW)
    }

    /// The checksum as sent.
    pub fn checksum(&self) -> u16 {
        be16(self.head, at::CHECKSUM)
    }

    /// Urgent pointer; meaningful with [`flags::URG`].
    pub fn urgent(&self) -> u16 {
        be16(self.head, at::URGENT)
    }

    /// The options, undecoded.
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The captured bytes after the header.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }
}
