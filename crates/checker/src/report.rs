//! The result of a check: counts, the first examples of each defect, and a verdict in one line.

use crate::latency::Latency;
use std::fmt::{self, Write as _};

/// Examples kept of each defect.
const EXAMPLES: usize = 5;

/// The defects that a check finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Missing: no intact frame has this sequence number.
    Missing,
    /// Duplicated: an earlier frame has the same sequence number.
    Duplicated,
    /// Reordered: an earlier frame has a greater sequence number.
    Reordered,
    /// The CRC contradicts the bytes.
    Damaged,
    /// Truncated: fewer bytes are stored than were on the wire, so the CRC could not be checked.
    Truncated,
    /// Unsent: the sequence number exceeds those that the generator reported as sent.
    Unsent,
    /// The timestamp is earlier than that of the previous record in the same file.
    TimestampStepBack,
    /// The file violates its format; nothing after that point was read.
    Broken,
}

impl Defect {
    /// All defects, in the order of display.
    pub const ALL: [Self; 8] = [
        Self::Missing,
        Self::Duplicated,
        Self::Reordered,
        Self::Damaged,
        Self::Truncated,
        Self::Unsent,
        Self::TimestampStepBack,
        Self::Broken,
    ];

    /// The name of the defect in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
            Self::Damaged => "damaged",
            Self::Truncated => "cut",
            Self::Unsent => "unsent",
            Self::TimestampStepBack => "stamps_back",
            Self::Broken => "broken_files",
        }
    }
}

/// One occurrence of a defect, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The kind of defect.
    pub defect: Defect,
    /// Sequence number of the frame, or of the first frame of a gap; for a damaged frame, the number that it contains.
    pub sequence: Option<u64>,
    /// File and offset of the record, `file:offset`; empty for missing frames.
    pub place: String,
    /// Details for people; often empty.
    pub what: String,
}

/// The result of a check. All counts are of frames unless the name states another unit.
#[derive(Clone, Debug)]
pub struct Report {
    /// Files read.
    pub files: u64,
    /// Packets in these files.
    pub records: u64,
    /// Bytes of all packets read, without record headers.
    pub bytes: u64,
    /// Distinct frames of the generator that arrived (intact, or truncated).
    pub frames: u64,
    /// Packets that the generator did not send.
    pub foreign: u64,
    /// Number of frames reported as sent.
    pub sent: Option<u64>,
    /// Least and greatest sequence number that arrived.
    pub sequences: Option<(u64, u64)>,
    /// Numbers that did not arrive.
    pub missing: u64,
    /// Number of contiguous ranges of missing numbers.
    pub gaps: u64,
    /// Length of the longest contiguous range of missing numbers.
    pub longest_gap: u64,
    /// Frames with the same sequence number as an earlier frame.
    pub duplicated: u64,
    /// Frames that arrived after a frame with a greater sequence number.
    pub reordered: u64,
    /// The largest difference between the sequence number of a reordered frame and the greatest sequence number before
    /// it.
    pub reorder_distance: u64,
    /// Frames whose CRC contradicts their bytes.
    pub damaged: u64,
    /// Frames stored in part.
    pub truncated: u64,
    /// Frames with a number that the generator did not send.
    pub unsent: u64,
    /// Packets of any kind with an earlier timestamp than the packet before them in the same file.
    pub timestamp_steps_back: u64,
    /// Files that violate their format.
    pub broken: u64,
    /// First and last departure, in nanoseconds since 1970.
    pub departures: Option<(u64, u64)>,
    /// Times from departure to timestamp.
    pub latency: Latency,
    /// The first five examples of each defect.
    pub examples: Vec<Example>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            files: 0,
            records: 0,
            bytes: 0,
            frames: 0,
            foreign: 0,
            sent: None,
            sequences: None,
            missing: 0,
            gaps: 0,
            longest_gap: 0,
            duplicated: 0,
            reordered: 0,
            reorder_distance: 0,
            damaged: 0,
            truncated: 0,
            unsent: 0,
            timestamp_steps_back: 0,
            broken: 0,
            departures: None,
            latency: Latency::new(),
            examples: Vec::new(),
        }
    }

    /// True if frames of the generator arrived and none has a defect. Foreign packets are not a defect.
    pub fn is_complete(&self) -> bool {
        (self.frames > 0 || self.sent == Some(0)) && Defect::ALL.iter().all(|d| self.count(*d) == 0)
    }

    /// Number of occurrences of `defect`.
    pub const fn count(&self, defect: Defect) -> u64 {
        match defect {
            Defect::Missing => self.missing,
            Defect::Duplicated => self.duplicated,
            Defect::Reordered => self.reordered,
            Defect::Damaged => self.damaged,
            Defect::Truncated => self.truncated,
            Defect::Unsent => self.unsent,
            Defect::TimestampStepBack => self.timestamp_steps_back,
            Defect::Broken => self.broken,
        }
    }

    pub(crate) const fn count_mut(&mut self, defect: Defect) -> &mut u64 {
        match defect {
            Defect::Missing => &mut self.missing,
            Defect::Duplicated => &mut self.duplicated,
            Defect::Reordered => &mut self.reordered,
            Defect::Damaged => &mut self.damaged,
            Defect::Truncated => &mut self.truncated,
            Defect::Unsent => &mut self.unsent,
            Defect::TimestampStepBack => &mut self.timestamp_steps_back,
            Defect::Broken => &mut self.broken,
        }
    }

    pub(crate) fn add_example(&mut self, defect: Defect, example: impl FnOnce() -> Example) {
        if self.examples.iter().filter(|e| e.defect == defect).count() < EXAMPLES {
            self.examples.push(example());
        }
    }

    /// The report as one JSON object on one line. Times are nanoseconds (since 1970, or of latency); unknown values are
    /// `null`.
    pub fn to_json(&self) -> String {
        let number = |n: Option<i128>| n.map_or("null".to_owned(), |n| n.to_string());
        let measured = self.latency.count() > 0;
        let mut out = format!("{{\"complete\":{}", self.is_complete());
        for (name, value) in [
            ("files", Some(self.files.into())),
            ("records", Some(self.records.into())),
            ("bytes", Some(self.bytes.into())),
            ("frames", Some(self.frames.into())),
            ("foreign", Some(self.foreign.into())),
            ("sent", self.sent.map(Into::into)),
            ("first_sequence", self.sequences.map(|(first, _)| first.into())),
            ("last_sequence", self.sequences.map(|(_, last)| last.into())),
            ("gaps", Some(self.gaps.into())),
            ("longest_gap", Some(self.longest_gap.into())),
            ("reordered_by", Some(self.reorder_distance.into())),
            ("first_departure", self.departures.map(|(first, _)| first.into())),
            ("last_departure", self.departures.map(|(_, last)| last.into())),
            ("latency_min", measured.then_some(self.latency.min.into())),
            ("latency_median", self.latency.median().map(Into::into)),
            ("latency_max", measured.then_some(self.latency.max.into())),
        ] {
            let _ = write!(out, ",\"{name}\":{}", number(value));
        }
        for defect in Defect::ALL {
            let _ = write!(out, ",\"{}\":{}", defect.name(), self.count(defect));
        }
        out.push_str(",\"examples\":[");
        for (i, e) in self.examples.iter().enumerate() {
            let _ = write!(
                out,
                "{}{{\"defect\":\"{}\",\"sequence\":{},\"place\":{},\"what\":{}}}",
                if i == 0 { "" } else { "," },
                e.defect.name(),
                number(e.sequence.map(Into::into)),
                quoted(&e.place),
                quoted(&e.what)
            );
        }
        out.push_str("]}");
        out
    }
}

/// A table, the examples, and the verdict as the last line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, text: &str| writeln!(f, "{name:<18} {text}");
        line(f, "files", &spaced(self.files))?;
        line(f, "packets", &format!("{} ({} bytes)", spaced(self.records), spaced(self.bytes)))?;
        line(f, "foreign packets", &spaced(self.foreign))?;
        line(f, "frames", &spaced(self.frames))?;
        if let Some(sent) = self.sent {
            line(f, "sent", &spaced(sent))?;
        }
        if let Some((first, last)) = self.sequences {
            line(f, "sequence", &format!("{first} to {last}"))?;
        }
        if let Some((first, last)) = self.departures {
            line(f, "departures", &format!("{} to {} ({} s)", seconds(first), seconds(last), seconds(last - first)))?;
        }
        if let Some(median) = self.latency.median() {
            let (min, max) = (micros(self.latency.min), micros(self.latency.max));
            line(f, "latency", &format!("minimum {min}, median {}, maximum {max}", micros(median)))?;
        }
        if self.missing > 0 {
            let (gaps, longest) = (spaced(self.gaps), spaced(self.longest_gap));
            line(f, "missing", &format!("{} in {gaps} gaps; the longest gap has {longest}", spaced(self.missing)))?;
        }
        if self.reordered > 0 {
            let (count, by) = (spaced(self.reordered), spaced(self.reorder_distance));
            line(f, "reordered", &format!("{count}, at most {by} below the greatest earlier sequence number"))?;
        }
        for e in &self.examples {
            let sequence = e.sequence.map_or(String::new(), |s| format!("sequence {s}"));
            let parts = [sequence.as_str(), &e.what, &e.place];
            let text: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            line(f, &format!("  {}", e.defect.name()), &text.join(" "))?;
        }
        if self.frames == 0 && self.foreign > 0 && self.damaged == 0 {
            let packets = spaced(self.foreign);
            return writeln!(
                f,
                "NOT complete: none of the {packets} packets is a frame of `netgrain gen` (or `--sim …,truth`)"
            );
        }
        f.write_str(if self.is_complete() { "complete: " } else { "NOT complete: " })?;
        write!(f, "{} frames", spaced(self.frames))?;
        for (i, defect) in Defect::ALL.into_iter().enumerate() {
            // The first four defects are always shown; the others are rare and are left out if their count is 0.
            if i < 4 || self.count(defect) > 0 {
                write!(f, ", {} {}", spaced(self.count(defect)), defect.name().replace('_', " "))?;
            }
        }
        writeln!(f)
    }
}

fn spaced(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn micros(nanos: i64) -> String {
    format!("{:.1} us", nanos as f64 / 1000.0)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_report_is_complete_only_if_no_frame_was_sent() {
        assert!(!Report::new().is_complete());
        assert!(Report { sent: Some(0), ..Report::new() }.is_complete());
    }

    #[test]
    fn the_last_line_is_the_verdict() {
        let clean = Report { frames: 96_000_000, ..Report::new() };
        let wanted = "complete: 96 000 000 frames, 0 missing, 0 duplicated, 0 reordered, 0 damaged";
        assert_eq!(clean.to_string().lines().last(), Some(wanted));
        let broken = Report { frames: 1, missing: 2, broken: 1, ..Report::new() };
        let wanted = "NOT complete: 1 frames, 2 missing, 0 duplicated, 0 reordered, 0 damaged, 1 broken files";
        assert_eq!(broken.to_string().lines().last(), Some(wanted));
    }

    #[test]
    fn a_store_with_only_foreign_packets_is_reported_as_such() {
        let text = Report { foreign: 7, ..Report::new() }.to_string();
        assert!(text.ends_with("none of the 7 packets is a frame of `netgrain gen` (or `--sim …,truth`)\n"), "{text}");
    }

    #[test]
    fn file_names_are_escaped_in_json() {
        assert_eq!(quoted("a\"b\\c\nd"), r#""a\"b\\c\u000ad""#);
    }
}
