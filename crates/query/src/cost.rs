//! What an answer cost: `--explain`.

/// Considered, skipped by what the index knows, and read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Packet files whose names were met in the interval, or where something could reach into it: of hours outside of it
    /// not even the names are read.
    pub files: u64,
    /// Of these, outside of the interval or without a candidate block.
    pub files_skipped: u64,
    /// Blocks of the files that were looked at.
    pub blocks: u64,
    /// Of these, skipped by time.
    pub blocks_skipped_time: u64,
    /// Of these, skipped by the key sets.
    pub blocks_skipped_keys: u64,
    /// Of these, skipped because what was sought lies elsewhere in the stream ([`SeekHint`](crate::SeekHint)).
    pub blocks_skipped_sub_block: u64,
    /// Blocks of which something was read, those that were read ahead and not needed included.
    pub blocks_read: u64,
    /// Bytes of the files that were looked at.
    pub bytes: u64,
    /// Bytes of packet files read, as [`Cost::blocks_read`].
    pub bytes_read: u64,
    /// Bytes of indexes read.
    pub index_bytes_read: u64,
    /// Packets looked at, those from the ring included.
    pub packets: u64,
    /// Packets that matched and were given out.
    pub matched: u64,
    /// Packets that were taken from the ring of a running recorder.
    pub from_ring: u64,
}
