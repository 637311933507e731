//! The counters of the kernel part of a program, read from its BPF maps.
//!
//! A BPF map exists as long as a reference to it exists, and the XDP dispatcher holds the map only during the capture.
//! This module therefore holds references to the counter maps, so that the final counts are available after the capture
//! has stopped or the interface was removed. The references do not prevent the removal of the interface. If the
//! interface is removed and created again, it has new maps, and this module adds the counts of the old maps to those of
//! the new maps.

use crate::report::MapUsage;
use capture::afxdp::{PortMap, XdpDispatcher};
use ir::COUNTERS;
use kernel_programs::Role;
use std::sync::Arc;

/// The largest number of entries of a flow map that are counted. Each entry costs one system call, because the kernel
/// does not report the number of entries.
const COUNTED_MAX: usize = 1024;

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct KernelAccounting {
    /// The map with the program's counters, followed by the number of refused insertions of each flow map.
    counters: Option<PortMap>,
    /// The counter map of the previous program, if the current program has another map. The map is still read after the
    /// swap, because the previous program may still process a packet when the current program begins.
    retired: Option<PortMap>,
    /// The sum of the counters of earlier programs.
    before: Vec<u64>,
    maps: Vec<KernelMap>,
}

/// A flow map of the kernel part.
#[derive(Clone, Debug)]
struct KernelMap {
    /// The map's index in the program.
    number: u16,
    map: PortMap,
    /// The kernel counts refused insertions by map index, and a map may have had another index in the previous program.
    /// `base` is the value of the refusal counter with this index when the program began; `carried` is the part of that
    /// value that belongs to this map.
    base: u64,
    carried: u64,
}

impl KernelAccounting {
    /// Starts to count for a new program that has this number of flow maps. This function is also called when no
    /// program runs any more.
    pub fn begin(&mut self, dispatcher: &XdpDispatcher, maps: usize) {
        let counters = dispatcher.map(Role::Counters);
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
        let old = std::mem::take(&mut self.maps);
        let before = self.numbers();
        self.counters = counters;
        let now = self.numbers();
        let kernel_map = |number: u16| {
            let map = dispatcher.map(Role::Flow(number))?;
            let same = old.iter().find(|old| Arc::ptr_eq(&old.map, &map));
            let carried = same.map_or(0, |old| old.refused(&before));
            Some(KernelMap { number, map, base: refusals(&now, number), carried })
        };
        self.maps = (0..maps as u16).filter_map(kernel_map).collect();
    }

    /// Returns the program's counters, followed by the number of refused insertions of each flow map.
    pub fn numbers(&self) -> Vec<u64> {
        let mut sum = self.before.clone();
        self.counters.iter().chain(&self.retired).for_each(|map| add(&mut sum, &read(map)));
        sum
    }

    /// True if the program's map with this index is in the kernel.
    pub fn has(&self, map: usize) -> bool {
        self.maps.iter().any(|of| usize::from(of.number) == map)
    }

    /// Returns index and fill level of each map. Costs one system call per map entry. `numbers` is the result of
    /// [`Self::numbers`].
    pub fn maps(&self, numbers: &[u64]) -> impl Iterator<Item = (usize, MapUsage)> {
        self.maps.iter().map(|of| {
            let used = of.map.keys_behind(None, COUNTED_MAX).map_or(0, |keys| keys.len());
            let used = (used < COUNTED_MAX).then_some(used as u64);
            let capacity = of.map.spec().entries.into();
            (usize::from(of.number), MapUsage { used, capacity, refused: of.refused(numbers) })
        })
    }
}

impl KernelMap {
    fn refused(&self, numbers: &[u64]) -> u64 {
        self.carried + refusals(numbers, self.number).saturating_sub(self.base)
    }
}

fn refusals(numbers: &[u64], map: u16) -> u64 {
    numbers.get(usize::from(COUNTERS) + usize::from(map)).copied().unwrap_or(0)
}

/// Returns the counters of the map, summed over all CPUs; empty if the kernel returns an error.
fn read(map: &PortMap) -> Vec<u64> {
    let mut sum = Vec::new();
    let bytes = map.get(&0u32.to_ne_bytes()).ok().flatten().unwrap_or_default();
    for of_cpu in bytes.chunks_exact(map.spec().value_bytes as usize) {
        let numbers: Vec<u64> = of_cpu.as_chunks().0.iter().map(|n| u64::from_ne_bytes(*n)).collect();
        add(&mut sum, &numbers);
    }
    sum
}

/// Adds modulo 2^64, because programs can also decrement counters.
fn add(sum: &mut Vec<u64>, more: &[u64]) {
    sum.resize(sum.len().max(more.len()), 0);
    sum.iter_mut().zip(more).for_each(|(sum, n)| *sum = sum.wrapping_add(*n));
}
