//! The model of the flow table: a map of flows, each with a list of all its packets. It is slow, but simple.

use super::traffic::Owned;
use crate::record::{
    DirectionStats, Encapsulation, EndReason, InitialPacket, Key, PacketLocation, Record, Sink, Stats, TcpState,
};
use crate::{Config, Packet};
use base::Timestamp;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use wire::{Fragment, IpProtocol, MacAddr, TunnelKind, tcp_flags as tcp};

const SECOND: u64 = 1_000_000_000;

type FlowKey = (IpAddr, u16, IpAddr, u16, u8, [Option<u16>; 2], Option<(TunnelKind, u32)>);

#[derive(Clone, Debug)]
struct ModelPacket {
    at: u64,
    side: usize,
    owned: Owned,
}

impl ModelPacket {
    fn header(&self) -> Option<&[u8]> {
        let d = &self.owned.decoded;
        let is_tcp = d.protocol == IpProtocol::TCP && d.fragment != Fragment::Later && d.l4 > 0;
        self.owned.data.get(usize::from(d.l4)..usize::from(d.l4) + 16).filter(|_| is_tcp)
    }

    fn flags(&self) -> u8 {
        self.header().map_or(0, |h| h[13])
    }

    fn has(&self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    fn class(&self) -> (u8, u8) {
        let l3 = &self.owned.data[usize::from(self.owned.decoded.l3)..];
        if l3[0] >> 4 == 6 { (l3[7], (l3[0] << 4 | l3[1] >> 4) >> 2) } else { (l3[8], l3[1] >> 2) }
    }
}

struct Flow {
    /// Every packet of the flow, and how many of them are in records already made.
    packets: Vec<ModelPacket>,
    reported: usize,
    part: u32,
    over: bool,
}

impl Flow {
    fn last(&self) -> u64 {
        self.packets.last().expect("a flow has packets").at
    }

    fn now(&self) -> &[ModelPacket] {
        &self.packets[self.reported..]
    }
}

pub struct Model {
    config: Config,
    interface: u16,
    /// `flows` has the flow to which the next packet of each key can belong; `waiting` has ended flows that wait for
    /// their last record.
    flows: BTreeMap<FlowKey, Flow>,
    waiting: Vec<Flow>,
    second: Option<u64>,
}

impl Model {
    pub fn new(config: Config, interface: u16) -> Self {
        Self { config, interface, flows: BTreeMap::new(), waiting: Vec::new(), second: None }
    }

    pub fn push(&mut self, owned: &Owned, sink: &mut dyn Sink) {
        self.pass(owned.ts.secs(), sink);
        let Some((place, turned)) = self.place(owned) else { return };
        let ts = owned.ts.nanos();
        if let Some(flow) = self.flows.get_mut(&place) {
            let at = ts.max(flow.last());
            let mut one = ModelPacket { at, side: 0, owned: owned.clone() };
            let again = flow.over && one.flags() & (tcp::SYN | tcp::ACK) == tcp::SYN;
            if !again && at - flow.last() < timeout(&self.config, flow) {
                let first = &flow.packets[0].owned;
                one.side = usize::from(turned != key_of(first, &self.config).expect("the packet is IP").1);
                flow.packets.push(one);
                flow.over = state(&flow.packets, self.config.bidirectional).is_over();
                return;
            }
            let old = self.flows.remove(&place).expect("the flow is in the map");
            self.waiting.push(old);
        }
        let packets = vec![ModelPacket { at: ts, side: 0, owned: owned.clone() }];
        let over = state(&packets, self.config.bidirectional).is_over();
        self.flows.insert(place, Flow { packets, reported: 0, part: 0, over });
    }

    fn place(&self, owned: &Owned) -> Option<(FlowKey, bool)> {
        key_of(owned, &self.config)
    }

    pub fn pass(&mut self, second: u64, sink: &mut dyn Sink) {
        let Some(now) = self.second.replace(second) else { return };
        if second < now {
            if second + 60 < now {
                self.finish(sink);
            } else {
                self.second = Some(now);
            }
            return;
        }
        for each in now + 1..=second {
            if self.flows.is_empty() && self.waiting.is_empty() {
                break;
            }
            self.tick(each, sink);
        }
    }

    fn tick(&mut self, second: u64, sink: &mut dyn Sink) {
        let end = Timestamp::from_secs_nanos(second, 0).nanos();
        let mut records = Vec::new();
        let config = &self.config;
        let is_idle = |f: &Flow| f.last() + timeout(config, f) <= end;
        let over: Vec<FlowKey> = self.flows.iter().filter(|(_, f)| is_idle(f)).map(|(p, _)| *p).collect();
        let mut gone: Vec<Flow> = over.iter().map(|p| self.flows.remove(p).expect("the flow is in the map")).collect();
        let (more, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(is_idle);
        self.waiting = waiting;
        gone.extend::<Vec<_>>(more);
        for flow in &gone {
            let reason = if flow.over { EndReason::EndOfFlow } else { EndReason::IdleTimeout };
            records.extend(self.record(flow, reason));
        }
        let longer = |f: &Flow| if f.over { config.close_timeout } else { Duration::ZERO };
        let active =
            |f: &Flow| Some(f.now().first()?.at + u64::try_from((config.active_timeout? + longer(f)).as_nanos()).ok()?);
        let due = |f: &Flow| active(f).is_some_and(|at| at <= end);
        let due_for_interim_record: Vec<FlowKey> = self.flows.iter().filter(|(_, f)| due(f)).map(|(p, _)| *p).collect();
        for place in due_for_interim_record {
            let flow = &self.flows[&place];
            records.extend(self.record(flow, EndReason::ActiveTimeout));
            let flow = self.flows.get_mut(&place).expect("the flow is in the map");
            flow.reported = flow.packets.len();
            flow.part += 1;
        }
        emit_in_order(records, sink);
    }

    pub fn finish(&mut self, sink: &mut dyn Sink) {
        let mut records = Vec::new();
        let ended = |f: &Flow, otherwise| if f.over { EndReason::EndOfFlow } else { otherwise };
        for flow in self.flows.values() {
            records.extend(self.record(flow, ended(flow, EndReason::ForcedEnd)));
        }
        for flow in &self.waiting {
            records.extend(self.record(flow, ended(flow, EndReason::IdleTimeout)));
        }
        self.flows.clear();
        self.waiting.clear();
        emit_in_order(records, sink);
    }

    fn record(&self, flow: &Flow, end: EndReason) -> Option<Record> {
        let now = flow.now();
        let (first, newest) = (&flow.packets[0], now.last()?);
        let owned = &first.owned;
        let d = &owned.decoded;
        let (src, dst) = ends(owned);
        let is_icmp = [IpProtocol::ICMP, IpProtocol::ICMPV6].contains(&d.protocol);
        let whole = d.fragment != Fragment::Later;
        let key = Key {
            src,
            dst,
            src_port: if is_icmp { 0 } else { d.src_port.0 },
            dst_port: match is_icmp {
                true if whole => d.src_port.0 * 256 + (d.dst_port.0 & 255),
                true => 0,
                false => d.dst_port.0,
            },
            protocol: d.protocol,
        };
        let around = Encapsulation { vlans: d.vlans, mpls: d.mpls, tunnel: d.tunnel.map(|t| (t.kind, t.id)) };
        let early = |one: &ModelPacket| InitialPacket {
            offset_ns: coarse(one.at - first.at),
            length: one.owned.decoded.ip_len.min(65535) as u16,
            flags: one.flags(),
            reverse: one.side == 1,
        };
        let place = now[0].owned.position;
        let queue = now[0].owned.queue;
        let in_queue = |one: &&ModelPacket| one.owned.queue == queue && one.owned.position != Packet::NOWHERE;
        let (syn_rtt, ack_rtt) = handshake_times(&flow.packets, self.config.bidirectional);
        let is_first = flow.part == 0;
        debug_assert!(newest.at >= now[0].at);
        Some(Record {
            id: 0,
            key,
            encapsulation: around,
            interface: self.interface,
            flow_start: Timestamp::from_nanos(first.at),
            record_index: flow.part,
            directions: [self.side(flow, 0), self.side(flow, 1)],
            end_reason: end,
            tcp_state: state(&flow.packets, self.config.bidirectional),
            syn_rtt,
            ack_rtt,
            initial_packets: now
                .iter()
                .take(if is_first { self.config.initial_packets } else { 0 })
                .map(early)
                .collect(),
            payload: [0, 1].map(|side| if is_first { self.payload(now, side) } else { Vec::new() }),
            location: (place != Packet::NOWHERE).then(|| PacketLocation {
                queue,
                first: place,
                last: now.iter().rfind(in_queue).map_or(place, |one| one.owned.position),
            }),
            lost: 0,
        })
    }

    fn payload(&self, packets: &[ModelPacket], side: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for one in packets.iter().filter(|o| o.side == side && o.owned.decoded.payload > 0) {
            let from = usize::from(one.owned.decoded.payload).min(one.owned.data.len());
            let captured = &one.owned.data[from..];
            bytes.extend_from_slice(&captured[..captured.len().min(one.owned.decoded.payload_len as usize)]);
        }
        bytes.truncate(self.config.payload.into());
        bytes
    }

    fn side(&self, flow: &Flow, side: usize) -> DirectionStats {
        let all: Vec<&ModelPacket> = flow.packets.iter().filter(|o| o.side == side).collect();
        let now: Vec<&ModelPacket> = flow.now().iter().filter(|o| o.side == side).collect();
        let (Some(first), Some(last)) = (now.first(), now.last()) else { return DirectionStats::default() };
        let sum = |f: &dyn Fn(&ModelPacket) -> u64| now.iter().map(|o| f(o)).sum::<u64>();
        let before = all.len() - now.len();
        let gaps: Vec<u64> = all.windows(2).skip(before.saturating_sub(1)).map(|w| w[1].at - w[0].at).collect();
        let orders = orders(&all);
        let again: Vec<usize> = (before..all.len()).filter(|i| orders[*i] == Some(true)).collect();
        let range = |f: &dyn Fn(&ModelPacket) -> u8| {
            let values = now.iter().map(|o| f(o));
            (values.clone().min().unwrap_or(0), values.max().unwrap_or(0))
        };
        // If the first packet of the flow was in no tunnel, the record has no tunnel sequence numbers.
        let tunnel = flow.packets[0].owned.decoded.tunnel;
        let numbers = now.iter().filter_map(|o| tunnel.and(o.owned.decoded.tunnel)?.sequence).collect::<Vec<_>>();
        // The MAC address is that of the direction's first frame in the whole flow.
        let mac = all[0].owned.decoded.l2.map(|_| MacAddr(all[0].owned.data[6..12].try_into().expect("six bytes")));
        DirectionStats {
            first: Timestamp::from_nanos(first.at),
            last: Timestamp::from_nanos(last.at),
            packets: now.len() as u64,
            bytes: sum(&|o| o.owned.wire_len.into()),
            ip_bytes: sum(&|o| o.owned.decoded.ip_len.into()),
            payload_bytes: sum(&|o| o.owned.decoded.payload_len.into()),
            payload_packets: sum(&|o| u64::from(o.owned.decoded.payload_len > 0)),
            length: stats(&now.iter().map(|o| o.owned.decoded.ip_len.into()).collect::<Vec<_>>()),
            iat: stats(&gaps),
            iat_count: gaps.len() as u64,
            flags: [0, 1, 2, 3, 4, 5, 6, 7].map(|bit| sum(&|o| u64::from(o.flags() >> bit & 1))),
            zero_window: sum(&|o| u64::from(o.header().is_some_and(|h| h[14] == 0 && h[15] == 0) && !o.has(tcp::RST))),
            retransmitted: again.len() as u64,
            retransmitted_bytes: again.iter().map(|i| u64::from(all[*i].owned.decoded.payload_len)).sum(),
            out_of_order: (before..all.len()).filter(|i| orders[*i] == Some(false)).count() as u64,
            ttl: range(&|o| o.class().0),
            dscp: range(&|o| o.class().1),
            mac,
            tunnel_sequence: numbers.first().copied().zip(numbers.last().copied()),
        }
    }
}

/// The time of an initial packet since the first packet, as the meter stores it: times of 2^38 ns (274 s) and more are
/// rounded down to multiples of 16 ns, and limited to 2^32 - 1 us.
fn coarse(after: u64) -> u64 {
    let after = after.min(u64::from(u32::MAX) * 1000);
    if after < 1 << 38 { after } else { after / 16 * 16 }
}

/// Emits the records of one second in their order.
fn emit_in_order(mut records: Vec<Record>, sink: &mut dyn Sink) {
    records.sort_by_key(Record::last);
    records.iter().for_each(|r| sink.record(r));
}

fn ends(owned: &Owned) -> (IpAddr, IpAddr) {
    let at = usize::from(owned.decoded.l3);
    if owned.data[at] >> 4 == 6 {
        let address = |from: usize| <[u8; 16]>::try_from(&owned.data[from..from + 16]).expect("sixteen bytes").into();
        (address(at + 8), address(at + 24))
    } else {
        let address = |from: usize| <[u8; 4]>::try_from(&owned.data[from..from + 4]).expect("four bytes").into();
        (address(at + 12), address(at + 16))
    }
}

fn key_of(owned: &Owned, config: &Config) -> Option<(FlowKey, bool)> {
    let d = &owned.decoded;
    if d.family == wire::Family::Other {
        return None;
    }
    let (src, dst) = ends(owned);
    let is_icmp = [IpProtocol::ICMP, IpProtocol::ICMPV6].contains(&d.protocol);
    let (sp, dp) = if is_icmp { (0, 0) } else { (d.src_port.0, d.dst_port.0) };
    let turned = config.bidirectional && (src, sp) > (dst, dp);
    let (a, b) = if turned { ((dst, dp), (src, sp)) } else { ((src, sp), (dst, dp)) };
    let vlans = if config.key_fields.vlans { d.vlans } else { [None; 2] };
    let id = |t: wire::Tunnel| if t.kind == TunnelKind::GtpU && !config.key_fields.teid { 0 } else { t.id };
    let tunnel = d.tunnel.filter(|_| config.key_fields.tunnel).map(|t| (t.kind, id(t)));
    Some(((a.0, a.1, b.0, b.1, d.protocol.0, vlans, tunnel), turned))
}

fn timeout(config: &Config, flow: &Flow) -> u64 {
    let protocol = flow.packets[0].owned.decoded.protocol;
    let idle =
        config.protocol_idle_timeouts.iter().rfind(|(p, _)| *p == protocol).map_or(config.idle_timeout, |(_, t)| *t);
    let idle: Duration = if flow.over { config.close_timeout } else { idle };
    u64::try_from(idle.as_nanos()).expect("the timeout fits in 64 bits")
}

fn stats(values: &[u64]) -> Stats {
    Stats {
        min: values.iter().copied().min().unwrap_or(0),
        max: values.iter().copied().max().unwrap_or(0),
        sum: values.iter().sum(),
        squares: values.iter().map(|v| u128::from(*v) * u128::from(*v)).sum(),
    }
}

/// For each packet of one direction: `Some(true)` if it is retransmitted, `Some(false)` if it is out of order. The
/// model stores the last two ranges of missing sequence numbers. Its sequence numbers have 64 bits, so that they do not
/// wrap.
fn orders(packets: &[&ModelPacket]) -> Vec<Option<bool>> {
    let mut high: Option<i64> = None;
    let mut missing: Vec<(i64, i64)> = Vec::new();
    let mut order = |one: &ModelPacket| {
        let header = one.header().filter(|_| !one.has(tcp::RST))?;
        let seq = u32::from_be_bytes(header[4..8].try_into().expect("four bytes"));
        let space = i64::from(one.owned.decoded.payload_len) + i64::from((one.flags() & 3).count_ones());
        let Some(known) = high else {
            high = Some(i64::from(seq) + space);
            return None;
        };
        let from = known + i64::from(seq.wrapping_sub(known as u32) as i32);
        if space == 0 {
            return None;
        }
        let is_elsewhere = (from + space - known).abs() > 1 << 30 || space > 1 << 30;
        if is_elsewhere || one.has(tcp::SYN) && (known as u32).wrapping_sub(seq) > 65536 {
            high = Some(from + space);
            missing.clear();
            return None;
        }
        if from + space > known {
            if from > known {
                missing.insert(0, (known, from));
                missing.truncate(2);
            }
            high = Some(from + space);
            missing.retain(|m| from + space - m.0 <= 1 << 30);
            return None;
        }
        let to = from + space;
        let is_again = missing.iter().all(|m| m.1 <= from || to <= m.0);
        let rest = |(a, b): (i64, i64)| [(a, b.min(from)), (a.max(to), b)].into_iter().filter(|m| m.0 < m.1);
        missing =
            missing.iter().flat_map(|m| if m.1 <= from || to <= m.0 { vec![*m] } else { rest(*m).collect() }).collect();
        missing.truncate(2);
        Some(is_again)
    };
    packets.iter().map(|one| order(one)).collect()
}

impl TcpState {
    fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Reset)
    }
}

/// The TCP state from the packets up to the end of the connection.
fn state(packets: &[ModelPacket], bidirectional: bool) -> TcpState {
    let tcp_packets: Vec<&ModelPacket> = packets.iter().filter(|o| o.header().is_some()).collect();
    let Some(first) = tcp_packets.first() else { return TcpState::None };
    let mut fins = [false, !bidirectional];
    for one in &tcp_packets {
        if one.has(tcp::RST) {
            return TcpState::Reset;
        }
        if one.has(tcp::FIN) {
            fins[one.side] = true;
        }
        if fins == [true; 2] {
            return TcpState::Closed;
        }
    }
    if fins[0] || bidirectional && fins[1] {
        return TcpState::HalfClosed;
    }
    let both = tcp::SYN | tcp::ACK;
    if first.side == 1 || first.flags() & both != tcp::SYN {
        return TcpState::Midstream;
    }
    if tcp_packets.iter().any(|o| o.side == 0 && o.flags() & both == tcp::ACK) {
        TcpState::Established
    } else if tcp_packets.iter().any(|o| o.side == 1 && o.flags() & both == both) {
        TcpState::SynReceived
    } else {
        TcpState::SynSent
    }
}

/// The times from the last SYN to the SYN+ACK, and from the last SYN+ACK to the ACK.
fn handshake_times(packets: &[ModelPacket], bidirectional: bool) -> (Option<u64>, Option<u64>) {
    let (mut syn, mut answer, mut handshake_times) = (0, 0, (None, None));
    for n in 1..=packets.len() {
        let one = &packets[n - 1];
        let before = state(&packets[..n - 1], bidirectional);
        let after = state(&packets[..n], bidirectional);
        match (before, after) {
            (TcpState::SynSent, TcpState::SynReceived) => {
                handshake_times.0 = Some(one.at - syn);
                answer = one.at;
            }
            (TcpState::SynReceived, TcpState::Established) => handshake_times.1 = Some(one.at - answer),
            (_, TcpState::SynSent) if one.side == 0 && one.has(tcp::SYN) => syn = one.at,
            (TcpState::SynReceived, TcpState::SynReceived) if one.side == 1 && one.has(tcp::SYN) => answer = one.at,
            _ => (),
        }
    }
    handshake_times
}

/// Seconds as a duration, for configurations.
pub fn secs(n: u64) -> Duration {
    Duration::from_nanos(n * SECOND)
}
