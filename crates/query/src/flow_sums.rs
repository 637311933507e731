//! Computes sums over flow records without reading the records completely. Only the columns that the plan of the sums
//! and the filter need are read from the store, and the values of each record are written into one reused record.

use aggregate::{Aggregator, Field, Measure, Plan, ReportError, terms};
use base::Timestamp;
use columns::{Batch, Column, ColumnsError, Query};
use filter::FlowFilter;
use flow::{DirectionStats, Encapsulation, EndReason, Key, Record, TcpState};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use wire::{IpProtocol, TunnelKind};

/// The columns that a plan of sums and a filter need, in the order in which they are written into the record.
pub struct SumColumns(Vec<Column>);

impl SumColumns {
    /// The columns that the sums need; `None` if complete records are needed.
    pub fn of(plan: &Plan, filter: &FlowFilter) -> Option<Self> {
        use Column as C;
        // The columns `Part` and `EndReason` are needed to recognise the records of one flow, which form one group.
        let mut all = vec![C::Part, C::EndReason];
        for field in plan.fields() {
            all.extend_from_slice(match field {
                Field::Flow => &[C::Id],
                Field::Src(_) => &[C::Src],
                Field::Dst(_) => &[C::Dst],
                Field::Host(_) => &[C::Src, C::Dst],
                Field::SrcPort => &[C::SrcPort],
                Field::DstPort => &[C::DstPort],
                Field::Port => &[C::Protocol, C::SrcPort, C::DstPort],
                Field::Protocol => &[C::Protocol],
                Field::Tunnel => &[C::Tunnel, C::TunnelId],
                Field::State => &[C::TcpState],
                Field::Interface | Field::End => &[],
                // The columns encode "none" as 0, but 0 is also a valid VLAN id and MPLS label.
                Field::Vlan | Field::Mpls => return None,
            });
        }
        for measure in plan.measures() {
            all.extend_from_slice(match measure {
                Measure::Flows | Measure::Records => &[],
                Measure::Packets => &[C::FwdPackets, C::RevPackets],
                Measure::Bytes | Measure::Sent | Measure::Received => &[C::FwdBytes, C::RevBytes],
                Measure::Retransmitted => &[C::FwdRetransmitted, C::RevRetransmitted],
                Measure::Syn => &[C::FwdSyn, C::RevSyn],
                Measure::Rst => &[C::FwdRst, C::RevRst],
                Measure::Rtt => &[C::SynRtt],
                Measure::First => &[C::First],
                Measure::Last => &[C::Last],
                Measure::IpBytes
                | Measure::Payload
                | Measure::RetransmittedBytes
                | Measure::OutOfOrder
                | Measure::ZeroWindow
                | Measure::Fin
                | Measure::Duration => return None,
            });
        }
        let looks = filter.required_fields();
        if looks.needs_tags || looks.needs_macs || looks.needs_other {
            return None;
        }
        if looks.needs_addresses {
            all.extend([C::Src, C::Dst]);
        }
        if looks.needs_ports {
            all.extend([C::SrcPort, C::DstPort]);
        }
        if looks.needs_protocol {
            all.push(C::Protocol);
        }
        if looks.needs_packets {
            all.extend([C::FwdPackets, C::RevPackets]);
        }
        if looks.needs_bytes {
            all.extend([C::FwdBytes, C::RevBytes]);
        }
        if looks.needs_state {
            all.push(C::TcpState);
        }
        if looks.needs_end_reason {
            all.push(C::EndReason);
        }
        all.sort_unstable();
        all.dedup();
        Some(Self(all))
    }

    /// Adds the records of one interface to `groups`, on several threads. Returns the number of records read and the
    /// warnings about files that could not be read.
    ///
    /// # Errors
    /// The store cannot be read, or there are more groups than the limit of the plan.
    pub fn add(
        &self,
        query: &Query,
        interface: u16,
        filter: &FlowFilter,
        plan: &Plan,
        groups: &mut Aggregator,
    ) -> Result<(u64, Vec<String>), SumError> {
        let filter = Some(filter).filter(|filter| !filter.is_empty());
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let make =
            || Sum { record: blank(interface), groups: Aggregator::new(plan.clone()), examined: 0, failed: None };
        let (sums, warnings) = columns::scan_shared(query, &self.0, threads, make, |sum: &mut Sum, batch| {
            sum.examined += batch.rows() as u64;
            for row in 0..batch.rows() {
                for (place, column) in self.0.iter().enumerate() {
                    set(&mut sum.record, *column, batch, place, row);
                }
                if sum.failed.is_none() && filter.is_none_or(|filter| filter.matches(&terms(&sum.record))) {
                    sum.failed = sum.groups.add(&sum.record).err();
                }
            }
        })?;
        let mut examined = 0;
        for sum in sums {
            if let Some(e) = sum.failed {
                return Err(e.into());
            }
            examined += sum.examined;
            groups.merge(sum.groups)?;
        }
        Ok((examined, warnings))
    }
}

/// The largest number of threads for one interface; it is limited because each thread has separate groups in memory.
const THREADS_MAX: usize = 4;

/// The sums of one thread.
struct Sum {
    record: Record,
    groups: Aggregator,
    examined: u64,
    failed: Option<ReportError>,
}

fn blank(interface: u16) -> Record {
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Record {
        id: 0,
        key: Key { src: unspecified, dst: unspecified, src_port: 0, dst_port: 0, protocol: IpProtocol(0) },
        encapsulation: Encapsulation::default(),
        interface,
        flow_start: Timestamp::ZERO,
        record_index: 0,
        // The times of a direction without packets are ignored, so both packet counters are 1 unless the columns of the
        // counters are read and overwrite them.
        directions: [DirectionStats { packets: 1, ..DirectionStats::default() }; 2],
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

#[inline]
fn set(record: &mut Record, column: Column, batch: &Batch, place: usize, row: usize) {
    let number = || batch.numbers(place)[row];
    let [there, back] = &mut record.directions;
    match column {
        Column::First => {
            let first = Timestamp::from_nanos(number());
            (there.first, back.first) = (first, first);
        }
        Column::Last => {
            let last = Timestamp::from_nanos(number());
            (there.last, back.last) = (last, last);
        }
        Column::Id => record.id = number(),
        Column::Part => record.record_index = number() as u32,
        Column::Src => record.key.src = batch.addresses(place)[row],
        Column::Dst => record.key.dst = batch.addresses(place)[row],
        Column::SrcPort => record.key.src_port = number() as u16,
        Column::DstPort => record.key.dst_port = number() as u16,
        Column::Protocol => record.key.protocol = IpProtocol(number() as u8),
        Column::Tunnel => record.encapsulation.tunnel = tunnel(number()).map(|kind| (kind, 0)),
        Column::TunnelId => {
            if let Some((_, id)) = &mut record.encapsulation.tunnel {
                *id = number() as u32;
            }
        }
        Column::EndReason => record.end_reason = end(number()),
        Column::TcpState => record.tcp_state = state(number()),
        Column::SynRtt => record.syn_rtt = Some(number()),
        Column::FwdPackets => there.packets = number(),
        Column::RevPackets => back.packets = number(),
        Column::FwdBytes => there.bytes = number(),
        Column::RevBytes => back.bytes = number(),
        Column::FwdRetransmitted => there.retransmitted = number(),
        Column::RevRetransmitted => back.retransmitted = number(),
        Column::FwdSyn => there.flags[1] = number(),
        Column::RevSyn => back.flags[1] = number(),
        Column::FwdRst => there.flags[2] = number(),
        Column::RevRst => back.flags[2] = number(),
        // The following columns are never among the columns that a scan for sums reads.
        Column::Interface
        | Column::Vlan
        | Column::VlanInner
        | Column::Mpls
        | Column::Lost
        | Column::FwdLinkBytes
        | Column::FwdHeaderBytes
        | Column::RevLinkBytes
        | Column::RevHeaderBytes => {}
    }
}

fn tunnel(number: u64) -> Option<TunnelKind> {
    use TunnelKind as K;
    let all =
        [K::Gre, K::Nvgre, K::Erspan1, K::Erspan2, K::Erspan3, K::Vxlan, K::Geneve, K::GtpU, K::IpInIp, K::Teredo];
    all.into_iter().find(|kind| *kind as u64 == number)
}

fn end(number: u64) -> EndReason {
    use EndReason as E;
    [E::ActiveTimeout, E::EndOfFlow, E::ForcedEnd, E::LackOfResources]
        .into_iter()
        .find(|end| *end as u64 == number)
        .unwrap_or(E::IdleTimeout)
}

fn state(number: u64) -> TcpState {
    use TcpState as S;
    let all = [S::Midstream, S::SynSent, S::SynReceived, S::Established, S::HalfClosed, S::Closed, S::Reset];
    all.into_iter().find(|state| *state as u64 == number).unwrap_or(S::None)
}

/// An error that ends the summation.
#[derive(Debug)]
pub enum SumError {
    /// The store cannot be read.
    Rows(ColumnsError),
    /// There are more groups than the limit of the plan.
    Groups(ReportError),
}

impl fmt::Display for SumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(e) => e.fmt(f),
            Self::Groups(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SumError {}

impl From<ColumnsError> for SumError {
    fn from(e: ColumnsError) -> Self {
        Self::Rows(e)
    }
}

impl From<ReportError> for SumError {
    fn from(e: ReportError) -> Self {
        Self::Groups(e)
    }
}
