//! A day as a vector of 16 numbers: the average of each period of 90 minutes.

use crate::sample::Sample;

/// Parts of a day.
pub const PARTS: usize = 16;

/// Seconds of a part.
const PART_SECONDS: u64 = 5400;

/// The least number of seconds with a trusted value of a part. A day with a part below it is skipped.
const SECONDS_MIN: u32 = 2700;

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;

/// The averages of the parts of a day, in the unit of the series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day(pub [f64; PARTS]);

/// Collects the values of days (UTC).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DayBuilder {
    day: u64,
    sums: [f64; PARTS],
    counts: [u32; PARTS],
}

impl DayBuilder {
    /// Continues with the sample of a second, in order of time. At the begin of a day, returns the number of the last
    /// day since 1970 and its vector, which is `None` if a part of the day is missing.
    pub fn observe(&mut self, second: u64, sample: Sample) -> Option<(u64, Option<Day>)> {
        let day = second / DAY_SECONDS;
        let mut done = None;
        if day > self.day {
            let is_first = self.day == 0;
            let last = std::mem::replace(self, Self { day, ..Self::default() });
            done = (!is_first).then(|| (last.day, last.vector()));
        }
        if day == self.day
            && let Some(value) = sample.trusted()
        {
            let part = (second % DAY_SECONDS / PART_SECONDS) as usize;
            self.sums[part] += value;
            self.counts[part] += 1;
        }
        done
    }

    fn vector(&self) -> Option<Day> {
        let is_complete = self.counts.iter().all(|count| *count >= SECONDS_MIN);
        is_complete.then(|| Day(std::array::from_fn(|part| self.sums[part] / f64::from(self.counts[part]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_sixteen_averages_and_a_day_with_a_missing_part_is_skipped() {
        let (mut builder, mut days) = (DayBuilder::default(), Vec::new());
        for second in 20_000 * DAY_SECONDS..20_003 * DAY_SECONDS + 1 {
            let part = (second % DAY_SECONDS / PART_SECONDS) as f64;
            let is_hole = second / DAY_SECONDS == 20_001 && part == 3.0;
            let sample = if is_hole && second % 3 > 0 { Sample::Untrusted } else { Sample::Value(part) };
            days.extend(builder.observe(second, sample));
        }
        let expected = Day(std::array::from_fn(|part| part as f64));
        assert_eq!(days, [(20_000, Some(expected)), (20_001, None), (20_002, Some(expected))]);
    }
}
