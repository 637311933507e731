//! The cost of a query (the files, blocks, bytes and packets that it considered and read), which `--explain` prints.

/// The numbers of files, blocks, bytes and packets that a query considered, skipped because of the index, and read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of packet files that the query considered, because the interval may contain their packets. The query does
    /// not list hour directories outside of the interval.
    pub files: u64,
    /// Number of considered files that the query skipped: outside of the interval or without a candidate block.
    pub files_skipped: u64,
    /// Number of blocks that the query considered, skipped blocks included.
    pub blocks: u64,
    /// Number of blocks that were skipped because of their time range.
    pub blocks_skipped_time: u64,
    /// Number of blocks that were skipped because of their key sets.
    pub blocks_skipped_keys: u64,
    /// Number of blocks that were skipped because they contain none of the stream positions of a
    /// [`SeekHint`](crate::SeekHint).
    pub blocks_skipped_sub_block: u64,
    /// Number of blocks of which the query read at least a part, including blocks that were read in advance and not
    /// used.
    pub blocks_read: u64,
    /// Number of bytes of the considered files, skipped files included, without the files that end before the interval.
    pub bytes: u64,
    /// Number of bytes read from packet files, including bytes that were read in advance and not used.
    pub bytes_read: u64,
    /// Number of bytes read from indexes.
    pub index_bytes_read: u64,
    /// Number of packets that the query tested, including packets from the ring.
    pub packets: u64,
    /// Number of packets that matched and were returned.
    pub matched: u64,
    /// Number of packets that were read from the ring of a running recorder.
    pub from_ring: u64,
}
