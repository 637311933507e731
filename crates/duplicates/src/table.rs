//! The records of the last packets, and the index that finds records by a hash.
//!
//! The records are a ring in order of arrival, so a new record overwrites the oldest, and writing is sequential. The
//! index is an array of buckets of one cache line. A bucket has the newest [`WAYS`] packets whose key selects the
//! bucket, newest first; an entry is 32 bits of the hash and the low 32 bits of the number of the packet. Entries of
//! overwritten records are recognised by their number. All memory is reserved at once, and its size depends on the
//! settings alone.

use crate::fields::Kind;
use base::Timestamp;
use base::memory::{Hints, HintsExt};

/// Entries of a bucket.
pub(crate) const WAYS: usize = 8;

/// Bytes of the MAC addresses, which are part of the stored bytes but are in the head of the record.
const MACS: usize = 12;

/// The stored bytes of a record are a multiple of this number, so that records of the default length do not share cache
/// lines.
const UNIT: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket {
    tags: [u32; WAYS],
    numbers: [u32; WAYS],
}

const EMPTY: Bucket = Bucket { tags: [0; WAYS], numbers: [0; WAYS] };

/// The fixed part of a record: one cache line. The index entry of a further hash contains its upper half; the head
/// contains the lower half.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Head {
    /// A hash of the bytes of the region that are equal in both copies of the classes switching and routing, without
    /// the IPv4 identification, and of the length on the wire.
    pub key: u64,
    pub ts: Timestamp,
    /// The MAC addresses of the innermost Ethernet header, or those of the frame.
    pub macs: [u8; MACS],
    /// The lower half of the hash for the class proxying: of the ports and the payload of a TCP segment; 0 if the
    /// segment has no payload or the class is not enabled.
    pub body: u32,
    /// The lower half of the hash for the class NAT: of the region without the addresses, the ports, and the bytes that
    /// routers change; 0 if the class is not enabled.
    pub translated: u32,
    /// The tunnel or the labels around the region; 0 if there are none. See [`crate::encapsulation`].
    pub outer: u32,
    /// The captured length of the region in bytes.
    pub len: u32,
    /// The time since the first packet of the chain of copies, in units of [`crate::chain::UNIT_NANOS`].
    pub since_first: i32,
    /// The low bits of the number of the first packet of the chain of copies.
    pub chain: u32,
    /// The IDs of the VLAN tags, each in 16 bits; 0 without tags.
    pub vlans: u32,
    pub interface: u16,
    /// The IPv4 identification of the packet that contains the innermost tunnel; 0 if there is none.
    pub outer_id: u16,
    /// The TTL of the outermost IP header or label around the region; 0 if there is none, or if the innermost packet
    /// has an Ethernet header of its own.
    pub outer_ttl: u8,
    /// The number of earlier copies in the chain since the TTL last decreased.
    pub copies: u8,
    pub kind: Kind,
    pub has_macs: bool,
}

const _: () = assert!(size_of::<Head>() == 64 && size_of::<Bucket>() == 64);

/// Prefetches the buckets of a detector without access to the detector, which another thread may be using. The memory
/// of the buckets neither moves nor changes its size; after the end of the detector a prefetch has no effect.
#[derive(Clone, Copy, Debug)]
pub struct Prefetcher<H> {
    /// The address of the first bucket.
    buckets: usize,
    /// The number of buckets less one.
    mask: u64,
    hints: H,
}

impl<H: Hints> Prefetcher<H> {
    /// Prefetches the bucket of a key.
    #[inline(always)]
    pub(crate) fn fetch_bucket(&self, key: u64) {
        let bucket = (key & self.mask) as usize;
        self.hints.prefetch((self.buckets + bucket * size_of::<Bucket>()) as *const u8);
    }
}

/// The table.
#[derive(Clone)]
pub(crate) struct Table<H> {
    heads: Vec<Head>,
    bytes: Vec<u8>,
    /// Stored bytes of a region.
    stride: usize,
    records: usize,
    buckets: Vec<Bucket>,
    /// The number of the next packet.
    next: u64,
    /// The record that the next packet overwrites.
    slot: usize,
    hints: H,
}

/// The largest number of index entries with one hash. The other entries of the bucket remain for other packets.
pub(crate) const EQUAL_MAX: usize = WAYS - 2;

/// An entry that a search found: its place in the bucket, and the age of the packet in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub way: usize,
    pub age: u64,
    slot: usize,
}

/// Stored bytes of a region for this setting.
pub(crate) fn stride(stored_bytes: usize) -> usize {
    (stored_bytes - MACS).next_multiple_of(UNIT)
}

/// Two records per bucket on average, so that less than one record in a thousand is evicted while its window lasts.
fn buckets(records: usize) -> usize {
    records.div_ceil(2).next_power_of_two()
}

/// Memory in bytes.
pub(crate) fn memory(records: usize, stored_bytes: usize) -> u64 {
    let record = size_of::<Head>() + stride(stored_bytes);
    records as u64 * record as u64 + (buckets(records) * size_of::<Bucket>()) as u64
}

impl<H: Hints> Table<H> {
    pub fn new(records: usize, stored_bytes: usize, hints: H) -> Self {
        let stride = stride(stored_bytes);
        let mut index = hints.reserve(buckets(records));
        index.resize(buckets(records), EMPTY);
        Self {
            heads: hints.reserve(records),
            bytes: hints.reserve(records * stride),
            stride,
            records,
            buckets: index,
            next: 0,
            slot: 0,
            hints,
        }
    }

    /// Stored bytes of a region.
    pub fn stride(&self) -> usize {
        self.stride
    }

    #[inline(always)]
    fn bucket(&self, key: u64) -> usize {
        key as usize & (self.buckets.len() - 1)
    }

    /// See [`Prefetcher`].
    #[inline(always)]
    pub fn prefetcher(&self) -> Prefetcher<H> {
        let (buckets, mask) = (self.buckets.as_ptr().addr(), self.buckets.len() as u64 - 1);
        Prefetcher { buckets, mask, hints: self.hints }
    }

    /// The entries of a key whose records still exist, newest first, from this place in the bucket on.
    #[inline(always)]
    pub fn find(&self, key: u64, from: usize) -> Option<Found> {
        let bucket = &self.buckets[self.bucket(key)];
        let tag = tag(key);
        // All tags are compared at once; a loop that ends early would be mispredicted for each packet.
        let is_any = bucket.tags.iter().fold(false, |is_any, other| is_any | (*other == tag));
        if is_any { self.live(bucket, tag, from) } else { None }
    }

    #[inline(never)]
    fn live(&self, bucket: &Bucket, tag: u32, from: usize) -> Option<Found> {
        (from..WAYS).filter(|way| bucket.tags[*way] == tag).find_map(|way| {
            let age = self.age(bucket.numbers[way]);
            self.slot_of(age).map(|slot| Found { way, age, slot })
        })
    }

    /// The number of the next packet.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The age in packets of the packet with this number. After 2^32 packets an old entry can look young; its record is
    /// then the record of another packet, and the comparison rejects the record.
    #[inline(always)]
    pub fn age(&self, number: u32) -> u64 {
        u64::from((self.next as u32).wrapping_sub(number))
    }

    #[inline(always)]
    fn slot_of(&self, age: u64) -> Option<usize> {
        if age == 0 || age > self.heads.len() as u64 {
            return None;
        }
        let age = age as usize;
        Some(if age <= self.slot { self.slot - age } else { self.slot + self.records - age })
    }

    pub fn head(&self, found: Found) -> &Head {
        &self.heads[found.slot]
    }

    /// The stored bytes of a record's region.
    pub fn stored(&self, found: Found) -> &[u8] {
        let len = self.stride.min(self.heads[found.slot].len as usize);
        &self.bytes[found.slot * self.stride..][..len]
    }

    /// The timestamp of the oldest record.
    pub fn oldest(&self) -> Option<Timestamp> {
        let oldest = if self.heads.len() < self.records { self.heads.first() } else { self.heads.get(self.slot) };
        oldest.map(|head| head.ts)
    }

    /// Writes the record of the next packet. Returns the timestamp of the record that was overwritten.
    #[inline(always)]
    pub fn write(&mut self, head: Head, region: &[u8]) -> Option<Timestamp> {
        let at = self.slot * self.stride;
        let mut overwritten = None;
        if let Some(old) = self.heads.get_mut(self.slot) {
            overwritten = Some(old.ts);
            *old = head;
        } else {
            self.heads.push(head);
            self.bytes.resize(at + self.stride, 0);
        }
        let room = &mut self.bytes[at..at + self.stride];
        if let Some(whole) = region.get(..room.len()) {
            room.copy_from_slice(whole);
        } else {
            room[..region.len()].copy_from_slice(region);
        }
        self.slot = if self.slot + 1 == self.records { 0 } else { self.slot + 1 };
        self.next += 1;
        overwritten
    }

    /// Changes the hashes in the record of a packet, if the record still exists, so that no later packet finds the
    /// record.
    pub fn forget(&mut self, number: u64) {
        let slot = self.next.checked_sub(number).and_then(|age| self.slot_of(age));
        if let Some(head) = slot.and_then(|slot| self.heads.get_mut(slot)) {
            (head.key, head.body, head.translated) = (!head.key, 0, 0);
        }
    }

    /// Removes a further hash of a record, so that no other packet finds the record by this hash.
    pub fn consume(&mut self, found: Found, hash: impl FnOnce(&mut Head) -> &mut u32) {
        *hash(&mut self.heads[found.slot]) = 0;
    }

    /// Adds an index entry for the packet whose record is written next. The new entry replaces the entry `replaces` of
    /// the same key if it exists; otherwise the oldest entry of the bucket is evicted. Returns the evicted entry if its
    /// record still exists.
    #[inline(always)]
    pub fn enter(&mut self, key: u64, replaces: Option<Found>) -> Option<Found> {
        let index = self.bucket(key);
        let last = replaces.and_then(|found| self.way_of(key, found)).unwrap_or(WAYS - 1);
        let bucket = &self.buckets[index];
        let mut evicted = None;
        if bucket.tags[last] != 0 {
            let age = self.age(bucket.numbers[last]);
            evicted = self.slot_of(age).map(|slot| Found { way: last, age, slot });
        }
        let number = self.next as u32;
        let bucket = &mut self.buckets[index];
        if last == WAYS - 1 {
            // The usual case has a constant length, so that the compiler moves the entries in registers.
            bucket.tags = shifted(bucket.tags, tag(key));
            bucket.numbers = shifted(bucket.numbers, number);
        } else {
            bucket.tags.copy_within(..last, 1);
            bucket.numbers.copy_within(..last, 1);
            (bucket.tags[0], bucket.numbers[0]) = (tag(key), number);
        }
        evicted
    }

    /// The place in the bucket of an entry that was found before, perhaps before another entry was added.
    #[inline(never)]
    fn way_of(&self, key: u64, found: Found) -> Option<usize> {
        let (bucket, number) = (&self.buckets[self.bucket(key)], (self.next - found.age) as u32);
        (found.way..WAYS).find(|way| bucket.numbers[*way] == number && bucket.tags[*way] == tag(key))
    }
}

/// The entries with a new first entry and without the last.
#[inline(always)]
fn shifted(entries: [u32; WAYS], first: u32) -> [u32; WAYS] {
    let mut shifted = [first; WAYS];
    shifted[1..].copy_from_slice(&entries[..WAYS - 1]);
    shifted
}

/// The part of a hash that an entry stores; not 0, which marks an empty entry.
#[inline(always)]
fn tag(key: u64) -> u32 {
    (key >> 32) as u32 | 1
}
