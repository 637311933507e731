//! The greatest of many rows, where nobody wants the others and each is a group by itself.

use std::cmp::Ordering;

/// Rows that may wait before the smaller ones are thrown out.
const SLACK: usize = 4096;

/// See the module.
pub struct TopN {
    words: usize,
    by: usize,
    stride: usize,
    keep: usize,
    rows: Vec<u64>,
    /// What a row must reach, once there are enough that do.
    threshold: u64,
    offered: u64,
}

/// How rows are ranked: by an amount, greatest first, then by key, so that equal amounts have an order too.
pub fn rank(words: usize, by: usize, a: &[u64], b: &[u64]) -> Ordering {
    b[words + by].cmp(&a[words + by]).then_with(|| a[..words].cmp(&b[..words]))
}

impl TopN {
    /// The `keep` greatest by the amount number `by` of rows of `stride` words, of which `words` are the key.
    pub fn new(words: usize, stride: usize, by: usize, keep: usize) -> Self {
        Self { words, by, stride, keep, rows: Vec::new(), threshold: 0, offered: 0 }
    }

    /// Looks at one more.
    #[inline]
    pub fn offer(&mut self, row: &[u64]) {
        self.offered += 1;
        if row[self.words + self.by] < self.threshold {
            return;
        }
        self.rows.extend_from_slice(row);
        if self.rows.len() >= (self.keep.saturating_add(SLACK)).saturating_mul(2 * self.stride) {
            self.cut();
        }
    }

    /// How many were offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Those that are left: the greatest, and perhaps a few more.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.rows.chunks_exact(self.stride)
    }

    /// Takes in what another found.
    pub fn merge(&mut self, other: &Self) {
        let offered = self.offered + other.offered;
        other.rows().for_each(|row| self.offer(row));
        self.offered = offered;
    }

    fn cut(&mut self) {
        let mut rows: Vec<&[u64]> = self.rows.chunks_exact(self.stride).collect();
        let (words, by) = (self.words, self.by);
        if self.keep == 0 || self.keep >= rows.len() {
            rows.truncate(self.keep);
        } else {
            let (_, least, _) = rows.select_nth_unstable_by(self.keep - 1, |a, b| rank(words, by, a, b));
            self.threshold = least[words + by];
            rows.truncate(self.keep);
        }
        self.rows = rows.concat();
    }
}
