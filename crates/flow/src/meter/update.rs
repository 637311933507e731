//! The metering of one packet: finding its flow, and updating the flow.
//!
//! Two fast paths handle most packets: one for the packets of long flows, and one for the first ten packets of a flow.
//! A general path handles all other packets. The tests compare the result with a model that has no fast paths.
//! `docs/design/flow-metering.md` has the cost of each path.

use super::Meter;
use super::insert::is_another;
use crate::compact_counters::CompactCounters;
use crate::config::Packet;
use crate::entry::{Body, Entry, Hot, bit};
use crate::extra_fields;
use crate::flow_packet::FlowPacket;
use crate::key::{Key, Keys};
use crate::packet_fields::{self, PacketFields};
use crate::packet_list::{self, LOG, PacketList};
use crate::pool::NONE;
use crate::record::Sink;
use crate::tcp::{self, HandshakeUpdate};
use base::memory::Hints;
use wire::tcp_flags::{FIN, RST, SYN};

impl<H: Hints> Meter<H> {
    /// Counts a packet in its flow, which is probably the flow `guess`.
    #[inline(always)]
    pub(crate) fn take(&mut self, packet: &Packet, flow_packet: &mut FlowPacket, guess: u32, sink: &mut dyn Sink) {
        let flow = self.count(packet, flow_packet, guess, sink);
        if flow_packet.key.tunnel > 0 {
            self.note(flow, packet, flow_packet);
        }
    }

    /// Stores the tunnel sequence number of a packet, after the packet was counted, so that the number belongs to the
    /// same record.
    #[inline(never)]
    fn note(&mut self, flow: u32, packet: &Packet, flow_packet: &FlowPacket) {
        let hot = &self.flows[flow].hot;
        // If the tunnel is not in the flow key, a flow may have packets inside and outside of tunnels. If its first
        // packet was in no tunnel, no sequence numbers are stored for the flow.
        if let Some(number) = packet.decoded.tunnel.and_then(|t| t.sequence).filter(|_| hot.tunnel > 0) {
            self.numbers.note(flow, hot.side(&flow_packet.key), number);
        }
    }

    /// Counts a packet and returns the index of its flow.
    #[inline(always)]
    fn count(&mut self, packet: &Packet, flow_packet: &mut FlowPacket, guess: u32, sink: &mut dyn Sink) -> u32 {
        // A packet before this one may have ended the guessed flow, and another flow may use its entry.
        let found = if guess != NONE && is_same(&self.flows[guess].hot, &flow_packet.key, &self.keys) {
            if self.take_usual(packet, flow_packet, guess) || self.take_listed(packet, flow_packet, guess) {
                return guess;
            }
            Some(guess)
        } else {
            self.table.find(flow_packet.bucket, |flow| is_same(&self.flows[flow].hot, &flow_packet.key, &self.keys))
        };
        let Some(flow) = found else { return self.begin(packet, flow_packet, sink) };
        let hot = &mut self.flows[flow].hot;
        let timeout = if tcp::is_over(hot.state) { self.close_timeout } else { self.idle[usize::from(hot.protocol)] };
        if is_another(hot.state, &flow_packet.seen) || flow_packet.seen.at.saturating_sub(hot.last) >= timeout {
            // The packet begins a new flow with the key of an old flow. The record of the old flow is made when the
            // timeout of the old flow expires. Until then the old flow occupies its entry and its slot of the timing
            // wheel.
            hot.bits |= bit::DETACHED;
            self.table.remove(flow_packet.bucket, flow);
            return self.begin(packet, flow_packet, sink);
        }
        let seen = &mut flow_packet.seen;
        self.counts.backward_timestamps += u64::from(seen.at < hot.last);
        seen.at = seen.at.max(hot.last);
        seen.side = hot.side(&flow_packet.key);
        if hot.has(bit::FULL) {
            self.add_to_other(flow, packet, seen, sink);
        } else {
            self.add(flow, packet, seen, sink);
        }
        flow
    }

    /// Counts a further packet of a flow with wide counters or of a compressed flow, which is decompressed.
    #[inline(never)]
    fn add_to_other(&mut self, flow: u32, packet: &Packet, seen: &PacketFields, sink: &mut dyn Sink) {
        if self.flows[flow].hot.is_compressed() {
            self.decompress(flow);
        }
        self.add(flow, packet, seen, sink);
    }

    /// The fast path for long flows: counts a packet for which compact counters suffice; false if another path must
    /// count the packet.
    #[inline(always)]
    fn take_usual(&mut self, packet: &Packet, flow_packet: &FlowPacket, flow: u32) -> bool {
        let Entry { hot, body } = &mut self.flows[flow];
        if hot.bits & (bit::FULL | bit::PAIR) != bit::PAIR || self.payloads.is_some() {
            return false;
        }
        let (seen, side) = (&flow_packet.seen, hot.side(&flow_packet.key));
        let changes_state = seen.tcp & ((seen.flags & (SYN | FIN | RST) != 0) | !tcp::is_final(hot.state));
        let is_next = (seen.at >= hot.last) & (seen.at.wrapping_sub(hot.last) < self.idle[usize::from(hot.protocol)]);
        let is_first_back = (side == 1) & (hot.bits & bit::BACK == 0);
        if changes_state | tcp::is_over(hot.state) | !is_next | is_first_back {
            return false;
        }
        let pair = &mut self.pairs[hot.more];
        if hot.bits & bit::HAS_INTERIM_RECORD != 0 && pair.sides[side].packets == 0 {
            return false;
        }
        let is_counted = add_to_pair(hot, body, pair, packet, seen, side, false, self.most_packets);
        if is_counted {
            hot.last = seen.at;
            hot.bits |= bit::SEEN_SINCE_SWEEP;
        }
        is_counted
    }

    /// The fast path for short flows: counts a regular packet that the packet list can hold; false if another path must
    /// count the packet.
    #[inline(always)]
    fn take_listed(&mut self, packet: &Packet, flow_packet: &FlowPacket, flow: u32) -> bool {
        let Entry { hot, body } = &mut self.flows[flow];
        let (seen, side) = (&flow_packet.seen, hot.side(&flow_packet.key));
        let after = seen.at.wrapping_sub(body.start);
        let is_list = (hot.bits & (bit::FULL | bit::PAIR) == 0) & (usize::from(hot.packets) < LOG);
        let is_next = (seen.at >= hot.last) & (seen.at.wrapping_sub(hot.last) < self.idle[usize::from(hot.protocol)]);
        let goes_on = (seen.flags & (FIN | RST) == 0) & !tcp::is_over(hot.state);
        if !(is_list & is_next & goes_on & packet_list::is_exact(after)) || self.payloads.is_some() {
            return false;
        }
        let is_reply = (side == 1) & (hot.bits & bit::BACK == 0);
        if !body.sums[side].take(seen, is_reply) {
            return false;
        }
        hot.last = seen.at;
        let (state, update) = tcp::step(hot.state, side, seen);
        hot.state = state;
        hot.add_extra(update);
        hot.bits |= bit::SEEN_SINCE_SWEEP;
        let rare = if hot.has(bit::V6) { &mut self.rares[flow as usize] } else { &mut hot.rare };
        // A time that the packet list can hold is short enough for `ExtraFields::set_handshake`.
        rare.set_handshake(update.times(rare.handshake(), after));
        if is_reply {
            hot.bits |= bit::BACK;
            if let Some(mac) = packet_fields::mac(packet) {
                rare.set_mac(1, mac.0);
                hot.bits |= bit::MAC[1];
            }
        }
        let word = packet_list::pack(after, side, seen);
        if hot.more == NONE {
            let mut chunk = PacketList::default();
            chunk.log[0] = word;
            hot.more = self.chunks.put(chunk).expect("the pool has a packet list for every flow");
        } else {
            self.chunks[hot.more].log[usize::from(hot.packets) - 1] = word;
        }
        hot.packets += 1;
        body.reach(packet, hot.queue);
        true
    }

    /// Counts a further packet of a flow: the general path.
    #[inline(always)]
    fn add(&mut self, flow: u32, packet: &Packet, seen: &PacketFields, sink: &mut dyn Sink) {
        let hot = &mut self.flows[flow].hot;
        let was_over = tcp::is_over(hot.state);
        let is_reply = (seen.side == 1) & (hot.bits & bit::BACK == 0);
        hot.last = seen.at;
        hot.bits |= bit::SEEN_SINCE_SWEEP;
        if seen.tcp & ((seen.flags & (SYN | FIN | RST) != 0) | !tcp::is_final(hot.state)) {
            self.follow(flow, seen);
        }
        if is_reply {
            let mac = packet_fields::mac(packet);
            self.flows[flow].hot.bits |= bit::BACK | if mac.is_some() { bit::MAC[1] } else { 0 };
            if let Some(mac) = mac {
                self.rare_mut(flow).set_mac(1, mac.0);
            }
        }
        let Entry { hot, body } = &mut self.flows[flow];
        let mut is_new_record = false;
        let is_counted = match hot.bits & (bit::FULL | bit::PAIR) {
            bit::PAIR if hot.has(bit::HAS_INTERIM_RECORD) && self.pairs[hot.more].sides[seen.side].packets == 0 => {
                let counted;
                (counted, is_new_record) = self.add_again(flow, packet, seen);
                counted
            }
            bit::PAIR => {
                let pair = &mut self.pairs[hot.more];
                add_to_pair(hot, body, pair, packet, seen, seen.side, is_reply, self.most_packets)
            }
            0 => self.add_to_list(flow, packet, seen, is_reply),
            _ => false,
        };
        is_new_record |= !is_counted && self.add_full(flow, packet, seen, sink);
        if let Some(payloads) = &mut self.payloads {
            payloads.keep(flow, packet, seen.side);
        }
        if is_new_record || tcp::is_over(self.flows[flow].hot.state) != was_over {
            self.wheel.remove(flow);
            self.schedule(flow);
        }
    }

    #[inline(always)]
    fn add_to_list(&mut self, flow: u32, packet: &Packet, seen: &PacketFields, is_reply: bool) -> bool {
        let Entry { hot, body } = &mut self.flows[flow];
        let after = seen.at - body.start;
        if usize::from(hot.packets) >= LOG {
            // If the configuration requests more initial packets than the list holds, the flow needs wide counters.
            if self.config.initial_packets > LOG {
                return false;
            }
            self.pair(flow);
            return self.add_to_new_pair(flow, packet, seen, is_reply);
        }
        if !packet_list::is_exact(after) || !body.sums[seen.side].take(seen, is_reply) {
            return false;
        }
        if hot.more == NONE {
            let mut chunk = PacketList::default();
            chunk.log[0] = packet_list::pack(after, seen.side, seen);
            hot.more = self.chunks.put(chunk).expect("the pool has a packet list for every flow");
        } else {
            self.chunks[hot.more].log[usize::from(hot.packets) - 1] = packet_list::pack(after, seen.side, seen);
        }
        hot.packets += 1;
        body.reach(packet, hot.queue);
        true
    }

    #[inline(never)]
    fn add_to_new_pair(&mut self, flow: u32, packet: &Packet, seen: &PacketFields, is_reply: bool) -> bool {
        let Entry { hot, body } = &mut self.flows[flow];
        let pair = &mut self.pairs[hot.more];
        add_to_pair(hot, body, pair, packet, seen, seen.side, is_reply, self.most_packets)
    }

    /// Counts a packet in wide counters, to which the flow is converted if necessary; true if the packet is the first
    /// of its record.
    #[inline(never)]
    fn add_full(&mut self, flow: u32, packet: &Packet, seen: &PacketFields, sink: &mut dyn Sink) -> bool {
        if !self.flows[flow].hot.has(bit::FULL) {
            self.widen(flow);
        }
        if self.fulls[self.flows[flow].hot.more].sides[seen.side].is_full(self.most_packets) {
            self.make_interim_record(flow, self.id(flow), sink);
        }
        let Entry { hot, body } = &mut self.flows[flow];
        let full = &mut self.fulls[hot.more];
        let is_first = full.sides[0].packets == 0 && full.sides[1].packets == 0;
        if is_first {
            body.positions = [packet.position; 2];
            hot.begin_record(packet);
        } else {
            body.reach(packet, hot.queue);
        }
        if full.part == 0 && usize::from(hot.packets) < self.config.initial_packets.min(u8::MAX.into()) {
            let word = packet_list::pack(seen.at - body.start, seen.side, seen);
            if usize::from(hot.packets) < LOG {
                if full.chunk == NONE {
                    full.chunk =
                        self.chunks.put(PacketList::default()).expect("the pool has a packet list for every flow");
                }
                self.chunks[full.chunk].log[usize::from(hot.packets) - 1] = word;
            } else {
                full.more.push(word);
            }
            hot.packets += 1;
        }
        full.sides[seen.side].add(seen);
        is_first
    }

    /// Updates the TCP state and the times of the handshake.
    #[inline(never)]
    fn follow(&mut self, flow: u32, seen: &PacketFields) {
        let Entry { hot, body } = &mut self.flows[flow];
        let at = seen.at - body.start;
        let mut fins = (hot.bits >> bit::FINS) as u8 & 3;
        let before = hot.state;
        let after = tcp::next(before, &mut fins, seen, self.config.bidirectional);
        hot.state = after;
        hot.bits |= u16::from(fins) << bit::FINS;
        let update = HandshakeUpdate::of(before, after, seen.side, seen.flags);
        if update == HandshakeUpdate::EMPTY {
            return;
        }
        let handshake = update.times(self.handshake(flow), at);
        self.flows[flow].hot.add_extra(update);
        let far = handshake[0].max(handshake[1]) >= extra_fields::FAR;
        if far && !self.flows[flow].hot.has(bit::FULL) {
            self.widen(flow);
        }
        let hot = &self.flows[flow].hot;
        if hot.has(bit::FULL) {
            self.fulls[hot.more].handshake = handshake;
        } else {
            self.rare_mut(flow).set_handshake(handshake);
        }
    }
}

#[inline(always)]
fn is_same(hot: &Hot, key: &Key, keys: &Keys) -> bool {
    // Equal keys leave no bit set in the combined difference, so one comparison is enough.
    let low = hot.low ^ key.low;
    let rest = u64::from(hot.ports ^ key.ports) | u64::from(hot.protocol ^ key.protocol);
    let around = (hot.around ^ key.around) & keys.mask(key.tunnel);
    let bits = (hot.bits ^ bit::USED ^ if key.v6 { bit::V6 } else { 0 }) & (bit::USED | bit::V6 | bit::DETACHED);
    low | rest | around | u64::from(bits) == 0
        && keys.same_kind(hot.tunnel, key.tunnel)
        && (!key.v6 || hot.rare.words() == key.wide)
}

/// Counts a packet in compact counters; false if the counters cannot hold the values of the packet.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the arguments are fields of a meter, each borrowed separately")]
fn add_to_pair(
    hot: &Hot,
    body: &mut Body,
    pair: &mut CompactCounters,
    packet: &Packet,
    seen: &PacketFields,
    side: usize,
    is_reply: bool,
    most: u32,
) -> bool {
    let line = &mut pair.sides[side];
    let is_room = line.fits(seen.at, seen.flags) & (u32::from(line.packets) < most);
    if !is_room || !body.sums[side].take(seen, is_reply) {
        return false;
    }
    line.count(seen.at, seen.length as u16, seen.flags);
    body.reach(packet, hot.queue);
    true
}
