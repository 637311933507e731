//! The tables of a capture: a table for each queue, for each interface, or for all interfaces of the process.
//!
//! A shared table is divided into shards, each with its own lock, so that two threads seldom wait for each other. A
//! thread has at most one lock at a time, and waits for nothing while it has a lock; therefore no deadlock is possible.
//! A thread that panics releases its lock, and the other threads continue with the shard: each record of a shard is
//! valid alone.

use ::duplicates::{Detector, Duplicate, Packet, Prefetcher, Prepared, Preparer, Settings, SettingsError};
use meter::MemoryHints;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Which packets are compared with each other.
#[derive(Clone, Debug, Default)]
pub enum DuplicateScope {
    /// The packets of a queue; each queue has a table.
    #[default]
    Queue,
    /// The packets of all queues of an interface, which share a table.
    Interface,
    /// The packets of all interfaces whose plans have the same table.
    Shared(SharedDuplicates),
}

impl DuplicateScope {
    /// The name in reports and in the configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Interface => "interface",
            Self::Shared(_) => "all",
        }
    }
}

/// A table for the plans of several interfaces. Its memory is allocated when the first of these captures starts.
#[derive(Clone, Debug, Default)]
pub struct SharedDuplicates(Arc<OnceLock<SharedTable>>);

impl SharedDuplicates {
    /// The table with these settings and this key. If the table exists already, it has the settings of the first plan.
    pub(super) fn table(&self, settings: &Settings, key: u64) -> Result<SharedTable, SettingsError> {
        if let Some(table) = self.0.get() {
            return Ok(table.clone());
        }
        let table = SharedTable::new(settings, key)?;
        Ok(self.0.get_or_init(|| table).clone())
    }
}

/// The counters of a table.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableCounts {
    /// The time that the table reaches back now: the shortest of all shards that had a packet.
    pub reach: Duration,
    /// The shortest reach of the full table so far.
    pub shortest_reach: Option<Duration>,
    /// Equal packets that are not duplicates.
    pub repeats: u64,
    /// Packets whose records were overwritten or evicted before the window ended.
    pub forgotten: u64,
}

impl TableCounts {
    fn of(detector: &Detector<MemoryHints>) -> Self {
        let counts = detector.counts();
        Self {
            reach: detector.reach(),
            shortest_reach: counts.shortest_reach,
            repeats: counts.repeats,
            forgotten: counts.overwritten + counts.evicted,
        }
    }

    fn add(self, other: Self) -> Self {
        let shortest = [self.shortest_reach, other.shortest_reach];
        let reach = [self.reach, other.reach].into_iter().filter(|reach| !reach.is_zero()).min();
        Self {
            reach: reach.unwrap_or_default(),
            shortest_reach: shortest.into_iter().flatten().min(),
            repeats: self.repeats + other.repeats,
            forgotten: self.forgotten + other.forgotten,
        }
    }
}

type Shard = Mutex<Detector<MemoryHints>>;

/// A table that several threads use.
#[derive(Clone)]
pub(super) struct SharedTable {
    shards: Arc<[Shard]>,
    prefetchers: Arc<[Prefetcher<MemoryHints>]>,
    preparer: Preparer,
}

impl std::fmt::Debug for SharedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedTable of {} shards", self.shards.len())
    }
}

impl SharedTable {
    /// Allocates the table.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn new(settings: &Settings, key: u64) -> Result<Self, SettingsError> {
        let settings = shard_settings(settings);
        let shard = |_| Detector::with_hints(settings.clone(), key, MemoryHints);
        let shards: Vec<_> = (0..settings.shards()).map(shard).collect::<Result<_, _>>()?;
        Ok(Self {
            preparer: shards[0].preparer(),
            prefetchers: shards.iter().map(Detector::prefetcher).collect(),
            shards: shards.into_iter().map(Mutex::new).collect(),
        })
    }

    fn shard(&self, prepared: &Prepared) -> std::sync::MutexGuard<'_, Detector<MemoryHints>> {
        let shard = &self.shards[prepared.shard(self.shards.len())];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings of one shard: its part of the records. Interfaces are read by different threads, so their packets are
/// not compared in the order in which they were on the wire.
fn shard_settings(settings: &Settings) -> Settings {
    let records = settings.records.div_ceil(settings.shards());
    Settings { records, unordered_interfaces: true, ..settings.clone() }
}

/// Memory in bytes of a table of a queue, or of a shared table.
pub(crate) fn memory(settings: &Settings, scope: &DuplicateScope) -> u64 {
    match scope {
        DuplicateScope::Queue => settings.memory(),
        _ => shard_settings(settings).memory().saturating_mul(settings.shards() as u64),
    }
}

/// The access of one engine thread to its table.
pub(super) enum TableAccess {
    /// A table that only this thread uses.
    Own(Box<Detector<MemoryHints>>),
    Shared(SharedTable),
}

impl TableAccess {
    pub fn preparer(&self) -> Preparer {
        match self {
            Self::Own(detector) => detector.preparer(),
            Self::Shared(table) => table.preparer.clone(),
        }
    }

    #[inline]
    pub fn prefetch(&self, prepared: &Prepared) {
        match self {
            Self::Own(detector) => detector.prefetcher().prefetch(prepared),
            Self::Shared(table) => table.prefetchers[prepared.shard(table.shards.len())].prefetch(prepared),
        }
    }

    /// Compares a packet. Returns the result and the number of the packet in its table or shard.
    #[inline]
    pub fn inspect(&mut self, packet: &Packet<'_>, prepared: &Prepared) -> (Option<Duplicate>, u64) {
        match self {
            Self::Own(detector) => (detector.inspect_prepared(packet, prepared), detector.counts().packets),
            Self::Shared(table) => {
                let mut shard = table.shard(prepared);
                (shard.inspect_prepared(packet, prepared), shard.counts().packets)
            }
        }
    }

    /// Forgets the packet with this number.
    pub fn forget(&mut self, number: u64, packet: &Packet<'_>, prepared: &Prepared) {
        match self {
            Self::Own(detector) => detector.forget(number, packet),
            Self::Shared(table) => table.shard(prepared).forget(number, packet),
        }
    }

    /// The counters of the table. For a shared table they are those of all threads.
    pub fn counts(&self) -> TableCounts {
        match self {
            Self::Own(detector) => TableCounts::of(detector),
            Self::Shared(table) => {
                let counts = |shard: &Shard| TableCounts::of(&shard.lock().unwrap_or_else(PoisonError::into_inner));
                table.shards.iter().map(counts).fold(TableCounts::default(), TableCounts::add)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;
    use wire::{build::Frame, link};

    fn frames(count: u16) -> Vec<[u8; 60]> {
        let frame = |id: u16| {
            let mut bytes = [0; 60];
            let source = [10, 0, (id >> 8) as u8, id as u8];
            Frame::udp4(source, 1, [10, 0, 0, 2], 2).fragment(id, 0, false).fill(&mut bytes);
            bytes
        };
        (1..=count).map(frame).collect()
    }

    fn packet(data: &[u8], nanos: u64, interface: u16) -> Packet<'_> {
        Packet { ts: Timestamp::from_nanos(nanos), data, wire_len: 60, link_type: link::ETHERNET, interface }
    }

    /// Several threads compare the same packets; of each packet, all but one are duplicates.
    #[test]
    fn threads_that_share_a_table_find_each_packet_once() {
        const THREADS: u64 = 4;
        let frames = frames(500);
        let shared = SharedDuplicates::default();
        let settings = Settings { records: 1 << 16, ..Settings::default() };
        let found: u64 = std::thread::scope(|scope| {
            let spawn = |interface: u64| {
                let mut table = TableAccess::Shared(shared.table(&settings, 3).expect("valid settings"));
                let frames = &frames;
                scope.spawn(move || {
                    let mut preparer = table.preparer();
                    let inspect = |(i, frame): (usize, &[u8; 60])| {
                        let packet = packet(frame, 1000 + i as u64, interface as u16);
                        let prepared = preparer.prepare(&packet);
                        table.prefetch(&prepared);
                        u64::from(table.inspect(&packet, &prepared).0.is_some())
                    };
                    frames.iter().enumerate().map(inspect).sum::<u64>()
                })
            };
            let threads: Vec<_> = (0..THREADS).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(found, (THREADS - 1) * frames.len() as u64);
        let table = TableAccess::Shared(shared.table(&settings, 3).expect("valid settings"));
        assert_eq!(table.counts().forgotten, 0);
    }

    #[test]
    fn a_thread_that_panics_with_a_lock_does_not_stop_the_others() {
        let mut table = TableAccess::Shared(SharedTable::new(&Settings::default(), 3).expect("valid settings"));
        let frames = frames(100);
        let TableAccess::Shared(shared) = &table else { unreachable!() };
        for shard in shared.shards.iter() {
            let panicked = std::thread::scope(|scope| {
                let lock_and_panic = || {
                    let _guard = shard.lock();
                    std::panic::resume_unwind(Box::new("a test"));
                };
                scope.spawn(lock_and_panic).join().is_err()
            });
            assert!(panicked && shard.is_poisoned());
        }
        let mut preparer = table.preparer();
        for round in 0..2 {
            for frame in &frames {
                let packet = packet(frame, 1000 + round, 0);
                let prepared = preparer.prepare(&packet);
                assert_eq!(table.inspect(&packet, &prepared).0.is_some(), round == 1);
            }
        }
    }

    #[test]
    fn a_shared_table_has_the_memory_of_its_shards() {
        let settings = Settings { records: 100_000, ..Settings::default() };
        let shared = DuplicateScope::Shared(SharedDuplicates::default());
        let (own, shared) = (memory(&settings, &DuplicateScope::Queue), memory(&settings, &shared));
        assert!(own == settings.memory() && shared < 3 * own && own < 3 * shared, "{own} {shared}");
    }
}
