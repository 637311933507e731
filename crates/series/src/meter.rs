//! The meter of one interface: it counts packets and emits a row for each second and direction.
//!
//! The meter uses packet time. [`SeriesMeter::tick`] advances the time; the meter emits the rows of a second once the
//! second has passed. The rules are:
//!
//! * A second without a packet has a row of zeros, if the silence is no longer than [`SeriesMeter::SILENCE_MAX`]
//!   seconds. A longer silence is a *gap* (the meter was suspended, or a file contains two captures): it has no rows
//!   and costs nothing. In a capture file it is unknown whether the capture was running between two packets, so there
//!   the limit is [`SeriesMeter::SILENCE_OF_CAPTURES`] ([`SeriesMeter::of_capture`]).
//! * A packet of a second whose row was emitted opens that second again, and the next tick emits a further row of the
//!   second with the late packets only ([`Counts::late_packets`]). Rows of one second can be added
//!   ([`crate::merge_rows`]), so volumes are exact for any order of the packets and any number of ticks.
//! * After a clock step back of more than [`SeriesMeter::SILENCE_MAX`] the meter starts again at the new time. A
//!   smaller step back counts as disorder, and the packets after the step are late.
//! * Rows of the outgoing direction begin with the first packet that this host sent; a mirror port has no such packets.
//!
//! If an interface has several queues, each queue has its own meter. One meter [merges](SeriesMeter::merge) the others
//! and emits the rows, which equal the rows of a single meter of all packets. Memory is limited: at most
//! [`SeriesMeter::OPEN_MAX`] seconds are open. If a further second begins, the meter closes the earliest open second
//! early. It stores the row of that second until the next tick, and adds later counts of the same second to the row.

use crate::second::{DirectionSecond, PacketFields, Second};
use crate::{Direction, Row, TimestampCounters, TrafficClass};
use base::{Tally, Timestamp};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The meter of one interface; see the module documentation.
#[derive(Clone, Debug)]
pub struct SeriesMeter {
    interface: u16,
    /// The open seconds in the order of time.
    open: Vec<Second>,
    /// Index of the open second of the last packet, and the first nanosecond of that second.
    current: usize,
    from: u64,
    /// Rows of seconds that were closed early (see the module documentation), until the next tick emits them.
    closed: Vec<Row>,
    /// All rows of the seconds before this second were emitted, unless the seconds belong to a gap, which has no rows.
    emitted: Option<u64>,
    has_outgoing: bool,
    counts: Counts,
    /// Unit: seconds. The longest time without packets for which rows of zeros are emitted; a longer time is a gap.
    silence: u64,
}

/// Counters that are not part of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of packets that were counted in a further row of a second, because the first row of that second was
    /// already emitted.
    pub late_packets: u64,
    /// Number of bytes of the packets that `late_packets` counts.
    pub late_bytes: u64,
    /// Number of seconds that were closed early because too many were open.
    pub closed_early: u64,
    /// Number of gaps: time spans without rows, because no packet arrived for longer than [`SeriesMeter::silence`].
    pub gaps: u64,
    /// Number of clock steps back.
    pub clock_steps_back: u64,
}

impl SeriesMeter {
    /// Unit: seconds. The longest time without packets for which rows of zeros are emitted; a longer time is a gap.
    /// Some links have no packets for many minutes at night.
    pub const SILENCE_MAX: u64 = 3600;
    /// Unit: seconds. The limit that replaces [`Self::SILENCE_MAX`] for the packets of a capture file. It is longer
    /// than the pauses of a slow link, and so short that pauses of hours in a file do not cost a row for each second.
    pub const SILENCE_OF_CAPTURES: u64 = 60;
    /// The largest number of seconds that are open at the same time; each takes 16 KiB per direction.
    pub const OPEN_MAX: usize = 16;

    /// A meter of this interface.
    pub fn new(interface: u16) -> Self {
        Self {
            interface,
            open: Vec::new(),
            current: 0,
            from: 0,
            closed: Vec::new(),
            emitted: None,
            has_outgoing: false,
            counts: Counts::default(),
            silence: Self::SILENCE_MAX,
        }
    }

    /// A meter of the packets of a capture file, whose gaps begin after [`Self::SILENCE_OF_CAPTURES`].
    pub fn of_capture(interface: u16) -> Self {
        Self { silence: Self::SILENCE_OF_CAPTURES, ..Self::new(interface) }
    }

    /// The longest time without packets for which rows of zeros are emitted, in seconds; a longer time is a gap.
    pub fn silence(&self) -> u64 {
        self.silence
    }

    /// Counts a packet. `wire_len` is the length of the frame without FCS, `tcp_flags` the low eight TCP flags. The
    /// hashes are the hashes of the addresses ([`crate::address_hash`]), or 0 if the packet has no addresses.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "a struct of these arguments would be built for each packet")]
    pub fn packet(
        &mut self,
        ts: Timestamp,
        wire_len: u32,
        direction: Direction,
        kind: TrafficClass,
        is_v6: bool,
        tcp_flags: Option<u8>,
        src_hash: u64,
        dst_hash: u64,
    ) {
        let fields = PacketFields { wire_len, kind, is_v6, tcp_flags: tcp_flags.unwrap_or(0), src_hash, dst_hash };
        let after = ts.nanos().wrapping_sub(self.from);
        if after < NANOS_PER_SEC
            && let Some(second) = self.open.get_mut(self.current)
            && let Some(counters) = &mut second.directions[direction as usize]
        {
            counters.packet(after, fields);
        } else {
            self.packet_of_new_second(ts, direction, fields);
        }
    }

    /// Counts a packet whose second differs from that of the previous packet, or the first packet of its direction.
    #[inline(never)]
    fn packet_of_new_second(&mut self, ts: Timestamp, direction: Direction, fields: PacketFields) {
        self.has_outgoing |= direction == Direction::Out;
        self.current = self.open(ts.secs());
        self.from = ts.nanos() - u64::from(ts.subsec_nanos());
        let counters = self.open[self.current].directions[direction as usize].get_or_insert_with(DirectionSecond::new);
        counters.packet(ts.subsec_nanos().into(), fields);
    }

    /// Counts a packet that is marked as a copy of an earlier packet. The copy is in no other count of the row.
    pub fn duplicate(&mut self, ts: Timestamp, wire_len: u32, direction: Direction) {
        self.has_outgoing |= direction == Direction::Out;
        let counters = &mut self.second(ts.secs()).directions[direction as usize];
        counters.get_or_insert_with(DirectionSecond::new).duplicate(wire_len);
    }

    /// Adds the number of active flows at the end of a second, and the numbers of flows that began and ended in the
    /// second. Call it once per second; the numbers of several meters for the same second are added.
    pub fn flows(&mut self, second: u64, active: u64, begun: u64, ended: u64) {
        let second = self.second(second);
        second.flows_active += active;
        second.flows_new += begun;
        second.flows_ended += ended;
    }

    /// Adds tunnel sequence numbers of a second: those that arrived, those that were skipped, and those that arrived
    /// after higher numbers. May be called any number of times.
    pub fn tunnels(&mut self, second: u64, numbered: u64, missing: u64, late: u64) {
        let tunnels = &mut self.second(second).tunnels;
        tunnels.iter_mut().zip([numbered, missing, late]).for_each(|(sum, more)| *sum += more);
    }

    /// Adds outcomes of packets in a second. May be called any number of times.
    pub fn ledger(&mut self, second: u64, tally: &Tally) {
        self.second(second).ledger += tally;
    }

    /// Adds numbers about the quality of the timestamps of a second. May be called any number of times.
    pub fn timestamps(&mut self, second: u64, counters: &TimestampCounters) {
        self.second(second).timestamps.merge(counters);
    }

    /// Moves to this meter the counts that another meter (of another queue, or of another part of the packets) has not
    /// emitted yet. The other meter is then empty.
    pub fn merge(&mut self, other: &mut SeriesMeter) {
        for second in other.open.drain(..) {
            self.second(second.second).absorb(second);
        }
        for row in other.closed.drain(..) {
            self.close_row(Row { interface: self.interface, ..row });
        }
        self.has_outgoing |= other.has_outgoing;
        let other_counts = std::mem::take(&mut other.counts);
        self.counts.late_packets += other_counts.late_packets;
        self.counts.late_bytes += other_counts.late_bytes;
        self.counts.closed_early += other_counts.closed_early;
        self.counts.gaps += other_counts.gaps;
        self.counts.clock_steps_back += other_counts.clock_steps_back;
    }

    /// Advances the time to `now` and returns the rows of all seconds before the second of `now`. The rows do not
    /// depend on the batches of packets if the function is called before the first packet of each new second, and once
    /// per second while there are no packets. With several queues, `now` is the time that all queues have reached.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Row> {
        let now = now.secs();
        if self.emitted == Some(now)
            && self.closed.is_empty()
            && self.open.first().is_none_or(|first| first.second >= now)
        {
            return Vec::new();
        }
        let mut rows = Vec::new();
        if self.emitted.is_some_and(|reported| now.saturating_add(Self::SILENCE_MAX) < reported) {
            self.counts.clock_steps_back += 1;
            let ahead = self.close_seconds(|second| second > now);
            self.emit(&ahead, &mut rows);
            self.emitted = None;
        }
        let due = self.close_seconds(|second| second < now);
        self.emitted = self.emitted.or(due.first().map(|row| row.second));
        self.emit(&due, &mut rows);
        self.fill_silence(now, &mut rows);
        rows
    }

    /// Ends the metering and returns the remaining rows. If more packets are counted afterwards, the time between the
    /// two measurements is a gap.
    pub fn finish(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        let due = self.close_seconds(|_| true);
        self.emitted = self.emitted.or(due.first().map(|row| row.second));
        self.emit(&due, &mut rows);
        self.emitted = None;
        rows
    }

    /// Counters that are not part of the rows.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Emits rows of seconds that have passed, and rows of zeros for the silence between them.
    fn emit(&mut self, due: &[Row], rows: &mut Vec<Row>) {
        for rows_of_second in due.chunk_by(|a, b| a.second == b.second) {
            let second = rows_of_second[0].second;
            if self.emitted.is_some_and(|reported| second < reported) {
                for row in rows_of_second {
                    self.counts.late_packets += row.total.packets;
                    self.counts.late_bytes += row.total.bytes;
                }
            } else {
                self.fill_silence(second, rows);
                self.emitted = Some(second + 1);
            }
            rows.extend_from_slice(rows_of_second);
        }
    }

    /// Advances to `second`: emits rows of zeros for the earlier seconds that have no row, or counts these seconds as a
    /// gap.
    fn fill_silence(&mut self, second: u64, rows: &mut Vec<Row>) {
        let reported = self.emitted.unwrap_or(second);
        if second.saturating_sub(reported) > self.silence {
            self.counts.gaps += 1;
        } else {
            (reported..second).for_each(|silent| rows.extend(self.rows(&Second::new(silent))));
        }
        self.emitted = Some(reported.max(second));
    }

    /// The rows of a second, one per direction.
    fn rows(&self, second: &Second) -> impl Iterator<Item = Row> + use<> {
        let (inward, outward) = (second.row(self.interface, Direction::In), second.row(self.interface, Direction::Out));
        [Some(inward), self.has_outgoing.then_some(outward)].into_iter().flatten()
    }

    /// Closes the seconds that satisfy `which` and returns their rows in the order of time.
    fn close_seconds(&mut self, which: impl Fn(u64) -> bool) -> Vec<Row> {
        let mut rows: Vec<Row> = self.closed.extract_if(.., |row| which(row.second)).collect();
        let seconds: Vec<Second> = self.open.extract_if(.., |second| which(second.second)).collect();
        rows.extend(seconds.iter().flat_map(|second| self.rows(second)));
        self.current = usize::MAX;
        rows.sort_by_key(|row| row.second);
        crate::merge_rows(rows).collect()
    }

    fn second(&mut self, second: u64) -> &mut Second {
        let at = self.open(second);
        &mut self.open[at]
    }

    /// Returns the index of an open second, and opens the second if necessary. Opening a second moves the other open
    /// seconds in the list, so the stored index of the current second becomes invalid.
    fn open(&mut self, second: u64) -> usize {
        match self.open.binary_search_by_key(&second, |open| open.second) {
            Ok(at) => at,
            Err(_) => {
                self.current = usize::MAX;
                if self.open.len() == Self::OPEN_MAX {
                    let earliest = self.open.remove(0);
                    self.counts.closed_early += 1;
                    let rows: Vec<Row> = self.rows(&earliest).collect();
                    rows.into_iter().for_each(|row| self.close_row(row));
                }
                let at = self.open.partition_point(|open| open.second < second);
                self.open.insert(at, Second::new(second));
                at
            }
        }
    }

    fn close_row(&mut self, row: Row) {
        match self.closed.iter_mut().find(|closed| (closed.second, closed.direction) == (row.second, row.direction)) {
            Some(closed) => *closed += &row,
            None => self.closed.push(row),
        }
    }
}
