//! What the parts of one answer share: the question, and what they have to tell.

use crate::disk::Disk;
use crate::{Cost, Origin, Query};
use base::{Tally, Timestamp};
use std::path::Path;
use std::sync::atomic::Ordering;
use wire::Headers;

/// Most remarks that are kept; a store in ruins repeats itself.
const MAX_REMARKS: usize = 100;

/// See the module.
pub struct QueryContext {
    /// What was asked.
    pub query: Query,
    /// What it has cost so far.
    pub cost: Cost,
    /// Reads of files of the store, of all cursors together.
    pub disk: Disk,
    origins: Vec<Origin>,
    counted: Vec<OriginCounts>,
    warnings: Vec<String>,
    unreported: u64,
    damaged: bool,
    wire_raised: u64,
}

/// What is known of one origin.
#[derive(Default)]
struct OriginCounts {
    tally: Tally,
    /// Lost since the packet that was lent last.
    lost: u64,
}

impl QueryContext {
    /// An empty one.
    pub fn new(question: Query) -> Self {
        Self {
            query: question,
            cost: Cost::default(),
            disk: Disk::new(),
            origins: Vec::new(),
            counted: Vec::new(),
            warnings: Vec::new(),
            unreported: 0,
            damaged: false,
            wire_raised: 0,
        }
    }

    /// The number of this origin.
    pub fn origin(&mut self, origin: Origin) -> usize {
        match self.origins.iter().position(|o| *o == origin) {
            Some(known) => known,
            None => {
                self.origins.push(origin);
                self.counted.push(OriginCounts::default());
                self.origins.len() - 1
            }
        }
    }

    /// All origins so far.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Whether the interval has this moment.
    #[inline]
    pub fn is_inside(&self, ts: Timestamp) -> bool {
        self.query.from <= ts && ts <= self.query.to
    }

    /// Whether a packet answers the question. Does not count it.
    #[inline]
    pub fn wants(&self, ts: Timestamp, wire_len: u32, data: &[u8], link_type: u16) -> bool {
        self.is_inside(ts) && self.matches(wire_len, data, link_type)
    }

    /// Whether a packet passes the filter, whenever it came.
    #[inline]
    pub fn matches(&self, wire_len: u32, data: &[u8], link_type: u16) -> bool {
        self.query.filter.is_empty()
            || self.query.filter.matches(data, wire_len, &Headers::of(data, wire_len, link_type))
    }

    /// Adds to the ledger of an origin.
    pub fn count(&mut self, origin: usize, tally: &Tally) {
        self.counted[origin].tally += tally;
    }

    /// The ledger of an origin so far.
    pub fn tally(&self, origin: usize) -> Tally {
        self.counted.get(origin).map(|c| c.tally).unwrap_or_default()
    }

    /// Packets of an origin were lost here; the next packet that is found will say so.
    pub fn add_lost(&mut self, origin: usize, packets: u64) {
        let lost = &mut self.counted[origin].lost;
        *lost = lost.saturating_add(packets);
    }

    /// What was lost since this was asked last: for [`FoundPacket::lost`](crate::FoundPacket::lost) of the packet now stood on.
    pub fn take_lost(&mut self, origin: usize) -> u64 {
        std::mem::take(&mut self.counted[origin].lost)
    }

    /// Something that people should know, each once.
    pub fn warning(&mut self, text: String) {
        if self.warnings.contains(&text) {
            return;
        }
        match self.warnings.len() < MAX_REMARKS {
            true => self.warnings.push(text),
            false => self.unreported += 1,
        }
    }

    /// So many packets of a file are of a link type that is not understood, which is worth a remark where the question is
    /// about what headers say.
    pub fn warn_unknown_link_type(&mut self, path: &Path, link_type: u16, packets: u64) {
        if packets > 0 && !self.query.filter.is_empty() {
            self.warning(format!(
                "{}: {packets} packets are of link type {}, which is not understood: no filter but `less` and `greater` \
                 matches them",
                path.display(),
                pcap::LinkType(link_type)
            ));
        }
    }

    /// So many packets of a file say fewer bytes on the wire than were captured.
    pub fn wire_raised(&mut self, path: &Path, packets: u64) {
        if packets > 0 {
            self.wire_raised = self.wire_raised.saturating_add(packets);
            self.warning(format!("{}: {}", path.display(), pcap::wire_raised(packets)));
        }
    }

    /// How many packets of captures say fewer bytes on the wire than were captured, as far as is known.
    pub fn all_wire_raised(&self) -> u64 {
        self.wire_raised
    }

    /// A remark on something that could not be read, so that packets may be missing from the answer.
    pub fn damage(&mut self, text: String) {
        self.damaged = true;
        self.warning(text);
    }

    /// Whether nothing that should have been read was unreadable.
    pub fn is_complete(&self) -> bool {
        !self.damaged
    }

    /// All remarks so far.
    pub fn warnings(&self) -> Vec<String> {
        let mut out = self.warnings.clone();
        if self.unreported > 0 {
            out.push(format!("and {} more remarks; netgrain verify names everything", self.unreported));
        }
        out
    }

    /// Whether the answer is to end early.
    pub fn is_stopped(&self) -> bool {
        self.query.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}
