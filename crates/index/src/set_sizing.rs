//! How large each filter is to be. A filter is folded while that costs next to nothing; when all together are larger
//! than their room, the one is folded whose wrong answers grow least for the bytes it gives.

use crate::key::KeyKind;
use crate::set::{GROUP, Group, Set};

/// Bits for each key at which a filter begins to be folded: it is as good as exact then.
const AMPLE: usize = 32;

/// Sizes that are considered: 2^0 … 2^12 groups.
pub(crate) const LEVELS: usize = 13;

/// A filter is folded while the share of wrong answers stays below this: at 10 GB, one block in 10 000 for nothing.
const NEGLIGIBLE: f64 = 1e-4;

/// The same for ports, of whose keys four bits would take twice the room for the last of the wrong answers.
const NEGLIGIBLE_PORTS: f64 = 1e-3;

/// The same for what is asked only of blocks that have the host already: of their parts, one read of 64 KiB in six
/// blocks for nothing; of a conversation, one block in a hundred of those that have both hosts and both ports.
const NEGLIGIBLE_HOSTS: f64 = 1e-2;

/// With more wrong answers than this a filter is not worth its bytes.
const USELESS: f64 = 0.6;

/// How full a filter is, or many of one kind, and how large it will be.
#[derive(Clone, Debug)]
pub(crate) struct Occupancy {
    kind: KeyKind,
    /// Wrong answers per question at each size; filters that never had so many groups are as good as they were.
    wrong: [f64; LEVELS],
    /// log2 of the groups; `None` to say nothing.
    level: Option<usize>,
    /// Filters that are to have that size.
    filters: usize,
    /// Bytes that each group of all of them takes besides.
    besides: usize,
}

impl Occupancy {
    /// No filters yet; one group of all of them will take so many bytes besides theirs.
    pub fn new(kind: KeyKind, besides: usize) -> Self {
        Self { kind, wrong: [0.0; LEVELS], level: Some(0), filters: 0, besides }
    }

    /// One filter that was filled with so many keys, at a size that may be too large for them.
    #[inline(always)]
    pub fn of(kind: KeyKind, full: &[Group], keys: usize) -> Self {
        let mut fill = Self { filters: 1, ..Self::new(kind, 0) };
        let groups = ample(keys, full.len());
        if groups > 0 {
            fill.count(fullness(full, groups), groups);
        }
        fill
    }

    /// One more filter that is to have the same size.
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
            // Each fold joins two groups, whose bits are as good as independent.
            if at < level {
                empty *= empty;
            }
            self.wrong[at] += (1.0 - empty).powi(self.kind.bits());
        }
    }

    /// Wrong answers per question at the size that was decided.
    #[cfg(test)]
    pub fn wrong(&self) -> f64 {
        self.level.map_or(1.0, |level| self.wrong_at(level))
    }

    fn wrong_at(&self, level: usize) -> f64 {
        self.wrong[level] / self.filters.max(1) as f64
    }

    fn bytes(&self) -> usize {
        self.level.map_or(0, |level| (self.filters * GROUP + self.besides) << level)
    }

    /// What is lost for each byte that folding once more gives, or leaving it out does.
    fn price(&self) -> Option<f64> {
        let level = self.level?;
        let (then, left) = if level == 0 { (1.0, 0) } else { (self.wrong_at(level - 1), self.bytes() / 2) };
        let weight = match self.kind {
            KeyKind::Hosts => 64.0,
            KeyKind::Ports => 8.0,
            // Asked for only together with both hosts and both ports, so where all of those are.
            KeyKind::Flows => 2.0,
            // A wrong answer is one of sixteen, and asked for only in the blocks that have the host; but then sixteen
            // are asked for.
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

    /// Groups it will have; 0 where it says nothing.
    pub fn groups(&self) -> usize {
        self.level.map_or(0, |level| 1 << level)
    }

    /// The set of as many groups as was decided, of a filter that was filled with so many keys, or of fewer if they
    /// want fewer.
    #[inline(always)]
    pub fn set(&self, full: &[Group], keys: usize) -> Set {
        match self.level {
            _ if keys == 0 => Set::NONE,
            None => Set::All,
            Some(level) => fold(full, ample(keys, full.len()).min(1 << level)),
        }
    }

    /// Makes a set as large as was decided, or smaller if it was.
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

/// Groups that so many keys want before it is known what others want; none for no key.
pub(crate) fn ample(keys: usize, most: usize) -> usize {
    if keys == 0 { 0 } else { (keys * AMPLE).div_ceil(GROUP * 8).next_power_of_two().min(most) }
}

/// Decides all sizes, so that together they take at most so many bytes.
pub(crate) fn fit(fills: &mut [Occupancy], room: usize) {
    for fill in fills.iter_mut() {
        while let Some(level @ 1..) = fill.level
            && fill.wrong_at(level - 1) <= fill.negligible().max(1.05 * fill.wrong_at(level))
        {
            fill.shrink();
        }
    }
    while fills.iter().map(Occupancy::bytes).sum::<usize>() > room {
        let cheapest = fills.iter_mut().filter_map(|f| Some((f.price()?, f))).min_by(|(a, _), (b, _)| a.total_cmp(b));
        let Some((_, fill)) = cheapest else { return };
        fill.shrink();
    }
    for fill in fills {
        if fill.level.is_some_and(|level| fill.wrong_at(level) > USELESS) {
            fill.level = None;
        }
    }
}

/// A filter of so many groups, from a larger one.
#[inline(always)]
pub(crate) fn fold(full: &[Group], groups: usize) -> Set {
    let joined = |part: &[Group]| part.iter().fold([0; 4], |a, g| std::array::from_fn(|w| a[w] | g[w]));
    Set::Groups(full.chunks_exact(full.len() / groups).map(joined).collect())
}

/// The share of bits that would be set, were it folded to so many groups. Keys are spread evenly, so of many groups a
/// few tell it.
#[inline(always)]
fn fullness(full: &[Group], groups: usize) -> f64 {
    const ENOUGH: usize = 32;
    let step = (groups / ENOUGH).max(1);
    let (mut ones, mut all) = (0, 0);
    for part in full.chunks_exact(full.len() / groups).step_by(step) {
        let joined: Group = part.iter().fold([0; 4], |a, g| std::array::from_fn(|w| a[w] | g[w]));
        ones += joined.iter().map(|w| w.count_ones()).sum::<u32>();
        all += GROUP as u32 * 8;
    }
    f64::from(ones) / f64::from(all)
}
