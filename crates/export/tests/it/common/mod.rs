//! Random flow records and series rows that the encoders can export completely, for the tests of this crate.
#![allow(dead_code, reason = "each test program uses a part")]

use base::{Prng, Timestamp};
use flow::{DirectionStats, Encapsulation, EndReason, InitialPacket, Key, PacketLocation, Record, Stats, TcpState};
use series::{Direction, Row, Volume};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{IpProtocol, MacAddr, TunnelKind};

/// 2026-11-22T00:00:00Z.
pub const DAY: u64 = 1_795_305_600;

/// A random number. Each number of significant bits, from 0 to 64, is equally likely.
pub fn any(prng: &mut Prng) -> u64 {
    let bits = prng.below(65) as u32;
    prng.next_u64().checked_shr(64 - bits).unwrap_or(0)
}

/// Timestamps between 1970 and 2106, mostly of one day.
pub fn moment(prng: &mut Prng) -> Timestamp {
    let second = if prng.below(8) == 0 { prng.below(1 << 32) } else { DAY + prng.below(86_400) };
    Timestamp::from_secs_nanos(second, prng.below(1_000_000_000))
}

fn some<T>(prng: &mut Prng, value: impl FnOnce(&mut Prng) -> T) -> Option<T> {
    (prng.below(2) == 0).then(|| value(prng))
}

fn address(prng: &mut Prng, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from(u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64())))
    } else {
        IpAddr::V4(Ipv4Addr::from(prng.next_u64() as u32))
    }
}

fn direction(prng: &mut Prng) -> DirectionStats {
    let sum = any(prng);
    let (first, last) = (moment(prng), moment(prng));
    DirectionStats {
        first,
        last,
        packets: any(prng).max(1),
        bytes: any(prng),
        ip_bytes: sum,
        payload_bytes: any(prng),
        payload_packets: any(prng),
        length: Stats { min: prng.below(1500), max: prng.below(1 << 32), sum, squares: any(prng).into() },
        iat: Stats {
            min: any(prng),
            max: any(prng),
            sum: any(prng),
            squares: u128::from(any(prng)) * u128::from(any(prng)),
        },
        iat_count: any(prng),
        flags: std::array::from_fn(|_| any(prng)),
        zero_window: any(prng),
        retransmitted: any(prng),
        retransmitted_bytes: any(prng),
        out_of_order: any(prng),
        ttl: (prng.next_u64() as u8, prng.next_u64() as u8),
        dscp: (prng.below(64) as u8, prng.below(64) as u8),
        mac: some(prng, |p| MacAddr([2, 0, 0, 0, p.next_u64() as u8, p.next_u64() as u8])),
        tunnel_sequence: some(prng, |p| (p.next_u64() as u32, p.below(3) as u32)),
    }
}

/// A record with random values, of the forward direction, the reverse direction, or both.
pub fn record(prng: &mut Prng) -> Record {
    let v6 = prng.below(2) == 0;
    let protocol = [if v6 { 58 } else { 1 }, 6, 17, 132, 47][prng.below(5) as usize];
    let icmp = matches!(protocol, 1 | 58);
    let key = Key {
        src: address(prng, v6),
        dst: address(prng, v6),
        src_port: if icmp { 0 } else { prng.next_u64() as u16 },
        dst_port: prng.next_u64() as u16,
        protocol: IpProtocol(protocol),
    };
    let (forward, reverse) = (direction(prng), direction(prng));
    let directions = match prng.below(4) {
        0 => [forward, DirectionStats::default()],
        1 => [DirectionStats::default(), reverse],
        _ => [forward, reverse],
    };
    use TunnelKind::*;
    let tunnels = [Gre, Nvgre, Erspan1, Erspan2, Erspan3, Vxlan, Geneve, GtpU, IpInIp, Teredo];
    let encapsulation = Encapsulation {
        vlans: [some(prng, |p| 1 + p.below(4094) as u16), some(prng, |p| 1 + p.below(4094) as u16)],
        mpls: some(prng, |p| if p.below(4) == 0 { 0 } else { p.below(1 << 20) as u32 }),
        tunnel: some(prng, |p| (tunnels[p.below(10) as usize], p.next_u64() as u32)),
    };
    let ends = [
        EndReason::IdleTimeout,
        EndReason::ActiveTimeout,
        EndReason::EndOfFlow,
        EndReason::ForcedEnd,
        EndReason::LackOfResources,
    ];
    use TcpState::{Closed, Established, HalfClosed, Midstream, Reset, SynReceived, SynSent};
    let states = [TcpState::None, Midstream, SynSent, SynReceived, Established, HalfClosed, Closed, Reset];
    let mut initial_packets: Vec<InitialPacket> = (0..prng.below(12))
        .map(|_| InitialPacket {
            offset_ns: prng.below(600_000_000_000),
            length: prng.next_u64() as u16,
            flags: prng.next_u64() as u8,
            reverse: prng.below(2) == 0,
        })
        .collect();
    initial_packets.sort_by_key(|e| e.offset_ns);
    let mut payload = [Vec::new(), Vec::new()];
    for (bytes, direction) in payload.iter_mut().zip(&directions) {
        if direction.packets > 0 && prng.below(3) == 0 {
            bytes.resize(prng.below(300) as usize, 0);
            prng.fill(bytes);
        }
    }
    Record {
        id: prng.next_u64(),
        key,
        encapsulation,
        interface: prng.below(4) as u16,
        flow_start: Timestamp::from_secs_nanos(DAY + prng.below(86_400), prng.below(1_000_000_000)),
        record_index: prng.below(100) as u32,
        directions,
        end_reason: ends[prng.below(5) as usize],
        tcp_state: states[prng.below(8) as usize],
        syn_rtt: some(prng, |p| any(p).max(1)),
        ack_rtt: some(prng, |p| any(p).max(1)),
        initial_packets,
        payload,
        location: some(prng, |p| PacketLocation { queue: p.below(64) as u16, first: any(p), last: any(p) }),
        lost: any(prng),
    }
}

/// A series row with random values.
pub fn row(prng: &mut Prng) -> Row {
    let volume = |p: &mut Prng| Volume { packets: any(p), bytes: any(p) };
    let mut row = Row {
        second: DAY + prng.below(86_400),
        interface: prng.below(4) as u16,
        direction: [Direction::In, Direction::Out][prng.below(2) as usize],
        total: volume(prng),
        classes: std::array::from_fn(|_| volume(prng)),
        sizes: std::array::from_fn(|_| any(prng)),
        ipv6: volume(prng),
        duplicate: volume(prng),
        ..Row::default()
    };
    let numbers = [
        &mut row.syn,
        &mut row.syn_ack,
        &mut row.fin,
        &mut row.rst,
        &mut row.flows_active,
        &mut row.flows_new,
        &mut row.flows_ended,
        &mut row.tunnel_numbered,
        &mut row.tunnel_missing,
        &mut row.tunnel_late,
        &mut row.sources,
        &mut row.destinations,
        &mut row.peak_1ms.bytes,
        &mut row.peak_1ms.packets,
        &mut row.peak_10ms.bytes,
        &mut row.peak_10ms.packets,
        &mut row.ledger.stored_bytes,
    ];
    for number in numbers {
        *number = any(prng);
    }
    // The counters of the ledger are limited, so that their sum, the number of offered packets, does not overflow.
    let ledger = &mut row.ledger;
    ledger.stored = prng.below(1 << 40);
    ledger.filtered = prng.below(1 << 40);
    ledger.duplicate = prng.below(1 << 40);
    ledger.lost = std::array::from_fn(|_| prng.below(1 << 40));
    ledger.notes = std::array::from_fn(|_| prng.below(1 << 40));
    ledger.offered = ledger.stored + ledger.filtered + ledger.duplicate + ledger.lost_total();
    row
}

/// Returns a flow record like those of ordinary traffic: its times are in order, and collectors accept its counts.
pub fn plausible(prng: &mut Prng) -> Record {
    let mut record = record(prng);
    let flow_start = Timestamp::from_secs_nanos(DAY + prng.below(3000), prng.below(1_000_000_000));
    record.flow_start = flow_start;
    record.record_index = 0;
    for direction in record.directions.iter_mut().filter(|s| s.packets > 0) {
        direction.packets = 1 + prng.below(1000);
        direction.ip_bytes = direction.packets * (40 + prng.below(1400));
        direction.bytes = direction.ip_bytes + 14 * direction.packets;
        direction.length.sum = direction.ip_bytes;
        direction.first = flow_start.after(std::time::Duration::from_micros(prng.below(1000)));
        direction.last = direction.first.after(std::time::Duration::from_micros(prng.below(30_000_000)));
        direction.flags = if record.key.protocol == IpProtocol::TCP {
            std::array::from_fn(|_| prng.below(2) * prng.below(direction.packets + 1))
        } else {
            [0; 8]
        };
    }
    record
}
