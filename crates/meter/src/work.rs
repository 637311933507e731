//! The meter of one interface: it turns the packets of all queues, in order of time, into flow records and series rows.
//!
//! The result depends only on the packets and on the control descriptors between them: a replay of the recorded packets
//! makes the same records and series rows as the recording.

use crate::packet_bytes::{BATCH, PacketBytes};
use crate::report::{MeterReport, TunnelReport};
use crate::sink::Sinks;
use crate::table::Table;
use base::{ClockSteps, Note, Tally, Timestamp, TimestampMethod, TimestampMethods};
use flow::Packet;
use ring::{Control, Desc, flag};
use series::{Direction, Row, SeriesMeter, TimestampCounters, count_packet};
use std::num::NonZeroU32;
use std::time::Duration;
use wire::{DecodeError, Decoded, Fragments, SessionCounts, Sessions};

/// Number of packets between the prefetch of a packet's bytes and its decoding.
const AHEAD: usize = 8;

/// Bytes of a cache line.
const LINE: usize = 64;

/// See the module documentation.
pub struct Work {
    fragments: Fragments,
    /// The sequence numbers of tunnel sessions. They are counted before the packets are divided into shards, because
    /// the packets of a session belong to many flows.
    sessions: Sessions,
    flows: Option<Table>,
    series: Option<SeriesMeter>,
    pub out: Sinks,
    /// The key under which addresses are hashed.
    key: u64,
    /// True if the packets are stored, so that [`Packet::position`] is valid.
    located: bool,
    /// The second of packet time to which the packets belong that are being metered.
    second: Option<u64>,
    /// Numbers of packets of this second by outcome (stored, filtered, lost) that the time series does not contain yet.
    tally: Tally,
    /// Numbers of stored packets of this second by timestamp method that the time series does not contain yet.
    methods: [u64; TimestampMethod::COUNT],
    /// Decoded headers, whose memory is reused for each stretch (packets of one second without a control descriptor
    /// between them). Their number is the length of the longest stretch so far.
    decoded: Vec<Decoded>,
    /// The packets of a stretch that are not marked as copies, if the stretch has marked packets.
    originals: Vec<Desc>,
    packets: u64,
    bytes: u64,
    duplicates: u64,
    duplicate_bytes: u64,
    unmetered: u64,
    decode_errors: [u64; DecodeError::COUNT],
    /// The numbers of flows that had begun and ended before the last series row was made.
    reported: (u64, u64),
    /// The tunnel counters at the time at which the last series row was made.
    tunnel_report: SessionCounts,
}

impl Work {
    /// The state of a meter before the first packet.
    pub fn new(flows: Option<Table>, series_meter: Option<SeriesMeter>, out: Sinks, key: u64, located: bool) -> Self {
        Self {
            fragments: Fragments::new(key),
            sessions: Sessions::new(key),
            flows,
            series: series_meter,
            out,
            key,
            located,
            second: None,
            tally: Tally::default(),
            methods: [0; TimestampMethod::COUNT],
            decoded: Vec::with_capacity(BATCH),
            originals: Vec::new(),
            packets: 0,
            bytes: 0,
            duplicates: 0,
            duplicate_bytes: 0,
            unmetered: 0,
            decode_errors: [0; DecodeError::COUNT],
            reported: (0, 0),
            tunnel_report: SessionCounts::default(),
        }
    }

    /// Meters a run of descriptors. With `shed`, the packets are counted as unmetered and skipped.
    pub fn take(&mut self, queue: &impl PacketBytes, descs: &[Desc], shed: bool) {
        // A stretch is a run of packets in one second without a control descriptor between them.
        let mut from = 0;
        for (i, desc) in descs.iter().enumerate() {
            if desc.is_packet() {
                let second = desc.timestamp().secs();
                if self.second != Some(second) {
                    self.stretch(queue, &descs[from..i], shed);
                    from = i;
                    self.turn(second);
                }
            } else {
                self.stretch(queue, &descs[from..i], shed);
                from = i + 1;
                self.control(desc);
            }
        }
        self.stretch(queue, &descs[from..], shed);
    }

    fn stretch(&mut self, queue: &impl PacketBytes, descs: &[Desc], shed: bool) {
        if descs.is_empty() {
            return;
        }
        let (mut bytes, mut flags, mut method_bits, mut has_duplicates) = (0, 0, 0, false);
        for desc in descs {
            bytes += u64::from(queue.wire_len(desc));
            flags |= desc.flags;
            method_bits |= desc.annotations().timestamp_method_bit();
            has_duplicates |= desc.duplicate_class().is_some();
        }
        self.tally.offered += descs.len() as u64;
        self.tally.stored += descs.len() as u64;
        self.tally.stored_bytes += bytes;
        // Few packets have a note. So the packets with a note are counted only if the combined flags of these packets
        // contain the note.
        for (bit, note) in flag::NOTE_FLAGS.into_iter().filter(|(bit, _)| flags & bit != 0) {
            self.tally.notes[note as usize] += descs.iter().filter(|desc| desc.flags & bit != 0).count() as u64;
        }
        // All packets of a stretch mostly have the same method.
        let methods = TimestampMethods::from_any_bits(method_bits);
        for method in methods.iter() {
            let is_only = methods == TimestampMethods::from_iter([method]);
            self.methods[method as usize] += match is_only {
                true => descs.len() as u64,
                false => descs.iter().filter(|desc| desc.timestamp_method() == method).count() as u64,
            };
        }
        if shed {
            self.unmetered += descs.len() as u64;
            if let (Some(flows), Some(second)) = (&mut self.flows, self.second) {
                flows.lost(second, descs.len() as u64);
            }
        } else if has_duplicates {
            self.meter_originals(queue, descs);
        } else {
            self.meter(queue, descs);
        }
    }

    /// Meters the packets that are not marked as copies, and counts the marked packets. A copy is not decoded, because
    /// its original was, and is not passed to the flow table, because a flow has each packet once.
    #[cold]
    fn meter_originals(&mut self, queue: &impl PacketBytes, descs: &[Desc]) {
        let mut originals = std::mem::take(&mut self.originals);
        originals.clear();
        for desc in descs {
            if desc.duplicate_class().is_none() {
                originals.push(*desc);
                continue;
            }
            let wire_len = queue.wire_len(desc);
            self.duplicates += 1;
            self.duplicate_bytes += u64::from(wire_len);
            if let Some(series_meter) = &mut self.series {
                series_meter.duplicate(desc.timestamp(), wire_len, direction(desc));
            }
        }
        self.meter(queue, &originals);
        self.originals = originals;
    }

    fn meter(&mut self, queue: &impl PacketBytes, descs: &[Desc]) {
        if self.decoded.len() < descs.len() {
            self.decoded.resize_with(descs.len(), Decoded::default);
        }
        for (i, (desc, decoded)) in descs.iter().zip(&mut self.decoded).enumerate() {
            // PERF: without this prefetch, half of the time of the loop was spent waiting for the first two cache lines
            // of each frame, which another CPU had written.
            if let Some(next) = descs.get(i + AHEAD) {
                let frame = queue.bytes(next).as_ptr();
                sys::memory::prefetch(frame);
                sys::memory::prefetch(frame.wrapping_add(LINE));
            }
            let (frame, wire_len) = (queue.bytes(desc), queue.wire_len(desc));
            decoded.read(frame, wire_len, queue.link_type());
            self.fragments.resolve(decoded, frame, desc.timestamp());
            if decoded.may_have_sequence() {
                self.sessions.observe(frame, wire_len, queue.link_type());
            }
            if let Some(error) = decoded.error {
                self.decode_errors[error.index()] += 1;
            }
            self.packets += 1;
            self.bytes += u64::from(wire_len);
            if let Some(series_meter) = &mut self.series {
                let outgoing = direction(desc) == Direction::Out;
                count_packet(series_meter, desc.timestamp(), outgoing, frame, wire_len, decoded, self.key);
            }
        }
        if let Some(flows) = &mut self.flows {
            let packets: Vec<Packet<'_>> = descs
                .iter()
                .zip(&self.decoded)
                .map(|(desc, decoded)| Packet {
                    ts: desc.timestamp(),
                    wire_len: queue.wire_len(desc),
                    data: queue.bytes(desc),
                    decoded,
                    position: if self.located { desc.pos() } else { Packet::NOWHERE },
                    queue: queue.queue(),
                })
                .collect();
            flows.push(&packets, &mut self.out);
        }
    }

    fn control(&mut self, desc: &Desc) {
        let second = desc.timestamp().secs();
        match desc.as_control() {
            Some(Control::Lost { cause, packets, .. }) => {
                let mut tally = Tally::default();
                tally.add_lost(cause, packets);
                self.account(second, &tally);
                if let Some(flows) = &mut self.flows {
                    flows.lost(second, packets);
                }
            }
            Some(Control::Filtered { packets }) => {
                self.account(second, &Tally { offered: packets, filtered: packets, ..Tally::default() });
            }
            Some(Control::Duplicate { packets }) => {
                self.account(second, &Tally { offered: packets, duplicate: packets, ..Tally::default() });
            }
            Some(Control::Timestamps { deviation_nanos, clock }) => {
                let deviation = deviation_nanos.map_or(0, NonZeroU32::get);
                self.timestamps(second, &TimestampCounters::of_report(deviation.into(), clock));
            }
            Some(Control::ClockStep { steps, nanos }) => {
                let mut tally = Tally::default();
                tally.notes[Note::ClockStep as usize] = steps.into();
                self.account(second, &tally);
                self.timestamps(second, &TimestampCounters::of_steps(&ClockSteps::one(nanos)));
            }
            Some(Control::Tick) if self.second != Some(second) => self.turn(second),
            _ => {}
        }
    }

    fn account(&mut self, second: u64, tally: &Tally) {
        if let Some(series_meter) = &mut self.series {
            series_meter.ledger(second, tally);
        }
    }

    fn timestamps(&mut self, second: u64, counters: &TimestampCounters) {
        if let Some(series_meter) = &mut self.series {
            series_meter.timestamps(second, counters);
        }
    }

    /// Advances to another second. If few seconds have passed without packets (up to the limit of the time series),
    /// each of them is processed separately, so that a flow that ends in one of them counts in that second. A longer
    /// time without packets is skipped.
    fn turn(&mut self, second: u64) {
        let mut passed = self.second.replace(second);
        if let Some(before) = passed {
            self.settle(before);
            if before < second && second - before <= self.series.as_ref().map_or(0, SeriesMeter::silence) {
                for between in before + 1..second {
                    self.tick(between, passed);
                    passed = Some(between);
                }
            } else {
                // After a gap in time, all flows end at once. They must not count in the last second before the gap, so
                // the flow counts of that second are added first.
                self.add_flow_counts(before);
                passed = None;
            }
        }
        self.tick(second, passed);
    }

    /// Adds the outcomes and tunnel counters of this second to the series row of the second.
    fn settle(&mut self, second: u64) {
        let tally = std::mem::take(&mut self.tally);
        if tally != Tally::default() {
            self.account(second, &tally);
            let methods = std::mem::take(&mut self.methods);
            self.timestamps(second, &TimestampCounters::of_methods(methods));
        }
        let (now, last) = (self.sessions.counts(), self.tunnel_report);
        if now.numbered > last.numbered
            && let Some(series_meter) = &mut self.series
        {
            let (numbered, late) = (now.numbered - last.numbered, now.late - last.late);
            series_meter.tunnels(second, numbered, now.missing - last.missing, late);
            self.tunnel_report = now;
        }
    }

    /// Begins a second. `passed` is the previous second if its series row is to include flow counts.
    fn tick(&mut self, second: u64, passed: Option<u64>) {
        let now = Timestamp::from_secs_nanos(second, 0);
        if let Some(flows) = &mut self.flows {
            flows.tick(now, &mut self.out);
        }
        if let Some(passed) = passed {
            self.add_flow_counts(passed);
        }
        if let Some(series_meter) = &mut self.series {
            series_meter.tick(now).iter().for_each(|row| self.out.row(row));
        }
        self.out.all.iter_mut().for_each(|sink| sink.tick(now));
    }

    /// Adds the numbers of active, new and ended flows to the series row of the second that has passed.
    fn add_flow_counts(&mut self, second: u64) {
        let (Some(flows), Some(series_meter)) = (&mut self.flows, &mut self.series) else { return };
        let counts = flows.counts_now();
        let ended = counts.ended();
        series_meter.flows(second, counts.active, counts.started - self.reported.0, ended - self.reported.1);
        self.reported = (counts.started, ended);
    }

    /// Ends the stream.
    pub fn finish(&mut self) {
        if let Some(second) = self.second {
            self.settle(second);
            // The last second gets a series row even if the filter matched none of its packets.
            self.account(second, &Tally::default());
            // The flow counts are added before the flow table ends, because flows that are cut off by the end of the
            // capture did not end in this second.
            self.add_flow_counts(second);
        }
        if let Some(flows) = &mut self.flows {
            flows.finish(&mut self.out);
        }
        if let Some(series_meter) = &mut self.series {
            series_meter.finish().iter().for_each(|row: &Row| self.out.row(row));
        }
        self.out.finish();
    }

    /// Returns the CPU time of the shard threads. The CPU time of the meter thread is not included.
    pub fn cpu(&self) -> Duration {
        self.flows.as_ref().map_or(Duration::ZERO, Table::cpu)
    }

    /// Returns the report.
    pub fn report(&self) -> MeterReport {
        let counts = self.flows.as_ref().map(Table::counts).unwrap_or_default();
        MeterReport {
            packets: self.packets,
            bytes: self.bytes,
            duplicates: self.duplicates,
            duplicate_bytes: self.duplicate_bytes,
            duplicates_in_rows: self.out.duplicates_in_rows,
            unmetered: self.unmetered,
            without_flow: counts.other,
            in_records: self.out.in_records,
            in_rows: self.out.in_rows,
            active: counts.active,
            started: counts.started,
            records: self.out.records(),
            expiry_delays: counts.expiry_delays.records,
            expiry_delay_nanos: counts.expiry_delays.nanos,
            backward_timestamps: counts.backward_timestamps,
            flow_bytes: counts.bytes,
            rows: self.out.rows,
            tunnels: TunnelReport::of(&self.sessions.counts()),
            decode_errors: DecodeError::all()
                .map(|error| (error.name(), self.decode_errors[error.index()]))
                .filter(|(_, n)| *n > 0)
                .collect(),
            sinks: self.out.reports(),
            ..MeterReport::default()
        }
    }
}

/// The direction of a packet.
fn direction(desc: &Desc) -> Direction {
    if desc.flags & flag::OUTGOING != 0 { Direction::Out } else { Direction::In }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::SinkReport;
    use crate::sink::Sink;
    use base::ClockState;
    use flow::Record;
    use ring::{AnnotatedPosition, Annotations};
    use std::sync::{Arc, Mutex};

    /// Collects the series rows.
    #[derive(Clone, Default)]
    struct RowSink(Arc<Mutex<Vec<Row>>>);

    impl Sink for RowSink {
        fn kind(&self) -> &'static str {
            "test"
        }

        fn record(&mut self, _: &Record) {}

        fn row(&mut self, row: &Row) {
            self.0.lock().expect("the lock").push(*row);
        }

        fn tick(&mut self, _: Timestamp) {}

        fn finish(&mut self) {}

        fn report(&self) -> SinkReport {
            SinkReport::default()
        }
    }

    /// Packets of 60 zeros.
    struct Zeros;

    impl PacketBytes for Zeros {
        fn bytes(&self, _: &Desc) -> &[u8] {
            &[0; 60]
        }

        fn wire_len(&self, _: &Desc) -> u32 {
            60
        }

        fn link_type(&self) -> u16 {
            1
        }

        fn queue(&self) -> u16 {
            0
        }
    }

    fn second(second: u64) -> Timestamp {
        Timestamp::from_secs_nanos(second, 0)
    }

    fn packet(at: u64, method: TimestampMethod) -> Desc {
        let annotated_pos = AnnotatedPosition::new(0).with_annotations(Annotations::new(method, None));
        Desc { annotated_pos, ts: second(at).nanos(), caplen: 60, wire_len: 60, ..Desc::default() }
    }

    #[test]
    fn rows_have_the_methods_the_last_report_and_the_clock_steps_of_their_second() {
        let sink = RowSink::default();
        let sinks = Sinks::new(vec![Box::new(sink.clone())]);
        let mut work = Work::new(None, Some(SeriesMeter::new(0)), sinks, 1, false);
        let clock = ClockState { synchronised: true, maximum_error_micros: 250, frequency_ppb: 1500 };
        let report = Control::Timestamps { deviation_nanos: NonZeroU32::new(70), clock: Some(clock) };
        let step = Control::ClockStep { steps: 1, nanos: -5_000_000 };
        let descs = [
            packet(10, TimestampMethod::Poll),
            packet(10, TimestampMethod::Wdts),
            packet(10, TimestampMethod::Wdts),
            Desc::control(report, second(10)),
            Desc::control(Control::Tick, second(11)),
            Desc::control(step, second(11)),
            packet(11, TimestampMethod::Poll),
        ];
        // The packets of a second that are skipped are stored, so they count too.
        work.take(&Zeros, &descs[..5], true);
        work.take(&Zeros, &descs[5..], false);
        work.finish();
        let rows = sink.0.lock().expect("the lock").clone();
        assert_eq!(rows.iter().map(|row| row.second).collect::<Vec<_>>(), [10, 11]);
        let mut expected = TimestampCounters::of_report(70, Some(clock));
        expected.methods[TimestampMethod::Poll as usize] = 1;
        expected.methods[TimestampMethod::Wdts as usize] = 2;
        assert_eq!(rows[0].timestamps, expected);
        let mut expected = TimestampCounters { step_back_nanos: 5_000_000, ..TimestampCounters::default() };
        expected.methods[TimestampMethod::Poll as usize] = 1;
        assert_eq!(rows[1].timestamps, expected);
        assert_eq!(rows[1].ledger.notes[Note::ClockStep as usize], 1);
    }
}
