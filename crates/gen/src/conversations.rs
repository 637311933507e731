//! TCP conversations with loss: handshake, request, response, retransmissions and close, as a passive observer on the
//! path sees them. Flow meters are tested with this traffic, because the truth of each conversation is known.
//!
//! A constant number of clients is active (a closed system): each client opens a conversation, sends a request, gets a
//! response, closes, thinks, and opens the next conversation. The endpoints follow TCP ([`crate::tcp_endpoint`]). The
//! observer is between the endpoints; a segment can be lost before the observer, who then sees only its retransmission,
//! or after the observer, who then sees the segment twice.
//!
//! Invariant: frames are returned in order of time, and the truth counts exactly the frames that were returned.

use crate::distribution::Distribution;
use crate::tcp_endpoint::{Actions, Endpoint, Segment, Timer};
use crate::tcp_frame::{HEADERS, SYN_OPTIONS, TcpFrame, flag};
use base::Prng;
use base::hash::mix64;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

/// The largest number of clients that are active at the same time.
pub const MAX_CLIENTS: u32 = 1 << 20;

/// The largest probability that a segment is lost. With more loss, few conversations are completed.
pub const MAX_LOSS: f64 = 0.5;

/// Time in nanoseconds for sending a byte on the access line of an endpoint. The rate of the line is 1 Gb/s.
const NANOS_PER_BYTE: u64 = 8;

/// Number of client addresses and of server addresses.
const CLIENT_ADDRESSES: u64 = 1 << 20;
const SERVER_ADDRESSES: u64 = 1 << 10;

/// The parameters of conversations.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSpec {
    /// Number of clients that are active at the same time, 1 to 1 048 576.
    pub clients: u32,
    /// Number of conversations in all.
    pub total: u64,
    /// Bytes of a request.
    pub request: Distribution,
    /// Bytes of a response.
    pub response: Distribution,
    /// Round-trip time in nanoseconds.
    pub round_trip: Distribution,
    /// Time between two conversations of a client, in nanoseconds.
    pub think: Distribution,
    /// Probability that a segment is lost, 0 to 0.5; half of the losses are before the observer.
    pub loss: f64,
    /// The largest payload of a segment in bytes, 1 to 8960.
    pub segment: u16,
    /// Seed of all random numbers of the conversations.
    pub seed: u64,
}

/// The endpoints of a conversation, as indexes of the arrays of [`ConversationTruth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client = 0,
    Server = 1,
}

impl Side {
    fn other(self) -> Self {
        if self == Self::Client { Self::Server } else { Self::Client }
    }
}

/// The frames of a conversation that the observer saw, and the segments that were lost. The first element of each array
/// is for the segments of the client, the second element for the segments of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationTruth {
    /// Number of the conversation, from 0.
    pub id: u64,
    /// Addresses of client and server.
    pub addresses: [u32; 2],
    /// Ports of client and server.
    pub ports: [u16; 2],
    /// Time of the first frame that the observer saw, in nanoseconds.
    pub begin: u64,
    /// Time of the last frame that the observer saw, in nanoseconds.
    pub end: u64,
    /// Frames that the observer saw.
    pub packets: [u64; 2],
    /// Bytes of the frames that the observer saw, without FCS.
    pub bytes: [u64; 2],
    /// Payload bytes that the observer saw; each byte of the stream counts once.
    pub payload: [u64; 2],
    /// Segments with payload, SYN or FIN that the observer had seen before: retransmissions.
    pub repeated: [u64; 2],
    /// Segments with payload or FIN that the observer saw for the first time after a later segment of the stream,
    /// because earlier transmissions were lost before the observer.
    pub late: [u64; 2],
    /// Segments of all kinds that were lost before they reached the observer.
    pub lost_before: [u64; 2],
    /// Segments of all kinds that were lost after the observer saw them.
    pub lost_after: [u64; 2],
    /// True if an endpoint reset the connection after too many timeouts in a row.
    pub is_reset: bool,
    /// True if the conversation has ended; false if the traffic ended during the conversation.
    pub is_complete: bool,
}

#[derive(Clone, Debug)]
struct Connection {
    truth: ConversationTruth,
    endpoints: [Endpoint; 2],
    /// Initial sequence numbers.
    initial: [u32; 2],
    /// Nanoseconds from the client to the observer and from the observer to the server.
    delays: [u64; 2],
    /// For each endpoint, the time at which its access line has sent all segments so far.
    line_free: [u64; 2],
    packet_ids: [u16; 2],
    /// The largest payload of a segment, which the SYN of both endpoints states.
    mss: u16,
    /// For each direction, the first positions of the segments that the observer saw; in `seen_end`, the highest end of
    /// a segment that the observer saw.
    seen: [BTreeSet<u64>; 2],
    seen_end: [u64; 2],
    is_closing: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Open,
    Observed(Side, Segment, bool),
    Arrived(Side, Segment),
    Expired(Side, Timer, u32),
    Close,
}

/// An event of a client, and its time. An event has no effect if the conversation with the number `id` has ended.
#[derive(Clone, Copy, Debug)]
struct Scheduled {
    time: u64,
    order: u64,
    client: u32,
    id: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.order).cmp(&(other.time, other.order))
    }
}

/// The frames of all conversations, in order of time.
#[derive(Debug)]
pub struct Conversations {
    spec: ConversationSpec,
    prng: Prng,
    events: BinaryHeap<Reverse<Scheduled>>,
    order: u64,
    /// For each client, its present conversation; `None` between two conversations.
    connections: Vec<Option<Box<Connection>>>,
    opened: u64,
    ended: Vec<ConversationTruth>,
}

impl Conversations {
    /// The conversations of this specification. Each client begins its first conversation within one think time.
    pub fn new(spec: &ConversationSpec) -> Self {
        let mut all = Self {
            spec: spec.clone(),
            prng: Prng::new(spec.seed),
            events: BinaryHeap::new(),
            order: 0,
            connections: vec![None; spec.clients as usize],
            opened: 0,
            ended: Vec::new(),
        };
        for client in 0..spec.clients {
            let think = all.spec.think.sample(&mut all.prng) * all.prng.unit();
            all.schedule(0, think.round() as u64, client, 0, Event::Open);
        }
        all
    }

    /// Length of the longest frame in bytes.
    pub fn max_len(&self) -> usize {
        HEADERS + usize::from(self.spec.segment).max(SYN_OPTIONS)
    }

    /// The truths of the conversations that ended since the last call. The caller must call this function often,
    /// because the truths are kept until then.
    pub fn take_ended(&mut self) -> Vec<ConversationTruth> {
        std::mem::take(&mut self.ended)
    }

    /// Ends all open conversations, and returns the truths of those of which the observer saw a frame, by their number.
    pub fn take_open(&mut self) -> Vec<ConversationTruth> {
        self.events.clear();
        let open = self.connections.iter_mut().filter_map(Option::take);
        let mut truths: Vec<ConversationTruth> = open.map(|connection| connection.truth).collect();
        truths.retain(|truth| truth.packets != [0; 2]);
        truths.sort_by_key(|truth| truth.id);
        truths
    }

    /// Writes the next frame into `buf`, and returns the time at which the observer sees it, in nanoseconds, and its
    /// length. `None` after the end of all conversations, or if the observer sees the next frame at the time `end` or
    /// later; such a frame is not in the truth.
    ///
    /// # Panics
    /// If `buf` is shorter than [`Conversations::max_len`].
    pub fn next(&mut self, end: u64, buf: &mut [u8]) -> Option<(u64, usize)> {
        while self.events.peek().is_some_and(|Reverse(next)| next.time < end) {
            let Reverse(Scheduled { time, client, id, event, .. }) = self.events.pop()?;
            if let Event::Open = event {
                self.open(time, client);
                continue;
            }
            let Some(mut connection) = self.connections[client as usize].take_if(|c| c.truth.id == id) else {
                continue;
            };
            let mut written = None;
            match event {
                Event::Observed(side, segment, is_lost) => {
                    let len = connection.observe(time, side, &segment, buf);
                    written = Some((time, len));
                    if is_lost {
                        connection.truth.lost_after[side as usize] += 1;
                    } else {
                        let delay = connection.delays[side.other() as usize];
                        self.schedule(time, delay, client, id, Event::Arrived(side.other(), segment));
                    }
                }
                Event::Arrived(side, segment) => {
                    let mut actions = Actions::default();
                    connection.endpoints[side as usize].receive(&segment, &mut actions);
                    self.act(time, client, side, &mut connection, actions);
                }
                Event::Expired(side, timer, generation) => {
                    let mut actions = Actions::default();
                    connection.endpoints[side as usize].expire(timer, generation, &mut actions);
                    self.act(time, client, side, &mut connection, actions);
                }
                Event::Close => {
                    self.close(time, client, connection.truth);
                    continue;
                }
                Event::Open => {}
            }
            self.connections[client as usize] = Some(connection);
            if written.is_some() {
                return written;
            }
        }
        None
    }

    /// Schedules an event at the time `time + delay`.
    fn schedule(&mut self, time: u64, delay: u64, client: u32, id: u64, event: Event) {
        let time = time.saturating_add(delay);
        self.order += 1;
        self.events.push(Reverse(Scheduled { time, order: self.order, client, id, event }));
    }

    fn open(&mut self, time: u64, client: u32) {
        if self.opened == self.spec.total {
            return;
        }
        let id = self.opened;
        self.opened += 1;
        let (spec, prng) = (&self.spec, &mut self.prng);
        let (request, response) = (spec.request.sample(prng) as u64, spec.response.sample(prng) as u64);
        let round_trip = (spec.round_trip.sample(prng) as u64).max(1000);
        let mixed = mix64(spec.seed ^ mix64(id));
        let truth = ConversationTruth {
            id,
            addresses: [
                10 << 24 | (1 + id % CLIENT_ADDRESSES) as u32,
                198 << 24 | 18 << 16 | (1 + mixed % SERVER_ADDRESSES) as u32,
            ],
            // The client port increases each time that a client address is used again, so that all conversations have
            // different flow keys.
            ports: [1024 + (id / CLIENT_ADDRESSES % 60_000) as u16, if mixed >> 32 & 3 == 0 { 80 } else { 443 }],
            ..ConversationTruth::default()
        };
        // The delay from the client to the observer is 10 % to 50 % of the delay from the client to the server.
        let to_observer = (round_trip as f64 / 2.0 * (0.1 + 0.4 * prng.unit())) as u64;
        let endpoint = |data| Endpoint::new(data, u64::from(spec.segment), round_trip);
        let mut connection = Box::new(Connection {
            truth,
            endpoints: [endpoint(request), endpoint(response)],
            initial: [prng.next_u64() as u32, prng.next_u64() as u32],
            delays: [to_observer, round_trip / 2 - to_observer.min(round_trip / 2)],
            line_free: [0; 2],
            packet_ids: [prng.next_u64() as u16, prng.next_u64() as u16],
            mss: spec.segment,
            seen: Default::default(),
            seen_end: [0; 2],
            is_closing: false,
        });
        self.act(time, client, Side::Client, &mut connection, Actions::default());
        self.connections[client as usize] = Some(connection);
    }

    /// Makes an endpoint send the segments that its window and its limit permit, and schedules its segments and timers.
    /// If the conversation is complete or reset, also schedules its close.
    fn act(&mut self, time: u64, client: u32, side: Side, connection: &mut Connection, mut actions: Actions) {
        let id = connection.truth.id;
        connection.raise_limits();
        let endpoint = &mut connection.endpoints[side as usize];
        if !endpoint.is_reset {
            endpoint.send(&mut actions);
        }
        for (timer, generation, delay) in actions.timers {
            self.schedule(time, delay, client, id, Event::Expired(side, timer, generation));
        }
        for segment in actions.segments {
            let departure = time.max(connection.line_free[side as usize]);
            connection.line_free[side as usize] =
                departure.saturating_add((HEADERS as u64 + segment.len) * NANOS_PER_BYTE);
            let (is_lost, is_before) = (self.prng.unit() < self.spec.loss, self.prng.unit() < 0.5);
            if is_lost && is_before {
                connection.truth.lost_before[side as usize] += 1;
                continue;
            }
            self.schedule(
                departure,
                connection.delays[side as usize],
                client,
                id,
                Event::Observed(side, segment, is_lost),
            );
        }
        let [a, b] = &connection.endpoints;
        let is_reset = a.is_reset || b.is_reset;
        if !connection.is_closing && (is_reset || a.is_acknowledged() && b.is_acknowledged()) {
            (connection.is_closing, connection.truth.is_reset) = (true, is_reset);
            // The close comes after the time at which the observer sees the segments that are still on their way.
            let last = connection.line_free[0].max(connection.line_free[1]).max(time);
            let delay = connection.delays[0] + connection.delays[1];
            self.schedule(last, delay, client, id, Event::Close);
        }
    }

    fn close(&mut self, time: u64, client: u32, mut truth: ConversationTruth) {
        truth.is_complete = true;
        // If all segments of a conversation were lost before the observer, the capture has no frame of it, so it has no
        // truth.
        if truth.packets != [0; 2] {
            self.ended.push(truth);
        }
        let think = self.spec.think.sample(&mut self.prng).round() as u64;
        self.schedule(time, think, client, 0, Event::Open);
    }
}

impl Connection {
    /// Sets the positions up to which the endpoints may send. The client sends its SYN, then the request when the SYN
    /// of the server has arrived. The server sends its SYN when that of the client has arrived, then the response and
    /// its FIN when the request has arrived.
    fn raise_limits(&mut self) {
        let [client, server] = &mut self.endpoints;
        client.limit = match client.received() {
            0 => 1,
            // The client sends its FIN when the response and the FIN of the server have arrived.
            received if received >= server.total() => client.total(),
            _ => client.data_end(),
        };
        server.limit = match server.received() {
            0 => 0,
            received if received >= client.data_end() => server.total(),
            _ => 1,
        };
    }

    /// Writes the frame of a segment as the observer sees it, and adds it to the truth.
    fn observe(&mut self, time: u64, side: Side, segment: &Segment, buf: &mut [u8]) -> usize {
        let (own, other) = (side as usize, side.other() as usize);
        let is_counted_in_stream = segment.flags & (flag::SYN | flag::FIN) != 0;
        let payload = if is_counted_in_stream { 0 } else { segment.len };
        let ack = if segment.flags & flag::ACK == 0 { 0 } else { self.initial[other].wrapping_add(segment.ack as u32) };
        self.packet_ids[own] = self.packet_ids[own].wrapping_add(1);
        let frame = TcpFrame {
            src: self.truth.addresses[own],
            dst: self.truth.addresses[other],
            src_port: self.truth.ports[own],
            dst_port: self.truth.ports[other],
            seq: self.initial[own].wrapping_add(segment.begin as u32),
            ack,
            flags: segment.flags,
            ttl: [63, 57][own],
            id: self.packet_ids[own],
            payload: payload as usize,
            mss: self.mss,
            mac: own as u8 + 1,
        };
        let len = frame.write(buf);
        let truth = &mut self.truth;
        if truth.packets == [0; 2] {
            truth.begin = time;
        }
        truth.end = time;
        truth.packets[own] += 1;
        truth.bytes[own] += len as u64;
        if segment.len > 0 {
            if self.seen[own].insert(segment.begin) {
                truth.payload[own] += payload;
                truth.late[own] += u64::from(segment.begin < self.seen_end[own]);
            } else {
                truth.repeated[own] += 1;
            }
            self.seen_end[own] = self.seen_end[own].max(segment.begin + segment.len);
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn spec(loss: f64, seed: u64) -> ConversationSpec {
        let distribution = |text: &str| text.parse().unwrap();
        ConversationSpec {
            clients: 20,
            total: 300,
            request: distribution("uniform:0:3000"),
            response: distribution("pareto:1.2:3000:300000"),
            round_trip: distribution("uniform:1ms:80ms"),
            think: distribution("exp:50ms"),
            loss,
            segment: 1460,
            seed,
        }
    }

    type Packet = (u64, Vec<u8>);

    fn all(spec: &ConversationSpec) -> (Vec<Packet>, Vec<ConversationTruth>) {
        let mut conversations = Conversations::new(spec);
        let mut buf = vec![0; conversations.max_len()];
        let mut packets = Vec::new();
        while let Some((time, len)) = conversations.next(u64::MAX, &mut buf) {
            packets.push((time, buf[..len].to_vec()));
        }
        (packets, conversations.take_ended())
    }

    fn be32(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// One direction of a conversation, reassembled from the frames: packets, bytes, and the segments by sequence
    /// number.
    #[derive(Default)]
    struct Observed {
        packets: u64,
        bytes: u64,
        repeated: u64,
        late: u64,
        initial: Option<u32>,
        /// The highest end of a segment so far; in `segments`, the begin and the length of each segment. Positions are
        /// relative to the first sequence number.
        end: u32,
        segments: HashMap<u32, u32>,
        flags: u8,
        reset: bool,
    }

    /// Reassembles all conversations from the bytes of the frames alone.
    fn observed(packets: &[Packet]) -> HashMap<(u32, u16, u32, u16), Observed> {
        let half = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let key = |frame: &[u8]| (be32(frame, 26), half(frame, 34), be32(frame, 30), half(frame, 36));
        let mut flows: HashMap<(u32, u16, u32, u16), Observed> = HashMap::new();
        // If the first transmission of a SYN was lost before the observer, acknowledgements of the same direction can
        // be seen before the SYN.
        for (_, frame) in packets.iter().filter(|(_, frame)| frame[47] & flag::SYN != 0) {
            flows.entry(key(frame)).or_default().initial = Some(be32(frame, 38));
        }
        for (_, frame) in packets {
            let port = |at: usize| half(frame, at);
            let flow = flows.entry(key(frame)).or_default();
            let payload = u32::from(port(16)) - 20 - u32::from(frame[46] >> 4) * 4;
            let (flags, seq) = (frame[47], be32(frame, 38));
            flow.packets += 1;
            flow.bytes += frame.len() as u64;
            flow.flags |= flags;
            flow.reset |= flags & flag::RST != 0;
            let len = payload + u32::from(flags & (flag::SYN | flag::FIN) != 0);
            let begin = seq.wrapping_sub(*flow.initial.get_or_insert(seq));
            if len > 0 {
                match flow.segments.insert(begin, len) {
                    Some(known) => {
                        assert_eq!(known, len);
                        flow.repeated += 1;
                    }
                    None => flow.late += u64::from(begin < flow.end),
                }
                flow.end = flow.end.max(begin + len);
            }
        }
        flows
    }

    #[test]
    fn without_loss_each_conversation_is_complete_and_nothing_is_repeated() {
        let seed = testkit::seed("without_loss_each_conversation_is_complete_and_nothing_is_repeated");
        let spec = spec(0.0, seed);
        let (packets, truths) = all(&spec);
        assert!(packets.is_sorted_by_key(|(time, _)| *time), "seed {seed}");
        assert_eq!(truths.len(), 300, "seed {seed}");
        let flows = observed(&packets);
        for truth in &truths {
            assert!(!truth.is_reset && truth.repeated == [0; 2] && truth.late == [0; 2], "seed {seed}: {truth:?}");
            let [a, b] = truth.addresses;
            let [p, q] = truth.ports;
            for (side, key) in [(a, p, b, q), (b, q, a, p)].into_iter().enumerate() {
                let flow = &flows[&key];
                assert_eq!(flow.flags & !flag::PSH, flag::SYN | flag::ACK | flag::FIN, "seed {seed}: {truth:?}");
                // SYN and FIN take one sequence number each.
                assert_eq!(u64::from(flow.end), truth.payload[side] + 2, "seed {seed}: {truth:?}");
            }
        }
        assert_eq!(flows.len(), 600);
    }

    #[test]
    fn the_truth_equals_what_an_observer_reassembles_from_the_frames() {
        let seed = testkit::seed("the_truth_equals_what_an_observer_reassembles_from_the_frames");
        for (loss, spec_seed) in [(0.0, seed), (0.01, seed + 1), (0.1, seed + 2), (0.4, seed + 3)] {
            let (packets, truths) = all(&spec(loss, spec_seed));
            let flows = observed(&packets);
            let mut sums = [0u64; 4];
            for truth in &truths {
                let [a, b] = truth.addresses;
                let [p, q] = truth.ports;
                for (side, key) in [(a, p, b, q), (b, q, a, p)].into_iter().enumerate() {
                    let none = Observed::default();
                    let flow = flows.get(&key).unwrap_or(&none);
                    let why = format!("loss {loss}, seed {seed}, direction {side}: {truth:?}");
                    assert_eq!(flow.packets, truth.packets[side], "{why}");
                    assert_eq!(flow.bytes, truth.bytes[side], "{why}");
                    // If the first SYN was lost before the observer, its retransmission is the first segment that the
                    // observer sees, so it counts neither as repeated nor as late.
                    assert_eq!((flow.repeated, flow.late), (truth.repeated[side], truth.late[side]), "{why}");
                    sums[0] += truth.repeated[side];
                    sums[1] += truth.late[side];
                    sums[2] += truth.lost_before[side];
                    sums[3] += truth.lost_after[side];
                }
            }
            let total: u64 = truths.iter().map(|truth| truth.packets[0] + truth.packets[1]).sum();
            assert_eq!(total, packets.len() as u64, "loss {loss}, seed {seed}");
            if loss == 0.0 {
                assert_eq!(sums, [0; 4]);
            } else {
                let lost = (sums[2] + sums[3]) as f64 / (total + sums[2]) as f64;
                assert!(lost > 0.0 && lost < 2.0 * loss, "loss {loss}, seed {seed}: {lost}");
            }
            if loss >= 0.1 {
                assert!(sums.iter().all(|sum| *sum > 10), "loss {loss}, seed {seed}: {sums:?}");
            }
            if loss <= 0.1 {
                assert_eq!(truths.len(), 300, "loss {loss}, seed {seed}");
                assert!(truths.iter().filter(|truth| truth.is_reset).count() < 10, "loss {loss}, seed {seed}");
            }
        }
    }

    #[test]
    fn checksums_are_correct_and_repeated_segments_have_equal_bytes() {
        let (packets, _) = all(&spec(0.1, 4));
        let mut payloads = HashMap::new();
        for (_, frame) in &packets {
            let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let sum = |parts: &[&[u8]]| {
                let words = parts.iter().flat_map(|part| part.chunks(2));
                let mut sum: u32 =
                    words.map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0))).sum();
                while sum > 0xffff {
                    sum = (sum & 0xffff) + (sum >> 16);
                }
                sum
            };
            assert_eq!(sum(&[&frame[14..34]]), 0xffff);
            let length = ((total - 20) as u16).to_be_bytes();
            assert_eq!(sum(&[&frame[26..34], &[0, 6], &length, &frame[34..14 + total]]), 0xffff);
            let payload = frame[34 + usize::from(frame[46] >> 4) * 4..14 + total].to_vec();
            if !payload.is_empty() {
                let key = (frame[26..38].to_vec(), be32(frame, 38));
                assert_eq!(payloads.entry(key).or_insert_with(|| payload.clone()), &payload);
            }
        }
    }

    /// The flight of a direction is the distance from the highest acknowledgement that the observer saw in the other
    /// direction to the end of the segment. The sender knows at most this acknowledgement.
    #[test]
    fn no_endpoint_sends_more_than_the_window_that_the_other_endpoint_advertises() {
        let seed = testkit::seed("no_endpoint_sends_more_than_the_window_that_the_other_endpoint_advertises");
        let large = "30000000".parse().unwrap();
        let round_trip = "300ms".parse().unwrap();
        let spec = ConversationSpec { clients: 3, total: 6, response: large, round_trip, ..spec(0.0, seed) };
        let (packets, truths) = all(&ConversationSpec { segment: 8960, ..spec });
        assert_eq!(truths.len(), 6);
        type Way = (u32, u16, u32, u16);
        /// What the observer saw of one direction: the shift of the SYN, and the highest right edge of the window that
        /// an acknowledgement opened for the other direction.
        #[derive(Default)]
        struct Seen {
            shift: Option<u8>,
            edge: Option<u32>,
        }
        let mut ways: HashMap<Way, Seen> = HashMap::new();
        let (mut flight_max, mut mss) = (0, HashMap::new());
        for (_, frame) in &packets {
            let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let way = (be32(frame, 26), half(34), be32(frame, 30), half(36));
            let back = (way.2, way.3, way.0, way.1);
            let header = usize::from(frame[46] >> 4) * 4;
            let payload = u32::from(half(16)) - 20 - header as u32;
            let is_syn = frame[47] & flag::SYN != 0;
            if let (Some(Seen { edge: Some(edge), .. }), true) = (ways.get(&back), payload > 0) {
                let left = edge.wrapping_sub(be32(frame, 38).wrapping_add(payload)) as i32;
                assert!(left >= 0, "{} bytes beyond the window, seed {seed}", -left);
            }
            let seen = ways.entry(way).or_default();
            if is_syn {
                assert_eq!(frame[54..56], [2, 4], "the option MSS, seed {seed}");
                assert_eq!(frame[58..61], [1, 3, 3], "the option window scale, seed {seed}");
                mss.insert(way, half(56));
                seen.shift = Some(frame[61]);
            }
            if frame[47] & flag::ACK != 0 {
                let shift = if is_syn { 0 } else { seen.shift.expect("a SYN") };
                let window = u32::from(half(48)) << shift;
                let edge = be32(frame, 42).wrapping_add(window);
                let is_higher = seen.edge.is_none_or(|known| edge.wrapping_sub(known) as i32 > 0);
                seen.edge = if is_higher { Some(edge) } else { seen.edge };
                flight_max = flight_max.max(window);
            }
            assert!(u64::from(payload) <= mss.get(&back).copied().unwrap_or(8960).into(), "seed {seed}");
        }
        assert!(flight_max > 1 << 20, "windows are scaled");
    }

    #[test]
    fn the_truth_of_traffic_that_ends_early_contains_the_open_conversations() {
        let seed = testkit::seed("the_truth_of_traffic_that_ends_early_contains_the_open_conversations");
        for end in [0, 20_000_000, 300_000_000, 1_000_000_000] {
            let mut conversations = Conversations::new(&spec(0.05, seed));
            let mut buf = vec![0; conversations.max_len()];
            let mut frames = 0;
            while let Some((time, _)) = conversations.next(end, &mut buf) {
                assert!(time < end);
                frames += 1;
            }
            let (ended, open) = (conversations.take_ended(), conversations.take_open());
            assert!(ended.iter().all(|truth| truth.is_complete) && open.iter().all(|truth| !truth.is_complete));
            let sum: u64 = ended.iter().chain(&open).map(|truth| truth.packets[0] + truth.packets[1]).sum();
            assert_eq!(sum, frames, "end {end}, seed {seed}");
            assert!(end < 100_000_000 || !open.is_empty(), "end {end}, seed {seed}");
            assert!(conversations.next(u64::MAX, &mut buf).is_none());
        }
    }

    #[test]
    fn equal_specifications_give_equal_frames() {
        let (a, b) = (all(&spec(0.05, 9)), all(&spec(0.05, 9)));
        assert!(a == b);
        assert!(all(&spec(0.05, 10)).0 != a.0);
    }
}
