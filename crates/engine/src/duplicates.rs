//! The removal or marking of duplicates in an engine thread. Each queue has a table of its own, because copies of a
//! packet have the same flow hash and reach the same queue; a copy after NAT can reach another queue and is then not
//! found.

use ::duplicates::{Detector, Packet, Settings, SettingsError};
use base::DuplicateClass;
use meter::MemoryHints;

/// What happens to duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateAction {
    /// The packet is stored, and its descriptor has the class.
    Mark,
    /// The packet is not stored, and is counted in the column `duplicate` of the ledger.
    Drop,
}

/// The settings of the detection of duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicatePlan {
    /// What happens to duplicates.
    pub action: DuplicateAction,
    /// The classes, the window and the size of the table of each queue.
    pub settings: Settings,
}

/// The outcome of the detection for a packet that is stored or dropped.
pub enum Detected {
    /// The packet is stored, with this class.
    Stored(Option<DuplicateClass>),
    /// The packet is not stored.
    Dropped,
}

/// The detector of a queue.
pub struct QueueDuplicates {
    action: DuplicateAction,
    detector: Detector<MemoryHints>,
}

impl QueueDuplicates {
    /// Allocates the table of a queue.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn new(plan: &DuplicatePlan, key: u64) -> Result<Self, SettingsError> {
        let detector = Detector::with_hints(plan.settings.clone(), key, MemoryHints)?;
        Ok(Self { action: plan.action, detector })
    }

    /// Compares a packet with the packets before it.
    #[inline]
    pub fn detect(&mut self, packet: &Packet<'_>) -> Detected {
        match (self.detector.inspect(packet), self.action) {
            (None, _) => Detected::Stored(None),
            (Some(_), DuplicateAction::Drop) => Detected::Dropped,
            (Some(found), DuplicateAction::Mark) => Detected::Stored(Some(found.class)),
        }
    }

    /// Forgets the last packet, because the packet was lost.
    #[cold]
    pub fn forget_last(&mut self, packet: &Packet<'_>) {
        self.detector.forget_last(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Timestamp;
    use wire::{build::Frame, link};

    #[test]
    fn a_marked_duplicate_has_its_class_and_a_dropped_duplicate_is_not_stored() {
        let mut bytes = [0; 60];
        let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fragment(7, 0, false).fill(&mut bytes);
        for action in [DuplicateAction::Mark, DuplicateAction::Drop] {
            let plan = DuplicatePlan { action, settings: Settings::default() };
            let mut duplicates = QueueDuplicates::new(&plan, 1).expect("valid settings");
            let mut detect = |nanos| {
                let (ts, link_type) = (Timestamp::from_nanos(nanos), link::ETHERNET);
                duplicates.detect(&Packet { ts, data: frame, wire_len: 60, link_type, interface: 0 })
            };
            assert!(matches!(detect(1000), Detected::Stored(None)));
            match (action, detect(2000)) {
                (DuplicateAction::Mark, Detected::Stored(Some(DuplicateClass::Switching))) => (),
                (DuplicateAction::Drop, Detected::Dropped) => (),
                _ => panic!("{action:?}"),
            }
        }
    }

    #[test]
    fn settings_out_of_range_are_an_error() {
        let settings = Settings { records: 0, ..Settings::default() };
        assert!(QueueDuplicates::new(&DuplicatePlan { action: DuplicateAction::Drop, settings }, 1).is_err());
    }
}
