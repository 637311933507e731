//! What the kernel half has counted, by its own maps.
//!
//! A map lives for as long as somebody holds it, and its port holds it no longer than it is captured. So the maps that count are held here
//! too: what they say after the capture has stopped, or the port has gone, is the last word of the program. The port itself is not held by
//! that and can come back; then it has new maps, and what the old ones had counted is added to theirs.

use capture::afxdp::{PortMap, XdpDispatcher};
use ir::COUNTERS;
use kernel_programs::Role;
use serde::Serialize;
use std::ops::AddAssign;
use std::sync::Arc;

/// Entries of a flow map that are counted one by one, at a system call each. The kernel does not say how many there are.
const CHECK_INTERVAL: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelAccounting {
    /// Counters and, behind them, the refusals of each map.
    counters: Option<PortMap>,
    /// Those of the programs before, if it was another map: a packet may still be in its program when the next one begins.
    retired: Option<PortMap>,
    /// What older ones came to.
    before: Vec<u64>,
    tables: Vec<Table>,
}

/// A flow map of the kernel half.
#[derive(Clone, Debug)]
struct Table {
    /// Its index in the program.
    map: u16,
    held: PortMap,
    /// What stood at its place among the refusals when the program began, and what of that is its own.
    base: u64,
    carried: u64,
}

/// How full a map is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MapUsage {
    /// Entries, those that have expired and were not yet taken out included. Nothing where they are in the kernel and more than are
    /// counted (1023).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Entries that there is room for.
    pub capacity: u64,
    /// Entries that it refused because it was full.
    pub refused: u64,
}

impl AddAssign for MapUsage {
    fn add_assign(&mut self, o: Self) {
        self.used = self.used.zip(o.used).map(|(a, b)| a + b);
        self.capacity += o.capacity;
        self.refused += o.refused;
    }
}

impl KernelAccounting {
    /// The port runs a program of so many maps now, or none.
    pub fn turn(&mut self, steer: &XdpDispatcher, maps: usize) {
        let counters = steer.map(Role::Counters);
        let same = match (&self.counters, &counters) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, _) => old.is_none(),
        };
        if !same {
            if let Some(retired) = self.retired.take() {
                add(&mut self.before, &read(&retired));
            }
            self.retired = self.counters.take();
        }
        let old = std::mem::take(&mut self.tables);
        let was = self.numbers();
        self.counters = counters;
        let now = self.numbers();
        let table = |map: u16| {
            let held = steer.map(Role::Flow(map))?;
            let before = old.iter().find(|old| Arc::ptr_eq(&old.held, &held));
            let carried = before.map_or(0, |old| old.refused(&was));
            Some(Table { map, held, base: refusals(&now, map), carried })
        };
        self.tables = (0..maps as u16).filter_map(table).collect();
    }

    /// All numbers: the counters, and behind them the refusals.
    pub fn numbers(&self) -> Vec<u64> {
        let mut sum = self.before.clone();
        self.counters.iter().chain(&self.retired).for_each(|map| add(&mut sum, &read(map)));
        sum
    }

    /// Whether this map of the program is in the kernel.
    pub fn has(&self, map: usize) -> bool {
        self.tables.iter().any(|table| usize::from(table.map) == map)
    }

    /// How full the maps are, by their index. A system call for each entry; `numbers` are those of now.
    pub fn tables(&self, numbers: &[u64]) -> impl Iterator<Item = (usize, MapUsage)> {
        self.tables.iter().map(|table| {
            let used = table.held.keys_behind(None, CHECK_INTERVAL).map_or(0, |keys| keys.len());
            let used = (used < CHECK_INTERVAL).then_some(used as u64);
            let most = table.held.spec().entries.into();
            (usize::from(table.map), MapUsage { used, capacity: most, refused: table.refused(numbers) })
        })
    }
}

impl Table {
    fn refused(&self, numbers: &[u64]) -> u64 {
        self.carried + refusals(numbers, self.map).saturating_sub(self.base)
    }
}

fn refusals(numbers: &[u64], map: u16) -> u64 {
    numbers.get(usize::from(COUNTERS) + usize::from(map)).copied().unwrap_or(0)
}

/// The numbers of all processors together; nothing where the kernel does not answer.
fn read(map: &PortMap) -> Vec<u64> {
    let mut sum = Vec::new();
    let bytes = map.get(&0u32.to_ne_bytes()).ok().flatten().unwrap_or_default();
    for of_cpu in bytes.chunks_exact(map.spec().value_bytes as usize) {
        let numbers: Vec<u64> = of_cpu.as_chunks().0.iter().map(|n| u64::from_ne_bytes(*n)).collect();
        add(&mut sum, &numbers);
    }
    sum
}

/// Modulo 2^64, because programs count down too.
fn add(sum: &mut Vec<u64>, more: &[u64]) {
    sum.resize(sum.len().max(more.len()), 0);
    sum.iter_mut().zip(more).for_each(|(sum, n)| *sum = sum.wrapping_add(*n));
}
