//! IPv6 header (RFC 8200 §3) and the walk along its extension headers (§4; AH from RFC 4302 §2).
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

/// The most extension headers that are walked. RFC 8200 sets no bound; real packets have one or two, and a packet of
/// nothing but headers must not hold up the packet path.
pub const MAX_EXTENSIONS: usize = 8;

/// The fixed 40 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    head: &'a [u8; at::END],
    rest: &'a [u8],
}

/// Where the walk along the extension headers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer<'a> {
    /// The first header that is not an extension; an extension's number where the walk could not go on.
    pub protocol: IpProtocol,
    /// Which part of a datagram this is.
    pub fragment: Fragment,
    /// The captured bytes from that header on; `None` where the walk could not go on.
    pub payload: Option<&'a [u8]>,
}

impl<'a> Ipv6<'a> {
    /// Bytes of the header without extensions.
    pub const LEN: usize = at::END;

    /// The header at byte `offset` of the frame.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] below 40 bytes; [`ParseError::Contradiction`] where the version is not 6.
    pub fn parse(frame: &'a [u8], offset: usize) -> Result<Self, ParseError> {
        let (head, rest) = take(frame, offset, Layer::Ipv6)?;
        let version = u32::from(head[at::VERSION] >> 4);
        if version != 6 {
            let (layer, field) = (Layer::Ipv6, "version");
            return Err(ParseError::Contradiction { layer, offset, field, value: version, least: 6 });
        }
        // A length of zero belongs to a jumbogram, whose true length stands in a hop-by-hop option (RFC 2675).
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

    /// Bytes after this header as sent; 0 for a jumbogram.
    pub fn payload_len(&self) -> u16 {
        be16(self.head, at::PAYLOAD_LEN)
    }

    /// What follows: an extension or the protocol.
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.head[at::NEXT])
    }

    /// Hops left.
    pub fn hop_limit(&self) -> u8 {
        self.head[at::HOPS]
    }

    /// From whom.
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(copy::<16, _>(self.head, at::SRC))
    }

    /// To whom.
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(copy::<16, _>(self.head, at::DST))
    }

    /// The captured bytes after this header, extensions included.
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }

    /// Walks along at most eight extension headers. After a fragment header the walk ends with the protocol that
    /// header names, because later fragments know no other and all fragments must give the same.
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

/// Bytes of an extension header from its length field, which counts in three ways.
#[inline]
pub(crate) const fn extension_len(kind: IpProtocol, field: u8) -> usize {
    match kind {
        IpProtocol::FRAGMENT => 8,
        IpProtocol::AH => (field as usize + 2) * 4,
        _ => (field as usize + 1) * 8,
    }
}

/// Reads the field of a fragment header. One that is first and last at once is an atomic fragment (RFC 6946): whole.
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
