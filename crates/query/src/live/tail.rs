//! The live tail of one queue: the packets of its growing file, then the packets after it in the recorder's ring. For a
//! query that follows, the tail also returns all later packets, and continues when the recorder begins a new file.
//!
//! Stream positions join file and ring: the index of a file gives the first stream position of the file, and a packet
//! has the same position in the ring. Invariant: every packet before the tail's position was returned or did not match,
//! and no packet after it was returned. The tail searches for the next packet in the part of the file that the index
//! covers, then in the ring, alternately until it finds the packet. If the ring has overwritten the packet, the packet
//! is on disk and in the index, so the file contains it. So the tail neither skips nor repeats a packet, and it needs
//! memory for only one block of the file and one batch of descriptors.
//!
//! Each step takes the state ([`TailState`]) and returns the next:
//!
//! | state | event | next state |
//! |---|---|---|
//! | `Opened` | the cursor has reported the begin of the file | `File` |
//! | `File` | the index covers more records, or the next file is known | `File` |
//! | `File`, `Missing` | the ring contains the packet after the file, or is the last remaining source | `Ring` |
//! | `Ring` | the ring has overwritten the next packet, and a known file contains it | `File` |
//! | `Ring` | the ring has overwritten the next packet, and no known file contains it | `Missing` |
//!
//! A query that does not follow ends at the last packet that was published when the query began ([`TailLimit`]).

mod attempts;
mod in_file;
mod in_ring;

use super::bounds::{TailBegin, TailLimit};
use super::file_scan::{FileScan, Record};
use super::growing::Growing;
use super::ring_reader::RingReader;
use crate::cursor::{Cursor, CursorState};
use crate::{FoundPacket, Origin, QueryContext, QueryError};
use attempts::Attempts;
use base::{Tally, Timestamp};
use filter::KeyCondition;
use ring::RECORD_HEADER;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use store::Hold;

/// Number of packets that the cursor skips between two tests of the stop flag.
const CHECK_INTERVAL: u32 = 4096;

/// The tail of one queue.
pub struct Tail {
    source: TailSource,
    origin: TailOrigin,
    begin: TailBegin,
    limit: TailLimit,
    state: TailState,
    segment: Segment,
    attempts: Attempts,
    /// The latest timestamp of all packets so far, matching or not.
    latest: Timestamp,
    current: CurrentPacket,
}

/// The files and the ring of one queue.
pub struct TailSource {
    /// The directory of the interface.
    pub directory: PathBuf,
    /// The queue.
    pub queue: u16,
    /// The condition on keys; only blocks that may satisfy it are read.
    pub need: KeyCondition,
    /// The reader of the recorder's ring, if there is a recorder that admits listeners.
    pub ring_reader: Option<RingReader>,
}

/// The origin of the tail's packets: its number in the query context, and its link type.
#[derive(Default)]
struct TailOrigin {
    number: usize,
    link_type: u16,
    /// True if the origin was described by the ring, and not by the header of a file.
    is_of_ring: bool,
}

/// The segment of the stream that contains the next packet.
#[derive(Clone, Copy)]
struct Segment {
    /// Its first position.
    pos: u64,
    /// Its first timestamp.
    start: Timestamp,
}

/// The source of the next packet.
enum TailState {
    /// The source is a file; the cursor has not yet reported the time at which the file begins.
    Opened { begins: Timestamp, file: Box<OpenFile> },
    /// The source is a file, up to the end of the bytes that its index covers.
    File(Box<OpenFile>),
    /// The ring.
    Ring(Box<RingRun>),
    /// The next packet, at stream position `pos`, is neither in the ring nor in a known file.
    Missing { pos: u64 },
}

/// The file that the tail reads.
struct OpenFile {
    scan: FileScan,
    /// The hold on the hour directory of the file, so that retention removes nothing from it.
    _hold: Option<Hold>,
}

/// A sequence of packets that the tail reads from the ring, until it switches to a file.
#[derive(Default)]
struct RingRun {
    /// Stream position of the next packet.
    next: u64,
    /// The file of the segment that contains `next`, from which the tail reads packets that the ring has overwritten;
    /// `None` after a rotation.
    file: Option<Box<OpenFile>>,
    /// Set until the first packet of the run is read, and only if the ring has overwritten packets after the position
    /// at which the run begins.
    unsure: Option<UnsureBegin>,
    /// The ledger counts of the current block.
    counted: Tally,
    /// The ledger counts that were not yet added to the query context.
    unreported: Tally,
}

/// The begin of a run of packets from the ring, if the ring has overwritten packets after this begin, so that the first
/// packets of the run may be missing.
#[derive(Clone, Copy)]
struct UnsureBegin {
    /// The stream position at which the run begins if no packet is missing.
    pos: u64,
    /// The greatest number of bytes between `pos` and the begin of the next record, if no packet is missing. It is more
    /// than zero if `pos` may be within a record.
    slack: u64,
}

/// The current packet of the cursor, in the file or in the ring, and the number of packets of the same origin that were
/// lost before it.
enum CurrentPacket {
    None,
    File { record: Record, lost: u64 },
    Ring { ts: Timestamp, wire_len: u32, pos: u64, lost: u64 },
}

/// The state after a step, and the result for the caller of the cursor, if the step has one.
type Step = (TailState, Option<CursorState>);

impl Tail {
    fn new(source: TailSource, begin: TailBegin, limit: TailLimit) -> Self {
        Self {
            source,
            origin: TailOrigin::default(),
            begin,
            limit,
            state: TailState::Missing { pos: 0 },
            segment: Segment { pos: 0, start: Timestamp::ZERO },
            attempts: Attempts::default(),
            latest: Timestamp::ZERO,
            current: CurrentPacket::None,
        }
    }

    /// A tail that begins with a file. If another cursor reads this file (`read_by_others`), the tail begins at the end
    /// of the file.
    pub fn of_file(
        source: TailSource,
        begin: TailBegin,
        limit: TailLimit,
        (file, read_by_others): (Growing, bool),
        context: &mut QueryContext,
    ) -> Self {
        let mut this = Self::new(source, begin, limit);
        let (begins, end) = (file.header().start, file.covered_bytes());
        let mut file = this.enter(file, context);
        if read_by_others {
            file.scan.seek(end, None);
        }
        this.state = TailState::Opened { begins, file };
        this
    }

    /// A tail that begins with the oldest packet in the ring, because the recorder has not created a file yet.
    pub fn of_ring(source: TailSource, begin: TailBegin, limit: TailLimit, context: &mut QueryContext) -> Self {
        let mut this = Self::new(source, begin, limit);
        let Some(ring_reader) = &mut this.source.ring_reader else { return this };
        let (link_type, snaplen) = ring_reader.kind();
        let link_type = link_type as u16;
        let (interface, queue) = (ring_reader.name().to_owned(), this.source.queue);
        let (filter, timestamp_source) = (String::new(), String::new());
        let number = context.origin(Origin { interface, queue, link_type, snaplen, filter, timestamp_source });
        this.origin = TailOrigin { number, link_type, is_of_ring: true };
        ring_reader.rewind(0);
        this.state = TailState::Ring(Box::default());
        this
    }

    /// Begins the scan of a file; each file is one segment of the stream.
    fn enter(&mut self, file: Growing, context: &mut QueryContext) -> Box<OpenFile> {
        let header = file.header();
        let link_type = header.link_type as u16;
        // If the tail began without a file, its origin does not change when a file is found, although the header of the
        // file contains more details.
        if !self.origin.is_of_ring || link_type != self.origin.link_type {
            self.origin.link_type = link_type;
            self.origin.number = context.origin(Origin {
                interface: header.interface.clone(),
                queue: header.queue,
                link_type,
                snaplen: header.snaplen,
                filter: header.filter.clone(),
                timestamp_source: header.timestamp_source.clone(),
            });
        }
        self.segment = Segment { pos: file.first_pos(), start: file.entry.start };
        if context.query.with_timestamp_quality {
            context.add_timestamps(self.origin.number, file.timestamps());
        }
        // If no hold can be taken, the tail reads the file without a hold. For example, if the directory was removed,
        // retention cannot remove files from it.
        let hold = file.entry.path.parent().and_then(|hour| Hold::reader(hour).ok());
        Box::new(OpenFile { scan: FileScan::new(file, self.origin.number, self.begin, context), _hold: hold })
    }

    /// Reads one record of the file or one descriptor of the ring, or switches to the next source (file or ring). An
    /// error ends the query.
    fn step(&mut self, context: &mut QueryContext) -> Result<Option<CursorState>, QueryError> {
        let (state, result) = match std::mem::replace(&mut self.state, TailState::Missing { pos: 0 }) {
            // The file is not read before its packets are needed, because the packets of sealed files precede them.
            TailState::Opened { begins, file } => (TailState::File(file), Some(CursorState::Waiting(begins))),
            TailState::File(file) => self.read_file(file, context)?,
            TailState::Ring(run) => self.read_ring(run, context)?,
            TailState::Missing { pos } => self.search(pos, context)?,
        };
        self.state = state;
        Ok(result)
    }

    /// Adds the counts of packets from the ring to the context.
    fn report_counts(&mut self, context: &mut QueryContext) {
        if let TailState::Ring(run) = &mut self.state {
            context.count(self.origin.number, &std::mem::take(&mut run.unreported));
        }
    }

    fn io(&self, error: io::Error) -> QueryError {
        QueryError::Io { path: self.source.directory.clone(), error }
    }

    /// The cursor state that is returned while there is no packet. The function assumes that later packets are not much
    /// older than the latest packet.
    fn waiting(&self) -> CursorState {
        CursorState::Waiting(self.latest.max(self.segment.start))
    }

    /// The cursor state that is returned while there is no packet. For a query that follows, it contains a time before
    /// which no further packet is expected, because packets arrive with at most the delay `delay`. For any other query,
    /// it says that the cursor has ended.
    fn wait(&mut self, delay: Duration, context: &QueryContext) -> CursorState {
        let latest = self.latest;
        self.limit.followed().map_or(CursorState::End, |recorder| recorder.wait(delay, latest, context.query.to))
    }
}

impl Cursor for Tail {
    fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError> {
        self.current = CurrentPacket::None;
        let mut patience = CHECK_INTERVAL;
        let result = loop {
            if let Some(result) = self.step(context)? {
                break result;
            }
            patience -= 1;
            if patience == 0 {
                if context.is_stopped() {
                    break CursorState::End;
                }
                patience = CHECK_INTERVAL;
            }
        };
        if result == CursorState::End {
            self.report_counts(context);
        }
        Ok(result)
    }

    fn packet(&self) -> FoundPacket<'_> {
        let (origin, link_type) = (self.origin.number, self.origin.link_type);
        match (&self.current, &self.state, &self.source.ring_reader) {
            (CurrentPacket::File { record, lost }, TailState::File(file), _) => {
                let (data, position) = (file.scan.data(record), file.scan.file.position(record.offset));
                FoundPacket { ts: record.ts, wire_len: record.wire_len, data, link_type, origin, lost: *lost, position }
            }
            (CurrentPacket::Ring { ts, wire_len, pos, lost }, _, Some(ring_reader)) => {
                let data = ring_reader.latest().get(RECORD_HEADER..).unwrap_or_default();
                let position = Some(*pos);
                FoundPacket { ts: *ts, wire_len: *wire_len, data, link_type, origin, lost: *lost, position }
            }
            _ => {
                FoundPacket { ts: Timestamp::ZERO, wire_len: 0, data: &[], link_type, origin, lost: 0, position: None }
            }
        }
    }
}
