//! The preparation of packets: the part of the work that needs no table. A thread prepares packets before it gets
//! access to a table that it shares with other threads, and before the cache lines of the table arrive.

use crate::compared::{Compared, Selector};
use crate::table::Prefetcher;
use crate::{Packet, Settings};
use base::Timestamp;
use base::memory::Hints;
use wire::Decoded;

/// The lowest bit of the hash that selects a shard. The bits below select a bucket in the shard.
const SHARD_BIT: u32 = 28;

/// The compared part of a packet, and its hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prepared(pub(crate) Compared);

impl Prepared {
    /// The same packet with this timestamp. The other parts of a prepared packet do not depend on its timestamp.
    #[inline]
    #[must_use]
    pub fn at(mut self, ts: Timestamp) -> Self {
        self.0.head.ts = ts;
        self
    }

    /// The shard of the packet if a table is divided into `count` shards, a power of two of at most 16. A packet and
    /// its copies have the same shard if [`Settings::shards`] permits more than one.
    #[inline]
    pub fn shard(&self, count: usize) -> usize {
        (self.0.head.key >> SHARD_BIT) as usize & (count - 1)
    }
}

/// Prepares packets for the detectors with the same settings and key. See [`crate::Detector::preparer`].
#[derive(Clone, Debug)]
pub struct Preparer {
    selector: Selector,
    decoded: Decoded,
}

impl Preparer {
    pub(crate) fn new(selector: Selector) -> Self {
        Self { selector, decoded: Decoded::default() }
    }

    /// Finds the compared part of a packet.
    #[inline]
    pub fn prepare(&mut self, packet: &Packet<'_>) -> Prepared {
        let mut prepared = Prepared::default();
        self.prepare_into(packet, &mut prepared);
        prepared
    }

    #[inline(always)]
    pub(crate) fn prepare_into(&mut self, packet: &Packet<'_>, prepared: &mut Prepared) {
        self.selector.select(packet, &mut self.decoded, &mut prepared.0);
    }
}

impl<H: Hints> Prefetcher<H> {
    /// Prefetches the bucket of a packet.
    #[inline(always)]
    pub fn prefetch(&self, prepared: &Prepared) {
        self.fetch_bucket(prepared.0.head.key);
    }
}

impl Settings {
    /// The largest number of shards into which a table can be divided so that a packet and its copies have the same
    /// shard: 16, or 1 with the classes NAT, proxying and fragment, whose copies have other hashes.
    pub fn shards(&self) -> usize {
        let has = |class| self.classes.contains(class);
        let is_divisible = !has(crate::Class::Nat) && !has(crate::Class::Proxying) && !self.compares_fragments();
        if is_divisible { 16 } else { 1 }
    }
}
