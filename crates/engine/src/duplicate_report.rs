//! The report of the detection of duplicates.

use serde::Serialize;
use std::collections::BTreeMap;

/// The detection of duplicates in one queue, for JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DuplicateReport {
    /// The packets with which a packet is compared: those of the `queue`, of the `interface`, or of `all` interfaces.
    pub table: &'static str,
    /// Duplicates among the packets of this queue, by class.
    pub found: BTreeMap<&'static str, u64>,
    /// Equal packets that are not duplicates. This and the following numbers are those of the table, which other queues
    /// may share.
    pub repeats: u64,
    /// The time in nanoseconds that the table reaches back: a copy that is later than its original by this time is
    /// found. While the table is not full, the time since the first packet.
    pub reach_nanos: u64,
    /// The shortest reach of the full table so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortest_reach_nanos: Option<u64>,
    /// Packets that the table forgot before the window ended. Copies of them are not found.
    pub forgotten: u64,
}
