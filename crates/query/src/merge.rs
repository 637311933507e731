//! Many cursors as one, in the order of time: by stamp, then by interface and queue, then in the order in which the cursors
//! came.
//!
//! A cursor whose stamps step back (a capture that was replayed in disorder) is not sorted: its late packet counts as old
//! as the latest one before it in the same cursor (or as the beginning of its file, by its name), so that it follows where
//! it arrived and holds up nobody.
//!
//! Cursors of a [`Supply`] are opened when the merge comes to the moment at which they can begin, and one ahead while the
//! one in front has nothing left to ask of the disk. Memory is that of the cursors that overlap.

use crate::cursor::{Cursor, Extent, Rank, Stand, Supply};
use crate::{Book, Found, QueryError};
use base::Timestamp;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// How long to sleep when every cursor waits.
const NAP: Duration = Duration::from_millis(5);

/// Where a cursor has its place: smaller ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    ts: Timestamp,
    rank: Rank,
    order: u64,
}

struct Standing {
    key: Key,
    cursor: Box<dyn Cursor>,
    /// Another cursor was opened because this one is ending.
    relieved: bool,
}

impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Standing {}
impl PartialOrd for Standing {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Standing {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// See the module.
#[derive(Default)]
pub struct Merge {
    /// The one whose packet is lent.
    top: Option<Standing>,
    /// The others that stand on a packet.
    rest: BinaryHeap<Reverse<Standing>>,
    /// Those that stand on nothing; what they will have is not before the moment.
    waiting: Vec<(Timestamp, Standing)>,
    supplies: Vec<Box<dyn Supply>>,
    /// Opened ahead, with the moment at which they can begin, and not looked at yet.
    ahead: Vec<(Timestamp, Standing)>,
    order: u64,
    limit: Limit,
}

/// Up to where the one on top may go without a look at the others.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    /// The first of the others.
    rival: Option<Key>,
    /// The first moment at which something may have to be opened.
    opens: Option<Timestamp>,
    /// The last moment for which no waiting cursor needs to be asked again.
    waits: Option<Timestamp>,
}

impl Limit {
    #[inline]
    fn allows(&self, key: &Key) -> bool {
        self.rival.is_none_or(|rival| *key < rival)
            && self.opens.is_none_or(|at| key.ts < at)
            && self.waits.is_none_or(|until| key.ts <= until)
    }

    /// The last moment that a cursor of this place may go to; `None` if not even to the first.
    fn until(&self, key: &Key) -> Option<Timestamp> {
        let before = |ts: Timestamp| ts.nanos().checked_sub(1).map(Timestamp::from_nanos);
        let mut until = Timestamp::MAX;
        if let Some(rival) = self.rival {
            let first = (key.rank, key.order) < (rival.rank, rival.order);
            until = until.min(if first { rival.ts } else { before(rival.ts)? });
        }
        if let Some(at) = self.opens {
            until = until.min(before(at)?);
        }
        Some(self.waits.map_or(until, |waits| until.min(waits)))
    }
}

impl Merge {
    /// Another cursor, from the beginning on.
    pub fn add(&mut self, rank: Rank, cursor: Box<dyn Cursor>) {
        let standing = self.place(Timestamp::ZERO, rank, cursor);
        self.ahead.push((Timestamp::ZERO, standing));
        self.limit.opens = Some(Timestamp::ZERO);
    }

    /// Cursors that begin later.
    pub fn supply(&mut self, supply: Box<dyn Supply>) {
        self.supplies.push(supply);
        self.limit.opens = Some(Timestamp::ZERO);
    }

    /// Moves to the next packet; false at the end.
    ///
    /// # Errors
    /// Those of the cursors.
    pub fn advance(&mut self, book: &mut Book) -> Result<bool, QueryError> {
        if let Some(mut top) = self.top.take() {
            match top.cursor.advance(book)? {
                Stand::Packet(ts) => {
                    top.key.ts = top.key.ts.max(ts);
                    if top.cursor.is_ending() && !top.relieved {
                        top.relieved = true;
                        self.open_ahead(book)?;
                    }
                    if self.limit.allows(&top.key) {
                        self.top = Some(top);
                        return Ok(true);
                    }
                    self.rest.push(Reverse(top));
                }
                Stand::Waiting(until) => self.waiting.push((until, top)),
                Stand::End => {}
            }
        }
        self.choose(book)
    }

    /// The packet moved to.
    pub fn packet(&self) -> Option<Found<'_>> {
        self.top.as_ref().map(|top| top.cursor.packet())
    }

    /// Takes as many packets as may be taken from the cursor on top before another one has its turn; `None` if its packets
    /// do not lie as records.
    ///
    /// # Errors
    /// Those of the cursor.
    pub fn extend(&mut self, book: &mut Book) -> Result<Option<Extent>, QueryError> {
        let Some(top) = &mut self.top else { return Ok(None) };
        // What it stands on has had its turn already, whatever the others say.
        let until = self.limit.until(&top.key).unwrap_or(top.key.ts).max(top.key.ts);
        let extent = top.cursor.extend(until, book)?;
        if let Some(extent) = extent {
            top.key.ts = top.key.ts.max(extent.latest);
        }
        Ok(extent)
    }

    /// The records of the last [`Merge::extend`].
    pub fn records(&self) -> &[u8] {
        self.top.as_ref().map_or(&[], |top| top.cursor.records())
    }

    fn place(&mut self, at: Timestamp, rank: Rank, cursor: Box<dyn Cursor>) -> Standing {
        self.order += 1;
        Standing { key: Key { ts: at, rank, order: self.order }, cursor, relieved: false }
    }

    /// Puts the first of all on top.
    fn choose(&mut self, book: &mut Book) -> Result<bool, QueryError> {
        loop {
            self.open_due(book)?;
            let head = self.rest.peek().map(|Reverse(first)| first.key.ts);
            let due = |until: &Timestamp| head.is_none_or(|ts| ts > *until);
            if self.waiting.iter().any(|(until, _)| due(until)) {
                if book.is_stopped() {
                    return Ok(false);
                }
                if !self.ask_waiting(book)? {
                    std::thread::sleep(NAP);
                }
                continue;
            }
            let Some(Reverse(top)) = self.rest.pop() else { return Ok(false) };
            self.limit.rival = self.rest.peek().map(|Reverse(second)| second.key);
            self.limit.waits = self.waiting.iter().map(|(until, _)| *until).min();
            self.top = Some(top);
            return Ok(true);
        }
    }

    /// Asks those that wait; whether anything has changed.
    fn ask_waiting(&mut self, book: &mut Book) -> Result<bool, QueryError> {
        let mut changed = false;
        for (until, standing) in std::mem::take(&mut self.waiting) {
            let now = self.look(standing, book)?;
            changed |= now != Stand::Waiting(until);
        }
        Ok(changed)
    }

    /// Moves a cursor to its next packet and puts it where it belongs then.
    fn look(&mut self, mut standing: Standing, book: &mut Book) -> Result<Stand, QueryError> {
        let stand = standing.cursor.advance(book)?;
        match stand {
            Stand::Packet(ts) => {
                standing.key.ts = standing.key.ts.max(ts);
                self.rest.push(Reverse(standing));
            }
            Stand::Waiting(until) => self.waiting.push((until, standing)),
            Stand::End => {}
        }
        Ok(stand)
    }

    /// Opens all that can begin before the first packet that is known.
    fn open_due(&mut self, book: &mut Book) -> Result<(), QueryError> {
        if let Some(Reverse(first)) = self.rest.peek()
            && self.limit.opens.is_none_or(|at| first.key.ts < at)
        {
            return Ok(());
        }
        loop {
            let head = self.rest.peek().map(|Reverse(first)| first.key.ts);
            let is_due = |at: Timestamp| head.is_none_or(|ts| at <= ts);
            if let Some(i) = self.ahead.iter().position(|(at, _)| is_due(*at)) {
                let (_, standing) = self.ahead.remove(i);
                self.look(standing, book)?;
                continue;
            }
            match self.soonest(book)? {
                Some((at, i)) if is_due(at) => self.open(i, at, book)?,
                next => {
                    let ahead = self.ahead.iter().map(|(at, _)| *at);
                    self.limit.opens = ahead.chain(next.map(|(at, _)| at)).min();
                    return Ok(());
                }
            }
        }
    }

    /// The one in front is ending: what comes next may begin to read.
    fn open_ahead(&mut self, book: &mut Book) -> Result<(), QueryError> {
        if let Some((at, i)) = self.soonest(book)? {
            self.open(i, at, book)?;
        }
        Ok(())
    }

    fn soonest(&mut self, book: &mut Book) -> Result<Option<(Timestamp, usize)>, QueryError> {
        let mut soonest = None;
        for (i, supply) in self.supplies.iter_mut().enumerate() {
            if let Some(at) = supply.begins(book)? {
                soonest = Some(soonest.map_or((at, i), |s: (Timestamp, usize)| s.min((at, i))));
            }
        }
        Ok(soonest)
    }

    fn open(&mut self, supply: usize, at: Timestamp, book: &mut Book) -> Result<(), QueryError> {
        if let Some((rank, cursor)) = self.supplies[supply].open(book)? {
            let standing = self.place(at, rank, cursor);
            self.ahead.push((at, standing));
        }
        Ok(())
    }
}
