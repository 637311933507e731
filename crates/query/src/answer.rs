//! The packets that were asked for, one after the other.

use crate::{Cost, Place, QueryError, Question};
use base::{Tally, Timestamp};

/// Where packets come from: one queue of an interface of the store, or one interface of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The interface; of a foreign file its name, as far as it says.
    pub interface: String,
    /// The hardware queue.
    pub queue: u16,
    /// As pcap numbers it.
    pub link_type: u16,
    /// Bytes kept of each packet.
    pub snaplen: u32,
    /// The filter that the recorder had; empty for none.
    pub filter: String,
    /// Who stamped the packets.
    pub stamps: String,
}

/// One packet, borrowed until the next is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// When it arrived.
    pub ts: Timestamp,
    /// Bytes it had on the wire.
    pub wire_len: u32,
    /// The bytes kept.
    pub data: &'a [u8],
    /// How to read its first bytes, as pcap numbers link types.
    pub link_type: u16,
    /// Index into [`Answer::origins`].
    pub origin: usize,
    /// Packets that were lost on this origin since its packet before in this answer, as exactly as the index knows: by
    /// block.
    pub lost: u64,
}

/// See the module.
pub struct Answer {
    origins: Vec<Origin>,
    cost: Cost,
}

/// Begins an answer; nothing is read yet but names.
///
/// # Errors
/// When the place cannot be looked at.
pub fn ask(_place: &Place, _question: Question) -> Result<Answer, QueryError> {
    Ok(Answer { origins: Vec::new(), cost: Cost::default() })
}

impl Answer {
    /// The next packet in time order; `None` at the end.
    ///
    /// # Errors
    /// What cannot be read.
    #[allow(clippy::should_implement_trait, reason = "an Iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<Found<'_>>, QueryError> {
        Ok(None)
    }

    /// Where the packets come from, as far as is known by now; it only grows.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// What happened on an origin in the blocks that were looked at: the ledger of the interval.
    pub fn tally(&self, _origin: usize) -> Tally {
        Tally::default()
    }
}
