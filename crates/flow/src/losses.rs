//! What the interface lost, by second, for as long as a record may still ask for it.

use std::collections::VecDeque;

/// Seconds with losses that are remembered: those of more than an hour in which every second loses something.
const MOST: usize = 4096;

/// Seconds in which packets were lost, oldest first, with the sum of all losses up to and including each.
#[derive(Default)]
pub(crate) struct Losses {
    sums: VecDeque<(u64, u64)>,
    /// The sum before the oldest.
    before: u64,
}

impl Losses {
    /// Packets were lost in a second. A second before one that was given already is taken as that one.
    pub fn add(&mut self, second: u64, packets: u64) {
        match self.sums.back_mut() {
            Some((last, sum)) if *last >= second => *sum += packets,
            back => {
                let sum = back.map_or(self.before, |b| b.1) + packets;
                self.sums.push_back((second, sum));
            }
        }
        if self.sums.len() > MOST
            && let Some((_, sum)) = self.sums.pop_front()
        {
            self.before = sum;
        }
    }

    /// Whether nothing was lost.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.sums.is_empty()
    }

    /// Packets lost from the first second to the last, both included.
    pub fn between(&self, first: u64, last: u64) -> u64 {
        if self.sums.is_empty() {
            return 0;
        }
        let up_to = |end: usize| if end == 0 { self.before } else { self.sums[end - 1].1 };
        let from = self.sums.partition_point(|s| s.0 < first);
        let to = self.sums.partition_point(|s| s.0 <= last);
        up_to(to) - up_to(from)
    }
}
