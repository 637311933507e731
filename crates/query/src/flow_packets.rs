//! The packets of flow records: tests each packet for membership in one of the given flows.
//!
//! A packet belongs to a flow if four conditions are met. (1) Its innermost addresses, protocol, ports, VLAN ids and
//! tunnel equal those of a record of the flow. The innermost headers are compared because the meter uses them; later
//! fragments inherit the ports of the first fragment. (2) The record counts packets in the direction of the packet. (3)
//! The stream position of the packet lies between those of the first and the last packet of the record. If the position
//! is unknown (in RAW files and in files without an index), or if the packet arrived on another queue than the first
//! packet of the record, the timestamp of the packet must lie between those of the first and the last packet of the
//! record instead. (4) If the position is known, the timestamp may be earlier than the record's start by at most
//! [`LATE`]. The timestamp is tested because stream positions start at 0 in each recording. It may be earlier because
//! the meter counts an out-of-order packet with the timestamp of the preceding packet.
//!
//! Limit: if the meter ran without VLAN ids or tunnels in the flow key, its records count packets that this search does
//! not find, so the packet counts differ.

use crate::found_packet::{FoundPacket, Origin};
use crate::query::{Query, SeekHint};
use base::Timestamp;
use columns::{ColumnsError, FlowLoop, Step};
use filter::{Filter, FilterError};
use flow::{PacketLocation, Record};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;
use store::names;
use store::out_of_order::OutOfOrderMarkers;
use wire::{Decoded, Family, Fragments, IpProtocol, TunnelKind};

/// The largest number of host pairs in the filter with which an index excludes blocks.
const PAIRS_MAX: usize = 100;

/// A packet of a flow record may be earlier than the start of the record by at most this time, because the meter
/// corrects out-of-order timestamps with a resolution of whole seconds.
const LATE: Duration = flow::STEP_BACK.saturating_add(Duration::from_secs(1));

/// Protocol, both endpoints in the order of their addresses, VLAN ids and tunnel: equal for both directions of a flow.
type BiflowKey = (IpProtocol, (IpAddr, u16), (IpAddr, u16), [Option<u16>; 2], Option<(TunnelKind, u32)>);

/// The extent of one flow record in time and in the stream of a queue.
struct Span {
    first: Timestamp,
    last: Timestamp,
    /// For each direction (from the lesser to the greater endpoint, and the reverse), true if the record counts packets
    /// in it.
    directions: [bool; 2],
    /// The stream positions of the packets of one queue, if known.
    place: Option<PositionRange>,
}

/// Stream positions in one queue.
struct PositionRange {
    /// Number in [`FlowPackets::interfaces`].
    interface: usize,
    queue: u16,
    positions: RangeInclusive<u64>,
}

impl Span {
    /// True if a packet is within this extent of a flow record: by its timestamp and, if known, also by its stream
    /// position. The caller has compared the flow keys; `by` is the interface and the queue of the packet.
    fn has(&self, found: &FoundPacket<'_>, by: (Option<usize>, u16)) -> bool {
        let is_there = |place: &&PositionRange| (Some(place.interface), place.queue) == by;
        match (self.place.as_ref().filter(is_there), found.position) {
            (Some(place), Some(position)) => {
                place.positions.contains(&position) && (self.first.before(LATE)..=self.last).contains(&found.ts)
            }
            _ => (self.first..=self.last).contains(&found.ts),
        }
    }
}

/// A set of flows; [`FlowPackets::contains`] tests whether a packet belongs to one of them.
pub struct FlowPackets {
    spans: HashMap<BiflowKey, Vec<Span>>,
    interfaces: Vec<String>,
    pairs: HashSet<(IpAddr, IpAddr)>,
    from: Timestamp,
    to: Timestamp,
    flows: HashSet<u64>,
    packets: u64,
    in_tunnels: bool,
    /// The stream positions of the packets of all flows, if all of these packets are in one queue of one interface.
    places: PacketLocations,
    fragments: Fragments,
}

/// The stream positions of all added records, as far as known.
enum PacketLocations {
    Nothing,
    At(SeekHint),
    /// The flow records have stream positions in several queues, or some records have no stream position.
    Anywhere,
}

impl Default for FlowPackets {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowPackets {
    /// A set without flows.
    pub fn new() -> Self {
        Self {
            spans: HashMap::new(),
            interfaces: Vec::new(),
            pairs: HashSet::new(),
            from: Timestamp::MAX,
            to: Timestamp::ZERO,
            flows: HashSet::new(),
            packets: 0,
            in_tunnels: false,
            places: PacketLocations::Nothing,
            // A fixed hash seed is safe here: no sender can attack a table that is filled from files.
            fragments: Fragments::new(0),
        }
    }

    /// Adds a flow record of this interface, so that its packets belong to the set.
    pub fn add(&mut self, record: &Record, interface: &str) {
        let k = &record.key;
        let (first, last) = (record.first(), record.last());
        let (a, b) = ((k.src, k.src_port), (k.dst, k.dst_port));
        let (flow_key, is_reversed) =
            flow_key(k.protocol, a, b, record.encapsulation.vlans, record.encapsulation.tunnel);
        let mut has_packets = record.directions.each_ref().map(|side| side.packets > 0);
        if is_reversed {
            has_packets.reverse();
        }
        let locator = record.location.filter(|locator| locator.first <= locator.last);
        let interface = self.number(interface).unwrap_or_else(|| {
            self.interfaces.push(interface.to_owned());
            self.interfaces.len() - 1
        });
        let position_range = |locator: PacketLocation| PositionRange {
            interface,
            queue: locator.queue,
            positions: locator.first..=locator.last,
        };
        let place = locator.map(position_range);
        self.locate(place.as_ref());
        self.spans.entry(flow_key).or_default().push(Span { first, last, directions: has_packets, place });
        self.pairs.insert((k.src.min(k.dst), k.src.max(k.dst)));
        (self.from, self.to) = (self.from.min(first), self.to.max(last));
        self.flows.insert(record.id);
        self.packets += record.packets();
        self.in_tunnels |= record.encapsulation.tunnel.is_some();
    }

    fn number(&self, interface: &str) -> Option<usize> {
        self.interfaces.iter().position(|known| known == interface)
    }

    fn locate(&mut self, place: Option<&PositionRange>) {
        let places = std::mem::replace(&mut self.places, PacketLocations::Anywhere);
        let Some(PositionRange { interface, queue, positions }) = place else { return };
        let interface = &self.interfaces[*interface];
        self.places = match places {
            PacketLocations::Nothing => {
                let positions = vec![positions.clone()];
                PacketLocations::At(SeekHint { interface: interface.clone(), queue: *queue, positions })
            }
            PacketLocations::At(mut seek) if (&seek.interface, seek.queue) == (interface, *queue) => {
                seek.positions.push(positions.clone());
                PacketLocations::At(seek)
            }
            PacketLocations::At(_) | PacketLocations::Anywhere => PacketLocations::Anywhere,
        };
    }

    /// If the store has out-of-order files in the interval, moves the start of the interval back by `LATE`, because
    /// packets may then be earlier than the start times of their flow records.
    pub fn expect_late(&mut self, store: &Path) {
        let from = self.from.before(LATE);
        let is_out_of_order = |interface: &String| {
            // An unreadable out-of-order marker is ignored here, because the packet query reports it.
            let markers = OutOfOrderMarkers::read(&names::interface_directory(store, interface)).unwrap_or_default();
            markers.iter().any(|(_, span, _)| span.overlaps(from, self.to))
        };
        if self.interfaces.iter().any(is_out_of_order) {
            self.from = from;
        }
    }

    /// The stream positions to read in the files of one queue; `None` if packets may be anywhere. A record has
    /// positions only for the queue of its first packet, so positions do not help to find packets of the flow in other
    /// queues.
    pub fn seek(&self) -> Option<SeekHint> {
        match &self.places {
            PacketLocations::At(seek) if seek.positions.len() <= PAIRS_MAX => Some(seek.clone()),
            _ => None,
        }
    }

    /// The set of packets of one flow: reads the flow records with this id from the store, within the interval and the
    /// interfaces of `query`. If there is no such record, the set is empty. The second value contains warnings about
    /// files that could not be read.
    ///
    /// # Errors
    /// The store cannot be read, or does not have one of the interfaces.
    pub fn of_flow(store: &Path, id: u64, query: &Query) -> Result<(Self, Vec<String>), ColumnsError> {
        let (from, to, interfaces) = (query.from, query.to, query.interfaces.clone());
        let mut records =
            FlowLoop::new(columns::Query { id: Some(id), from, to, interfaces, ..columns::Query::new(store) });
        let mut packets = Self::new();
        // Only a query that follows uses the time argument of `next`, so any value is correct here.
        while let Step::One(record) = records.next(Timestamp::ZERO)? {
            packets.add(&record, &records.interfaces()[usize::from(record.interface)]);
        }
        packets.expect_late(store);
        Ok((packets, records.warnings()))
    }

    /// Restricts interval, filter and stream positions of a query, so that the query skips most blocks that cannot
    /// contain packets of the flows. The result can contain other packets too, which [`FlowPackets::contains`]
    /// excludes.
    ///
    /// # Errors
    /// The filter of the query together with the addresses of the flows exceeds the size limit of a filter.
    pub fn narrow(&self, query: &mut Query) -> Result<(), FilterError> {
        if let Some((first, last)) = self.interval() {
            (query.from, query.to) = (query.from.max(first), query.to.min(last));
        }
        query.seek = self.seek();
        let text = match (query.filter.to_string(), self.filter()) {
            (own, hosts) if own.is_empty() => hosts,
            (own, hosts) if hosts.is_empty() => own,
            (own, hosts) => format!("({own}) and ({hosts})"),
        };
        query.filter = Filter::parse(&text)?;
        Ok(())
    }

    /// The number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The number of packets that the flow records count.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The interval that contains all packets of the flows; `None` without flows.
    pub fn interval(&self) -> Option<(Timestamp, Timestamp)> {
        (self.from <= self.to).then_some((self.from, self.to))
    }

    /// A filter that all packets of the flows match, with which an index excludes most blocks without such packets. The
    /// filter is empty (matches all packets) if flows are in tunnels, because their records do not contain the outer
    /// addresses, or if there are more than `PAIRS_MAX` host pairs.
    pub fn filter(&self) -> String {
        if self.in_tunnels || self.pairs.len() > PAIRS_MAX {
            return String::new();
        }
        let mut pairs: Vec<String> = self.pairs.iter().map(|(a, b)| format!("(host {a} and host {b})")).collect();
        pairs.sort();
        if pairs.is_empty() { String::new() } else { format!("anylink ({})", pairs.join(" or ")) }
    }

    /// True if the packet belongs to one of the flows. The caller must pass packets in order of time, because later
    /// fragments, which have no ports, inherit the ports of the first fragment.
    pub fn contains(&mut self, found: &FoundPacket<'_>, origin: &Origin) -> bool {
        let link_type = found.link_type;
        let mut decoded = Decoded::of(found.data, found.wire_len, link_type);
        self.fragments.resolve(&mut decoded, found.data, found.ts);
        let Some((src, dst)) = addresses(&decoded, found.data) else { return false };
        let (a, b) = ((src, decoded.src_port.0), (dst, decoded.dst_port.0));
        let (flow_key, is_reversed) =
            flow_key(decoded.protocol, a, b, decoded.vlans, decoded.tunnel.map(|t| (t.kind, t.id)));
        let Some(spans) = self.spans.get(&flow_key) else { return false };
        // If a host sends packets without ports to itself, both endpoints are equal, and the directions of the flow
        // cannot be distinguished.
        let has_direction = |directions: &[bool; 2]| directions[usize::from(is_reversed)] || flow_key.1 == flow_key.2;
        let by = (self.number(&origin.interface), origin.queue);
        spans.iter().any(|span| span.has(found, by) && has_direction(&span.directions))
    }
}

/// Returns the flow key, which is equal for both directions of a flow, and a flag that is true if endpoint `b` is less
/// than endpoint `a`.
fn flow_key(
    protocol: IpProtocol,
    a: (IpAddr, u16),
    b: (IpAddr, u16),
    vlans: [Option<u16>; 2],
    tunnel: Option<(TunnelKind, u32)>,
) -> (BiflowKey, bool) {
    // For protocols without ports, the port fields are ignored, because they may differ between the directions of a
    // flow, as type and code of ICMP do.
    let end = |(address, port): (IpAddr, u16)| (address, if protocol.has_ports() { port } else { 0 });
    let (a, b) = (end(a), end(b));
    // The two directions of a GTP-U tunnel have different TEIDs, so the key contains 0 instead of the TEID.
    let tunnel = tunnel.map(|(kind, id)| (kind, if kind == TunnelKind::GtpU { 0 } else { id }));
    ((protocol, a.min(b), a.max(b), vlans, tunnel), b < a)
}

fn addresses(decoded: &Decoded, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let at = usize::from(decoded.l3);
    match decoded.family {
        Family::V4 => wire::Ipv4::parse(frame, at).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        Family::V6 => wire::Ipv6::parse(frame, at).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        Family::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{DirectionStats, Encapsulation, EndReason, Key, TcpState};
    use wire::build::Frame;
    use wire::link;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs_nanos(second, 0)
    }

    fn record(protocol: IpProtocol, src_port: u16, dst_port: u16, seconds: (u64, u64)) -> Record {
        let side =
            DirectionStats { first: at(seconds.0), last: at(seconds.1), packets: 1, ..DirectionStats::default() };
        Record {
            id: u64::from(dst_port),
            key: Key { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), src_port, dst_port, protocol },
            encapsulation: Encapsulation::default(),
            interface: 0,
            flow_start: at(seconds.0),
            record_index: 0,
            directions: [side, side],
            end_reason: EndReason::IdleTimeout,
            tcp_state: TcpState::None,
            syn_rtt: None,
            ack_rtt: None,
            initial_packets: Vec::new(),
            payload: [Vec::new(), Vec::new()],
            location: None,
            lost: 0,
        }
    }

    fn contains(members: &mut FlowPackets, second: u64, frame: Frame<'_>) -> bool {
        contains_at(members, second, frame, 0, None)
    }

    fn contains_at(
        members: &mut FlowPackets,
        second: u64,
        frame: Frame<'_>,
        queue: u16,
        position: Option<u64>,
    ) -> bool {
        let mut bytes = vec![0; frame.header_len()];
        frame.fill(&mut bytes);
        let wire_len = bytes.len() as u32;
        let (ts, link_type, origin) = (at(second), link::ETHERNET, 0);
        let found = FoundPacket { ts, wire_len, data: &bytes, link_type, origin, lost: 0, position };
        members.contains(&found, &Origin { interface: "eth1".to_owned(), queue, ..unnamed_origin() })
    }

    fn unnamed_origin() -> Origin {
        let (interface, filter, stamps) = Default::default();
        Origin { interface, queue: 0, link_type: link::ETHERNET, snaplen: 0, filter, timestamp_source: stamps }
    }

    #[test]
    fn stream_positions_are_used_only_if_all_are_in_one_queue() {
        let position_range = |queue: u16, first: u64, last: u64| Record {
            location: Some(flow::PacketLocation { queue, first, last }),
            ..record(IpProtocol::UDP, 1, 2, (5, 6))
        };
        let sought = |records: &[(Record, &str)]| {
            let mut members = FlowPackets::new();
            records.iter().for_each(|(record, interface)| members.add(record, interface));
            members.seek()
        };
        let two = sought(&[(position_range(3, 24, 900), "eth1"), (position_range(3, 5000, 5000), "eth1")]);
        let positions = vec![24..=900, 5000..=5000];
        assert_eq!(two, Some(SeekHint { interface: "eth1".to_owned(), queue: 3, positions }));
        assert_eq!(sought(&[]), None);
        assert_eq!(
            sought(&[(position_range(3, 24, 900), "eth1"), (position_range(2, 24, 900), "eth1")]),
            None,
            "two queues"
        );
        assert_eq!(
            sought(&[(position_range(3, 24, 900), "eth1"), (position_range(3, 24, 900), "eth2")]),
            None,
            "two interfaces"
        );
        let nowhere = Record { location: None, ..position_range(0, 0, 0) };
        let back = (position_range(3, 24, 900), "eth1");
        assert_eq!(sought(&[(nowhere, "eth1"), back.clone()]), None, "a record without position");
        assert_eq!(
            sought(&[back, (position_range(3, 900, 24), "eth1")]),
            None,
            "a record that ends before it begins contains no packet"
        );
    }

    #[test]
    fn no_packet_belongs_to_an_empty_set() {
        let mut none = FlowPackets::new();
        assert_eq!((none.interval(), none.filter().as_str()), (None, ""));
        assert!(!contains(&mut none, 1, Frame::udp4([10, 0, 0, 1], 5, [10, 0, 0, 2], 53)));
    }

    #[test]
    fn packets_of_both_directions_belong_to_a_record_within_its_time() {
        let mut members = FlowPackets::new();
        members.add(&record(IpProtocol::UDP, 5, 53, (10, 20)), "eth1");
        members.add(&record(IpProtocol::UDP, 5, 53, (30, 40)), "eth1");
        assert_eq!((members.flows(), members.packets(), members.interval()), (1, 4, Some((at(10), at(40)))));
        let (there, back) =
            (Frame::udp4([10, 0, 0, 1], 5, [10, 0, 0, 2], 53), Frame::udp4([10, 0, 0, 2], 53, [10, 0, 0, 1], 5));
        for (second, is) in [(9, false), (10, true), (20, true), (25, false), (40, true), (41, false)] {
            assert_eq!(
                (contains(&mut members, second, there), contains(&mut members, second, back)),
                (is, is),
                "{second}"
            );
        }
        assert!(!contains(&mut members, 15, Frame::udp4([10, 0, 0, 1], 53, [10, 0, 0, 2], 5)));
        assert!(!contains(&mut members, 15, Frame::tcp4([10, 0, 0, 1], 5, [10, 0, 0, 2], 53)));
        assert!(
            !contains(&mut members, 15, there.tag(wire::EtherType::VLAN, 5)),
            "a packet in a VLAN belongs to another flow"
        );
    }

    #[test]
    fn only_directions_with_packets_in_the_record_belong_to_it() {
        let there = record(IpProtocol::UDP, 5, 53, (10, 20));
        let there = Record { directions: [there.directions[0], DirectionStats::default()], ..there };
        let key = Key { src: there.key.dst, dst: there.key.src, src_port: 53, dst_port: 5, ..there.key };
        let back = Record { key, id: 7, ..there.clone() };
        let (goes, comes) =
            (Frame::udp4([10, 0, 0, 1], 5, [10, 0, 0, 2], 53), Frame::udp4([10, 0, 0, 2], 53, [10, 0, 0, 1], 5));
        for (records, has) in
            [(vec![&there], [true, false]), (vec![&back], [false, true]), (vec![&there, &back], [true; 2])]
        {
            let mut members = FlowPackets::new();
            records.iter().for_each(|record| members.add(record, "eth1"));
            assert_eq!([contains(&mut members, 15, goes), contains(&mut members, 15, comes)], has);
        }
    }

    #[test]
    fn with_a_known_position_a_packet_belongs_by_it_and_may_be_early() {
        let udp = |seconds, first, last| Record {
            location: Some(flow::PacketLocation { queue: 1, first, last }),
            ..record(IpProtocol::UDP, 5, 53, seconds)
        };
        let mut members = FlowPackets::new();
        members.add(&udp((100, 200), 24, 900), "eth1");
        members.add(&udp((150, 250), 2000, 3000), "eth1");
        let frame = Frame::udp4([10, 0, 0, 1], 5, [10, 0, 0, 2], 53);
        for (second, queue, position, is) in [
            (100, 1, Some(24), true),
            (40, 1, Some(500), true),
            (38, 1, Some(500), false),
            (201, 1, Some(500), false),
            (120, 1, Some(950), false),
            (160, 1, Some(950), false),
            (90, 1, Some(2500), true),
            (88, 1, Some(2500), false),
            // The packet is from another queue, or from a file without stream positions.
            (99, 0, Some(500), false),
            (120, 0, Some(950), true),
            (99, 1, None, false),
            (120, 1, None, true),
        ] {
            assert_eq!(contains_at(&mut members, second, frame, queue, position), is, "{second} {queue} {position:?}");
        }
    }

    #[test]
    fn an_echo_reply_belongs_to_the_flow_of_its_request() {
        let mut members = FlowPackets::new();
        members.add(&record(IpProtocol::ICMP, 0, 8 << 8, (10, 20)), "eth1");
        assert!(contains(&mut members, 11, Frame::icmp4([10, 0, 0, 2], [10, 0, 0, 1], 0, 0, [0; 4])));
        assert!(!contains(&mut members, 11, Frame::icmp4([10, 0, 0, 2], [10, 0, 0, 3], 0, 0, [0; 4])));
    }
}
