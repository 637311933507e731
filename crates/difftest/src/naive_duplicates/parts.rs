//! Fragments of datagrams, for the naive detector.

use super::{Seen, range};
use wire::{Fragment, IpProtocol};

/// True if a packet is a fragment of an earlier datagram that a router divided.
pub(super) fn is_part(old: &Seen, new: &Seen) -> bool {
    let is_usable = |seen: &Seen| !seen.is_other && seen.is_v4() && seen.region[4..6] != [0, 0];
    if !is_usable(old) || !is_usable(new) || new.decoded.fragment == Fragment::Whole || old.region[6] & 0x40 != 0 {
        return false;
    }
    let span = |seen: &Seen| {
        let header = usize::from(seen.region[0] & 15) * 4;
        let field = u16::from_be_bytes([seen.region[6], seen.region[7]]);
        let from = usize::from(field & 0x1fff) * 8;
        (from, from + seen.wire - header, field & 0x2000 != 0, header)
    };
    let ((a, b, a_more, a_header), (c, d, c_more, c_header)) = (span(old), span(new));
    if b - a <= 512 || c < a || d > b || d - c >= b - a || c_more != (a_more || d < b) || new.region.len() <= c_header {
        return false;
    }
    let changed = (old.addresses().0 != new.addresses().0, old.addresses().1 != new.addresses().1);
    let is_linked = old.macs().zip(new.macs()).is_some_and(|(a, b)| a[..6] != b[..6] && a[6..] != b[6..]);
    let (mut payload, part) = (range(&old.region, a_header + c - a, d - c), range(&new.region, c_header, d - c));
    payload.truncate(part.len());
    if payload.len() < part.len() || changed == (true, true) || !is_linked || new.ttl() >= old.ttl() {
        return false;
    }
    if old.decoded.protocol != new.decoded.protocol || old.region[4..6] != new.region[4..6] {
        return false;
    }
    if changed != (false, false) && c == 0 {
        let sum = match new.decoded.protocol {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            IpProtocol::ICMP | IpProtocol::ICMPV6 => 2,
            _ => return payload == part,
        };
        let port = if changed.0 { 0..2 } else { 2..4 };
        let has_ports = [IpProtocol::TCP, IpProtocol::UDP].contains(&new.decoded.protocol);
        if part.len() < 18 {
            return false;
        }
        for at in port.filter(|_| has_ports).chain(sum..sum + 2) {
            payload[at] = part[at];
        }
    }
    payload == part
}
