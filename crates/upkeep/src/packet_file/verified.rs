//! Finds the valid part of the index of a packet file, whether the index is sealed, growing, torn, or missing.

use super::DeviceFile;
use base::Timestamp;
use index::{Block, Entry, Header, Index, ReadAt, Reader, Rows, SubBlocks};
use pcap::classic::FILE_HEADER;
use std::io;
use std::path::Path;
use store::device::Device;
use store::out_of_order::Span;

/// The description of one block in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedBlock {
    /// Number of the block in the file; block `n` begins at `n` MiB.
    pub number: u32,
    /// Number of bytes of the block in the packet file.
    pub bytes: u32,
    /// CRC32C of the bytes.
    pub crc: u32,
    /// Offset in the block of the first record that begins in it.
    pub first_record: Option<u32>,
    /// The offsets of the first records of the sub-blocks.
    pub parts: SubBlocks,
    /// Earliest timestamp in the block; meaningless without packets.
    pub first: Timestamp,
    /// Latest timestamp in the block; meaningless without packets.
    pub last: Timestamp,
    /// The ledger rows since the previous block.
    pub rows: Rows,
}

/// The valid part of an index.
#[derive(Clone, Debug)]
pub struct VerifiedIndex {
    /// The properties of the packet file from the header of the index.
    pub header: Header,
    /// The blocks, in order.
    pub blocks: Vec<IndexedBlock>,
    /// Earlier index entries of the last blocks. Each of them was replaced by a later entry of the same block, which
    /// describes more packets. The newest of the earlier entries is the first.
    pub earlier: Vec<IndexedBlock>,
    /// True if the index is sealed: the packet file was complete when the index was written.
    pub sealed: bool,
    /// True if the index is sealed and all of it is valid, including the key sets.
    pub is_intact: bool,
    /// True if an index entry at the end of the index is torn, and no other index entry describes its block.
    pub torn: bool,
}

impl VerifiedIndex {
    /// Reads an index; `None` if the index does not exist, or no part of it is valid.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn read<D: Device>(device: &mut D, path: &Path) -> io::Result<Option<Self>> {
        let file = match device.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let read = Self::of(&DeviceFile::new(device, file));
        device.close(file);
        match read {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(None),
            other => other.map(Some),
        }
    }

    fn of(source: &impl ReadAt) -> io::Result<Self> {
        let mut reader = Reader::open(source)?;
        let sealed = reader.is_sealed();
        let blocks = reader.blocks().to_vec();
        let mut indexed_blocks = Vec::with_capacity(blocks.len());
        let parts = reader.sub_blocks(source, 0..blocks.len())?;
        for ((i, b), parts) in blocks.iter().enumerate().zip(parts) {
            let rows = reader.rows(source, i)?;
            let Block { number, bytes, crc, first_record, first, last, .. } = *b;
            indexed_blocks.push(IndexedBlock { number, bytes, crc, first_record, parts, first, last, rows });
        }
        let earlier = reader.earlier().iter().map(IndexedBlock::of).collect();
        // After a power failure, any part of a sealed index may be missing, so each part is tested.
        let is_intact = sealed
            && match Index::read(source) {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => false,
                other => other.map(|_| true)?,
            };
        Ok(Self {
            header: reader.header().clone(),
            blocks: indexed_blocks,
            earlier,
            sealed,
            is_intact,
            torn: reader.is_torn(),
        })
    }

    /// The timestamps of the earliest and of the latest packet; `None` without packets.
    pub fn stamps(&self) -> Option<(Timestamp, Timestamp)> {
        let with_packets = self.blocks.iter().filter(|p| p.first_record.is_some());
        let join = |(a, b): (Timestamp, Timestamp), p: &IndexedBlock| (a.min(p.first), b.max(p.last));
        with_packets.fold(None, |span, p| Some(span.map_or((p.first, p.last), |span| join(span, p))))
    }

    /// The time range for the out-of-order marker of the file. It begins at the file's start time or at its earliest
    /// packet, whichever is earlier.
    pub fn marker_range(&self) -> Option<Span> {
        self.stamps().map(|(first, last)| Span::out_of_order((first.min(self.header.start), last)))
    }

    /// True if no packet is earlier than the file's start time and the blocks are in order of time.
    pub fn is_in_order(&self) -> bool {
        let mut latest = self.header.start;
        self.blocks.iter().filter(|p| p.first_record.is_some()).all(|p| {
            let follows = latest <= p.first;
            latest = latest.max(p.last);
            follows
        })
    }

    /// Number of bytes of the packet file that the indexed blocks cover.
    pub fn bytes(&self) -> u64 {
        self.blocks.last().map_or(0, |p| u64::from(p.number) * super::BLOCK + u64::from(p.bytes))
    }

    /// Length of the packet file when the index was sealed; for a foreign capture that was damaged when it was indexed,
    /// it is more than the number of bytes that the blocks cover.
    pub fn file_bytes(&self) -> u64 {
        match self.header.content {
            index::Content::Foreign { bytes, .. } => bytes,
            _ => self.bytes(),
        }
    }

    /// True if the index describes a foreign capture.
    pub fn is_foreign(&self) -> bool {
        matches!(self.header.content, index::Content::Foreign { .. })
    }

    /// If the first block does not match its checksum, returns a pcap file header with which the block matches, or
    /// `None` if no such header exists. The function tries all headers that a recorder may have written.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn head<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<Option<[u8; FILE_HEADER]>> {
        let Some(first) = self.blocks.first().filter(|p| p.number == 0) else { return Ok(None) };
        if first.matches(window)? {
            return Ok(None);
        }
        let block = window.get(0, first.bytes as usize)?;
        let Some((head, rest)) = block.split_first_chunk::<FILE_HEADER>() else { return Ok(None) };
        if block.len() != first.bytes as usize {
            return Ok(None);
        }
        // The candidates are the file header that a recorder writes, and the file header of this file with its version
        // replaced by pcap version 2.4 (used since 1998), in either byte order.
        let mut header = pcap::FILE_HEADER_NS;
        header[16..20].copy_from_slice(&self.header.snaplen.to_le_bytes());
        header[20..].copy_from_slice(&self.header.link_type.to_le_bytes());
        let with_version = |version: [u8; 4]| {
            let mut head = *head;
            head[4..8].copy_from_slice(&version);
            head
        };
        let mut heads = [header, with_version([2, 0, 4, 0]), with_version([0, 2, 0, 4])].into_iter();
        Ok(heads.find(|head| crc32c::crc32c_append(crc32c::crc32c(head), rest) == first.crc))
    }

    /// The description of each block, and true if the bytes of the block match its checksum. If they match only the
    /// checksum of an earlier index entry of the block, the description in that entry is returned.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn check_blocks<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<Vec<(IndexedBlock, bool)>> {
        let mut kept = Vec::with_capacity(self.blocks.len());
        for indexed in &self.blocks {
            let mut best = (indexed, indexed.matches(window)?);
            for earlier in self.earlier.iter().filter(|e| e.number == indexed.number) {
                if !best.1 && earlier.matches(window)? {
                    best = (earlier, true);
                }
            }
            kept.push((best.0.clone(), best.1));
        }
        Ok(kept)
    }

    /// True if every block of the file matches its checksum.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn matches<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<bool> {
        for indexed in &self.blocks {
            if !indexed.matches(window)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl IndexedBlock {
    fn of(e: &Entry) -> Self {
        let Entry { block, bytes, first_record, crc, sub_blocks: parts, first, last, ref rows, .. } = *e;
        Self { number: block, bytes, crc, first_record, parts, first, last, rows: rows.clone() }
    }

    /// Offset of the block in the packet file.
    pub fn start(&self) -> u64 {
        u64::from(self.number) * super::BLOCK
    }

    /// Offset of the end of the block in the packet file.
    pub fn end(&self) -> u64 {
        self.start() + u64::from(self.bytes)
    }

    /// True if the bytes of the block match its checksum.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn matches<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<bool> {
        let bytes = window.get(self.start(), self.bytes as usize)?;
        Ok(bytes.len() == self.bytes as usize && crc32c::crc32c(bytes) == self.crc)
    }
}
