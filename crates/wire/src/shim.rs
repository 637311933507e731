//! Headers between the link header and IP other than tags and labels: PPPoE sessions (RFC 2516), PPP (RFC 1661),
//! Ethernet in a pseudowire (RFC 4448), and SNAP after an IEEE 802.3 length (RFC 1042). Each header has one function.
//!
//! Both [`crate::Headers`] (used by filter and index) and [`crate::Decoded`] (used by the meter) call these functions,
//! so both find the same packet.

use crate::bytes::{be16, chunk};
use crate::{DecodeError, EtherType, ethernet, ipv4, ipv6, mpls};

/// A PPPoE session header (RFC 2516 §4): version and type, code, session, length.
mod pppoe {
    pub const VERSION_TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const LEN: usize = 4;
    pub const END: usize = 6;
}

/// Protocol numbers of PPP (RFC 1332, 5072, 3032).
mod ppp {
    pub const IPV4: u16 = 0x0021;
    pub const IPV6: u16 = 0x0057;
    pub const MPLS: u16 = 0x0281;
}

/// The LLC header of SNAP (both service access points, unnumbered information) and the organisation code whose types
/// are ethertypes.
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

/// Length in bytes of the control word of a pseudowire (RFC 4385 §3), whose first four bits are 0.
const CONTROL_WORD: usize = 4;

/// `N` bytes of a header at `at`, which must end by `end` on the wire. If they are missing, the error shows whether the
/// packet ends before the end of the header, or only the capture.
pub(crate) fn need<const N: usize>(frame: &[u8], at: usize, end: usize) -> Result<&[u8; N], DecodeError> {
    if at + N > end {
        return Err(DecodeError::LinkShort);
    }
    chunk(frame, at).ok_or(DecodeError::Cut)
}

/// Returns the ethertype of the payload of a PPPoE session packet, and the offsets of the begin and the end of the
/// payload; ethertype 0 means a protocol that is not decoded.
pub(crate) fn pppoe(frame: &[u8], at: usize, end: usize) -> Result<(EtherType, usize, usize), DecodeError> {
    let head: &[u8; pppoe::END] = need(frame, at, end)?;
    let inner = at + pppoe::END + usize::from(be16(head, pppoe::LEN));
    if (head[pppoe::VERSION_TYPE], head[pppoe::CODE]) != (0x11, 0) || inner > end {
        return Err(DecodeError::PppoeHeader);
    }
    let (ethertype, at) = ppp(frame, at + pppoe::END, inner)?;
    Ok((ethertype, at, inner))
}

/// PPP (RFC 1661 §2, 1662 §3.1): optional address and control bytes, then a protocol number of one or two bytes.
/// Ethertype 0 means a protocol that is not decoded.
pub(crate) fn ppp(frame: &[u8], mut at: usize, end: usize) -> Result<(EtherType, usize), DecodeError> {
    if chunk(frame, at) == Some(&[0xff, 0x03]) {
        at += 2;
    }
    let first = u16::from(need::<1>(frame, at, end)?[0]);
    // Only the last byte of a PPP protocol number is odd.
    let (protocol, at) = if first & 1 == 1 { (first, at + 1) } else { (be16(need::<2>(frame, at, end)?, 0), at + 2) };
    let ethertype = match protocol {
        ppp::IPV4 => EtherType::IPV4,
        ppp::IPV6 => EtherType::IPV6,
        ppp::MPLS => EtherType::MPLS,
        _ => EtherType(0),
    };
    Ok((ethertype, at))
}

/// The ethertype in the SNAP header after a length field, and the offset of its payload.
pub(crate) fn snap(length: EtherType, frame: &[u8], at: usize) -> Option<(EtherType, usize)> {
    if !length.is_length() || chunk(frame, at) != Some(&SNAP) {
        return None;
    }
    let ethertype = EtherType(be16(chunk::<2>(frame, at + SNAP.len())?, 0));
    (!ethertype.is_length()).then_some((ethertype, at + SNAP.len() + 2))
}

/// The payload of a label stack.
pub(crate) enum LabelPayload {
    /// The payload at the end of the label stack has this ethertype; [`EtherType::MPLS`] if the payload is unknown.
    Network(EtherType),
    /// A completely captured Ethernet header at this offset.
    Ethernet(usize),
}

/// According to RFC 4928 §3, a first half-byte of 4 or 6 means IP. Otherwise the payload may be Ethernet, after a
/// control word if the first half-byte is 0. No field announces Ethernet, so the payload is read as Ethernet only if
/// its ethertype is supported. A payload that begins with 0 may be a control word or a MAC address followed by a tag;
/// if both are possible, a control word is assumed if its first two bytes are 0 (RFC 4448 §4.6). A payload whose first
/// half-byte means IP is read as Ethernet only if it cannot be IP, because MAC addresses that begin with 4 or 6 exist.
pub(crate) fn under_labels(first: u8, frame: &[u8], at: usize, end: usize) -> LabelPayload {
    let known = mpls::payload_ethertype(first);
    let fits = |skip: usize| {
        at + skip + ethernet::at::END <= end
            && chunk::<2>(frame, at + skip + ethernet::at::ETHERTYPE)
                .is_some_and(|b| leads_on(EtherType(be16(b, 0)), frame, at + skip + ethernet::at::END))
    };
    match known {
        EtherType::IPV4 | EtherType::IPV6 if ip_fits(frame, at, end) || !fits(0) => LabelPayload::Network(known),
        EtherType::IPV4 | EtherType::IPV6 => LabelPayload::Ethernet(at),
        _ if first >> 4 == 0 && fits(CONTROL_WORD) && (chunk(frame, at) == Some(&[0, 0]) || !fits(0)) => {
            LabelPayload::Ethernet(at + CONTROL_WORD)
        }
        _ if fits(0) => LabelPayload::Ethernet(at),
        _ => LabelPayload::Network(known),
    }
}

/// True if the lengths in an IP header are possible at this offset.
fn ip_fits(frame: &[u8], at: usize, end: usize) -> bool {
    let Some(head) = chunk::<{ ipv6::at::PAYLOAD_LEN + 2 }>(frame, at) else { return true };
    let (first, room) = (head[ipv4::at::VERSION_IHL], end.saturating_sub(at));
    match first >> 4 {
        4 => first & 15 >= 5 && usize::from(be16(head, ipv4::at::TOTAL_LEN)) <= room,
        _ => ipv6::at::END + usize::from(be16(head, ipv6::at::PAYLOAD_LEN)) <= room,
    }
}

/// True if the payload after an Ethernet header of this type can be the content of a pseudowire: either the decoder can
/// continue after the header, or the type is ARP.
fn leads_on(ethertype: EtherType, frame: &[u8], after: usize) -> bool {
    matches!(ethertype, EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP | EtherType::PPPOE)
        || ethertype.is_vlan()
        || ethertype.is_mpls()
        || snap(ethertype, frame, after).is_some()
}
