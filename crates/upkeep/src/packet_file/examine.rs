//! Comparing a packet file with what its index promises, block by block.
//!
//! A record is kept when the block in which it begins is as promised, and so is the one into which it runs on. What was
//! promised and is not found is lost, by second, and so is what lies behind the last promise: it looks like packets, but
//! no checksum says that all of its bytes reached the disk. Only where the promise itself is lost (no index, or one whose
//! end is torn) the chain of records is all there is; what is taken from it is marked as not vouched for.

use super::{BLOCK, IndexedBlock, Layout, Record, VerifiedIndex, Window};
use base::{Cause, Note, Tally, Timestamp};
use index::Rows;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use store::device::Device;

/// What is in a file, and what is not.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Stretches of whole records, in order; the first begins at 0 if the file's head is good.
    pub kept: Vec<Range<u64>>,
    /// What the ledger says beside the packets that are kept: from this byte of the file on.
    pub rest: Vec<(u64, Rows)>,
    /// Packets that are kept.
    pub packets: u64,
    /// Of these, packets for which no checksum vouches.
    pub unverified: u64,
    /// Packets that are lost.
    pub lost: u64,
    /// Blocks that are not as promised, and not merely empty.
    pub damaged: Vec<u32>,
}

impl Findings {
    /// Whether the file need only be cut, at this length.
    pub fn cut(&self) -> Option<u64> {
        match &self.kept[..] {
            [only] if only.start == 0 => Some(only.end),
            _ => None,
        }
    }

    /// Whether there is nothing worth keeping: no packet, and no second of which anything is known.
    pub fn is_empty(&self) -> bool {
        self.packets == 0 && self.rest.iter().all(|(_, rows)| rows.is_empty())
    }
}

/// Packets and wire bytes that were found, by second.
type PacketsBySecond = BTreeMap<u64, (u64, u64)>;

/// Compares a file with its index; without one, takes what the chain of records gives.
///
/// # Errors
/// What the device says.
pub fn examine<D: Device>(
    window: &mut Window<'_, D>,
    layout: Layout,
    verified: Option<&VerifiedIndex>,
) -> io::Result<Findings> {
    let mut walk =
        Examination { layout, window, findings: Findings::default(), latest: Timestamp::ZERO, ordered: false };
    let kept = verified.map_or(Ok(Vec::new()), |v| v.check_blocks(walk.window))?;
    let (promises, good): (Vec<IndexedBlock>, Vec<bool>) = kept.into_iter().unzip();
    let trusting = verified.is_none_or(|v| v.torn);
    // Where the chain stands, as long as it is whole.
    let mut next = None;
    if promises.is_empty() && walk.header()? {
        next = Some(layout.file_header());
    }
    for (i, promise) in promises.iter().enumerate() {
        let mut found = PacketsBySecond::new();
        if good[i] {
            if promise.number == 0 {
                walk.keep(0, layout.file_header());
                next = Some(layout.file_header());
            }
            // A record that ran into this block tells where the next begins; behind damage the index does.
            let from = next.or(promise.first_record.map(|f| promise.start() + u64::from(f)));
            let follows = promises.get(i + 1).filter(|p| p.number == promise.number + 1 && good[i + 1]);
            let whole_to = match follows {
                _ if promise.end() < promise.start() + BLOCK => promise.end(),
                Some(next) => next.end(),
                None if trusting && i + 1 == promises.len() => u64::MAX,
                None => promise.end(),
            };
            next = match from {
                Some(from) => walk.records(from, promise.end(), whole_to, &mut found)?,
                None => None,
            };
        } else {
            next = None;
            if !walk.window.is_blank(promise.start(), promise.end())? {
                walk.findings.damaged.push(promise.number);
            }
        }
        walk.reconcile(promise.start(), &promise.rows, &found);
        // The promise of a block that went on filling may be older than the next block's.
        let early = promise.end() < promise.start() + BLOCK && i + 1 < promises.len();
        if early && let Some(from) = next.take() {
            walk.unconfirmed(from, promise.end()..promise.start() + BLOCK)?;
        }
    }
    if let Some(from) = next {
        match trusting {
            true => walk.unvouched(from)?,
            false => walk.unconfirmed(from, promises.last().map_or(0, IndexedBlock::end)..u64::MAX)?,
        }
    }
    Ok(walk.findings)
}

struct Examination<'w, 'd, D> {
    layout: Layout,
    window: &'w mut Window<'d, D>,
    findings: Findings,
    latest: Timestamp,
    /// Stamps must not fall. They never do in a queue, but what a checksum vouches for needs no such rule.
    ordered: bool,
}

impl<D: Device> Examination<'_, '_, D> {
    /// Keeps the head of the file, if it is one.
    fn header(&mut self) -> io::Result<bool> {
        let len = self.layout.file_header();
        let head = self.window.get(0, len as usize)?;
        let begins = self.layout.begins(head);
        if begins {
            self.keep(0, len);
        }
        Ok(begins)
    }

    fn keep(&mut self, from: u64, to: u64) {
        match self.findings.kept.last_mut() {
            Some(last) if last.end == from => last.end = to,
            _ => self.findings.kept.push(from..to),
        }
    }

    /// Keeps the records from `from` on that begin before `end` and are whole before `whole_to`. Returns where the chain
    /// stands: at the first record that begins at `end` or later, or that is not whole; `None` where it is broken.
    fn records(&mut self, from: u64, end: u64, whole_to: u64, found: &mut PacketsBySecond) -> io::Result<Option<u64>> {
        let mut at = from;
        while at < end {
            let Some(record) = self.layout.next(self.window, at, self.strict())? else {
                // A record that runs over the end of the file, or none: nothing can be known of what follows.
                return Ok(None);
            };
            if record.end > whole_to {
                return Ok(Some(at));
            }
            self.take(&record, found);
            at = record.end;
        }
        Ok(Some(at))
    }

    fn strict(&self) -> Timestamp {
        if self.ordered { self.latest } else { Timestamp::ZERO }
    }

    fn take(&mut self, record: &Record, found: &mut PacketsBySecond) {
        self.keep(record.at, record.end);
        if !record.padding {
            self.latest = self.latest.max(record.ts);
            self.findings.packets += 1;
            let (packets, bytes) = found.entry(record.ts.secs()).or_default();
            (*packets, *bytes) = (*packets + 1, *bytes + u64::from(record.wire_len));
        }
    }

    /// What was promised of a block, without the packets that are kept of it: those that are missing are lost.
    fn reconcile(&mut self, at: u64, promised: &Rows, found: &PacketsBySecond) {
        let mut rest = Rows::new();
        for run in promised.runs() {
            if run.is_silent() {
                rest.add_silence(run.second, run.seconds);
                continue;
            }
            let (found, _) = found.get(&run.second).copied().unwrap_or_default();
            let mut tally = run.tally;
            let missing = tally.stored.saturating_sub(found);
            tally.offered = tally.offered.saturating_sub(tally.stored);
            (tally.stored, tally.stored_bytes) = (0, 0);
            tally.add_lost(Cause::Crash, missing);
            if missing > 0 {
                // Remarks are made of stored packets; of which, nobody knows any more.
                tally.notes = tally.notes.map(|n| n.min(found));
            }
            self.findings.lost += missing;
            rest.add(run.second, &tally);
        }
        self.findings.rest.push((at, rest));
    }

    /// What looks like packets and was not promised: counted as lost. The record at `from` may begin before the stretch;
    /// it was counted where it does.
    fn unconfirmed(&mut self, from: u64, stretch: Range<u64>) -> io::Result<()> {
        let mut rest = Rows::new();
        let (mut at, mut latest) = (from, self.latest);
        while at < stretch.end
            && let Some(record) = self.layout.record(at, self.window.get(at, self.layout.record_header())?, latest)
        {
            if !record.padding && at >= stretch.start {
                let mut tally = Tally::default();
                tally.add_lost(Cause::Crash, 1);
                rest.add(record.ts.secs(), &tally);
                self.findings.lost += 1;
            }
            latest = latest.max(record.ts);
            at = record.end;
        }
        self.findings.rest.push((from, rest));
        Ok(())
    }

    /// Keeps what the chain alone gives.
    fn unvouched(&mut self, from: u64) -> io::Result<()> {
        self.ordered = true;
        let (mut found, before) = (PacketsBySecond::new(), self.findings.packets);
        self.records(from, u64::MAX, u64::MAX, &mut found)?;
        let end = self.findings.kept.last().map_or(0, |kept| kept.end);
        if !self.window.is_blank(end, u64::MAX)? {
            // Not the end of the packets but a break in the chain: more may be behind it.
            self.findings.damaged.push((end / BLOCK) as u32);
        }
        self.findings.unverified += self.findings.packets - before;
        let mut rest = Rows::new();
        for (second, (packets, _)) in found {
            let mut tally = Tally::default();
            tally.notes[Note::Unverified as usize] = packets;
            rest.add(second, &tally);
        }
        self.findings.rest.push((from, rest));
        Ok(())
    }
}
