//! Makes flow records and series rows directly from capture files, with the same meter as the engine, but without ring,
//! recorder and store. The result equals that of a run that replays the same files (`engine/tests/it/offline.rs`
//! compares the two).
//!
//! A thread reads the files and meters the packets. The caller iterates over the records and series rows, and may drop
//! the iterator at any time.

use crate::packet_bytes::{BATCH, PacketBytes};
use crate::plan::MeterPlan;
use crate::report::SinkReport;
use crate::sink::{Sink, Sinks};
use crate::table::Table;
use crate::work::Work;
use base::{Cause, Timestamp, TimestampMethod};
use capture::{Frame, Polled, Source, SourceError};
use filter::Filter;
use flow::Record;
use ring::{AnnotatedPosition, Annotations, CAPLEN_MAX, Control, Desc, RECORD_HEADER, TIMESTAMP_MAX, flag};
use series::{Row, SeriesMeter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::Headers;

/// Number of records and series rows in one message from the thread to the caller.
const PART: usize = 256;

/// The largest number of messages queued for the caller; while the queue is full, the thread waits.
const WAITING: usize = 16;

/// Timeout for one poll of an input that is a pipe.
const WAIT: Duration = Duration::from_millis(100);

/// A record or series row that the meter has made.
#[allow(clippy::large_enum_variant, reason = "nearly all are records")]
pub enum MeterOutput {
    /// A flow record. Records arrive in order of the second of packet time in which the meter made them.
    Record(Record),
    /// The series row of one second and one direction.
    Row(Row),
}

/// The result of reading the capture files.
#[derive(Debug, Default)]
pub struct OfflineResult {
    /// Warnings about the files.
    pub warnings: Vec<String>,
    /// The first error because of which a file, or all files, were not read to the end; `None` without an error. The
    /// packets after that error are not in the result.
    pub broken: Option<String>,
}

/// See the module documentation.
pub struct OfflineMeter {
    parts: Receiver<Vec<MeterOutput>>,
    part: std::vec::IntoIter<MeterOutput>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<OfflineResult>>,
    result: OfflineResult,
}

impl OfflineMeter {
    /// Starts to meter the packets of the files, as one stream. Packets that do not match `filter` are not metered, but
    /// their timestamps advance the time.
    ///
    /// # Errors
    /// The first file cannot be opened or is no capture file, or there is no file.
    pub fn open(
        files: &[PathBuf],
        options: capture::file::Options,
        plan: &MeterPlan,
        filter: Filter,
    ) -> Result<Self, SourceError> {
        let Some((first, more)) = files.split_first() else {
            let reason = "no capture file to meter".to_owned();
            return Err(SourceError::Unsupported { name: "meter".into(), reason });
        };
        let name = first.display().to_string();
        let file = capture::file::File::open(first, options.clone())?;
        let (stop, (sender, parts)) = (Arc::new(AtomicBool::new(false)), sync_channel(WAITING));
        let (plan, more, stopped) = (plan.clone(), more.to_vec(), Arc::clone(&stop));
        let fail =
            |error: std::io::Error| SourceError::System { name, what: "start a thread", error, advice: String::new() };
        let work = move || {
            let table = |flows| Table::new(flows, plan.interface, plan.shards);
            let flows = match plan.flows.as_ref().map(table).transpose() {
                Ok(flows) => flows,
                Err(e) => {
                    return OfflineResult {
                        broken: Some(format!("cannot create a thread: {e}")),
                        ..OfflineResult::default()
                    };
                }
            };
            let series_meter = plan.series.then(|| SeriesMeter::of_capture(plan.interface));
            let out = CallerSink { sender, part: Vec::new(), stop: Arc::clone(&stopped) };
            let work = Work::new(flows, series_meter, Sinks::new(vec![Box::new(out)]), plan.key, false);
            FileMeter { work, batch: Batch::default(), filter, last: Timestamp::ZERO, result: OfflineResult::default() }
                .run(file, &more, options, &stopped)
        };
        let thread = std::thread::Builder::new().name("meter".into()).spawn(work).map_err(fail)?;
        Ok(Self { parts, part: Vec::new().into_iter(), stop, thread: Some(thread), result: OfflineResult::default() })
    }

    /// Returns the result of the reading thread; it is empty until the iterator has ended.
    pub fn result(&self) -> &OfflineResult {
        &self.result
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            let panicked = |_| OfflineResult { broken: Some("the meter panicked".into()), ..OfflineResult::default() };
            self.result = thread.join().unwrap_or_else(panicked);
        }
    }
}

/// Returns the next record or series row; `None` at the end.
impl Iterator for OfflineMeter {
    type Item = MeterOutput;

    fn next(&mut self) -> Option<MeterOutput> {
        loop {
            if let Some(output) = self.part.next() {
                return Some(output);
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

impl Drop for OfflineMeter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that waits for space in the queue ends when the receiver is dropped.
        self.parts = sync_channel(0).1;
        self.end();
    }
}

/// The sink that passes flow records and series rows to the caller of the iterator.
struct CallerSink {
    sender: SyncSender<Vec<MeterOutput>>,
    part: Vec<MeterOutput>,
    stop: Arc<AtomicBool>,
}

impl CallerSink {
    fn add(&mut self, output: MeterOutput) {
        self.part.push(output);
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

impl Sink for CallerSink {
    fn kind(&self) -> &'static str {
        "caller"
    }

    fn record(&mut self, record: &Record) {
        self.add(MeterOutput::Record(record.clone()));
    }

    fn row(&mut self, row: &Row) {
        self.add(MeterOutput::Row(*row));
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

/// Packets that are metered in one call, in the memory layout of the ring.
#[derive(Default)]
struct Batch {
    descs: Vec<Desc>,
    bytes: Vec<u8>,
    link_type: u16,
}

impl PacketBytes for Batch {
    fn bytes(&self, desc: &Desc) -> &[u8] {
        let from = desc.pos() as usize + RECORD_HEADER;
        &self.bytes[from..from + usize::from(desc.caplen)]
    }

    fn wire_len(&self, desc: &Desc) -> u32 {
        let at = desc.pos() as usize + 12;
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

    /// Adds a frame in the same way as the engine adds it to the ring, with the same flags.
    fn add(&mut self, frame: &Frame<'_>, ts: Timestamp, filter: &Filter) {
        let headers = Headers::of(frame.bytes, frame.wire_len, self.link_type);
        if !filter.is_empty() && !filter.matches(frame.bytes, frame.wire_len, &headers) {
            // A frame that does not match is not metered, but it shows that the capture covers its second. The tick
            // advances the time, and the count of 0 filtered packets causes a series row for this second.
            self.descs.push(Desc::control(Control::Tick, ts));
            return self.descs.push(Desc::control(Control::Filtered { packets: 0 }, ts));
        }
        let bytes = &frame.bytes[..frame.bytes.len().min(CAPLEN_MAX)];
        let truncated = bytes.len() < frame.wire_len as usize;
        let flags = [
            (flag::TRUNCATED, truncated),
            (flag::MALFORMED, headers.malformed()),
            (flag::SUPER_FRAME, frame.super_frame),
            (flag::OUTGOING, frame.outgoing),
            (flag::WIRE_RAISED, frame.wire_raised),
            (flag::CLAMPED, frame.stamp.is_some_and(|stamp| stamp > TIMESTAMP_MAX)),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set).fold(0, |all, (bit, _)| all | bit);
        let (pos, caplen) = (self.bytes.len() as u64, bytes.len() as u16);
        self.bytes.extend_from_slice(&[0; RECORD_HEADER - 4]);
        self.bytes.extend_from_slice(&frame.wire_len.to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        let wire_len = u16::try_from(frame.wire_len).unwrap_or(u16::MAX);
        let annotated_pos = AnnotatedPosition::new(pos).with_annotations(Annotations::new(TimestampMethod::File, None));
        self.descs.push(Desc { annotated_pos, ts: ts.nanos(), caplen, wire_len, flags, ..Desc::default() });
    }
}

/// Reads the files and meters their packets: the state of the thread.
struct FileMeter {
    work: Work,
    batch: Batch,
    filter: Filter,
    last: Timestamp,
    result: OfflineResult,
}

impl FileMeter {
    fn run(
        mut self,
        first: capture::file::File,
        more: &[PathBuf],
        options: capture::file::Options,
        stop: &AtomicBool,
    ) -> OfflineResult {
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
                    let text = format!(
                        "link type {is}, but the earlier files have link type {was}; meter this file separately"
                    );
                    self.result.broken = Some(format!("{}: {text}", path.display()));
                    break;
                }
                Err(e) => {
                    self.result.broken = Some(e.to_string());
                    break;
                }
            }
        }
        self.work.finish();
        self.result
    }

    fn file(&mut self, mut file: capture::file::File, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.batch.clear();
            let (batch, last, filter) = (&mut self.batch, &mut self.last, &self.filter);
            let polled = file.poll(BATCH, WAIT, |frame| {
                *last = frame.stamp.unwrap_or(*last).min(TIMESTAMP_MAX);
                batch.add(frame, *last, filter);
            });
            self.work.take(&self.batch, &self.batch.descs, false);
            match polled {
                Ok(Polled::End) => break,
                Ok(_) => {}
                Err(e) => {
                    // Only the first error is reported. If a file is truncated, its complete packets and the next files
                    // are still metered.
                    self.result.broken.get_or_insert_with(|| e.to_string());
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
        self.result.warnings.extend(file.warnings());
    }
}
