//! The one table of what a flow record is told as: JSON, CSV, `--fields` and the columns of Parquet files have these names, and
//! the same value under each. Units, meanings and the documentation's tables come from here.

use std::borrow::Cow;
use std::sync::LazyLock;

/// Where a field is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// As text and as a column.
    Everywhere,
    /// As text, and as a column of files that are given away: a store has no room for it.
    Given,
    /// As text: columns that are there say the same.
    Text,
    /// As a column: text says the same with other fields.
    Column,
}

impl Told {
    /// Whether JSON and CSV have it.
    pub const fn is_text(self) -> bool {
        !matches!(self, Self::Column)
    }

    /// Whether a Parquet file has it, of a store or given away.
    pub const fn is_column(self) -> bool {
        !matches!(self, Self::Text)
    }
}

/// What can be told of a record.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its unit; empty where there is none.
    pub unit: &'static str,
    /// What it says, as half a sentence.
    pub meaning: &'static str,
    /// When it has no value (null, left out, an empty cell); empty if it always has one.
    pub none: &'static str,
    /// Where.
    pub told: Told,
}

/// All of them, in the order in which they are told.
pub fn fields() -> &'static [Field] {
    static ALL: LazyLock<Vec<Field>> = LazyLock::new(all);
    &ALL
}

/// The field of this name.
pub fn field(name: &str) -> Option<&'static Field> {
    fields().iter().find(|field| field.name == name)
}

/// Name, unit, meaning, when there is none, where.
type Line = (&'static str, &'static str, &'static str, &'static str, Told);

use Told::{Column, Everywhere, Given, Text};

const HEAD: &[Line] = &[
    (
        "id",
        "",
        "the same in all records of one flow: 64 bits as a number without a sign (JSON: in quotes, for readers that round)",
        "",
        Everywhere,
    ),
    ("interface", "", "what the interface is called", "its name is not known", Everywhere),
    ("interface_id", "", "number of the interface, as the meter was given it", "", Everywhere),
    ("began", "", "first packet of the flow, which records after an active timeout continue", "", Text),
    ("age_ns", "ns", "from the flow's first packet to `first`: 0 in a flow's first record", "", Everywhere),
    ("first", "", "first packet in this record", "", Everywhere),
    ("first_nanos", "ns", "of `first`, behind its microsecond: 0 to 999", "", Column),
    ("second", "s", "of `first`, since 1970 (UTC): the key of the series", "", Everywhere),
    ("last", "", "last packet in this record", "", Everywhere),
    ("duration_ns", "ns", "from first to last", "", Everywhere),
    ("part", "records", "records of this flow before this one", "", Everywhere),
    (
        "end_reason",
        "",
        "why it ends: idle, active (it may go on), ended (FIN, RST), forced, lack (of room)",
        "",
        Everywhere,
    ),
    ("src", "", "who sent the first packet", "", Everywhere),
    ("dst", "", "with whom", "", Everywhere),
    ("src_port", "", "port of src; 0 where the protocol has none", "", Everywhere),
    ("dst_port", "", "port of dst; ICMP: type × 256 + code of the first packet", "", Everywhere),
    ("protocol", "", "above IP: its name in filters, or its number", "", Everywhere),
    ("community_id", "", "Community ID version 1, seed 0: how other programs name the same conversation", "", Given),
    ("vlan", "", "id of the outer VLAN tag", "there is no tag", Everywhere),
    ("vlan_inner", "", "id of the tag behind it", "there is no second tag", Everywhere),
    ("mpls", "", "topmost MPLS label", "there is none", Everywhere),
    ("tunnel", "", "what tunnel is around it", "there is none", Everywhere),
    ("tunnel_id", "", "VNI, VSID, TEID, session or key of the tunnel", "there is no tunnel", Everywhere),
    ("packets", "packets", "both directions", "", Everywhere),
    ("bytes", "bytes", "frames on the wire, without FCS, both directions", "", Everywhere),
    ("tcp_state", "", "how far TCP got, by what was seen of it", "it is not TCP", Everywhere),
    ("syn_rtt_ns", "ns", "from SYN to SYN+ACK", "they were not both seen", Everywhere),
    ("ack_rtt_ns", "ns", "from SYN+ACK to the ACK that answers it", "they were not both seen", Everywhere),
    ("lost", "packets", "that the interface lost in the seconds of this record", "", Everywhere),
];

const NO_PACKETS: &str = "the direction has no packets";
const NO_GAPS: &str = "there is no gap";

const SIDE: &[Line] = &[
    ("packets", "packets", "packets", "", Everywhere),
    ("bytes", "bytes", "frames on the wire, without FCS", "", Everywhere),
    ("link_bytes", "bytes", "of those, outside of the IP packets", "", Everywhere),
    ("header_bytes", "bytes", "of those, IP and transport headers", "", Everywhere),
    ("ip_bytes", "bytes", "IP packets on the wire, what NetFlow counts: `bytes - link_bytes`", "", Text),
    ("payload_bytes", "bytes", "what the packets carried: `bytes - link_bytes - header_bytes`", "", Text),
    ("payload_packets", "packets", "packets that carried anything above the transport", "", Everywhere),
    ("first", "", "first packet in this record: `first` and `start_ns`", NO_PACKETS, Text),
    ("last", "", "last packet: `first`, `start_ns` and `gap_sum_ns`, less `wait_ns`", NO_PACKETS, Text),
    ("start_ns", "ns", "from the record's `first` to the direction's first packet in it", NO_PACKETS, Everywhere),
    ("length_min", "bytes", "shortest IP packet", NO_PACKETS, Everywhere),
    ("length_mean", "bytes", "mean of the lengths", NO_PACKETS, Text),
    ("length_dev", "bytes", "their sample deviation (n - 1)", "there are fewer than two packets", Text),
    ("length_max", "bytes", "longest IP packet", NO_PACKETS, Everywhere),
    (
        "length_squares",
        "",
        "squares of the lengths together: deviations of any union of records follow",
        NO_PACKETS,
        Column,
    ),
    (
        "gaps",
        "gaps",
        "inter-arrival times that the next ones speak of; that to the record before belongs to this one",
        "",
        Everywhere,
    ),
    ("gap_min_ns", "ns", "shortest inter-arrival time", NO_GAPS, Everywhere),
    ("gap_mean_ns", "ns", "mean of them", NO_GAPS, Text),
    ("gap_dev_ns", "ns", "their sample deviation (n - 1)", "there are fewer than two gaps", Text),
    ("gap_max_ns", "ns", "longest", NO_GAPS, Everywhere),
    ("gap_sum_ns", "ns", "all of them together", NO_GAPS, Everywhere),
    ("gap_squares", "", "their squares together", NO_GAPS, Column),
    ("wait_ns", "ns", "of `gap_sum_ns`, before this record's first packet: 0 in a flow's first record", "", Everywhere),
    ("fin", "packets", "with FIN", "", Everywhere),
    ("syn", "packets", "with SYN", "", Everywhere),
    ("rst", "packets", "with RST", "", Everywhere),
    ("psh", "packets", "with PSH", "", Everywhere),
    ("ack", "packets", "with ACK", "", Everywhere),
    ("urg", "packets", "with URG", "", Everywhere),
    ("ece", "packets", "with ECE", "", Everywhere),
    ("cwr", "packets", "with CWR", "", Everywhere),
    ("zero_window", "packets", "that advertised a window of zero, without RST", "", Everywhere),
    ("retransmitted", "packets", "whose bytes were all sent before", "", Everywhere),
    ("retransmitted_bytes", "bytes", "their payload", "", Everywhere),
    ("out_of_order", "packets", "that came behind bytes that follow them", "", Everywhere),
    ("ttl_min", "hops", "least TTL or hop limit", NO_PACKETS, Everywhere),
    ("ttl_max", "hops", "greatest", NO_PACKETS, Everywhere),
    ("dscp_min", "", "least DSCP", NO_PACKETS, Everywhere),
    ("dscp_max", "", "greatest", NO_PACKETS, Everywhere),
    ("mac", "", "link address that sent its first frame", "no frame of it had an Ethernet header", Everywhere),
    (
        "tunnel_seq_first",
        "",
        "sequence number in the tunnel (ERSPAN, GRE, GTP-U) of its first packet that had one",
        "none had",
        Everywhere,
    ),
    (
        "tunnel_seq_last",
        "",
        "that of the last one; others than this flow's packets lie between",
        "none had",
        Everywhere,
    ),
    ("payload", "", "first bytes carried (text: hexadecimal)", "none are kept", Everywhere),
];

const TAIL: &[Line] = &[
    (
        "early_lengths",
        "bytes",
        "of each of the first packets: length of the IP packet, negative from dst (of a length of 0: -2147483648)",
        "",
        Everywhere,
    ),
    ("early_flags", "", "the same: TCP's flags as a number", "", Everywhere),
    ("early_gaps_ns", "ns", "the same: time since the packet before it, 0 for the first", "", Everywhere),
    ("queue", "", "whose packet files the packets are in", "they are not stored", Everywhere),
    (
        "position",
        "bytes",
        "where the first packet's record lies in the stream of the queue",
        "they are not stored",
        Everywhere,
    ),
    ("position_span", "bytes", "from there to where the last one's lies", "they are not stored", Everywhere),
];

fn all() -> Vec<Field> {
    let line = |prefix: &str, (name, unit, meaning, none, told): &Line| Field {
        name: match prefix {
            "" => Cow::Borrowed(*name),
            prefix => Cow::Owned(format!("{prefix}_{name}")),
        },
        unit,
        meaning,
        none,
        told: *told,
    };
    let part = |prefix: &'static str, lines: &'static [Line]| lines.iter().map(move |l| line(prefix, l));
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
