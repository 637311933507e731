//! A view of the VLAN tag (IEEE 802.1Q §9): two bytes of tag control information and the ethertype of the next header.
//! The ethertype that announces the tag is in the header before the tag.

use crate::bytes::be16;
use crate::error::take;
use crate::{EtherType, Layer, ParseError};

pub(crate) mod at {
    pub const TCI: usize = 0;
    pub const ETHERTYPE: usize = 2;
    pub const END: usize = 4;
    /// The bits of the control information that are the VLAN id.
    pub const ID_MASK: u16 = 0x0fff;
}

/// The largest number of tags that the decoder follows; a frame with more tags is treated as a frame with an unknown
/// ethertype.
pub const MAX_TAGS: usize = 8;

/// One tag.
#[derive(Clone, Copy, Debug)]
pub struct VlanTag<'a> {
    head: &'a [u8; at::END],
    rest: &'a [u8],
}

impl<'a> VlanTag<'a> {
    /// Number of bytes that a tag adds to a frame.
    pub const LEN: usize = at::END;

    /// Parses the tag whose control information begins at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 4 bytes.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        take(frame, offset, Layer::Vlan).map(|(head, rest)| Self { head, rest })
    }

    /// The tag control information: priority, drop eligibility and VLAN id.
    pub fn tci(&self) -> u16 {
        be16(self.head, at::TCI)
    }

    /// The VLAN, 0 (priority only) to 4095.
    pub fn id(&self) -> u16 {
        self.tci() & at::ID_MASK
    }

    /// The priority, 0 to 7.
    pub fn priority(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// The ethertype of the next header.
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.head, at::ETHERTYPE))
    }

    /// The captured bytes after the tag.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }
}
