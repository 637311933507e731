//! A flow record that is read column by column.

use base::Timestamp;
use flow::Record;

/// A record under construction, with the timestamp that relative fields refer to.
pub struct RecordLine {
    pub(super) record: Record,
    pub(super) first: Timestamp,
}
