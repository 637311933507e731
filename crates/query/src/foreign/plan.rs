//! Finds the blocks of a capture that may contain matches, from the index of the capture or by reading the complete
//! capture.
//!
//! A complete read of a capture stores the matching packets in memory up to a limit. For each block beyond this limit,
//! the plan stores only the first timestamp, and the block is read again when the merge reaches this timestamp. So the
//! result is in order of time for any order of packets in the file, and needs memory only for blocks whose time ranges
//! overlap.

use super::capture::Capture;
use super::context::{BlockScan, CaptureContext};
use crate::block::{Block, stamp};
use crate::{QueryContext, QueryError};
use base::{Note, Timestamp};
use index::Reader;
use pcap::Format;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Size of a block in bytes, equal to the block size of packet files in a store.
pub const BLOCK: u64 = 1 << 20;

/// Number of packets between two tests of the stop flag.
const CHECK_INTERVAL: u32 = 4096;

/// A capture and its blocks to read.
pub struct Plan {
    pub capture: Capture,
    pub context: CaptureContext,
    /// The blocks in descending order of `first`, so that `pop` returns the earliest block.
    pub blocks: Vec<PlannedBlock>,
    /// If the capture was damaged when it was indexed, the end of its valid part. The damage was already reported.
    end: Option<u64>,
}

/// A block that may contain matches.
pub struct PlannedBlock {
    /// Lower bound of the timestamps of matching packets.
    pub first: Timestamp,
    pub number: u32,
    /// Offset of the first record of the block.
    pub from: u64,
    /// For a packet file of a store, length and CRC32C of this block, from the index. They are compared with the bytes
    /// of the block in the file, because the index of a store file, unlike that of a foreign capture, does not contain
    /// the modification time.
    pub stored: Option<(u32, u32)>,
    /// The matching packets, if they are already in memory.
    pub loaded: Option<Box<Block>>,
}

impl PlannedBlock {
    /// End of the block; records that begin before this offset belong to the block.
    pub fn until(&self) -> u64 {
        (u64::from(self.number) + 1) * BLOCK
    }
}

impl Plan {
    /// Creates a plan of these blocks, and sorts them.
    pub fn new(capture: Capture, context: CaptureContext, mut blocks: Vec<PlannedBlock>) -> Self {
        blocks.sort_by_key(|b| std::cmp::Reverse((b.first, b.number)));
        Self { capture, context, blocks, end: None }
    }

    /// Lower bound of the timestamps of the capture's matching packets.
    pub fn first(&self) -> Option<Timestamp> {
        self.blocks.last().map(|b| b.first)
    }

    /// Creates a plan from the index: it contains the blocks that overlap the interval and may contain the keys of the
    /// filter. If the index is invalid, adds a warning and returns `None`.
    pub fn by_index(
        capture: &Capture,
        file: &File,
        mut index: Reader,
        index_file: &File,
        query_context: &mut QueryContext,
    ) -> Option<Self> {
        match Self::plan_blocks(capture, file, &mut index, index_file, query_context) {
            Ok((context, blocks)) => {
                query_context.cost.index_bytes_read += index.bytes_read();
                let link_types = context.link_types();
                for link_type in link_types.iter().filter(|link_type| !wire::link::is_understood(**link_type)) {
                    // The index has no number of packets for each interface.
                    let packets = (link_types.len() == 1).then_some(index.summary().tally.stored);
                    query_context.warn_unknown_link_type(&capture.path, *link_type, packets);
                }
                if matches!(index.header().content, index::Content::Foreign { .. }) {
                    query_context.wire_raised(&capture.path, index.summary().tally.notes[Note::WireRaised as usize]);
                }
                let whole = index.summary().bytes;
                if whole < capture.bytes {
                    query_context.damage(broken(
                        capture,
                        whole,
                        "the capture is truncated or damaged from here on, as it was when it was indexed",
                    ));
                }
                let end = (whole < capture.bytes).then_some(whole);
                Some(Self { end, ..Self::new(capture.clone(), context, blocks) })
            }
            Err(e) => {
                query_context.warning(format!(
                    "{}: its index cannot be used ({e}); the whole capture is read instead",
                    capture.path.display()
                ));
                None
            }
        }
    }

    fn plan_blocks(
        capture: &Capture,
        file: &File,
        index: &mut Reader,
        index_file: &File,
        query_context: &mut QueryContext,
    ) -> io::Result<(CaptureContext, Vec<PlannedBlock>)> {
        let context = CaptureContext::restore(capture.format, file, &index.summary().context)?;
        let (from, to) = (query_context.query.from, query_context.query.to);
        let blocks = u64::from(index.summary().blocks);
        if index.summary().stamps.is_none_or(|(first, last)| last < from || first > to) {
            return Ok((context, Vec::new()));
        }
        // The numbers of lost packets that a capture program has recorded are added for each block, even for blocks
        // without matches.
        let candidates = index.candidates(index_file, &query_context.query.filter.need())?;
        index.load(index_file)?;
        let recorded = matches!(index.header().content, index::Content::Recorded);
        if let Some(block) = index.blocks().first().filter(|_| recorded)
            && differs(file, block.number, (block.bytes, block.crc))?
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file differs from the file that its recorder stored",
            ));
        }
        let mut planned = Vec::new();
        let (mut by_time, mut by_keys) = (0, 0);
        for (block, candidate) in index.blocks().iter().zip(candidates) {
            let Some(first_record) = block.first_record.filter(|_| block.packets > 0) else {
                by_keys += 1;
                continue;
            };
            if block.last < from || block.first > to {
                by_time += 1;
            } else if !candidate && block.lost == 0 {
                by_keys += 1;
            } else {
                let at = u64::from(block.number) * BLOCK + u64::from(first_record);
                if at >= capture.bytes || u64::from(first_record) >= BLOCK {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the index contains an offset after the end of the capture",
                    ));
                }
                let first = block.first.max(from);
                let stored = recorded.then_some((block.bytes, block.crc));
                planned.push(PlannedBlock { first, number: block.number, from: at, stored, loaded: None });
            }
        }
        query_context.cost.blocks += blocks;
        query_context.cost.blocks_skipped_time += by_time;
        query_context.cost.blocks_skipped_keys += by_keys;
        Ok((context, planned))
    }

    /// Creates a plan by reading the complete capture. `bytes_left` is the number of bytes of packets that may be
    /// stored in memory; the function subtracts the bytes that it stores.
    ///
    /// # Errors
    /// If the file cannot be read. Damage of the file is no error: it causes a warning, and the packets before the
    /// damage are returned.
    pub fn by_reading(
        capture: Capture,
        file: &File,
        bytes_left: &mut usize,
        query_context: &mut QueryContext,
    ) -> Result<Self, QueryError> {
        let failed = |error| QueryError::Io { path: capture.path.clone(), error };
        let mut context = CaptureContext::begin(capture.format, file).map_err(failed)?;
        let mut block_scan = (capture.format == Format::PcapNg).then(|| BlockScan::new(file, capture.bytes));
        let name = capture.name();
        let mut blocks = Vec::new();
        let mut now =
            PlannedBlock { first: Timestamp::ZERO, number: 0, from: 0, stored: None, loaded: Some(Box::default()) };
        let mut examined = 0u32;
        let mut unknown_link_types = BTreeMap::<u16, u64>::new();
        let mut wire_raised = 0;
        let mut part = match capture.whole(file) {
            Ok(part) => part,
            Err(e) => return Err(failed(io::Error::new(io::ErrorKind::InvalidData, e.to_string()))),
        };
        loop {
            let (at, packet) = match part.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err((at, why)) => {
                    query_context.damage(broken(&capture, at, &why));
                    break;
                }
            };
            if let Some(block_scan) = &mut block_scan {
                block_scan.pass(at, &mut context).map_err(failed)?;
            }
            if !wire::link::is_understood(packet.link_type) {
                *unknown_link_types.entry(packet.link_type).or_default() += 1;
            }
            wire_raised += u64::from(packet.wire_raised);
            let number = (at / BLOCK) as u32;
            if number != now.number || examined == 0 {
                let after = PlannedBlock { first: Timestamp::ZERO, number, from: at, stored: None, loaded: None };
                close(std::mem::replace(&mut now, after), &mut blocks, bytes_left, query_context);
                let mut block = Box::<Block>::default();
                block.begin(number);
                now.loaded = Some(block);
            }
            examined = examined.wrapping_add(1).max(1);
            if examined.is_multiple_of(CHECK_INTERVAL) && query_context.is_stopped() {
                break;
            }
            query_context.cost.packets += 1;
            if let Some(block) = &mut now.loaded {
                take(block, at, &packet, &name, &mut context, query_context);
            }
        }
        query_context.wire_raised(&capture.path, wire_raised);
        for (link_type, packets) in unknown_link_types {
            query_context.warn_unknown_link_type(&capture.path, link_type, Some(packets));
        }
        query_context.cost.bytes_read += part.bytes_read();
        let all = capture.bytes.div_ceil(BLOCK);
        query_context.cost.blocks += all;
        query_context.cost.blocks_read += all;
        close(now, &mut blocks, bytes_left, query_context);
        Ok(Self::new(capture, context, blocks))
    }

    /// Reads the matching packets of a block of the plan.
    pub fn load(
        &mut self,
        planned: PlannedBlock,
        file: &mut Option<File>,
        mut block: Box<Block>,
        query_context: &mut QueryContext,
    ) -> Box<Block> {
        if let Some(loaded) = planned.loaded {
            return loaded;
        }
        block.begin(planned.number);
        let name = self.capture.name();
        let opened = match file.take().map_or_else(|| self.capture.reopen(), Ok) {
            Ok(opened) => opened,
            Err(e) => {
                query_context.damage(format!(
                    "{}: {e}; the remaining packets of this file are missing in the result",
                    self.capture.path.display()
                ));
                return block;
            }
        };
        if let Some(stored) = planned.stored
            && differs(&opened, planned.number, stored).unwrap_or(true)
        {
            let at = u64::from(planned.number) * BLOCK;
            query_context.damage(damaged(
                &self.capture,
                at,
                "this block of 1 MiB differs from the block that its recorder stored",
            ));
        }
        // The header bytes are copied, because the capture context, which contains them, gets new origins while the
        // reader borrows the bytes.
        let head = self.context.head(planned.from).to_vec();
        match self.capture.reader(&opened, &head, planned.from, planned.until()) {
            Ok(mut part) => {
                loop {
                    match part.next() {
                        Ok(Some((at, packet))) => {
                            query_context.cost.packets += 1;
                            take(&mut block, at, &packet, &name, &mut self.context, query_context);
                        }
                        Ok(None) => break,
                        Err((at, _)) if self.end == Some(at) => break,
                        Err((at, why)) => {
                            query_context.damage(broken(&self.capture, at, &why));
                            break;
                        }
                    }
                }
                query_context.cost.bytes_read += part.bytes_read();
            }
            Err(e) => query_context.damage(broken(&self.capture, planned.from, &e.reason())),
        }
        query_context.cost.blocks_read += 1;
        *file = Some(opened);
        finish(&mut block, query_context);
        block
    }
}

/// True if the bytes of the block in the file have another CRC32C than `crc`, which is from the index.
fn differs(file: &File, number: u32, (bytes, crc): (u32, u32)) -> io::Result<bool> {
    let mut found = vec![0; (bytes as usize).min(BLOCK as usize)];
    file.read_exact_at(&mut found, u64::from(number) * BLOCK)?;
    Ok(crc32c::crc32c(&found) != crc)
}

/// Adds a packet to its block, if it matches.
fn take(
    block: &mut Block,
    at: u64,
    packet: &pcap::Packet<'_>,
    name: &str,
    context: &mut CaptureContext,
    query_context: &mut QueryContext,
) {
    let ts = stamp(packet);
    if !query_context.is_inside(ts) {
        return;
    }
    let wanted = query_context.wants(ts, packet.wire_len, packet.data, packet.link_type);
    if !wanted && packet.drops == 0 {
        return;
    }
    let Some(origin) = context.origin(at, packet.interface, name, query_context) else { return };
    if packet.drops > 0 {
        block.lose(origin, packet.drops);
    }
    if wanted {
        block.push(packet, origin);
    }
}

fn finish(block: &mut Block, query_context: &mut QueryContext) {
    let left = block.finish().to_vec();
    left.into_iter().for_each(|(origin, packets)| query_context.add_lost(origin, packets));
}

/// Completes a block that was read: stores its packets, or only its first timestamp, or drops the block if it contains
/// no match.
fn close(
    mut planned: PlannedBlock,
    blocks: &mut Vec<PlannedBlock>,
    bytes_left: &mut usize,
    query_context: &mut QueryContext,
) {
    let Some(mut block) = planned.loaded.take() else { return };
    finish(&mut block, query_context);
    let Some(first) = block.stamp() else { return };
    planned.first = first;
    if block.memory() <= *bytes_left {
        *bytes_left -= block.memory();
        planned.loaded = Some(block);
    }
    blocks.push(planned);
}

/// The message that a capture cannot be read after a byte, with the command that saves the records after it.
fn broken(capture: &Capture, at: u64, why: &str) -> String {
    let (message, path) = (damaged(capture, at, why), capture.path.display());
    format!("{message}; netgrain repair {path} saves the complete records after this byte, if there are any")
}

fn damaged(capture: &Capture, at: u64, why: &str) -> String {
    format!("{}: byte {at}: {why}", capture.path.display())
}
