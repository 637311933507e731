//! The aggregator adds flow records to groups and returns the groups.
//!
//! The key and the amounts of each record are computed when the record is added, and are stored in a small batch of
//! rows. The groups of a batch are looked up together, so that the cache misses of the lookups overlap.

use super::table::Table;
use super::top::{TopN, rank};
use super::{Field, Measure, Plan, ReportError, Value};
use flow::{EndReason, Record};

/// Number of rows whose groups are looked up together.
const BATCH: usize = 64;

/// An aggregation in progress.
pub struct Aggregator {
    plan: Plan,
    table: Table,
    /// The ranking, if every flow is a separate group. A flow with a single record then needs no entry in `table`.
    top: Option<TopN>,
    totals: Vec<u64>,
    records: u64,
    pending: Vec<u64>,
    hashes: Vec<u64>,
}

/// The result of an aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// The fields of the groups, in the order of [`GroupRow::values`].
    pub fields: Vec<Field>,
    /// The measures, in the order of [`GroupRow::amounts`].
    pub measures: Vec<Measure>,
    /// Index of the measure by which the groups are ranked.
    pub by: usize,
    /// The groups of the ranking, the greatest first; groups with equal amounts are in the order of their keys.
    pub lines: Vec<GroupRow>,
    /// The sums of the measures over all records. Each record counts once, even if it belongs to two groups.
    pub totals: Vec<u64>,
    /// Number of groups, including the groups that are not in the ranking.
    pub groups: u64,
    /// Number of records.
    pub records: u64,
}

/// One group of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// The values of the fields.
    pub values: Vec<Value>,
    /// The amounts of the measures.
    pub amounts: Vec<u64>,
}

impl Aggregator {
    /// An aggregation without records.
    pub fn new(plan: Plan) -> Self {
        let merge_rules: Vec<_> = plan.measures().iter().map(|m| m.join()).collect();
        let totals = plan.measures().iter().map(|m| m.none()).collect();
        let table = Table::new(plan.words(), merge_rules, plan.limit_of_groups());
        let top = (plan.is_by_flow() && plan.ranking_length() < plan.limit_of_groups())
            .then(|| TopN::new(plan.words(), table.stride(), plan.by(), plan.ranking_length()));
        Self { plan, table, top, totals, records: 0, pending: Vec::new(), hashes: Vec::new() }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If there are more groups than the plan permits.
    #[inline]
    pub fn add(&mut self, record: &Record) -> Result<(), ReportError> {
        self.records += 1;
        let (stride, words) = (self.table.stride(), self.plan.words());
        let begin = self.pending.len();
        let mut end = begin + stride;
        self.pending.resize(begin + 2 * stride, 0);
        let (row, other) = self.pending[begin..].split_at_mut(stride);
        write_row(&self.plan, record, false, row);
        for ((total, amount), measure) in self.totals.iter_mut().zip(&row[words..]).zip(self.plan.measures()) {
            *total = measure.join().of(*total, *amount);
        }
        if self.plan.counts_both_ends() {
            write_row(&self.plan, record, true, other);
            end += if row[..words] == other[..words] { 0 } else { stride };
        }
        let is_whole_flow = record.record_index == 0 && record.end_reason != EndReason::ActiveTimeout;
        if let Some(top) = self.top.as_mut().filter(|_| is_whole_flow) {
            self.pending[begin..end].chunks_exact(stride).for_each(|row| top.add(row));
            end = begin;
        }
        self.pending.truncate(end);
        if end >= BATCH * stride { self.flush() } else { Ok(()) }
    }

    /// Adds the groups of another aggregation with the same plan.
    ///
    /// # Errors
    /// As [`Aggregator::add`].
    ///
    /// # Panics
    /// If the plans differ.
    pub fn merge(&mut self, mut other: Self) -> Result<(), ReportError> {
        assert!(self.plan == other.plan, "aggregations with different plans cannot be merged");
        self.flush()?;
        other.flush()?;
        self.records += other.records;
        for ((total, more), measure) in self.totals.iter_mut().zip(&other.totals).zip(self.plan.measures()) {
            *total = measure.join().of(*total, *more);
        }
        for row in other.table.rows() {
            self.insert(self.plan.hash(&row[..self.plan.words()]), row)?;
        }
        if let (Some(own), Some(other_top)) = (&mut self.top, &other.top) {
            own.merge(other_top);
        }
        Ok(())
    }

    /// Returns the result.
    ///
    /// # Errors
    /// As [`Aggregator::add`], for the records of the last batch.
    pub fn finish(mut self) -> Result<Aggregation, ReportError> {
        self.flush()?;
        let (words, by, keep) = (self.plan.words(), self.plan.by(), self.plan.ranking_length());
        let mut rows: Vec<&[u64]> = self.table.rows().collect();
        rows.extend(self.top.iter().flat_map(TopN::rows));
        let order = |a: &&[u64], b: &&[u64]| rank(words, by, a, b);
        if keep < rows.len() {
            rows.select_nth_unstable_by(keep, order);
            rows.truncate(keep);
        }
        rows.sort_unstable_by(order);
        let line = |row: &&[u64]| GroupRow { values: self.plan.values(&row[..words]), amounts: row[words..].to_vec() };
        Ok(Aggregation {
            fields: self.plan.fields().to_vec(),
            measures: self.plan.measures().to_vec(),
            by,
            lines: rows.iter().map(line).collect(),
            totals: self.totals,
            groups: self.table.len() as u64 + self.top.as_ref().map_or(0, TopN::added),
            records: self.records,
        })
    }

    fn flush(&mut self) -> Result<(), ReportError> {
        let (stride, words) = (self.table.stride(), self.plan.words());
        let rows = self.pending.chunks_exact(stride);
        self.hashes.clear();
        self.hashes.extend(rows.map(|row| self.plan.hash(&row[..words])));
        let prefetched = self.hashes.iter().fold(0, |all, hash| all ^ self.table.prefetch(*hash));
        std::hint::black_box(prefetched);
        let mut pending = std::mem::take(&mut self.pending);
        let done =
            (0..self.hashes.len()).try_for_each(|i| self.insert(self.hashes[i], &pending[i * stride..][..stride]));
        pending.clear();
        self.pending = pending;
        done
    }

    #[inline]
    fn insert(&mut self, hash: u64, row: &[u64]) -> Result<(), ReportError> {
        match self.table.merge_row(hash, row) {
            true => Ok(()),
            false => Err(ReportError::TooManyGroups { limit: self.plan.limit_of_groups() }),
        }
    }
}

/// Writes the key and the amounts of a record to `row`, which must contain only zeros.
#[inline]
fn write_row(plan: &Plan, record: &Record, from_destination: bool, row: &mut [u64]) {
    let (key, amounts) = row.split_at_mut(plan.words());
    plan.key(record, from_destination, key);
    for (amount, measure) in amounts.iter_mut().zip(plan.measures()) {
        *amount = measure.of(record, from_destination);
    }
}

impl Aggregation {
    /// The share of a group in the total of a measure, from 0 to 1; `None` if the measure is not a sum or the total is
    /// 0. If records count for both of their endpoints, the shares of all groups add up to more than 1.
    pub fn share(&self, line: &GroupRow, measure: usize) -> Option<f64> {
        let is_sum = self.measures[measure].join() == super::MergeRule::Sum;
        let total = self.totals[measure];
        (is_sum && total > 0).then(|| line.amounts[measure] as f64 / total as f64)
    }
}
