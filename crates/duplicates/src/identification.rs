//! The values that a sender changes from packet to packet: the identification of IPv4 (RFC 791 section 3.1) and of IPv6
//! fragments (RFC 8200 section 4.5), and the sequence number of ESP and AH (RFC 4303 section 2.2, RFC 4302 section
//! 2.5). A value is evidence only if it was captured and is not 0: a sender that does not use the field writes 0.

use crate::fields::{Kind, v4, v6};
use wire::IpProtocol;

const LEN: usize = 4;
/// The offset of the identification in the fragment header of IPv6, and of the sequence number in ESP.
const FRAGMENT_ID: usize = 4;
const ESP_SEQUENCE: usize = 4;
const AH_SEQUENCE: usize = 8;
/// The largest number of extension headers that are followed.
const EXTENSIONS_MAX: usize = 8;

/// True if the packet contains such a value. `region` begins with the IP header; `l4` is the offset of the header of
/// the protocol above IP, or 0.
pub(crate) fn is_identified(kind: Kind, region: &[u8], protocol: IpProtocol, l4: usize) -> bool {
    let is_set = |at: usize| region.get(at..at + LEN).is_some_and(|value| value != [0; LEN]);
    match kind {
        Kind::V4 if region[v4::ID..v4::FLAGS] != [0, 0] => true,
        Kind::V4 if l4 > 0 => match protocol {
            IpProtocol::ESP => is_set(l4 + ESP_SEQUENCE),
            IpProtocol::AH => is_set(l4 + AH_SEQUENCE),
            _ => false,
        },
        Kind::V6 => extension_value(region).is_some_and(is_set),
        _ => false,
    }
}

/// The offset of the first value among the extension headers of IPv6.
fn extension_value(region: &[u8]) -> Option<usize> {
    let (mut next, mut at) = (IpProtocol(*region.get(v6::NEXT)?), v6::END);
    for _ in 0..EXTENSIONS_MAX {
        let units = match next {
            IpProtocol::FRAGMENT => return Some(at + FRAGMENT_ID),
            IpProtocol::ESP => return Some(at + ESP_SEQUENCE),
            IpProtocol::AH => return Some(at + AH_SEQUENCE),
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DEST_OPTIONS => *region.get(at + 1)?,
            _ => return None,
        };
        next = IpProtocol(region[at]);
        at += (usize::from(units) + 1) * 8;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_was_not_captured_or_is_zero_is_no_evidence() {
        let v4 = |id: u16, protocol: IpProtocol, above: &[u8]| {
            let mut region = [0; 20].to_vec();
            region[4..6].copy_from_slice(&id.to_be_bytes());
            region.extend(above);
            is_identified(Kind::V4, &region, protocol, 20)
        };
        assert!(v4(1, IpProtocol::UDP, &[]) && !v4(0, IpProtocol::UDP, &[1; 20]));
        assert!(v4(0, IpProtocol::ESP, &[0, 0, 0, 1, 0, 0, 0, 9]) && !v4(0, IpProtocol::ESP, &[0, 0, 0, 1, 0, 0, 9]));
        assert!(!v4(0, IpProtocol::ESP, &[1, 1, 1, 1, 0, 0, 0, 0, 1, 1]));
        assert!(v4(0, IpProtocol::AH, &[1; 12]) && !v4(0, IpProtocol::AH, &[1; 11]));
        let v6 = |headers: &[u8], first: IpProtocol| {
            let mut region = [0; 40].to_vec();
            region[6] = first.0;
            region.extend(headers);
            is_identified(Kind::V6, &region, IpProtocol::UDP, 0)
        };
        assert!(v6(&[17, 0, 0, 1, 0, 0, 0, 5], IpProtocol::FRAGMENT));
        assert!(!v6(&[17, 0, 0, 1, 0, 0, 0, 0], IpProtocol::FRAGMENT));
        assert!(!v6(&[17, 0, 0, 1, 0, 0, 0], IpProtocol::FRAGMENT));
        let options = [&[44, 0, 1, 4, 0, 0, 0, 0][..], &[17, 0, 0, 1, 0, 0, 0, 5]].concat();
        assert!(v6(&options, IpProtocol::HOP_BY_HOP) && !v6(&options[..8], IpProtocol::HOP_BY_HOP));
        assert!(v6(&[1; 12], IpProtocol::AH) && !v6(&[1; 40], IpProtocol::UDP));
    }
}
