//! The state of a tail that reads its file: the tail returns the records of the part of the file that the index covers,
//! and then switches to the next file or to the ring.

use super::super::chain::{self, Next};
use super::super::growing::Growing;
use super::attempts::{Findings, NextSource};
use super::{CurrentPacket, OpenFile, RingRun, Step, Tail, TailState};
use crate::cursor::CursorState;
use crate::{QueryContext, QueryError};
use std::time::{Duration, Instant};

/// The longest time from a packet's timestamp to its index entry; the recorder writes at least once per second.
const FILE_DELAY: Duration = Duration::from_millis(1250);

/// The pause before file and ring are read again, if the next packet is in neither.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// Time for which the tail waits for the last blocks of a file that a recorder seals on a slow disk while it already
/// writes the next file.
const SEALING: Duration = Duration::from_secs(10);

/// The continuation after a file.
enum Behind {
    /// The next file or ring position is not known yet: the recorder is sealing the current file or creating the next
    /// file.
    Pending,
    /// The next file.
    Next(Box<Growing>),
    /// No known file continues the stream directly after the current file. `pos` is the stream position of the next
    /// packet; `later` is a file that begins after this position, if there is one.
    Ends { pos: u64, later: Option<Box<Growing>> },
}

impl Tail {
    /// Reads one record of the file; after the last record, switches to the next source (file or ring).
    pub(super) fn read_file(
        &mut self,
        mut file: Box<OpenFile>,
        context: &mut QueryContext,
    ) -> Result<Step, QueryError> {
        let scan = &mut file.scan;
        let Some(record) = scan.next(self.source.ring_reader.as_ref(), context) else {
            return self.continue_behind(file, context);
        };
        let (first, pos) = (scan.file.first_pos(), scan.file.first_pos().saturating_add(record.offset));
        if self.limit.is_reached(first, pos) {
            return Ok((TailState::File(file), Some(CursorState::End)));
        }
        self.attempts.clear();
        self.latest = self.latest.max(record.ts);
        context.cost.packets += 1;
        let from = self.begin.of_packet(first, pos, record.ts);
        if !(from..=context.query.to).contains(&record.ts)
            || !context.matches(record.wire_len, scan.data(&record), self.origin.link_type)
        {
            return Ok((TailState::File(file), None));
        }
        self.current = CurrentPacket::File { record, lost: context.take_lost(self.origin.number) };
        Ok((TailState::File(file), Some(CursorState::Packet(record.ts))))
    }

    /// Continues after the indexed part of the file: with newly written blocks, with the next file, or with the ring.
    fn continue_behind(&mut self, mut file: Box<OpenFile>, context: &mut QueryContext) -> Result<Step, QueryError> {
        if self.is_pausing() {
            return Ok((TailState::File(file), Some(self.wait(FILE_DELAY, context))));
        }
        if self.refresh(&mut file, context) {
            return Ok((TailState::File(file), None));
        }
        let first = file.scan.file.first_pos();
        if self.limit.is_reached(first, file.scan.pos()) {
            return Ok((TailState::File(file), Some(CursorState::End)));
        }
        match self.find_behind(&file, context)? {
            Behind::Pending => Ok((TailState::File(file), Some(self.waiting()))),
            Behind::Next(next) => Ok((TailState::File(self.enter(*next, context)), None)),
            Behind::Ends { pos, .. } if self.limit.is_reached(first, pos) => {
                Ok((TailState::File(file), Some(CursorState::End)))
            }
            Behind::Ends { pos, later } => Ok(self.change_source(Some(file), pos, later, context)),
        }
    }

    /// Searches again for the packet at this position, which was neither in a known file nor in the ring.
    pub(super) fn search(&mut self, pos: u64, context: &mut QueryContext) -> Result<Step, QueryError> {
        if self.is_pausing() {
            return Ok((TailState::Missing { pos }, Some(self.wait(FILE_DELAY, context))));
        }
        if let Some(recorder) = self.limit.followed() {
            recorder.begin_check();
        }
        if self.limit.is_reached(0, pos) {
            return Ok((TailState::Missing { pos }, Some(CursorState::End)));
        }
        Ok(self.change_source(None, pos, None, context))
    }

    /// True if a query that follows without a ring reader must not read the files yet, because the pause after the last
    /// search for new packets is not over.
    fn is_pausing(&mut self) -> bool {
        self.source.ring_reader.is_none() && self.limit.running().is_some_and(|recorder| recorder.is_pausing())
    }

    /// Reads the index of the file again if it has changed; returns true if it covers more bytes than before.
    fn refresh(&mut self, file: &mut OpenFile, context: &mut QueryContext) -> bool {
        let begun = Instant::now();
        let has_more = file.scan.refresh(context);
        if let Some(recorder) = self.limit.followed() {
            recorder.end_check(begun);
        }
        has_more
    }

    /// Finds the source (file or ring) that contains the packet after the indexed part of the file.
    fn find_behind(&mut self, file: &OpenFile, context: &mut QueryContext) -> Result<Behind, QueryError> {
        let (scan, growing) = (&file.scan, &file.scan.file);
        let is_awaited = self.is_awaited(growing.first_pos());
        if !growing.is_complete() {
            if !is_awaited {
                return Ok(Behind::Ends { pos: scan.pos(), later: None });
            }
            // The recorder seals the file while it writes the next one, so the missing blocks are being written to the
            // disk.
            let timeout = if growing.is_held() { SEALING } else { RETRY_PAUSE };
            if !self.attempts.has_waited(scan.pos(), timeout, Instant::now()) {
                return Ok(Behind::Pending);
            }
            let path = growing.entry.path.display();
            context.damage(format!(
                "{path}: the file is incomplete, and its last packets are missing in the result; run netgrain repair"
            ));
        }
        let pos = chain::end_of(growing);
        let (directory, queue, need) = (&self.source.directory, self.source.queue, &self.source.need);
        match chain::behind(directory, queue, growing, need, context).map_err(|e| self.io(e))? {
            Next::Follows(next) => return Ok(Behind::Next(next)),
            Next::Later(later) => return Ok(Behind::Ends { pos, later: Some(later) }),
            Next::None => {}
        }
        if is_awaited {
            if !self.attempts.has_waited(pos, SEALING, Instant::now()) {
                return Ok(Behind::Pending);
            }
            let name = self.source.directory.display();
            context.damage(format!("{name}: the file after {} was removed before it was read", self.segment.start));
        }
        Ok(Behind::Ends { pos, later: None })
    }

    /// True if the query must wait for later files, because the remaining packets of the result are in them and not in
    /// a ring.
    fn is_awaited(&self, file: u64) -> bool {
        self.source.ring_reader.is_none() && self.limit.is_in_later_file(file)
    }

    /// Switches to the source (file or ring) that contains the packet at this stream position. `file` is the current
    /// file, which ends at this position; `later` is a file that begins after this position, if there is one.
    fn change_source(
        &mut self,
        file: Option<Box<OpenFile>>,
        pos: u64,
        later: Option<Box<Growing>>,
        context: &mut QueryContext,
    ) -> Step {
        let findings = Findings {
            is_in_ring: self.source.ring_reader.as_mut().map(|ring_reader| ring_reader.rewind(pos)),
            has_later_file: later.is_some(),
            attempts: self.attempts.count(pos),
            follows: self.limit.running().is_some(),
        };
        let next_source = findings.next_source();
        if let NextSource::Ring { is_sure } = next_source {
            return (TailState::Ring(RingRun::behind(file, pos, is_sure)), None);
        }
        let stay = file.map_or(TailState::Missing { pos }, TailState::File);
        match (next_source, later) {
            (NextSource::LaterFile, Some(later)) => {
                let path = later.entry.path.display();
                context.damage(format!(
                    "{path}: the files before this file were removed before they were read, by retention or another \
                     process; their packets are missing here"
                ));
                (TailState::File(self.enter(*later, context)), None)
            }
            (NextSource::AgainAfterPause, _) => {
                std::thread::sleep(RETRY_PAUSE);
                (stay, None)
            }
            (NextSource::Wait, _) => {
                if let Some(recorder) = self.limit.running() {
                    recorder.check(&self.source.directory, context);
                }
                (stay, Some(self.wait(FILE_DELAY, context)))
            }
            (NextSource::End, _) => (stay, Some(CursorState::End)),
            _ => (stay, None),
        }
    }
}
