//! Selects the greatest of many rows, if each row is a separate group. Rows that cannot be in the ranking are dropped
//! early.

use std::cmp::Ordering;

/// Number of rows kept in addition to the ranking, before the rows that are not in the ranking are dropped.
const SLACK: usize = 4096;

/// The greatest rows; see the module documentation.
pub struct TopN {
    words: usize,
    by: usize,
    stride: usize,
    keep: usize,
    rows: Vec<u64>,
    /// The least amount of the rows in the ranking; 0 until the ranking is full.
    threshold: u64,
    added: u64,
}

/// The order of rows: by an amount, the greatest first, then by key, so that equal amounts have an order too.
pub fn rank(words: usize, by: usize, a: &[u64], b: &[u64]) -> Ordering {
    b[words + by].cmp(&a[words + by]).then_with(|| a[..words].cmp(&b[..words]))
}

impl TopN {
    /// Keeps the `keep` greatest rows by the amount with index `by`. A row has `stride` words, of which the first
    /// `words` are the key.
    pub fn new(words: usize, stride: usize, by: usize, keep: usize) -> Self {
        Self { words, by, stride, keep, rows: Vec::new(), threshold: 0, added: 0 }
    }

    /// Adds a row, unless its amount is below the threshold.
    #[inline]
    pub fn add(&mut self, row: &[u64]) {
        self.added += 1;
        if row[self.words + self.by] < self.threshold {
            return;
        }
        self.rows.extend_from_slice(row);
        if self.rows.len() >= (self.keep.saturating_add(SLACK)).saturating_mul(2 * self.stride) {
            self.drop_smaller();
        }
    }

    /// Number of rows added, including the dropped rows.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// The rows that have not been dropped: at least the greatest `keep` rows.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.rows.chunks_exact(self.stride)
    }

    /// Adds the rows of another [`TopN`].
    pub fn merge(&mut self, other: &Self) {
        let added = self.added + other.added;
        other.rows().for_each(|row| self.add(row));
        self.added = added;
    }

    fn drop_smaller(&mut self) {
        let mut rows: Vec<&[u64]> = self.rows.chunks_exact(self.stride).collect();
        let (words, by) = (self.words, self.by);
        if self.keep == 0 || self.keep >= rows.len() {
            rows.truncate(self.keep);
        } else {
            let (_, smallest, _) = rows.select_nth_unstable_by(self.keep - 1, |a, b| rank(words, by, a, b));
            self.threshold = smallest[words + by];
            rows.truncate(self.keep);
        }
        self.rows = rows.concat();
    }
}
