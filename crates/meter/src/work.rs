//! The meter of one interface: it turns the packets of all queues, in order of time, into flow records and series rows.
//!
//! The result depends only on the packets and on the control descriptors between them: a replay of the recorded packets
//! makes the same records and series rows as the recording.

use crate::packet_bytes::{BATCH, PacketBytes};
use crate::report::{MeterReport, TunnelReport};
use crate::sink::Sinks;
use crate::table::Table;
use base::{Tally, Timestamp};
use flow::Packet;
use ring::{Control, Desc, flag};
use series::{Direction, Row, SeriesMeter, count_packet};
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
        let (mut bytes, mut flags, mut has_duplicates) = (0, 0, false);
        for desc in descs {
            bytes += u64::from(queue.wire_len(desc));
            flags |= desc.flags;
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
            Some(Control::Tick) if self.second != Some(second) => self.turn(second),
            _ => {}
        }
    }

    fn account(&mut self, second: u64, tally: &Tally) {
        if let Some(series_meter) = &mut self.series {
            series_meter.ledger(second, tally);
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
