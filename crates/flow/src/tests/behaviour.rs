//! Short tests, each of which shows one rule of the definition of a flow.

use super::model::secs;
use super::traffic::{Owned, Plan};
use super::{all, at};
use crate::record::{EndReason, Record, Sink, TcpState};
use crate::{Config, KeyFields, Meter};
use base::Timestamp;
use wire::tcp_flags::{ACK, FIN, RST, SYN};
use wire::{Tunnel, TunnelKind};

const OUT: (u16, u16) = (1000, 80);
const BACK: (u16, u16) = (80, 1000);

fn client(flags: u8, seq: u32, when: f64) -> Owned {
    Plan::tcp(1, 2, OUT, flags, seq).frame(at(when))
}

fn server(flags: u8, seq: u32, when: f64) -> Owned {
    Plan::tcp(2, 1, BACK, flags, seq).frame(at(when))
}

fn conversation() -> Vec<Owned> {
    vec![
        client(SYN, 100, 0.0),
        server(SYN | ACK, 500, 0.25),
        client(ACK, 101, 0.375),
        client(FIN | ACK, 101, 1.0),
        server(FIN | ACK, 501, 1.5),
        client(ACK, 102, 1.75),
    ]
}

#[test]
fn a_retransmitted_fin_starts_no_flow() {
    let mut packets = conversation();
    packets.extend([server(FIN | ACK, 501, 3.0), server(FIN | ACK, 501, 6.0), client(ACK, 102, 6.1)]);
    let records = all(Config::default(), &packets);
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].end_reason, records[0].tcp_state), (EndReason::EndOfFlow, TcpState::Closed));
    assert_eq!((records[0].directions[1].retransmitted, records[0].directions[1].flags[0]), (2, 3));
    assert_eq!((records[0].syn_rtt, records[0].ack_rtt), (Some(250_000_000), Some(125_000_000)));
}

#[test]
fn a_closed_flow_has_no_interim_record_during_the_close_timeout() {
    for active in 2..8 {
        let records = all(Config { active_timeout: Some(secs(active)), ..Config::default() }, &conversation());
        let ends: Vec<_> = records.iter().map(|r| (r.end_reason, r.tcp_state, r.packets())).collect();
        assert_eq!(ends, [(EndReason::EndOfFlow, TcpState::Closed, 6)], "active timeout of {active} s");
    }
}

#[test]
fn a_closed_flow_with_further_packets_has_interim_records() {
    let mut packets = conversation();
    packets.extend((2..60).map(|second| server(RST | ACK, 502, second as f64)));
    let records = all(Config { active_timeout: Some(secs(10)), ..Config::default() }, &packets);
    let ends: Vec<_> = records.iter().map(|r| r.end_reason).collect();
    // For a closed connection whose packets continue, an interim record is due after the active timeout plus the close
    // timeout.
    assert_eq!(
        ends,
        [EndReason::ActiveTimeout, EndReason::ActiveTimeout, EndReason::ActiveTimeout, EndReason::EndOfFlow]
    );
    assert_eq!(records.iter().map(Record::packets).sum::<u64>(), 64);
}

#[test]
fn a_reused_port_starts_another_flow() {
    let mut packets = conversation();
    packets.extend([client(SYN, 9000, 2.0), server(RST | ACK, 0, 2.1)]);
    let records = all(Config::default(), &packets);
    assert_eq!(records.iter().map(Record::packets).collect::<Vec<_>>(), [6, 2]);
    assert_eq!((records[1].tcp_state, records[1].directions[0].packets), (TcpState::Reset, 1));
    assert_ne!(records[0].id, records[1].id);
}

#[test]
fn a_uniflow_ends_with_its_own_fin() {
    let config = Config { bidirectional: false, ..Config::default() };
    let records = all(config, &conversation());
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(
            (record.tcp_state, record.end_reason, record.directions[1].packets),
            (TcpState::Closed, EndReason::EndOfFlow, 0)
        );
    }
}

#[test]
fn the_idle_timeout_is_exact_to_a_nanosecond() {
    let gap = |nanos: u64| {
        let first = Plan::udp(1, 2, OUT).frame(at(0.3));
        let second = Plan::udp(1, 2, OUT).frame(Timestamp::from_nanos(first.ts.nanos() + nanos));
        all(Config::default(), &[first, second]).len()
    };
    assert_eq!((gap(29_999_999_999), gap(30_000_000_000)), (1, 2));
}

#[test]
fn echo_request_and_reply_are_one_flow_with_type_and_code() {
    let mut plan = Plan::udp(1, 2, (8, 0));
    plan.protocol = wire::IpProtocol::ICMP;
    let mut back = Plan { src: 2, dst: 1, ports: (0, 0), ..plan };
    back.ttl = 9;
    let records = all(Config::default(), &[plan.frame(at(0.0)), back.frame(at(0.1))]);
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].key.src_port, records[0].key.dst_port), (0, 8 * 256));
    assert_eq!((records[0].directions[0].ttl, records[0].directions[1].ttl), ((64, 64), (9, 9)));
}

#[test]
fn both_teids_are_one_flow_unless_the_teid_is_a_key_field() {
    let in_gtp = |src, dst, ports, id| {
        let mut owned = Plan::udp(src, dst, ports).frame(at(0.0));
        owned.decoded.tunnel = Some(Tunnel { kind: TunnelKind::GtpU, id, sequence: None, outer_l3: 14 });
        owned.decoded.is_common_case = false;
        owned
    };
    let packets = [in_gtp(1, 2, OUT, 77), in_gtp(2, 1, BACK, 88)];
    let records = all(Config::default(), &packets);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].encapsulation.tunnel, Some((TunnelKind::GtpU, 77)));
    let levels = KeyFields { teid: true, ..KeyFields::default() };
    assert_eq!(all(Config { key_fields: levels, ..Config::default() }, &packets).len(), 2);
    let mut outside = packets.to_vec();
    outside[1].decoded.tunnel = None;
    assert_eq!(all(Config::default(), &outside).len(), 2);
}

#[test]
fn a_segment_inside_a_hole_leaves_two_holes() {
    let part = |seq, when| Plan::tcp(1, 2, OUT, ACK, seq).carrying(100).frame(at(when));
    let packets =
        [part(1000, 0.0), part(1500, 0.1), part(1200, 0.2), part(1100, 0.3), part(1300, 0.4), part(1200, 0.5)];
    let record = &all(Config::default(), &packets)[0];
    assert_eq!((record.directions[0].out_of_order, record.directions[0].retransmitted), (3, 1));
}

#[test]
fn a_record_has_the_losses_of_its_interface() {
    let mut out: Vec<Record> = Vec::new();
    let mut meter = Meter::new(Config::default(), 0);
    let second = at(0.0).secs();
    let packets = [Plan::udp(1, 2, OUT).frame(at(1.5)), Plan::udp(1, 2, OUT).frame(at(3.5))];
    meter.push(&packets.each_ref().map(Owned::lend), &mut out);
    for (after, packets) in [(0, 1000), (1, 1), (2, 10), (2, 20), (3, 100), (4, 1000)] {
        meter.lost(second + after, packets);
    }
    meter.finish(&mut out);
    assert_eq!(out[0].lost, 131);
}

#[test]
fn an_interim_record_does_not_change_the_flow() {
    let packets: Vec<Owned> = (0..400).map(|n| client(ACK, 5, f64::from(n))).collect();
    let records = all(Config { active_timeout: Some(secs(100)), ..Config::default() }, &packets);
    assert_eq!(records.iter().map(|r| r.record_index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(records.iter().map(Record::packets).collect::<Vec<_>>(), [100; 4]);
    assert!(records.iter().all(|r| r.id == records[0].id && r.flow_start == packets[0].ts));
    assert_eq!(records.iter().map(|r| r.initial_packets.len()).collect::<Vec<_>>(), [10, 0, 0, 0]);
}

#[test]
fn a_handshake_of_an_hour_is_measured_to_the_nanosecond() {
    let packets = [client(SYN, 100, 0.0), server(SYN | ACK, 500, 1800.25), client(ACK, 101, 3600.5)];
    let config = Config { idle_timeout: secs(10_000), active_timeout: None, ..Config::default() };
    let record = &all(config, &packets)[0];
    assert_eq!((record.syn_rtt, record.ack_rtt), (Some(1_800_250_000_000), Some(1_800_250_000_000)));
}

#[test]
fn interim_records_do_not_increase_the_memory_of_a_flow() {
    let packets: Vec<Owned> = (0..400).map(|n| client(ACK, 5, f64::from(n))).collect();
    let (mut meter, mut out) =
        (Meter::new(Config { active_timeout: Some(secs(10)), ..Config::default() }, 0), Vec::new());
    let lent: Vec<_> = packets.iter().map(Owned::lend).collect();
    meter.push(&lent[..50], &mut out);
    let bytes = meter.counts().bytes;
    lent[50..].chunks(50).for_each(|some| meter.push(some, &mut out));
    assert_eq!((meter.counts().bytes, meter.fulls.len()), (bytes, 0));
    assert_eq!((out.len(), out.iter().map(Record::packets).sum::<u64>()), (39, 390));
}

#[test]
fn no_empty_record_follows_an_interim_record() {
    let packets: Vec<Owned> = (0..10).map(|n| client(ACK, 5, f64::from(n))).collect();
    let (mut meter, mut out) =
        (Meter::new(Config { active_timeout: Some(secs(10)), ..Config::default() }, 0), Vec::new());
    meter.push(&packets.iter().map(Owned::lend).collect::<Vec<_>>(), &mut out);
    meter.tick(at(1000.0), &mut out);
    assert_eq!(out.iter().map(|r: &Record| r.end_reason).collect::<Vec<_>>(), [EndReason::ActiveTimeout]);
    assert_eq!((meter.counts().ended_without_record, meter.counts().ended(), meter.counts().active), (1, 1, 0));
}

/// A sink that stores each flow record with the second in which the meter made it.
#[derive(Default)]
struct Clock {
    second: u64,
    records: Vec<(u64, Record)>,
}

impl Sink for Clock {
    fn record(&mut self, record: &Record) {
        self.records.push((self.second, record.clone()));
    }

    fn second(&mut self, second: u64) {
        self.second = second;
    }
}

#[test]
fn records_are_made_in_the_second_after_their_timeout() {
    for timeout in [0, 1, 5, 30, 500, 511, 512, 513, 2000] {
        let config = Config { idle_timeout: secs(timeout), active_timeout: None, ..Config::default() };
        let (mut meter, mut clock) = (Meter::new(config, 0), Clock::default());
        let packet = Plan::udp(1, 2, OUT).frame(at(0.3));
        meter.push(&[packet.lend()], &mut clock);
        meter.tick(at(10_000.0), &mut clock);
        assert_eq!(clock.records[0].0, at(0.0).secs() + timeout + 1, "{timeout} s");
        assert_eq!(meter.counts().expiry_delays.records, [0, 0, 0, 0, 0, 1, 0, 0, 0], "the delay is 0.7 s");
    }
}

/// A packet in GRE with this sequence number, from host 1 or in the reverse direction.
fn numbered(back: bool, number: Option<u32>, when: f64) -> Owned {
    let plan = if back { Plan::udp(2, 1, BACK) } else { Plan::udp(1, 2, OUT) };
    let mut owned = plan.frame(at(when));
    owned.decoded.tunnel = Some(Tunnel { kind: TunnelKind::Gre, id: 7, sequence: number, outer_l3: 14 });
    owned.decoded.is_common_case = owned.decoded.is_common_case();
    owned
}

fn numbers(records: &[Record]) -> Vec<[Option<(u32, u32)>; 2]> {
    records.iter().map(|r| [0, 1].map(|side| r.directions[side].tunnel_sequence)).collect()
}

#[test]
fn each_record_has_the_first_and_the_last_tunnel_sequence_number_per_direction() {
    let packets = [
        numbered(false, None, 0.0),
        numbered(false, Some(u32::MAX), 1.0),
        numbered(true, Some(40), 1.5),
        numbered(false, Some(3), 2.0),
        // After the active timeout.
        numbered(false, None, 12.0),
        numbered(true, Some(38), 13.0),
        numbered(true, None, 14.0),
    ];
    let records = all(Config { active_timeout: Some(secs(10)), ..Config::default() }, &packets);
    assert_eq!(numbers(&records), [[Some((u32::MAX, 3)), Some((40, 40))], [None, Some((38, 38))]]);
}

#[test]
fn a_flow_in_a_reused_entry_has_no_sequence_numbers_of_the_former_flow() {
    let config = Config { capacity: 1, ..Config::default() };
    let mut plain = numbered(false, None, 1.0);
    plain.decoded.tunnel = None;
    let mut vxlan = numbered(false, None, 2.0);
    vxlan.decoded.tunnel = Some(Tunnel { kind: TunnelKind::Vxlan, id: 7, sequence: None, outer_l3: 14 });
    let packets = [numbered(false, Some(5), 0.0), plain, numbered(false, Some(6), 1.5), vxlan];
    let records = all(config, &packets);
    assert_eq!(numbers(&records), [[Some((5, 5)), None], [None; 2], [Some((6, 6)), None], [None; 2]]);
}

#[test]
fn without_tunnels_in_the_key_a_flow_that_started_outside_has_no_sequence_numbers() {
    let mut outside = numbered(false, None, 0.0);
    outside.decoded.tunnel = None;
    let inside = numbered(false, Some(9), 1.0);
    let config = || Config { key_fields: KeyFields { tunnel: false, ..KeyFields::default() }, ..Config::default() };
    assert_eq!(numbers(&all(config(), &[outside.clone(), inside.clone()])), [[None; 2]]);
    assert_eq!(numbers(&all(config(), &[inside, outside])), [[Some((9, 9)), None]]);
}
