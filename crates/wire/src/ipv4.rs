//! IPv4 header (RFC 791 §3.1).
//!
//! ```text
//!  0       1       2       3
//! +---+---+-------+---------------+
//! | 4 |IHL|  DSCP | total length  |   total length counts header and payload
//! +---+---+-------+-+-------------+
//! |  identifier   |F| offset / 8  |   F: reserved, don't fragment, more fragments
//! +-------+-------+-+-------------+
//! |  TTL  | proto |   checksum    |
//! +-------+-------+---------------+
//! |         source address        |
//! |      destination address      |
//! |     options, IHL * 4 - 20     |
//! ```

use crate::bytes::{be16, copy};
use crate::error::take;
use crate::{Fragment, IpProtocol, Layer, ParseError};
use std::net::Ipv4Addr;

pub(crate) mod at {
    pub const VERSION_IHL: usize = 0;
    pub const TOS: usize = 1;
    pub const TOTAL_LEN: usize = 2;
    pub const ID: usize = 4;
    pub const FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SRC: usize = 12;
    pub const DST: usize = 16;
    pub const END: usize = 20;

    pub const DONT_FRAGMENT: u16 = 0x4000;
    pub const MORE_FRAGMENTS: u16 = 0x2000;
    pub const OFFSET_MASK: u16 = 0x1fff;
}

/// A view of an IPv4 packet: the first 20 bytes of the header, the options, and the bytes after the header.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    head: &'a [u8; at::END],
    options: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Length in bytes of the header without options.
    pub const LEN: usize = at::END;

    /// Parses the header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] if header or options are truncated; [`ParseError::Contradiction`] if version, IHL or
    /// total length is invalid.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        let contradiction =
            |field, value, least| ParseError::Contradiction { layer: Layer::Ipv4, offset, field, value, least };
        let (head, after) = take(frame, offset, Layer::Ipv4)?;
        let (version, ihl) = (head[at::VERSION_IHL] >> 4, usize::from(head[at::VERSION_IHL] & 15));
        if version != 4 {
            return Err(contradiction("version", version.into(), 4));
        }
        if ihl < 5 {
            return Err(contradiction("IHL", ihl as u32, 5));
        }
        let total = usize::from(be16(head, at::TOTAL_LEN));
        if total < ihl * 4 {
            return Err(contradiction("total length", total as u32, ihl as u32 * 4));
        }
        let (options, rest) = after.split_at_checked(ihl * 4 - at::END).ok_or(ParseError::TooShort {
            layer: Layer::Ipv4,
            offset,
            need: ihl * 4,
            have: at::END + after.len(),
        })?;
        // Bytes after the total length are padding of the link layer.
        let rest = rest.get(..total - ihl * 4).unwrap_or(rest);
        Ok(Self { head, options, rest })
    }

    /// Length in bytes of the header with options.
    pub fn header_len(&self) -> usize {
        at::END + self.options.len()
    }

    /// Differentiated services and congestion bits.
    pub fn tos(&self) -> u8 {
        self.head[at::TOS]
    }

    /// The total length field: number of bytes of header and payload.
    pub fn total_len(&self) -> u16 {
        be16(self.head, at::TOTAL_LEN)
    }

    /// The identification, which is equal in all fragments of a datagram.
    pub fn id(&self) -> u16 {
        be16(self.head, at::ID)
    }

    /// The flag "don't fragment".
    pub fn dont_fragment(&self) -> bool {
        be16(self.head, at::FRAGMENT) & at::DONT_FRAGMENT != 0
    }

    /// The fragmentation state: whole packet, first fragment or later fragment.
    pub fn fragment(&self) -> Fragment {
        fragment(be16(self.head, at::FRAGMENT))
    }

    /// Offset of the payload in its datagram, in bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(be16(self.head, at::FRAGMENT) & at::OFFSET_MASK) * 8
    }

    /// Time to live: the hops left.
    pub fn ttl(&self) -> u8 {
        self.head[at::TTL]
    }

    /// The protocol of the payload.
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.head[at::PROTOCOL])
    }

    /// The header checksum as sent; [`crate::checksum()`] over the header is 0 if the header checksum is correct.
    pub fn checksum(&self) -> u16 {
        be16(self.head, at::CHECKSUM)
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4, _>(self.head, at::SRC))
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4, _>(self.head, at::DST))
    }

    /// The options, undecoded.
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The captured bytes of the payload, without padding of the link layer.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }
}

/// Decodes the 16 bits of flags and fragment offset.
#[inline]
pub(crate) const fn fragment(field: u16) -> Fragment {
    if field & at::OFFSET_MASK != 0 {
        Fragment::Later
    } else if field & at::MORE_FRAGMENTS != 0 {
        Fragment::First
    } else {
        Fragment::Whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [u8; 20] = [0x45, 0, 0, 24, 0, 7, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

    #[test]
    fn invalid_headers_are_refused_with_their_offset() {
        let error = |change: fn(&mut [u8; 20])| {
            let mut bytes = PLAIN;
            change(&mut bytes);
            Ipv4::parse(&bytes, 0).unwrap_err().to_string()
        };
        assert_eq!(error(|b| b[0] = 0x65), "IPv4 header at byte 0: version is 6, must be 4");
        assert_eq!(error(|b| b[0] = 0x44), "IPv4 header at byte 0: IHL is 4, must be at least 5");
        assert_eq!(error(|b| b[3] = 19), "IPv4 header at byte 0: total length is 19, must be at least 20");
        assert_eq!(error(|b| b[0] = 0x46), "IPv4 header at byte 0 needs 24 bytes, frame has 20");
        assert_eq!(
            Ipv4::parse(&PLAIN, 3).unwrap_err().to_string(),
            "IPv4 header at byte 3 needs 20 bytes, frame has 17"
        );
        assert!(Ipv4::parse(&PLAIN, 99).is_err());
    }

    #[test]
    fn the_payload_ends_at_the_total_length() {
        let mut frame = PLAIN.to_vec();
        frame.extend([1, 2, 3, 4, 0, 0]);
        let ip = Ipv4::parse(&frame, 0).unwrap();
        assert_eq!(ip.payload(), [1, 2, 3, 4]);
        assert_eq!((ip.src(), ip.dst()), (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!((ip.protocol(), ip.ttl(), ip.id(), ip.dont_fragment()), (IpProtocol::UDP, 64, 7, true));
        assert_eq!(ip.fragment(), Fragment::Whole);
    }
}
