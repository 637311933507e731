//! Compares a packet file with its index, block by block.
//!
//! A record is kept if the block in which it begins matches its index entry; if the record continues in the next block,
//! that block must match too. Packets that are in the index but not found in the file are counted as lost, by second.
//! Records after the last indexed byte are counted as lost too, because no checksum confirms that all of their bytes
//! are on disk. There is one exception: if the index is missing or has an invalid end, records without a checksum are
//! kept as long as the chain of records is intact, and their packets are marked as unverified.

use super::{BLOCK, IndexedBlock, Layout, Record, VerifiedIndex, Window};
use base::{Cause, Note, Tally, Timestamp};
use index::Rows;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use store::device::Device;

/// The parts of a file that are kept and the parts that are lost.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Byte ranges of complete records, in order; the first begins at 0 if the file header is valid.
    pub kept: Vec<Range<u64>>,
    /// Ledger rows without the counts of the kept packets. Each element consists of an offset in the file and ledger
    /// rows. The rebuilt index has these rows before the first kept record at or after that offset.
    pub rest: Vec<(u64, Rows)>,
    /// Number of kept packets.
    pub packets: u64,
    /// Number of kept packets that no checksum covers.
    pub unverified: u64,
    /// Number of lost packets.
    pub lost: u64,
    /// Numbers of the blocks that do not match their index entry and are not all zeros.
    pub damaged: Vec<u32>,
}

impl Findings {
    /// The length to which the file must be truncated, if truncation suffices to remove all damage.
    pub fn cut(&self) -> Option<u64> {
        match &self.kept[..] {
            [only] if only.start == 0 => Some(only.end),
            _ => None,
        }
    }

    /// True if the file has no kept packet and no ledger row.
    pub fn is_empty(&self) -> bool {
        self.packets == 0 && self.rest.iter().all(|(_, rows)| rows.is_empty())
    }
}

/// For each second, the number of packets found and their wire bytes.
type PacketsBySecond = BTreeMap<u64, (u64, u64)>;

/// Compares a packet file with its index. If there is no index, the function follows the chain of records.
///
/// # Errors
/// Any error that the device returns.
pub fn examine<D: Device>(
    window: &mut Window<'_, D>,
    layout: Layout,
    verified: Option<&VerifiedIndex>,
) -> io::Result<Findings> {
    let mut walk =
        Examination { layout, window, findings: Findings::default(), latest: Timestamp::ZERO, ordered: false };
    let kept = verified.map_or(Ok(Vec::new()), |v| v.check_blocks(walk.window))?;
    let (indexed_blocks, good): (Vec<IndexedBlock>, Vec<bool>) = kept.into_iter().unzip();
    let trusting = verified.is_none_or(|v| v.torn);
    // Offset of the next record while the chain is intact.
    let mut next = None;
    if indexed_blocks.is_empty() && walk.header()? {
        next = Some(layout.file_header());
    }
    for (i, indexed) in indexed_blocks.iter().enumerate() {
        let mut found = PacketsBySecond::new();
        if good[i] {
            if indexed.number == 0 {
                walk.keep(0, layout.file_header());
                next = Some(layout.file_header());
            }
            // If a record of the previous block continues in this block, the next record begins at the end of that
            // record. After a damaged block, the offset of the next record is taken from the index.
            let from = next.or(indexed.first_record.map(|f| indexed.start() + u64::from(f)));
            let follows = indexed_blocks.get(i + 1).filter(|p| p.number == indexed.number + 1 && good[i + 1]);
            let complete_to = match follows {
                _ if indexed.end() < indexed.start() + BLOCK => indexed.end(),
                Some(next) => next.end(),
                None if trusting && i + 1 == indexed_blocks.len() => u64::MAX,
                None => indexed.end(),
            };
            next = match from {
                Some(from) => walk.records(from, indexed.end(), complete_to, &mut found)?,
                None => None,
            };
        } else {
            next = None;
            if !walk.window.is_blank(indexed.start(), indexed.end())? {
                walk.findings.damaged.push(indexed.number);
            }
        }
        walk.reconcile(indexed.start(), &indexed.rows, &found);
        // The entry of a block that was still being filled may be older than the next block's entry, and so may not
        // cover the end of the block.
        let early = indexed.end() < indexed.start() + BLOCK && i + 1 < indexed_blocks.len();
        if early && let Some(from) = next.take() {
            walk.unconfirmed(from, indexed.end()..indexed.start() + BLOCK)?;
        }
    }
    if let Some(from) = next {
        match trusting {
            true => walk.keep_unverified(from)?,
            false => walk.unconfirmed(from, indexed_blocks.last().map_or(0, IndexedBlock::end)..u64::MAX)?,
        }
    }
    Ok(walk.findings)
}

struct Examination<'w, 'd, D> {
    layout: Layout,
    window: &'w mut Window<'d, D>,
    findings: Findings,
    latest: Timestamp,
    /// True if a decreasing timestamp breaks the chain of records. Only unverified records need this check.
    ordered: bool,
}

impl<D: Device> Examination<'_, '_, D> {
    /// Keeps the file header if it is valid; returns true if it is.
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

    /// Keeps the records that begin at offset `from` or later and before `end`, and that end at offset `complete_to` or
    /// before. Returns the offset of the first record that begins at `end` or later, or that is incomplete; `None` if
    /// the chain is broken.
    fn records(
        &mut self,
        from: u64,
        end: u64,
        complete_to: u64,
        found: &mut PacketsBySecond,
    ) -> io::Result<Option<u64>> {
        let mut at = from;
        while at < end {
            let Some(record) = self.layout.next(self.window, at, self.strict())? else {
                // An invalid record, or a record beyond the end of the file: the offset of the next record is unknown.
                return Ok(None);
            };
            if record.end > complete_to {
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

    /// Adds the ledger rows of a block, without the counts of its kept packets. Packets of the block that were not
    /// found are counted as lost.
    fn reconcile(&mut self, at: u64, expected: &Rows, found: &PacketsBySecond) {
        let mut rest = Rows::new();
        for run in expected.runs() {
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
                // Notes of an index are numbers of stored packets with a property, and it is unknown which of these
                // packets were kept. So each note is limited to the number of kept packets.
                tally.notes = tally.notes.map(|n| n.min(found));
            }
            self.findings.lost += missing;
            rest.add(run.second, &tally);
        }
        self.findings.rest.push((at, rest));
    }

    /// Counts records outside of all index entries as lost. Records that begin before `range` were counted with their
    /// block and are skipped.
    fn unconfirmed(&mut self, from: u64, range: Range<u64>) -> io::Result<()> {
        let mut rest = Rows::new();
        let (mut at, mut latest) = (from, self.latest);
        while at < range.end
            && let Some(record) = self.layout.record(at, self.window.get(at, self.layout.record_header())?, latest)
        {
            if !record.padding && at >= range.start {
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

    /// Keeps the records from `from` on as unverified as long as the chain of records is intact.
    fn keep_unverified(&mut self, from: u64) -> io::Result<()> {
        self.ordered = true;
        let (mut found, before) = (PacketsBySecond::new(), self.findings.packets);
        self.records(from, u64::MAX, u64::MAX, &mut found)?;
        let end = self.findings.kept.last().map_or(0, |kept| kept.end);
        if !self.window.is_blank(end, u64::MAX)? {
            // The chain of records is broken before the end of the data, so more packets may follow after the break.
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
