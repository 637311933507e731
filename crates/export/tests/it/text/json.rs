//! NDJSON, read by serde_json.

use super::random;
use base::{Prng, Timestamp};
use flow::{DirectionStats, Encapsulation, EndReason, InitialPacket, Key, PacketLocation, Record, Stats, TcpState};
use netgrain_export::text::{FieldTable, Format, SCHEMA_VERSION, Value, Writer, choose};
use serde_json::{Value as Json, json};
use series::{Row, quantities};
use std::io::{self, Write};
use std::net::IpAddr;
use wire::{IpProtocol, MacAddr, TunnelKind};

/// An interface name that needs every kind of escape.
const AWKWARD: &str = "tap \"0\",\\\tup\n\u{1}é";

fn lines<T: FieldTable>(items: &[T]) -> Vec<Json> {
    let mut writer = Writer::new(Vec::new(), Format::Ndjson, None).expect("memory");
    writer.name_interface(1, AWKWARD);
    items.iter().for_each(|item| writer.write(item).expect("memory"));
    let text = String::from_utf8(writer.into_inner()).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// True if the JSON value equals the field value.
fn same(value: &Value<'_>, json: &Json) -> bool {
    let text = json.as_str();
    match *value {
        Value::Absent => false,
        Value::Number(number) => json.as_u64() == Some(number),
        Value::Real(real) => json.as_f64() == Some(real),
        Value::Word(word) => text == Some(word),
        Value::Id(id) => text.is_some_and(|t| t.parse() == Ok(id)),
        Value::Time(time) => text.is_some_and(|t| Timestamp::parse(t, Timestamp::ZERO) == Ok(time)),
        Value::Address(address) => text.is_some_and(|t| t.parse() == Ok(address)),
        Value::Mac(mac) => text.is_some_and(|t| t.parse() == Ok(mac)),
        Value::Protocol(protocol) => {
            text.is_some_and(|t| IpProtocol::from_name(t).or_else(|| t.parse().ok().map(IpProtocol)) == Some(protocol))
        }
        Value::Community(ref key) => text == Some(&*wire::community_id(key)),
        Value::Interface(number) => {
            text == Some(if number == 1 { AWKWARD } else { ["0", "", "2"][usize::from(number)] })
        }
        Value::Bytes(bytes) => {
            let digits = text.map(|t| t.as_bytes().chunks(2).map(|two| str::from_utf8(two).unwrap_or("")));
            digits.is_some_and(|d| d.map(|two| u8::from_str_radix(two, 16)).eq(bytes.iter().map(|b| Ok(*b))))
        }
        Value::InitialPackets(packets, of) => {
            let none = InitialPacket::default();
            let before = [&none].into_iter().chain(packets);
            let numbers = packets.iter().zip(before).map(|(packet, before)| Some(of(packet, before)));
            json.as_array().is_some_and(|list| list.iter().map(Json::as_i64).eq(numbers))
        }
    }
}

fn round_trip<T: FieldTable>(items: &[T]) {
    let read = lines(items);
    assert_eq!(read.len(), items.len());
    for (item, read) in items.iter().zip(&read) {
        let object = read.as_object().expect("an object");
        let reported: Vec<_> = T::fields().iter().filter(|field| !field.of(item).is_absent()).collect();
        assert_eq!(object.len(), reported.len() + 1);
        assert_eq!(object["schema_version"], SCHEMA_VERSION);
        for field in reported {
            let value = field.of(item);
            assert!(same(&value, &object[&*field.name]), "{}: {value:?} {}", field.name, object[&*field.name]);
        }
    }
}

/// An output without space.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_write_is_an_error() {
    assert!(Writer::<Row, _>::new(Full, Format::Csv, None).is_err());
    let mut writer = Writer::new(Full, Format::Ndjson, None).expect("nothing to write yet");
    assert_eq!(writer.write(&Row::default()).map_err(|e| e.kind()), Err(io::ErrorKind::StorageFull));
}

#[test]
fn random_items_survive_ndjson() {
    let mut prng = Prng::new(testkit::seed("random_items_survive_ndjson"));
    round_trip(&(0..500).map(|_| random::record(&mut prng)).collect::<Vec<_>>());
    round_trip(&(0..200).map(|_| random::row(&mut prng)).collect::<Vec<_>>());
    round_trip(&(0..50).map(|_| random::rollup(&mut prng)).collect::<Vec<_>>());
    round_trip::<Row>(&[]);
}

#[test]
fn only_the_chosen_fields_are_written_in_their_order() {
    let fields = choose::<Row>("bytes,second").expect("known");
    let mut writer = Writer::new(Vec::new(), Format::Ndjson, Some(fields)).expect("memory");
    writer.write(&Row { second: 7, ..Row::default() }).expect("memory");
    assert_eq!(writer.into_inner(), b"{\"schema_version\":1,\"bytes\":0,\"second\":7}\n");
}

/// The expected values are written by hand, to test that each key of the JSON object has the value of its own field.
#[test]
fn every_field_of_a_record_has_the_expected_value() {
    let moments = |at: u64| Stats { min: at, max: at + 4, sum: 3 * at + 6, squares: squares(at) };
    let side = |n: u64| DirectionStats {
        first: Timestamp::from_secs_nanos(n, 1),
        last: Timestamp::from_secs_nanos(n + 1, 2),
        packets: 3,
        bytes: n + 3,
        ip_bytes: n + 4,
        payload_bytes: n + 5,
        payload_packets: n + 6,
        length: moments(n + 7),
        iat: moments(n + 20),
        iat_count: 3,
        flags: std::array::from_fn(|i| n + 30 + i as u64),
        zero_window: n + 40,
        retransmitted: n + 41,
        retransmitted_bytes: n + 42,
        out_of_order: n + 43,
        ttl: (n as u8 + 44, n as u8 + 45),
        dscp: (n as u8 + 46, n as u8 + 47),
        mac: Some(MacAddr([n as u8; 6])),
        tunnel_sequence: Some((n as u32 + 48, n as u32 + 49)),
    };
    let record = Record {
        id: 0xab,
        key: Key {
            src: IpAddr::from([10, 0, 0, 1]),
            dst: IpAddr::from([10, 0, 0, 2]),
            src_port: 1000,
            dst_port: 443,
            protocol: IpProtocol::TCP,
        },
        encapsulation: Encapsulation { vlans: [Some(5), Some(6)], mpls: Some(7), tunnel: Some((TunnelKind::Vxlan, 8)) },
        interface: 2,
        flow_start: Timestamp::from_secs_nanos(9, 0),
        record_index: 10,
        directions: [side(0), side(100)],
        end_reason: EndReason::ActiveTimeout,
        tcp_state: TcpState::Established,
        syn_rtt: Some(11),
        ack_rtt: Some(12),
        initial_packets: vec![
            InitialPacket { offset_ns: 0, length: 60, flags: 2, reverse: false },
            InitialPacket { offset_ns: 11, length: 61, flags: 18, reverse: true },
        ],
        payload: [vec![1, 0xff], vec![2]],
        location: Some(PacketLocation { queue: 13, first: 14, last: 15 }),
        lost: 16,
    };
    let mut expected = json!({
        "schema_version": SCHEMA_VERSION,
        "id": "171", "interface": "2", "interface_id": 2, "age_ns": 0, "second": 0,
        "flow_start": "1970-01-01T00:00:09.000000000Z",
        "first": "1970-01-01T00:00:00.000000001Z", "last": "1970-01-01T00:01:41.000000002Z",
        "duration_ns": 101_000_000_001u64, "record_index": 10, "end_reason": "active_timeout",
        "src": "10.0.0.1", "dst": "10.0.0.2", "src_port": 1000, "dst_port": 443, "protocol": "tcp",
        // The Community ID was computed with SHA-1 and base64 of Python, following its specification.
        "community_id": "1:DDhmOm0xnuMo3+jHHkLHYVv3udY=",
        "vlan": 5, "vlan_inner": 6, "mpls": 7, "tunnel": "vxlan", "tunnel_id": 8,
        "packets": 6, "bytes": 106, "tcp_state": "established", "syn_rtt_ns": 11, "ack_rtt_ns": 12, "lost": 16,
        "initial_iats_ns": [0, 11], "initial_lengths": [60, -61], "initial_flags": [2, 18],
        "fwd_payload": "01ff", "rev_payload": "02", "queue": 13, "position": 14, "position_span": 1,
    });
    for (prefix, n, seconds, mac) in [
        ("fwd", 0, ["00:00:00", "00:00:01"], "00:00:00:00:00:00"),
        ("rev", 100, ["00:01:40", "00:01:41"], "64:64:64:64:64:64"),
    ] {
        let mut put = |name: &str, value: Json| expected[format!("{prefix}_{name}")] = value;
        put("first", format!("1970-01-01T{}.000000001Z", seconds[0]).into());
        put("last", format!("1970-01-01T{}.000000002Z", seconds[1]).into());
        put("mac", mac.into());
        put("packets", 3.into());
        put("iat_count", 3.into());
        // The values a, a+2 and a+4 have the mean a+2 and the sample standard deviation 2.
        for (name, at) in [("length_mean", n + 9), ("iat_mean_ns", n + 22)] {
            put(name, f64::from(at).into());
        }
        put("length_dev", 2.0.into());
        put("iat_dev_ns", 2.0.into());
        let rest = [
            ("bytes", 3),
            ("ip_bytes", 4),
            ("payload_bytes", 5),
            ("payload_packets", 6),
            ("length_min", 7),
            ("length_max", 11),
            ("iat_min_ns", 20),
            ("iat_max_ns", 24),
            ("fin", 30),
            ("syn", 31),
            ("rst", 32),
            ("psh", 33),
            ("ack", 34),
            ("urg", 35),
            ("ece", 36),
            ("cwr", 37),
            ("zero_window", 40),
            ("retransmitted", 41),
            ("retransmitted_bytes", 42),
            ("out_of_order", 43),
            ("ttl_min", 44),
            ("ttl_max", 45),
            ("dscp_min", 46),
            ("dscp_max", 47),
            ("tunnel_seq_first", 48),
            ("tunnel_seq_last", 49),
        ];
        rest.into_iter().for_each(|(name, more)| put(name, (n + more).into()));
        // Three inter-arrival times with the mean a+2. The flow begins with the first packet of its initiator. The byte
        // counters are smaller than the headers, so there are no header bytes.
        put("iat_sum_ns", (3 * (n + 22)).into());
        put("start_ns", (u64::from(n == 100) * 100_000_000_000).into());
        ["header_bytes", "link_bytes", "iat_carry_ns"].into_iter().for_each(|name| put(name, 0.into()));
    }
    let mut ping = record.clone();
    ping.key = Key { src_port: 0, dst_port: 0x0800, protocol: IpProtocol::ICMP, ..record.key };
    let read = lines(&[record, ping]);
    assert_eq!(read[0], expected);
    assert_eq!(read[1]["community_id"], "1:YcMyyWJfhc95EW1GfXt6jlZ3DiQ=");
}

/// The sum of the squares of a, a+2 and a+4.
fn squares(a: u64) -> u128 {
    [a, a + 2, a + 4].map(|v| u128::from(v * v)).iter().sum()
}

#[test]
fn a_second_without_packets_is_an_object_of_zeros() {
    let read = &lines(&[Row { second: 60, ..Row::default() }])[0];
    assert_eq!(read["time"], "1970-01-01T00:01:00.000000000Z");
    assert!(quantities().iter().all(|quantity| read[&*quantity.name] == 0));
}
