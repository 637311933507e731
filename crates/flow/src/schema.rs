//! The table of the fields of a flow record. JSON, CSV, `--fields` and the columns of Parquet files use these names,
//! each for the same value. Units, descriptions and the tables of the documentation are generated from this table.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The outputs that contain a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOutputs {
    /// Text and columns.
    TextAndColumns,
    /// JSON, CSV and the columns of exported files contain the field. A store omits the column to save space.
    TextAndExportedColumns,
    /// Only JSON and CSV contain the field: in columns, other fields have the same information.
    TextOnly,
    /// Only columns contain the field: in JSON and CSV, other fields have the same information.
    ColumnsOnly,
}

impl FieldOutputs {
    /// True if JSON and CSV contain the field.
    pub const fn is_text(self) -> bool {
        !matches!(self, Self::ColumnsOnly)
    }

    /// True if Parquet files contain the field, in a store or exported.
    pub const fn is_column(self) -> bool {
        !matches!(self, Self::TextOnly)
    }
}

/// A field of the flow record.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name.
    pub name: Cow<'static, str>,
    /// The unit; empty if the field has none.
    pub unit: &'static str,
    /// The description, as a phrase.
    pub description: &'static str,
    /// The condition under which the field has no value (null, omitted, an empty cell); empty if it always has a value.
    pub null_when: &'static str,
    /// The outputs that contain the field.
    pub outputs: FieldOutputs,
}

/// All fields, in the order of output.
pub fn fields() -> &'static [Field] {
    static ALL: LazyLock<Vec<Field>> = LazyLock::new(all);
    &ALL
}

/// The field of this name.
pub fn field(name: &str) -> Option<&'static Field> {
    fields().iter().find(|field| field.name == name)
}

/// A field: its name, its unit, its description, the condition under which it has no value, and the outputs that
/// contain it.
type FieldRow = (&'static str, &'static str, &'static str, &'static str, FieldOutputs);

use FieldOutputs::{ColumnsOnly, TextAndColumns, TextAndExportedColumns, TextOnly};

const HEAD: &[FieldRow] = &[
    (
        "id",
        "",
        "flow ID, the same in all records of a flow: an unsigned 64-bit number (in JSON a string, because some \
         readers would round a number)",
        "",
        TextAndColumns,
    ),
    ("interface", "", "name of the interface", "the name is unknown", TextAndColumns),
    ("interface_id", "", "number of the interface in the meter", "", TextAndColumns),
    (
        "flow_start",
        "",
        "time of the first packet of the flow, also if that packet is counted in an earlier record",
        "",
        TextOnly,
    ),
    (
        "age_ns",
        "ns",
        "time from the first packet of the flow to `first`; 0 in the first record of a flow",
        "",
        TextAndColumns,
    ),
    ("first", "", "time of the first packet of this record", "", TextAndColumns),
    ("first_nanos", "ns", "the part of `first` below one microsecond: 0 to 999", "", ColumnsOnly),
    (
        "second",
        "s",
        "second that contains `first`, since 1970 (UTC), as in the field `second` of series rows",
        "",
        TextAndColumns,
    ),
    ("last", "", "time of the last packet of this record", "", TextAndColumns),
    ("duration_ns", "ns", "time from `first` to `last`", "", TextAndColumns),
    ("record_index", "records", "number of earlier records of this flow", "", TextAndColumns),
    (
        "end_reason",
        "",
        "flow end reason: `idle_timeout`, `active_timeout` (the flow may continue), `end_of_flow` (FIN, RST), \
         `forced_end`, `lack_of_resources`",
        "",
        TextAndColumns,
    ),
    ("src", "", "source address: sender of the first packet of the flow", "", TextAndColumns),
    ("dst", "", "destination address", "", TextAndColumns),
    ("src_port", "", "source port; 0 if the protocol has no ports", "", TextAndColumns),
    ("dst_port", "", "destination port; ICMP: type × 256 + code of the first packet", "", TextAndColumns),
    ("protocol", "", "protocol above IP: its name in filters, or its number", "", TextAndColumns),
    (
        "community_id",
        "",
        "Community ID version 1, seed 0: the flow hash of Zeek, Suricata and tshark",
        "",
        TextAndExportedColumns,
    ),
    ("vlan", "", "id of the outer VLAN tag", "there is no tag", TextAndColumns),
    ("vlan_inner", "", "id of the inner VLAN tag", "there is no second tag", TextAndColumns),
    ("mpls", "", "topmost MPLS label", "there is no label", TextAndColumns),
    ("tunnel", "", "kind of the innermost tunnel", "there is no tunnel", TextAndColumns),
    ("tunnel_id", "", "VNI, VSID, TEID, session or key of the tunnel", "there is no tunnel", TextAndColumns),
    ("packets", "packets", "packets of both directions", "", TextAndColumns),
    ("bytes", "bytes", "bytes of frames on the wire without FCS, of both directions", "", TextAndColumns),
    ("tcp_state", "", "TCP state, from the packets seen", "the protocol is not TCP", TextAndColumns),
    ("syn_rtt_ns", "ns", "time from SYN to SYN+ACK", "SYN or SYN+ACK was not seen", TextAndColumns),
    ("ack_rtt_ns", "ns", "time from SYN+ACK to its ACK", "SYN+ACK or its ACK was not seen", TextAndColumns),
    (
        "lost",
        "packets",
        "packets lost on the interface in the seconds from the first to the last packet of this record",
        "",
        TextAndColumns,
    ),
];

const NO_PACKETS: &str = "the direction has no packets";
const NO_GAPS: &str = "there is no inter-arrival time";

const SIDE: &[FieldRow] = &[
    ("packets", "packets", "packets of this direction", "", TextAndColumns),
    ("bytes", "bytes", "bytes of frames on the wire without FCS, of this direction", "", TextAndColumns),
    (
        "link_bytes",
        "bytes",
        "bytes of the frames of this direction that are outside the IP packets",
        "",
        TextAndColumns,
    ),
    ("header_bytes", "bytes", "bytes of the IP and transport headers of this direction", "", TextAndColumns),
    ("ip_bytes", "bytes", "bytes of IP packets, as NetFlow counts: `bytes - link_bytes`", "", TextOnly),
    ("payload_bytes", "bytes", "bytes above the transport header: `bytes - link_bytes - header_bytes`", "", TextOnly),
    ("payload_packets", "packets", "packets with payload above the transport header", "", TextAndColumns),
    ("first", "", "time of the first packet of this direction: `first` + `start_ns`", NO_PACKETS, TextOnly),
    (
        "last",
        "",
        "time of the last packet of this direction: `first` + `start_ns` + `iat_sum_ns` - `iat_carry_ns`",
        NO_PACKETS,
        TextOnly,
    ),
    (
        "start_ns",
        "ns",
        "time from `first` of the record to the first packet of this direction",
        NO_PACKETS,
        TextAndColumns,
    ),
    ("length_min", "bytes", "minimum length of the IP packets", NO_PACKETS, TextAndColumns),
    ("length_mean", "bytes", "mean length of the IP packets", NO_PACKETS, TextOnly),
    (
        "length_dev",
        "bytes",
        "sample standard deviation (n - 1) of the lengths of the IP packets",
        "there are fewer than two packets",
        TextOnly,
    ),
    ("length_max", "bytes", "maximum length of the IP packets", NO_PACKETS, TextAndColumns),
    (
        "length_squares",
        "",
        "sum of the squares of the lengths of the IP packets, from which the standard deviation over several records \
         can be computed",
        NO_PACKETS,
        ColumnsOnly,
    ),
    (
        "iat_count",
        "inter-arrival times",
        "number of inter-arrival times, including the time since the last packet of the previous record of the flow",
        "",
        TextAndColumns,
    ),
    ("iat_min_ns", "ns", "minimum inter-arrival time", NO_GAPS, TextAndColumns),
    ("iat_mean_ns", "ns", "mean inter-arrival time", NO_GAPS, TextOnly),
    (
        "iat_dev_ns",
        "ns",
        "sample standard deviation (n - 1) of the inter-arrival times",
        "there are fewer than two inter-arrival times",
        TextOnly,
    ),
    ("iat_max_ns", "ns", "maximum inter-arrival time", NO_GAPS, TextAndColumns),
    ("iat_sum_ns", "ns", "sum of the inter-arrival times", NO_GAPS, TextAndColumns),
    ("iat_squares", "", "sum of the squares of the inter-arrival times", NO_GAPS, ColumnsOnly),
    (
        "iat_carry_ns",
        "ns",
        "the part of `iat_sum_ns` before the first packet of this record; 0 in the first record of a flow",
        "",
        TextAndColumns,
    ),
    ("fin", "packets", "packets with FIN", "", TextAndColumns),
    ("syn", "packets", "packets with SYN", "", TextAndColumns),
    ("rst", "packets", "packets with RST", "", TextAndColumns),
    ("psh", "packets", "packets with PSH", "", TextAndColumns),
    ("ack", "packets", "packets with ACK", "", TextAndColumns),
    ("urg", "packets", "packets with URG", "", TextAndColumns),
    ("ece", "packets", "packets with ECE", "", TextAndColumns),
    ("cwr", "packets", "packets with CWR", "", TextAndColumns),
    ("zero_window", "packets", "packets without RST that advertised a window of zero", "", TextAndColumns),
    ("retransmitted", "packets", "retransmitted packets, all bytes of which were sent before", "", TextAndColumns),
    ("retransmitted_bytes", "bytes", "payload bytes of the retransmitted packets", "", TextAndColumns),
    ("out_of_order", "packets", "packets that arrived after packets with later sequence numbers", "", TextAndColumns),
    ("ttl_min", "hops", "minimum TTL or hop limit", NO_PACKETS, TextAndColumns),
    ("ttl_max", "hops", "maximum TTL or hop limit", NO_PACKETS, TextAndColumns),
    ("dscp_min", "", "minimum DSCP", NO_PACKETS, TextAndColumns),
    ("dscp_max", "", "maximum DSCP", NO_PACKETS, TextAndColumns),
    (
        "mac",
        "",
        "source link address of the first frame of this direction",
        "no frame had an Ethernet header",
        TextAndColumns,
    ),
    (
        "tunnel_seq_first",
        "",
        "tunnel sequence number (ERSPAN, GRE, GTP-U) of the first packet that has a sequence number",
        "no packet has a tunnel sequence number",
        TextAndColumns,
    ),
    (
        "tunnel_seq_last",
        "",
        "tunnel sequence number of the last packet that has a sequence number; the numbers between the first and the \
         last also count packets of other flows",
        "no packet has a tunnel sequence number",
        TextAndColumns,
    ),
    ("payload", "", "first bytes of the payload (hexadecimal in JSON and CSV)", "no payload is kept", TextAndColumns),
];

const TAIL: &[FieldRow] = &[
    (
        "initial_lengths",
        "bytes",
        "lengths of the IP packets of the initial packets; negative for packets from `dst` (-2147483648 for a length \
         of 0)",
        "",
        TextAndColumns,
    ),
    ("initial_flags", "", "TCP flags of the initial packets, as numbers", "", TextAndColumns),
    (
        "initial_iats_ns",
        "ns",
        "time from the previous packet to each initial packet; 0 for the first packet",
        "",
        TextAndColumns,
    ),
    (
        "queue",
        "",
        "queue whose packet files contain the packets of this record",
        "the packets are not stored",
        TextAndColumns,
    ),
    (
        "position",
        "bytes",
        "stream position of the first packet of the record",
        "the packets are not stored",
        TextAndColumns,
    ),
    (
        "position_span",
        "bytes",
        "distance from `position` to the stream position of the last packet",
        "the packets are not stored",
        TextAndColumns,
    ),
];

fn all() -> Vec<Field> {
    let line = |prefix: &str, (name, unit, meaning, none, reported): &FieldRow| Field {
        name: match prefix {
            "" => Cow::Borrowed(*name),
            prefix => Cow::Owned(format!("{prefix}_{name}")),
        },
        unit,
        description: meaning,
        null_when: none,
        outputs: *reported,
    };
    let part = |prefix: &'static str, lines: &'static [FieldRow]| lines.iter().map(move |l| line(prefix, l));
    part("", HEAD).chain(part("fwd", SIDE)).chain(part("rev", SIDE)).chain(part("", TAIL)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = fields().iter().map(|field| &*field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), fields().len());
    }
}
