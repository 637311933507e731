//! What a journal keeps and a file holds: records and rows, by the order of time; and the numbers of their kinds.

use base::Timestamp;
use flow::{Around, EndReason, Key, Record, Side, TcpState};
use series::Row;
use std::net::{IpAddr, Ipv4Addr};
use wire::{IpProtocol, TunnelKind};

/// Something that a journal keeps.
pub trait Thing: Sized + Clone + Send {
    /// First and last moment.
    fn span(&self) -> (Timestamp, Timestamp);

    /// Sorted by this in a sealed file, and in every answer.
    fn order(&self) -> Order;

    /// When something of this order begins.
    fn moment(order: &Order) -> Timestamp;
}

/// The order of time; what begins at the same moment has one order too, whichever file it lies in.
pub type Order = (u64, u64, u32);

const NANOS_PER_SEC: u64 = 1_000_000_000;

impl Thing for Record {
    fn span(&self) -> (Timestamp, Timestamp) {
        let (first, last) = (self.first(), self.last());
        (first, last.max(first))
    }

    fn order(&self) -> Order {
        (self.first().nanos(), self.id, self.part)
    }

    fn moment(order: &Order) -> Timestamp {
        Timestamp::from_nanos(order.0)
    }
}

impl Thing for Row {
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

/// The tunnel with this number.
pub fn tunnel(number: u64) -> Option<TunnelKind> {
    TunnelKind::ALL.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
}

/// The reason with this number.
pub fn end(number: u64) -> Option<EndReason> {
    let all = [EndReason::Idle, EndReason::Active, EndReason::Ended, EndReason::Forced, EndReason::Lack];
    all.into_iter().find(|end| *end as u64 == number)
}

/// The state with this number.
pub fn tcp(number: u64) -> Option<TcpState> {
    let all = [
        TcpState::None,
        TcpState::Midstream,
        TcpState::SynSent,
        TcpState::SynReceived,
        TcpState::Established,
        TcpState::HalfClosed,
        TcpState::Closed,
        TcpState::Reset,
    ];
    all.into_iter().find(|state| *state as u64 == number)
}

/// A record without anything in it.
pub fn blank() -> Record {
    let zero = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Record {
        id: 0,
        key: Key { src: zero, dst: zero, src_port: 0, dst_port: 0, protocol: IpProtocol(0) },
        around: Around::default(),
        interface: 0,
        began: Timestamp::ZERO,
        part: 0,
        sides: [Side::default(); 2],
        end: EndReason::Forced,
        tcp: TcpState::None,
        syn_rtt: None,
        ack_rtt: None,
        early: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        locator: None,
        lost: 0,
    }
}
