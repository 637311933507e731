//! The structures of flow records and seconds, field by field. They are made here and lent, and say how long they are: what
//! comes in later versions is appended, and a program knows by the size whether it is there.

use crate::abi::Tally;
use flow::Record;
use series::{Kind, Peak, Row, SIZES};
use std::ffi::c_char;
use std::net::IpAddr;

/// `NETGRAIN_NONE`.
pub const NONE: u64 = u64::MAX;

/// `netgrain_moments`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "flow::Moments has the words")]
pub struct Moments {
    pub min: u64,
    pub max: u64,
    pub sum: u64,
    pub mean: f64,
    pub deviation: f64,
}

impl Moments {
    fn of(moments: &flow::Moments, n: u64) -> Self {
        let flow::Moments { min, max, sum, .. } = *moments;
        Self { min, max, sum, mean: moments.mean(n), deviation: moments.deviation(n) }
    }
}

/// `netgrain_side`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of flow::Side, which has the words")]
pub struct Side {
    pub first: u64,
    pub last: u64,
    pub packets: u64,
    pub bytes: u64,
    pub ip_bytes: u64,
    pub payload_bytes: u64,
    pub payload_packets: u64,
    pub length: Moments,
    pub gap: Moments,
    pub gaps: u64,
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

impl From<&flow::Side> for Side {
    fn from(s: &flow::Side) -> Self {
        Self {
            first: s.first.nanos(),
            last: s.last.nanos(),
            packets: s.packets,
            bytes: s.bytes,
            ip_bytes: s.ip_bytes,
            payload_bytes: s.payload_bytes,
            payload_packets: s.payload_packets,
            length: Moments::of(&s.length, s.packets),
            gap: Moments::of(&s.gap, s.gaps),
            gaps: s.gaps,
            tcp_flags: s.flags,
            zero_window: s.zero_window,
            retransmitted: s.retransmitted,
            retransmitted_bytes: s.retransmitted_bytes,
            out_of_order: s.out_of_order,
            ttl_min: s.ttl.0,
            ttl_max: s.ttl.1,
            dscp_min: s.dscp.0,
            dscp_max: s.dscp.1,
            mac: s.mac.map_or([0; 6], |mac| mac.0),
            has_mac: u8::from(s.mac.is_some()),
            reserved: [0; 5],
        }
    }
}

/// `netgrain_early`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "flow::Early has the words")]
pub struct Early {
    pub after: u64,
    pub length: u16,
    pub flags: u8,
    pub reverse: u8,
    pub reserved: u32,
}

impl From<&flow::Early> for Early {
    fn from(e: &flow::Early) -> Self {
        Self { after: e.after, length: e.length, flags: e.flags, reverse: u8::from(e.reverse), reserved: 0 }
    }
}

/// `netgrain_flow`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of flow::Record, which has the words")]
pub struct Flow {
    pub size: u32,
    pub part: u32,
    pub id: u64,
    pub interface_name: *const c_char,
    pub began: u64,
    pub first: u64,
    pub last: u64,
    pub src: [u8; 16],
    pub dst: [u8; 16],
    pub src_port: u16,
    pub dst_port: u16,
    pub ip_version: u8,
    pub protocol: u8,
    pub end: u8,
    pub tcp_state: u8,
    pub vlan: i32,
    pub inner_vlan: i32,
    pub mpls: i32,
    pub tunnel: u32,
    pub tunnel_id: u32,
    pub queue: u32,
    pub position_first: u64,
    pub position_last: u64,
    pub syn_rtt: u64,
    pub ack_rtt: u64,
    pub lost: u64,
    pub early: *const Early,
    pub payload: [*const u8; 2],
    pub payload_len: [u32; 2],
    pub early_count: u32,
    pub reserved: u32,
    pub sides: [Side; 2],
}

impl Flow {
    /// What is lent of a record: its payload is pointed to, as are the early packets and the name.
    pub fn of(record: &Record, early: &[Early], interface_name: *const c_char) -> Self {
        let (src, ip_version) = address(record.key.src);
        let (dst, _) = address(record.key.dst);
        let tag = |id: Option<u16>| id.map_or(-1, i32::from);
        let locator = record.locator;
        Self {
            size: size_of::<Self>() as u32,
            part: record.part,
            id: record.id,
            interface_name,
            began: record.began.nanos(),
            first: record.first().nanos(),
            last: record.last().nanos(),
            src,
            dst,
            src_port: record.key.src_port,
            dst_port: record.key.dst_port,
            ip_version,
            protocol: record.key.protocol.0,
            end: record.end as u8,
            tcp_state: record.tcp as u8,
            vlan: tag(record.around.vlans[0]),
            inner_vlan: tag(record.around.vlans[1]),
            // Labels have 20 bits.
            mpls: record.around.mpls.map_or(-1, |label| (label & 0xf_ffff) as i32),
            tunnel: record.around.tunnel.map_or(0, |(kind, _)| kind as u32),
            tunnel_id: record.around.tunnel.map_or(0, |(_, id)| id),
            queue: locator.map_or(0, |l| u32::from(l.queue)),
            position_first: locator.map_or(NONE, |l| l.first),
            position_last: locator.map_or(NONE, |l| l.last),
            syn_rtt: record.syn_rtt.unwrap_or(NONE),
            ack_rtt: record.ack_rtt.unwrap_or(NONE),
            lost: record.lost,
            early: early.as_ptr(),
            payload: [record.payload[0].as_ptr(), record.payload[1].as_ptr()],
            payload_len: [record.payload[0].len() as u32, record.payload[1].len() as u32],
            early_count: early.len() as u32,
            reserved: 0,
            sides: [(&record.sides[0]).into(), (&record.sides[1]).into()],
        }
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
#[allow(missing_docs, reason = "series::Volume has the words")]
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
#[allow(missing_docs, reason = "the fields are those of series::Row, which has the words")]
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
}

impl Second {
    /// What is lent of a row.
    pub fn of(row: &Row, interface_name: *const c_char) -> Self {
        let kind = |kind: Kind| row.kinds[kind as usize].into();
        Self {
            size: size_of::<Self>() as u32,
            direction: row.direction as u32,
            second: row.second,
            interface_name,
            total: row.total.into(),
            tcp: kind(Kind::Tcp),
            udp: kind(Kind::Udp),
            icmp: kind(Kind::Icmp),
            sctp: kind(Kind::Sctp),
            other_ip: kind(Kind::OtherIp),
            arp: kind(Kind::Arp),
            other: kind(Kind::Other),
            ipv6: row.ipv6.into(),
            sizes: row.sizes,
            syn: row.syn,
            syn_ack: row.syn_ack,
            fin: row.fin,
            rst: row.rst,
            flows_active: row.flows_active,
            flows_new: row.flows_new,
            flows_ended: row.flows_ended,
            sources: row.sources,
            destinations: row.destinations,
            peak_1ms: row.peak_1ms.into(),
            peak_10ms: row.peak_10ms.into(),
            ledger: row.ledger.into(),
        }
    }
}
