//! The row types of journals and files (flow records and series rows), their order, and the numbers of their
//! enumerations.

use crate::schema::ValueType;
use base::Timestamp;
use flow::{DirectionStats, Encapsulation, EndReason, Key, Record, TcpState, tunnel_name};
use series::Row;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use wire::{IpProtocol, TunnelKind};

/// A row of a journal.
pub trait TableRow: Sized + Clone + Send {
    /// First and last timestamp.
    fn span(&self) -> (Timestamp, Timestamp);

    /// The sort key of the rows in sealed files and in results.
    fn order(&self) -> Order;

    /// The start time of the row to which this sort key belongs.
    fn moment(order: &Order) -> Timestamp;
}

/// The sort key: time first; rows of equal time have the same order in every file.
pub type Order = (u64, u64, u32);

/// Nanoseconds in one second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

impl TableRow for Record {
    fn span(&self) -> (Timestamp, Timestamp) {
        let (first, last) = (self.first(), self.last());
        (first, last.max(first))
    }

    fn order(&self) -> Order {
        (self.first().nanos(), self.id, self.record_index)
    }

    fn moment(order: &Order) -> Timestamp {
        Timestamp::from_nanos(order.0)
    }
}

impl TableRow for Row {
    fn span(&self) -> (Timestamp, Timestamp) {
        let first = Timestamp::from_secs_nanos(self.second, 0);
        (first, Timestamp::from_secs_nanos(self.second, NANOS_PER_SEC - 1))
    }

    fn order(&self) -> Order {
        (self.second, u64::from(self.interface), self.direction as u32)
    }

    fn moment(order: &Order) -> Timestamp {
        Timestamp::from_secs_nanos(order.0, 0)
    }
}

/// An enumeration whose members are numbers in memory and names in a file.
pub struct Vocabulary {
    write: fn(i64, &mut Vec<u8>),
    read: fn(&[u8]) -> Option<i64>,
}

impl Vocabulary {
    /// The type of a column that holds the names of an enumeration.
    pub const fn holds(&self) -> ValueType {
        ValueType::Names(self.write, self.read)
    }
}

/// The type of a column that holds the IP protocol: its name in filters, or its number.
pub const PROTOCOL: Vocabulary = Vocabulary {
    write: |number, out| {
        // Writing into memory does not fail.
        let _ = write!(out, "{}", IpProtocol(number as u8));
    },
    read: |text| {
        let text = std::str::from_utf8(text).ok()?;
        let number = IpProtocol::from_name(text).map(|protocol| protocol.0).or_else(|| text.parse().ok())?;
        Some(number.into())
    },
};

/// Tunnel kinds.
pub const TUNNELS: Vocabulary = Vocabulary {
    write: |number, out| out.extend(tunnel(number as u64).map_or("", tunnel_name).as_bytes()),
    read: |text| {
        let kind = TunnelKind::ALL.into_iter().find(|kind| tunnel_name(*kind).as_bytes() == text)?;
        Some(kind as i64)
    },
};

/// The names of the reasons for which a flow record ends.
pub const END_REASONS: Vocabulary = Vocabulary {
    write: |number, out| out.extend(end(number as u64).map_or("", EndReason::name).as_bytes()),
    read: |text| Some(EndReason::ALL.into_iter().find(|end| end.name().as_bytes() == text)? as i64),
};

/// States of a TCP connection.
pub const TCP_STATES: Vocabulary = Vocabulary {
    write: |number, out| out.extend(tcp(number as u64).and_then(TcpState::name).unwrap_or_default().as_bytes()),
    read: |text| {
        Some(TcpState::ALL.into_iter().find(|state| state.name().is_some_and(|name| name.as_bytes() == text))? as i64)
    },
};

/// The tunnel kind with this number in a column; `None` for 0 and for unknown numbers.
pub fn tunnel(number: u64) -> Option<TunnelKind> {
    TunnelKind::ALL.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
}

/// The reason with this number.
pub fn end(number: u64) -> Option<EndReason> {
    EndReason::ALL.into_iter().find(|end| *end as u64 == number)
}

/// The state with this number.
pub fn tcp(number: u64) -> Option<TcpState> {
    TcpState::ALL.into_iter().find(|state| *state as u64 == number)
}

/// An empty record.
pub fn blank() -> Record {
    let zero = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Record {
        id: 0,
        key: Key { src: zero, dst: zero, src_port: 0, dst_port: 0, protocol: IpProtocol(0) },
        encapsulation: Encapsulation::default(),
        interface: 0,
        flow_start: Timestamp::ZERO,
        record_index: 0,
        directions: [DirectionStats::default(); 2],
        end_reason: EndReason::ForcedEnd,
        tcp_state: TcpState::None,
        syn_rtt: None,
        ack_rtt: None,
        initial_packets: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        location: None,
        lost: 0,
    }
}
