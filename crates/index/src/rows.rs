//! Ledger rows (the outcome counters of one second each) in a compact representation. Consecutive seconds without
//! events are stored as one run, which takes as much space as a single second, so an idle week costs as much as an idle
//! second. A second without a row is a gap: no recorder ran in this second.
//!
//! Invariants: runs do not overlap, are in order of time, and no two silent runs (runs of seconds without events)
//! touch. There are at most [`Ledger::MAX_ROWS`] runs; the oldest runs are folded into one run as in [`Ledger`], so
//! that the sum of all rows stays exact.

mod bytes;

pub(crate) use bytes::{ReadLimits, decode, encode};

use base::{Ledger, Row, SecondMap, Tally};

/// Ledger rows by second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// For the first second of each run: the number of seconds of the run, and the tally that all its seconds have.
    /// Only silent runs (with a tally of zeros) are longer than one second.
    runs: SecondMap,
}

/// Consecutive seconds with the same tally: any number of seconds without events (a *silent* run), or one second with
/// events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first second of the run, since 1970 (UTC).
    pub second: u64,
    /// Number of seconds of the run.
    pub seconds: u64,
    /// The tally of each second of the run; all zeros in seconds without events.
    pub tally: Tally,
}

impl Rows {
    /// No rows.
    pub const fn new() -> Self {
        Self { runs: SecondMap::new() }
    }

    /// Adds a tally to the row of a second, and creates the row if it is missing, also for a tally of zeros.
    pub fn add(&mut self, second: u64, tally: &Tally) {
        if tally.is_empty() {
            return self.add_silence(second, 1);
        }
        match self.covering(second) {
            Some((first, 1)) => {
                if let Some((_, counted)) = self.runs.get_mut(first) {
                    *counted += tally;
                }
            }
            Some((first, seconds)) => {
                self.runs.remove(first);
                self.put(first, second - first, Tally::default());
                self.put(second, 1, *tally);
                self.put(second + 1, first + seconds - second - 1, Tally::default());
            }
            None => self.put(second, 1, *tally),
        }
        self.fold();
    }

    /// Creates a row of zeros for each of these seconds that has no row.
    pub fn add_silence(&mut self, first: u64, seconds: u64) {
        let (mut at, end) = (first, first.saturating_add(seconds));
        while at < end {
            if let Some((first, seconds)) = self.covering(at) {
                at = first + seconds;
                continue;
            }
            let next = self.runs.begins_at_or_after(at).map_or(end, |next| next.min(end));
            self.put(at, next - at, Tally::default());
            self.join(at);
            at = next;
        }
        self.fold();
    }

    /// Adds all ledger rows of another [`Rows`].
    pub fn merge(&mut self, other: &Self) {
        for run in other.runs() {
            if run.is_silent() {
                self.add_silence(run.second, run.seconds);
            } else {
                self.add(run.second, &run.tally);
            }
        }
    }

    /// Subtracts a tally from the row of a second.
    pub fn subtract(&mut self, second: u64, tally: &Tally) {
        let Some((seconds, counted)) = self.runs.get_mut(second) else { return };
        if *seconds == 1 {
            *counted = counted.minus(tally);
            if counted.is_empty() {
                self.join(second);
            }
        }
    }

    /// Applies `f` to the tally of each second with events; copies seconds without events unchanged.
    #[must_use]
    pub fn map(&self, f: impl Fn(&Tally) -> Tally) -> Self {
        let mut out = Self::new();
        for run in self.runs() {
            match run.is_silent() {
                true => out.add_silence(run.second, run.seconds),
                false => out.add(run.second, &f(&run.tally)),
            }
        }
        out
    }

    /// The runs in order of time. A run is one step of the iteration, however many seconds it has.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = Run> + '_ {
        self.runs.iter().map(|(second, (seconds, tally))| Run { second, seconds, tally })
    }

    /// The rows in order of time, one for each second. An index contains at most [`Rows::MAX_SILENCE`] seconds without
    /// events.
    pub fn iter(&self) -> impl Iterator<Item = Row> + '_ {
        self.runs().flat_map(|run| (0..run.seconds).map(move |i| Row { second: run.second + i, tally: run.tally }))
    }

    /// The largest number of seconds without events that the ledger rows of one index may have for a reader to accept
    /// them: eight years.
    pub const MAX_SILENCE: u64 = 1 << 28;

    /// True if there is no ledger row, not even a row of zeros.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// True if all ledger rows are zeros, or there are no rows.
    pub fn is_silent(&self) -> bool {
        self.runs().all(|run| run.is_silent())
    }

    /// The sum of all rows.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.runs().for_each(|run| total += &run.tally);
        total
    }

    /// The rows as a ledger, which has separate rows for the newest [`Ledger::MAX_ROWS`] seconds.
    pub fn to_ledger(&self) -> Ledger {
        let mut ledger = Ledger::new();
        let mut room = Ledger::MAX_ROWS as u64;
        for run in self.runs().rev() {
            let kept = run.seconds.min(room);
            room -= kept;
            if kept == 0 && !run.is_silent() {
                ledger.add(run.second, &run.tally);
            }
            (0..kept).for_each(|i| ledger.add(run.second + run.seconds - 1 - i, &run.tally));
        }
        ledger
    }

    /// The run of ledger rows that contains `second`: its first second and its number of seconds.
    fn covering(&mut self, second: u64) -> Option<(u64, u64)> {
        let (first, (seconds, _)) = self.runs.at_or_before(second)?;
        (second - first < seconds).then_some((first, seconds))
    }

    fn put(&mut self, first: u64, seconds: u64, tally: Tally) {
        if seconds > 0 {
            self.runs.insert(first, seconds, tally);
        }
    }

    /// Joins the run of seconds without events that begins at `at` with such runs directly before and after it.
    fn join(&mut self, at: u64) {
        let Some((seconds, _)) = self.runs.remove(at) else { return };
        let (mut first, mut end) = (at, at + seconds);
        // The run at `at` was removed, so the last run that begins at or before `at` is the previous run.
        if let Some((before, (seconds, tally))) = self.runs.at_or_before(at)
            && before + seconds == at
            && tally.is_empty()
        {
            first = before;
        }
        if let Some((seconds, tally)) = self.runs.get_mut(end)
            && tally.is_empty()
        {
            let more = *seconds;
            self.runs.remove(end);
            end += more;
        }
        self.put(first, end - first, Tally::default());
    }

    fn fold(&mut self) {
        if self.runs.len() <= Ledger::MAX_ROWS {
            return;
        }
        let (mut folded, mut oldest) = (Tally::default(), None);
        // Runs of seconds without events are removed too, because the folded tally is added to the first run with
        // events.
        while let Some((second, (_, tally))) = self.runs.first()
            && (self.runs.len() > Ledger::MAX_ROWS - Ledger::FOLDED_ROWS || tally.is_empty())
        {
            self.runs.pop_first();
            folded += &tally;
            oldest = Some(second);
        }
        match (self.runs.first(), oldest) {
            (Some((second, _)), _) => {
                if let Some((_, tally)) = self.runs.get_mut(second) {
                    *tally += &folded;
                }
            }
            (None, Some(second)) => self.put(second, 1, folded),
            (None, None) => {}
        }
    }
}

impl Run {
    /// True if the tally is all zeros.
    pub fn is_silent(&self) -> bool {
        self.tally.is_empty()
    }
}

impl FromIterator<Row> for Rows {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        let mut out = Self::new();
        rows.into_iter().for_each(|row| out.add(row.second, &row.tally));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::BTreeMap;

    fn stored(packets: u64) -> Tally {
        Tally { offered: packets, stored: packets, ..Tally::default() }
    }

    /// Asserts that runs are in order, do not overlap, and that no two runs of seconds without events touch.
    fn check(rows: &Rows) {
        let mut before: Option<Run> = None;
        for run in rows.runs() {
            assert!(run.seconds == 1 || run.is_silent() && run.seconds > 0, "{run:?}");
            if let Some(b) = before {
                let end = b.second + b.seconds;
                assert!(end < run.second || end == run.second && !(b.is_silent() && run.is_silent()), "{b:?} {run:?}");
            }
            before = Some(run);
        }
    }

    #[test]
    fn a_random_walk_matches_a_plain_map_of_seconds() {
        let mut prng = Prng::new(31);
        for round in 0..200 {
            let (mut rows, mut model) = (Rows::new(), BTreeMap::<u64, Tally>::new());
            for step in 0..200 {
                let second = prng.below(60);
                match prng.below(4) {
                    0 => {
                        let seconds = prng.below(20);
                        rows.add_silence(second, seconds);
                        model.extend(
                            (second..second + seconds)
                                .filter(|s| !model.contains_key(s))
                                .map(|s| (s, Tally::default()))
                                .collect::<Vec<_>>(),
                        );
                    }
                    1 => {
                        rows.add(second, &Tally::default());
                        model.entry(second).or_default();
                    }
                    2 => {
                        let tally = stored(1 + prng.below(3));
                        rows.add(second, &tally);
                        *model.entry(second).or_default() += &tally;
                    }
                    _ => {
                        if let Some(counted) = model.get_mut(&second)
                            && counted.stored > 0
                        {
                            let tally = stored(1 + prng.below(counted.stored));
                            rows.subtract(second, &tally);
                            *counted = counted.minus(&tally);
                        }
                    }
                }
                check(&rows);
                let plain: Vec<Row> = model.iter().map(|(s, t)| Row { second: *s, tally: *t }).collect();
                assert_eq!(rows.iter().collect::<Vec<_>>(), plain, "round {round} step {step}");
            }
            let mut merged: Rows = [Row { second: 30, tally: stored(5) }].into_iter().collect();
            merged.merge(&rows);
            check(&merged);
            *model.entry(30).or_default() += &stored(5);
            assert!(merged.to_ledger().rows().map(|r| (r.second, r.tally)).eq(model), "round {round}");
        }
    }

    #[test]
    fn an_idle_week_is_one_run_and_a_missing_second_splits_it() {
        const WEEK: u64 = 7 * 86_400;
        let mut rows = Rows::new();
        (0..WEEK).filter(|s| *s != 1000).for_each(|s| rows.add(s, &Tally::default()));
        let runs: Vec<(u64, u64)> = rows.runs().map(|r| (r.second, r.seconds)).collect();
        assert_eq!(runs, [(0, 1000), (1001, WEEK - 1001)]);
        assert_eq!(rows.iter().count() as u64, WEEK - 1);
        assert!(rows.is_silent() && !rows.is_empty());
    }

    #[test]
    fn rows_beyond_the_limit_are_folded_and_the_total_stays_exact() {
        let mut rows = Rows::new();
        let mut total = Tally::default();
        for i in 0..Ledger::MAX_ROWS as u64 + 500 {
            rows.add(3 * i, &stored(i % 7 + 1));
            total += &stored(i % 7 + 1);
            if i % 2 == 0 {
                rows.add_silence(3 * i + 1, 2);
            }
        }
        assert!(rows.runs().count() <= Ledger::MAX_ROWS);
        assert_eq!(rows.total(), total);
        assert_eq!(rows.to_ledger().total(), total);
        check(&rows);
    }
}
