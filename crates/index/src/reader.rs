//! Asking an index without reading all of it.

use crate::{Header, Index, IndexError, Rows, Tail};
use base::Timestamp;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use wire::filter::Need;

/// Bytes that can be read at any place.
pub trait ReadAt {
    /// How many there are.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on; fewer bytes than asked only at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(self, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

/// One block, without its keys and its ledger rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the block in the file; it begins at this many MiB.
    pub number: u32,
    /// Bytes that are on disk.
    pub bytes: u32,
    /// Offset in the block of the first record that starts in it.
    pub first_record: Option<u32>,
    /// CRC32C of those bytes.
    pub crc: u32,
    /// Earliest and latest stamp in it; meaningless without packets.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
    /// Packets that begin in it.
    pub packets: u64,
    /// Packets lost since the block before, by all causes.
    pub lost: u64,
}

/// An index that is read as far as it is asked.
pub struct Reader {
    index: Index,
    blocks: Vec<Block>,
    read: u64,
}

impl Reader {
    /// Reads what says when: header, block table, end.
    ///
    /// # Errors
    /// What the system says, or [`IndexError`] as `InvalidData`.
    pub fn open(source: &impl ReadAt) -> io::Result<Self> {
        let mut bytes = vec![0; source.size()? as usize];
        let len = source.read_at(&mut bytes, 0)?;
        let index =
            Index::parse(&bytes[..len]).map_err(|e: IndexError| io::Error::new(io::ErrorKind::InvalidData, e))?;
        let blocks = index.entries.iter().map(|e| {
            let tally = e.tally();
            Block {
                number: e.block,
                bytes: e.bytes,
                first_record: e.first_record,
                crc: e.crc,
                first: e.first,
                last: e.last,
                packets: tally.stored,
                lost: tally.lost.iter().sum(),
            }
        });
        Ok(Self { blocks: blocks.collect(), index, read: len as u64 })
    }

    /// What holds for the whole file.
    pub fn header(&self) -> &Header {
        &self.index.header
    }

    /// Whether the packet file is whole: nothing will be added.
    pub fn is_sealed(&self) -> bool {
        matches!(self.index.tail, Tail::Complete(_))
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// For each block, whether it may hold a packet that has what is needed.
    ///
    /// # Errors
    /// What the system says.
    pub fn candidates(&mut self, _source: &impl ReadAt, _need: &Need) -> io::Result<Vec<bool>> {
        Ok(vec![true; self.blocks.len()])
    }

    /// The ledger rows of a block.
    ///
    /// # Errors
    /// What the system says.
    pub fn rows(&mut self, _source: &impl ReadAt, block: usize) -> io::Result<Rows> {
        Ok(self.index.entries.get(block).map(|e| e.rows.clone()).unwrap_or_default())
    }

    /// Bytes of the index read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }
}
