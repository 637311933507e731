//! One endpoint of a TCP connection, reduced to the behaviour that its segments show on the wire: handshake, slow start
//! and congestion avoidance (RFC 5681), fast retransmit with partial acknowledgements (RFC 6582), retransmission
//! timeout with backoff (RFC 6298), delayed acknowledgements (RFC 1122 §4.2.3.2), the window of the other endpoint with
//! window scaling (RFC 7323), and the close of both directions.
//!
//! Positions in the stream of a direction are counted from the SYN, which has position 0. The data begin at position 1,
//! and the FIN follows the data. Invariant: `acked <= next <= highest`, no byte at or above `limit` is sent, and no
//! byte at or above `acked` plus the window of the other endpoint.

use crate::tcp_frame::{SYN_WINDOW, WINDOW, flag};
use std::collections::BTreeMap;

/// The initial congestion window in segments (RFC 6928).
const INITIAL_WINDOW: u64 = 10;

/// The least retransmission timeout in nanoseconds: that of Linux. RFC 6298 recommends one second.
const LEAST_TIMEOUT: u64 = 200_000_000;

/// Delay of an acknowledgement in nanoseconds.
const ACK_DELAY: u64 = 40_000_000;

/// Number of timeouts in a row after which the endpoint resets the connection.
const MAX_TIMEOUTS: u32 = 8;

/// Number of duplicate acknowledgements that trigger a retransmission.
const DUPLICATE_ACKS: u32 = 3;

/// A segment that an endpoint has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Position of the first byte of the segment.
    pub begin: u64,
    /// Number of positions of the segment: its payload bytes, or 1 for a SYN or a FIN.
    pub len: u64,
    /// The acknowledgement: the next position that the sender of the segment expects from the other endpoint.
    pub ack: u64,
    pub flags: u8,
}

/// A timer of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Retransmit,
    Acknowledge,
}

/// The segments and timers that an endpoint requests from its caller.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    pub segments: Vec<Segment>,
    /// Timers to start: the timer, its generation and the delay in nanoseconds.
    pub timers: Vec<(Timer, u32, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Number of data bytes that this endpoint sends.
    data: u64,
    mss: u64,
    round_trip: u64,
    /// The application permits sending up to this position, exclusive.
    pub limit: u64,
    acked: u64,
    next: u64,
    highest: u64,
    window: u64,
    /// The window that the other endpoint advertised in its last segment, in bytes.
    other_window: u64,
    threshold: u64,
    duplicates: u32,
    /// During a fast retransmit: the position whose acknowledgement ends it (`recover` in RFC 6582).
    recover: Option<u64>,
    timeouts: u32,
    /// The generation of each timer, in the order of [`Timer`]. The expiry of a timer that was started with an earlier
    /// generation has no effect.
    generations: [u32; 2],
    received: u64,
    /// Begin and end of each range of positions that was received out of order.
    early: BTreeMap<u64, u64>,
    unacknowledged: u32,
    pub is_reset: bool,
}

impl Endpoint {
    pub fn new(data: u64, mss: u64, round_trip: u64) -> Self {
        Self {
            data,
            mss: mss.max(1),
            round_trip,
            limit: 0,
            acked: 0,
            next: 0,
            highest: 0,
            window: INITIAL_WINDOW * mss,
            other_window: SYN_WINDOW,
            threshold: u64::MAX,
            duplicates: 0,
            recover: None,
            timeouts: 0,
            generations: [0; 2],
            received: 0,
            early: BTreeMap::new(),
            unacknowledged: 0,
            is_reset: false,
        }
    }

    /// The number of positions of the stream: SYN, data and FIN.
    pub fn total(&self) -> u64 {
        self.data + 2
    }

    /// The position after the data.
    pub fn data_end(&self) -> u64 {
        self.data + 1
    }

    /// The next position that this endpoint expects from the other endpoint.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// True if the other endpoint has acknowledged everything.
    pub fn is_acknowledged(&self) -> bool {
        self.acked >= self.total()
    }

    /// Sends the segments that the congestion window, the window of the other endpoint and `limit` permit.
    pub fn send(&mut self, actions: &mut Actions) {
        let before = self.next;
        while self.next < self.limit && (self.next - self.acked < self.window || self.next == self.acked) {
            if self.next + self.len_at(self.next) - self.acked > self.other_window {
                break;
            }
            let segment = self.segment(self.next);
            actions.segments.push(segment);
            self.next = segment.begin + segment.len;
        }
        self.highest = self.highest.max(self.next);
        if before == self.acked && self.next > before {
            self.start_timer(actions);
        }
    }

    /// Number of positions of the segment that begins at a position.
    fn len_at(&self, begin: u64) -> u64 {
        match begin {
            0 => 1,
            _ if begin >= self.data_end() => 1,
            _ => self.mss.min(self.data_end() - begin).min(self.limit - begin),
        }
    }

    /// The segment that begins at a position.
    fn segment(&mut self, begin: u64) -> Segment {
        let len = self.len_at(begin);
        let flags = match begin {
            0 => flag::SYN,
            _ if begin >= self.data_end() => flag::FIN | flag::ACK,
            _ if begin + len == self.data_end() => flag::PSH | flag::ACK,
            _ => flag::ACK,
        };
        let flags = if self.received > 0 { flags | flag::ACK } else { flags };
        // Each segment contains an acknowledgement, so no separate acknowledgement is needed.
        self.unacknowledged = 0;
        self.generations[Timer::Acknowledge as usize] += 1;
        Segment { begin, len, ack: self.received, flags }
    }

    fn acknowledge(&mut self, actions: &mut Actions) {
        self.unacknowledged = 0;
        self.generations[Timer::Acknowledge as usize] += 1;
        actions.segments.push(Segment { begin: self.next, len: 0, ack: self.received, flags: flag::ACK });
    }

    fn start_timer(&mut self, actions: &mut Actions) {
        let generation = &mut self.generations[Timer::Retransmit as usize];
        *generation += 1;
        let timeout = LEAST_TIMEOUT.max(2 * self.round_trip) << self.timeouts.min(MAX_TIMEOUTS);
        actions.timers.push((Timer::Retransmit, *generation, timeout));
    }

    fn retransmit(&mut self, actions: &mut Actions) {
        let segment = self.segment(self.acked);
        actions.segments.push(segment);
        self.start_timer(actions);
    }

    /// Processes a segment that arrived from the other endpoint. The caller raises `limit` and calls [`Endpoint::send`]
    /// afterwards.
    pub fn receive(&mut self, segment: &Segment, actions: &mut Actions) {
        if segment.flags & flag::RST != 0 {
            self.is_reset = true;
            return;
        }
        self.other_window = if segment.flags & flag::SYN != 0 { SYN_WINDOW } else { WINDOW };
        if segment.flags & flag::ACK != 0 {
            self.take_ack(segment, actions);
        }
        if segment.len > 0 {
            self.take_bytes(segment, actions);
        }
    }

    fn take_ack(&mut self, segment: &Segment, actions: &mut Actions) {
        if segment.ack > self.acked {
            self.acked = segment.ack.min(self.highest);
            self.next = self.next.max(self.acked);
            (self.duplicates, self.timeouts) = (0, 0);
            match self.recover {
                Some(recover) if self.acked < recover => return self.retransmit(actions),
                Some(_) => (self.recover, self.window) = (None, self.threshold),
                None if self.window < self.threshold => self.window += self.mss,
                None => self.window += (self.mss * self.mss / self.window).max(1),
            }
            if self.acked < self.next {
                self.start_timer(actions);
            } else {
                self.generations[Timer::Retransmit as usize] += 1;
            }
        } else if segment.len == 0 && self.acked < self.next {
            self.duplicates += 1;
            if self.duplicates == DUPLICATE_ACKS && self.recover.is_none() {
                self.threshold = ((self.next - self.acked) / 2).max(2 * self.mss);
                self.window = self.threshold;
                self.recover = Some(self.next);
                self.retransmit(actions);
            }
        }
    }

    fn take_bytes(&mut self, segment: &Segment, actions: &mut Actions) {
        let end = segment.begin + segment.len;
        let is_next = segment.begin <= self.received && end > self.received;
        if segment.begin > self.received {
            let known = self.early.entry(segment.begin).or_insert(end);
            *known = end.max(*known);
        } else {
            self.received = self.received.max(end);
        }
        let fills_gap = is_next && !self.early.is_empty();
        while let Some((begin, end)) = self.early.first_key_value().map(|(begin, end)| (*begin, *end)) {
            if begin > self.received {
                break;
            }
            self.early.pop_first();
            self.received = self.received.max(end);
        }
        self.unacknowledged += 1;
        let at_once = !is_next || fills_gap || self.unacknowledged >= 2 || segment.flags & !flag::ACK != 0;
        // The SYN of the client is answered by the SYN of the server, not by an acknowledgement.
        if at_once && self.highest > 0 {
            self.acknowledge(actions);
        } else if !at_once {
            let generation = self.generations[Timer::Acknowledge as usize];
            actions.timers.push((Timer::Acknowledge, generation, ACK_DELAY));
        }
    }

    /// Processes the expiry of a timer that was started with this generation.
    pub fn expire(&mut self, timer: Timer, generation: u32, actions: &mut Actions) {
        if self.is_reset || generation != self.generations[timer as usize] {
            return;
        }
        match timer {
            Timer::Acknowledge if self.unacknowledged > 0 => self.acknowledge(actions),
            Timer::Acknowledge => {}
            Timer::Retransmit if self.timeouts >= MAX_TIMEOUTS => {
                self.is_reset = true;
                let (begin, ack) = (self.next, self.received);
                actions.segments.push(Segment { begin, len: 0, ack, flags: flag::RST | flag::ACK });
            }
            Timer::Retransmit => {
                self.timeouts += 1;
                self.threshold = ((self.next - self.acked) / 2).max(2 * self.mss);
                self.window = self.mss;
                // All bytes that are not acknowledged are sent again, as the window permits.
                (self.next, self.recover, self.duplicates) = (self.acked, None, 0);
                let segment = self.segment(self.acked);
                self.next = segment.begin + segment.len;
                actions.segments.push(segment);
                self.start_timer(actions);
            }
        }
    }
}
