//! The parts of a result: cursors, each with one run of packets in its own order, and sources of cursors that begin
//! later.
//!
//! A cursor tests each packet with [`QueryContext::wants`] and stops only at packets that match. It lends the current
//! packet until the next move. It adds cost, losses, warnings and origins to the [`QueryContext`].

use crate::{FoundPacket, QueryContext, QueryError};
use base::Timestamp;

/// The state of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorState {
    /// The cursor is at a packet with this timestamp.
    Packet(Timestamp),
    /// The cursor has no packet now; later packets are not earlier than this timestamp. Only cursors that follow return
    /// this state. They return it again with a later timestamp as time passes, so that they delay other cursors for a
    /// bounded time.
    Waiting(Timestamp),
    /// No more packets.
    End,
}

/// One run of packets in its own order.
pub trait Cursor: Send {
    /// Moves to the next matching packet; the first call moves to the first packet.
    ///
    /// # Errors
    /// An error that ends the query. An error that affects only this run becomes a warning in the context.
    fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError>;

    /// The current packet. Called only while the cursor is at a packet.
    fn packet(&self) -> FoundPacket<'_>;

    /// Extends the current packet to a run: moves to the last of the packets that follow, are contiguous records of
    /// little-endian nanosecond pcap, all match and are not later than `until`. Returns the number of packets of the
    /// run, including the first, and their latest timestamp. [`Cursor::records`] lends the run. A cursor whose packets
    /// are not contiguous records does not move and returns `None`.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    fn extend(&mut self, _until: Timestamp, _context: &mut QueryContext) -> Result<Option<Extent>, QueryError> {
        Ok(None)
    }

    /// The records of the last [`Cursor::extend`] that returned a run, headers included, as one slice.
    fn records(&self) -> &[u8] {
        &[]
    }

    /// True if all remaining reads of this cursor are in progress, so that the merge may open the next cursor.
    fn is_ending(&self) -> bool {
        false
    }
}

/// The size of a run of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of packets, including the first.
    pub packets: u64,
    /// Their latest timestamp.
    pub latest: Timestamp,
}

/// The order among packets with the same timestamp: by interface in the order of names, then by queue.
pub type Rank = (u32, u16);

/// A cursor with its rank.
pub type Ranked = (Rank, Box<dyn Cursor>);

/// A source of cursors that are opened only when the merge reaches their begin.
pub trait CursorSource: Send {
    /// The earliest timestamp that the next cursor can have; `None` if there is no other cursor.
    ///
    /// # Errors
    /// An error that ends the query.
    fn begins(&mut self, context: &mut QueryContext) -> Result<Option<Timestamp>, QueryError>;

    /// True if the next cursor can be opened without waiting.
    fn is_ready(&mut self) -> bool {
        false
    }

    /// Opens the next cursor; `None` if its file has vanished or cannot contain a match. In both cases the source
    /// proceeds to the cursor after it.
    ///
    /// # Errors
    /// An error that ends the query.
    fn open(&mut self, context: &mut QueryContext) -> Result<Option<Ranked>, QueryError>;
}
