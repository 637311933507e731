//! What an index says of a packet file, whether it is sealed, still growing, torn, or gone.

use super::DeviceFile;
use base::Timestamp;
use index::{Block, Entry, Header, Index, ReadAt, Reader, Rows, SubBlocks};
use pcap::classic::FILE_HEADER;
use std::io;
use std::path::Path;
use store::device::Device;
use store::out_of_order::Span;

/// What an index promises of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedBlock {
    /// Number of the block; it begins at this many MiB.
    pub number: u32,
    /// Bytes that are in the file.
    pub bytes: u32,
    /// Their CRC32C.
    pub crc: u32,
    /// Where the first record that starts in the block does.
    pub first_record: Option<u32>,
    /// Where records begin in its sixteenths.
    pub parts: SubBlocks,
    /// Earliest and latest stamp in it; meaningless without packets.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
    /// What happened since the block before.
    pub rows: Rows,
}

/// An index as far as it can be believed.
#[derive(Clone, Debug)]
pub struct VerifiedIndex {
    /// What holds for the whole file.
    pub header: Header,
    /// Block by block.
    pub blocks: Vec<IndexedBlock>,
    /// What was promised of the last blocks before, the newest first.
    pub earlier: Vec<IndexedBlock>,
    /// Whether it is sealed: the packet file was complete when it was written.
    pub sealed: bool,
    /// Whether it is sealed and all of it can be read, the key sets too.
    pub whole: bool,
    /// Whether there is more in the file than could be read: what it said of the last block is lost.
    pub torn: bool,
}

impl VerifiedIndex {
    /// Reads an index; `None` where it is not there, or nothing in it can be believed.
    ///
    /// # Errors
    /// What the device says.
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
        let mut promises = Vec::with_capacity(blocks.len());
        let parts = reader.parts(source, 0..blocks.len())?;
        for ((i, b), parts) in blocks.iter().enumerate().zip(parts) {
            let rows = reader.rows(source, i)?;
            let Block { number, bytes, crc, first_record, first, last, .. } = *b;
            promises.push(IndexedBlock { number, bytes, crc, first_record, parts, first, last, rows });
        }
        let earlier = reader.earlier().iter().map(IndexedBlock::of).collect();
        // A failure of the power may have left any part of a sealed one, and taken any other.
        let whole = sealed
            && match Index::read(source) {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => false,
                other => other.map(|_| true)?,
            };
        Ok(Self { header: reader.header().clone(), blocks: promises, earlier, sealed, whole, torn: reader.is_torn() })
    }

    /// The stamps of its earliest and of its latest packet; `None` without packets.
    pub fn stamps(&self) -> Option<(Timestamp, Timestamp)> {
        let with_packets = self.blocks.iter().filter(|p| p.first_record.is_some());
        let join = |(a, b): (Timestamp, Timestamp), p: &IndexedBlock| (a.min(p.first), b.max(p.last));
        with_packets.fold(None, |span, p| Some(span.map_or((p.first, p.last), |span| join(span, p))))
    }

    /// What a note says of it, if it is not in order: from its beginning or its earliest packet on.
    pub fn has_marker(&self) -> Option<Span> {
        self.stamps().map(|(first, last)| Span::out_of_order((first.min(self.header.start), last)))
    }

    /// Whether its packets lie behind its beginning and, block by block, behind each other.
    pub fn is_in_order(&self) -> bool {
        let mut latest = self.header.start;
        self.blocks.iter().filter(|p| p.first_record.is_some()).all(|p| {
            let follows = latest <= p.first;
            latest = latest.max(p.last);
            follows
        })
    }

    /// Bytes of the packet file that are vouched for.
    pub fn bytes(&self) -> u64 {
        self.blocks.last().map_or(0, |p| u64::from(p.number) * super::BLOCK + u64::from(p.bytes))
    }

    /// Bytes that the file had when the index was sealed: those of a damaged capture of somebody else are more than what is
    /// vouched for.
    pub fn file_bytes(&self) -> u64 {
        match self.header.content {
            index::Content::Foreign { bytes, .. } => bytes,
            _ => self.bytes(),
        }
    }

    /// Whether it was made of a capture of somebody else.
    pub fn is_foreign(&self) -> bool {
        matches!(self.header.content, index::Content::Foreign { .. })
    }

    /// The head of a pcap file with which its first block is as promised, where with the head that it has it is not: a damaged
    /// head says nothing that is not known, and the checksum tells whether this was the one.
    ///
    /// # Errors
    /// What the device says.
    pub fn head<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<Option<[u8; FILE_HEADER]>> {
        let Some(first) = self.blocks.first().filter(|p| p.number == 0) else { return Ok(None) };
        if first.holds(window)? {
            return Ok(None);
        }
        let block = window.get(0, first.bytes as usize)?;
        let Some((head, rest)) = block.split_first_chunk::<FILE_HEADER>() else { return Ok(None) };
        if block.len() != first.bytes as usize {
            return Ok(None);
        }
        // As the recorder writes it; and the version of all pcap files since 1998, in either order of bytes.
        let mut ours = pcap::FILE_HEADER_NS;
        ours[16..20].copy_from_slice(&self.header.snaplen.to_le_bytes());
        ours[20..].copy_from_slice(&self.header.link_type.to_le_bytes());
        let with_version = |version: [u8; 4]| {
            let mut head = *head;
            head[4..8].copy_from_slice(&version);
            head
        };
        let mut heads = [ours, with_version([2, 0, 4, 0]), with_version([0, 2, 0, 4])].into_iter();
        Ok(heads.find(|head| crc32c::crc32c_append(crc32c::crc32c(head), rest) == first.crc))
    }

    /// What is promised of each block, and whether its bytes are so; where they are not, but are what was promised before,
    /// that.
    ///
    /// # Errors
    /// What the device says.
    pub fn check_blocks<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<Vec<(IndexedBlock, bool)>> {
        let mut kept = Vec::with_capacity(self.blocks.len());
        for promise in &self.blocks {
            let mut best = (promise, promise.holds(window)?);
            for earlier in self.earlier.iter().filter(|e| e.number == promise.number) {
                if !best.1 && earlier.holds(window)? {
                    best = (earlier, true);
                }
            }
            kept.push((best.0.clone(), best.1));
        }
        Ok(kept)
    }

    /// Whether every block of the file is as promised.
    ///
    /// # Errors
    /// What the device says.
    pub fn holds<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<bool> {
        for promise in &self.blocks {
            if !promise.holds(window)? {
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

    /// Where the block begins in the file.
    pub fn start(&self) -> u64 {
        u64::from(self.number) * super::BLOCK
    }

    /// Where its bytes end.
    pub fn end(&self) -> u64 {
        self.start() + u64::from(self.bytes)
    }

    /// Whether the bytes are those that were promised.
    ///
    /// # Errors
    /// What the device says.
    pub fn holds<D: Device>(&self, window: &mut super::Window<'_, D>) -> io::Result<bool> {
        let bytes = window.get(self.start(), self.bytes as usize)?;
        Ok(bytes.len() == self.bytes as usize && crc32c::crc32c(bytes) == self.crc)
    }
}
