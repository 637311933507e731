//! What can be told of a flow record. Lengths are those of IP packets, bytes without another word those of frames;
//! `fwd` is from source to destination, `rev` back (RFC 5103's reverse direction).

use super::{Field, Told, Value};
use flow::{EndReason, Moments, Record, Side, TcpState};
use std::sync::LazyLock;
use wire::TunnelKind;

impl Told for Record {
    const WHAT: &'static str = "a flow record";

    fn fields() -> &'static [Field<Self>] {
        static ALL: LazyLock<Vec<Field<Record>>> = LazyLock::new(|| {
            let mut all = head();
            side("fwd", 0, &mut all);
            side("rev", 1, &mut all);
            all.extend(tail());
            all
        });
        &ALL
    }
}

/// A field that reads the whole record.
fn whole(
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    read: for<'a> fn(&'a Record) -> Value<'a>,
) -> Field<Record> {
    Field::new(name, unit, meaning, read)
}

fn head() -> Vec<Field<Record>> {
    vec![
        whole("id", "", "the same in all records of one flow", |r| Value::Id(r.id)),
        whole("interface", "", "where it was seen", |r| Value::Interface(r.interface)),
        whole("began", "", "first packet of the flow, which records after an active timeout continue", |r| {
            Value::Time(r.began)
        }),
        whole("first", "", "first packet in this record", |r| Value::Time(r.first())),
        whole("last", "", "last packet in this record", |r| Value::Time(r.last())),
        whole("duration_ns", "ns", "from first to last", |r| {
            Value::Number(r.last().nanos().saturating_sub(r.first().nanos()))
        }),
        whole("part", "records", "records of this flow before this one", |r| Value::Number(r.part.into())),
        whole("end", "", "why it ends: idle, active (it may go on), ended (FIN, RST), forced, lack (of room)", |r| {
            Value::Word(end(r.end))
        }),
        whole("src", "", "who sent the first packet", |r| Value::Address(r.key.src)),
        whole("dst", "", "with whom", |r| Value::Address(r.key.dst)),
        whole("src_port", "", "port of src; 0 where there is none", |r| Value::Number(r.key.src_port.into())),
        whole("dst_port", "", "port of dst; ICMP: type × 256 + code of the first packet", |r| {
            Value::Number(r.key.dst_port.into())
        }),
        whole("protocol", "", "above IP: its name in filters, or its number", |r| Value::Protocol(r.key.protocol)),
        whole(
            "community_id",
            "",
            "Community ID version 1, seed 0: how other programs name the same conversation",
            |r| Value::Community(r.key.of_packet()),
        ),
        whole("vlan", "", "id of the outer VLAN tag", |r| number(r.around.vlans[0])),
        whole("vlan_inner", "", "id of the tag behind it", |r| number(r.around.vlans[1])),
        whole("mpls", "", "topmost MPLS label", |r| number(r.around.mpls)),
        whole("tunnel", "", "what tunnel is around it", |r| {
            r.around.tunnel.map_or(Value::Absent, |(kind, _)| Value::Word(tunnel(kind)))
        }),
        whole("tunnel_id", "", "VNI, VSID, TEID, session or key of the tunnel", |r| {
            number(r.around.tunnel.map(|(_, id)| id))
        }),
        whole("packets", "packets", "both directions", |r| Value::Number(r.packets())),
        whole("bytes", "bytes", "frames on the wire, without FCS, both directions", |r| Value::Number(r.bytes())),
        whole("tcp_state", "", "how far TCP got, by what was seen of it", |r| {
            tcp_state(r.tcp).map_or(Value::Absent, Value::Word)
        }),
        whole("syn_rtt_ns", "ns", "from SYN to SYN+ACK", |r| number(r.syn_rtt)),
        whole("ack_rtt_ns", "ns", "from SYN+ACK to the ACK that answers it", |r| number(r.ack_rtt)),
        whole("lost", "packets", "that the interface lost in the seconds of this record", |r| Value::Number(r.lost)),
    ]
}

/// The fields of one direction.
fn side(prefix: &'static str, index: usize, all: &mut Vec<Field<Record>>) {
    let mut push = |name: &str, unit, meaning, read: for<'a> fn(&'a Side) -> Value<'a>| {
        let name = format!("{prefix}_{name}");
        all.push(Field::new(name, unit, meaning, move |record: &Record| read(&record.sides[index])));
    };
    push("packets", "packets", "packets", |s| Value::Number(s.packets));
    push("bytes", "bytes", "frames on the wire, without FCS", |s| Value::Number(s.bytes));
    push("ip_bytes", "bytes", "IP packets on the wire: what NetFlow counts", |s| Value::Number(s.ip_bytes));
    push("payload_packets", "packets", "packets that carried anything above the transport", |s| {
        Value::Number(s.payload_packets)
    });
    push("payload_bytes", "bytes", "what they carried", |s| Value::Number(s.payload_bytes));
    push("first", "", "first packet in this record", |s| seen(s, Value::Time(s.first)));
    push("last", "", "last packet", |s| seen(s, Value::Time(s.last)));
    push("length_min", "bytes", "shortest IP packet", |s| seen(s, Value::Number(s.length.min)));
    push("length_mean", "bytes", "mean of the lengths", |s| mean(&s.length, s.packets));
    push("length_dev", "bytes", "their sample deviation (n - 1)", |s| deviation(&s.length, s.packets));
    push("length_max", "bytes", "longest IP packet", |s| seen(s, Value::Number(s.length.max)));
    push("gaps", "gaps", "inter-arrival times that the next four speak of", |s| Value::Number(s.gaps));
    push("gap_min_ns", "ns", "shortest inter-arrival time", |s| gap(s, s.gap.min));
    push("gap_mean_ns", "ns", "mean of them", |s| mean(&s.gap, s.gaps));
    push("gap_dev_ns", "ns", "their sample deviation (n - 1)", |s| deviation(&s.gap, s.gaps));
    push("gap_max_ns", "ns", "longest", |s| gap(s, s.gap.max));
    push("fin", "packets", "with FIN", |s| Value::Number(s.flags[0]));
    push("syn", "packets", "with SYN", |s| Value::Number(s.flags[1]));
    push("rst", "packets", "with RST", |s| Value::Number(s.flags[2]));
    push("psh", "packets", "with PSH", |s| Value::Number(s.flags[3]));
    push("ack", "packets", "with ACK", |s| Value::Number(s.flags[4]));
    push("urg", "packets", "with URG", |s| Value::Number(s.flags[5]));
    push("ece", "packets", "with ECE", |s| Value::Number(s.flags[6]));
    push("cwr", "packets", "with CWR", |s| Value::Number(s.flags[7]));
    push("zero_window", "packets", "that advertised a window of zero, without RST", |s| Value::Number(s.zero_window));
    push("retransmitted", "packets", "whose bytes were all sent before", |s| Value::Number(s.retransmitted));
    push("retransmitted_bytes", "bytes", "their payload", |s| Value::Number(s.retransmitted_bytes));
    push("out_of_order", "packets", "that came behind bytes that follow them", |s| Value::Number(s.out_of_order));
    push("ttl_min", "hops", "least TTL or hop limit", |s| seen(s, Value::Number(s.ttl.0.into())));
    push("ttl_max", "hops", "greatest", |s| seen(s, Value::Number(s.ttl.1.into())));
    push("dscp_min", "", "least DSCP", |s| seen(s, Value::Number(s.dscp.0.into())));
    push("dscp_max", "", "greatest", |s| seen(s, Value::Number(s.dscp.1.into())));
    push("mac", "", "link address that sent its first frame", |s| s.mac.map_or(Value::Absent, Value::Mac));
    push(
        "tunnel_seq_first",
        "",
        "sequence number in the tunnel (ERSPAN, GRE, GTP-U) of its first packet that had one",
        |s| number(s.tunnel_sequence.map(|(first, _)| first)),
    );
    push("tunnel_seq_last", "", "that of the last one; others than this flow's packets lie between", |s| {
        number(s.tunnel_sequence.map(|(_, last)| last))
    });
}

fn tail() -> Vec<Field<Record>> {
    vec![
        whole("early_after_ns", "ns", "of each of the first packets: time after the first", |r| {
            Value::Early(&r.early, |packet| packet.after)
        }),
        whole("early_lengths", "bytes", "the same: length of the IP packet", |r| {
            Value::Early(&r.early, |packet| packet.length.into())
        }),
        whole("early_flags", "", "the same: TCP's flags as a number", |r| {
            Value::Early(&r.early, |packet| packet.flags.into())
        }),
        whole("early_directions", "", "the same: 0 forward, 1 reverse", |r| {
            Value::Early(&r.early, |packet| packet.reverse.into())
        }),
        whole("fwd_payload", "", "first bytes carried, hexadecimal, where they are kept", |r| {
            Value::Bytes(&r.payload[0])
        }),
        whole("rev_payload", "", "the same, back", |r| Value::Bytes(&r.payload[1])),
        whole("queue", "", "whose packet files the packets are in", |r| number(r.locator.map(|at| at.queue))),
        whole("first_position", "bytes", "where the first packet's record lies in the stream of the queue", |r| {
            number(r.locator.map(|at| at.first))
        }),
        whole("last_position", "bytes", "where the last one's lies", |r| number(r.locator.map(|at| at.last))),
    ]
}

fn number(value: Option<impl Into<u64>>) -> Value<'static> {
    value.map_or(Value::Absent, |value| Value::Number(value.into()))
}

/// Of a direction without packets there is no least and no first.
fn seen<'a>(side: &Side, value: Value<'a>) -> Value<'a> {
    if side.packets == 0 { Value::Absent } else { value }
}

fn gap(side: &Side, nanos: u64) -> Value<'static> {
    if side.gaps == 0 { Value::Absent } else { Value::Number(nanos) }
}

fn mean(moments: &Moments, n: u64) -> Value<'static> {
    if n == 0 { Value::Absent } else { Value::Real(moments.mean(n)) }
}

fn deviation(moments: &Moments, n: u64) -> Value<'static> {
    if n < 2 { Value::Absent } else { Value::Real(moments.deviation(n)) }
}

fn end(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Idle => "idle",
        EndReason::Active => "active",
        EndReason::Ended => "ended",
        EndReason::Forced => "forced",
        EndReason::Lack => "lack",
    }
}

fn tcp_state(state: TcpState) -> Option<&'static str> {
    Some(match state {
        TcpState::None => return None,
        TcpState::Midstream => "midstream",
        TcpState::SynSent => "syn_sent",
        TcpState::SynReceived => "syn_received",
        TcpState::Established => "established",
        TcpState::HalfClosed => "half_closed",
        TcpState::Closed => "closed",
        TcpState::Reset => "reset",
    })
}

fn tunnel(kind: TunnelKind) -> &'static str {
    match kind {
        TunnelKind::Gre => "gre",
        TunnelKind::Nvgre => "nvgre",
        TunnelKind::Erspan1 => "erspan1",
        TunnelKind::Erspan2 => "erspan2",
        TunnelKind::Erspan3 => "erspan3",
        TunnelKind::Vxlan => "vxlan",
        TunnelKind::Geneve => "geneve",
        TunnelKind::GtpU => "gtpu",
        TunnelKind::IpInIp => "ipip",
        TunnelKind::Teredo => "teredo",
    }
}
