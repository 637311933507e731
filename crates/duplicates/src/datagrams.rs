//! Stores IPv4 datagrams, and fragments that can be divided again, so that the fragments that a router makes of them
//! are found ([`crate::Class::Fragment`]).
//!
//! A router divides an IPv4 datagram without "don't fragment" if the datagram is larger than the MTU of the next link
//! (RFC 791 §3.2). Each fragment contains a part of the datagram, so the comparison needs all bytes of the datagram.
//! The captured bytes of datagrams that may be divided are stored in a ring of bytes of fixed size. Datagrams with at
//! most [`SMALLEST`] bytes of payload are not stored: no usual link divides them.

use crate::chain::distance;
use crate::compared::{Compared, may_be_divided};
use crate::fields::{Kind, PORTS, tcp, translated_fields, v4};
use base::Timestamp;
use base::hash::{combine, mix64};
use base::memory::{Hints, HintsExt};
use std::time::Duration;

/// Datagrams with at most this many bytes of payload are not stored. Every host must accept datagrams of 576 bytes: 512
/// bytes of data and 64 bytes of headers (RFC 791 §3.1).
const SMALLEST: usize = 512;

/// Bytes of the ring for each record of the table.
const BYTES_PER_RECORD: usize = 64;

/// Records of the table for each entry of the index of datagrams.
const RECORDS_PER_ENTRY: usize = 2;

const WAYS: usize = 8;
const MACS: usize = 12;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    ts: Timestamp,
    number: u64,
    /// Position of the first byte of the datagram in the stream of stored bytes. Modulo the size of the ring, it is the
    /// position in the ring.
    at: u64,
    len: u32,
    macs: [u8; MACS],
    has_macs: bool,
    vlans: u32,
    /// The part of the datagram, in bytes from the beginning of its payload, and whether more parts follow.
    from: u32,
    to: u32,
    is_more: bool,
    header: u8,
}

/// A fragment that is a part of a stored datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub time: Duration,
    pub age: u64,
    pub ttl_drop: u8,
    pub is_vlan_changed: bool,
    pub is_tos_changed: bool,
}

/// The stored datagrams.
#[derive(Clone)]
pub(crate) struct Datagrams {
    entries: Vec<[Entry; WAYS]>,
    bytes: Vec<u8>,
    /// The number of bytes that were written so far.
    end: u64,
}

/// The size of the ring and the number of buckets for a table of this size.
fn sizes(records: usize) -> (usize, usize) {
    let entries = (records / RECORDS_PER_ENTRY / WAYS).max(1).next_power_of_two();
    ((records * BYTES_PER_RECORD).max(1 << 20), entries)
}

/// Memory in bytes.
pub(crate) fn memory(records: usize) -> u64 {
    let (bytes, entries) = sizes(records);
    (bytes + entries * size_of::<[Entry; WAYS]>()) as u64
}

impl Datagrams {
    pub fn new(records: usize, hints: impl Hints) -> Self {
        let (size, count) = sizes(records);
        let mut entries = hints.reserve(count);
        entries.resize(count, [Entry::default(); WAYS]);
        let mut bytes = hints.reserve(size);
        bytes.resize(size, 0);
        Self { entries, bytes, end: 0 }
    }

    /// Stores a datagram, or a fragment that can be divided again. Returns time and age of the datagram whose entry was
    /// evicted, if there is one.
    pub fn store(&mut self, compared: &Compared, region: &[u8], number: u64) -> Option<(Duration, u64)> {
        let ts = compared.head.ts;
        if compared.head.kind != Kind::V4 || !may_be_divided(region) {
            return None;
        }
        let span = Span::of(compared, region)?;
        if (span.to - span.from) as usize <= SMALLEST || region.len() > self.bytes.len() {
            return None;
        }
        let size = self.bytes.len() as u64;
        // A datagram does not wrap around the end of the ring.
        if self.end % size + region.len() as u64 > size {
            self.end = self.end.next_multiple_of(size);
        }
        let at = (self.end % size) as usize;
        self.bytes[at..at + region.len()].copy_from_slice(region);
        let entry = Entry {
            key: key(region),
            ts,
            number,
            at: self.end,
            len: region.len() as u32,
            macs: compared.head.macs,
            has_macs: compared.head.has_macs,
            vlans: compared.head.vlans,
            from: span.from,
            to: span.to,
            is_more: span.is_more,
            header: span.header,
        };
        self.end += region.len() as u64;
        let index = self.bucket(entry.key);
        let bucket = &mut self.entries[index];
        let evicted = bucket[WAYS - 1];
        bucket.copy_within(..WAYS - 1, 1);
        bucket[0] = entry;
        (evicted.len > 0).then(|| (distance(evicted.ts, ts), number - evicted.number))
    }

    /// Removes the datagram with this number, if it is the newest of its bucket.
    pub fn forget(&mut self, region: &[u8], number: u64) {
        if region.len() >= v4::END {
            let index = self.bucket(key(region));
            let newest = &mut self.entries[index][0];
            if newest.number == number {
                newest.len = 0;
            }
        }
    }

    /// The datagram of which this packet is a fragment that a router made. `within` decides by time and age whether the
    /// window contains a datagram. `lost` counts the datagrams of the window whose bytes were overwritten.
    pub fn find(
        &self,
        compared: &Compared,
        region: &[u8],
        number: u64,
        within: impl Fn(Duration, u64) -> bool,
        lost: &mut u64,
    ) -> Option<Part> {
        if compared.head.kind != Kind::V4 || region[v4::ID..v4::FLAGS] == [0, 0] {
            return None;
        }
        let span = Span::of(compared, region).filter(|span| span.is_more || span.from > 0)?;
        let key = key(region);
        let candidates = self.entries[self.bucket(key)].iter().filter(|entry| entry.len > 0 && entry.key == key);
        candidates.into_iter().find_map(|entry| {
            let (time, age) = (distance(entry.ts, compared.head.ts), number - entry.number);
            if !within(time, age) {
                return None;
            }
            let Some(old) = self.content(entry) else {
                *lost += 1;
                return None;
            };
            let ttl_drop = old[v4::TTL].checked_sub(region[v4::TTL]).filter(|drop| *drop > 0)?;
            let is_vlan_changed = entry.vlans != compared.head.vlans;
            let is_tos_changed = old[v4::TOS] != region[v4::TOS];
            let part = Part { time, age, ttl_drop, is_vlan_changed, is_tos_changed };
            is_part(entry, old, &span, compared, region).then_some(part)
        })
    }

    /// The bytes of a datagram, unless they were overwritten.
    fn content(&self, entry: &Entry) -> Option<&[u8]> {
        let size = self.bytes.len() as u64;
        let at = (entry.at % size) as usize;
        (self.end - entry.at <= size).then(|| &self.bytes[at..at + entry.len as usize])
    }

    fn bucket(&self, key: u64) -> usize {
        key as usize & (self.entries.len() - 1)
    }
}

/// The part of a datagram that a packet contains.
struct Span {
    from: u32,
    to: u32,
    is_more: bool,
    /// Length of the IPv4 header.
    header: u8,
}

impl Span {
    fn of(compared: &Compared, region: &[u8]) -> Option<Self> {
        let header = (region[0] & 15) * 4;
        let field = u16::from_be_bytes([region[v4::FLAGS], region[v4::FLAGS + 1]]);
        let from = u32::from(field & 0x1fff) * 8;
        let to = from + compared.wire.checked_sub(header.into())?;
        (usize::from(header) < region.len()).then_some(Self { from, to, is_more: field & 0x2000 != 0, header })
    }
}

/// The hash of protocol and identification. The addresses are compared afterwards, because NAT changes one of them.
fn key(region: &[u8]) -> u64 {
    let id = u64::from(region[v4::ID]) << 8 | u64::from(region[v4::ID + 1]);
    combine(mix64(id), region[v4::PROTOCOL].into())
}

/// True if all captured bytes of a fragment are in the datagram, at the offset of the fragment.
fn is_part(entry: &Entry, old: &[u8], span: &Span, compared: &Compared, region: &[u8]) -> bool {
    let is_smaller = span.from >= entry.from && span.to <= entry.to && span.to - span.from < entry.to - entry.from;
    // The last fragment of the datagram has the flag of the datagram; every other fragment announces more.
    let is_flag_right = span.is_more == (entry.is_more || span.to < entry.to);
    let (source, destination) = (v4::SRC..v4::DST, v4::DST..v4::END);
    let changed = (old[source.clone()] != region[source], old[destination.clone()] != region[destination]);
    let is_other_link = entry.has_macs
        && compared.head.has_macs
        && entry.macs[..6] != compared.head.macs[..6]
        && entry.macs[6..] != compared.head.macs[6..];
    if !is_smaller || !is_flag_right || changed == (true, true) || !is_other_link {
        return false;
    }
    let new = &region[span.header.into()..];
    let at = usize::from(entry.header) + (span.from - entry.from) as usize;
    let Some(original) = old.get(at..).and_then(|rest| rest.get(..new.len())) else { return false };
    if changed == (false, false) {
        return original == new;
    }
    // A later fragment has no ports, so nothing but its bytes connects it with the datagram.
    span.from == 0 && is_translated(original, new, compared, changed.0)
}

/// Compares the transport header and the payload in a first fragment whose address was translated: the port of the
/// translated side and the checksum may differ.
fn is_translated(old: &[u8], new: &[u8], compared: &Compared, is_source: bool) -> bool {
    let Some((ports, checksum)) = translated_fields(compared.protocol) else { return old == new };
    if new.len() < tcp::END {
        return false;
    }
    let port = if ports < PORTS {
        0..0
    } else if is_source {
        0..PORTS / 2
    } else {
        PORTS / 2..PORTS
    };
    let may_differ = |at: usize| port.contains(&at) || (checksum..checksum + 2).contains(&at);
    old.iter().zip(new).enumerate().all(|(at, (a, b))| a == b || may_differ(at))
}
