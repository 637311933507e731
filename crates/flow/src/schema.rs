//! The table of the fields of a flow record. JSON, CSV, `--fields` and the columns of Parquet files use these names,
//! with the same value under each. Units, descriptions and the tables of the documentation are generated from it.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The outputs that contain a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOutputs {
    /// Text and columns.
    TextAndColumns,
    /// Text, and columns of exported files. A store omits the column to save space.
    TextAndExportedColumns,
    /// Text only: other columns have the same information.
    TextOnly,
    /// Columns only: other fields of the text have the same information.
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

/// Name, unit, description, condition for no value, outputs.
type FieldRow = (&'static str, &'static str, &'static str, &'static str, FieldOutputs);

use FieldOutputs::{ColumnsOnly, TextAndColumns, TextAndExportedColumns, TextOnly};

const HEAD: &[FieldRow] = &[
    (
        "id",
        "",
        "the same in all records of one flow: 64 bits as a number without a sign (JSON: in quotes, for readers that round)",
        "",
        TextAndColumns,
    ),
    ("interface", "", "what the interface is called", "its name is not known", TextAndColumns),
    ("interface_id", "", "number of the interface, as the meter was given it", "", TextAndColumns),
    ("flow_start", "", "first packet of the flow, which records after an active timeout continue", "", TextOnly),
    ("age_ns", "ns", "from the flow's first packet to `first`: 0 in a flow's first record", "", TextAndColumns),
    ("first", "", "first packet in this record", "", TextAndColumns),
    ("first_nanos", "ns", "of `first`, behind its microsecond: 0 to 999", "", ColumnsOnly),
    ("second", "s", "of `first`, since 1970 (UTC): the key of the series", "", TextAndColumns),
    ("last", "", "last packet in this record", "", TextAndColumns),
    ("duration_ns", "ns", "from first to last", "", TextAndColumns),
    ("record_index", "records", "records of this flow before this one", "", TextAndColumns),
    (
        "end_reason",
        "",
        "why it ends: idle, active (it may go on), ended (FIN, RST), forced, lack (of room)",
        "",
        TextAndColumns,
    ),
    ("src", "", "who sent the first packet", "", TextAndColumns),
    ("dst", "", "with whom", "", TextAndColumns),
    ("src_port", "", "port of src; 0 where the protocol has none", "", TextAndColumns),
    ("dst_port", "", "port of dst; ICMP: type × 256 + code of the first packet", "", TextAndColumns),
    ("protocol", "", "above IP: its name in filters, or its number", "", TextAndColumns),
    (
        "community_id",
        "",
        "Community ID version 1, seed 0: how other programs name the same conversation",
        "",
        TextAndExportedColumns,
    ),
    ("vlan", "", "id of the outer VLAN tag", "there is no tag", TextAndColumns),
    ("vlan_inner", "", "id of the tag behind it", "there is no second tag", TextAndColumns),
    ("mpls", "", "topmost MPLS label", "there is none", TextAndColumns),
    ("tunnel", "", "what tunnel is around it", "there is none", TextAndColumns),
    ("tunnel_id", "", "VNI, VSID, TEID, session or key of the tunnel", "there is no tunnel", TextAndColumns),
    ("packets", "packets", "both directions", "", TextAndColumns),
    ("bytes", "bytes", "frames on the wire, without FCS, both directions", "", TextAndColumns),
    ("tcp_state", "", "how far TCP got, by what was seen of it", "it is not TCP", TextAndColumns),
    ("syn_rtt_ns", "ns", "from SYN to SYN+ACK", "they were not both seen", TextAndColumns),
    ("ack_rtt_ns", "ns", "from SYN+ACK to the ACK that answers it", "they were not both seen", TextAndColumns),
    ("lost", "packets", "that the interface lost in the seconds of this record", "", TextAndColumns),
];

const NO_PACKETS: &str = "the direction has no packets";
const NO_GAPS: &str = "there is no gap";

const SIDE: &[FieldRow] = &[
    ("packets", "packets", "packets", "", TextAndColumns),
    ("bytes", "bytes", "frames on the wire, without FCS", "", TextAndColumns),
    ("link_bytes", "bytes", "of those, outside of the IP packets", "", TextAndColumns),
    ("header_bytes", "bytes", "of those, IP and transport headers", "", TextAndColumns),
    ("ip_bytes", "bytes", "IP packets on the wire, what NetFlow counts: `bytes - link_bytes`", "", TextOnly),
    ("payload_bytes", "bytes", "what the packets carried: `bytes - link_bytes - header_bytes`", "", TextOnly),
    ("payload_packets", "packets", "packets that carried anything above the transport", "", TextAndColumns),
    ("first", "", "first packet in this record: `first` and `start_ns`", NO_PACKETS, TextOnly),
    ("last", "", "last packet: `first`, `start_ns` and `iat_sum_ns`, less `iat_carry_ns`", NO_PACKETS, TextOnly),
    ("start_ns", "ns", "from the record's `first` to the direction's first packet in it", NO_PACKETS, TextAndColumns),
    ("length_min", "bytes", "shortest IP packet", NO_PACKETS, TextAndColumns),
    ("length_mean", "bytes", "mean of the lengths", NO_PACKETS, TextOnly),
    ("length_dev", "bytes", "their sample deviation (n - 1)", "there are fewer than two packets", TextOnly),
    ("length_max", "bytes", "longest IP packet", NO_PACKETS, TextAndColumns),
    (
        "length_squares",
        "",
        "squares of the lengths together: deviations of any union of records follow",
        NO_PACKETS,
        ColumnsOnly,
    ),
    (
        "iat_count",
        "gaps",
        "inter-arrival times that the next ones speak of; that to the record before belongs to this one",
        "",
        TextAndColumns,
    ),
    ("iat_min_ns", "ns", "shortest inter-arrival time", NO_GAPS, TextAndColumns),
    ("iat_mean_ns", "ns", "mean of them", NO_GAPS, TextOnly),
    ("iat_dev_ns", "ns", "their sample deviation (n - 1)", "there are fewer than two gaps", TextOnly),
    ("iat_max_ns", "ns", "longest", NO_GAPS, TextAndColumns),
    ("iat_sum_ns", "ns", "all of them together", NO_GAPS, TextAndColumns),
    ("iat_squares", "", "their squares together", NO_GAPS, ColumnsOnly),
    (
        "iat_carry_ns",
        "ns",
        "of `iat_sum_ns`, before this record's first packet: 0 in a flow's first record",
        "",
        TextAndColumns,
    ),
    ("fin", "packets", "with FIN", "", TextAndColumns),
    ("syn", "packets", "with SYN", "", TextAndColumns),
    ("rst", "packets", "with RST", "", TextAndColumns),
    ("psh", "packets", "with PSH", "", TextAndColumns),
    ("ack", "packets", "with ACK", "", TextAndColumns),
    ("urg", "packets", "with URG", "", TextAndColumns),
    ("ece", "packets", "with ECE", "", TextAndColumns),
    ("cwr", "packets", "with CWR", "", TextAndColumns),
    ("zero_window", "packets", "that advertised a window of zero, without RST", "", TextAndColumns),
    ("retransmitted", "packets", "whose bytes were all sent before", "", TextAndColumns),
    ("retransmitted_bytes", "bytes", "their payload", "", TextAndColumns),
    ("out_of_order", "packets", "that came behind bytes that follow them", "", TextAndColumns),
    ("ttl_min", "hops", "least TTL or hop limit", NO_PACKETS, TextAndColumns),
    ("ttl_max", "hops", "greatest", NO_PACKETS, TextAndColumns),
    ("dscp_min", "", "least DSCP", NO_PACKETS, TextAndColumns),
    ("dscp_max", "", "greatest", NO_PACKETS, TextAndColumns),
    ("mac", "", "link address that sent its first frame", "no frame of it had an Ethernet header", TextAndColumns),
    (
        "tunnel_seq_first",
        "",
        "sequence number in the tunnel (ERSPAN, GRE, GTP-U) of its first packet that had one",
        "none had",
        TextAndColumns,
    ),
    (
        "tunnel_seq_last",
        "",
        "that of the last one; others than this flow's packets lie between",
        "none had",
        TextAndColumns,
    ),
    ("payload", "", "first bytes carried (text: hexadecimal)", "none are kept", TextAndColumns),
];

const TAIL: &[FieldRow] = &[
    (
        "initial_lengths",
        "bytes",
        "of each of the first packets: length of the IP packet, negative from dst (of a length of 0: -2147483648)",
        "",
        TextAndColumns,
    ),
    ("initial_flags", "", "the same: TCP's flags as a number", "", TextAndColumns),
    ("initial_iats_ns", "ns", "the same: time since the packet before it, 0 for the first", "", TextAndColumns),
    ("queue", "", "whose packet files the packets are in", "they are not stored", TextAndColumns),
    (
        "position",
        "bytes",
        "where the first packet's record lies in the stream of the queue",
        "they are not stored",
        TextAndColumns,
    ),
    ("position_span", "bytes", "from there to where the last one's lies", "they are not stored", TextAndColumns),
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
    fn no_name_is_there_twice() {
        let mut names: Vec<&str> = fields().iter().map(|field| &*field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), fields().len());
    }
}
