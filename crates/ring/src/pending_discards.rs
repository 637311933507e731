//! Counts of lost and filtered packets and of removed duplicates that no control descriptor in the stream reports yet.

use crate::desc::Control;
use crate::listener_registry::ListenerRegistry;
use base::{Cause, Tally};

/// The counts that wait for free space in the stream.
#[derive(Default)]
pub struct PendingDiscards(Vec<Pending>);

struct Pending {
    discard: Discard,
    packets: u64,
    /// Number of the pending packets that the listener registry has counted (see [`ListenerRegistry::attribute_loss`]).
    reported: u64,
}

/// The outcome of packets that are not stored: filtered, removed as duplicates, or lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// The packets did not match the capture filter.
    Filtered,
    /// The packets were removed as duplicates.
    Duplicate,
    /// The packets were lost; `reader` is the slot of the lossless reader if the cause is a full ring.
    Lost { cause: Cause, reader: u8 },
}

impl Discard {
    fn control(self, packets: u64) -> Control {
        match self {
            Self::Filtered => Control::Filtered { packets },
            Self::Duplicate => Control::Duplicate { packets },
            Self::Lost { cause, reader } => Control::Lost { cause, reader, packets },
        }
    }

    fn count(self, packets: u64, tally: &mut Tally) {
        match self {
            Self::Filtered => {
                tally.offered += packets;
                tally.filtered += packets;
            }
            Self::Duplicate => {
                tally.offered += packets;
                tally.duplicate += packets;
            }
            Self::Lost { cause, .. } => tally.add_lost(cause, packets),
        }
    }
}

impl PendingDiscards {
    /// Adds packets with this outcome.
    #[inline]
    pub fn add(&mut self, discard: Discard, packets: u64) {
        if packets == 0 {
            return;
        }
        match self.0.iter_mut().find(|p| p.discard == discard) {
            Some(p) => p.packets += packets,
            None => self.0.push(Pending { discard, packets, reported: 0 }),
        }
    }

    /// True if no count is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds losses due to lossless readers to the listener registry, as far as the registry has not counted them.
    pub fn attribute_loss(&mut self, registry: &ListenerRegistry) {
        for p in &mut self.0 {
            if let Discard::Lost { cause: Cause::RingFull, reader } = p.discard {
                registry.attribute_loss(reader, p.packets - p.reported);
                p.reported = p.packets;
            }
        }
    }

    /// Writes one count to the stream. If `write` finds space for the control descriptor, the count is removed from the
    /// pending counts and added to `tally`.
    pub fn write_one(&mut self, tally: &mut Tally, write: impl FnOnce(Control) -> bool) -> bool {
        let Some(p) = self.0.last() else { return false };
        if !write(p.discard.control(p.packets)) {
            return false;
        }
        p.discard.count(p.packets, tally);
        self.0.pop();
        true
    }

    /// Adds the pending counts to `tally`.
    pub fn add_to(&self, tally: &mut Tally) {
        for p in &self.0 {
            p.discard.count(p.packets, tally);
        }
    }
}
