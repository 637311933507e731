//! The tunnel or the labels around the innermost packet, in a form that is compared.
//!
//! [`Head::outer`] is a hash of the kind and the identity (VNI, key, session) of the innermost tunnel and of the
//! addresses of its packet, or of the labels of an MPLS packet. The headers of ERSPAN are not part of it: a mirror
//! writes them, not the sender. [`Head::outer_id`] is the identification of the packet that contains the tunnel. Two
//! packets with different identifications were encapsulated at two times, so neither is a copy of the other.

use crate::digest::Digest;
use crate::fields::{v4, v6};
use crate::{Packet, table::Head};
use wire::{Decoded, EtherType, Family, Headers, TunnelKind, link};

/// Set in [`Head::outer`] of a packet below labels, outside of tunnels.
const LABELS: u32 = 1 << 31;
/// Set in [`Head::outer`] of a packet in a tunnel with an Ethernet header of its own.
const OWN_LINK: u32 = 1 << 30;

const MACS_LEN: usize = 12;
const ETHERTYPE_LEN: usize = 2;
const TAG_LEN: usize = 4;
const LABEL_LEN: usize = 4;
/// The offset of the TTL in a label.
const LABEL_TTL: usize = 3;

/// Sets the fields about the labels and tunnels around a packet.
pub(crate) fn read(packet: &Packet<'_>, decoded: &Decoded, digest: &Digest, head: &mut Head) {
    let has_own_link = decoded.l2.is_some_and(|l2| l2 > 0);
    let is_mirror = |kind: TunnelKind| matches!(kind, TunnelKind::Erspan1 | TunnelKind::Erspan2 | TunnelKind::Erspan3);
    match decoded.tunnel {
        Some(tunnel) if is_mirror(tunnel.kind) => (),
        Some(tunnel) => {
            let ip = packet.data.get(usize::from(tunnel.outer_l3)..).unwrap_or_default();
            let addresses = if ip.first().is_some_and(|first| first >> 4 == 4) {
                head.outer_id = ip.get(v4::ID..v4::FLAGS).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
                ip.get(v4::SRC..v4::END)
            } else {
                ip.get(v6::SRC..v6::END)
            };
            let label = decoded.mpls.map_or(0, |label| u64::from(label) | 1 << 32);
            let kind = u64::from(tunnel.kind as u8) << 8 | u64::from(decoded.depth);
            let digest = digest.words(u64::from(tunnel.id), kind).words(label, 4);
            head.outer = digest.bytes(addresses.unwrap_or_default()).finish() as u32 & !(LABELS | OWN_LINK) | 1;
            if has_own_link {
                head.outer |= OWN_LINK;
            } else {
                head.outer_ttl = outermost_ttl(packet);
            }
        }
        None if decoded.mpls.is_some() && !has_own_link => {
            let (labels, ttl) = labels(packet, decoded, *digest);
            (head.outer, head.outer_ttl) = (labels.finish() as u32 | LABELS, ttl);
        }
        None => (),
    }
}

/// The labels of an MPLS packet without traffic class and TTL, and the TTL of the topmost label.
fn labels(packet: &Packet<'_>, decoded: &Decoded, mut digest: Digest) -> (Digest, u8) {
    let frame = packet.data;
    let end = usize::from(decoded.l3).min(frame.len());
    let mut at = 0;
    if packet.link_type == link::ETHERNET {
        at = MACS_LEN;
        let ethertype = |at: usize| frame.get(at..at + 2).map(|b| EtherType(u16::from_be_bytes([b[0], b[1]])));
        while ethertype(at).is_some_and(EtherType::is_vlan) && at + TAG_LEN <= end {
            at += TAG_LEN;
        }
        at += ETHERTYPE_LEN;
    }
    let entries = frame.get(at..end).unwrap_or_default();
    for entry in entries.as_chunks::<LABEL_LEN>().0 {
        digest = digest.words(u64::from(u32::from_be_bytes(*entry) >> 12), 3);
    }
    (digest, entries.get(LABEL_TTL).copied().unwrap_or(0))
}

fn outermost_ttl(packet: &Packet<'_>) -> u8 {
    let headers = Headers::of(packet.data, packet.wire_len, packet.link_type);
    let at = match headers.family() {
        Family::V4 => v4::TTL,
        Family::V6 => v6::HOPS,
        Family::Other => return 0,
    };
    packet.data.get(usize::from(headers.l3()) + at).copied().unwrap_or(0)
}

/// True if the headers around both packets can be those of one packet on one link.
pub(crate) fn is_same(old: &Head, new: &Head) -> bool {
    // A mirror before a tunnel gets the inner frame without the headers of the tunnel.
    let is_entered = |plain: &Head, tunnelled: &Head| plain.outer == 0 && tunnelled.outer & OWN_LINK != 0;
    let is_equal = old.outer == new.outer || is_entered(old, new) || is_entered(new, old);
    is_equal && old.outer_ttl == new.outer_ttl && is_one_encapsulation(old, new)
}

/// True if a router between both packets can have changed the headers around the inner packet: a router that entered or
/// left the tunnel, or a router on the path of the tunnel or of the labels.
pub(crate) fn is_forwarded(old: &Head, new: &Head) -> bool {
    let is_any = old.outer != 0 || new.outer != 0;
    let is_one = old.outer == 0 || new.outer == 0;
    let are_labels = old.outer & new.outer & LABELS != 0;
    let is_lower = new.outer_ttl < old.outer_ttl && (are_labels || old.outer == new.outer);
    is_any && (is_one || is_lower) && is_one_encapsulation(old, new)
}

fn is_one_encapsulation(old: &Head, new: &Head) -> bool {
    old.outer_id == new.outer_id || old.outer_id == 0 || new.outer_id == 0
}
