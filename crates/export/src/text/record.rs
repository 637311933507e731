//! The fields of a flow record. Lengths are those of IP packets, bytes those of frames unless the name says otherwise;
//! `fwd` is from source to destination, `rev` the reverse direction (RFC 5103).

use super::{Field, FieldTable, Value};
use flow::{DirectionStats, Record, Stats, schema, tunnel_name};
use std::sync::LazyLock;

impl FieldTable for Record {
    const ITEM_NAME: &'static str = "a flow record";

    fn fields() -> &'static [Field<Self>] {
        static ALL: LazyLock<Vec<Field<Record>>> = LazyLock::new(|| {
            let mut all = head();
            direction_fields("fwd", 0, &mut all);
            direction_fields("rev", 1, &mut all);
            all.extend(tail());
            all
        });
        &ALL
    }
}

/// A field that `flow::schema` describes.
fn record_field(name: &str, read: for<'a> fn(&'a Record) -> Value<'a>) -> Field<Record> {
    described_field(name, read)
}

fn described_field(
    name: &str,
    read: impl for<'a> Fn(&'a Record) -> Value<'a> + Send + Sync + 'static,
) -> Field<Record> {
    let field = schema::field(name);
    debug_assert!(field.is_some(), "the table of record fields has no field {name}");
    let (unit, meaning) = field.map_or(("", ""), |field| (field.unit, field.description));
    Field::new(name.to_owned(), unit, meaning, read)
}

fn head() -> Vec<Field<Record>> {
    vec![
        record_field("id", |r| Value::Id(r.id)),
        record_field("interface", |r| Value::Interface(r.interface)),
        record_field("interface_id", |r| Value::Number(r.interface.into())),
        record_field("flow_start", |r| Value::Time(r.flow_start)),
        record_field("age_ns", |r| Value::Number(r.first().nanos().saturating_sub(r.flow_start.nanos()))),
        record_field("first", |r| Value::Time(r.first())),
        record_field("second", |r| Value::Number(r.first().secs())),
        record_field("last", |r| Value::Time(r.last())),
        record_field("duration_ns", |r| Value::Number(r.last().nanos().saturating_sub(r.first().nanos()))),
        record_field("record_index", |r| Value::Number(r.record_index.into())),
        record_field("end_reason", |r| Value::Word(r.end_reason.name())),
        record_field("src", |r| Value::Address(r.key.src)),
        record_field("dst", |r| Value::Address(r.key.dst)),
        record_field("src_port", |r| Value::Number(r.key.src_port.into())),
        record_field("dst_port", |r| Value::Number(r.key.dst_port.into())),
        record_field("protocol", |r| Value::Protocol(r.key.protocol)),
        record_field("community_id", |r| Value::Community(r.key.of_packet())),
        record_field("vlan", |r| number(r.encapsulation.vlans[0])),
        record_field("vlan_inner", |r| number(r.encapsulation.vlans[1])),
        record_field("mpls", |r| number(r.encapsulation.mpls)),
        record_field("tunnel", |r| {
            r.encapsulation.tunnel.map_or(Value::Absent, |(kind, _)| Value::Word(tunnel_name(kind)))
        }),
        record_field("tunnel_id", |r| number(r.encapsulation.tunnel.map(|(_, id)| id))),
        record_field("packets", |r| Value::Number(r.packets())),
        record_field("bytes", |r| Value::Number(r.bytes())),
        record_field("tcp_state", |r| r.tcp_state.name().map_or(Value::Absent, Value::Word)),
        record_field("syn_rtt_ns", |r| number(r.syn_rtt)),
        record_field("ack_rtt_ns", |r| number(r.ack_rtt)),
        record_field("lost", |r| Value::Number(r.lost)),
    ]
}

/// The fields of one direction.
fn direction_fields(prefix: &'static str, index: usize, all: &mut Vec<Field<Record>>) {
    let name = |name: &str| format!("{prefix}_{name}");
    let mut push = |field: &str, read: for<'a> fn(&'a DirectionStats) -> Value<'a>| {
        all.push(described_field(&name(field), move |record: &Record| read(&record.directions[index])));
    };
    push("packets", |s| Value::Number(s.packets));
    push("bytes", |s| Value::Number(s.bytes));
    push("link_bytes", |s| Value::Number(s.bytes.saturating_sub(s.ip_bytes)));
    push("header_bytes", |s| Value::Number(s.ip_bytes.saturating_sub(s.payload_bytes)));
    push("ip_bytes", |s| Value::Number(s.ip_bytes));
    push("payload_bytes", |s| Value::Number(s.payload_bytes));
    push("payload_packets", |s| Value::Number(s.payload_packets));
    push("first", |s| seen(s, Value::Time(s.first)));
    push("last", |s| seen(s, Value::Time(s.last)));
    all.push(described_field(&name("start_ns"), move |record: &Record| {
        let direction = &record.directions[index];
        seen(direction, Value::Number(direction.first.nanos().saturating_sub(record.first().nanos())))
    }));
    let mut push = |field: &str, read: for<'a> fn(&'a DirectionStats) -> Value<'a>| {
        all.push(described_field(&name(field), move |record: &Record| read(&record.directions[index])));
    };
    push("length_min", |s| seen(s, Value::Number(s.length.min)));
    push("length_mean", |s| mean(&s.length, s.packets));
    push("length_dev", |s| deviation(&s.length, s.packets));
    push("length_max", |s| seen(s, Value::Number(s.length.max)));
    push("iat_count", |s| Value::Number(s.iat_count));
    push("iat_min_ns", |s| gap(s, s.iat.min));
    push("iat_mean_ns", |s| mean(&s.iat, s.iat_count));
    push("iat_dev_ns", |s| deviation(&s.iat, s.iat_count));
    push("iat_max_ns", |s| gap(s, s.iat.max));
    push("iat_sum_ns", |s| gap(s, s.iat.sum));
    push("iat_carry_ns", |s| Value::Number(s.iat.sum.saturating_sub(s.last.nanos().saturating_sub(s.first.nanos()))));
    push("fin", |s| Value::Number(s.flags[0]));
    push("syn", |s| Value::Number(s.flags[1]));
    push("rst", |s| Value::Number(s.flags[2]));
    push("psh", |s| Value::Number(s.flags[3]));
    push("ack", |s| Value::Number(s.flags[4]));
    push("urg", |s| Value::Number(s.flags[5]));
    push("ece", |s| Value::Number(s.flags[6]));
    push("cwr", |s| Value::Number(s.flags[7]));
    push("zero_window", |s| Value::Number(s.zero_window));
    push("retransmitted", |s| Value::Number(s.retransmitted));
    push("retransmitted_bytes", |s| Value::Number(s.retransmitted_bytes));
    push("out_of_order", |s| Value::Number(s.out_of_order));
    push("ttl_min", |s| seen(s, Value::Number(s.ttl.0.into())));
    push("ttl_max", |s| seen(s, Value::Number(s.ttl.1.into())));
    push("dscp_min", |s| seen(s, Value::Number(s.dscp.0.into())));
    push("dscp_max", |s| seen(s, Value::Number(s.dscp.1.into())));
    push("mac", |s| s.mac.map_or(Value::Absent, Value::Mac));
    push("tunnel_seq_first", |s| number(s.tunnel_sequence.map(|(first, _)| first)));
    push("tunnel_seq_last", |s| number(s.tunnel_sequence.map(|(_, last)| last)));
    all.push(described_field(&name("payload"), move |record: &Record| Value::Bytes(&record.payload[index])));
}

fn tail() -> Vec<Field<Record>> {
    vec![
        record_field("initial_lengths", |r| {
            Value::InitialPackets(&r.initial_packets, |packet, _| packet.signed_length())
        }),
        record_field("initial_flags", |r| Value::InitialPackets(&r.initial_packets, |packet, _| packet.flags.into())),
        record_field("initial_iats_ns", |r| {
            Value::InitialPackets(&r.initial_packets, |packet, before| {
                packet.offset_ns.wrapping_sub(before.offset_ns).cast_signed()
            })
        }),
        record_field("queue", |r| number(r.location.map(|at| at.queue))),
        record_field("position", |r| number(r.location.map(|at| at.first))),
        record_field("position_span", |r| number(r.location.map(|at| at.last.wrapping_sub(at.first)))),
    ]
}

fn number(value: Option<impl Into<u64>>) -> Value<'static> {
    value.map_or(Value::Absent, |value| Value::Number(value.into()))
}

/// Returns the value, or [`Value::Absent`] for a direction without packets, which has no minimum and no first packet.
fn seen<'a>(direction: &DirectionStats, value: Value<'a>) -> Value<'a> {
    if direction.packets == 0 { Value::Absent } else { value }
}

fn gap(direction: &DirectionStats, nanos: u64) -> Value<'static> {
    if direction.iat_count == 0 { Value::Absent } else { Value::Number(nanos) }
}

fn mean(moments: &Stats, n: u64) -> Value<'static> {
    if n == 0 { Value::Absent } else { Value::Real(moments.mean(n)) }
}

fn deviation(moments: &Stats, n: u64) -> Value<'static> {
    if n < 2 { Value::Absent } else { Value::Real(moments.deviation(n)) }
}
