//! Fragment tracking: it gives later fragments the ports of the first fragment of their datagram.
//!
//! A table stores the ports of first fragments by source, destination, identification, protocol and tunnel (RFC 791
//! §3.2, RFC 8200 §4.5) for [`TIMEOUT`] of *packet* time. The table has a fixed size: if the four entries of a bucket
//! are in use, a new first fragment evicts the oldest entry. A later fragment that arrives before its first fragment,
//! or after the eviction of the first fragment, has addresses and protocol only, and [`Decoded::error`] reports an
//! orphan fragment. No datagram is reassembled.
//!
//! The result depends on earlier packets. A program that distributes packets over several threads must therefore
//! resolve fragments before the distribution, in a thread that gets all fragments between two addresses.

use crate::bytes::{be16, be32, chunk};
use crate::{DecodeError, Decoded, Family, Fragment, IpProtocol, Port, ipv4, ipv6};
use base::{Timestamp, hash};
use std::time::Duration;

/// The time for which an entry of a first fragment is valid: 30 s, the reassembly timeout of hosts.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The number of first fragments in the table: 4096, in 256 KiB.
pub const CAPACITY: usize = 4096;

/// Entries of a bucket.
const BUCKET_ENTRIES: usize = 4;

/// The key of a datagram, equal in all its fragments.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    src: u128,
    dst: u128,
    id: u32,
    /// Kind and id of the tunnel, 0 without tunnel. Equal addresses in different tunnels may be different hosts.
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

// An entry fits into one cache line.
const _: () = assert!(size_of::<Option<Entry>>() == 64);

/// The counters of fragment tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// Number of first fragments that were stored in the table.
    pub first: u64,
    /// Number of later fragments whose ports were set from the first fragment.
    pub resolved: u64,
    /// Number of orphan fragments: later fragments whose first fragment is not in the table.
    pub orphaned: u64,
    /// Number of first fragments that were evicted before their timeout.
    pub evicted: u64,
}

/// The table of first fragments.
pub struct Fragments {
    buckets: Box<[[Option<Entry>; BUCKET_ENTRIES]]>,
    key: u64,
    timeout: Duration,
    counts: FragmentCounts,
}

impl Fragments {
    /// A table for [`CAPACITY`] datagrams. The secret key prevents attacks on one bucket.
    pub fn new(key: u64) -> Self {
        Self::with(CAPACITY, TIMEOUT, key)
    }

    /// A table for at least `capacity` datagrams, whose entries are valid for `timeout`.
    pub fn with(capacity: usize, timeout: Duration, key: u64) -> Self {
        let buckets = capacity.div_ceil(BUCKET_ENTRIES).next_power_of_two();
        Self { buckets: vec![[None; BUCKET_ENTRIES]; buckets].into(), key, timeout, counts: FragmentCounts::default() }
    }

    /// Sets the ports of a later fragment, or stores the ports of a first fragment. Whole packets remain unchanged.
    #[inline]
    pub fn resolve(&mut self, decoded: &mut Decoded, frame: &[u8], now: Timestamp) {
        if decoded.fragment != Fragment::Whole {
            self.part(decoded, frame, now);
        }
    }

    /// The counters of fragment tracking since this table was created.
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

    /// Packet time may step back, even by years. So an entry whose time is too far in the future counts as expired.
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

/// The identification of the IP packet at `l3`, equal in all fragments of a datagram.
pub fn identification(frame: &[u8], l3: usize) -> Option<u32> {
    match frame.get(l3 + ipv4::at::VERSION_IHL)? >> 4 {
        4 => chunk(frame, l3 + ipv4::at::ID).map(|id: &[u8; 2]| be16(id, 0).into()),
        6 => ipv6_id(frame, l3),
        _ => None,
    }
}

/// The identification in the fragment header. The function searches the extension headers again, because few packets
/// need the identification.
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
