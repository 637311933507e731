//! Flow records for tests and measurements: arbitrary records, and records as a network produces them. The random
//! numbers arrive as an argument, so the same seed makes the same records everywhere.

use crate::{DirectionStats, Encapsulation, EndReason, InitialPacket, Key, PacketLocation, Record, Stats, TcpState};
use base::{Prng, Timestamp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{IpProtocol, MacAddr, TunnelKind};

/// 2026-11-21T10:40:00Z.
pub const START: u64 = 1_795_257_600;

/// A random number with a random length from 0 to 64 bits.
pub fn any(prng: &mut Prng) -> u64 {
    let bits = prng.below(65);
    if bits == 0 { 0 } else { prng.next_u64() >> (64 - bits) }
}

fn any_stats(prng: &mut Prng) -> Stats {
    let squares = u128::from(any(prng)) * u128::from(any(prng));
    Stats { min: any(prng), max: any(prng), sum: any(prng), squares }
}

fn maybe<T>(prng: &mut Prng, value: impl FnOnce(&mut Prng) -> T) -> Option<T> {
    (prng.below(3) == 0).then(|| value(prng))
}

fn any_address(prng: &mut Prng) -> IpAddr {
    match prng.below(5) {
        0..3 => Ipv4Addr::from(any(prng) as u32).into(),
        3 => Ipv4Addr::from(any(prng) as u32).to_ipv6_mapped().into(),
        _ => Ipv6Addr::from(u128::from(any(prng)) << 64 | u128::from(any(prng))).into(),
    }
}

fn any_side(prng: &mut Prng) -> DirectionStats {
    let ip_bytes = any(prng);
    DirectionStats {
        first: Timestamp::from_nanos(START * 1_000_000_000 + any(prng) % 1_000_000_000_000),
        last: Timestamp::from_nanos(START * 1_000_000_000 + any(prng) % 1_500_000_000_000),
        packets: any(prng).max(1),
        bytes: any(prng),
        ip_bytes,
        payload_bytes: any(prng),
        payload_packets: any(prng),
        length: Stats { sum: ip_bytes, ..any_stats(prng) },
        iat: any_stats(prng),
        iat_count: any(prng),
        flags: std::array::from_fn(|_| any(prng)),
        zero_window: any(prng),
        retransmitted: any(prng),
        retransmitted_bytes: any(prng),
        out_of_order: any(prng),
        ttl: (any(prng) as u8, any(prng) as u8),
        dscp: (any(prng) as u8, any(prng) as u8),
        mac: maybe(prng, |p| {
            MacAddr({
                let [a, b, c, d, e, f, ..] = p.next_u64().to_le_bytes();
                [a, b, c, d, e, f]
            })
        }),
        tunnel_sequence: maybe(prng, |p| (any(p) as u32, any(p) as u32)),
    }
}

/// A record with a random value in every field. Few of these records could come from a meter.
pub fn any_record(prng: &mut Prng) -> Record {
    let ends = [
        EndReason::IdleTimeout,
        EndReason::ActiveTimeout,
        EndReason::EndOfFlow,
        EndReason::ForcedEnd,
        EndReason::LackOfResources,
    ];
    let states = [
        TcpState::None,
        TcpState::Midstream,
        TcpState::SynSent,
        TcpState::SynReceived,
        TcpState::Established,
        TcpState::HalfClosed,
        TcpState::Closed,
        TcpState::Reset,
    ];
    let tunnels = [TunnelKind::Gre, TunnelKind::Vxlan, TunnelKind::GtpU, TunnelKind::Teredo];
    let mut sides = [any_side(prng), any_side(prng)];
    // Some records have only one direction, but every record has packets.
    if prng.below(3) == 0 {
        sides[prng.below(2) as usize] = DirectionStats::default();
    }
    Record {
        id: prng.next_u64(),
        key: Key {
            src: any_address(prng),
            dst: any_address(prng),
            src_port: any(prng) as u16,
            dst_port: any(prng) as u16,
            protocol: IpProtocol(any(prng) as u8),
        },
        encapsulation: Encapsulation {
            vlans: [maybe(prng, |p| any(p) as u16 & 0xfff), maybe(prng, |p| any(p) as u16 & 0xfff)],
            mpls: maybe(prng, |p| any(p) as u32),
            tunnel: maybe(prng, |p| (tunnels[p.below(4) as usize], any(p) as u32)),
        },
        interface: any(prng) as u16,
        flow_start: if prng.below(2) == 0 {
            sides[0].first
        } else {
            Timestamp::from_nanos(START * 1_000_000_000 + any(prng) % 1_000_000_000)
        },
        record_index: if prng.below(2) == 0 { 0 } else { any(prng) as u32 },
        directions: sides,
        end_reason: ends[prng.below(5) as usize],
        tcp_state: states[prng.below(8) as usize],
        syn_rtt: maybe(prng, any),
        ack_rtt: maybe(prng, any),
        initial_packets: (0..prng.below(12))
            .map(|_| InitialPacket {
                offset_ns: any(prng),
                length: any(prng) as u16,
                flags: any(prng) as u8,
                reverse: prng.below(2) == 0,
            })
            .collect(),
        payload: std::array::from_fn(|_| {
            let mut bytes = vec![0; (prng.below(3) * prng.below(40)) as usize];
            prng.fill(&mut bytes);
            bytes
        }),
        location: maybe(prng, |p| PacketLocation { queue: any(p) as u16, first: any(p), last: any(p) }),
        lost: any(prng),
    }
}

/// A random number with a heavy-tailed (Pareto) distribution, at least `least`.
fn heavy(prng: &mut Prng, least: f64, shape: f64) -> f64 {
    least * (1.0 - prng.unit()).powf(-1.0 / shape)
}

/// The flows of a site with some thousands of hosts: DNS and ping with one or two packets, web, bulk transfers, scans.
/// Each record is computed from simulated packets, so its values are consistent.
pub struct TrafficModel {
    prng: Prng,
    now: f64,
    flows_per_second: f64,
    position: u64,
}

impl TrafficModel {
    /// Creates a model of the traffic of a site. The first flow starts at or after [`START`].
    pub fn new(seed: u64, flows_per_second: f64) -> Self {
        Self { prng: Prng::new(seed), now: START as f64 * 1e9, flows_per_second, position: 24 }
    }

    /// The next flow, in the order of start times.
    pub fn record(&mut self) -> Record {
        let p = &mut self.prng;
        self.now += -(1.0 - p.unit()).ln() * 1e9 / self.flows_per_second;
        let began = self.now as u64;
        // Zipf distribution of hosts: the n-th host is requested 1/n as often as the first.
        let rank = |p: &mut Prng, of: f64| (of.powf(p.unit()) - 1.0) as u32;
        let client = 0x0a01_0000 + rank(p, 4000.0);
        let (what, six) = (p.below(100), p.below(8) == 0);
        let server = match what {
            0..40 => 0x0a00_0035 + p.below(2) as u32,
            40..85 => (0x5000_0000u32).wrapping_add(rank(p, 20_000.0).wrapping_mul(0x9e37_79b1)),
            _ => p.next_u64() as u32,
        };
        let address = |n: u32| -> IpAddr {
            if six {
                Ipv6Addr::from(0x2001_0db8_0000_0000_0000_0000_0000_0000 | u128::from(n)).into()
            } else {
                Ipv4Addr::from(n).into()
            }
        };
        let (protocol, port, packets) = match what {
            0..40 => (IpProtocol::UDP, 53, 2),
            40..65 => (IpProtocol::TCP, if what < 60 { 443 } else { 80 }, 6 + heavy(p, 4.0, 1.1).min(2000.0) as u64),
            65..75 => (IpProtocol::UDP, 443, 2 + heavy(p, 3.0, 1.1).min(2000.0) as u64),
            75..85 => (IpProtocol::UDP, 123, 2),
            _ => (IpProtocol::TCP, 1 + p.below(10_000) as u16, 1),
        };
        let is_tcp = protocol == IpProtocol::TCP;
        let rtt = heavy(p, 2e5, 0.7).min(4e8);
        let head = if six { 40 } else { 20 } + if is_tcp { 32 } else { 8 };
        let mut sides = [DirectionStats::default(); 2];
        let (mut after, mut early, mut rtts) = (0.0f64, Vec::new(), [None; 2]);
        for n in 0..packets {
            let reverse = n % 2 == 1 || (n > 8 && p.below(5) < 2);
            if n > 0 {
                let pause =
                    if n < 3 || p.below(3) > 0 { rtt * (0.5 + 0.1 * p.unit()) } else { heavy(p, 1e4, 0.5).min(5e9) };
                after += pause;
            }
            let at = began + after as u64;
            let payload = match (is_tcp, n) {
                (true, 0..3) => 0,
                (false, _) if port == 53 => 30 + p.below(if reverse { 200 } else { 30 }),
                _ if reverse => {
                    if p.below(3) == 0 {
                        p.below(1400)
                    } else {
                        1400
                    }
                }
                _ => {
                    if p.below(2) == 0 {
                        0
                    } else {
                        p.below(600)
                    }
                }
            };
            let flags = match (is_tcp, n) {
                (false, _) => 0u8,
                (true, 0) => 0x02,
                (true, 1) => 0x12,
                (true, _) if n + 2 >= packets => 0x11,
                (true, _) if payload > 0 => 0x18,
                (true, _) => 0x10,
            };
            match n {
                1 => rtts[0] = is_tcp.then_some(after as u64),
                2 => rtts[1] = is_tcp.then(|| (after as u64).saturating_sub(rtts[0].unwrap_or(0))),
                _ => {}
            }
            let length = head + payload;
            let side = &mut sides[usize::from(reverse)];
            if side.packets > 0 {
                add(&mut side.iat, at - side.last.nanos(), side.iat_count == 0);
                side.iat_count += 1;
            } else {
                side.first = Timestamp::from_nanos(at);
                side.mac = Some(MacAddr([2, 0, 0, 0, u8::from(reverse), (client % 7) as u8]));
                let ttl = if reverse { 48 + (server % 12) as u8 } else { 64 };
                side.ttl = (ttl, ttl);
            }
            add(&mut side.length, length, side.packets == 0);
            side.last = Timestamp::from_nanos(at);
            side.packets += 1;
            side.ip_bytes += length;
            side.bytes += (length + 14).max(60);
            side.payload_bytes += payload;
            side.payload_packets += u64::from(payload > 0);
            (0..8).for_each(|bit| side.flags[bit] += u64::from(flags >> bit & 1));
            if n > 10 && p.below(200) == 0 {
                side.retransmitted += 1;
                side.retransmitted_bytes += payload;
            }
            if early.len() < 10 {
                early.push(InitialPacket { offset_ns: after as u64, length: length as u16, flags, reverse });
            }
        }
        self.position += 16 + 60 + p.below(9000);
        let (first, end) =
            (self.position, if is_tcp && packets > 1 { EndReason::EndOfFlow } else { EndReason::IdleTimeout });
        let last = first + if packets > 1 { p.below(1 + after as u64 / 100) } else { 0 };
        Record {
            id: p.next_u64(),
            key: Key {
                src: address(client),
                dst: address(server),
                src_port: 32_768 + p.below(28_000) as u16,
                dst_port: port,
                protocol,
            },
            encapsulation: Encapsulation::default(),
            interface: 0,
            flow_start: Timestamp::from_nanos(began),
            record_index: 0,
            directions: sides,
            end_reason: end,
            tcp_state: match (is_tcp, packets) {
                (false, _) => TcpState::None,
                (true, 1) => TcpState::SynSent,
                _ => TcpState::Closed,
            },
            syn_rtt: rtts[0],
            ack_rtt: rtts[1],
            initial_packets: early,
            payload: [Vec::new(), Vec::new()],
            location: Some(PacketLocation { queue: 0, first, last }),
            lost: 0,
        }
    }
}

fn add(m: &mut Stats, value: u64, is_first: bool) {
    m.min = if is_first { value } else { m.min.min(value) };
    m.max = m.max.max(value);
    m.sum += value;
    m.squares += u128::from(value) * u128::from(value);
}
