//! The report of the retention worker of a capture.

use base::Timestamp;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use upkeep::retention::RetentionState;

/// Number and size of packet files, for JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileTotals {
    /// Number of packet files.
    pub files: u64,
    /// Bytes that the files and their indexes occupied on the volume.
    pub bytes: u64,
}

/// The report of the retention worker, for JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RetentionReport {
    /// Number of published packet files in the store.
    pub files: u64,
    /// Bytes that the interface occupies on the volume, including growing files.
    pub bytes: u64,
    /// The part of `bytes` that growing and prepared files occupy; only for the summary.
    #[serde(skip)]
    pub unpublished_bytes: u64,
    /// The time at which the oldest published file begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<String>,
    /// The time at which the oldest published file begins, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_second: Option<u64>,
    /// Estimated age of the oldest file at the time when the retention rules will begin to remove files, if the write
    /// rate of the present files continues; absent if there are no files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon_seconds: Option<f64>,
    /// Files removed since the start.
    pub removed: FileTotals,
    /// Number of packet files that were moved to the archive since the start of the capture.
    pub archived: FileTotals,
    /// Number of packet files that were removed although they should have been moved to the archive.
    pub unarchived_files: u64,
    /// Total size in bytes of the files that were removed instead of moved to the archive.
    pub unarchived_bytes: u64,
    /// Number of hour directories with files that the rules would remove, but that queries are reading.
    pub held_hours: u64,
    /// Number of free bytes on the volume.
    pub free: u64,
    /// Size of the volume in bytes.
    pub total: u64,
    /// The error of the operation of the retention worker that currently fails; `None` if none fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl From<&RetentionState> for RetentionReport {
    fn from(s: &RetentionState) -> Self {
        Self {
            files: s.files,
            bytes: s.bytes,
            unpublished_bytes: s.unpublished_bytes,
            oldest: s.oldest.map(|t| t.to_string()),
            oldest_second: s.oldest.map(Timestamp::secs),
            horizon_seconds: None,
            removed: FileTotals { files: s.removed.files, bytes: s.removed.bytes },
            archived: FileTotals { files: s.archived.files, bytes: s.archived.bytes },
            unarchived_files: s.unarchived.files,
            unarchived_bytes: s.unarchived.bytes,
            held_hours: s.held,
            free: s.space.free,
            total: s.space.total,
            trouble: s.trouble.clone(),
        }
    }
}

/// The retention status of a capture, shared between threads. It contains `None` if the capture has no retention
/// worker.
#[derive(Clone, Debug, Default)]
pub struct RetentionHandle(Arc<Mutex<Option<RetentionStatus>>>);

#[derive(Clone, Debug)]
struct RetentionStatus {
    state: RetentionState,
    /// See [`RetentionReport::horizon_seconds`].
    horizon: Option<Duration>,
}

impl RetentionHandle {
    /// Returns the report.
    pub fn report(&self) -> Option<RetentionReport> {
        let status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let RetentionStatus { state, horizon } = status.as_ref()?;
        Some(RetentionReport { horizon_seconds: horizon.map(|h| h.as_secs_f64()), ..RetentionReport::from(state) })
    }

    /// Sets the status.
    pub fn set(&self, state: &RetentionState, horizon: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(RetentionStatus { state: state.clone(), horizon });
    }
}
