//! A curve in one line, for a terminal: as high as the greatest value in it, zero as a dot, a gap as a blank.

use std::collections::BTreeMap;

/// From the least that is something to the greatest.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values by second (or by the first second of a step), for one line.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    values: BTreeMap<u64, f64>,
}

impl Curve {
    /// One more value; of several at the same place the sum.
    pub fn push(&mut self, second: u64, value: f64) {
        *self.values.entry(second).or_default() += value;
    }

    /// The greatest value.
    pub fn greatest(&self) -> f64 {
        self.values.values().copied().fold(0.0, f64::max)
    }

    /// The line, at most so many characters wide: each stands for `step` seconds or a multiple of them, with the greatest
    /// value in it.
    pub fn line(&self, step: u64, width: usize) -> String {
        let (Some((first, _)), Some((last, _))) = (self.values.first_key_value(), self.values.last_key_value()) else {
            return String::new();
        };
        let (step, width) = (step.max(1), width.max(1) as u64);
        let places = (last - first) / step + 1;
        let each = step * places.div_ceil(width);
        let mut cells: Vec<Option<f64>> = vec![None; ((last - first) / each + 1) as usize];
        for (second, value) in &self.values {
            let cell = &mut cells[((second - first) / each) as usize];
            *cell = Some(cell.map_or(*value, |v| v.max(*value)));
        }
        let greatest = self.greatest();
        let glyph = |cell: Option<f64>| match cell {
            None => ' ',
            Some(value) if value <= 0.0 => '.',
            Some(value) => STEPS[((value / greatest * STEPS.len() as f64).ceil() as usize).clamp(1, STEPS.len()) - 1],
        };
        cells.into_iter().map(glyph).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: &[(u64, f64)]) -> Curve {
        let mut curve = Curve::default();
        values.iter().for_each(|(second, value)| curve.push(*second, *value));
        curve
    }

    #[test]
    fn nothing_is_an_empty_line() {
        assert_eq!(Curve::default().line(1, 80), "");
    }

    #[test]
    fn zero_is_a_dot_and_a_gap_is_a_blank() {
        let curve = curve(&[(10, 8.0), (11, 0.0), (12, 1.0), (15, 4.0)]);
        assert_eq!(curve.line(1, 80), "█.▁  ▄");
    }

    #[test]
    fn what_is_too_wide_keeps_its_peaks() {
        let curve = curve(&[(0, 1.0), (1, 8.0), (2, 0.0), (3, 0.0), (300, 2.0), (301, 0.0)]);
        let line = curve.line(1, 151);
        assert_eq!((line.chars().count(), line.chars().next(), line.chars().nth(1)), (151, Some('█'), Some('.')));
        assert_eq!(line.trim_end().chars().last(), Some('▂'));
    }
}
