//! A test case consists of a program and the packets on which the program runs.

use crate::source::Source;
use ir::Facts;

/// A packet, and the [`Facts`] that its source supplies; the facts that follow from its bytes are not included.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// Timestamp, wire length, interface and other facts that the source supplies.
    pub facts: Facts,
}

/// A test case consists of a program and the packets on which the program runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The program.
    pub source: Source,
    /// Packets, in order.
    pub packets: Vec<Packet>,
    /// Link type in pcap's numbering.
    pub link_type: u16,
    /// The secret key of the hashes that steer packets.
    pub hash_key: u64,
}
