//! A packet file with an index: the selected blocks are read in advance, verified, and scanned record by record.
//!
//! A record belongs to the block in which it begins. If a record ends in the next block, its beginning is copied before
//! that block's bytes; all other records are returned from the read buffer without a copy. A block is scanned only if
//! its CRC32C is correct, and even then the length of each record is compared with the number of bytes read.

use super::index_ledger::IndexLedger;
use super::read_plan::BlockRead;
use crate::cursor::{Cursor, CursorState, Extent};
use crate::disk::{BLOCK, Chunk, SPARE_BYTES, Ticket};
use crate::{FoundPacket, QueryContext, QueryError};
use base::Timestamp;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use store::Hold;

/// The largest number of bytes that are read in advance for one file.
const MAX_AHEAD: u64 = 8 * BLOCK as u64;

/// The record format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Little-endian nanosecond pcap.
    Pcap,
    /// HPCAP RAW.
    Raw,
}

/// The selected blocks of a file, in order; blocks are read in advance.
pub struct Blocks {
    file: Arc<File>,
    reads: Vec<BlockRead>,
    /// Number of elements of `reads` that were started; the last of these reads are still in progress.
    started: usize,
    flying: VecDeque<Ticket>,
    /// Number of bytes that the reads in progress were requested to read.
    ahead: u64,
    /// The number of the block that was read last.
    number: Option<u32>,
}

impl Blocks {
    /// No read is started yet.
    pub fn new(file: Arc<File>, wanted: Vec<BlockRead>) -> Self {
        Self { file, reads: wanted, started: 0, flying: VecDeque::new(), ahead: 0, number: None }
    }

    /// True if the reads of all selected blocks were started.
    pub fn are_all_started(&self) -> bool {
        self.started == self.reads.len()
    }

    /// Starts as many reads as the limits permit. If `needed` is true and no read is in progress, starts at least one
    /// read.
    pub fn query(&mut self, needed: bool, context: &mut QueryContext) -> io::Result<()> {
        let before = self.started;
        while let Some(wanted) = self.reads.get(self.started)
            && (self.ahead < MAX_AHEAD && context.disk.has_capacity() || needed && self.flying.is_empty())
        {
            let bytes = wanted.bytes();
            let len = bytes.end - bytes.start;
            let ticket = context.disk.start(&self.file, bytes.start, len as usize)?;
            context.cost.blocks_read += u64::from(self.number.replace(wanted.number) != Some(wanted.number));
            context.cost.bytes_read += len;
            self.ahead += len;
            self.flying.push_back(ticket);
            self.started += 1;
        }
        if before < self.started { context.disk.submit() } else { Ok(()) }
    }

    /// Waits for the next block; `None` after the last block.
    pub fn next(&mut self, context: &mut QueryContext) -> Option<(BlockRead, io::Result<Chunk>)> {
        let asked = self.query(true, context);
        let block = self.reads.get(self.started - self.flying.len())?.clone();
        let ticket = match (self.flying.pop_front(), asked) {
            (Some(ticket), _) => ticket,
            (None, Err(e)) => {
                self.started += 1;
                return Some((block, Err(e)));
            }
            (None, Ok(())) => return None,
        };
        let bytes = block.bytes();
        self.ahead = self.ahead.saturating_sub(bytes.end - bytes.start);
        // Further reads are started before the wait, so that they run during the wait. If a read cannot be started, the
        // error is returned when the block of this read is needed.
        context.disk.deepen();
        let _ = self.query(false, context);
        Some((block, context.disk.wait(ticket)))
    }

    /// Abandons the reads in progress.
    pub fn give_up(&mut self, context: &mut QueryContext) {
        self.flying.drain(..).for_each(|ticket| context.disk.abandon(ticket));
        self.started = self.reads.len();
    }
}

/// The properties that are equal for all records of a packet file.
#[derive(Clone, Debug)]
pub struct FileMeta {
    pub name: Arc<str>,
    pub layout: Layout,
    pub link_type: u16,
    pub origin: usize,
    /// Stream position of the first byte of the file; `None` if the records are not those of the stream (RAW), or if
    /// the position is unknown.
    pub first_pos: Option<u64>,
}

/// A cursor over a sealed file with an index.
pub struct SealedFile {
    meta: FileMeta,
    blocks: Blocks,
    /// The ledger of the index, until it is added to the context.
    index_ledger: Option<IndexLedger>,
    chunk: Option<Chunk>,
    number: u32,
    /// The offset in the file is the sum of this number and an offset in the chunk's memory. The addition wraps,
    /// because a record may begin in the previous block.
    base: u64,
    /// Offsets in the chunk's memory: `at` is the next record, `end` the end of the block, and `read` the end of the
    /// bytes that were read for the block and for the end of its last record.
    at: usize,
    end: usize,
    read: usize,
    /// Offset in the chunk's memory at which the record that began in the previous block must end.
    straddle_end: Option<usize>,
    record: Record,
    batch: Range<usize>,
    _hold: Arc<Hold>,
}

/// A record in the chunk.
#[derive(Clone, Debug, Default)]
struct Record {
    ts: Timestamp,
    wire_len: u32,
    data: Range<usize>,
    lost: u64,
}

/// The content at an offset.
enum Next {
    Record(Record),
    /// Padding up to this offset.
    Padding(usize),
    /// The record ends after the bytes that were read.
    Cut,
    /// The record has an impossible length.
    Impossible,
}

impl Layout {
    const fn header(self) -> usize {
        match self {
            Self::Pcap => ring::RECORD_HEADER,
            Self::Raw => pcap::raw::RECORD_HEADER,
        }
    }

    /// Parses the record at the beginning of `bytes`; `at` is the offset of this record in the chunk's memory.
    #[inline]
    fn parse(self, bytes: &[u8], at: usize) -> Next {
        let word =
            |bytes: &[u8; 16], i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let (secs, nanos, caplen, wire_len) = match self {
            Self::Pcap => {
                let Some(head) = bytes.first_chunk::<16>() else { return Next::Cut };
                (word(head, 0), word(head, 4), word(head, 8), word(head, 12))
            }
            Self::Raw => {
                let Some(head) = bytes.first_chunk::<12>() else { return Next::Cut };
                let mut wide = [0; 16];
                wide[..12].copy_from_slice(head);
                let lengths = word(&wide, 8);
                (word(&wide, 0), word(&wide, 4), lengths & 0xffff, lengths >> 16)
            }
        };
        if caplen > ring::CAPLEN_MAX as u32 {
            return Next::Impossible;
        }
        let data = at + self.header()..at + self.header() + caplen as usize;
        if data.end - at > bytes.len() {
            return Next::Cut;
        }
        if self == Self::Raw && secs == 0 && nanos == 0 {
            return Next::Padding(data.end);
        }
        let ts = Timestamp::from_secs_nanos(u64::from(secs), u64::from(nanos));
        Next::Record(Record { ts, wire_len: wire_len.max(caplen), data, lost: 0 })
    }
}

impl SealedFile {
    /// A new cursor, which is before its first block.
    pub fn new(about: FileMeta, blocks: Blocks, reported: Option<IndexLedger>, hold: &Arc<Hold>) -> Self {
        Self {
            meta: about,
            blocks,
            index_ledger: reported,
            chunk: None,
            number: 0,
            base: 0,
            at: 0,
            end: 0,
            read: 0,
            straddle_end: None,
            record: Record::default(),
            batch: 0..0,
            _hold: Arc::clone(hold),
        }
    }

    /// Starts the first reads, so that the first block is in memory when the merge reaches the file.
    pub fn prepare(&mut self, context: &mut QueryContext) {
        // An error is ignored here, and returned when the block is needed.
        let _ = self.blocks.query(false, context);
    }

    fn memory(&self) -> &[u8] {
        self.chunk.as_ref().map_or(&[], |chunk| &chunk.memory)
    }

    /// The next matching record of the block; `None` at the end of the block.
    fn next_match(&mut self, context: &mut QueryContext) -> Option<Timestamp> {
        let memory: &[u8] = &self.chunk.as_ref()?.memory;
        let mut looked = 0;
        let mut found = None;
        let mut damage = None;
        while self.at < self.end {
            match self.meta.layout.parse(&memory[self.at..self.read], self.at) {
                Next::Record(record) => {
                    if let Some(to) = self.straddle_end.take()
                        && record.data.end != to
                    {
                        damage = Some("a record does not end where the next begins");
                        self.at = to;
                        continue;
                    }
                    looked += 1;
                    self.at = record.data.end;
                    if context.wants(record.ts, record.wire_len, &memory[record.data.clone()], self.meta.link_type) {
                        found = Some(record);
                        break;
                    }
                }
                Next::Padding(end) => self.at = end,
                Next::Cut => break,
                Next::Impossible => {
                    damage = Some("a record has an impossible length");
                    match self.straddle_end.take() {
                        Some(to) => self.at = to,
                        None => self.at = self.end,
                    }
                }
            }
        }
        context.cost.packets += looked;
        if let Some(what) = damage {
            self.damaged(self.number, what, context);
        }
        let mut record = found?;
        record.lost = context.take_lost(self.meta.origin);
        self.record = record;
        Some(self.record.ts)
    }

    /// Moves to the next selected block; returns false after the last block.
    fn next_block(&mut self, context: &mut QueryContext) -> bool {
        loop {
            let before = self.chunk.take();
            let carried = self.at.min(self.read)..self.read;
            let is_cut = before.is_some() && self.at < self.end;
            if context.is_stopped() {
                self.blocks.give_up(context);
            }
            let Some((block, chunk)) = self.blocks.next(context) else {
                if is_cut {
                    self.damaged(self.number, "its last record is incomplete", context);
                }
                before.into_iter().for_each(|chunk| context.disk.recycle(chunk.memory));
                return false;
            };
            context.add_lost(self.meta.origin, block.lost);
            if is_cut && !block.follows {
                self.damaged(self.number, "its last record is incomplete", context);
            }
            let had = self.number;
            // Offsets in the chunk's memory; each read begins at a page boundary.
            let page = block.bytes().start - u64::from(block.number) * BLOCK as u64;
            let place = |offset: u32| SPARE_BYTES + (u64::from(offset) - page) as usize;
            let bytes = place(block.range.bytes.start)..place(block.range.bytes.end);
            let (mut chunk, read) = match self.check(&block, bytes.clone(), chunk, context) {
                Some(checked) => checked,
                None => {
                    if is_cut && block.follows {
                        self.damaged(had, "its last record ends in a damaged block", context);
                    }
                    before.into_iter().for_each(|chunk| context.disk.recycle(chunk.memory));
                    (self.at, self.end, self.read) = (0, 0, 0);
                    continue;
                }
            };
            let first = place(block.first_record);
            self.at = first;
            self.straddle_end = None;
            if let Some(before) = before {
                if is_cut && block.follows && carried.len() <= SPARE_BYTES {
                    self.at = SPARE_BYTES - carried.len();
                    self.straddle_end = Some(first);
                    chunk.memory[self.at..SPARE_BYTES].copy_from_slice(&before.memory[carried]);
                }
                context.disk.recycle(before.memory);
            }
            self.number = block.number;
            self.base = block.bytes().start.wrapping_sub(SPARE_BYTES as u64);
            (self.end, self.read) = (bytes.end, read);
            self.chunk = Some(chunk);
            return true;
        }
    }

    /// Verifies a block. Returns the chunk and the end of its verified bytes: the end of all bytes that were read, or
    /// only the end of the block's `bytes`, if the bytes after them, which complete the last record, have a wrong
    /// checksum.
    fn check(
        &self,
        block: &BlockRead,
        bytes: Range<usize>,
        chunk: io::Result<Chunk>,
        context: &mut QueryContext,
    ) -> Option<(Chunk, usize)> {
        let what = match chunk {
            Err(e) => format!("cannot be read ({e})"),
            Ok(chunk) => {
                let read = SPARE_BYTES + chunk.len;
                let what = if read < bytes.end {
                    let have = read.saturating_sub(bytes.start);
                    let from = block.range.bytes.start;
                    format!("the file ends after {have} of the {} bytes from byte {from} of the block on", bytes.len())
                } else if !block.range.is(&chunk.memory[bytes.clone()]) {
                    "does not match its checksum (CRC32C)".to_owned()
                } else {
                    let tail = &chunk.memory[bytes.end..read];
                    let is_tail = block.tail_crc.is_none_or(|crc| crc32c::crc32c(tail) == crc);
                    return Some((chunk, if is_tail { read } else { bytes.end }));
                };
                context.disk.recycle(chunk.memory);
                what
            }
        };
        let what = format!("{what}; the packets of the block are missing in the result");
        self.damaged(block.number, &what, context);
        None
    }

    fn damaged(&self, block: u32, what: &str, context: &mut QueryContext) {
        let advice = match self.meta.name.ends_with(store::names::PARTIAL) {
            true => "netgrain repair or the next recorder recovers this unfinished file",
            false => "run netgrain verify",
        };
        context.damage(format!("{}: block {block}: {what}; {advice}", self.meta.name));
    }
}

impl Cursor for SealedFile {
    #[inline]
    fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError> {
        loop {
            if let Some(ts) = self.next_match(context) {
                return Ok(CursorState::Packet(ts));
            }
            if !self.next_block(context) {
                if let Some(reported) = self.index_ledger.take() {
                    reported.enter(context);
                }
                return Ok(CursorState::End);
            }
        }
    }

    #[inline]
    fn packet(&self) -> FoundPacket<'_> {
        let Record { ts, wire_len, data, lost } = &self.record;
        FoundPacket {
            ts: *ts,
            wire_len: *wire_len,
            data: &self.memory()[data.clone()],
            link_type: self.meta.link_type,
            origin: self.meta.origin,
            lost: *lost,
            position: self.meta.first_pos.map(|first| {
                let record = data.start - self.meta.layout.header();
                first.wrapping_add(self.base.wrapping_add(record as u64))
            }),
        }
    }

    fn extend(&mut self, until: Timestamp, context: &mut QueryContext) -> Result<Option<Extent>, QueryError> {
        if self.meta.layout != Layout::Pcap {
            return Ok(None);
        }
        let Some(chunk) = &self.chunk else { return Ok(None) };
        let memory: &[u8] = &chunk.memory;
        let first = self.record.data.start - self.meta.layout.header();
        let mut extent = Extent { packets: 1, latest: self.record.ts };
        while self.at < self.end {
            let Next::Record(record) = self.meta.layout.parse(&memory[self.at..self.read], self.at) else { break };
            let fits = record.ts <= until
                && context.wants(record.ts, record.wire_len, &memory[record.data.clone()], self.meta.link_type);
            if !fits {
                break;
            }
            self.at = record.data.end;
            extent.packets += 1;
            extent.latest = extent.latest.max(record.ts);
            self.record = record;
        }
        context.cost.packets += extent.packets - 1;
        self.batch = first..self.record.data.end;
        Ok(Some(extent))
    }

    fn records(&self) -> &[u8] {
        &self.memory()[self.batch.clone()]
    }

    fn is_ending(&self) -> bool {
        self.blocks.are_all_started()
    }
}
