//! Records in, groups out.
//!
//! Keys and amounts are taken from each record at once and wait in a small batch until their groups are looked up
//! together: the lookups of a batch wait for memory side by side.

use super::table::Table;
use super::top::{TopN, rank};
use super::{Field, Measure, Plan, ReportError, Value};
use flow::{EndReason, Record};

/// Rows that are looked up together.
const BATCH: usize = 64;

/// Sums in the making.
pub struct Aggregator {
    plan: Plan,
    table: Table,
    /// Where each flow is a group: those that are told by one record need no table.
    best: Option<TopN>,
    totals: Vec<u64>,
    records: u64,
    waiting: Vec<u64>,
    hashes: Vec<u64>,
}

/// What it came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// What was grouped by: the values of each line.
    pub fields: Vec<Field>,
    /// What was added up: the amounts of each line.
    pub measures: Vec<Measure>,
    /// Which of the measures the lines are ranked by.
    pub by: usize,
    /// The groups that were wanted, greatest first; equal ones in the order of their keys.
    pub lines: Vec<GroupRow>,
    /// The amounts of all records together, each record once.
    pub totals: Vec<u64>,
    /// How many groups there are, those that were not wanted included.
    pub groups: u64,
    /// How many records there were.
    pub records: u64,
}

/// One group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// Field by field.
    pub values: Vec<Value>,
    /// Measure by measure.
    pub amounts: Vec<u64>,
}

impl Aggregator {
    /// None yet.
    pub fn new(plan: Plan) -> Self {
        let joins: Vec<_> = plan.measures().iter().map(|m| m.join()).collect();
        let totals = plan.measures().iter().map(|m| m.none()).collect();
        let table = Table::new(plan.words(), joins, plan.most());
        let best = (plan.is_by_flow() && plan.kept() < plan.most())
            .then(|| TopN::new(plan.words(), table.stride(), plan.by(), plan.kept()));
        Self { plan, table, best, totals, records: 0, waiting: Vec::new(), hashes: Vec::new() }
    }

    /// Takes one more record.
    ///
    /// # Errors
    /// When there are more groups than the plan allows.
    #[inline]
    pub fn add(&mut self, record: &Record) -> Result<(), ReportError> {
        self.records += 1;
        let (stride, words) = (self.table.stride(), self.plan.words());
        let begin = self.waiting.len();
        let mut end = begin + stride;
        self.waiting.resize(begin + 2 * stride, 0);
        let (row, other) = self.waiting[begin..].split_at_mut(stride);
        fill(&self.plan, record, false, row);
        for ((total, amount), measure) in self.totals.iter_mut().zip(&row[words..]).zip(self.plan.measures()) {
            *total = measure.join().of(*total, *amount);
        }
        if self.plan.is_either() {
            fill(&self.plan, record, true, other);
            end += if row[..words] == other[..words] { 0 } else { stride };
        }
        let whole = record.record_index == 0 && record.end_reason != EndReason::ActiveTimeout;
        if let Some(best) = self.best.as_mut().filter(|_| whole) {
            self.waiting[begin..end].chunks_exact(stride).for_each(|row| best.offer(row));
            end = begin;
        }
        self.waiting.truncate(end);
        if end >= BATCH * stride { self.look_up() } else { Ok(()) }
    }

    /// Takes what another has added up by the same plan.
    ///
    /// # Errors
    /// As [`Aggregator::add`].
    ///
    /// # Panics
    /// If the plans differ.
    pub fn merge(&mut self, mut other: Self) -> Result<(), ReportError> {
        assert!(self.plan == other.plan, "sums of different things have no sum");
        self.look_up()?;
        other.look_up()?;
        self.records += other.records;
        for ((total, more), measure) in self.totals.iter_mut().zip(&other.totals).zip(self.plan.measures()) {
            *total = measure.join().of(*total, *more);
        }
        for row in other.table.rows() {
            self.insert(self.plan.hash(&row[..self.plan.words()]), row)?;
        }
        if let (Some(mine), Some(its)) = (&mut self.best, &other.best) {
            mine.merge(its);
        }
        Ok(())
    }

    /// The answer.
    ///
    /// # Errors
    /// As [`Aggregator::add`]: of the last few records.
    pub fn finish(mut self) -> Result<Aggregation, ReportError> {
        self.look_up()?;
        let (words, by, keep) = (self.plan.words(), self.plan.by(), self.plan.kept());
        let mut rows: Vec<&[u64]> = self.table.rows().collect();
        rows.extend(self.best.iter().flat_map(TopN::rows));
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
            groups: self.table.len() as u64 + self.best.as_ref().map_or(0, TopN::offered),
            records: self.records,
        })
    }

    fn look_up(&mut self) -> Result<(), ReportError> {
        let (stride, words) = (self.table.stride(), self.plan.words());
        let rows = self.waiting.chunks_exact(stride);
        self.hashes.clear();
        self.hashes.extend(rows.map(|row| self.plan.hash(&row[..words])));
        let touched = self.hashes.iter().fold(0, |all, hash| all ^ self.table.touch(*hash));
        std::hint::black_box(touched);
        let mut waiting = std::mem::take(&mut self.waiting);
        let done =
            (0..self.hashes.len()).try_for_each(|i| self.insert(self.hashes[i], &waiting[i * stride..][..stride]));
        waiting.clear();
        self.waiting = waiting;
        done
    }

    #[inline]
    fn insert(&mut self, hash: u64, row: &[u64]) -> Result<(), ReportError> {
        match self.table.join(hash, row) {
            true => Ok(()),
            false => Err(ReportError::TooManyGroups { limit: self.plan.most() }),
        }
    }
}

/// Writes key and amounts of a record into a row of zeros.
#[inline]
fn fill(plan: &Plan, record: &Record, turned: bool, row: &mut [u64]) {
    let (key, amounts) = row.split_at_mut(plan.words());
    plan.key(record, turned, key);
    for (amount, measure) in amounts.iter_mut().zip(plan.measures()) {
        *amount = measure.of(record, turned);
    }
}

impl Aggregation {
    /// How much of all an amount is, from 0 to 1; of a sum that is not zero. Where records count for both of their
    /// ends, the shares of all lines together are more than 1.
    pub fn share(&self, line: &GroupRow, measure: usize) -> Option<f64> {
        let is_sum = self.measures[measure].join() == super::MergeRule::Sum;
        let total = self.totals[measure];
        (is_sum && total > 0).then(|| line.amounts[measure] as f64 / total as f64)
    }
}
