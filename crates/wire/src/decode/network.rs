//! IPv4, IPv6 with its extension headers, and the transport header.

use super::DecodeError;
use super::decoder::Decoder;
use crate::bytes::{be16, chunk};
use crate::{Family, Fragment, IpProtocol, Port, icmp, ipv4, ipv6, sctp, tcp, udp};

impl Decoder<'_> {
    pub fn ipv4(&mut self, at: usize) -> Option<()> {
        self.out.l3 = self.offset(at);
        let head: &[u8; ipv4::at::END] = self.need(at, DecodeError::LinkShort)?;
        let first = head[ipv4::at::VERSION_IHL];
        if first >> 4 != 4 {
            return self.decode_error(DecodeError::IpVersion);
        }
        self.reached(at, Family::V4)?;
        self.out.protocol = IpProtocol(head[ipv4::at::PROTOCOL]);
        self.out.fragment = ipv4::fragment(be16(head, ipv4::at::FRAGMENT));
        let (len, total) = (usize::from(first & 15) * 4, usize::from(be16(head, ipv4::at::TOTAL_LEN)));
        if len < ipv4::at::END {
            return self.decode_error(DecodeError::IpHeader);
        }
        // A frame that the NIC or the kernel merged may be too long for the total length field, which is then 0.
        if total != 0 || self.end - at <= usize::from(u16::MAX) {
            self.bound(at, total, len);
        }
        self.out.ip_len = (self.end - at) as u32;
        self.transport(at + len)
    }

    pub fn ipv6(&mut self, at: usize) -> Option<()> {
        self.out.l3 = self.offset(at);
        let head: &[u8; ipv6::at::END] = self.need(at, DecodeError::LinkShort)?;
        if head[ipv6::at::VERSION] >> 4 != 6 {
            return self.decode_error(DecodeError::IpVersion);
        }
        self.reached(at, Family::V6)?;
        self.out.protocol = IpProtocol(head[ipv6::at::NEXT]);
        match usize::from(be16(head, ipv6::at::PAYLOAD_LEN)) {
            // The payload length is 0 in a jumbogram (RFC 2675) and in a frame that the NIC or the kernel merged.
            0 if self.out.protocol == IpProtocol::HOP_BY_HOP || self.end - at > usize::from(u16::MAX) => (),
            len => self.bound(at, ipv6::at::END + len, ipv6::at::END),
        }
        self.out.ip_len = (self.end - at) as u32;
        let next = self.extensions(at + ipv6::at::END)?;
        self.transport(next)
    }

    /// Follows the extension headers. The loop ends after a fragment header, because later fragments have no further
    /// header and all fragments must give the same protocol.
    fn extensions(&mut self, mut next: usize) -> Option<usize> {
        for _ in 0..ipv6::MAX_EXTENSIONS {
            let kind = self.out.protocol;
            if !kind.is_extension() || self.out.fragment != Fragment::Whole {
                break;
            }
            let head: &[u8; ipv6::at::EXT_MIN] = self.need(next, DecodeError::ExtensionLength)?;
            let after = next + ipv6::extension_len(kind, head[ipv6::at::EXT_LEN]);
            if after > self.end {
                return self.decode_error(DecodeError::ExtensionLength);
            }
            if kind == IpProtocol::FRAGMENT {
                self.out.fragment = ipv6::fragment(be16(head, ipv6::at::FRAGMENT));
            }
            self.out.protocol = IpProtocol(head[ipv6::at::EXT_NEXT]);
            next = after;
        }
        match self.out.fragment {
            Fragment::Whole if self.out.protocol.is_extension() => self.decode_error(DecodeError::ExtensionsTooMany),
            // Extension headers after the fragment header belong to the fragmented part.
            Fragment::First if self.out.protocol.is_extension() => {
                self.carried(next, self.end - next);
                None
            }
            _ => Some(next),
        }
    }

    /// Stores the offset of the network header. A header whose offset exceeds 16 bits counts as not captured.
    fn reached(&mut self, at: usize, family: Family) -> Option<()> {
        if at > usize::from(u16::MAX) {
            return self.decode_error(DecodeError::Cut);
        }
        self.out.family = family;
        self.above = 0;
        Some(())
    }

    /// Sets the end of the packet at `at` with total length `len` and header length `header`. If the length is
    /// impossible, the packet ends where the enclosing layer ends.
    fn bound(&mut self, at: usize, len: usize, header: usize) {
        if len < header || at + len > self.end {
            self.decode_error::<()>(DecodeError::IpLength);
        } else {
            self.end = at + len;
        }
    }

    /// Decodes ports and payload offset. Later fragments have no transport header; all their bytes are payload.
    fn transport(&mut self, at: usize) -> Option<()> {
        let have = self.end.saturating_sub(at);
        let protocol = self.out.protocol;
        if self.out.fragment == Fragment::Later {
            return self.carried(at, have);
        }
        let whole = self.out.fragment == Fragment::Whole;
        self.ports(at);
        let least = match protocol {
            IpProtocol::TCP => tcp::at::END,
            IpProtocol::UDP => udp::at::END,
            IpProtocol::ICMP | IpProtocol::ICMPV6 => icmp::at::END,
            IpProtocol::SCTP => sctp::at::END,
            // For other transport protocols the minimum header length is unknown; at least one byte must be present.
            _ if have == 0 => return None,
            _ => 1,
        };
        // A datagram that is shorter than the transport header is malformed; its first fragment alone may be shorter.
        if have < least {
            return if whole { self.decode_error(DecodeError::TransportShort) } else { None };
        }
        self.above = at;
        self.out.l4 = self.offset(at);
        if at >= self.frame.len() {
            self.decode_error::<()>(DecodeError::Cut);
        }
        match protocol {
            IpProtocol::TCP => {
                let Some(byte) = self.frame.get(at + tcp::at::OFFSET) else {
                    return self.decode_error(DecodeError::Cut);
                };
                let len = usize::from(byte >> 4) * 4;
                if len < tcp::at::END || whole && len > have {
                    return self.decode_error(DecodeError::TransportLength);
                }
                self.carried(at + len, have.saturating_sub(len))
            }
            IpProtocol::UDP => {
                let Some(field) = chunk::<2>(self.frame, at + udp::at::LEN) else {
                    return self.decode_error(DecodeError::Cut);
                };
                let len = usize::from(be16(field, 0));
                // A UDP length of 0 in a jumbogram means that the datagram is too long for the length field.
                let jumbo = len == 0 && have > usize::from(u16::MAX);
                if !jumbo && (len < udp::at::END || whole && len > have) {
                    self.above = 0;
                    return self.decode_error(DecodeError::TransportLength);
                }
                if whole && !jumbo {
                    self.end = at + len;
                }
                self.carried(at + udp::at::END, self.end - at - udp::at::END)
            }
            IpProtocol::ICMP | IpProtocol::ICMPV6 | IpProtocol::SCTP => self.carried(at + least, have - least),
            _ => self.carried(at, have),
        }
    }

    /// Ports, or type and code of ICMP, from the first four bytes, which even the shortest first fragment contains.
    fn ports(&mut self, at: usize) -> Option<()> {
        let protocol = self.out.protocol;
        let is_icmp = matches!(protocol, IpProtocol::ICMP | IpProtocol::ICMPV6);
        if !is_icmp && !protocol.has_ports() || at + 4 > self.end {
            return None;
        }
        let Some(b) = chunk::<4>(self.frame, at) else { return self.decode_error(DecodeError::Cut) };
        let (src, dst) = if is_icmp {
            (b[icmp::at::TYPE].into(), b[icmp::at::CODE].into())
        } else {
            (be16(b, udp::at::SRC), be16(b, udp::at::DST))
        };
        (self.out.src_port, self.out.dst_port) = (Port(src), Port(dst));
        Some(())
    }

    fn carried(&mut self, at: usize, len: usize) -> Option<()> {
        self.out.payload = if len > 0 { self.offset(at) } else { 0 };
        self.out.payload_len = len as u32;
        Some(())
    }
}
