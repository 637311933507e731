//! Packets whose fate is known and not yet in the stream: lost, or filtered, since the last control descriptor that said so.

use crate::desc::Control;
use crate::listener_registry::ListenerRegistry;
use base::{Cause, Tally};

/// The counts that wait for room in the stream.
#[derive(Default)]
pub struct PendingDiscards(Vec<Pending>);

struct Pending {
    discard: Discard,
    packets: u64,
    /// How many of them the hub knows of (see [`ListenerRegistry::attribute_loss`]).
    reported: u64,
}

/// What becomes of packets that are not stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// The capture filter refused them.
    Filtered,
    /// They were lost; for a full ring, because of this gate.
    Lost { cause: Cause, gate: u8 },
}

impl Discard {
    fn control(self, packets: u64) -> Control {
        match self {
            Self::Filtered => Control::Filtered { packets },
            Self::Lost { cause, gate } => Control::Lost { cause, reader: gate, packets },
        }
    }

    fn count(self, packets: u64, tally: &mut Tally) {
        match self {
            Self::Filtered => {
                tally.offered += packets;
                tally.filtered += packets;
            }
            Self::Lost { cause, .. } => tally.add_lost(cause, packets),
        }
    }
}

impl PendingDiscards {
    /// Counts packets.
    #[inline]
    pub fn add(&mut self, fate: Discard, packets: u64) {
        if packets == 0 {
            return;
        }
        match self.0.iter_mut().find(|p| p.discard == fate) {
            Some(p) => p.packets += packets,
            None => self.0.push(Pending { discard: fate, packets, reported: 0 }),
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells the hub of the losses to gates that it does not know of yet.
    pub fn attribute_loss(&mut self, hub: &ListenerRegistry) {
        for p in &mut self.0 {
            if let Discard::Lost { cause: Cause::RingFull, gate } = p.discard {
                hub.attribute_loss(gate, p.packets - p.reported);
                p.reported = p.packets;
            }
        }
    }

    /// Takes one count out, if `write` finds room for what it says; into `tally` it goes then.
    pub fn write_one(&mut self, tally: &mut Tally, write: impl FnOnce(Control) -> bool) -> bool {
        let Some(p) = self.0.last() else { return false };
        if !write(p.discard.control(p.packets)) {
            return false;
        }
        p.discard.count(p.packets, tally);
        self.0.pop();
        true
    }

    /// Adds what waits.
    pub fn add_to(&self, tally: &mut Tally) {
        for p in &self.0 {
            p.discard.count(p.packets, tally);
        }
    }
}
