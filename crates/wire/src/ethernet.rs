//! A view of the Ethernet II header (IEEE 802.3 §3, where the length field is read as an ethertype).

use crate::bytes::{be16, copy};
use crate::error::take;
use crate::{EtherType, Layer, MacAddr, ParseError};

pub(crate) mod at {
    pub const DST: usize = 0;
    pub const SRC: usize = 6;
    pub const ETHERTYPE: usize = 12;
    pub const END: usize = 14;
}

/// A view of a frame that begins with an Ethernet header: the 14 bytes of the header, and the bytes after it.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a> {
    head: &'a [u8; at::END],
    rest: &'a [u8],
}

impl<'a> Ethernet<'a> {
    /// Length of the header in bytes.
    pub const LEN: usize = at::END;

    /// Parses the header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 14 bytes.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        take(frame, offset, Layer::Ethernet).map(|(head, rest)| Self { head, rest })
    }

    /// Destination MAC address.
    pub fn dst(&self) -> MacAddr {
        MacAddr(copy(self.head, at::DST))
    }

    /// Source MAC address.
    pub fn src(&self) -> MacAddr {
        MacAddr(copy(self.head, at::SRC))
    }

    /// The ethertype of the next header; a VLAN ethertype if the frame is tagged.
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.head, at::ETHERTYPE))
    }

    /// The captured bytes after the header.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }
}
