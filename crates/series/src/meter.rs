//! The meter of one interface: packets in, a row for each second and direction out.
//!
//! Time is that of the packets. [`SeriesMeter::tick`] says how far it has come; a second is told once it has passed:
//!
//! * A second without a packet is a row of zeros, as long as the meter watches: silence of up to
//!   [`SeriesMeter::SILENCE_MAX`] seconds is told second by second. A longer one is a *gap* (the meter slept, or two
//!   captures lie in one file): it has no rows, and costs nothing. A capture file does not say whether anybody watched between
//!   two packets; in one, silence is told up to [`SeriesMeter::SILENCE_OF_CAPTURES`] ([`SeriesMeter::of_capture`]).
//! * A packet of a second that was told already opens that second again, and the next tick tells another row of it, of
//!   what was late only ([`Counts::late_packets`]). Rows of one second add up ([`crate::merge_rows`]): volumes are
//!   exact whatever the order of the packets and however often the clock ticks.
//! * A clock that is set back by more than [`SeriesMeter::SILENCE_MAX`] begins anew from there; less is disorder, and
//!   what comes then is late.
//! * The other direction is told from the first packet on that this host sent: a mirror port has none.
//!
//! Several queues count each by itself, and one counter [merges](SeriesMeter::merge) and tells: the rows are then those
//! of one counter that saw all packets. Memory is bounded: at most [`SeriesMeter::OPEN_MAX`] seconds are open; the
//! earliest is closed before its time into a row, which waits for its tick and takes in what comes of that second
//! afterwards.

use crate::second::{DirectionSecond, PacketFields, Second};
use crate::{Direction, Row, TrafficClass};
use base::{Tally, Timestamp};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub struct SeriesMeter {
    interface: u16,
    /// In the order of time.
    open: Vec<Second>,
    /// Which of them the last packet belonged to, and the first nanosecond of that second.
    current: usize,
    from: u64,
    /// Closed before their time.
    closed: Vec<Row>,
    /// All seconds before this one are told, or nobody watched.
    emitted: Option<u64>,
    has_outgoing: bool,
    counts: Counts,
    /// Unit: seconds. Longer silence is a gap.
    silence: u64,
}

/// What the rows do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets told in another row of a second that was told before.
    pub late_packets: u64,
    /// Their bytes.
    pub late_bytes: u64,
    /// Seconds closed before their time because too many were open.
    pub closed_early: u64,
    /// Gaps: spans longer than the silence that is told, of which nothing is known.
    pub gaps: u64,
    /// Times that the clock was set back.
    pub clock_steps_back: u64,
}

impl SeriesMeter {
    /// Unit: seconds. Silence up to here is told, beyond it is a gap: quiet links are quiet for many minutes at night.
    pub const SILENCE_MAX: u64 = 3600;
    /// Unit: seconds. The same for packets of a capture file: enough for the pauses of a slow link, and a capture that
    /// goes on after hours costs its packets and not its hours.
    pub const SILENCE_OF_CAPTURES: u64 = 60;
    /// Unit: seconds. So many may be open at once; each takes 16 KiB per direction.
    pub const OPEN_MAX: usize = 16;

    /// A counter for this interface, which has seen nothing.
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

    /// A counter for the packets of a capture file, whose gaps begin after [`Self::SILENCE_OF_CAPTURES`].
    pub fn of_capture(interface: u16) -> Self {
        Self { silence: Self::SILENCE_OF_CAPTURES, ..Self::new(interface) }
    }

    /// How many seconds of silence are told; what is longer is a gap.
    pub fn silence(&self) -> u64 {
        self.silence
    }

    /// Counts a packet. `wire_len` is that of the frame without FCS, `tcp_flags` the low eight of TCP's flags. The
    /// hashes are those of the addresses ([`crate::address_hash`]), or 0 where there is none.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "what is known of a packet, once per packet")]
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
        let seen = PacketFields { wire_len, kind, is_v6, tcp_flags: tcp_flags.unwrap_or(0), src_hash, dst_hash };
        let after = ts.nanos().wrapping_sub(self.from);
        if after < NANOS_PER_SEC
            && let Some(second) = self.open.get_mut(self.current)
            && let Some(side) = &mut second.directions[direction as usize]
        {
            side.packet(after, seen);
        } else {
            self.turn(ts, direction, seen);
        }
    }

    /// A packet of another second than the one before it, or the first of its direction.
    #[inline(never)]
    fn turn(&mut self, ts: Timestamp, direction: Direction, seen: PacketFields) {
        self.has_outgoing |= direction == Direction::Out;
        self.current = self.open(ts.secs());
        self.from = ts.nanos() - u64::from(ts.subsec_nanos());
        let side = self.open[self.current].directions[direction as usize].get_or_insert_with(DirectionSecond::new);
        side.packet(ts.subsec_nanos().into(), seen);
    }

    /// Flows as the second ends, and those that began and ended in it. Once a second: what several counters say of the
    /// same one is added.
    pub fn flows(&mut self, second: u64, active: u64, begun: u64, ended: u64) {
        let second = self.second(second);
        second.flows_active += active;
        second.flows_new += begun;
        second.flows_ended += ended;
    }

    /// Numbers of tunnels that were seen in a second, those that were passed over, and those that came behind later
    /// ones; as often as there is something to say.
    pub fn tunnels(&mut self, second: u64, numbered: u64, missing: u64, late: u64) {
        let tunnels = &mut self.second(second).tunnels;
        tunnels.iter_mut().zip([numbered, missing, late]).for_each(|(sum, more)| *sum += more);
    }

    /// What became of packets in a second; as often as there is something to say.
    pub fn ledger(&mut self, second: u64, tally: &Tally) {
        self.second(second).ledger += tally;
    }

    /// Takes everything that another counter (of another queue, or another part of the packets) has counted and not
    /// told; it begins anew.
    pub fn merge(&mut self, other: &mut SeriesMeter) {
        for second in other.open.drain(..) {
            self.second(second.second).absorb(second);
        }
        for row in other.closed.drain(..) {
            self.close_row(Row { interface: self.interface, ..row });
        }
        self.has_outgoing |= other.has_outgoing;
        let theirs = std::mem::take(&mut other.counts);
        self.counts.late_packets += theirs.late_packets;
        self.counts.late_bytes += theirs.late_bytes;
        self.counts.closed_early += theirs.closed_early;
        self.counts.gaps += theirs.gaps;
        self.counts.clock_steps_back += theirs.clock_steps_back;
    }

    /// It is now `now`: every second before that of `now` has passed, and is told. For the same rows whatever the
    /// batches, call it whenever the time of the packets comes to another second, before the packet that does so; while
    /// there are none, each second. With several queues, `now` is the time that all of them have reached.
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
            let ahead = self.take(|second| second > now);
            self.emit(&ahead, &mut rows);
            self.emitted = None;
        }
        let due = self.take(|second| second < now);
        self.emitted = self.emitted.or(due.first().map(|row| row.second));
        self.emit(&due, &mut rows);
        self.watch(now, &mut rows);
        rows
    }

    /// Nobody watches any more: tells everything that is left. What comes later begins anew, and the time between is a
    /// gap.
    pub fn finish(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        let due = self.take(|_| true);
        self.emitted = self.emitted.or(due.first().map(|row| row.second));
        self.emit(&due, &mut rows);
        self.emitted = None;
        rows
    }

    /// What the rows do not say.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Tells rows of seconds that are over, and the silence between them.
    fn emit(&mut self, due: &[Row], rows: &mut Vec<Row>) {
        for of_second in due.chunk_by(|a, b| a.second == b.second) {
            let second = of_second[0].second;
            if self.emitted.is_some_and(|reported| second < reported) {
                for row in of_second {
                    self.counts.late_packets += row.total.packets;
                    self.counts.late_bytes += row.total.bytes;
                }
            } else {
                self.watch(second, rows);
                self.emitted = Some(second + 1);
            }
            rows.extend_from_slice(of_second);
        }
    }

    /// Comes to `second`: what lies before it and was not told was silent, or is a gap.
    fn watch(&mut self, second: u64, rows: &mut Vec<Row>) {
        let reported = self.emitted.unwrap_or(second);
        if second.saturating_sub(reported) > self.silence {
            self.counts.gaps += 1;
        } else {
            (reported..second).for_each(|silent| rows.extend(self.rows(&Second::new(silent))));
        }
        self.emitted = Some(reported.max(second));
    }

    /// The rows of a second.
    fn rows(&self, second: &Second) -> impl Iterator<Item = Row> + use<> {
        let (inward, outward) = (second.row(self.interface, Direction::In), second.row(self.interface, Direction::Out));
        [Some(inward), self.has_outgoing.then_some(outward)].into_iter().flatten()
    }

    /// Closes the seconds that are meant; their rows, in the order of time.
    fn take(&mut self, which: impl Fn(u64) -> bool) -> Vec<Row> {
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

    /// Where a second is among the open ones. A new one moves others, so that the current one has to be found again.
    fn open(&mut self, second: u64) -> usize {
        match self.open.binary_search_by_key(&second, |open| open.second) {
            Ok(at) => at,
            Err(_) => {
                self.current = usize::MAX;
                if self.open.len() == Self::OPEN_MAX {
                    let crowded = self.open.remove(0);
                    self.counts.closed_early += 1;
                    let rows: Vec<Row> = self.rows(&crowded).collect();
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
