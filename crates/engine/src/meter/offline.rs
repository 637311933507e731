//! Flow records and rows directly from capture files, by the same meter but without ring, recorder and store. The
//! result equals that of a run that replays the same files (`engine/tests/it/offline.rs` compares them).
//!
//! A thread reads and meters; the caller takes its records and rows, and may stop at any time.

use super::MeterPlan;
use super::report::SinkReport;
use super::sink::{Sink, Sinks};
use super::table::Table;
use super::work::{PacketBytes, Work};
use crate::plan::SourcePlan;
use crate::stage::LATEST;
use crate::worker::BATCH;
use base::{Cause, Timestamp};
use capture::{Frame, Polled, Source, SourceError};
use filter::Filter;
use flow::Record;
use ring::{CAPLEN_MAX, Control, Desc, RECORD_HEADER, flag};
use series::{Row, SeriesMeter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::Headers;

/// Records and rows handed over together.
const PART: usize = 256;

/// The most parts that wait for the caller; then the meter waits.
const WAITING: usize = 16;

/// The timeout of a poll of a pipe.
const WAIT: Duration = Duration::from_millis(100);

/// A record or row that the meter has made.
#[allow(clippy::large_enum_variant, reason = "nearly all are records")]
pub enum Metered {
    /// A flow record, in the meter's order: by the second in which it was made.
    Record(Record),
    /// The row of one second and direction.
    Row(Row),
}

/// The result of reading the files.
#[derive(Debug, Default)]
pub struct Read {
    /// Warnings about the files.
    pub remarks: Vec<String>,
    /// The first error that ended a file or the whole reading early, if any: the packets behind it are not in the
    /// result.
    pub broken: Option<String>,
}

/// See the module documentation.
pub struct OfCapture {
    parts: Receiver<Vec<Metered>>,
    part: std::vec::IntoIter<Metered>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Read>>,
    read: Read,
}

impl OfCapture {
    /// Begins to meter those packets of the files of `source` that match `filter`, as one stream; the other packets
    /// advance the time too.
    ///
    /// # Errors
    /// A file cannot be opened or is no capture file, or the source is no file.
    pub fn open(source: &SourcePlan, plan: &MeterPlan, filter: Filter) -> Result<Self, SourceError> {
        let (files, options) = match source {
            SourcePlan::File { path, options } => (vec![path.clone()], options.clone()),
            SourcePlan::Files { paths, options, .. } => (paths.clone(), options.clone()),
            SourcePlan::Interface(_) | SourcePlan::Sim { .. } => (Vec::new(), capture::file::Options::default()),
        };
        let Some((first, more)) = files.split_first() else {
            let reason = "only capture files are metered without a run".to_owned();
            return Err(SourceError::Unsupported { name: source.label(), reason });
        };
        let file = capture::file::File::open(first, options.clone())?;
        let (stop, (sender, parts)) = (Arc::new(AtomicBool::new(false)), sync_channel(WAITING));
        let (plan, more, stopped) = (plan.clone(), more.to_vec(), Arc::clone(&stop));
        let fail = |error: std::io::Error| SourceError::System {
            name: source.label(),
            what: "start a thread",
            error,
            advice: String::new(),
        };
        let work = move || {
            let table = |flows| Table::new(flows, plan.interface, plan.shards);
            let flows = match plan.flows.as_ref().map(table).transpose() {
                Ok(flows) => flows,
                Err(e) => return Read { broken: Some(format!("thread: {e}")), ..Read::default() },
            };
            let series_meter = plan.series.then(|| SeriesMeter::of_capture(plan.interface));
            let out = Handing { sender, part: Vec::new(), stop: Arc::clone(&stopped) };
            let work = Work::new(flows, series_meter, Sinks::new(vec![Box::new(out)]), plan.key, false);
            Reading { work, batch: Batch::default(), filter, last: Timestamp::ZERO, read: Read::default() }
                .run(file, &more, options, &stopped)
        };
        let thread = std::thread::Builder::new().name("meter".into()).spawn(work).map_err(fail)?;
        Ok(Self { parts, part: Vec::new().into_iter(), stop, thread: Some(thread), read: Read::default() })
    }

    /// Returns the result of reading; empty until the end.
    pub fn read(&self) -> &Read {
        &self.read
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            let panicked = |_| Read { broken: Some("the meter panicked".into()), ..Read::default() };
            self.read = thread.join().unwrap_or_else(panicked);
        }
    }
}

/// Returns the next record or row; `None` at the end.
impl Iterator for OfCapture {
    type Item = Metered;

    fn next(&mut self) -> Option<Metered> {
        loop {
            if let Some(made) = self.part.next() {
                return Some(made);
            }
            match self.parts.recv() {
                Ok(part) => self.part = part.into_iter(),
                Err(_) => {
                    self.end();
                    return None;
                }
            }
        }
    }
}

impl Drop for OfCapture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Dropping the receiver ends the wait of a thread that waits for space.
        self.parts = sync_channel(0).1;
        self.end();
    }
}

/// The sink that hands records and rows to the caller.
struct Handing {
    sender: SyncSender<Vec<Metered>>,
    part: Vec<Metered>,
    stop: Arc<AtomicBool>,
}

impl Handing {
    fn add(&mut self, made: Metered) {
        self.part.push(made);
        if self.part.len() >= PART {
            self.send();
        }
    }

    fn send(&mut self) {
        let part = std::mem::take(&mut self.part);
        if !part.is_empty() && self.sender.send(part).is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Sink for Handing {
    fn kind(&self) -> &'static str {
        "answer"
    }

    fn record(&mut self, record: &Record) {
        self.add(Metered::Record(record.clone()));
    }

    fn row(&mut self, row: &Row) {
        self.add(Metered::Row(*row));
    }

    fn tick(&mut self, _: Timestamp) {
        self.send();
    }

    fn finish(&mut self) {
        self.send();
    }

    fn report(&self) -> SinkReport {
        SinkReport::default()
    }
}

/// Packets that are metered together, in the layout of the ring.
#[derive(Default)]
struct Batch {
    descs: Vec<Desc>,
    bytes: Vec<u8>,
    link_type: u16,
}

impl PacketBytes for Batch {
    fn bytes(&self, desc: &Desc) -> &[u8] {
        let from = desc.pos as usize + RECORD_HEADER;
        &self.bytes[from..from + usize::from(desc.caplen)]
    }

    fn wire_len(&self, desc: &Desc) -> u32 {
        let at = desc.pos as usize + 12;
        self.bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
    }

    fn link_type(&self) -> u16 {
        self.link_type
    }

    fn queue(&self) -> u16 {
        0
    }
}

impl Batch {
    fn clear(&mut self) {
        self.descs.clear();
        self.bytes.clear();
    }

    /// Adds a frame in the same way as the engine's stage puts it into the ring.
    fn add(&mut self, frame: &Frame<'_>, ts: Timestamp, filter: &Filter) {
        let headers = Headers::of(frame.bytes, frame.wire_len, self.link_type);
        if !filter.is_empty() && !filter.matches(frame.bytes, frame.wire_len, &headers) {
            return self.descs.push(Desc::control(Control::Tick, ts));
        }
        let bytes = &frame.bytes[..frame.bytes.len().min(CAPLEN_MAX)];
        let truncated = bytes.len() < frame.wire_len as usize;
        let reported = [
            (flag::TRUNCATED, truncated),
            (flag::MALFORMED, headers.malformed()),
            (flag::SUPER_FRAME, frame.super_frame),
            (flag::OUTGOING, frame.outgoing),
            (flag::WIRE_RAISED, frame.wire_raised),
            (flag::CLAMPED, frame.stamp.is_some_and(|stamp| stamp > LATEST)),
        ];
        let flags = reported.into_iter().filter(|(_, is)| *is).fold(0, |all, (bit, _)| all | bit);
        let (pos, caplen) = (self.bytes.len() as u64, bytes.len() as u16);
        self.bytes.extend_from_slice(&[0; RECORD_HEADER - 4]);
        self.bytes.extend_from_slice(&frame.wire_len.to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        let wire_len = u16::try_from(frame.wire_len).unwrap_or(u16::MAX);
        self.descs.push(Desc { pos, ts: ts.nanos(), caplen, wire_len, flags, ..Desc::default() });
    }
}

/// The state of the reading thread.
struct Reading {
    work: Work,
    batch: Batch,
    filter: Filter,
    last: Timestamp,
    read: Read,
}

impl Reading {
    fn run(
        mut self,
        first: capture::file::File,
        more: &[PathBuf],
        options: capture::file::Options,
        stop: &AtomicBool,
    ) -> Read {
        self.batch.link_type = first.info().link_type;
        self.file(first, stop);
        for path in more {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            match capture::file::File::open(path, options.clone()) {
                Ok(file) if file.info().link_type == self.batch.link_type => self.file(file, stop),
                Ok(file) => {
                    let (is, was) = (file.info().link_type, self.batch.link_type);
                    let text = format!("link type {is} behind files of link type {was}; ask it by itself");
                    self.read.broken = Some(format!("{}: {text}", path.display()));
                    break;
                }
                Err(e) => {
                    self.read.broken = Some(e.to_string());
                    break;
                }
            }
        }
        self.work.finish();
        self.read
    }

    fn file(&mut self, mut file: capture::file::File, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.batch.clear();
            let (batch, last, filter) = (&mut self.batch, &mut self.last, &self.filter);
            let polled = file.poll(BATCH, WAIT, |frame| {
                *last = frame.stamp.unwrap_or(*last).min(LATEST);
                batch.add(frame, *last, filter);
            });
            self.work.take(&self.batch, &self.batch.descs, false);
            match polled {
                Ok(Polled::End) => break,
                Ok(_) => {}
                Err(e) => {
                    // The first error is kept. After a truncated file the complete packets of the next files are still
                    // metered.
                    self.read.broken.get_or_insert_with(|| e.to_string());
                    break;
                }
            }
        }
        let lost = file.counts().map(|counts| counts.lost[Cause::Source as usize]).unwrap_or(0);
        if lost > 0 {
            let control = Control::Lost { cause: Cause::Source, reader: 0, packets: lost };
            self.batch.clear();
            self.work.take(&self.batch, &[Desc::control(control, self.last)], false);
        }
        self.read.remarks.extend(file.warnings());
    }
}
