//! IPv6 header (RFC 8200 §3) and the parser of its extension headers (§4; AH from RFC 4302 §2).
//!
//! ```text
//!  0       1       2       3
//! +---+-------+-------------------+
//! | 6 | class |    flow label     |
//! +---+-------+---+-------+-------+
//! | payload length| next  | hops  |   payload length counts extension headers, not these 40 bytes
//! +---------------+-------+-------+
//! |    source address, 16 bytes   |
//! | destination address, 16 bytes |
//! ```

use crate::bytes::{be16, be32, copy};
use crate::error::take;
use crate::{Fragment, IpProtocol, Layer, ParseError};
use std::net::Ipv6Addr;

pub(crate) mod at {
    pub const VERSION: usize = 0;
    pub const PAYLOAD_LEN: usize = 4;
    pub const NEXT: usize = 6;
    pub const HOPS: usize = 7;
    pub const SRC: usize = 8;
    pub const DST: usize = 24;
    pub const END: usize = 40;

    /// Within an extension header.
    pub const EXT_NEXT: usize = 0;
    pub const EXT_LEN: usize = 1;
    pub const EXT_MIN: usize = 8;
    /// Within a fragment header.
    pub const FRAGMENT: usize = 2;
    pub const FRAGMENT_ID: usize = 4;
    pub const OFFSET_MASK: u16 = 0xfff8;
    pub const MORE_FRAGMENTS: u16 = 1;
}

/// The largest number of extension headers that the parser follows. RFC 8200 sets no limit; real packets have one or
/// two. The limit bounds the time for a packet that consists of extension headers only.
pub const MAX_EXTENSIONS: usize = 8;

/// The fixed 40 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    head: &'a [u8; at::END],
    rest: &'a [u8],
}

/// The header after the extension headers, at which the parser stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer<'a> {
    /// The protocol number of the first header that is not an extension header; the number of an extension header if
    /// the parser could not continue.
    pub protocol: IpProtocol,
    /// The fragmentation state: whole packet, first fragment or later fragment.
    pub fragment: Fragment,
    /// The captured bytes from the upper-layer header on; `None` if the parser could not continue.
    pub payload: Option<&'a [u8]>,
}

impl<'a> Ipv6<'a> {
    /// Length in bytes of the header without extension headers.
    pub const LEN: usize = at::END;

    /// Parses the header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 40 bytes; [`ParseError::Contradiction`] if the version is not 6.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        let (head, rest) = take(frame, offset, Layer::Ipv6)?;
        let version = u32::from(head[at::VERSION] >> 4);
        if version != 6 {
            let (layer, field) = (Layer::Ipv6, "version");
            return Err(ParseError::Contradiction { layer, offset, field, value: version, least: 6 });
        }
        // A length of zero denotes a jumbogram, whose length is in a hop-by-hop option (RFC 2675).
        let rest = match usize::from(be16(head, at::PAYLOAD_LEN)) {
            0 if head[at::NEXT] == IpProtocol::HOP_BY_HOP.0 => rest,
            len => rest.get(..len).unwrap_or(rest),
        };
        Ok(Self { head, rest })
    }

    /// Traffic class: differentiated services and congestion bits.
    pub fn traffic_class(&self) -> u8 {
        (be16(self.head, at::VERSION) >> 4) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        be32(self.head, at::VERSION) & 0xf_ffff
    }

    /// The payload length field: number of bytes after this header; 0 for a jumbogram.
    pub fn payload_len(&self) -> u16 {
        be16(self.head, at::PAYLOAD_LEN)
    }

    /// The number of the next header: an extension header or the protocol.
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.head[at::NEXT])
    }

    /// Hop limit: the hops left.
    pub fn hop_limit(&self) -> u8 {
        self.head[at::HOPS]
    }

    /// Source address.
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(copy::<16, _>(self.head, at::SRC))
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(copy::<16, _>(self.head, at::DST))
    }

    /// The captured bytes after this header, extensions included.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }

    /// Follows at most eight extension headers. After a fragment header the parser stops; the protocol is the one that
    /// the fragment header names, because later fragments have no other header and all fragments must have the same
    /// protocol.
    pub fn upper(&self) -> UpperLayer<'a> {
        let mut upper =
            UpperLayer { protocol: self.next_header(), fragment: Fragment::Whole, payload: Some(self.rest) };
        for _ in 0..MAX_EXTENSIONS {
            let Some(rest) = upper.payload.filter(|_| upper.protocol.is_extension()) else { return upper };
            let Some((head, _)) = rest.split_first_chunk::<{ at::EXT_MIN }>() else { break };
            let Some(after) = rest.get(extension_len(upper.protocol, head[at::EXT_LEN])..) else { break };
            if upper.protocol == IpProtocol::FRAGMENT {
                upper.fragment = fragment(be16(head, at::FRAGMENT));
            }
            upper.protocol = IpProtocol(head[at::EXT_NEXT]);
            upper.payload = Some(after);
            match upper.fragment {
                Fragment::Whole => (),
                Fragment::First if !upper.protocol.is_extension() => return upper,
                Fragment::First | Fragment::Later => break,
            }
        }
        if upper.protocol.is_extension() || upper.fragment == Fragment::Later {
            upper.payload = None;
        }
        upper
    }
}

/// Length in bytes of an extension header, computed from its length field, whose unit depends on the header.
#[inline]
pub(crate) const fn extension_len(kind: IpProtocol, field: u8) -> usize {
    match kind {
        IpProtocol::FRAGMENT => 8,
        IpProtocol::AH => (field as usize + 2) * 4,
        _ => (field as usize + 1) * 8,
    }
}

/// Decodes the offset field of a fragment header. A fragment that is both the first and the last is an atomic fragment
/// (RFC 6946) and counts as a whole packet.
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
