//! The parts of a result: cursors, each of which returns one ordered run of packets, and sources of cursors that are
//! opened later.
//!
//! A cursor tests each packet with [`QueryContext::wants`] and stops only at packets that match. The current packet is
//! borrowed from the cursor until the next move. The cursor adds cost, losses, warnings and origins to the
//! [`QueryContext`].

use crate::{FoundPacket, QueryContext, QueryError};
use base::Timestamp;

/// The state of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorState {
    /// The cursor is at a packet with this timestamp.
    Packet(Timestamp),
    /// The cursor has no packet now; its later packets are not earlier than this timestamp. Cursors of the live tail
    /// return this state. They return it again with later timestamps as time passes, so that they delay other cursors
    /// only for a bounded time.
    Waiting(Timestamp),
    /// No more packets.
    End,
}

/// A cursor over one ordered run of packets.
pub trait Cursor: Send {
    /// Moves to the next matching packet; the first call moves to the first packet.
    ///
    /// # Errors
    /// An error that ends the query. An error that affects only the packets of this cursor is added to the context as a
    /// warning.
    fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError>;

    /// The current packet. The caller must call this function only while the cursor is at a packet.
    fn packet(&self) -> FoundPacket<'_>;

    /// Extends the current packet to a run of packets that are contiguous records of little-endian nanosecond pcap, all
    /// match and are not later than `until`, and moves to the last packet of this run. Returns the number of packets of
    /// the run, including the first, and their latest timestamp. [`Cursor::records`] returns the bytes of the run. A
    /// cursor whose packets are not contiguous records does not move and returns `None`.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    fn extend(&mut self, _until: Timestamp, _context: &mut QueryContext) -> Result<Option<Extent>, QueryError> {
        Ok(None)
    }

    /// The records of the last run that [`Cursor::extend`] returned, headers included, as one slice.
    fn records(&self) -> &[u8] {
        &[]
    }

    /// True if all remaining reads of this cursor are in progress, so that the merge may open the next cursor in
    /// advance.
    fn is_ending(&self) -> bool {
        false
    }
}

/// The size of a run of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of packets of the run, including the first.
    pub packets: u64,
    /// Their latest timestamp.
    pub latest: Timestamp,
}

/// The order of packets with equal timestamps: by interface in the order of names, then by queue.
pub type Rank = (u32, u16);

/// A cursor with its rank.
pub type Ranked = (Rank, Box<dyn Cursor>);

/// A source of cursors. The merge opens a cursor of the source when the result reaches the earliest timestamp that a
/// packet of the cursor can have, or earlier, if the disk can read in advance.
pub trait CursorSource: Send {
    /// The earliest timestamp that a packet of the next cursor of the source can have; `None` after the last cursor.
    ///
    /// # Errors
    /// An error that ends the query.
    fn begins(&mut self, context: &mut QueryContext) -> Result<Option<Timestamp>, QueryError>;

    /// True if the next cursor can be opened without waiting.
    fn is_ready(&mut self) -> bool {
        false
    }

    /// Opens the next cursor of the source. Returns `None`, and skips this cursor, if its file was removed or cannot
    /// contain a match.
    ///
    /// # Errors
    /// An error that ends the query.
    fn open(&mut self, context: &mut QueryContext) -> Result<Option<Ranked>, QueryError>;
}
