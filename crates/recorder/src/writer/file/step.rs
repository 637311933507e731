//! The steps of a packet file from its first packet to its publication.

use store::device::FileId;

/// The current step of a file from the first packet to publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes packets.
    Open,
    /// The recording was given up before the file was complete. The file is ended after the end of the stream, because
    /// all losses are known only then.
    Cut,
    /// Truncation to its length.
    Truncate,
    /// Writing of the sealed index.
    Seal,
    /// Sync of packets and index; the token is present while the sync is in progress.
    SyncData(Option<u64>),
    SyncIndex(Option<u64>),
    /// Truncation to the final length, if the growing index describes more bytes.
    Shorten,
    /// In this step, the index is renamed; in the next step, the packet file is renamed.
    PublishIndex,
    PublishData,
    /// Sync of the directory.
    SyncDirectory(Option<(FileId, u64)>),
    /// Published.
    Done,
}

impl Step {
    pub fn token(self) -> Option<u64> {
        match self {
            Self::SyncData(token) | Self::SyncIndex(token) => token,
            Self::SyncDirectory(under_way) => under_way.map(|(_, token)| token),
            _ => None,
        }
    }

    /// True if the sealed index does not exist or still has its hidden name.
    pub fn is_before_publication(self) -> bool {
        !matches!(self, Self::PublishIndex | Self::PublishData | Self::SyncDirectory(_) | Self::Done)
    }
}
