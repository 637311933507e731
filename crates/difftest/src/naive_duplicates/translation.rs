//! NAT and proxies, for the naive detector.

use super::{Seen, is_other_link, range};
use duplicates::Class;
use std::collections::HashMap;
use wire::{Fragment, IpProtocol, tcp_flags};

/// Addresses, protocol and ports.
pub(super) type Flow = (Vec<u8>, Vec<u8>, IpProtocol, Vec<u8>);

/// The packets that confirm a binding.
#[derive(Default)]
pub(super) struct Confirmations {
    count: usize,
    content: Vec<u8>,
    sequence: u32,
}

fn flow(seen: &Seen) -> Flow {
    let (source, destination) = seen.addresses();
    let ports = match seen.l4() {
        Some(l4) if seen.decoded.protocol.has_ports() => range(&seen.region, l4, 4),
        _ => Vec::new(),
    };
    (source, destination, seen.decoded.protocol, ports)
}

/// Adds a packet to its binding. The result says whether the binding was confirmed before; `None` if the binding has
/// the opposite direction.
pub(super) fn confirm(
    bindings: &mut HashMap<(Class, Flow, Flow), Confirmations>,
    class: Class,
    old: &Seen,
    new: &Seen,
) -> Option<bool> {
    let (before, after) = (flow(old), flow(new));
    if bindings.contains_key(&(class, after.clone(), before.clone())) {
        return None;
    }
    let binding = bindings.entry((class, before, after)).or_default();
    let wanted = if class == Class::Proxying { 3 } else { 2 };
    if binding.count >= wanted {
        return Some(true);
    }
    let content = if class == Class::Proxying {
        let payload = range(&new.region, usize::from(new.decoded.payload - new.decoded.l3), usize::MAX);
        [&new.decoded.payload_len.to_be_bytes()[..], &payload].concat()
    } else {
        new.without_translated()
    };
    let sequence = sequence(new).unwrap_or(0);
    let is_later = class == Class::Nat || binding.count == 0 || (sequence.wrapping_sub(binding.sequence) as i32) > 0;
    if is_later && (binding.count == 0 || binding.content != content) {
        *binding = Confirmations { count: binding.count + 1, content, sequence };
    }
    Some(false)
}

fn sequence(seen: &Seen) -> Option<u32> {
    let l4 = seen.l4().filter(|l4| seen.is_tcp() && seen.region.len() >= l4 + 18)?;
    Some(u32::from_be_bytes([seen.region[l4 + 4], seen.region[l4 + 5], seen.region[l4 + 6], seen.region[l4 + 7]]))
}

/// True if the packet can confirm a binding.
fn shows_binding(seen: &Seen) -> bool {
    if !seen.is_tcp() {
        return seen.is_identified();
    }
    let Some(number) = sequence(seen) else { return false };
    let flags = seen.region[seen.l4().unwrap_or_default() + 13];
    let is_begin = flags & tcp_flags::SYN != 0 && seen.decoded.payload_len == 0;
    number != 0 && flags & tcp_flags::RST == 0 && !is_begin
}

impl Seen {
    /// The offsets of the transport header that address translation changes: the ports of both sides, the identifier of
    /// an ICMP query, and the checksum.
    fn translated_offsets(&self) -> Option<[Vec<usize>; 4]> {
        let l4 = self.l4()?;
        let at = |from: usize, len: usize| (l4 + from..l4 + from + len).collect::<Vec<_>>();
        let none = Vec::new;
        let is_query = |kinds: [u8; 2]| self.region.get(l4).is_some_and(|kind| kinds.contains(kind));
        let id = |kinds| if is_query(kinds) { at(4, 2) } else { none() };
        Some(match self.decoded.protocol {
            IpProtocol::TCP => [at(0, 2), at(2, 2), none(), at(16, 2)],
            IpProtocol::UDP => [at(0, 2), at(2, 2), none(), at(6, 2)],
            IpProtocol::ICMP => [none(), none(), id([0, 8]), at(2, 2)],
            IpProtocol::ICMPV6 => [none(), none(), id([128, 129]), at(2, 2)],
            _ => return None,
        })
    }

    /// The region with 0 in all fields that address translation and routers change.
    fn without_translated(&self) -> Vec<u8> {
        let mut region = self.region.clone();
        let (addresses, router) = if self.is_v4() { (12..20, vec![1, 8, 10, 11]) } else { (8..40, vec![7]) };
        if !self.is_v4() {
            (region[0], region[1]) = (region[0] & 0xf0, region[1] & 0x0f);
        }
        let transport = self.translated_offsets().into_iter().flatten().flatten();
        for at in addresses.chain(router).chain(transport) {
            if let Some(byte) = region.get_mut(at) {
                *byte = 0;
            }
        }
        region
    }

    /// The region with the fields of `other` that a router changes that translates one side.
    fn as_translated(&self, other: &Self, is_source: bool) -> Vec<u8> {
        let mut region = self.as_routed(other);
        let (at, len) = if self.is_v4() { (12, 4) } else { (8, 16) };
        let from = if is_source { at } else { at + len };
        region[from..from + len].copy_from_slice(&other.region[from..from + len]);
        if let Some([source, destination, query, sum]) = self.translated_offsets() {
            let ports = if is_source { source } else { destination };
            let is_query_changed = query.iter().any(|at| region.get(*at) != other.region.get(*at));
            // The checksum of ICMP over IPv4 does not contain the addresses.
            let has_sum = self.decoded.protocol != IpProtocol::ICMP || is_query_changed;
            for at in ports.into_iter().chain(query).chain(sum.into_iter().filter(|_| has_sum)) {
                if at < region.len() {
                    region[at] = other.region[at];
                }
            }
        }
        region
    }
}

/// True if a router translated the address, and perhaps the port, of one side.
pub(super) fn is_translated(old: &Seen, new: &Seen) -> bool {
    let (source, destination) = (old.addresses().0 != new.addresses().0, old.addresses().1 != new.addresses().1);
    old.shape() == new.shape()
        && !new.is_other
        && new.ttl() < old.ttl()
        && old.macs().zip(new.macs()).is_some_and(|(a, b)| is_other_link(a, b))
        && source != destination
        && shows_binding(new)
        && old.as_translated(new, source) == new.region
}

/// True if a proxy sent the segment again.
pub(super) fn is_proxied(old: &Seen, new: &Seen) -> bool {
    let is_tcp = |seen: &Seen| {
        let header = if seen.is_v4() { 20 } else { 40 };
        !seen.is_other
            && seen.decoded.protocol == IpProtocol::TCP
            && seen.decoded.fragment == Fragment::Whole
            && seen.l4() == Some(header)
            && seen.decoded.payload > seen.decoded.l4
    };
    if !is_tcp(old) || !is_tcp(new) || old.decoded.family != new.decoded.family {
        return false;
    }
    if new.decoded.payload_len < 8 || !shows_binding(new) {
        return false;
    }
    let l4 = new.l4().unwrap_or_default();
    let word = |seen: &Seen, at: usize| range(&seen.region, l4 + at, 4);
    let payload = |seen: &Seen| range(&seen.region, usize::from(seen.decoded.payload - seen.decoded.l3), usize::MAX);
    let (a, b) = (old.addresses(), new.addresses());
    let is_numbered = word(old, 4) == word(new, 4) || word(new, 8) != [0, 0, 0, 0] && word(old, 8) == word(new, 8);
    old.macs().zip(new.macs()).is_some_and(|(a, b)| is_other_link(a, b))
        && (a.0 == b.0) != (a.1 == b.1)
        && word(old, 0) == word(new, 0)
        && is_numbered
        && old.decoded.payload_len == new.decoded.payload_len
        && payload(old) == payload(new)
}
