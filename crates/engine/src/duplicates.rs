//! The removal or marking of duplicates in an engine thread.
//!
//! By default each queue has a table of its own, because copies of a packet have the same flow hash and reach the same
//! queue. Copies that arrive on another interface, or after NAT on another queue, are found in a shared table.

mod tables;

pub(crate) use tables::memory;
pub use tables::{DuplicateScope, SharedDuplicates};

use crate::duplicate_report::DuplicateReport;
use ::duplicates::{Packet, Prepared, Preparer, Settings, SettingsError};
use base::DuplicateClass;
use std::collections::VecDeque;
use tables::{SharedTable, TableAccess};

/// The largest number of packets that are prepared before they are compared.
const AHEAD_MAX: usize = 64;

/// What happens to duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateAction {
    /// The packet is stored, and its descriptor has the class.
    Mark,
    /// The packet is not stored, and is counted in the column `duplicate` of the ledger.
    Drop,
}

/// The settings of the detection of duplicates.
#[derive(Clone, Debug)]
pub struct DuplicatePlan {
    /// What happens to duplicates.
    pub action: DuplicateAction,
    /// The classes, the window and the size of each table.
    pub settings: Settings,
    /// Which packets are compared with each other.
    pub scope: DuplicateScope,
    /// The number of the interface, which differs from that of the other interfaces with the same table.
    pub interface: u16,
}

impl DuplicatePlan {
    /// A plan with a table for each queue.
    pub fn new(action: DuplicateAction, settings: Settings) -> Self {
        Self { action, settings, scope: DuplicateScope::Queue, interface: 0 }
    }
}

/// The outcome of the detection for a packet that is stored or dropped.
pub enum Detected {
    /// The packet is stored, with this class.
    Stored(Option<DuplicateClass>),
    /// The packet is not stored.
    Dropped,
}

/// The tables of the queues of an interface.
pub struct InterfaceTables<'a> {
    plan: &'a DuplicatePlan,
    key: u64,
    /// The table that the queues share.
    shared: Option<SharedTable>,
}

impl<'a> InterfaceTables<'a> {
    /// Allocates the table that the queues share, if they share one.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn new(plan: &'a DuplicatePlan, key: u64) -> Result<Self, SettingsError> {
        let shared = match &plan.scope {
            DuplicateScope::Queue => None,
            DuplicateScope::Interface => Some(SharedTable::new(&plan.settings, key)?),
            DuplicateScope::Shared(shared) => Some(shared.table(&plan.settings, key)?),
        };
        Ok(Self { plan, key, shared })
    }

    /// The detection for a queue.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn queue(&self) -> Result<QueueDuplicates, SettingsError> {
        let table = match &self.shared {
            Some(table) => TableAccess::Shared(table.clone()),
            None => {
                let settings = self.plan.settings.clone();
                TableAccess::Own(Box::new(::duplicates::Detector::with_hints(settings, self.key, meter::MemoryHints)?))
            }
        };
        Ok(QueueDuplicates {
            action: self.plan.action,
            interface: self.plan.interface,
            scope: self.plan.scope.name(),
            preparer: table.preparer(),
            table,
            ahead: VecDeque::with_capacity(AHEAD_MAX),
            last: (Prepared::default(), 0),
            found: [0; DuplicateClass::COUNT],
        })
    }
}

/// A packet that was prepared before its turn. Address and length identify the frame: the source neither moves nor
/// changes a frame from the call of `ahead` to the end of the poll.
struct Ahead {
    address: usize,
    len: usize,
    prepared: Prepared,
}

/// The detection of duplicates among the packets of a queue.
pub struct QueueDuplicates {
    action: DuplicateAction,
    interface: u16,
    scope: &'static str,
    preparer: Preparer,
    table: TableAccess,
    ahead: VecDeque<Ahead>,
    /// The last packet, and its number in the table.
    last: (Prepared, u64),
    /// Duplicates of this queue by class.
    found: [u64; DuplicateClass::COUNT],
}

impl QueueDuplicates {
    /// Begins a poll of the source: forgets the packets that were prepared in the previous poll.
    #[inline]
    pub fn begin_poll(&mut self) {
        self.ahead.clear();
    }

    /// Prepares a packet that the source will deliver soon, and prefetches its part of the table.
    #[inline]
    pub fn ahead(&mut self, packet: Packet<'_>) {
        if self.ahead.len() == AHEAD_MAX {
            return;
        }
        let prepared = self.preparer.prepare(&Packet { interface: self.interface, ..packet });
        self.table.prefetch(&prepared);
        let (address, len) = (packet.data.as_ptr().addr(), packet.data.len());
        self.ahead.push_back(Ahead { address, len, prepared });
    }

    /// Compares a packet with the packets before it.
    #[inline]
    pub fn detect(&mut self, packet: &Packet<'_>) -> Detected {
        let packet = Packet { interface: self.interface, ..*packet };
        let prepared = match self.prepared(packet.data) {
            Some(prepared) => prepared.at(packet.ts),
            None => self.preparer.prepare(&packet),
        };
        let (found, number) = self.table.inspect(&packet, &prepared);
        self.last = (prepared, number);
        let Some(found) = found else { return Detected::Stored(None) };
        self.found[found.class.index()] += 1;
        match self.action {
            DuplicateAction::Drop => Detected::Dropped,
            DuplicateAction::Mark => Detected::Stored(Some(found.class)),
        }
    }

    /// The prepared packet of this frame. Prepared packets before it were not compared, and are removed.
    #[inline]
    fn prepared(&mut self, data: &[u8]) -> Option<Prepared> {
        let frame = (data.as_ptr().addr(), data.len());
        let at = self.ahead.iter().position(|ahead| (ahead.address, ahead.len) == frame)?;
        self.ahead.drain(..at);
        self.ahead.pop_front().map(|ahead| ahead.prepared)
    }

    /// Forgets the last packet, because the packet was lost.
    #[cold]
    pub fn forget_last(&mut self, packet: &Packet<'_>) {
        let (prepared, number) = &self.last;
        self.table.forget(*number, packet, prepared);
    }

    /// The counters of this queue and of its table.
    pub fn report(&self) -> DuplicateReport {
        let table = self.table.counts();
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        DuplicateReport {
            table: self.scope,
            found: DuplicateClass::ALL.map(|class| (class.name(), self.found[class.index()])).into_iter().collect(),
            repeats: table.repeats,
            reach_nanos: nanos(table.reach),
            shortest_reach_nanos: table.shortest_reach.map(nanos),
            forgotten: table.forgotten,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;
    use wire::{build::Frame, link};

    fn queue(action: DuplicateAction, settings: Settings) -> Result<QueueDuplicates, SettingsError> {
        InterfaceTables::new(&DuplicatePlan::new(action, settings), 1)?.queue()
    }

    fn packet(data: &[u8], nanos: u64) -> Packet<'_> {
        let ts = Timestamp::from_nanos(nanos);
        Packet { ts, data, wire_len: data.len() as u32, link_type: link::ETHERNET, interface: 0 }
    }

    #[test]
    fn a_marked_duplicate_has_its_class_and_a_dropped_duplicate_is_not_stored() {
        let mut bytes = [0; 60];
        let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fragment(7, 0, false).fill(&mut bytes);
        for action in [DuplicateAction::Mark, DuplicateAction::Drop] {
            let mut duplicates = queue(action, Settings::default()).expect("valid settings");
            assert!(matches!(duplicates.detect(&packet(frame, 1000)), Detected::Stored(None)));
            match (action, duplicates.detect(&packet(frame, 2000))) {
                (DuplicateAction::Mark, Detected::Stored(Some(DuplicateClass::Switching))) => (),
                (DuplicateAction::Drop, Detected::Dropped) => (),
                _ => panic!("{action:?}"),
            }
            let report = duplicates.report();
            assert_eq!((report.found["switching"], report.found["routing"], report.reach_nanos), (1, 0, 1000));
        }
    }

    #[test]
    fn settings_out_of_range_are_an_error() {
        let settings = Settings { records: 0, ..Settings::default() };
        assert!(queue(DuplicateAction::Drop, settings).is_err());
    }

    /// Packets that are prepared ahead, also packets that are never compared, give the same results as packets that are
    /// not.
    #[test]
    fn preparation_ahead_does_not_change_the_results() {
        let mut prng = base::Prng::new(testkit::seed("preparation_ahead_does_not_change_the_results"));
        let frames: Vec<[u8; 60]> = (0..4000)
            .map(|_| {
                let mut bytes = [0; 60];
                // Equal payloads with several identifications would show that the sender repeats itself.
                let id = 1 + prng.below(1500) as u16;
                Frame::udp4([10, 0, 0, 1], id, [10, 0, 0, 2], 2).fragment(id, 0, false).fill(&mut bytes);
                bytes
            })
            .collect();
        let settings = Settings { records: 1000, ..Settings::default() };
        let [mut plain, mut prepared] =
            [(); 2].map(|()| queue(DuplicateAction::Mark, settings.clone()).expect("valid settings"));
        let (mut at, mut found) = (0, 0);
        while at < frames.len() {
            let poll = &frames[at..frames.len().min(at + 1 + prng.below(200) as usize)];
            prepared.begin_poll();
            for (i, frame) in poll.iter().enumerate() {
                let nanos = (at + i) as u64 * 100;
                if i % 16 == 0 {
                    poll[i..poll.len().min(i + 16)].iter().for_each(|frame| prepared.ahead(packet(frame, 0)));
                }
                // The filter excludes some packets after they were prepared.
                if prng.below(5) == 0 {
                    continue;
                }
                let class = |detected| match detected {
                    Detected::Stored(class) => class,
                    Detected::Dropped => None,
                };
                let expected = class(plain.detect(&packet(frame, nanos)));
                assert_eq!(class(prepared.detect(&packet(frame, nanos))), expected);
                found += u32::from(expected.is_some());
            }
            at += poll.len();
        }
        assert!(found > 500, "{found}");
    }
}
