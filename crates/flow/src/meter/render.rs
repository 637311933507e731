//! The conversion of a flow's entry and counters to a flow record.

use super::Meter;
use crate::entry::{Body, Entry, Hot, bit};
use crate::extra_fields::ExtraFields;
use crate::key::{self, NO_VLAN};
use crate::packet_list::{self, LOG};
use crate::pool::NONE;
use crate::record::{
    DirectionStats, Encapsulation, EndReason, InitialPacket, Key, PacketLocation, Record, Stats, TcpState,
};
use base::Timestamp;
use base::memory::Hints;
use std::net::{IpAddr, Ipv4Addr};
use wire::{IpProtocol, MacAddr, TunnelKind};

/// A record to be overwritten.
pub(crate) fn blank() -> Record {
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Record {
        id: 0,
        key: Key { src: unspecified, dst: unspecified, src_port: 0, dst_port: 0, protocol: IpProtocol(0) },
        encapsulation: Encapsulation::default(),
        interface: 0,
        flow_start: Timestamp::ZERO,
        record_index: 0,
        directions: [DirectionStats::default(); 2],
        end_reason: EndReason::IdleTimeout,
        tcp_state: TcpState::None,
        syn_rtt: None,
        ack_rtt: None,
        initial_packets: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        location: None,
        lost: 0,
    }
}

impl<H: Hints> Meter<H> {
    /// Overwrites `out` with the record of a flow.
    #[inline(always)]
    pub(crate) fn render(&self, flow: u32, id: u64, reason: EndReason, out: &mut Record) {
        let (Entry { hot, body }, rare) = (&self.flows[flow], self.rare(flow));
        let mut handshake = rare.handshake();
        if hot.bits & (bit::FULL | bit::PAIR) == 0 {
            let words = match hot.more {
                NONE => &[][..],
                chunk => &self.chunks[chunk].log[..usize::from(hot.packets) - 1],
            };
            render_list(hot, body, rare, words, out);
            out.record_index = 0;
        } else {
            self.render_counters(flow, out);
            handshake = self.handshake(flow);
        }
        out.initial_packets.truncate(self.config.initial_packets);
        out.id = id;
        out.key = key_of(hot, rare);
        out.encapsulation =
            if hot.is_bare() { Encapsulation::default() } else { encapsulation_of(hot, self.label(flow)) };
        let numbers = if hot.tunnel > 0 { self.numbers.of(flow) } else { [None; 2] };
        (out.directions[0].tunnel_sequence, out.directions[1].tunnel_sequence) = (numbers[0], numbers[1]);
        out.interface = self.interface;
        out.flow_start = Timestamp::from_nanos(body.start);
        out.end_reason = reason;
        out.tcp_state = hot.state;
        out.syn_rtt = hot.has(bit::SYN_RTT).then_some(handshake[0]);
        out.ack_rtt = hot.has(bit::ACK_RTT).then_some(handshake[1]);
        for (side, bytes) in out.payload.iter_mut().enumerate() {
            bytes.clear();
            if let Some(payloads) = self.payloads.as_ref().filter(|_| out.record_index == 0) {
                bytes.extend_from_slice(payloads.of(flow, side));
            }
        }
        let [first, last] = body.positions;
        out.location = hot.has(bit::LOCATED).then_some(PacketLocation { queue: hot.queue, first, last });
        out.lost = if self.losses.is_none() { 0 } else { self.losses.between(out.first().secs(), out.last().secs()) };
    }

    /// Overwrites directions, initial packets and record index of the record with the values of a flow that has compact
    /// or wide counters.
    #[inline(never)]
    fn render_counters(&self, flow: u32, out: &mut Record) {
        let (Entry { hot, body }, rare) = (&self.flows[flow], self.rare(flow));
        if hot.has(bit::FULL) {
            let full = &self.fulls[hot.more];
            out.record_index = full.part;
            out.directions = [0, 1].map(|side| full.sides[side].render(mac_of(hot, rare, side)));
        } else {
            let pair = &self.pairs[hot.more];
            let continuation = self.continuation(hot.bits, pair);
            out.record_index = continuation.part;
            let firsts = self.firsts(flow, pair, &continuation);
            for (n, out) in out.directions.iter_mut().enumerate() {
                pair.sides[n].render(&body.sums[n], firsts[n], continuation.before[n], mac_of(hot, rare, n), out);
            }
        }
        self.initial_packets(flow, &mut out.initial_packets);
    }

    /// The topmost MPLS label.
    #[inline(always)]
    pub(crate) fn label(&self, flow: u32) -> Option<u32> {
        let hot = &self.flows[flow].hot;
        if hot.tunnel > 0 && hot.has(bit::FULL) { self.label_in_tunnel(flow) } else { hot.label() }
    }

    #[cold]
    #[inline(never)]
    fn label_in_tunnel(&self, flow: u32) -> Option<u32> {
        let hot = &self.flows[flow].hot;
        if hot.is_compressed() { self.head(flow).label } else { self.fulls[hot.more].label }
    }

    /// Overwrites `out` with the initial packets of a flow that has compact or wide counters.
    fn initial_packets(&self, flow: u32, out: &mut Vec<InitialPacket>) {
        out.clear();
        let hot = &self.flows[flow].hot;
        let (chunk, more) = match hot.bits & (bit::FULL | bit::PAIR) {
            bit::PAIR if hot.has(bit::HAS_INTERIM_RECORD) => return,
            bit::PAIR => (self.pairs[hot.more].chunk(), &[][..]),
            _ if self.fulls[hot.more].part == 0 => (self.fulls[hot.more].chunk, &self.fulls[hot.more].more[..]),
            _ => return,
        };
        let (length, flags) = (self.rare(flow).first_length(), self.flows[flow].body.sums[0].first_flags);
        out.push(InitialPacket { offset_ns: 0, length, flags, reverse: false });
        if chunk != NONE {
            let words = &self.chunks[chunk].log[..usize::from(hot.packets).min(LOG) - 1];
            out.extend(words.iter().map(|w| packet_list::unpack(*w)));
            out.extend(more.iter().map(|w| packet_list::unpack(*w)));
        }
    }
}

/// The source MAC address of the first frame of a direction.
#[inline(always)]
fn mac_of(hot: &Hot, rare: &ExtraFields, side: usize) -> Option<MacAddr> {
    hot.has(bit::MAC[side]).then_some(MacAddr(rare.mac(side)))
}

/// Writes initial packets and directions of a short flow into the record, from the packet list of the flow.
#[inline(always)]
fn render_list(hot: &Hot, body: &Body, rare: &ExtraFields, words: &[u64], out: &mut Record) {
    let Record { directions: sides, initial_packets: early, .. } = out;
    let (length, flags) = (rare.first_length(), body.sums[0].first_flags);
    early.clear();
    early.push(InitialPacket { offset_ns: 0, length, flags, reverse: false });
    begin_side(&mut sides[0], body.start, length.into(), flags);
    let had = std::mem::take(&mut sides[1].packets) > 0;
    for word in words {
        let packet = packet_list::unpack(*word);
        early.push(packet);
        let (at, length) = (body.start + packet.offset_ns, u64::from(packet.length));
        let side = &mut sides[usize::from(packet.reverse)];
        if side.packets == 0 {
            begin_side(side, at, length, packet.flags);
            continue;
        }
        let gap = at - side.last.nanos();
        side.iat.min = if side.iat_count == 0 { gap } else { side.iat.min.min(gap) };
        side.iat.max = side.iat.max.max(gap);
        side.iat.sum += gap;
        side.iat.squares += u128::from(gap) * u128::from(gap);
        side.iat_count += 1;
        side.last = Timestamp::from_nanos(at);
        side.packets += 1;
        side.length.min = side.length.min.min(length);
        side.length.max = side.length.max.max(length);
        side.length.sum += length;
        side.length.squares += u128::from(length * length);
        for (count, one) in side.flags.iter_mut().zip(packet_list::SINGLE[usize::from(packet.flags)]) {
            *count += one;
        }
    }
    body.sums[0].render(sides[0].length.sum, mac_of(hot, rare, 0), &mut sides[0]);
    if sides[1].packets > 0 {
        body.sums[1].render(sides[1].length.sum, mac_of(hot, rare, 1), &mut sides[1]);
    } else if had {
        sides[1] = DirectionStats::default();
    }
}

/// Overwrites a direction with the values of its first packet.
#[inline(always)]
fn begin_side(side: &mut DirectionStats, at: u64, length: u64, flags: u8) {
    side.first = Timestamp::from_nanos(at);
    side.last = side.first;
    (side.packets, side.iat_count) = (1, 0);
    side.iat = Stats::default();
    side.length = Stats { min: length, max: length, sum: length, squares: (length * length).into() };
    side.flags = packet_list::SINGLE[usize::from(flags)];
}

#[inline(always)]
fn key_of(hot: &Hot, rare: &ExtraFields) -> Key {
    let protocol = IpProtocol(hot.protocol);
    let turned = u32::from(hot.has(bit::TURNED));
    let ports = hot.ports.rotate_left(16 * turned);
    let (src_port, dst_port) = ((ports >> 16) as u16, ports as u16);
    let [src, dst] = if hot.has(bit::V6) {
        key::addresses_v6(&hot.oriented())
    } else {
        let both = hot.low.rotate_left(32 * turned);
        [both >> 32, both].map(|address| IpAddr::V4(Ipv4Addr::from_bits(address as u32)))
    };
    let dst_port = if key::is_icmp(protocol) { rare.icmp() } else { dst_port };
    Key { src, dst, src_port, dst_port, protocol }
}

fn encapsulation_of(hot: &Hot, mpls: Option<u32>) -> Encapsulation {
    let tag = |shift: u32| Some((hot.around >> shift) as u16).filter(|id| *id != NO_VLAN);
    let tunnel: Option<TunnelKind> = key::tunnel_kind(hot.tunnel);
    Encapsulation { vlans: [tag(48), tag(32)], mpls, tunnel: tunnel.map(|kind| (kind, hot.around as u32)) }
}
