//! What a meter is told: how long flows live, what tells them apart, how many there may be, and what is kept of each.

use base::Timestamp;
use std::time::Duration;
use wire::{Decoded, IpProtocol};

/// Settings of a [`crate::Meter`]. All timeouts are in packet time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A flow without a packet for so long is over: the next one begins another.
    pub idle_timeout: Duration,
    /// The same for single protocols, instead of [`Config::idle`]; of several for one protocol the last counts.
    pub protocol_idle_timeouts: Vec<(IpProtocol, Duration)>,
    /// A record that is so old is made, and the flow goes on in another; `None`: only ended flows make records.
    pub active_timeout: Option<Duration>,
    /// What takes the place of the idle timeout once TCP has ended (FIN in both directions, or RST). Long enough that
    /// retransmitted FINs, which come 0.2 to a few seconds after each other, still find their flow.
    pub close_timeout: Duration,
    /// A flow of many packets that has had none for so long is packed until the next one, or its record, needs it. It has
    /// no influence on the records; zero: never. Of less than [`Config::idle`], or nothing is left to be gained.
    pub compress_after: Duration,
    /// What tells flows apart besides addresses, protocol and ports.
    pub key_fields: KeyFields,
    /// Both directions in one record (RFC 5103), or each in one of its own.
    pub bidirectional: bool,
    /// Most flows at once; at least 1, at most [`Config::MAX_FLOWS`]. Memory is reserved for all of them at the start and
    /// touched when they come (`docs/METER.md` has the bytes).
    pub capacity: usize,
    /// How many of its first packets a flow remembers; up to 10 cost nothing more.
    pub initial_packets: usize,
    /// How many of the first bytes carried in each direction are kept; 0: none. Up to 65535.
    pub payload: u16,
    /// The secret under which flows are hashed. It has no influence on the records.
    pub seed: u64,
}

impl Config {
    /// 2^30.
    pub const MAX_FLOWS: usize = 1 << 30;

    /// The idle timeout of a protocol, in nanoseconds.
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

/// What tells flows apart besides addresses, protocol and ports. What does not is still in the record, as the first packet
/// had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFields {
    /// The ids of the two VLAN tags.
    pub vlans: bool,
    /// Kind and number of the tunnel.
    pub tunnel: bool,
    /// Also the TEID of GTP-U. Each direction has one of its own, so with it a conversation is two flows: off by default,
    /// when only that they are in GTP-U counts.
    pub teid: bool,
}

impl Default for KeyFields {
    fn default() -> Self {
        Self { vlans: true, tunnel: true, teid: false }
    }
}

/// One packet, as a meter takes it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it came.
    pub ts: Timestamp,
    /// Bytes of the frame on the wire.
    pub wire_len: u32,
    /// What was captured of it.
    pub data: &'a [u8],
    /// What it is: [`Decoded::of`] the same bytes.
    pub decoded: &'a Decoded,
    /// Where its record begins in the queue's stream, or in its file; [`Packet::NOWHERE`] if it is kept nowhere.
    pub position: u64,
    /// Which queue's stream that is.
    pub queue: u16,
}

impl Packet<'_> {
    /// The position of a packet that is not stored: its flow has no locator.
    pub const NOWHERE: u64 = u64::MAX;
}
