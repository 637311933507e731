//! Tunnels over UDP: VXLAN, GENEVE, GTP-U, Teredo, and GRE in UDP.
//!
//! A UDP port does not identify a protocol, so each header is validated:
//!
//! | tunnel | port | header |
//! |---|---|---|
//! | VXLAN (RFC 7348) | to 4789, or to 8472 as Linux had it before | flag `I` |
//! | VXLAN-GPE | to 4790 | flag `I`; with the flag `P`, byte 3 is the number of IPv4, IPv6 or Ethernet |
//! | GENEVE (RFC 8926) | to 6081 | version 0; the reserved six bits and the last byte are 0; the options fit |
//! | GTP-U (TS 29.281) | to 2152 | version 1, not GTP'; the length fits |
//! | Teredo (RFC 4380) | from or to 3544 | IPv6 to the end of the datagram exactly, or without a payload |
//! | GRE (RFC 8086) | to 4754 | the same rules as for GRE over IP |
//!
//! * VXLAN: other flags (`G` of group policies among them) and reserved bytes are ignored.
//! * GTP-U: only a G-PDU is entered; other messages are ordinary UDP.
//! * Teredo: an IPv6 packet without a payload is a bubble, which may have trailers. One address must be in 2001::/32,
//!   or the source must be link-local.
//!
//! In all cases a valid IP header must follow (see [`super::Decoded`]).

use super::decoder::{Decoder, NextHeader, TunnelPayload};
use super::tunnel_ports::port;
use super::{DecodeError, TunnelKind};
use crate::bytes::{be16, be32, chunk};
use crate::{EtherType, IpProtocol, ipv6, udp};

mod vxlan {
    pub const FLAGS: usize = 0;
    pub const VALID: u8 = 0x08;
    pub const TYPED: u8 = 0x04;
    /// If `TYPED` is set, the payload protocol: 1 IPv4, 2 IPv6, 3 Ethernet.
    pub const NEXT: usize = 3;
    pub const VNI: usize = 4;
    pub const END: usize = 8;
}

mod geneve {
    pub const VERSION_LEN: usize = 0;
    pub const BITS: usize = 1;
    pub const RESERVED: u8 = 0x3f;
    pub const ETHERTYPE: usize = 2;
    pub const VNI: usize = 4;
    pub const LAST: usize = 7;
    pub const END: usize = 8;
}

mod gtp {
    pub const FLAGS: usize = 0;
    /// Version 1 and the bit that distinguishes GTP from GTP'. The spare bit next to that bit is ignored.
    pub const VERSION: u8 = 0xf0;
    pub const VERSION_1: u8 = 0x30;
    pub const EXTENDED: u8 = 4;
    pub const SEQUENCE: u8 = 2;
    pub const OPTIONAL: u8 = 7;
    pub const TYPE: usize = 1;
    pub const G_PDU: u8 = 255;
    pub const LEN: usize = 2;
    pub const TEID: usize = 4;
    pub const END: usize = 8;
    /// The optional 32-bit word of the GTP-U header, present if any of the lowest three flags is set: sequence number,
    /// N-PDU number, type of the next extension header. `NEXT` is the offset of this type in the word.
    pub const NEXT: usize = 3;
    pub const OPTIONAL_LEN: usize = 4;
    /// 3GPP has defined six extension headers; no message has more than two.
    pub const MAX_EXTENSIONS: usize = 8;
}

mod teredo {
    pub const AUTHENTICATION: u16 = 1;
    pub const ORIGIN: u16 = 0;
    /// Length of the authentication header without client ID and authentication value: indicator, two length fields,
    /// nonce, confirmation byte.
    pub const AUTHENTICATION_LEN: usize = 13;
    pub const ORIGIN_LEN: usize = 8;
    pub const PREFIX: [u8; 4] = [0x20, 0x01, 0, 0];
}

impl Decoder<'_> {
    pub fn udp_tunnel(&mut self) -> Option<TunnelPayload> {
        let at = self.above + udp::at::END;
        match self.out.dst_port.0 {
            port::VXLAN | port::VXLAN_LINUX => self.vxlan(at, false),
            port::VXLAN_GPE => self.vxlan(at, true),
            port::GENEVE => self.geneve(at),
            port::GTP_U => self.gtp(at),
            port::GRE => self.gre_in_udp(at),
            _ => self.teredo(at),
        }
    }

    fn gre_in_udp(&mut self, at: usize) -> Option<TunnelPayload> {
        let (ordinary, count) = (self.out, self.count);
        if let Some(inside) = self.gre(at) {
            return Some(TunnelPayload { guessed: true, ..inside });
        }
        self.count = count;
        let cut = self.out.error == Some(DecodeError::Cut);
        self.out = ordinary;
        self.decode_error(if cut { DecodeError::Cut } else { DecodeError::TunnelImplausible })
    }

    fn vxlan(&mut self, at: usize, is_gpe: bool) -> Option<TunnelPayload> {
        let head: &[u8; vxlan::END] = self.need(at, DecodeError::TunnelImplausible)?;
        let flags = head[vxlan::FLAGS];
        // VXLAN ignores reserved bits (RFC 7348 §5), among them the bit that announces a payload protocol in VXLAN-GPE.
        // Therefore this bit is evaluated only on the port of VXLAN-GPE.
        let what = match (is_gpe && flags & vxlan::TYPED != 0, head[vxlan::NEXT]) {
            (true, 1 | 2) => NextHeader::Ip,
            (true, 4..) => return self.decode_error(DecodeError::TunnelImplausible),
            _ => NextHeader::Ethernet,
        };
        if flags & vxlan::VALID == 0 {
            return self.decode_error(DecodeError::TunnelImplausible);
        }
        let tunnel = self.carrier(TunnelKind::Vxlan, be32(head, vxlan::VNI) >> 8, None);
        Some(TunnelPayload { at: at + vxlan::END, what, tunnel, guessed: true })
    }

    fn geneve(&mut self, at: usize) -> Option<TunnelPayload> {
        let head: &[u8; geneve::END] = self.need(at, DecodeError::TunnelImplausible)?;
        let version_len = head[geneve::VERSION_LEN];
        let next = at + geneve::END + usize::from(version_len & 0x3f) * 4;
        let reserved = head[geneve::BITS] & geneve::RESERVED | head[geneve::LAST];
        if version_len >> 6 != 0 || reserved != 0 || next > self.end {
            return self.decode_error(DecodeError::TunnelImplausible);
        }
        let what = match EtherType(be16(head, geneve::ETHERTYPE)) {
            EtherType::BRIDGED => NextHeader::Ethernet,
            ethertype => NextHeader::Typed(ethertype),
        };
        let tunnel = self.carrier(TunnelKind::Geneve, be32(head, geneve::VNI) >> 8, None);
        Some(TunnelPayload { at: next, what, tunnel, guessed: true })
    }

    fn gtp(&mut self, at: usize) -> Option<TunnelPayload> {
        let head: &[u8; gtp::END] = self.need(at, DecodeError::TunnelImplausible)?;
        let flags = head[gtp::FLAGS];
        let mut next = at + gtp::END;
        let end = next + usize::from(be16(head, gtp::LEN));
        if flags & gtp::VERSION != gtp::VERSION_1 || end > self.end {
            return self.decode_error(DecodeError::TunnelImplausible);
        }
        if head[gtp::TYPE] != gtp::G_PDU {
            return None;
        }
        self.end = end;
        let mut sequence = None;
        if flags & gtp::OPTIONAL != 0 {
            let optional: &[u8; gtp::OPTIONAL_LEN] = self.need(next, DecodeError::TunnelImplausible)?;
            next += gtp::OPTIONAL_LEN;
            sequence = (flags & gtp::SEQUENCE != 0).then(|| be16(optional, 0).into());
            if flags & gtp::EXTENDED != 0 {
                next = self.gtp_extensions(optional[gtp::NEXT], next)?;
            }
        }
        let tunnel = self.carrier(TunnelKind::GtpU, be32(head, gtp::TEID), sequence);
        Some(TunnelPayload { at: next, what: NextHeader::Ip, tunnel, guessed: true })
    }

    /// Reads the sequence number from the first fragment of a G-PDU or of GRE in UDP, whose captured bytes may end
    /// before the stated length. Returns false if the datagram is not such a tunnel packet.
    pub fn tunnel_id_of_first_fragment(&mut self) -> bool {
        let inside = self.above + udp::at::END;
        self.end = usize::from(u16::MAX) + self.above;
        match self.out.dst_port.0 {
            port::GTP_U => self.gtp(inside).is_some_and(|inside| self.ip_version(inside.at).is_some()),
            port::GRE => self.gre_in_udp(inside).is_some_and(|inside| self.enter(inside)),
            _ => false,
        }
    }

    /// Each extension header begins with its length in words of 4 bytes and ends with the type of the next extension
    /// header.
    fn gtp_extensions(&mut self, mut kind: u8, mut next: usize) -> Option<usize> {
        for _ in 0..gtp::MAX_EXTENSIONS {
            if kind == 0 {
                return Some(next);
            }
            let len = usize::from(self.need::<1>(next, DecodeError::TunnelImplausible)?[0]) * 4;
            if len == 0 {
                break;
            }
            next += len;
            kind = self.need::<1>(next - 1, DecodeError::TunnelImplausible)?[0];
        }
        self.decode_error(DecodeError::TunnelImplausible)
    }

    fn teredo(&mut self, mut at: usize) -> Option<TunnelPayload> {
        let begins = |decoder: &mut Self, at| Some(be16(decoder.need::<4>(at, DecodeError::TunnelImplausible)?, 0));
        if begins(self, at)? == teredo::AUTHENTICATION {
            let [_, _, id, value] = *self.need::<4>(at, DecodeError::TunnelImplausible)?;
            at += teredo::AUTHENTICATION_LEN + usize::from(id) + usize::from(value);
        }
        if begins(self, at)? == teredo::ORIGIN {
            at += teredo::ORIGIN_LEN;
        }
        let head: &[u8; ipv6::at::END] = self.need(at, DecodeError::TunnelImplausible)?;
        let is_teredo = |from| chunk(head, from) == Some(&teredo::PREFIX);
        let link_local = head[ipv6::at::SRC] == 0xfe && head[ipv6::at::SRC + 1] & 0xc0 == 0x80;
        let len = ipv6::at::END + usize::from(be16(head, ipv6::at::PAYLOAD_LEN));
        let known = link_local || is_teredo(ipv6::at::SRC) || is_teredo(ipv6::at::DST);
        let bubble = head[ipv6::at::NEXT] == IpProtocol::NONE.0 && at + len <= self.end;
        if head[ipv6::at::VERSION] >> 4 != 6 || !(bubble || at + len == self.end) || !known {
            return self.decode_error(DecodeError::TunnelImplausible);
        }
        let tunnel = self.carrier(TunnelKind::Teredo, 0, None);
        Some(TunnelPayload { at, what: NextHeader::Typed(EtherType::IPV6), tunnel, guessed: true })
    }
}
