//! The lengths of a packet file: the bytes that are written, and the length with which the file is published.

/// Lengths in bytes.
#[derive(Debug)]
pub struct Extent {
    /// End of the bytes written so far; the checksums of the growing index cover these bytes.
    written: u64,
    /// The length with which the file is published; 0 before its publication begins.
    len: u64,
    matching: MatchingIndex,
}

/// The index whose entries agree with the length of the file on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchingIndex {
    /// The growing index: all bytes that it describes are in the file.
    Growing,
    /// Only the sealed index: the file was truncated to its final length, and the growing index describes more bytes.
    Sealed,
}

impl Extent {
    /// The extent of a file without content.
    pub const EMPTY: Self = Self { written: 0, len: 0, matching: MatchingIndex::Growing };

    /// Registers that the bytes up to offset `end` are written; returns the number of bytes by which the file grew.
    pub fn grow(&mut self, end: u64) -> u64 {
        let more = end.saturating_sub(self.written);
        self.written += more;
        more
    }

    /// Sets the length with which the file is published.
    pub fn set_len(&mut self, len: u64) {
        self.len = len;
    }

    /// The length with which the file is published.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The length to which the file may be truncated before the sealed index is synced. The file must keep all bytes
    /// that the growing index describes, because they are needed if no sealed index can be written.
    pub fn indexed_len(&self) -> u64 {
        self.len.max(self.written)
    }

    /// True if the file is longer than its length in the sealed index.
    pub fn is_long(&self) -> bool {
        self.len < self.written && self.agrees_with_growing_index()
    }

    /// Registers that the file was truncated to its length in the sealed index, which is shorter than the length in the
    /// growing index.
    pub fn shortened(&mut self) {
        self.matching = MatchingIndex::Sealed;
    }

    /// True if the file has all bytes that the growing index describes.
    pub fn agrees_with_growing_index(&self) -> bool {
        self.matching == MatchingIndex::Growing
    }
}
