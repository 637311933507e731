//! The state of a tail that reads the ring: the tail reads packets and control descriptors, and switches back to a file
//! if the ring has overwritten the next packet.

use super::super::chain;
use super::super::ring_reader::RingEvent;
use super::{CurrentPacket, OpenFile, RingRun, Segment, Step, Tail, TailState, UnsureBegin};
use crate::cursor::CursorState;
use crate::{QueryContext, QueryError};
use base::{Tally, Timestamp};
use ring::{BLOCK, Control, Desc, FILE_HEADER, RECORD_HEADER, flag};
use std::time::Duration;

/// The longest time from a packet's timestamp to its publication in the ring: the duration of a batch, or of a
/// TPACKET_V3 block of the kernel.
const RING_DELAY: Duration = Duration::from_millis(200);

impl Tail {
    /// Reads one descriptor of the ring.
    pub(super) fn read_ring(&mut self, mut run: Box<RingRun>, context: &mut QueryContext) -> Result<Step, QueryError> {
        let Some(ring_reader) = &mut self.source.ring_reader else {
            return Ok((TailState::Missing { pos: run.next }, None));
        };
        let event = ring_reader.next();
        if !matches!(event, RingEvent::Packet(_)) {
            context.count(self.origin.number, &std::mem::take(&mut run.unreported));
        }
        let result = match event {
            RingEvent::Packet(desc) => return self.read_ring_packet(run, &desc, context),
            RingEvent::Lapped => return Ok((self.return_to_file(run, context)?, None)),
            RingEvent::Control(Control::Segment { pos, gap }, start) => {
                self.begin_segment(&mut run, Segment { pos, start }, gap.into(), context);
                None
            }
            RingEvent::Control(control, ts) => {
                self.count_control(&mut run, control, ts, context);
                None
            }
            RingEvent::Nothing => Some(self.wait(RING_DELAY, context)),
            RingEvent::End => {
                if let Some(recorder) = self.limit.followed() {
                    recorder.report_end(&self.source.directory, context);
                }
                Some(CursorState::End)
            }
        };
        Ok((TailState::Ring(run), result))
    }

    /// Reads one packet of the ring, unless the tail has already returned it from the file.
    fn read_ring_packet(
        &mut self,
        mut run: Box<RingRun>,
        desc: &Desc,
        context: &mut QueryContext,
    ) -> Result<Step, QueryError> {
        if desc.pos() < run.next {
            return Ok((TailState::Ring(run), None));
        }
        if self.limit.is_reached(self.segment.pos, desc.pos()) {
            return Ok((TailState::Ring(run), Some(CursorState::End)));
        }
        self.confirm_begin(&mut run, desc.pos(), FILE_HEADER as u64, context);
        let ts = desc.timestamp();
        self.latest = self.latest.max(ts);
        let Some(ring_reader) = &mut self.source.ring_reader else { return Ok((TailState::Ring(run), None)) };
        let interval = self.begin.of_packet(self.segment.pos, desc.pos(), ts)..=context.query.to;
        let is_wanted = interval.contains(&ts);
        if is_wanted && ring_reader.record(desc).is_none() {
            run.next = desc.pos();
            return Ok((self.return_to_file(run, context)?, None));
        }
        let record = if is_wanted { ring_reader.latest() } else { &[] };
        let wire_len = match record.get(12..16) {
            Some(b) => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            None => desc.wire_len.into(),
        };
        self.attempts.clear();
        context.cost.packets += 1;
        context.cost.from_ring += 1;
        if (interval.start().secs()..=interval.end().secs()).contains(&ts.secs()) {
            run.count_packet(desc, wire_len);
        }
        run.advance(desc, self.segment.pos);
        let data = record.get(RECORD_HEADER..).unwrap_or_default();
        if !is_wanted || !context.matches(wire_len, data, self.origin.link_type) {
            return Ok((TailState::Ring(run), None));
        }
        self.current =
            CurrentPacket::Ring { ts, wire_len, pos: desc.pos(), lost: context.take_lost(self.origin.number) };
        Ok((TailState::Ring(run), Some(CursorState::Packet(ts))))
    }

    /// Continues with the next segment. The file of the previous segment is not needed any longer, and retention may
    /// remove it.
    fn begin_segment(&mut self, run: &mut RingRun, segment: Segment, gap: u64, context: &mut QueryContext) {
        self.confirm_begin(run, segment.pos, gap, context);
        self.segment = segment;
        run.begin_segment(segment.pos);
    }

    /// If it was unsure whether the ring contains the first packet of a run ([`RingRun`]), warns about the stream
    /// positions that are missing before the first packet that the ring contains. A gap of `padding` bytes contains no
    /// packets, so the function does not warn about such a gap.
    fn confirm_begin(&self, run: &mut RingRun, at: u64, padding: u64, context: &mut QueryContext) {
        let Some(begin) = run.unsure.take().filter(|begin| begin.has_gap(at, padding)) else { return };
        context.damage(format!(
            "{}: queue {}: the packets at stream positions {} to {at} are neither on disk nor in the ring; they are \
             missing here",
            self.source.directory.display(),
            self.source.queue,
            begin.pos
        ));
    }

    /// Adds the lost or filtered packets of a control descriptor to the ledger counts, if the second of the descriptor
    /// is in the interval.
    fn count_control(&self, run: &mut RingRun, control: Control, ts: Timestamp, context: &mut QueryContext) {
        if !(self.begin.of_control().secs()..=context.query.to.secs()).contains(&ts.secs()) {
            return;
        }
        let mut tally = Tally::default();
        match control {
            Control::Lost { cause, packets, .. } => tally.add_lost(cause, packets),
            Control::Filtered { packets } => (tally.offered, tally.filtered) = (packets, packets),
            Control::Duplicate { packets } => (tally.offered, tally.duplicate) = (packets, packets),
            Control::Segment { .. }
            | Control::Tick
            | Control::Timestamps { .. }
            | Control::ClockStep { .. }
            | Control::End => return,
        }
        run.counted += &tally;
        context.count(self.origin.number, &tally);
        context.add_lost(self.origin.number, tally.lost_total());
    }

    /// Switches back to the file, because the ring has overwritten the next packet.
    fn return_to_file(&mut self, run: Box<RingRun>, context: &mut QueryContext) -> Result<TailState, QueryError> {
        let RingRun { next, file, counted, unreported, .. } = *run;
        context.count(self.origin.number, &unreported);
        if let Some(mut file) = file {
            file.scan.refresh(context);
            file.scan.seek(next.saturating_sub(file.scan.file.first_pos()), Some(counted));
            return Ok(TailState::File(file));
        }
        let Segment { pos: first, start } = self.segment;
        let (directory, queue, need) = (&self.source.directory, self.source.queue, &self.source.need);
        let found = chain::covering(directory, queue, start, next.max(first), need, context);
        let Some(file) = found.map_err(|e| self.io(e))? else {
            // The file is being renamed, or was never written; the tail reads the ring again from its oldest complete
            // record.
            return Ok(TailState::Missing { pos: next });
        };
        if file.is_raw() {
            let path = file.entry.path.display();
            context.damage(format!(
                "{path}: RAW files have no stream positions; packets that the ring overwrote before they were read are \
                 missing here, and a later query finds them"
            ));
            return Ok(TailState::Missing { pos: next });
        }
        let counted = (file.first_pos() == first).then_some(counted);
        let mut file = self.enter(file, context);
        file.scan.seek(next.saturating_sub(file.scan.file.first_pos()), counted);
        Ok(TailState::File(file))
    }
}

impl RingRun {
    /// A run of packets from the ring that begins at stream position `pos`, after the packets of `file`. `is_sure` is
    /// true if the ring contains all packets from `pos` on. If it is false, the ring has overwritten bytes from `pos`
    /// on, which may or may not contain packets.
    pub(super) fn behind(file: Option<Box<OpenFile>>, pos: u64, is_sure: bool) -> Box<Self> {
        let slack = file.as_ref().map_or(0, |file| file.scan.slack());
        let counted = file.as_ref().map(|file| file.scan.counted()).unwrap_or_default();
        let unsure = (!is_sure).then_some(UnsureBegin { pos, slack });
        Box::new(Self { next: pos, file, unsure, counted, ..Self::default() })
    }

    /// Counts a packet.
    fn count_packet(&mut self, desc: &Desc, wire_len: u32) {
        for tally in [&mut self.counted, &mut self.unreported] {
            tally.offered += 1;
            tally.stored += 1;
            tally.stored_bytes += u64::from(wire_len);
            for (bit, note) in flag::NOTE_FLAGS.into_iter().filter(|_| desc.flags != 0) {
                tally.notes[note as usize] += u64::from(desc.flags & bit != 0);
            }
        }
    }

    /// Moves past a packet of the segment that begins at `segment`. As in the recorder, a packet that reaches the end
    /// of a block is the last packet of the block.
    fn advance(&mut self, desc: &Desc, segment: u64) {
        self.next = desc.end();
        if desc.pos().saturating_sub(segment) / BLOCK != self.next.saturating_sub(segment) / BLOCK {
            self.counted = Tally::default();
        }
    }

    /// Moves to the first packet of the segment at this position and closes the file of the previous segment.
    fn begin_segment(&mut self, pos: u64) {
        self.next = pos.saturating_add(FILE_HEADER as u64);
        self.counted = Tally::default();
        self.file = None;
    }
}

impl UnsureBegin {
    /// True if packets are missing before `at`, which is the first position that the ring contains. A gap of `padding`
    /// bytes contains no packets.
    fn has_gap(self, at: u64, padding: u64) -> bool {
        let skipped = at.saturating_sub(self.pos);
        skipped > self.slack && skipped != padding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(pos: u64, len: u32) -> Desc {
        let mut desc = Desc::default();
        (desc.annotated_pos, desc.caplen) = (ring::AnnotatedPosition::new(pos), len as u16);
        desc
    }

    #[test]
    fn an_unsure_begin_has_a_gap_beyond_its_slack_except_for_padding() {
        let begin = UnsureBegin { pos: 1000, slack: 100 };
        for (at, padding, has_gap) in [(1000, 24, false), (1100, 24, false), (1101, 24, true), (1500, 500, false)] {
            assert_eq!(begin.has_gap(at, padding), has_gap, "{at} with padding {padding}");
        }
    }

    #[test]
    fn a_run_counts_the_current_block_and_unreported_packets_separately() {
        let mut run = RingRun::behind(None, 0, true);
        let (first, last) = (packet(24, 60), packet(BLOCK - 40, 60));
        run.count_packet(&first, 60);
        run.advance(&first, 0);
        assert_eq!((run.counted.stored, run.unreported.stored, run.next), (1, 1, first.end()));
        run.count_packet(&last, 60);
        run.advance(&last, 0);
        assert_eq!((run.counted.stored, run.unreported.stored), (0, 2), "the counts of the next block begin at zero");
    }

    #[test]
    fn a_new_segment_begins_after_its_header_and_keeps_unreported_counts() {
        let mut run = RingRun::behind(None, 5000, false);
        run.count_packet(&packet(5000, 60), 60);
        run.begin_segment(BLOCK);
        assert_eq!((run.next, run.counted.stored, run.unreported.stored), (BLOCK + FILE_HEADER as u64, 0, 1));
        assert!(run.file.is_none());
    }
}
