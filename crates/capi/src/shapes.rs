//! The structures of flow records and series rows, field by field. The library allocates them, and each structure
//! contains its size: later versions append fields, and a program compares the size to detect whether a field exists.

use crate::abi::Tally;
use flow::{Key, Record};
use series::{Peak, Row, SIZES, TrafficClass};
use std::ffi::c_char;
use std::net::IpAddr;
use wire::IpProtocol;

/// `NETGRAIN_NONE`.
pub const NONE: u64 = u64::MAX;

/// `netgrain_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "flow::Stats documents the fields")]
pub struct Stats {
    pub min: u64,
    pub max: u64,
    pub sum: u64,
    pub mean: f64,
    pub deviation: f64,
}

impl Stats {
    fn of(moments: &flow::Stats, n: u64) -> Self {
        let flow::Stats { min, max, sum, .. } = *moments;
        Self { min, max, sum, mean: moments.mean(n), deviation: moments.deviation(n) }
    }
}

/// `netgrain_direction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "flow::DirectionStats documents the fields")]
pub struct Direction {
    pub first: u64,
    pub last: u64,
    pub packets: u64,
    pub bytes: u64,
    pub ip_bytes: u64,
    pub payload_bytes: u64,
    pub payload_packets: u64,
    pub length: Stats,
    pub iat: Stats,
    pub iat_count: u64,
    pub tcp_flags: [u64; 8],
    pub zero_window: u64,
    pub retransmitted: u64,
    pub retransmitted_bytes: u64,
    pub out_of_order: u64,
    pub ttl_min: u8,
    pub ttl_max: u8,
    pub dscp_min: u8,
    pub dscp_max: u8,
    pub mac: [u8; 6],
    pub has_mac: u8,
    pub reserved: [u8; 5],
}

impl From<&flow::DirectionStats> for Direction {
    fn from(direction: &flow::DirectionStats) -> Self {
        // This pattern and the following patterns list all fields without `..`, so that the compiler reports a new
        // field.
        let flow::DirectionStats {
            first,
            last,
            packets,
            bytes,
            ip_bytes,
            payload_bytes,
            payload_packets,
            length,
            iat,
            iat_count,
            flags,
            zero_window,
            retransmitted,
            retransmitted_bytes,
            out_of_order,
            ttl,
            dscp,
            mac,
            // `tunnel_sequence` is a field of the C structure `Flow` and not of `Direction`: a longer `Direction` would
            // change the offset of the second direction.
            tunnel_sequence: _,
        } = *direction;
        Self {
            first: first.nanos(),
            last: last.nanos(),
            packets,
            bytes,
            ip_bytes,
            payload_bytes,
            payload_packets,
            length: Stats::of(&length, packets),
            iat: Stats::of(&iat, iat_count),
            iat_count,
            tcp_flags: flags,
            zero_window,
            retransmitted,
            retransmitted_bytes,
            out_of_order,
            ttl_min: ttl.0,
            ttl_max: ttl.1,
            dscp_min: dscp.0,
            dscp_max: dscp.1,
            mac: mac.map_or([0; 6], |mac| mac.0),
            has_mac: u8::from(mac.is_some()),
            reserved: [0; 5],
        }
    }
}

/// `netgrain_initial_packet`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "flow::InitialPacket documents the fields")]
pub struct InitialPacket {
    pub offset_ns: u64,
    pub length: u16,
    pub flags: u8,
    pub reverse: u8,
    pub reserved: u32,
}

impl From<&flow::InitialPacket> for InitialPacket {
    fn from(e: &flow::InitialPacket) -> Self {
        Self { offset_ns: e.offset_ns, length: e.length, flags: e.flags, reverse: u8::from(e.reverse), reserved: 0 }
    }
}

/// `netgrain_flow`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "flow::Record documents the fields")]
pub struct Flow {
    pub size: u32,
    pub record_index: u32,
    pub id: u64,
    pub interface_name: *const c_char,
    pub flow_start: u64,
    pub first: u64,
    pub last: u64,
    pub src: [u8; 16],
    pub dst: [u8; 16],
    pub src_port: u16,
    pub dst_port: u16,
    pub ip_version: u8,
    pub protocol: u8,
    pub end_reason: u8,
    pub tcp_state: u8,
    pub vlan: i32,
    pub vlan_inner: i32,
    pub mpls: i32,
    pub tunnel: u32,
    pub tunnel_id: u32,
    pub queue: u32,
    pub position: u64,
    pub position_span: u64,
    pub syn_rtt_ns: u64,
    pub ack_rtt_ns: u64,
    pub lost: u64,
    pub initial_packets: *const InitialPacket,
    pub payload: [*const u8; 2],
    pub payload_len: [u32; 2],
    pub initial_packet_count: u32,
    pub reserved: u32,
    pub directions: [Direction; 2],
    pub tunnel_seq_first: [u64; 2],
    pub tunnel_seq_last: [u64; 2],
}

impl Flow {
    /// The C structure of a record; it contains pointers to the record's payload, to the initial packets and to the
    /// name.
    pub fn of(record: &Record, initial_packets: &[InitialPacket], interface_name: *const c_char) -> Self {
        let Record {
            id,
            key,
            encapsulation,
            interface: _,
            flow_start,
            record_index: part,
            ref directions,
            end_reason: end,
            tcp_state: tcp,
            syn_rtt,
            ack_rtt,
            initial_packets: _,
            ref payload,
            location,
            lost,
        } = *record;
        let (src, ip_version) = address(key.src);
        let (dst, _) = address(key.dst);
        let tag = |id: Option<u16>| id.map_or(-1, i32::from);
        let sequence = directions.each_ref().map(|direction| direction.tunnel_sequence);
        Self {
            size: size_of::<Self>() as u32,
            record_index: part,
            id,
            interface_name,
            flow_start: flow_start.nanos(),
            first: record.first().nanos(),
            last: record.last().nanos(),
            src,
            dst,
            src_port: key.src_port,
            dst_port: key.dst_port,
            ip_version,
            protocol: key.protocol.0,
            end_reason: end as u8,
            tcp_state: tcp as u8,
            vlan: tag(encapsulation.vlans[0]),
            vlan_inner: tag(encapsulation.vlans[1]),
            // Labels have 20 bits.
            mpls: encapsulation.mpls.map_or(-1, |label| (label & 0xf_ffff) as i32),
            tunnel: encapsulation.tunnel.map_or(0, |(kind, _)| kind as u32),
            tunnel_id: encapsulation.tunnel.map_or(0, |(_, id)| id),
            queue: location.map_or(0, |l| u32::from(l.queue)),
            position: location.map_or(NONE, |l| l.first),
            position_span: location.map_or(NONE, |l| l.last.wrapping_sub(l.first)),
            syn_rtt_ns: syn_rtt.unwrap_or(NONE),
            ack_rtt_ns: ack_rtt.unwrap_or(NONE),
            lost,
            initial_packets: initial_packets.as_ptr(),
            payload: payload.each_ref().map(|bytes| bytes.as_ptr()),
            payload_len: payload.each_ref().map(|bytes| bytes.len() as u32),
            initial_packet_count: initial_packets.len() as u32,
            reserved: 0,
            directions: directions.each_ref().map(Direction::from),
            tunnel_seq_first: sequence.map(|of| of.map_or(NONE, |(first, _)| first.into())),
            tunnel_seq_last: sequence.map(|of| of.map_or(NONE, |(_, last)| last.into())),
        }
    }

    /// The flow key; `None` if the IP version is invalid, because the structure does not come from this library.
    pub fn key(&self) -> Option<Key> {
        let [src, dst] = [self.src, self.dst].map(|bytes| match self.ip_version {
            4 => bytes.first_chunk().map(|v4: &[u8; 4]| IpAddr::from(*v4)),
            6 => Some(IpAddr::from(bytes)),
            _ => None,
        });
        let protocol = IpProtocol(self.protocol);
        Some(Key { src: src?, dst: dst?, src_port: self.src_port, dst_port: self.dst_port, protocol })
    }
}

/// The bytes of an address, IPv4 in the first four, and its version.
fn address(address: IpAddr) -> ([u8; 16], u8) {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            (bytes, 4)
        }
        IpAddr::V6(v6) => (v6.octets(), 6),
    }
}

/// `netgrain_volume`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "series::Volume documents the fields")]
pub struct Volume {
    pub packets: u64,
    pub bytes: u64,
}

impl From<series::Volume> for Volume {
    fn from(v: series::Volume) -> Self {
        Self { packets: v.packets, bytes: v.bytes }
    }
}

impl From<Peak> for Volume {
    fn from(p: Peak) -> Self {
        Self { packets: p.packets, bytes: p.bytes }
    }
}

/// `netgrain_second`.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "series::Row documents the fields")]
pub struct Second {
    pub size: u32,
    pub direction: u32,
    pub second: u64,
    pub interface_name: *const c_char,
    pub total: Volume,
    pub tcp: Volume,
    pub udp: Volume,
    pub icmp: Volume,
    pub sctp: Volume,
    pub other_ip: Volume,
    pub arp: Volume,
    pub other: Volume,
    pub ipv6: Volume,
    pub sizes: [u64; SIZES],
    pub syn: u64,
    pub syn_ack: u64,
    pub fin: u64,
    pub rst: u64,
    pub flows_active: u64,
    pub flows_new: u64,
    pub flows_ended: u64,
    pub sources: u64,
    pub destinations: u64,
    pub peak_1ms: Volume,
    pub peak_10ms: Volume,
    pub ledger: Tally,
    pub tunnel_numbered: u64,
    pub tunnel_missing: u64,
    pub tunnel_late: u64,
    pub losses: *const u64,
    pub notes: *const u64,
    pub loss_count: u32,
    pub note_count: u32,
    pub duplicate: Volume,
    /// The index is the number of the timestamp method, which has four bits.
    pub timestamp_packets: [u64; 16],
    pub timestamp_deviation_ns: u64,
    pub clock_synchronised: u64,
    pub clock_unsynchronised: u64,
    pub clock_maximum_error_us: u64,
    pub clock_rate: u64,
    pub clock_step_forward_ns: u64,
    pub clock_step_back_ns: u64,
}

impl Second {
    /// The C structure of a series row; it contains pointers to the losses by cause, to the notes and to the name.
    pub fn of(row: &Row, losses: &[u64], notes: &[u64], interface_name: *const c_char) -> Self {
        let Row {
            second,
            interface: _,
            direction,
            total,
            classes: kinds,
            sizes,
            ipv6,
            syn,
            syn_ack,
            fin,
            rst,
            flows_active,
            flows_new,
            flows_ended,
            sources,
            destinations,
            peak_1ms,
            peak_10ms,
            tunnel_numbered,
            tunnel_missing,
            tunnel_late,
            duplicate,
            ledger,
            timestamps,
        } = *row;
        let mut timestamp_packets = [0; 16];
        timestamp_packets[..timestamps.methods.len()].copy_from_slice(&timestamps.methods);
        let kind = |kind: TrafficClass| kinds[kind as usize].into();
        Self {
            size: size_of::<Self>() as u32,
            direction: direction as u32,
            second,
            interface_name,
            total: total.into(),
            tcp: kind(TrafficClass::Tcp),
            udp: kind(TrafficClass::Udp),
            icmp: kind(TrafficClass::Icmp),
            sctp: kind(TrafficClass::Sctp),
            other_ip: kind(TrafficClass::OtherIp),
            arp: kind(TrafficClass::Arp),
            other: kind(TrafficClass::Other),
            ipv6: ipv6.into(),
            sizes,
            syn,
            syn_ack,
            fin,
            rst,
            flows_active,
            flows_new,
            flows_ended,
            sources,
            destinations,
            peak_1ms: peak_1ms.into(),
            peak_10ms: peak_10ms.into(),
            ledger: ledger.into(),
            tunnel_numbered,
            tunnel_missing,
            tunnel_late,
            losses: losses.as_ptr(),
            notes: notes.as_ptr(),
            loss_count: losses.len() as u32,
            note_count: notes.len() as u32,
            duplicate: duplicate.into(),
            timestamp_packets,
            timestamp_deviation_ns: timestamps.deviation_nanos,
            clock_synchronised: timestamps.synchronised,
            clock_unsynchronised: timestamps.unsynchronised,
            clock_maximum_error_us: timestamps.maximum_error_micros,
            clock_rate: timestamps.clock_rate,
            clock_step_forward_ns: timestamps.step_forward_nanos,
            clock_step_back_ns: timestamps.step_back_nanos,
        }
    }
}
