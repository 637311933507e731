//! The amounts that are summed over the records of a group.

use super::ReportError;
use flow::Record;

/// The operation that merges two amounts of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRule {
    /// The sum of both.
    Sum,
    /// The maximum of both.
    Max,
    /// The minimum of both.
    Min,
}

/// An amount that is computed for every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The number of flows. A flow is counted in the interval that contains its first record.
    Flows,
    /// The number of records. A long flow has a record for each active timeout.
    Records,
    /// Packets of both directions.
    Packets,
    /// Bytes of the frames of both directions.
    Bytes,
    /// Bytes of the frames that the source sent. If the plan groups by `host` or `port`: bytes of the frames that this
    /// endpoint sent.
    Sent,
    /// Bytes of the frames that the destination sent. If the plan groups by `host` or `port`: bytes of the frames that
    /// the other endpoint sent.
    Received,
    /// Bytes of the IP packets of both directions, as NetFlow counts them.
    IpBytes,
    /// Bytes above the transport protocol.
    Payload,
    /// Retransmitted packets.
    Retransmitted,
    /// Payload bytes of the retransmitted packets.
    RetransmittedBytes,
    /// Packets out of order.
    OutOfOrder,
    /// Packets that advertise a window of zero.
    ZeroWindow,
    /// Packets with SYN.
    Syn,
    /// Packets with FIN.
    Fin,
    /// Packets with RST.
    Rst,
    /// Nanoseconds from the first packet of a flow to the last; the maximum over the flows.
    Duration,
    /// Nanoseconds from SYN to SYN+ACK; the maximum over the flows.
    Rtt,
    /// Time of the first packet, in nanoseconds since 1970.
    First,
    /// Time of the last packet, in nanoseconds since 1970.
    Last,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 19] = [
        Self::Flows,
        Self::Records,
        Self::Packets,
        Self::Bytes,
        Self::Sent,
        Self::Received,
        Self::IpBytes,
        Self::Payload,
        Self::Retransmitted,
        Self::RetransmittedBytes,
        Self::OutOfOrder,
        Self::ZeroWindow,
        Self::Syn,
        Self::Fin,
        Self::Rst,
        Self::Duration,
        Self::Rtt,
        Self::First,
        Self::Last,
    ];

    /// The name of the measure in queries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Records => "records",
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::IpBytes => "ip-bytes",
            Self::Payload => "payload",
            Self::Retransmitted => "retransmitted",
            Self::RetransmittedBytes => "retransmitted-bytes",
            Self::OutOfOrder => "out-of-order",
            Self::ZeroWindow => "zero-window",
            Self::Syn => "syn",
            Self::Fin => "fin",
            Self::Rst => "rst",
            Self::Duration => "duration",
            Self::Rtt => "rtt",
            Self::First => "first",
            Self::Last => "last",
        }
    }

    /// Returns the name of the measure in machine-readable results. If the measure is a sum of a field of flow
    /// records, this is the name of the field in `flow::schema`.
    pub const fn column(self) -> &'static str {
        match self {
            Self::IpBytes => "ip_bytes",
            Self::Payload => "payload_bytes",
            Self::RetransmittedBytes => "retransmitted_bytes",
            Self::OutOfOrder => "out_of_order",
            Self::ZeroWindow => "zero_window",
            Self::Duration => "duration_ns",
            Self::Rtt => "syn_rtt_ns",
            word => word.name(),
        }
    }

    /// The measure of this name.
    ///
    /// # Errors
    /// When no measure has this name; the text of the error lists all names.
    pub fn parse(word: &str) -> Result<Self, ReportError> {
        let found = Self::ALL.into_iter().find(|m| m.name() == word);
        found.ok_or_else(|| ReportError::UnknownMeasure(word.to_owned()))
    }

    /// The rule that merges two amounts of this measure.
    pub const fn join(self) -> MergeRule {
        match self {
            Self::Duration | Self::Rtt | Self::Last => MergeRule::Max,
            Self::First => MergeRule::Min,
            _ => MergeRule::Sum,
        }
    }

    /// The amount of no records: the neutral element of [`Self::join`].
    pub const fn none(self) -> u64 {
        match self.join() {
            MergeRule::Sum | MergeRule::Max => 0,
            MergeRule::Min => u64::MAX,
        }
    }

    /// Returns the amount of one record. With `from_destination`, the amounts of [`Self::Sent`] and [`Self::Received`]
    /// are those of the destination, otherwise those of the source.
    #[inline]
    pub fn of(self, record: &Record, from_destination: bool) -> u64 {
        let [a, b] = &record.directions;
        match self {
            Self::Flows => u64::from(record.record_index == 0),
            Self::Records => 1,
            Self::Packets => a.packets.saturating_add(b.packets),
            Self::Bytes => a.bytes.saturating_add(b.bytes),
            Self::Sent => {
                if from_destination {
                    b.bytes
                } else {
                    a.bytes
                }
            }
            Self::Received => {
                if from_destination {
                    a.bytes
                } else {
                    b.bytes
                }
            }
            Self::IpBytes => a.ip_bytes.saturating_add(b.ip_bytes),
            Self::Payload => a.payload_bytes.saturating_add(b.payload_bytes),
            Self::Retransmitted => a.retransmitted.saturating_add(b.retransmitted),
            Self::RetransmittedBytes => a.retransmitted_bytes.saturating_add(b.retransmitted_bytes),
            Self::OutOfOrder => a.out_of_order.saturating_add(b.out_of_order),
            Self::ZeroWindow => a.zero_window.saturating_add(b.zero_window),
            Self::Fin => a.flags[0].saturating_add(b.flags[0]),
            Self::Syn => a.flags[1].saturating_add(b.flags[1]),
            Self::Rst => a.flags[2].saturating_add(b.flags[2]),
            Self::Duration => record.last().nanos().saturating_sub(record.flow_start.nanos()),
            Self::Rtt => record.syn_rtt.unwrap_or(0),
            Self::First => record.first().nanos(),
            Self::Last => record.last().nanos(),
        }
    }
}

impl MergeRule {
    /// Merges two amounts. Sums saturate at `u64::MAX`.
    #[inline]
    pub const fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Sum => a.saturating_add(b),
            Self::Max => {
                if a > b {
                    a
                } else {
                    b
                }
            }
            Self::Min => {
                if a < b {
                    a
                } else {
                    b
                }
            }
        }
    }
}
