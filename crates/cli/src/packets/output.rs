//! The output of a packet query: lines, JSON objects, a count, or a capture.

use super::PacketsArgs;
use super::capture_file::{CaptureFile, losses};
use super::frame::Packet;
use super::query::PacketQuery;
use crate::outcome::{Failure, versioned};
use crate::output::background_writer::BackgroundWriter;
use crate::output::capture_format::CaptureFormat;
use crate::output::target::{ProtectedPaths, Target};
use crate::style::{Paint, plural};
use crate::zone::Zone;
use base::Tally;
use base::units::{show_bytes, show_count};
use pcap::classic;
use query::{Batch, FoundPacket, Origin, QuerySource, Results};
use std::io::{self, Write};

/// The output; see the module.
pub struct PacketOutput {
    form: Form,
    json: bool,
    follow: bool,
    packets: u64,
    bytes: u64,
    /// The buffer for the text of the current packet.
    line: Vec<u8>,
}

enum Form {
    Count,
    Lines(BackgroundWriter, Lines),
    Objects(BackgroundWriter),
    Capture(Box<CaptureFile>, Target),
}

/// The end of a query that had no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryEnd {
    /// The query read the complete interval.
    All,
    /// The query was interrupted.
    Stopped,
    /// The query returned as many packets as `--limit` permits.
    Limit,
}

/// The style of lines.
struct Lines {
    zone: Zone,
    paint: Paint,
}

impl PacketOutput {
    /// Opens the output before the query starts.
    pub fn begin(args: &PacketsArgs, packet_query: &PacketQuery) -> Result<Self, Failure> {
        let form = match &args.write {
            Some(path) => {
                let mut read = Vec::new();
                if let QuerySource::Files(files) = &packet_query.source {
                    read.extend(files.iter().cloned());
                    for file in files {
                        // If the user names an index, its capture must not be overwritten either.
                        read.extend(query::indexes::named(file).map_err(|e| packet_query.refused(&e))?);
                    }
                }
                let format = CaptureFormat::of(args.format, path)?;
                let protected =
                    ProtectedPaths { store: args.store.as_deref(), files: &read, force: args.overwrite.force };
                let (target, sink) = Target::open(path, args.follow, protected)?;
                let file = CaptureFile::begin(
                    format,
                    BackgroundWriter::new(sink),
                    &packet_query.in_words(),
                    args.store.is_some(),
                );
                let file = file.map_err(|e| target.broken(&e, 0))?;
                Form::Capture(Box::new(file), target)
            }
            None if args.count => Form::Count,
            None if args.json => Form::Objects(BackgroundWriter::new(io::stdout())),
            None => {
                let lines = Lines { zone: packet_query.zone.clone(), paint: args.color.paint() };
                Form::Lines(BackgroundWriter::new(io::stdout()), lines)
            }
        };
        Ok(Self { form, json: args.json, follow: args.follow, packets: 0, bytes: 0, line: Vec::new() })
    }

    /// Removes the opened capture file, because the query has failed.
    pub fn abandon(self) {
        if let Form::Capture(file, target) = self.form {
            drop(file);
            target.remove();
        }
    }

    /// True if the output contains the quality of the timestamps.
    pub fn has_timestamp_quality(&self) -> bool {
        matches!(&self.form, Form::Capture(file, _) if matches!(**file, CaptureFile::Ng(_)))
    }

    /// The number of written packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Writes one packet.
    #[inline]
    pub fn take(&mut self, origins: &[Origin], found: &FoundPacket<'_>) -> Result<(), Failure> {
        self.packets += 1;
        self.bytes += u64::from(found.wire_len);
        match &mut self.form {
            Form::Count => Ok(()),
            Form::Capture(file, target) => file.packet(origins, found).map_err(|e| target.broken(&e, self.packets)),
            Form::Lines(out, lines) => {
                self.line.clear();
                let packet = Packet::of(found, &origins[found.origin]);
                let time = (lines.zone != Zone::Utc).then(|| lines.zone.show(found.ts));
                writeln!(self.line, "{}", packet.line(time.as_deref(), lines.paint))?;
                Ok(out.write_all(&self.line)?)
            }
            Form::Objects(out) => {
                self.line.clear();
                serde_json::to_writer(&mut self.line, &Packet::of(found, &origins[found.origin]))
                    .map_err(io::Error::from)?;
                self.line.push(b'\n');
                Ok(out.write_all(&self.line)?)
            }
        }
    }

    /// Writes all packets of a batch.
    pub fn take_all(&mut self, origins: &[Origin], batch: &Batch<'_>) -> Result<(), Failure> {
        let (mut rest, mut lost) = (batch.records, batch.lost);
        // A packet whose timestamp does not fit the record header forms a batch of its own, and `batch.first` has its
        // timestamp.
        let mut first = Some(batch.first);
        while let Some((header, tail)) = rest.split_first_chunk::<{ classic::RECORD_HEADER }>() {
            let record = classic::parse_record(classic::Resolution::Nanos, *header);
            let Some((data, tail)) = tail.split_at_checked(record.caplen as usize) else { break };
            rest = tail;
            let (ts, wire_len) = (first.take().unwrap_or(record.ts), record.wire_len);
            let (lost, link_type, origin) = (std::mem::take(&mut lost), batch.link_type, batch.origin);
            self.take(origins, &FoundPacket { ts, wire_len, data, link_type, origin, lost, position: None })?;
        }
        Ok(())
    }

    /// Ends the output and prints a summary. `end` is `None` if an error ended the query: a file is then not published,
    /// so that a partial result does not replace a complete file.
    pub fn finish(&mut self, results: &Results, end: Option<QueryEnd>) -> Result<(), Failure> {
        let complete = end.is_some();
        // The query reads the ledger of a file at the end of the file. If the query ended early, the sum of the ledgers
        // would be that of an arbitrary part of the interval, so all output formats omit the sum.
        let has_ledger = match end {
            Some(QueryEnd::All) => true,
            // The interval of a query that follows ends with its interruption.
            Some(QueryEnd::Stopped) => self.follow,
            Some(QueryEnd::Limit) | None => false,
        };
        let tally_of = |origin| if has_ledger { results.tally(origin) } else { Tally::default() };
        let mut tally = Tally::default();
        (0..results.origins().len()).for_each(|o| tally += &tally_of(o));
        let (mut into, mut omitted) = (None, None);
        let wire_raised = results.wire_raised();
        match std::mem::replace(&mut self.form, Form::Count) {
            Form::Lines(out, _) | Form::Objects(out) => {
                out.finish()?;
                if self.json || self.packets == 0 {
                    say_losses(&tally);
                    return Ok(());
                }
            }
            Form::Count => {
                let mut report = self.report(&tally, end);
                report["wire_raised"] = wire_raised.into();
                let text = if self.json { report.to_string() } else { self.in_words() };
                writeln!(io::stdout(), "{text}")?;
                if !self.json {
                    say_losses(&tally);
                }
                return Ok(());
            }
            Form::Capture(file, target) => {
                omitted = file.unreported(results.origins());
                let clamped = file.clamped();
                let written = file
                    .finish(results.origins(), tally_of, |origin| results.timestamps(origin))
                    .map_err(|e| target.broken(&e, self.packets))?;
                let mut name = None;
                if self.packets == 0 && target.remove() {
                    // An empty file is not published, because it might replace a capture.
                } else if complete {
                    target.publish()?;
                    name = Some(target.name());
                } else {
                    name = Some(target.unpublished());
                }
                if !complete && self.packets == 0 {
                    return Ok(());
                }
                if self.json {
                    let mut report = self.report(&tally, end);
                    report["wire_raised"] = wire_raised.into();
                    report["clamped"] = clamped.into();
                    report["file_bytes"] = name.as_ref().map_or(0, |_| written).into();
                    report["file"] = name.into();
                    match target.is_pipe() {
                        true => sys::say!("{report}"),
                        false => writeln!(io::stdout(), "{report}")?,
                    }
                    return Ok(());
                }
                into = name;
            }
        }
        let into = into.map(|name| format!(" into {name}")).unwrap_or_default();
        let early = match end {
            Some(QueryEnd::Stopped) => ", stopped early",
            Some(QueryEnd::Limit) => ", ended by --limit",
            Some(QueryEnd::All) | None => "",
        };
        sys::say!("netgrain: {}{into}{early}", self.in_words());
        if let Some(omitted) = omitted {
            sys::say!("netgrain: {omitted}");
        }
        say_losses(&tally);
        Ok(())
    }

    fn in_words(&self) -> String {
        let bytes = show_bytes(self.bytes);
        format!("{}, {} bytes on the wire ({bytes})", plural(self.packets, "packet", "packets"), show_count(self.bytes))
    }

    fn report(&self, tally: &Tally, end: Option<QueryEnd>) -> serde_json::Value {
        let lost: serde_json::Map<_, _> = tally.losses().map(|(c, n)| (c.name().to_owned(), n.into())).collect();
        let stopped = matches!(end, Some(QueryEnd::Stopped | QueryEnd::Limit));
        versioned(serde_json::json!({
            "packets": self.packets, "bytes": self.bytes, "stopped": stopped,
            "interval": { "offered": tally.offered, "stored": tally.stored, "filtered": tally.filtered,
                "duplicate": tally.duplicate, "lost_total": tally.lost_total(), "lost": lost },
        }))
    }
}

/// Warns about packets that were lost in the interval.
fn say_losses(tally: &Tally) {
    if tally.lost_total() > 0 {
        sys::say!("netgrain: the interval is not complete: {}", losses(tally));
    }
}
