//! The query context contains the data that all parts of one query share: the query, its cost, the ledgers of the files
//! read (outcome counters), and warnings.

use crate::disk::Disk;
use crate::{Cost, Origin, Query};
use base::{Tally, Timestamp, TimestampQuality};
use std::path::Path;
use std::sync::atomic::Ordering;
use wire::Headers;

/// The largest number of stored warnings; a badly damaged store would produce thousands of warnings.
const WARNINGS_MAX: usize = 100;

/// The query, its cost, its origins and its warnings.
pub struct QueryContext {
    /// The query.
    pub query: Query,
    /// The cost so far.
    pub cost: Cost,
    /// The read queue for store files, which all cursors use.
    pub disk: Disk,
    origins: Vec<Origin>,
    counted: Vec<OriginCounts>,
    warnings: Vec<String>,
    unreported: u64,
    damaged: bool,
    wire_raised: u64,
}

/// The counts of one origin.
#[derive(Default)]
struct OriginCounts {
    tally: Tally,
    /// Number of packets lost since the last packet that the query returned, for each origin.
    lost: u64,
    timestamps: TimestampQuality,
}

impl QueryContext {
    /// The context of a query that has not read any data yet.
    pub fn new(query: Query) -> Self {
        Self {
            query,
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

    /// The index of this origin in [`QueryContext::origins`]; adds the origin if it is new.
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

    /// True if the timestamp is in the interval of the query.
    #[inline]
    pub fn is_inside(&self, ts: Timestamp) -> bool {
        self.query.from <= ts && ts <= self.query.to
    }

    /// True if a packet matches interval and filter. The packet is not counted as scanned.
    #[inline]
    pub fn wants(&self, ts: Timestamp, wire_len: u32, data: &[u8], link_type: u16) -> bool {
        self.is_inside(ts) && self.matches(wire_len, data, link_type)
    }

    /// True if a packet passes the filter; ignores the interval.
    #[inline]
    pub fn matches(&self, wire_len: u32, data: &[u8], link_type: u16) -> bool {
        self.query.filter.is_empty()
            || self.query.filter.matches(data, wire_len, &Headers::of(data, wire_len, link_type))
    }

    /// Adds a tally to the ledger of an origin.
    pub fn count(&mut self, origin: usize, tally: &Tally) {
        self.counted[origin].tally += tally;
    }

    /// The ledger of an origin so far.
    pub fn tally(&self, origin: usize) -> Tally {
        self.counted.get(origin).map(|c| c.tally).unwrap_or_default()
    }

    /// Adds the quality of the timestamps of blocks of an origin.
    pub fn add_timestamps(&mut self, origin: usize, quality: TimestampQuality) {
        let known = &mut self.counted[origin].timestamps;
        *known = known.and(quality);
    }

    /// The quality of the timestamps of an origin so far.
    pub fn timestamps(&self, origin: usize) -> TimestampQuality {
        self.counted.get(origin).map(|c| c.timestamps).unwrap_or_default()
    }

    /// Registers that packets of an origin were lost; the loss is reported with the next packet of this origin.
    pub fn add_lost(&mut self, origin: usize, packets: u64) {
        let lost = &mut self.counted[origin].lost;
        *lost = lost.saturating_add(packets);
    }

    /// Returns the number of packets of an origin that were lost since the last call, for
    /// [`FoundPacket::lost`](crate::FoundPacket::lost) of the current packet.
    pub fn take_lost(&mut self, origin: usize) -> u64 {
        std::mem::take(&mut self.counted[origin].lost)
    }

    /// Adds a warning, unless the same text was added before.
    pub fn warning(&mut self, text: String) {
        if self.warnings.contains(&text) {
            return;
        }
        match self.warnings.len() < WARNINGS_MAX {
            true => self.warnings.push(text),
            false => self.unreported += 1,
        }
    }

    /// Warns that packets of a file have a link type that netgrain cannot parse. Without a filter there is no warning,
    /// because the query then parses no headers.
    pub fn warn_unknown_link_type(&mut self, path: &Path, link_type: u16, packets: u64) {
        if packets > 0 && !self.query.filter.is_empty() {
            self.warning(format!(
                "{}: {packets} packets have link type {}, which is not supported: only the filters `len`, `less`, \
                 `greater` and `link[…]` match them",
                path.display(),
                pcap::LinkType(link_type)
            ));
        }
    }

    /// Counts packets of a file whose wire length is less than their caplen, and adds a warning.
    pub fn wire_raised(&mut self, path: &Path, packets: u64) {
        if packets > 0 {
            self.wire_raised = self.wire_raised.saturating_add(packets);
            self.warning(format!("{}: {}", path.display(), pcap::wire_raised(packets)));
        }
    }

    /// The number of packets so far whose wire length is less than their caplen.
    pub fn all_wire_raised(&self) -> u64 {
        self.wire_raised
    }

    /// Adds a warning about unreadable data: packets may be missing from the result.
    pub fn damage(&mut self, text: String) {
        self.damaged = true;
        self.warning(text);
    }

    /// True if all data that the query needed could be read.
    pub fn is_complete(&self) -> bool {
        !self.damaged
    }

    /// All warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        let mut out = self.warnings.clone();
        if self.unreported > 0 {
            out.push(format!("and {} more warnings; netgrain verify reports all damage", self.unreported));
        }
        out
    }

    /// True if the query shall end early.
    pub fn is_stopped(&self) -> bool {
        self.query.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}
