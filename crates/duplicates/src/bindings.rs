//! Bindings of NAT routers and proxies: the addresses and ports of a flow before and after the device.
//!
//! Equal requests of many hosts differ in their addresses as copies of one request after NAT do. A device translates
//! all packets of a flow in the same way, so a binding is believed after several different packets with it; the packets
//! that confirm a binding are not reported. A binding has one direction: if the packets of flow A are followed by those
//! of flow B, a retransmission of A is no copy of B.

use crate::Class;
use crate::compared::Compared;
use crate::digest::Digest;
use crate::fields::{Kind, PORTS, tcp, v4, v6};
use base::memory::{Hints, HintsExt};

/// The number of packets that confirm a binding of NAT.
pub(crate) const CONFIRMATIONS_NAT: u8 = 2;
/// The number of packets, in order of their sequence numbers, that confirm a binding of a proxy.
pub(crate) const CONFIRMATIONS_PROXY: u8 = 3;

const WAYS: usize = 4;
const BUCKETS: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// A hash of both flows, the same for both directions; 0 for an unused entry.
    key: u64,
    /// The hash of the last packet that confirmed the binding, and its sequence number after the device.
    packet: u64,
    sequence: u32,
    confirmations: u8,
    /// True if the flow with the smaller hash is the flow before the device.
    is_ascending: bool,
}

/// Whether a packet is a copy according to the binding of its addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The binding is confirmed: the packet is a copy.
    Confirmed,
    /// The binding is not confirmed yet: the packet is not reported.
    Unconfirmed,
    /// The binding has the other direction: the packet is no copy.
    Opposite,
}

/// The bindings that were seen last.
#[derive(Clone)]
pub(crate) struct Bindings {
    entries: Vec<[Entry; WAYS]>,
    digest: Digest,
    /// Bindings that were replaced by others.
    pub replaced: u64,
}

/// Memory in bytes.
pub(crate) fn memory() -> u64 {
    (BUCKETS * size_of::<[Entry; WAYS]>()) as u64
}

impl Bindings {
    pub fn new(key: u64, hints: impl Hints) -> Self {
        let mut entries = hints.reserve(BUCKETS);
        entries.resize(BUCKETS, [Entry::default(); WAYS]);
        Self { entries, digest: Digest::new(key), replaced: 0 }
    }

    /// Adds a packet of class NAT or proxying, whose original has these stored bytes.
    pub fn confirm(&mut self, class: Class, stored: &[u8], region: &[u8], compared: &Compared) -> Trust {
        let digest = self.digest.words(class as u64, u64::from(compared.protocol.0));
        let flow = |bytes: &[u8]| flow(digest, bytes, compared);
        let (before, after) = (flow(stored), flow(region));
        let is_ascending = before < after;
        let key = digest.words(before.min(after), before.max(after)).finish() | 1;
        let is_proxy = class == Class::Proxying;
        let (packet, wanted) =
            if is_proxy { (compared.body, CONFIRMATIONS_PROXY) } else { (compared.translated, CONFIRMATIONS_NAT) };
        let sequence = sequence(region, compared).unwrap_or(0);
        let entry = self.entry(key, is_ascending);
        if entry.is_ascending != is_ascending {
            return Trust::Opposite;
        }
        if entry.confirmations >= wanted {
            return Trust::Confirmed;
        }
        let is_next = !is_proxy || entry.confirmations == 0 || (sequence.wrapping_sub(entry.sequence) as i32) > 0;
        if entry.packet != packet && is_next {
            (entry.packet, entry.sequence) = (packet, sequence);
            entry.confirmations += 1;
        }
        Trust::Unconfirmed
    }

    /// The entry of a binding, which becomes the first of its bucket; a new entry replaces the last.
    fn entry(&mut self, key: u64, is_ascending: bool) -> &mut Entry {
        let bucket = &mut self.entries[(key >> 32) as usize & (BUCKETS - 1)];
        let known = bucket.iter().position(|entry| entry.key == key);
        let way = known.unwrap_or(WAYS - 1);
        self.replaced += u64::from(known.is_none() && bucket[way].key != 0);
        bucket[..=way].rotate_right(1);
        if known.is_none() {
            bucket[0] = Entry { key, is_ascending, ..Entry::default() };
        }
        &mut bucket[0]
    }
}

/// The hash of addresses and ports.
fn flow(digest: Digest, bytes: &[u8], compared: &Compared) -> u64 {
    let addresses = match compared.head.kind {
        Kind::V4 => v4::SRC..v4::END,
        _ => v6::SRC..v6::END,
    };
    let l4 = usize::from(compared.l4);
    let ports = bytes.get(l4..l4 + PORTS).filter(|_| l4 > 0 && compared.protocol.has_ports());
    digest.bytes(&bytes[addresses]).bytes(ports.unwrap_or_default()).finish()
}

/// The sequence number of a TCP segment.
pub(crate) fn sequence(region: &[u8], compared: &Compared) -> Option<u32> {
    let flags = compared.tcp_flags(region);
    let at = usize::from(compared.l4) + tcp::SEQUENCE;
    flags.and_then(|_| region[at..].first_chunk()).map(|bytes| u32::from_be_bytes(*bytes))
}
