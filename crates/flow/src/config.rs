//! The configuration of a meter: timeouts, fields of the flow key, limits, and optional contents of the records.

use base::Timestamp;
use std::time::Duration;
use wire::{Decoded, IpProtocol};

/// Settings of a [`crate::Meter`]. All timeouts are in packet time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A flow ends after this time without a packet; a later packet begins a new flow.
    pub idle_timeout: Duration,
    /// Idle timeouts of single protocols, in place of [`Config::idle_timeout`]; the last entry of a protocol applies.
    pub protocol_idle_timeouts: Vec<(IpProtocol, Duration)>,
    /// When a record reaches this age, the meter emits it and the flow continues in a new record. `None`: the meter
    /// emits records of ended flows only.
    pub active_timeout: Option<Duration>,
    /// The idle timeout of a closed TCP flow (FIN in both directions, or RST). It must be long enough that
    /// retransmitted FINs, which arrive 0.2 s to a few seconds after each other, still belong to their flow.
    pub close_timeout: Duration,
    /// A flow of many packets that has had no packet for this time is stored in compressed form until its next packet
    /// or record. The setting does not change any record. Zero: never. A value of [`Config::idle_timeout`] or more has
    /// no use, because the flow ends first.
    pub compress_after: Duration,
    /// Fields of the flow key in addition to addresses, protocol and ports.
    pub key_fields: KeyFields,
    /// True: one record for both directions (biflow, RFC 5103). False: one record for each direction (uniflow).
    pub bidirectional: bool,
    /// The largest number of active flows; at least 1, at most [`Config::MAX_FLOWS`]. The meter reserves address space
    /// for all of them at the start; the kernel allocates the memory on the first write
    /// (`docs/design/flow-metering.md` has the bytes per flow).
    pub capacity: usize,
    /// The number of initial packets in a record; up to 10 have no additional cost.
    pub initial_packets: usize,
    /// The number of payload bytes to store from the beginning of each direction, at most 65535; 0: none.
    pub payload: u16,
    /// The secret key of the flow hash. The key does not change any record.
    pub seed: u64,
}

impl Config {
    /// The upper limit of [`Config::capacity`]: 2^30 flows.
    pub const MAX_FLOWS: usize = 1 << 30;

    /// The idle timeout of each IP protocol number, in nanoseconds.
    pub(crate) fn idle_nanos(&self) -> Box<[u64; 256]> {
        let mut all = Box::new([nanos(self.idle_timeout); 256]);
        for (protocol, idle) in &self.protocol_idle_timeouts {
            all[usize::from(protocol.0)] = nanos(*idle);
        }
        all
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30),
            protocol_idle_timeouts: Vec::new(),
            active_timeout: Some(Duration::from_secs(300)),
            close_timeout: Duration::from_secs(5),
            compress_after: Duration::from_secs(5),
            key_fields: KeyFields::default(),
            bidirectional: true,
            capacity: 1 << 20,
            initial_packets: 10,
            payload: 0,
            seed: 0,
        }
    }
}

/// Fields of the flow key in addition to addresses, protocol and ports. A field that is not part of the key is still in
/// the record, with the value of the first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFields {
    /// True: the ids of the two VLAN tags are part of the key.
    pub vlans: bool,
    /// True: kind and id of the tunnel are part of the key.
    pub tunnel: bool,
    /// True: for GTP-U, the id (TEID) is part of the key too. The TEIDs of both directions differ, so that this field
    /// splits a biflow into two flows. It is off by default; then only the kind of a GTP-U tunnel is part of the key.
    pub teid: bool,
}

impl Default for KeyFields {
    fn default() -> Self {
        Self { vlans: true, tunnel: true, teid: false }
    }
}

/// A packet as input of a meter.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Timestamp of the packet.
    pub ts: Timestamp,
    /// Bytes of the frame on the wire.
    pub wire_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The result of [`Decoded::of`] for the same bytes.
    pub decoded: &'a Decoded,
    /// Stream position of the packet, or offset in its capture file; [`Packet::NOWHERE`] if the packet is not stored.
    pub position: u64,
    /// The queue of the stream.
    pub queue: u16,
}

impl Packet<'_> {
    /// The position of a packet that is not stored: its flow record has no packet location.
    pub const NOWHERE: u64 = u64::MAX;
}
