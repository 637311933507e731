//! Tunnel headers. A tunnel header and the inner frame are the payload of an outer [`super::Frame`].

use super::{put16, put32};
use crate::EtherType;

/// GRE (RFC 2784, 2890) with the optional fields that are `Some`. The checksum is written as given.
pub fn gre(ethertype: EtherType, checksum: Option<u16>, key: Option<u32>, sequence: Option<u32>) -> Vec<u8> {
    let flags = [(checksum.is_some(), 0x8000_u16), (key.is_some(), 0x2000), (sequence.is_some(), 0x1000)];
    let flags: u16 = flags.into_iter().filter(|(there, _)| *there).map(|(_, flag)| flag).sum();
    let words = [checksum.map(|sum| u32::from(sum) << 16), key, sequence];
    let mut bytes = [flags.to_be_bytes(), ethertype.0.to_be_bytes()].concat();
    bytes.extend(words.into_iter().flatten().flat_map(u32::to_be_bytes));
    bytes
}

/// The header of ERSPAN type II, which follows a GRE header with [`EtherType::ERSPAN`] and a sequence number.
pub fn erspan2(session: u16) -> [u8; 8] {
    let mut bytes = [0; 8];
    put16(&mut bytes, 0, 0x1000);
    put16(&mut bytes, 2, session);
    bytes
}

/// The header of ERSPAN type III for Ethernet, without a subheader; it follows a GRE header with [`EtherType::ERSPAN3`]
/// and a sequence number.
pub fn erspan3(session: u16) -> [u8; 12] {
    let mut bytes = [0; 12];
    put16(&mut bytes, 0, 0x2000);
    put16(&mut bytes, 2, session);
    bytes
}

/// VXLAN (RFC 7348), for UDP port 4789.
pub fn vxlan(vni: u32) -> [u8; 8] {
    let mut bytes = [8, 0, 0, 0, 0, 0, 0, 0];
    put32(&mut bytes, 4, vni << 8);
    bytes
}

/// GENEVE (RFC 8926), for UDP port 6081. The length of the options is a multiple of 4 bytes.
pub fn geneve(ethertype: EtherType, vni: u32, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes[0] = (options.len() / 4) as u8;
    put16(&mut bytes, 2, ethertype.0);
    put32(&mut bytes, 4, vni << 8);
    bytes.extend(options);
    bytes
}

/// A G-PDU of GTP-U (TS 29.281), for UDP port 2152, with a payload of `inner` bytes. Each extension header is given by
/// its type and by its bytes between the length field and the type of the next header: 2 bytes plus a multiple of 4.
pub fn gtp_u(teid: u32, sequence: Option<u16>, extensions: &[(u8, &[u8])], inner: usize) -> Vec<u8> {
    let mut bytes = vec![0x30, 255, 0, 0, 0, 0, 0, 0];
    put32(&mut bytes, 4, teid);
    if sequence.is_some() || !extensions.is_empty() {
        bytes[0] |= if sequence.is_some() { 2 } else { 0 } | if extensions.is_empty() { 0 } else { 4 };
        bytes.extend(sequence.unwrap_or(0).to_be_bytes());
        bytes.extend([0, extensions.first().map_or(0, |(kind, _)| *kind)]);
    }
    for (i, (_, body)) in extensions.iter().enumerate() {
        bytes.push((body.len() + 2).div_ceil(4) as u8);
        bytes.extend(*body);
        bytes.push(extensions.get(i + 1).map_or(0, |(kind, _)| *kind));
    }
    let length = bytes.len() - 8 + inner;
    put16(&mut bytes, 2, length as u16);
    bytes
}

/// A PPPoE session header (RFC 2516) with the PPP protocol number, for a payload of `inner` bytes. It follows
/// [`EtherType::PPPOE`].
pub fn pppoe(session: u16, protocol: u16, inner: usize) -> [u8; 8] {
    let mut bytes = [0x11, 0, 0, 0, 0, 0, 0, 0];
    put16(&mut bytes, 2, session);
    put16(&mut bytes, 4, (inner + 2) as u16);
    put16(&mut bytes, 6, protocol);
    bytes
}

/// The LLC and SNAP headers (RFC 1042), which follow the length field of an IEEE 802.3 frame.
pub fn snap(ethertype: EtherType) -> [u8; 8] {
    let mut bytes = [0xaa, 0xaa, 3, 0, 0, 0, 0, 0];
    put16(&mut bytes, 6, ethertype.0);
    bytes
}

/// The headers that a Teredo server (RFC 4380 §5.1.1) may put before IPv6: an authentication header without client ID,
/// and an origin indication.
pub fn teredo(authentication: bool, origin: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    if authentication {
        bytes.extend([0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    }
    if origin {
        bytes.extend([0, 0, 0x12, 0x34, 0xf5, 0xff, 0xff, 0xfe]);
    }
    bytes
}
