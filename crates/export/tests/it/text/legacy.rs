//! The M3OMon format, compared with lines written by hand.

use base::Timestamp;
use flow::{DirectionStats, Encapsulation, EndReason, Key, Record, Stats, TcpState};
use netgrain_export::text::legacy::{LegacyFlows, LegacySeries};
use series::{Direction, Row, Volume};
use std::io;
use std::net::IpAddr;
use wire::{IpProtocol, MacAddr};

fn record() -> Record {
    let forward = DirectionStats {
        first: Timestamp::from_secs_nanos(100, 999_999_999),
        last: Timestamp::from_secs_nanos(102, 5_000),
        packets: 3,
        bytes: 300,
        length: Stats { min: 52, max: 150, sum: 258, squares: 52 * 52 + 56 * 56 + 150 * 150 },
        iat: Stats { min: 250_000_000, max: 750_000_000, sum: 1_000_000_000, squares: 625_000_000_000_000_000 },
        iat_count: 2,
        flags: [1, 2, 3, 4, 5, 6, 7, 8],
        zero_window: 9,
        mac: Some(MacAddr([0, 0x1b, 0x21, 0x0a, 0x0b, 0x0c])),
        ..DirectionStats::default()
    };
    let reverse = DirectionStats {
        first: Timestamp::from_secs_nanos(101, 0),
        last: Timestamp::from_secs_nanos(101, 0),
        packets: 1,
        bytes: 60,
        length: Stats { min: 40, max: 40, sum: 40, squares: 1600 },
        ..DirectionStats::default()
    };
    Record {
        id: 1,
        key: Key {
            src: IpAddr::from([10, 0, 0, 1]),
            dst: IpAddr::from([192, 168, 1, 20]),
            src_port: 40_000,
            dst_port: 80,
            protocol: IpProtocol::TCP,
        },
        encapsulation: Encapsulation::default(),
        interface: 0,
        flow_start: forward.first,
        record_index: 0,
        directions: [forward, reverse],
        end_reason: EndReason::EndOfFlow,
        tcp_state: TcpState::Closed,
        syn_rtt: Some(1_234_567),
        ack_rtt: None,
        initial_packets: Vec::new(),
        payload: [b"GET ".to_vec(), b"HTTP/1.1".to_vec()],
        location: None,
        lost: 0,
    }
}

#[test]
fn a_record_is_a_line_per_direction_with_the_offset_of_its_payload() {
    let mut flows = LegacyFlows::new(Vec::new(), Vec::new());
    flows.write(&record()).expect("memory");
    flows.write(&record()).expect("memory");
    let (text, payload) = flows.into_inner();
    let text = String::from_utf8(text).expect("ASCII");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "10.0.0.1 192.168.1.20 00:1B:21:0A:0B:0C 00:00:00:00:00:00 p6 40000 80 3 300 100.999999 102.000005 3 \
         150 52 100.000000 55.461698 0.750000 0.250000 0.500000 0.353553 0.001234 1 2 3 4 5 6 7 8 9 4 0"
    );
    assert_eq!(
        lines[1],
        "192.168.1.20 10.0.0.1 00:00:00:00:00:00 00:1B:21:0A:0B:0C p6 80 40000 1 60 101.000000 101.000000 1 \
         40 40 60.000000 0.000000 0.000000 0.000000 0.000000 0.000000 0.000000 0 0 0 0 0 0 0 0 0 8 4"
    );
    assert_eq!(lines.len(), 4);
    for line in lines {
        let fields: Vec<&str> = line.split(' ').collect();
        assert_eq!(fields.len(), 32);
        let [length, offset] = [30, 31].map(|at| fields[at].parse::<usize>().expect("a number"));
        let sent: &[u8] = if fields[5] == "80" { b"HTTP/1.1" } else { b"GET " };
        assert_eq!(&payload[offset..offset + length], sent);
    }
}

#[test]
fn a_direction_without_packets_has_no_line_and_icmp_keeps_its_type() {
    let mut record = record();
    record.key.protocol = IpProtocol::ICMP;
    (record.key.src_port, record.key.dst_port) = (0, 0x0800);
    let mut flows = LegacyFlows::new(Vec::new(), io::sink());
    flows.write(&record).expect("memory");
    record.directions[1] = DirectionStats::default();
    flows.write(&record).expect("memory");
    let text = String::from_utf8(flows.into_inner().0).expect("ASCII");
    let ends: Vec<String> =
        text.lines().map(|line| line.split(' ').skip(4).take(3).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(ends, ["p1 0 2048"; 3]);
}

#[test]
fn the_series_has_a_line_for_each_known_second() {
    let row = |second, direction, bytes, flows_active| Row {
        second,
        direction,
        total: Volume { packets: bytes / 100, bytes },
        flows_active,
        ..Row::default()
    };
    let mut series_meter = LegacySeries::new(Vec::new());
    let rows = [
        row(7, Direction::In, 1000, 3),
        row(7, Direction::Out, 500, 0),
        row(8, Direction::In, 0, 2),
        row(10, Direction::In, 100, 1),
    ];
    rows.iter().for_each(|row| series_meter.write(row).expect("memory"));
    let text = String::from_utf8(series_meter.finish().expect("memory")).expect("ASCII");
    assert_eq!(text, "7\t12000\t15\t3\n8\t0\t0\t2\n10\t800\t1\t1\n");
    assert!(LegacySeries::new(Vec::new()).finish().expect("memory").is_empty());
}
