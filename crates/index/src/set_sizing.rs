//! Chooses the size of each filter. A filter is folded as long as the fold adds a negligible number of false positives.
//! As long as all filters together still exceed their permitted bytes, the filter is folded whose false positives grow
//! least per byte saved.

use crate::key::KeyKind;
use crate::set::{GROUP, Group, Set};

/// The number of bits per key with which a filter has a negligible number of false positives, so that more bits would
/// be of no use.
const AMPLE: usize = 32;

/// Number of possible filter sizes: 2^0 … 2^12 groups.
pub(crate) const LEVELS: usize = 13;

/// A filter is folded as long as its false positive rate stays below this value. At this rate, a query reads one block
/// without a match per 10 GB of packets.
const NEGLIGIBLE: f64 = 1e-4;

/// A filter of ports is folded as long as its false positive rate stays below this value; with four bits per key, a
/// lower rate would need twice the bytes.
const NEGLIGIBLE_PORTS: f64 = 1e-3;

/// A filter of flows or of host sub-blocks is folded as long as its false positive rate stays below this value. It is
/// higher than for other kinds, because these filters are queried only in blocks that have the host. At this rate, a
/// query for a host reads 64 KiB without a match per six blocks; a query for a flow reads one block without a match per
/// hundred blocks that have both hosts and both ports.
const NEGLIGIBLE_HOSTS: f64 = 1e-2;

/// A filter whose false positive rate exceeds this value is omitted: it excludes too few blocks for its bytes.
const USELESS: f64 = 0.6;

/// The fill (share of the bits that are set) of one filter, or of several filters of one kind, and their chosen size.
#[derive(Clone, Debug)]
pub(crate) struct Occupancy {
    kind: KeyKind,
    /// For each size, the sum of the false positive rates that all filters would have at this size. For sizes above its
    /// present size, a filter counts with its present rate.
    wrong: [f64; LEVELS],
    /// log2 of the chosen number of groups; `None` if the filter is omitted, so that every key is admitted.
    level: Option<usize>,
    /// Number of filters that get the chosen size.
    filters: usize,
    /// Number of bytes that a stripe (the groups with one number in all filters) needs in addition to its groups: the
    /// checksum. 0 if the filters are not stored in stripes.
    additional_bytes: usize,
}

impl Occupancy {
    /// The occupancy before the first [`Self::add`]; `additional_bytes` is the number of bytes per stripe in addition
    /// to the groups.
    pub fn new(kind: KeyKind, additional_bytes: usize) -> Self {
        Self { kind, wrong: [0.0; LEVELS], level: Some(0), filters: 0, additional_bytes }
    }

    /// The occupancy of one filter with this number of keys; `full` may have more groups than the keys need.
    #[inline(always)]
    pub fn of(kind: KeyKind, full: &[Group], keys: usize) -> Self {
        let mut fill = Self { filters: 1, ..Self::new(kind, 0) };
        let groups = ample(keys, full.len());
        if groups > 0 {
            fill.count(fullness(full, groups), groups);
        }
        fill
    }

    /// Adds a filter. All filters that are added to this [`Occupancy`] get the same size.
    pub fn add(&mut self, set: &Set) {
        self.filters += 1;
        match set {
            Set::All => self.wrong.iter_mut().for_each(|w| *w += 1.0),
            Set::Groups(groups) if groups.is_empty() => {}
            Set::Groups(groups) => self.count(fullness(groups, groups.len()), groups.len()),
        }
    }

    fn count(&mut self, full: f64, groups: usize) {
        let level = groups.trailing_zeros() as usize;
        self.level = self.level.max(Some(level));
        let mut empty = 1.0 - full;
        for at in (0..LEVELS).rev() {
            // Each fold joins two groups by OR, and their bits are nearly independent.
            if at < level {
                empty *= empty;
            }
            self.wrong[at] += (1.0 - empty).powi(self.kind.bits());
        }
    }

    /// The false positive rate at the chosen size.
    #[cfg(test)]
    pub fn wrong(&self) -> f64 {
        self.level.map_or(1.0, |level| self.wrong_at(level))
    }

    fn wrong_at(&self, level: usize) -> f64 {
        self.wrong[level] / self.filters.max(1) as f64
    }

    fn bytes(&self) -> usize {
        self.level.map_or(0, |level| (self.filters * GROUP + self.additional_bytes) << level)
    }

    /// The increase of the weighted false positive rate per byte saved, if the filter is folded once more, or omitted.
    fn cost_per_byte(&self) -> Option<f64> {
        let level = self.level?;
        let (then, left) = if level == 0 { (1.0, 0) } else { (self.wrong_at(level - 1), self.bytes() / 2) };
        let weight = match self.kind {
            KeyKind::Hosts => 64.0,
            KeyKind::Ports => 8.0,
            // The filter of flows is queried only in blocks that have both hosts and both ports.
            KeyKind::Flows => 2.0,
            // A false positive of host sub-blocks costs a read of only one sixteenth of a block, and is possible only
            // in blocks that have the host. Nevertheless its weight is more than one sixteenth of the weight of a false
            // positive of hosts, because all sixteen sub-blocks are tested in these blocks.
            KeyKind::HostSubBlocks => 8.0,
            _ => 1.0,
        };
        Some(weight * (then - self.wrong_at(level)) / (self.bytes() - left).max(1) as f64)
    }

    fn negligible(&self) -> f64 {
        match self.kind {
            KeyKind::HostSubBlocks | KeyKind::Flows => NEGLIGIBLE_HOSTS,
            KeyKind::Ports => NEGLIGIBLE_PORTS,
            _ => NEGLIGIBLE,
        }
    }

    fn shrink(&mut self) {
        self.level = self.level.and_then(|l| l.checked_sub(1));
    }

    /// Number of groups of a filter of the chosen size; 0 if the filters are omitted.
    pub fn groups(&self) -> usize {
        self.level.map_or(0, |level| 1 << level)
    }

    /// Folds the filter `full`, which has this number of keys, to the chosen size, or to a smaller size if its keys
    /// need fewer groups.
    #[inline(always)]
    pub fn set(&self, full: &[Group], keys: usize) -> Set {
        match self.level {
            _ if keys == 0 => Set::NONE,
            None => Set::All,
            Some(level) => fold(full, ample(keys, full.len()).min(1 << level)),
        }
    }

    /// Folds a set to the chosen size; a smaller set is not changed.
    pub fn apply(&self, set: &mut Set) {
        let Some(level) = self.level else {
            if *set != Set::NONE {
                *set = Set::All;
            }
            return;
        };
        while let Set::Groups(groups) = &*set
            && groups.len() > 1 << level
        {
            set.fold();
        }
    }
}

/// Number of groups that this number of keys needs, at most `most`; 0 without keys.
pub(crate) fn ample(keys: usize, most: usize) -> usize {
    if keys == 0 { 0 } else { (keys * AMPLE).div_ceil(GROUP * 8).next_power_of_two().min(most) }
}

/// Chooses all sizes so that the filters take at most `bytes_max` bytes together.
pub(crate) fn fit(fills: &mut [Occupancy], bytes_max: usize) {
    for fill in fills.iter_mut() {
        while let Some(level @ 1..) = fill.level
            && fill.wrong_at(level - 1) <= fill.negligible().max(1.05 * fill.wrong_at(level))
        {
            fill.shrink();
        }
    }
    while fills.iter().map(Occupancy::bytes).sum::<usize>() > bytes_max {
        let cheapest =
            fills.iter_mut().filter_map(|f| Some((f.cost_per_byte()?, f))).min_by(|(a, _), (b, _)| a.total_cmp(b));
        let Some((_, fill)) = cheapest else { return };
        fill.shrink();
    }
    for fill in fills {
        if fill.level.is_some_and(|level| fill.wrong_at(level) > USELESS) {
            fill.level = None;
        }
    }
}

/// Folds a filter to this number of groups.
#[inline(always)]
pub(crate) fn fold(full: &[Group], groups: usize) -> Set {
    let joined = |part: &[Group]| part.iter().fold([0; 4], |a, g| std::array::from_fn(|w| a[w] | g[w]));
    Set::Groups(full.chunks_exact(full.len() / groups).map(joined).collect())
}

/// The share of the bits that are set after folding to this number of groups. Keys are spread evenly over the groups,
/// so a sample of the groups is enough.
#[inline(always)]
fn fullness(full: &[Group], groups: usize) -> f64 {
    const SAMPLE: usize = 32;
    let step = (groups / SAMPLE).max(1);
    let (mut ones, mut all) = (0, 0);
    for part in full.chunks_exact(full.len() / groups).step_by(step) {
        let joined: Group = part.iter().fold([0; 4], |a, g| std::array::from_fn(|w| a[w] | g[w]));
        ones += joined.iter().map(|w| w.count_ones()).sum::<u32>();
        all += GROUP as u32 * 8;
    }
    f64::from(ones) / f64::from(all)
}
