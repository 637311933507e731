//! Output of results: a table for people, or one JSON object per line. A rate has no meaning without machine, frame
//! size, duration and loss; therefore the output begins with a description of the machine, and each row contains frame
//! size, duration and loss.

use serde::Serialize;
use std::fmt::{self, Display};
use std::io::{self, Write};
use sys::cpu::Ticks;

/// The reason why a measurement ended early.
#[derive(Debug)]
pub enum Stop {
    /// The reader closed our output.
    Closed,
    /// The measurement that failed and what to do, in one line.
    Failed(String),
}

impl Stop {
    /// An error with this text.
    pub fn error(text: impl Display) -> Self {
        Self::Failed(text.to_string())
    }
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Failed(format!("output: {e}")) }
    }
}

/// The machine and the time, for the head of the output.
#[derive(Debug, Serialize)]
struct Machine {
    stage: &'static str,
    date: String,
    processor: String,
    cores: usize,
    kernel: String,
    memory_bytes: u64,
    version: &'static str,
}

/// The output of one measurement.
pub struct Output<'a> {
    out: &'a mut dyn Write,
    json: bool,
    ticks: Ticks,
}

/// A row of the JSON output.
#[derive(Serialize)]
struct JsonRow<'a, T> {
    kind: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl<'a> Output<'a> {
    /// Begins the output with a description of the machine.
    pub fn begin(out: &'a mut dyn Write, json: bool, stage: &'static str) -> Result<Self, Stop> {
        let machine = Machine {
            stage,
            date: sys::clock::realtime().to_string(),
            processor: sys::cpu::model(),
            cores: sys::cpu::allowed().len(),
            kernel: sys::cpu::kernel(),
            memory_bytes: sys::cpu::memory_bytes(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let mut sheet = Self { out, json, ticks: Ticks::now() };
        let day = machine.date.get(..19).unwrap_or_default().to_owned();
        let memory = base::units::show_bytes(machine.memory_bytes);
        let text = format!(
            "netgrain-bench {stage}, {day}Z, {} ({} cores, {memory}), {}",
            machine.processor, machine.cores, machine.kernel
        );
        sheet.row("machine", &machine, text)?;
        if cfg!(debug_assertions) {
            sheet.note("this is not a release build: its results do not represent netgrain")?;
        }
        Ok(sheet)
    }

    /// Prints a row: a JSON object of this kind, or the text.
    pub fn row<T: Serialize>(&mut self, kind: &'static str, body: &T, text: impl Display) -> Result<(), Stop> {
        if self.json {
            let line = serde_json::to_string(&JsonRow { kind, body }).map_err(Stop::error)?;
            writeln!(self.out, "{line}")?;
        } else {
            writeln!(self.out, "{text}")?;
        }
        self.out.flush()?;
        Ok(())
    }

    /// Prints a line of the table's head; JSON output omits it.
    pub fn head(&mut self, text: impl Display) -> Result<(), Stop> {
        if !self.json {
            writeln!(self.out, "{text}")?;
        }
        Ok(())
    }

    /// Prints a note that is necessary to interpret the results.
    pub fn note(&mut self, text: impl Display) -> Result<(), Stop> {
        #[derive(Serialize)]
        struct Note {
            text: String,
        }
        let note = Note { text: text.to_string() };
        self.row("note", &note, format_args!("note: {text}"))
    }

    /// Prints the conclusion of the measurement.
    pub fn verdict(&mut self, text: impl Display) -> Result<(), Stop> {
        #[derive(Serialize)]
        struct Verdict {
            text: String,
        }
        let verdict = Verdict { text: text.to_string() };
        self.row("verdict", &verdict, &text)
    }
}

impl Drop for Output<'_> {
    /// Ends the output with the share of processor time that the hypervisor gave to other guests during the
    /// measurement, because that share distorts the results.
    fn drop(&mut self) {
        /// The share of processor time above which the other guests noticeably reduce the measured rates.
        const NOTICEABLE: f64 = 0.01;
        let stolen = Ticks::now().stolen_since(self.ticks);
        if stolen > NOTICEABLE {
            // A closed output is no error.
            let _ = self.note(format_args!(
                "the hypervisor gave {:.1} % of the CPU time to other guests during the measurement",
                stolen * 100.0
            ));
        }
    }
}

/// A median with minimum and maximum: `20.9 (20.1..21.3)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MedianRange {
    /// The median: half of the values are below it.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl MedianRange {
    /// Returns the median of the values, of which there must be at least one.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(0.0));
        Self { median: crate::stats::percentile(&values, 50.0), min, max }
    }
}

impl Display for MedianRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(2);
        write!(f, "{:.places$} ({:.places$}..{:.places$})", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shut;

    impl Write for Shut {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_output_is_no_error() {
        assert!(matches!(Output::begin(&mut Shut, true, "ring"), Err(Stop::Closed)));
    }

    #[test]
    fn every_json_line_is_an_object_with_its_kind() {
        let mut out = Vec::new();
        let mut sheet = Output::begin(&mut out, true, "ring").unwrap();
        sheet.head("not in JSON").unwrap();
        sheet.row("figure", &MedianRange::of([3.0, 1.0, 2.0]), "not in JSON").unwrap();
        sheet.verdict("enough").unwrap();
        drop(sheet);
        let kinds: Vec<String> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["kind"].as_str().unwrap().to_owned())
            .filter(|k| k != "note")
            .collect();
        assert_eq!(kinds, ["machine", "figure", "verdict"]);
    }

    #[test]
    fn a_median_range_shows_minimum_and_maximum() {
        assert_eq!(format!("{:.1}", MedianRange::of([3.0, 1.0, 2.0])), "2.0 (1.0..3.0)");
    }
}
