//! The table of exported flow record fields: element, octets on the wire, and how it is read from a [`flow::Record`]
//! and written back into one. Templates, encoders, the decoder and the tables of docs/reference/export.md are made from
//! it.
//!
//! Every field of fixed length is a number: addresses, MAC addresses, NTP timestamps and the bits of a float are
//! numbers of that many octets. So two functions per field suffice, and reduced-size encoding (RFC 7011, section 6.2)
//! needs nothing more.

use crate::element::{DataType, Element, Semantics, Unit, VARIABLE, from_ntp, segment, to_ntp, tunnel_kind};
use flow::{EndReason, Record, TcpState};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;
use wire::{IpProtocol, MacAddr};

/// Tells which templates contain a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateScope {
    Always,
    V4,
    V6,
    IcmpV4,
    IcmpV6,
}

/// The functions that read a field from a flow record and write it into a flow record. Their argument `side` selects
/// the direction by its sender: 0 if the source of the record is the sender, 1 if its destination is the sender.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// A number that occurs once per record.
    Flow { get: fn(&Record, usize) -> u128, set: fn(&mut Draft, u128) },
    /// A number that occurs once per direction. `get` and `set` receive `index`, which selects one of several numbers
    /// that the same functions access.
    Direction { get: fn(&Record, usize, usize) -> u128, set: fn(&mut Draft, usize, usize, u128), index: usize },
    /// A list with one element of `len` octets per initial packet.
    InitialPacket {
        of: u16,
        own: bool,
        len: u16,
        get: fn(&Record, usize) -> u128,
        set: fn(&mut DraftInitialPacket, u128),
    },
    /// The first payload bytes of a direction.
    Payload,
}

/// An entry of the table.
pub(crate) struct Field {
    pub element: Element,
    /// Length of the exported field in octets, or [`VARIABLE`].
    pub len: u16,
    pub when: TemplateScope,
    pub body: Body,
}

impl Field {
    /// True if the field occurs once per direction.
    pub fn is_directional(&self) -> bool {
        matches!(self.body, Body::Direction { .. } | Body::Payload)
    }
}

/// A record that is being decoded, with values that can only be converted once all fields are known.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub record: Record,
    /// True if the record's source is the flow's destination (biflowDirection 2).
    pub reversed: bool,
    pub initial_packets: Vec<DraftInitialPacket>,
    pub location: flow::PacketLocation,
    pub tunnel: (u128, u32),
    /// For each side, true if a packet that it sent had a tunnel sequence number.
    pub numbered: [bool; 2],
}

/// An initial packet of a [`Draft`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DraftInitialPacket {
    pub at: base::Timestamp,
    pub length: u16,
    pub flags: u8,
    pub reverse: bool,
}

impl Default for Draft {
    fn default() -> Self {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let key = flow::Key { src: unspecified, dst: unspecified, src_port: 0, dst_port: 0, protocol: IpProtocol(0) };
        let record = Record {
            id: 0,
            key,
            encapsulation: flow::Encapsulation::default(),
            interface: 0,
            flow_start: base::Timestamp::ZERO,
            record_index: 0,
            directions: [flow::DirectionStats::default(); 2],
            end_reason: EndReason::ForcedEnd,
            tcp_state: TcpState::None,
            syn_rtt: None,
            ack_rtt: None,
            initial_packets: Vec::new(),
            payload: [Vec::new(), Vec::new()],
            location: None,
            lost: 0,
        };
        Self {
            record,
            reversed: false,
            initial_packets: Vec::new(),
            location: NOWHERE,
            tunnel: (0, 0),
            numbered: [false; 2],
        }
    }
}

/// The encoded location of a record without a location: no real position is that large.
const NOWHERE: flow::PacketLocation = flow::PacketLocation { queue: u16::MAX, first: u64::MAX, last: u64::MAX };

impl Draft {
    /// Completes the record after all fields have been set; `None` if its addresses are missing or belong to different
    /// address families.
    pub fn finish(self) -> Option<Record> {
        let mut record = self.record;
        if record.key.src.is_ipv4() != record.key.dst.is_ipv4() {
            return None;
        }
        record.location = (self.location != NOWHERE).then_some(self.location);
        record.encapsulation.tunnel = tunnel_kind(self.tunnel.0).map(|kind| (kind, self.tunnel.1));
        for (side, is_numbered) in record.directions.iter_mut().zip(self.numbered) {
            side.tunnel_sequence = side.tunnel_sequence.filter(|_| is_numbered);
            if side.packets == 0 {
                (side.first, side.last) = (base::Timestamp::ZERO, base::Timestamp::ZERO);
            }
            side.length.sum = side.ip_bytes;
        }
        // In a record without our own elements, the begin of the flow is unknown and is replaced by the begin of the
        // record.
        if record.flow_start == base::Timestamp::ZERO {
            record.flow_start = record.first();
        }
        let flow_start = record.flow_start;
        let convert = |e: &DraftInitialPacket| flow::InitialPacket {
            offset_ns: e.at.nanos().saturating_sub(flow_start.nanos()),
            length: e.length,
            flags: e.flags,
            reverse: e.reverse,
        };
        record.initial_packets = self.initial_packets.iter().map(convert).collect();
        if self.reversed {
            record.directions.swap(0, 1);
            record.payload.swap(0, 1);
            let key = &mut record.key;
            (key.src, key.dst) = (key.dst, key.src);
            if !is_icmp(key) {
                (key.src_port, key.dst_port) = (key.dst_port, key.src_port);
            }
        }
        Some(record)
    }
}

/// True if a key has ICMP type and code in place of ports.
pub(crate) fn is_icmp(key: &flow::Key) -> bool {
    match key.src {
        IpAddr::V4(_) => key.protocol == IpProtocol::ICMP,
        IpAddr::V6(_) => key.protocol == IpProtocol::ICMPV6,
    }
}

/// Returns the source and the destination port of the packets that `side` sent. For ICMP, the two fields hold type and
/// code, which are the same for both sides.
fn ports(record: &Record, side: usize) -> (u16, u16) {
    let (src, dst) = (record.key.src_port, record.key.dst_port);
    if side == 0 || is_icmp(&record.key) { (src, dst) } else { (dst, src) }
}

pub(crate) fn address(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

fn v4(value: u128) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(value as u32))
}

fn v6(value: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(value))
}

/// A missing address is encoded as 0; interfaces without a MAC address have the address 0 too.
fn mac(address: Option<MacAddr>) -> u128 {
    address.map_or(0, |a| a.0.iter().fold(0, |n, b| n << 8 | u128::from(*b)))
}

fn to_mac(value: u128) -> Option<MacAddr> {
    let [_, _, mac @ ..] = (value as u64).to_be_bytes();
    (mac != [0; 6]).then_some(MacAddr(mac))
}

/// The union of the TCP flags in the packets that `side` sent.
pub(crate) fn flags_union(record: &Record, side: usize) -> u8 {
    record.directions[side].flags.iter().enumerate().fold(0, |bits, (bit, n)| bits | u8::from(*n > 0) << bit)
}

/// The time of the first packet that `side` sent.
///
/// An exporter writes a direction without packets only if the record has no packet at all
/// ([`crate::template::directions`]); RFC 7011 and RFC 5103 have no rule for its times. Both times are then the begin
/// of the flow, so that the duration is 0, and the collector does not interpret 0 as 1970.
pub(crate) fn first(record: &Record, side: usize) -> base::Timestamp {
    if record.directions[side].packets == 0 { record.flow_start } else { record.directions[side].first }
}

/// The time of the last packet that `side` sent; see [`first`] for a direction without packets.
pub(crate) fn last(record: &Record, side: usize) -> base::Timestamp {
    if record.directions[side].packets == 0 { record.flow_start } else { record.directions[side].last }
}

fn millis(t: base::Timestamp) -> u128 {
    u128::from(t.nanos() / 1_000_000)
}

fn from_millis(value: u128) -> base::Timestamp {
    base::Timestamp::from_nanos((value as u64).saturating_mul(1_000_000))
}

/// An MPLS label as a label stack entry: three octets, of which the last bit marks the bottom of the stack. The bit is
/// set for label 0 (explicit null), so that label 0 differs from no label.
fn label(label: Option<u32>) -> u128 {
    label.map_or(0, |l| u128::from(l & 0xf_ffff) << 4 | u128::from(l == 0))
}

/// A number of one direction.
macro_rules! side {
    ($($field:tt)+) => {
        Body::Direction {
            get: |r, side, _| u128::from(r.directions[side].$($field)+),
            set: |d, side, _, v| d.record.directions[side].$($field)+ = v as _,
            index: 0,
        }
    };
}

/// A number that occurs once per record.
fn flow(get: fn(&Record, usize) -> u128, set: fn(&mut Draft, u128)) -> Body {
    Body::Flow { get, set }
}

/// A number that occurs once per direction.
fn direction(get: fn(&Record, usize, usize) -> u128, set: fn(&mut Draft, usize, usize, u128), index: usize) -> Body {
    Body::Direction { get, set, index }
}

/// The fields of an exported flow record, in their order on the wire.
pub(crate) static FLOW: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let mut table = Vec::new();
    keys(&mut table);
    standard(&mut table);
    own(&mut table);
    lists(&mut table);
    table
});

use DataType::*;
use Semantics::{DeltaCounter, Flags, Identifier, List, Quantity, TotalCounter};

/// Collects table entries.
struct Rows<'a> {
    table: &'a mut Vec<Field>,
    own: bool,
}

impl Rows<'_> {
    #[allow(clippy::too_many_arguments, reason = "the arguments are the cells of one row of the field table")]
    fn row(
        &mut self,
        id: u16,
        name: &'static str,
        data_type: DataType,
        semantics: Semantics,
        unit: Unit,
        len: u16,
        when: TemplateScope,
        body: Body,
        meaning: &'static str,
    ) {
        let (name, meaning) = (Cow::Borrowed(name), Cow::Borrowed(meaning));
        let element = Element { is_enterprise: self.own, id, name, data_type, semantics, unit, description: meaning };
        self.table.push(Field { element, len, when, body });
    }
}

#[rustfmt::skip]
fn keys(table: &mut Vec<Field>) {
    use Unit::None;
    use TemplateScope::*;
    let mut t = Rows { table, own: false };
    t.row(8, "sourceIPv4Address", Ipv4Address, Semantics::Default, None, 4, V4,
        flow(|r, s| address([r.key.src, r.key.dst][s]), |d, v| d.record.key.src = v4(v)),
        "source of the record: sender of its packets, or of the first packet in a record of both directions");
    t.row(12, "destinationIPv4Address", Ipv4Address, Semantics::Default, None, 4, V4,
        flow(|r, s| address([r.key.dst, r.key.src][s]), |d, v| d.record.key.dst = v4(v)),
        "destination of the record: receiver of its packets, or of the first packet in a record of both directions");
    t.row(27, "sourceIPv6Address", Ipv6Address, Semantics::Default, None, 16, V6,
        flow(|r, s| address([r.key.src, r.key.dst][s]), |d, v| d.record.key.src = v6(v)),
        "source of the record: sender of its packets, or of the first packet in a record of both directions");
    t.row(28, "destinationIPv6Address", Ipv6Address, Semantics::Default, None, 16, V6,
        flow(|r, s| address([r.key.dst, r.key.src][s]), |d, v| d.record.key.dst = v6(v)),
        "destination of the record: receiver of its packets, or of the first packet in a record of both directions");
    t.row(7, "sourceTransportPort", Unsigned16, Identifier, None, 2, Always,
        flow(|r, s| ports(r, s).0.into(), |d, v| d.record.key.src_port = v as u16),
        "source port; 0 for protocols without ports and for ICMP");
    t.row(11, "destinationTransportPort", Unsigned16, Identifier, None, 2, Always,
        flow(|r, s| ports(r, s).1.into(), |d, v| d.record.key.dst_port = v as u16),
        "destination port; 0 for protocols without ports; for ICMP and ICMPv6, type × 256 + code of the first packet, \
         as in NetFlow");
    t.row(32, "icmpTypeCodeIPv4", Unsigned16, Identifier, None, 2, IcmpV4,
        flow(|r, _| r.key.dst_port.into(), |d, v| d.record.key.dst_port = v as u16),
        "type × 256 + code of the first packet; the same in both directions");
    t.row(139, "icmpTypeCodeIPv6", Unsigned16, Identifier, None, 2, IcmpV6,
        flow(|r, _| r.key.dst_port.into(), |d, v| d.record.key.dst_port = v as u16),
        "as icmpTypeCodeIPv4, for ICMPv6");
    t.row(4, "protocolIdentifier", Unsigned8, Identifier, None, 1, Always,
        flow(|r, _| r.key.protocol.0.into(), |d, v| d.record.key.protocol = IpProtocol(v as u8)),
        "the protocol above IP");
    t.row(10, "ingressInterface", Unsigned32, Identifier, None, 4, Always,
        flow(|r, _| r.interface.into(), |d, v| d.record.interface = v as u16),
        "number of the interface; an options record has its name");
    t.row(148, "flowId", Unsigned64, Identifier, None, 8, Always,
        flow(|r, _| r.id.into(), |d, v| d.record.id = v as u64),
        "identifier of the flow, the same in all its records");
}

#[rustfmt::skip]
fn standard(table: &mut Vec<Field>) {
    use Unit::*;
    use TemplateScope::Always;
    let mut t = Rows { table, own: false };
    // These elements in milliseconds are for collectors that do not support nanoseconds (nfdump 1.7 among them). The
    // elements in nanoseconds follow.
    t.row(152, "flowStartMilliseconds", DateTimeMilliseconds, Semantics::Default, Milliseconds, 8, Always,
        flow(|r, s| millis(first(r, s)), |d, v| d.record.directions[0].first = from_millis(v)),
        "time of the first packet of the source in this record");
    t.row(153, "flowEndMilliseconds", DateTimeMilliseconds, Semantics::Default, Milliseconds, 8, Always,
        flow(|r, s| millis(last(r, s)), |d, v| d.record.directions[0].last = from_millis(v)),
        "time of the last packet of the source in this record");
    t.row(156, "flowStartNanoseconds", DateTimeNanoseconds, Semantics::Default, Nanoseconds, 8, Always,
        direction(|r, s, _| to_ntp(first(r, s)), |d, s, _, v| d.record.directions[s].first = from_ntp(v), 0),
        "time of the first packet of this record");
    t.row(157, "flowEndNanoseconds", DateTimeNanoseconds, Semantics::Default, Nanoseconds, 8, Always,
        direction(|r, s, _| to_ntp(last(r, s)), |d, s, _, v| d.record.directions[s].last = from_ntp(v), 0),
        "time of the last packet of this record");
    t.row(2, "packetDeltaCount", Unsigned64, DeltaCounter, Packets, 8, Always, side!(packets), "number of packets");
    t.row(1, "octetDeltaCount", Unsigned64, DeltaCounter, Octets, 8, Always,
        side!(ip_bytes), "octets of the IP packets");
    t.row(352, "layer2OctetDeltaCount", Unsigned64, DeltaCounter, Octets, 8, Always, side!(bytes), "octets of the \
     frames on the wire");
    t.row(401, "transportOctetDeltaCount", Unsigned64, DeltaCounter, Octets, 8, Always,
        side!(payload_bytes), "payload octets of the transport protocol");
    t.row(402, "transportPacketDeltaCount", Unsigned64, DeltaCounter, Packets, 8, Always,
        side!(payload_packets), "packets with transport payload");
    t.row(198, "octetDeltaSumOfSquares", Unsigned64, DeltaCounter, None, 8, Always, side!(length.squares), "sum of \
     the squares of the lengths of the IP packets; at most 2^64 - 1");
    t.row(25, "minimumIpTotalLength", Unsigned64, Semantics::Default, Octets, 4, Always, side!(length.min), "shortest \
     IP packet");
    t.row(26, "maximumIpTotalLength", Unsigned64, Semantics::Default, Octets, 4, Always, side!(length.max), "longest \
     IP packet");
    t.row(6, "tcpControlBits", Unsigned16, Flags, None, 2, Always,
        direction(|r, s, _| flags_union(r, s).into(), |_, _, _, _| (), 0),
        "union of the TCP flags of the packets");
    for (id, name, index, meaning) in [
        (219, "tcpFinTotalCount", 0, "packets of this record with FIN"),
        (218, "tcpSynTotalCount", 1, "packets of this record with SYN"),
        (220, "tcpRstTotalCount", 2, "packets of this record with RST"),
        (221, "tcpPshTotalCount", 3, "packets of this record with PSH"),
        (222, "tcpAckTotalCount", 4, "packets of this record with ACK"),
        (223, "tcpUrgTotalCount", 5, "packets of this record with URG"),
    ] {
        t.row(id, name, Unsigned64, TotalCounter, Packets, 8, Always,
            direction(
                |r, s, i| r.directions[s].flags[i].into(),
                |d, s, i, v| d.record.directions[s].flags[i] = v as u64,
                index,
            ),
            meaning);
    }
    t.row(52, "minimumTTL", Unsigned8, Semantics::Default, Hops, 1, Always, side!(ttl.0), "least TTL or hop limit");
    t.row(53, "maximumTTL", Unsigned8, Semantics::Default, Hops, 1, Always, side!(ttl.1), "greatest TTL or hop limit");
    t.row(5, "ipClassOfService", Unsigned8, Identifier, None, 1, Always,
        direction(
            |r, s, _| u128::from(r.directions[s].dscp.0 << 2),
            |d, s, _, v| d.record.directions[s].dscp.0 = v as u8 >> 2,
            0,
        ),
        "least DSCP × 4; the greatest DSCP is in maximumDiffServCodePoint");
    t.row(56, "sourceMacAddress", MacAddress, Semantics::Default, None, 6, Always,
        flow(|r, s| mac(r.directions[s].mac), |d, v| d.record.directions[0].mac = to_mac(v)),
        "MAC address of the source; 0 if unknown");
    t.row(80, "destinationMacAddress", MacAddress, Semantics::Default, None, 6, Always,
        flow(|r, s| mac(r.directions[1 - s].mac), |d, v| d.record.directions[1].mac = to_mac(v)),
        "MAC address of the destination, known only if it has sent packets; 0 if unknown");
    t.row(58, "vlanId", Unsigned16, Identifier, None, 2, Always,
        flow(
            |r, _| r.encapsulation.vlans[0].unwrap_or(0).into(),
            |d, v| d.record.encapsulation.vlans[0] = (v != 0).then_some(v as u16),
        ),
        "outer VLAN; 0 if there is none");
    t.row(243, "dot1qVlanId", Unsigned16, Identifier, None, 2, Always,
        flow(
            |r, _| r.encapsulation.vlans[0].unwrap_or(0).into(),
            |d, v| d.record.encapsulation.vlans[0] = (v != 0).then_some(v as u16),
        ),
        "outer VLAN; equal to vlanId");
    t.row(245, "dot1qCustomerVlanId", Unsigned16, Identifier, None, 2, Always,
        flow(
            |r, _| r.encapsulation.vlans[1].unwrap_or(0).into(),
            |d, v| d.record.encapsulation.vlans[1] = (v != 0).then_some(v as u16),
        ),
        "inner VLAN; 0 if there is none");
    t.row(70, "mplsTopLabelStackSection", OctetArray, Semantics::Default, None, 3, Always,
        flow(
            |r, _| label(r.encapsulation.mpls),
            |d, v| d.record.encapsulation.mpls = (v != 0).then_some((v >> 4) as u32 & 0xf_ffff),
        ),
        "topmost MPLS label; 0 if there is none");
    t.row(351, "layer2SegmentId", Unsigned64, Identifier, None, 8, Always,
        flow(|r, _| segment(r.encapsulation.tunnel), |_, _| ()),
        "VNI of a VXLAN tunnel or VSID of an NVGRE tunnel; 0 for other tunnels, which tunnelKind and tunnelId \
         describe");
    t.row(136, "flowEndReason", Unsigned8, Identifier, None, 1, Always,
        flow(|r, _| r.end_reason as u128, |d, v| d.record.end_reason = end_reason(v)),
        "1 idle timeout, 2 active timeout, 3 end of flow, 4 forced end, 5 lack of resources");
    t.row(239, "biflowDirection", Unsigned8, Identifier, None, 1, Always,
        flow(|_, s| 1 + s as u128, |d, v| d.reversed = v == 2),
        "1: the source is the initiator; 2: the destination is the initiator (a record of the reverse direction only)");
}

#[rustfmt::skip]
fn own(table: &mut Vec<Field>) {
    use Unit::*;
    use TemplateScope::Always;
    let mut t = Rows { table, own: true };
    t.row(1, "flowFirstPacketNanoseconds", DateTimeNanoseconds, Semantics::Default, Nanoseconds, 8, Always,
        flow(|r, _| to_ntp(r.flow_start), |d, v| d.record.flow_start = from_ntp(v)),
        "time of the first packet of the flow, which may be in an earlier record");
    t.row(2, "flowRecordIndex", Unsigned32, Identifier, None, 4, Always,
        flow(|r, _| r.record_index.into(), |d, v| d.record.record_index = v as u32),
        "number of earlier records of this flow");
    t.row(3, "tcpState", Unsigned8, Identifier, None, 1, Always,
        flow(|r, _| r.tcp_state as u128, |d, v| d.record.tcp_state = tcp_state(v)),
        "0 not TCP, 1 midstream, 2 SYN sent, 3 SYN received, 4 established, 5 half closed, 6 closed, 7 reset");
    t.row(4, "synRoundTrip", Unsigned64, Quantity, Nanoseconds, 8, Always,
        flow(|r, _| r.syn_rtt.unwrap_or(0).into(), |d, v| d.record.syn_rtt = (v != 0).then_some(v as u64)),
        "time from SYN to SYN+ACK; 0 if not seen");
    t.row(5, "ackRoundTrip", Unsigned64, Quantity, Nanoseconds, 8, Always,
        flow(|r, _| r.ack_rtt.unwrap_or(0).into(), |d, v| d.record.ack_rtt = (v != 0).then_some(v as u64)),
        "time from SYN+ACK to the ACK; 0 if not seen");
    t.row(6, "tunnelKind", Unsigned8, Identifier, None, 1, Always,
        flow(|r, _| r.encapsulation.tunnel.map_or(0, |(kind, _)| kind as u128), |d, v| d.tunnel.0 = v),
        "0 none, 1 GRE, 2 NVGRE, 3-5 ERSPAN I-III, 6 VXLAN, 7 GENEVE, 8 GTP-U, 9 IP in IP, 10 Teredo");
    t.row(7, "tunnelId", Unsigned32, Identifier, None, 4, Always,
        flow(|r, _| r.encapsulation.tunnel.map_or(0, |(_, id)| id.into()), |d, v| d.tunnel.1 = v as u32),
        "identifier of the tunnel: VNI, VSID, TEID, session or key");
    t.row(8, "packetLocationQueue", Unsigned16, Identifier, None, 2, Always,
        flow(|r, _| r.location.unwrap_or(NOWHERE).queue.into(), |d, v| d.location.queue = v as u16),
        "queue whose packet files contain the packets of this record; if no packets are stored, all bits of \
         packetLocationQueue, packetLocationFirst and packetLocationLast are ones");
    t.row(9, "packetLocationFirst", Unsigned64, Identifier, Octets, 8, Always,
        flow(|r, _| r.location.unwrap_or(NOWHERE).first.into(), |d, v| d.location.first = v as u64),
        "stream position of the first packet of the record, in the queue of packetLocationQueue");
    t.row(10, "packetLocationLast", Unsigned64, Identifier, Octets, 8, Always,
        flow(|r, _| r.location.unwrap_or(NOWHERE).last.into(), |d, v| d.location.last = v as u64),
        "stream position of the last packet of the record, in the queue of packetLocationQueue");
    t.row(11, "interfaceLostPackets", Unsigned64, DeltaCounter, Packets, 8, Always,
        flow(|r, _| r.lost.into(), |d, v| d.record.lost = v as u64),
        "packets lost on the interface in the seconds from the first to the last packet of this record");
    t.row(20, "interArrivalTimeCount", Unsigned64, DeltaCounter, None, 8, Always, side!(iat_count), "number of \
     inter-arrival times of one direction");
    t.row(21, "interArrivalTimeSum", Unsigned64, DeltaCounter, Nanoseconds, 8, Always, side!(iat.sum), "sum of the \
     inter-arrival times; the mean is interArrivalTimeSum / interArrivalTimeCount");
    t.row(22, "interArrivalTimeMinimum", Unsigned64, Quantity, Nanoseconds, 8, Always, side!(iat.min), "shortest \
     inter-arrival time");
    t.row(23, "interArrivalTimeMaximum", Unsigned64, Quantity, Nanoseconds, 8, Always, side!(iat.max), "longest \
     inter-arrival time");
    t.row(24, "interArrivalTimeDeviation", Float64, Quantity, Nanoseconds, 8, Always,
        direction(
            |r, s, _| r.directions[s].iat.deviation(r.directions[s].iat_count).to_bits().into(),
            |_, _, _, _| (),
            0,
        ),
        "sample standard deviation of the inter-arrival times");
    t.row(25, "interArrivalTimeSumOfSquares", OctetArray, Semantics::Default, None, 16, Always,
        side!(iat.squares),
        "exact sum of the squares of the inter-arrival times, in 16 octets, from which the standard deviation over \
         several records can be computed");
    for (id, name, index, meaning) in [
        (26, "tcpEcePackets", 6, "packets with ECE"),
        (27, "tcpCwrPackets", 7, "packets with CWR"),
    ] {
        t.row(id, name, Unsigned64, DeltaCounter, Packets, 8, Always,
            direction(
                |r, s, i| r.directions[s].flags[i].into(),
                |d, s, i, v| d.record.directions[s].flags[i] = v as u64,
                index,
            ),
            meaning);
    }
    t.row(28, "zeroWindowPackets", Unsigned64, DeltaCounter, Packets, 8, Always, side!(zero_window), "packets that \
     advertised a window of zero (without RST)");
    t.row(29, "retransmittedPackets", Unsigned64, DeltaCounter, Packets, 8, Always, side!(retransmitted), "packets \
     whose payload was completely sent before");
    t.row(30, "retransmittedOctets", Unsigned64, DeltaCounter, Octets, 8, Always,
        side!(retransmitted_bytes), "payload octets of the retransmitted packets");
    t.row(31, "outOfOrderPackets", Unsigned64, DeltaCounter, Packets, 8, Always, side!(out_of_order), "packets that \
     arrived after packets with later sequence numbers");
    t.row(32, "maximumDiffServCodePoint", Unsigned8, Identifier, None, 1, Always, side!(dscp.1), "greatest DSCP");
    t.row(34, "tunnelSequenceKnown", Unsigned8, Identifier, None, 1, Always,
        direction(|r, s, _| r.directions[s].tunnel_sequence.is_some().into(), |d, s, _, v| d.numbered[s] = v != 0, 0),
        "1 if a packet had a tunnel sequence number (ERSPAN, GRE, GTP-U); otherwise 0: then tunnelSequenceFirst and \
         tunnelSequenceLast are invalid");
    t.row(35, "tunnelSequenceFirst", Unsigned32, Identifier, None, 4, Always,
        direction(
            |r, s, _| r.directions[s].tunnel_sequence.map_or(0, |n| n.0).into(),
            |d, s, _, v| d.record.directions[s].tunnel_sequence.get_or_insert_default().0 = v as u32,
            0,
        ),
        "tunnel sequence number of the first packet with such a number");
    t.row(36, "tunnelSequenceLast", Unsigned32, Identifier, None, 4, Always,
        direction(
            |r, s, _| r.directions[s].tunnel_sequence.map_or(0, |n| n.1).into(),
            |d, s, _, v| d.record.directions[s].tunnel_sequence.get_or_insert_default().1 = v as u32,
            0,
        ),
        "tunnel sequence number of the last packet with such a number; packets of other flows in the same tunnel use \
         numbers between the first and the last");
}

#[rustfmt::skip]
fn lists(table: &mut Vec<Field>) {
    use Unit::*;
    use TemplateScope::Always;
    let mut t = Rows { table, own: false };
    let meanings = [
        "list of ipTotalLength (224): lengths of the initial packets of the flow",
        "list of observationTimeNanoseconds (325): times of the initial packets",
        "list of tcpControlBits (6): TCP flags of the initial packets",
        "list of initialPacketReverse (ours, 40): directions of the initial packets",
    ];
    let of = |of, own, len, get, set| Body::InitialPacket { of, own, len, get, set };
    let bodies = [
        of(224, false, 2, |r, i| r.initial_packets[i].length.into(), |e, v| e.length = v as u16),
        of(325, false, 8, |r, i| to_ntp(initial_packet_at(r, i)), |e, v| e.at = from_ntp(v)),
        of(6, false, 1, |r, i| r.initial_packets[i].flags.into(), |e, v| e.flags = v as u8),
        of(INITIAL_PACKET_REVERSE, true, 1, |r, i| r.initial_packets[i].reverse.into(), |e, v| e.reverse = v != 0),
    ];
    for (meaning, body) in meanings.into_iter().zip(bodies) {
        t.row(291, "basicList", BasicList, List, None, VARIABLE, Always, body, meaning);
    }
    t.own = true;
    t.row(33, "transportPayload", OctetArray, Semantics::Default, Octets, VARIABLE, Always, Body::Payload, "first \
     payload bytes of the transport protocol, if the meter keeps them");
}

/// Our element for the direction of an initial packet, which only occurs in a list.
pub(crate) const INITIAL_PACKET_REVERSE: u16 = 40;

/// The definition of [`INITIAL_PACKET_REVERSE`].
pub(crate) fn initial_packet_reverse() -> Element {
    Element {
        is_enterprise: true,
        id: INITIAL_PACKET_REVERSE,
        name: "initialPacketReverse".into(),
        data_type: Unsigned8,
        semantics: Identifier,
        unit: Unit::None,
        description: "element of a list: 0 for a packet of the forward direction, 1 for the reverse direction".into(),
    }
}

fn initial_packet_at(record: &Record, index: usize) -> base::Timestamp {
    record.flow_start.after(std::time::Duration::from_nanos(record.initial_packets[index].offset_ns))
}

fn end_reason(value: u128) -> EndReason {
    use EndReason::*;
    [IdleTimeout, ActiveTimeout, EndOfFlow, ForcedEnd, LackOfResources]
        .into_iter()
        .find(|r| *r as u128 == value)
        .unwrap_or(ForcedEnd)
}

fn tcp_state(value: u128) -> TcpState {
    use TcpState::*;
    [Midstream, SynSent, SynReceived, Established, HalfClosed, Closed, Reset]
        .into_iter()
        .find(|s| *s as u128 == value)
        .unwrap_or(None)
}
