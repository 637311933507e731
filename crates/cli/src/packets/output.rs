//! The output of a packet query: lines, JSON objects, a count, or a capture.

use super::PacketsArgs;
use super::capture_file::{CaptureFile, losses};
use super::frame::Packet;
use super::query::PacketQuery;
use crate::outcome::{Failure, versioned};
use crate::output::background_writer::BackgroundWriter;
use crate::output::capture_format::CaptureFormat;
use crate::output::target::{ProtectedPaths, Target};
use crate::style::Paint;
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
        Ok(Self { form, json: args.json, packets: 0, bytes: 0, line: Vec::new() })
    }

    /// Removes the opened capture file, because the query has failed.
    pub fn abandon(self) {
        if let Form::Capture(file, target) = self.form {
            drop(file);
            target.remove();
        }
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

    /// Ends the output and prints a summary. A file is published only if the result is `complete`, so that a partial
    /// result does not replace a complete file.
    pub fn finish(&mut self, results: &Results, stopped: bool, complete: bool) -> Result<(), Failure> {
        let mut tally = Tally::default();
        (0..results.origins().len()).for_each(|o| tally += &results.tally(o));
        let (mut into, mut omitted) = (None, None);
        let wire_raised = results.wire_raised();
        match std::mem::replace(&mut self.form, Form::Count) {
            Form::Lines(out, _) | Form::Objects(out) => {
                out.finish()?;
                if self.json || self.packets == 0 {
                    return Ok(());
                }
            }
            Form::Count => {
                let mut report = self.report(&tally, stopped);
                report["wire_raised"] = wire_raised.into();
                let text = if self.json { report.to_string() } else { self.in_words() };
                writeln!(io::stdout(), "{text}")?;
                return Ok(());
            }
            Form::Capture(file, target) => {
                omitted = file.unreported(results.origins());
                let clamped = file.clamped();
                let written = file
                    .finish(results.origins(), |o| results.tally(o))
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
                    let mut report = self.report(&tally, stopped);
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
        let early = if stopped { ", stopped early" } else { "" };
        sys::say!("netgrain: {}{into}{early}", self.in_words());
        if let Some(omitted) = omitted {
            sys::say!("netgrain: {omitted}");
        }
        if tally.lost_total() > 0 {
            sys::say!("netgrain: the interval is not complete: {}", losses(&tally));
        }
        Ok(())
    }

    fn in_words(&self) -> String {
        let bytes = show_bytes(self.bytes);
        format!("{} packets, {} bytes on the wire ({bytes})", show_count(self.packets), show_count(self.bytes))
    }

    fn report(&self, tally: &Tally, stopped: bool) -> serde_json::Value {
        let lost: serde_json::Map<_, _> = tally.losses().map(|(c, n)| (c.name().to_owned(), n.into())).collect();
        versioned(serde_json::json!({
            "packets": self.packets, "bytes": self.bytes, "stopped": stopped,
            "interval": { "offered": tally.offered, "stored": tally.stored, "filtered": tally.filtered,
                "duplicate": tally.duplicate, "lost_total": tally.lost_total(), "lost": lost },
        }))
    }
}
