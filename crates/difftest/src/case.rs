//! A program and packets for it.

use crate::source::Source;
use ir::Facts;

/// A packet and the [`Facts`] from its source, without the facts from its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// Timestamp, wire length, interface and other facts.
    pub facts: Facts,
}

/// A program and packets for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The program.
    pub source: Source,
    /// Packets, in order.
    pub packets: Vec<Packet>,
    /// Link type in pcap's numbering.
    pub link_type: u16,
    /// The key of the hash functions.
    pub hash_key: u64,
}
