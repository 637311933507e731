//! Merges the blocks of one file with out-of-order packets into a result in order of time.
//!
//! Invariant: every block whose first packet is not later than the current packet of the result has been read. So the
//! earliest packet of the blocks in memory is the earliest of all remaining packets, and only blocks whose time ranges
//! overlap are in memory together.

use crate::block::Block;
use crate::cursor::{Cursor, CursorState, Extent};
use crate::{FoundPacket, QueryContext, QueryError};
use base::Timestamp;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

/// The blocks of a file that are not yet read.
pub trait BlockSource: Send {
    /// A lower bound of the timestamps of the matching packets in all blocks that are not yet read; `None` if all
    /// blocks are read.
    fn first(&self) -> Option<Timestamp>;

    /// Reads the block to which the bound [`Self::first`] belongs: of all blocks that are not yet read, the block with
    /// the earliest bound.
    ///
    /// # Errors
    /// An error that ends the query.
    fn load(&mut self, spare: Box<Block>, context: &mut QueryContext) -> Result<Box<Block>, QueryError>;

    /// Called after the last packet of the last block was returned.
    fn end(&mut self, _context: &mut QueryContext) {}
}

/// A cursor that merges the blocks of one file.
pub struct BlockMerge<S> {
    source: S,
    /// The block that contains the current packet.
    top: Option<Open>,
    rest: BinaryHeap<Reverse<Open>>,
    /// The memory of a block whose packets were all returned, for reuse.
    spare: Option<Box<Block>>,
    lent: Range<usize>,
    /// Number of packets of the same origin that were lost in earlier blocks and that no earlier packet has reported.
    lost: u64,
}

/// An open block. Open blocks are ordered by the timestamp of their current packet, then by block number.
struct Open {
    ts: Timestamp,
    block: Box<Block>,
}

impl Open {
    fn key(&self) -> (Timestamp, u32) {
        (self.ts, self.block.number)
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Open {}
impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Open {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<S: BlockSource> BlockMerge<S> {
    /// A new cursor, which is before the first packet.
    pub fn new(source: S) -> Self {
        Self { source, top: None, rest: BinaryHeap::new(), spare: None, lent: 0..0, lost: 0 }
    }

    /// True if a block with this number whose current packet has this timestamp precedes all other blocks.
    fn allows(&self, ts: Timestamp, number: u32) -> bool {
        self.rest.peek().is_none_or(|Reverse(open)| (ts, number) < open.key())
            && self.source.first().is_none_or(|first| ts < first)
    }

    /// Reads all blocks that may contain a packet that is not later than the current packets of the open blocks.
    fn open_due(&mut self, context: &mut QueryContext) -> Result<(), QueryError> {
        while let Some(first) = self.source.first() {
            if self.rest.peek().is_some_and(|Reverse(open)| open.ts < first) || context.is_stopped() {
                break;
            }
            let spare = self.spare.take().unwrap_or_default();
            let block = self.source.load(spare, context)?;
            match block.stamp() {
                Some(ts) => self.rest.push(Reverse(Open { ts, block })),
                None => self.spare = Some(block),
            }
        }
        Ok(())
    }
}

impl<S: BlockSource> Cursor for BlockMerge<S> {
    fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError> {
        self.lost = 0;
        if let Some(mut top) = self.top.take() {
            top.block.step();
            match top.block.stamp() {
                Some(ts) if self.allows(ts, top.block.number) => {
                    self.top = Some(Open { ts, ..top });
                    return Ok(CursorState::Packet(ts));
                }
                Some(ts) => self.rest.push(Reverse(Open { ts, ..top })),
                None => self.spare = Some(top.block),
            }
        }
        self.open_due(context)?;
        let Some(Reverse(top)) = self.rest.pop() else {
            self.source.end(context);
            return Ok(CursorState::End);
        };
        if let Some(found) = top.block.packet() {
            self.lost = context.take_lost(found.origin);
        }
        let ts = top.ts;
        self.top = Some(top);
        Ok(CursorState::Packet(ts))
    }

    fn packet(&self) -> FoundPacket<'_> {
        let found = self.top.as_ref().and_then(|top| top.block.packet());
        let nothing = FoundPacket {
            ts: Timestamp::ZERO,
            wire_len: 0,
            data: &[],
            link_type: pcap::ETHERNET,
            origin: 0,
            lost: 0,
            position: None,
        };
        found.map_or(nothing, |found| FoundPacket { lost: found.lost.saturating_add(self.lost), ..found })
    }

    fn extend(&mut self, until: Timestamp, _context: &mut QueryContext) -> Result<Option<Extent>, QueryError> {
        let Some(mut top) = self.top.take() else { return Ok(None) };
        let number = top.block.number;
        let extent = top.block.extend(|ts| ts <= until && self.allows(ts, number));
        top.ts = top.block.stamp().unwrap_or(top.ts);
        let latest = top.ts;
        self.top = Some(top);
        Ok(extent.map(|(range, packets)| {
            self.lent = range;
            Extent { packets, latest }
        }))
    }

    fn records(&self) -> &[u8] {
        self.top.as_ref().map_or(&[], |top| top.block.records(self.lent.clone()))
    }
}
