//! GRE and the tunnels based on it: NVGRE, ERSPAN, PPTP.
//!
//! ```text
//!  0       1       2       3
//! +-+-+-+-+-------+---------------+
//! |C R K S    |ver|   ethertype   |   C: checksum and offset, 4 bytes; R: a source route; ver 1: PPTP (RFC 2637)
//! +---------------+---------------+
//! | checksum, key, sequence: 4 bytes each, if present
//! +-------------------------------+
//! ```
//! ERSPAN (draft-foschiano-erspan-03) has a header of its own after GRE: none in type I, 8 bytes in type II, 12 bytes
//! in type III plus 8 bytes if the last bit of the header is set. The session ID is in the lowest ten bits of the first
//! word. Types I and II have the same ethertype; only type II has a GRE sequence number.

use super::decoder::{Decoder, NextHeader, TunnelPayload};
use super::{DecodeError, TunnelKind};
use crate::EtherType;
use crate::bytes::{be16, be32};

mod at {
    pub const FLAGS: usize = 0;
    pub const ETHERTYPE: usize = 2;
    pub const END: usize = 4;

    pub const CHECKSUM: u16 = 0x8000;
    pub const ROUTING: u16 = 0x4000;
    pub const KEY: u16 = 0x2000;
    pub const SEQUENCE: u16 = 0x1000;
    pub const VERSION: u16 = 0x0007;
    /// Version 1 only.
    pub const ACKNOWLEDGED: u16 = 0x0080;
}

mod erspan {
    pub const SESSION: u32 = 0x3ff;
    pub const END_2: usize = 8;
    /// Offset, in the header of ERSPAN type III, of the 16 bits that contain the frame type and the flag `SUBHEADER`.
    pub const BITS: usize = 10;
    pub const SUBHEADER: u16 = 1;
    pub const END_3: usize = 12;
    pub const SUBHEADER_LEN: usize = 8;
}

impl Decoder<'_> {
    pub fn gre(&mut self, at: usize) -> Option<TunnelPayload> {
        let head: &[u8; at::END] = self.need(at, DecodeError::TransportShort)?;
        let (flags, ethertype) = (be16(head, at::FLAGS), EtherType(be16(head, at::ETHERTYPE)));
        let mut next = at + at::END;
        match flags & at::VERSION {
            0 if flags & at::ROUTING == 0 => (),
            1 if ethertype == EtherType::PPP => return self.pptp(flags, next),
            _ => return self.decode_error(DecodeError::TunnelHeader),
        }
        if flags & at::CHECKSUM != 0 {
            next += 4;
        }
        let key = self.gre_word(flags & at::KEY != 0, &mut next)?;
        let sequence = self.gre_word(flags & at::SEQUENCE != 0, &mut next)?;
        let (kind, id, what) = match ethertype {
            EtherType::BRIDGED => match key {
                Some(key) if flags & (at::CHECKSUM | at::SEQUENCE) == 0 => {
                    (TunnelKind::Nvgre, key >> 8, NextHeader::Ethernet)
                }
                key => (TunnelKind::Gre, key.unwrap_or(0), NextHeader::Ethernet),
            },
            EtherType::ERSPAN if sequence.is_some() => {
                let head: &[u8; erspan::END_2] = self.need(next, DecodeError::TransportShort)?;
                next += erspan::END_2;
                (TunnelKind::Erspan2, be32(head, 0) & erspan::SESSION, NextHeader::Ethernet)
            }
            EtherType::ERSPAN => (TunnelKind::Erspan1, 0, NextHeader::Ethernet),
            EtherType::ERSPAN3 => {
                let head: &[u8; erspan::END_3] = self.need(next, DecodeError::TransportShort)?;
                let bits = be16(head, erspan::BITS);
                next += erspan::END_3 + if bits & erspan::SUBHEADER != 0 { erspan::SUBHEADER_LEN } else { 0 };
                let what = match bits >> 10 & 0x1f {
                    0 => NextHeader::Ethernet,
                    2 => NextHeader::Ip,
                    _ => {
                        // The mirrored frame is not decoded, but the sequence number of the tunnel packet is recorded.
                        self.carrier(TunnelKind::Erspan3, be32(head, 0) & erspan::SESSION, sequence);
                        return self.decode_error(DecodeError::TunnelHeader);
                    }
                };
                (TunnelKind::Erspan3, be32(head, 0) & erspan::SESSION, what)
            }
            EtherType::PPP => (TunnelKind::Gre, key.unwrap_or(0), NextHeader::Ppp),
            _ => (TunnelKind::Gre, key.unwrap_or(0), NextHeader::Typed(ethertype)),
        };
        Some(TunnelPayload { at: next, what, tunnel: self.carrier(kind, id, sequence), guessed: false })
    }

    /// The enhanced GRE header of PPTP: the key (payload length and call ID) is always present, sequence number and
    /// acknowledgement number depend on flags. A packet without sequence number has no payload.
    fn pptp(&mut self, flags: u16, mut next: usize) -> Option<TunnelPayload> {
        let key = self.gre_word(true, &mut next)?.unwrap_or(0);
        let sequence = self.gre_word(flags & at::SEQUENCE != 0, &mut next)?;
        sequence?;
        self.gre_word(flags & at::ACKNOWLEDGED != 0, &mut next)?;
        let tunnel = self.carrier(TunnelKind::Gre, key & 0xffff, sequence);
        Some(TunnelPayload { at: next, what: NextHeader::Ppp, tunnel, guessed: false })
    }

    /// Reads an optional word of the header. Returns `Some(None)` if `there` is false, and `None` if the word should be
    /// present but was not captured.
    fn gre_word(&mut self, there: bool, next: &mut usize) -> Option<Option<u32>> {
        if !there {
            return Some(None);
        }
        let word: &[u8; 4] = self.need(*next, DecodeError::TransportShort)?;
        *next += word.len();
        Some(Some(be32(word, 0)))
    }
}
