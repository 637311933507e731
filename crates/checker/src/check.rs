//! The check: reads every record of every file once, in order.

use crate::files;
use crate::frame::{FrameState, judge};
use crate::records::{ReadError, Record, Records};
use crate::report::{Defect, Example, Report};
use crate::sequences::{MEMORY_LIMIT, Sequences};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Prior knowledge about the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Number of frames that the generator reported as sent: the numbers 0 to `sent - 1` are expected and no others. If
    /// `None`, all numbers from the least to the greatest that arrived are expected.
    pub sent: Option<u64>,
    /// If true, reordering is detected within each file only, because the files belong to several queues. If false, the
    /// records of each file continue those of the previous file.
    pub file_by_file: bool,
}

/// The reason why a check has no report.
#[derive(Debug)]
pub enum CheckError {
    /// None of the paths is or contains a `.pcap` or `.raw` file.
    NothingFound {
        /// The paths that were searched.
        paths: Vec<PathBuf>,
    },
    /// The operating system refused an operation.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The sequence numbers have so many gaps that their set does not fit [`MEMORY_LIMIT`].
    SequenceGapTooLarge {
        /// The file.
        path: PathBuf,
        /// Offset of the frame's record in the file.
        offset: u64,
        /// The sequence number that did not fit into the set of arrived sequence numbers.
        sequence: u64,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingFound { paths } => {
                let paths: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
                write!(
                    f,
                    "no .pcap or .raw file in {}; name the directory of a store, or capture files",
                    paths.join(", ")
                )
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::SequenceGapTooLarge { path, offset, sequence } => write!(
                f,
                "{}:{offset}: sequence {sequence}: the numbers so far have more gaps than {MEMORY_LIMIT} bytes can \
                 hold; check fewer files at a time, and only files of one generator",
                path.display()
            ),
        }
    }
}

impl std::error::Error for CheckError {}

/// Reads every capture file in and below `paths` and reports on the generator's frames in them.
///
/// # Errors
/// [`CheckError`]. Defects of frames and of file contents are not errors: they are in the report.
pub fn check(paths: &[PathBuf], options: Options) -> Result<Report, CheckError> {
    let files = files::find(paths).map_err(|(path, error)| CheckError::Io { path, error })?;
    if files.is_empty() {
        return Err(CheckError::NothingFound { paths: paths.to_vec() });
    }
    let mut checker = Checker {
        sequences: Sequences::new(),
        highest: None,
        options,
        report: Report { sent: options.sent, ..Report::new() },
    };
    for (path, format) in &files {
        checker.report.files += 1;
        if options.file_by_file {
            checker.highest = None;
        }
        match Records::open(path, *format) {
            Ok(records) => checker.file(path, records)?,
            Err(fault) => checker.fault(path, fault)?,
        }
    }
    Ok(checker.finish())
}

struct Checker {
    sequences: Sequences,
    /// The greatest sequence number so far (in this file, if reordering is detected within each file alone).
    highest: Option<u64>,
    options: Options,
    report: Report,
}

impl Checker {
    fn file(&mut self, path: &Path, mut records: Records) -> Result<(), CheckError> {
        let mut last_stamp = 0;
        loop {
            let offset = records.offset();
            match records.next() {
                Ok(Some(record)) => {
                    if record.stamp < last_stamp {
                        self.found(Defect::TimestampStepBack, None, path, offset);
                    }
                    last_stamp = record.stamp;
                    self.record(path, &record)?;
                }
                Ok(None) => return Ok(()),
                Err(fault) => return self.fault(path, fault),
            }
        }
    }

    fn fault(&mut self, path: &Path, fault: ReadError) -> Result<(), CheckError> {
        match fault {
            ReadError::Io(error) => Err(CheckError::Io { path: path.to_owned(), error }),
            ReadError::Broken { offset, what } => {
                self.report.broken += 1;
                let example = || Example { defect: Defect::Broken, sequence: None, place: place(path, offset), what };
                self.report.add_example(Defect::Broken, example);
                Ok(())
            }
        }
    }

    fn record(&mut self, path: &Path, record: &Record<'_>) -> Result<(), CheckError> {
        self.report.records += 1;
        self.report.bytes += record.bytes.len() as u64;
        let sequence = match judge(record.bytes, record.wire_len) {
            FrameState::Foreign => {
                self.report.foreign += 1;
                return Ok(());
            }
            FrameState::Damaged { claimed } => {
                self.found(Defect::Damaged, claimed, path, record.offset);
                return Ok(());
            }
            FrameState::Truncated { claimed } => {
                self.found(Defect::Truncated, claimed, path, record.offset);
                match claimed {
                    Some(sequence) => sequence,
                    None => return Ok(()),
                }
            }
            FrameState::Complete { sequence, departure } => {
                let latency = signed48(record.stamp.wrapping_sub(departure));
                self.report.latency.add(latency);
                let departed = record.stamp.saturating_add_signed(-latency);
                let (first, last) = self.report.departures.unwrap_or((departed, departed));
                self.report.departures = Some((first.min(departed), last.max(departed)));
                sequence
            }
        };
        self.arrived(sequence, path, record.offset)
    }

    fn arrived(&mut self, sequence: u64, path: &Path, offset: u64) -> Result<(), CheckError> {
        if self.options.sent.is_some_and(|sent| sequence >= sent) {
            self.found(Defect::Unsent, Some(sequence), path, offset);
            return Ok(());
        }
        let new = self.sequences.insert(sequence);
        if !new.map_err(|_| CheckError::SequenceGapTooLarge { path: path.to_owned(), offset, sequence })? {
            self.found(Defect::Duplicated, Some(sequence), path, offset);
            return Ok(());
        }
        self.report.frames += 1;
        let (first, last) = self.report.sequences.unwrap_or((sequence, sequence));
        self.report.sequences = Some((first.min(sequence), last.max(sequence)));
        match self.highest {
            Some(highest) if sequence < highest => {
                self.report.reorder_distance = self.report.reorder_distance.max(highest - sequence);
                self.found(Defect::Reordered, Some(sequence), path, offset);
            }
            _ => self.highest = Some(sequence),
        }
        Ok(())
    }

    fn found(&mut self, defect: Defect, sequence: Option<u64>, path: &Path, offset: u64) {
        *self.report.count_mut(defect) += 1;
        let example = || Example { defect, sequence, place: place(path, offset), what: String::new() };
        self.report.add_example(defect, example);
    }

    fn finish(mut self) -> Report {
        let report = &mut self.report;
        let expected = match (self.options.sent, report.sequences) {
            (Some(sent), _) => 0..sent,
            (None, Some((first, last))) => first..last + 1,
            (None, None) => 0..0,
        };
        self.sequences.gaps(expected, |gap| {
            report.missing += gap.end - gap.start;
            report.gaps += 1;
            report.longest_gap = report.longest_gap.max(gap.end - gap.start);
            let what = if gap.end - gap.start == 1 { String::new() } else { format!("to {}", gap.end - 1) };
            let example = || Example { defect: Defect::Missing, sequence: Some(gap.start), place: String::new(), what };
            report.add_example(Defect::Missing, example);
        });
        self.report
    }
}

fn place(path: &Path, offset: u64) -> String {
    format!("{}:{offset}", path.display())
}

/// Returns the low 48 bits of a difference of two departure times as a signed number.
const fn signed48(value: u64) -> i64 {
    (value << 16) as i64 >> 16
}
