//! What an answer is made of: cursors, each one run of packets that stands in its own order, and a supply of those that
//! begin later.
//!
//! A cursor tests each packet itself ([`QueryContext::wants`]) and stands only on such as answer the question. It lends what it
//! stands on until it is moved. What it has to tell (cost, losses, remarks, origins) goes into the [`QueryContext`].

use crate::{FoundPacket, QueryContext, QueryError};
use base::Timestamp;

/// Where a cursor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorState {
    /// On a packet with this stamp.
    Packet(Timestamp),
    /// On nothing at this moment; what may still come is not earlier than this. Only cursors that follow say so, and they
    /// say it again with a later moment while time passes, so that they hold up the others for a bounded time.
    Waiting(Timestamp),
    /// Nothing will come.
    End,
}

/// One run of packets in its own order.
pub trait Cursor: Send {
    /// Moves to the next packet that answers the question; the first call moves to the first one.
    ///
    /// # Errors
    /// What ends the whole answer. What ends or damages only this run is a remark in the book.
    fn advance(&mut self, book: &mut QueryContext) -> Result<CursorState, QueryError>;

    /// The packet stood on. Asked only while the cursor stands on one.
    fn packet(&self) -> FoundPacket<'_>;

    /// Moves on to the last of the packets that follow the one stood on, lie directly behind each other as records of
    /// little-endian nanosecond pcap, all answer the question and are not later than `until`; says how many there are from
    /// the one stood on before, itself included, and the latest stamp of them. [`Cursor::records`] lends them. A cursor
    /// whose packets do not lie so stays where it is and answers `None`.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    fn extend(&mut self, _until: Timestamp, _book: &mut QueryContext) -> Result<Option<Extent>, QueryError> {
        Ok(None)
    }

    /// The records of the last [`Cursor::extend`] that did not answer `None`, headers included, as one slice.
    fn records(&self) -> &[u8] {
        &[]
    }

    /// Whether all that is left has been asked of the disk, so that it is time to prepare what comes next.
    fn is_ending(&self) -> bool {
        false
    }
}

/// How far a cursor was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Packets, with the first one.
    pub packets: u64,
    /// The latest stamp of them.
    pub latest: Timestamp,
}

/// Which of several packets of the same stamp comes first: by interface in the order of names, then by queue.
pub type Rank = (u32, u16);

/// A cursor with its rank.
pub type Ranked = (Rank, Box<dyn Cursor>);

/// Cursors that are opened only when the answer has come to where they begin.
pub trait CursorSource: Send {
    /// The earliest stamp that the next cursor can have; `None` if there is no other.
    ///
    /// # Errors
    /// What ends the whole answer.
    fn begins(&mut self, book: &mut QueryContext) -> Result<Option<Timestamp>, QueryError>;

    /// Whether the next cursor can be opened without waiting.
    fn is_ready(&mut self) -> bool {
        false
    }

    /// Opens the next cursor; `None` if it has gone meanwhile or holds nothing that could answer. The one after it is next
    /// in both cases.
    ///
    /// # Errors
    /// What ends the whole answer.
    fn open(&mut self, book: &mut QueryContext) -> Result<Option<Ranked>, QueryError>;
}
