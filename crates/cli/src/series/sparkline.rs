//! Sparklines for a terminal. Each series has one line, which is scaled to the maximum of the series. A dot is a zero,
//! and a blank is a gap. A time axis below the lines applies to all of them.

use crate::zone::Zone;
use base::Timestamp;
use std::collections::BTreeMap;

/// The characters for the values of a sparkline, from the smallest nonzero value to the maximum.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Possible distances of axis marks in seconds: the divisions of clocks and calendars.
const MARKS: [u64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000, 31_536_000,
];

const DAY: u64 = 86_400;

/// The values of one sparkline, by second or by the first second of a step.
#[derive(Clone, Debug, Default)]
pub struct Sparkline {
    values: BTreeMap<u64, f64>,
}

impl Sparkline {
    /// Adds a value to the series; values of the same second are summed.
    pub fn push(&mut self, second: u64, value: f64) {
        *self.values.entry(second).or_default() += value;
    }

    /// The first second that has a value.
    pub fn first(&self) -> Option<u64> {
        self.values.first_key_value().map(|(second, _)| *second)
    }

    /// The maximum value.
    pub fn max(&self) -> f64 {
        self.values.values().copied().fold(0.0, f64::max)
    }

    /// The line of the sparkline over an axis: each character stands for the maximum of its seconds.
    pub fn line(&self, axis: &TimeAxis) -> String {
        let mut cells: Vec<Option<f64>> = vec![None; axis.cells];
        for (second, value) in &self.values {
            if let Some(cell) = cells.get_mut(axis.cell(*second)) {
                *cell = Some(cell.map_or(*value, |v| v.max(*value)));
            }
        }
        let max = self.max();
        let glyph = |cell: Option<f64>| match cell {
            None => ' ',
            Some(value) if value <= 0.0 => '.',
            Some(value) => STEPS[((value / max * STEPS.len() as f64).ceil() as usize).clamp(1, STEPS.len()) - 1],
        };
        cells.into_iter().map(glyph).collect()
    }
}

/// The time axis of sparklines.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeAxis {
    first: u64,
    /// Seconds per character.
    each: u64,
    /// Number of characters.
    cells: usize,
}

impl TimeAxis {
    /// An axis from the first second of all series to the last, at most `width` characters wide; each character stands
    /// for `step` seconds or a multiple of them. `None` if there are no values.
    pub fn of<'a>(sparklines: impl Iterator<Item = &'a Sparkline> + Clone, step: u64, width: usize) -> Option<Self> {
        let first = sparklines.clone().filter_map(|c| c.values.first_key_value()).map(|(second, _)| *second).min()?;
        let last = sparklines.filter_map(|c| c.values.last_key_value()).map(|(second, _)| *second).max()?;
        let (step, width) = (step.max(1), width.max(1) as u64);
        let places = (last - first) / step + 1;
        let each = step * places.div_ceil(width);
        Some(Self { first, each, cells: ((last - first) / each + 1) as usize })
    }

    /// Seconds per character.
    pub fn each(&self) -> u64 {
        self.each
    }

    /// The character of a second.
    fn cell(&self, second: u64) -> usize {
        (second.saturating_sub(self.first) / self.each) as usize
    }

    /// Two lines below the sparklines: a rule with marks at round times of the zone, and the times below the marks. If
    /// no round time is in range, the begin is marked.
    pub fn lines(&self, zone: &Zone) -> (String, String) {
        let at = |second| Timestamp::from_secs_nanos(second, 0);
        // The zone offset at the begin of the axis is used for the whole axis; if the clocks change within the axis,
        // later marks may not be at round times.
        let east = zone.east(at(self.first));
        let last = self.first + (self.cells as u64 - 1) * self.each;
        // Each mark needs space for its label and two blanks.
        let fits = |mark: &u64| *mark / self.each >= label_width(*mark) as u64 + 2;
        let years = (0..).map(|i| MARKS[MARKS.len() - 1] << i);
        let every = MARKS.into_iter().chain(years).find(fits).unwrap_or(self.each);
        let first_mark = {
            let shown = (self.first as i64 + east).max(0) as u64;
            (shown.next_multiple_of(every) as i64 - east).max(0) as u64
        };
        let mut marks: Vec<u64> = (0..).map(|i| first_mark + i * every).take_while(|mark| *mark <= last).collect();
        if marks.is_empty() {
            marks.push(self.first);
        }
        let (mut rule, mut labels) = (vec!['─'; self.cells], String::new());
        for mark in marks {
            let cell = self.cell(mark);
            rule[cell] = '┴';
            let label = label(zone, at(mark), every);
            // The last label may extend beyond the end of the rule.
            labels += &" ".repeat(cell.saturating_sub(labels.chars().count()));
            labels += &label;
        }
        (rule.into_iter().collect(), labels)
    }
}

/// The width of a time label if the marks are this many seconds apart.
fn label_width(every: u64) -> usize {
    match every {
        0..60 => 8,
        60..DAY => 5,
        _ => 10,
    }
}

fn label(zone: &Zone, at: Timestamp, every: u64) -> String {
    match every {
        0..60 => zone.show_clock(at, 0),
        60..DAY => zone.show_clock(at, 0)[..5].to_owned(),
        _ => zone.show_date(at)[..10].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(u64, f64)]) -> Sparkline {
        let mut series = Sparkline::default();
        values.iter().for_each(|(second, value)| series.push(*second, *value));
        series
    }

    fn line(series: &Sparkline, width: usize) -> String {
        series.line(&TimeAxis::of(std::iter::once(series), 1, width).expect("values"))
    }

    #[test]
    fn an_empty_series_has_no_axis() {
        assert_eq!(TimeAxis::of(std::iter::once(&Sparkline::default()), 1, 80), None);
    }

    #[test]
    fn zero_is_a_dot_and_a_gap_is_a_blank() {
        let series = series(&[(10, 8.0), (11, 0.0), (12, 1.0), (15, 4.0)]);
        assert_eq!(line(&series, 80), "█.▁  ▄");
    }

    #[test]
    fn a_long_series_keeps_its_peaks_when_it_is_compressed() {
        let series = series(&[(0, 1.0), (1, 8.0), (2, 0.0), (3, 0.0), (300, 2.0), (301, 0.0)]);
        let line = line(&series, 151);
        assert_eq!((line.chars().count(), line.chars().next(), line.chars().nth(1)), (151, Some('█'), Some('.')));
        assert_eq!(line.trim_end().chars().last(), Some('▂'));
    }

    #[test]
    fn sparklines_of_different_intervals_share_one_axis() {
        let (a, b) = (series(&[(100, 1.0), (101, 2.0)]), series(&[(102, 3.0), (105, 3.0)]));
        let axis = TimeAxis::of([&a, &b].into_iter(), 1, 80).expect("values");
        assert_eq!((a.line(&axis).as_str(), b.line(&axis).as_str()), ("▄█    ", "  █  █"));
    }

    #[test]
    fn marks_are_at_round_times_of_the_zone_above_their_labels() {
        // 2026-11-21T10:41:53Z; the series lasts half a minute.
        let begin = 1_795_257_713;
        let series = series(&[(begin, 1.0), (begin + 29, 1.0)]);
        let axis = TimeAxis::of(std::iter::once(&series), 1, 80).expect("values");
        let (rule, labels) = axis.lines(&Zone::Utc);
        assert_eq!(rule, "───────┴─────────┴─────────┴──");
        assert_eq!(labels, "       10:42:00  10:42:10  10:42:20");
        // In a zone whose offset has half an hour, the full hours are at other seconds than in UTC.
        let india = Zone::Other(jiff::tz::TimeZone::posix("IST-5:30").expect("a rule"));
        let series = Sparkline { values: [(begin, 1.0), (begin + 7200, 1.0)].into() };
        let axis = TimeAxis::of(std::iter::once(&series), 60, 80).expect("values");
        let (_, labels) = axis.lines(&india);
        assert_eq!(labels.split_whitespace().take(3).collect::<Vec<_>>(), ["16:15", "16:30", "16:45"]);
    }

    #[test]
    fn axis_labels_do_not_overlap_and_stand_below_their_marks() {
        let mut prng = base::Prng::new(3);
        for _ in 0..3000 {
            let (begin, step) = (prng.below(4_000_000_000), [1, 60, 300, 3600][prng.below(4) as usize]);
            let bits = prng.below(16);
            let span = step * prng.below(1 << bits);
            let width = 1 + prng.below(200) as usize;
            let series = series(&[(begin, 1.0), (begin + span, 2.0)]);
            let axis = TimeAxis::of(std::iter::once(&series), step, width).expect("values");
            let (rule, labels) = axis.lines(&Zone::Utc);
            assert!(rule.chars().count() <= width && series.line(&axis).chars().count() == rule.chars().count());
            let marks: Vec<usize> = rule.chars().enumerate().filter(|(_, c)| *c == '┴').map(|(i, _)| i).collect();
            let mut reported = Vec::new();
            for (i, c) in labels.char_indices() {
                if c != ' ' && (i == 0 || labels[..i].ends_with(' ')) {
                    reported.push(i);
                }
            }
            assert_eq!(marks, reported, "{begin} {span} {step} {width}\n{rule}\n{labels}");
            assert!(!marks.is_empty() && labels.chars().count() <= rule.chars().count() + 10);
        }
    }
}
