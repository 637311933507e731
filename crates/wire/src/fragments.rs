//! Later fragments inherit the ports of the first one of their datagram.
//!
//! A first fragment is remembered by source, destination, identification, protocol and tunnel (RFC 791 §3.2, RFC 8200
//! §4.5) for [`TIMEOUT`] of *packet* time. Memory is fixed: where a new one finds its four places taken, the oldest of
//! them goes. A later fragment that comes before its first, or whose first is forgotten, has addresses and protocol only;
//! [`Decoded::error`] says so. Nothing is reassembled.
//!
//! The answer depends on the packets seen before, so that whoever spreads packets over several threads resolves them
//! before, where all fragments between two addresses come by.

use crate::bytes::{be16, be32, chunk};
use crate::{DecodeError, Decoded, Family, Fragment, IpProtocol, Port, ipv4, ipv6};
use base::{Timestamp, hash};
use std::time::Duration;

/// How long a first fragment is remembered: 30 s, as hosts do for reassembly.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// First fragments that are remembered: 4096, in 256 KiB.
pub const CAPACITY: usize = 4096;

/// Places that a datagram may have.
const BUCKET_ENTRIES: usize = 4;

/// What ties fragments together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    src: u128,
    dst: u128,
    id: u32,
    /// Kind and number of the tunnel, 0 without one: addresses in different tunnels have nothing to do with each other.
    tunnel: u64,
    protocol: IpProtocol,
    is_v6: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    src_port: Port,
    dst_port: Port,
    seen: Timestamp,
}

// One cache line each.
const _: () = assert!(size_of::<Option<Entry>>() == 64);

/// What became of the fragments so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// First fragments that were remembered.
    pub first: u64,
    /// Later ones that inherited their ports.
    pub resolved: u64,
    /// Later ones without a first one.
    pub orphaned: u64,
    /// First ones that had to make place before their time.
    pub evicted: u64,
}

/// See the module.
pub struct Fragments {
    buckets: Box<[[Option<Entry>; BUCKET_ENTRIES]]>,
    key: u64,
    timeout: Duration,
    counts: FragmentCounts,
}

impl Fragments {
    /// With room for [`CAPACITY`] datagrams. The key keeps strangers from aiming at one bucket.
    pub fn new(key: u64) -> Self {
        Self::with(CAPACITY, TIMEOUT, key)
    }

    /// With room for at least `capacity` datagrams, each remembered for `timeout`.
    pub fn with(capacity: usize, timeout: Duration, key: u64) -> Self {
        let buckets = capacity.div_ceil(BUCKET_ENTRIES).next_power_of_two();
        Self { buckets: vec![[None; BUCKET_ENTRIES]; buckets].into(), key, timeout, counts: FragmentCounts::default() }
    }

    /// Gives a later fragment its ports, and remembers those of a first one. Whole datagrams pass untouched.
    #[inline]
    pub fn resolve(&mut self, decoded: &mut Decoded, frame: &[u8], now: Timestamp) {
        if decoded.fragment != Fragment::Whole {
            self.part(decoded, frame, now);
        }
    }

    /// What became of the fragments so far.
    pub const fn counts(&self) -> FragmentCounts {
        self.counts
    }

    #[inline(never)]
    fn part(&mut self, decoded: &mut Decoded, frame: &[u8], now: Timestamp) {
        let Some(key) = Key::of(decoded, frame) else { return };
        match decoded.fragment {
            Fragment::Whole => (),
            Fragment::First if decoded.l4 == 0 && (decoded.src_port, decoded.dst_port) == Default::default() => (),
            Fragment::First => {
                let (src_port, dst_port) = (decoded.src_port, decoded.dst_port);
                self.remember(Entry { key, src_port, dst_port, seen: now });
            }
            Fragment::Later => match self.find(&key, now) {
                Some(first) => {
                    (decoded.src_port, decoded.dst_port) = (first.src_port, first.dst_port);
                    self.counts.resolved += 1;
                }
                None => {
                    decoded.error = decoded.error.or(Some(DecodeError::FragmentOrphan));
                    self.counts.orphaned += 1;
                }
            },
        }
    }

    fn find(&self, key: &Key, now: Timestamp) -> Option<&Entry> {
        let bucket = &self.buckets[self.bucket(key)];
        bucket.iter().flatten().find(|entry| entry.key == *key && self.is_fresh(entry, now))
    }

    fn remember(&mut self, new: Entry) {
        self.counts.first += 1;
        let index = self.bucket(&new.key);
        let bucket = &self.buckets[index];
        let free = |entry: &Option<Entry>| entry.is_none_or(|old| !self.is_fresh(&old, new.seen));
        let place = (bucket.iter().position(|entry| entry.is_some_and(|old| old.key == new.key)))
            .or_else(|| bucket.iter().position(free));
        let place = place.unwrap_or_else(|| {
            self.counts.evicted += 1;
            let age = |way: &usize| bucket[*way].map_or(Timestamp::ZERO, |entry| entry.seen);
            (0..BUCKET_ENTRIES).min_by_key(age).unwrap_or(0)
        });
        self.buckets[index][place] = Some(new);
    }

    /// Packet time may step back, also by years: what lies too far ahead is as good as forgotten.
    fn is_fresh(&self, entry: &Entry, now: Timestamp) -> bool {
        now.since(entry.seen).max(entry.seen.since(now)) <= self.timeout
    }

    fn bucket(&self, key: &Key) -> usize {
        let Key { src, dst, id, tunnel, protocol, .. } = *key;
        let words = [src as u64, (src >> 64) as u64, dst as u64, (dst >> 64) as u64, tunnel];
        let last = u64::from(id) | u64::from(protocol.0) << 32;
        let state = words.into_iter().chain([last]).fold(self.key, hash::combine);
        state as usize & (self.buckets.len() - 1)
    }
}

impl Key {
    fn of(decoded: &Decoded, frame: &[u8]) -> Option<Self> {
        let l3 = usize::from(decoded.l3);
        let (src, dst, id) = match decoded.family {
            Family::Other => return None,
            Family::V4 => {
                let head: &[u8; ipv4::at::END] = chunk(frame, l3)?;
                let address = |at| u128::from(be32(head, at));
                (address(ipv4::at::SRC), address(ipv4::at::DST), be16(head, ipv4::at::ID).into())
            }
            Family::V6 => {
                let address = |at| chunk(frame, l3 + at).map(|b| u128::from_be_bytes(*b));
                (address(ipv6::at::SRC)?, address(ipv6::at::DST)?, ipv6_id(frame, l3)?)
            }
        };
        let tunnel = decoded.tunnel.map_or(0, |t| u64::from(t.kind as u8) << 32 | u64::from(t.id));
        Some(Self { src, dst, id, tunnel, protocol: decoded.protocol, is_v6: decoded.family == Family::V6 })
    }
}

/// What the fragments of one datagram have in common beside their addresses: the identification of the IP packet at `l3`.
pub fn identification(frame: &[u8], l3: usize) -> Option<u32> {
    match frame.get(l3 + ipv4::at::VERSION_IHL)? >> 4 {
        4 => chunk(frame, l3 + ipv4::at::ID).map(|id: &[u8; 2]| be16(id, 0).into()),
        6 => ipv6_id(frame, l3),
        _ => None,
    }
}

/// The identification in the fragment header: the way there is walked once more, since few packets need it.
fn ipv6_id(frame: &[u8], l3: usize) -> Option<u32> {
    let mut kind = IpProtocol(*frame.get(l3 + ipv6::at::NEXT)?);
    let mut at = l3 + ipv6::at::END;
    for _ in 0..ipv6::MAX_EXTENSIONS {
        let head: &[u8; ipv6::at::EXT_MIN] = chunk(frame, at)?;
        if kind == IpProtocol::FRAGMENT {
            return Some(be32(head, ipv6::at::FRAGMENT_ID));
        }
        at += ipv6::extension_len(kind, head[ipv6::at::EXT_LEN]);
        kind = IpProtocol(head[ipv6::at::EXT_NEXT]);
    }
    None
}
