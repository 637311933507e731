//! Flow records, series rows and roll-ups with random values.

use base::{Prng, Timestamp};
use flow::{DirectionStats, Encapsulation, EndReason, InitialPacket, Key, PacketLocation, Record, Stats, TcpState};
use series::{Direction, Rollup, RollupBuilder, Row, Step, quantities};
use std::net::IpAddr;
use wire::{IpProtocol, MacAddr, TunnelKind};

const ENDS: [EndReason; 5] = [
    EndReason::IdleTimeout,
    EndReason::ActiveTimeout,
    EndReason::EndOfFlow,
    EndReason::ForcedEnd,
    EndReason::LackOfResources,
];
const STATES: [TcpState; 8] = [
    TcpState::None,
    TcpState::Midstream,
    TcpState::SynSent,
    TcpState::SynReceived,
    TcpState::Established,
    TcpState::HalfClosed,
    TcpState::Closed,
    TcpState::Reset,
];
pub fn record(prng: &mut Prng) -> Record {
    let (v6, protocol) = (prng.below(2) == 0, IpProtocol(prng.next_u64() as u8));
    let key = Key {
        src: address(prng, v6),
        dst: address(prng, v6),
        src_port: prng.next_u64() as u16,
        dst_port: prng.next_u64() as u16,
        protocol,
    };
    let encapsulation = Encapsulation {
        vlans: [maybe(prng), maybe(prng)].map(|id| id.map(|id| id as u16)),
        mpls: maybe(prng).map(|label| label as u32),
        tunnel: maybe(prng).map(|id| (TunnelKind::ALL[id as usize % TunnelKind::ALL.len()], id as u32)),
    };
    let location = maybe(prng).map(|at| PacketLocation { queue: at as u16, first: at, last: at.saturating_add(9) });
    Record {
        id: prng.next_u64(),
        key,
        encapsulation,
        interface: prng.below(3) as u16,
        flow_start: Timestamp::from_nanos(number(prng)),
        record_index: prng.next_u64() as u32,
        directions: [direction_stats(prng), direction_stats(prng)],
        end_reason: ENDS[prng.below(5) as usize],
        tcp_state: STATES[prng.below(8) as usize],
        syn_rtt: maybe(prng),
        ack_rtt: maybe(prng),
        initial_packets: (0..prng.below(11)).map(|_| initial_packet(prng)).collect(),
        payload: [bytes(prng), bytes(prng)],
        location,
        lost: number(prng),
    }
}

pub fn row(prng: &mut Prng) -> Row {
    let direction = Direction::ALL[prng.below(2) as usize];
    let mut row = Row { second: number(prng) >> 30, interface: prng.below(3) as u16, direction, ..Row::default() };
    quantities().iter().for_each(|quantity| *quantity.of_mut(&mut row) = number(prng));
    row
}

pub fn rollup(prng: &mut Prng) -> Rollup {
    let mut builder = RollupBuilder::new(Step::ALL[prng.below(3) as usize]);
    let first = row(prng);
    let start = first.second - first.second % 3600;
    for second in start..start + 1 + prng.below(59) {
        let mut more = Row { second, interface: first.interface, direction: first.direction, ..row(prng) };
        // Small enough for exact sums.
        quantities().iter().for_each(|quantity| *quantity.of_mut(&mut more) >>= 8);
        assert_eq!(builder.push(&more), None);
    }
    builder.finish()[0]
}

/// A random number. Each number of significant bits is about equally likely.
fn number(prng: &mut Prng) -> u64 {
    let bits = prng.below(64);
    prng.next_u64() >> bits
}

fn maybe(prng: &mut Prng) -> Option<u64> {
    (prng.below(2) == 0).then(|| number(prng))
}

fn address(prng: &mut Prng, v6: bool) -> IpAddr {
    let mut bytes = [0; 16];
    prng.fill(&mut bytes);
    match (v6, bytes.first_chunk::<4>()) {
        (false, Some(four)) => IpAddr::from(*four),
        _ => IpAddr::from(bytes),
    }
}

fn bytes(prng: &mut Prng) -> Vec<u8> {
    let mut bytes = vec![0; prng.below(3) as usize * 7];
    prng.fill(&mut bytes);
    bytes
}

fn initial_packet(prng: &mut Prng) -> InitialPacket {
    let (after, flags) = (number(prng), prng.next_u64() as u8);
    InitialPacket { offset_ns: after, length: prng.next_u64() as u16, flags, reverse: prng.below(2) == 0 }
}

fn direction_stats(prng: &mut Prng) -> DirectionStats {
    let packets = maybe(prng).map_or(0, |n| n % (1 << 40));
    if packets == 0 {
        return DirectionStats::default();
    }
    let moments = |prng: &mut Prng| {
        let (min, more) = (number(prng) >> 20, number(prng) >> 20);
        let sum = min.saturating_mul(2) + more;
        Stats { min, max: min + more, sum, squares: u128::from(sum) * u128::from(min + more) }
    };
    let mut flags = [0; 8];
    flags.iter_mut().for_each(|n| *n = number(prng));
    DirectionStats {
        first: Timestamp::from_nanos(number(prng)),
        last: Timestamp::from_nanos(number(prng)),
        packets,
        bytes: number(prng) >> 1,
        ip_bytes: number(prng),
        payload_bytes: number(prng),
        payload_packets: number(prng),
        length: moments(prng),
        iat: moments(prng),
        iat_count: prng.below(packets),
        flags,
        zero_window: number(prng),
        retransmitted: number(prng),
        retransmitted_bytes: number(prng),
        out_of_order: number(prng),
        ttl: (prng.next_u64() as u8, prng.next_u64() as u8),
        dscp: (prng.below(64) as u8, prng.below(64) as u8),
        mac: maybe(prng).map(|_| {
            let mut mac = [0; 6];
            prng.fill(&mut mac);
            MacAddr(mac)
        }),
        tunnel_sequence: maybe(prng).map(|n| (n as u32, prng.next_u64() as u32)),
    }
}
