//! Detection of duplicates: further copies of a packet that one sender sent once.
//!
//! A monitor gets several copies of a packet if a switch mirrors the packet at the input and at the output, or if the
//! packet passes several monitored links. [`Detector`] finds such copies in a window of time and packets, with a table
//! of fixed size that is allocated once. The method is that of HPCAP (Moreno, thesis section 4.4), whose table finds
//! switching duplicates by the hash of the NIC and compares 70 bytes; the other classes follow Ucar et al.
//! (arXiv 1311.4168).
//!
//! # What is compared
//!
//! The innermost IP packet, as [`wire::Decoded`] finds it below VLAN tags, labels and tunnels; in other frames the
//! payload of the link layer. The length on the wire, the captured length, all captured bytes and both MAC addresses
//! must be equal, except for the fields that the class changes. The table stores 70 bytes or more of each packet, which
//! are compared byte by byte; a keyed 64-bit hash represents the bytes after them. If [`Settings::stored_bytes`] is at
//! least the snaplen, all bytes are compared.
//!
//! | class | may differ | must differ |
//! |---|---|---|
//! | [`Class::Switching`] | VLAN tags, link padding; the headers around an inner Ethernet frame | – |
//! | [`Class::Routing`] | type of service, IPv4 checksum, VLAN tags | lower TTL, both MAC addresses (see below) |
//! | [`Class::Nat`] | as routing; port of one side, transport checksum | as routing; its address. TCP or identified |
//! | [`Class::Proxying`] | all IP fields; fields of TCP (see below) | the address of one side, both MAC addresses |
//! | [`Class::Fragment`] | as routing or NAT; length, offset | as routing; a part of the datagram |
//!
//! The destination MAC addresses of a routed multicast packet may be equal. Without MAC addresses, a packet is a copy
//! of the class routing only if it is identified (see the next section). NAT changes the address of exactly one side.
//! Of proxied packets, ports and payload are equal, the payload is not empty, and window, flags, options, and either
//! the sequence or the acknowledgement number of TCP may differ. All bytes of a fragment are in the datagram, which is
//! longer.
//!
//! If the headers around an inner IP packet without Ethernet header differ (other tunnel, other label, none), the class
//! is routing, provided that the inner packet is identified, both MAC addresses differ, and the outer TTL is lower or
//! exactly one of the packets is encapsulated.
//!
//! # Why equal packets are not always copies
//!
//! A sender may send the same bytes twice. Byte by byte equality does not distinguish two frames of a sender from two
//! copies of one frame, so the class switching needs evidence (the other classes have it: a router lowers the TTL, a
//! sender does not). A packet is *identified* if it contains a value that its sender changes from packet to packet: an
//! IPv4 identification other than 0, the identification of an IPv6 fragment, or the sequence number of ESP and AH.
//! Equal packets are duplicates if
//!
//! 1. they are identified, or
//! 2. their VLAN tags differ, because a sender uses the same tags for both packets, or
//! 3. they are TCP segments with SYN, FIN or payload, at most [`Settings::retransmission_window`] (10 µs) apart,
//!    because a sender retransmits after one round trip at the earliest, or
//! 4. [`Settings::mirrored_interfaces`] is set and their interfaces differ, or
//! 5. they are at most [`Settings::repeat_window`] apart; the default 0 excludes this rule.
//!
//! Other equal packets are counted as [`Counts::repeats`] and are not duplicates.
//!
//! | trap | the rule that prevents the false positive |
//! |---|---|
//! | RTP and DNS packets with equal headers | all bytes are compared, not only headers; the length too |
//! | IPv4 identification 0 (RFC 6864) | the packet is not identified; rules 2 to 5 |
//! | IPv6, which has no identification | as above; for routing the TTL is the evidence |
//! | TCP retransmissions with another identification | the identifications differ |
//! | TCP retransmissions with identification 0, or of IPv6 | rule 3; a changed timestamp option differs |
//! | duplicate acknowledgements, keep-alives | rule 3 needs SYN, FIN or payload; keep-alives are seconds apart |
//! | ARP, BPDU, LLDP, VRRP | not identified (VRRP has an identification) |
//! | padding of small frames | bytes after the IP packet or the ARP message are not compared |
//! | probe trains with equal headers | sequence number and timestamp in the payload differ, at any offset |
//! | probe trains without any difference, identification 0 | not identified |
//! | equal packets with a constant identification (against RFC 791) | at most [`Settings::copies_max`] |
//! | traceroute: equal probes with increasing TTL | the TTL must decrease, and the MAC addresses must differ |
//! | equal requests of several hosts | equal addresses; for NAT, equal identification or sequence numbers |
//! | one multicast frame at two mirrored ports | one frame was sent: the second copy is a duplicate by rule 1, 2 or 4 |
//!
//! # False negatives
//!
//! Copies are missed if the capture truncated them at different lengths, if the kernel or the NIC merged segments into
//! one of them, if a router changed IP options, or if the table forgot the packet: [`Counts::overwritten`] counts the
//! records that were overwritten within the window, [`Counts::evicted`] those that the index evicted. If both are 0,
//! every duplicate of the definition above was found. [`Detector::reach`] is the time that the table covers at the
//! current rate.
#![forbid(unsafe_code)]

mod class;
mod compared;
mod counts;
mod datagrams;
mod detector;
mod digest;
mod prepared;
mod rules;
pub mod settings;
mod table;

pub use base::DuplicateClass as Class;
pub use class::{Classes, ParseClassError};
pub use counts::{ClassCounts, Counts, INTERVALS, TTL_DROPS, TimeCounts};
pub use detector::Detector;
pub use prepared::{Prepared, Preparer};
pub use settings::{Settings, SettingsError};
pub use table::Prefetcher;

use base::Timestamp;
use std::time::Duration;

/// A packet to be compared.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The time of the packet.
    pub ts: Timestamp,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length on the wire in bytes, at least the length of `data`.
    pub wire_len: u32,
    /// Link type in the numbering of pcap ([`wire::link`]).
    pub link_type: u16,
    /// The number of the interface that captured the packet.
    pub interface: u16,
}

/// What the detector found about a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The class.
    pub class: Class,
    /// The time between the earlier packet and this packet.
    pub time: Duration,
    /// The number of packets from the earlier packet to this packet; 1 if they are neighbours.
    pub packets: u64,
    /// The decrease of the TTL or hop limit.
    pub ttl_drop: u8,
    /// True if the VLAN tags differ.
    pub is_vlan_changed: bool,
    /// True if the type of service or the traffic class differs.
    pub is_tos_changed: bool,
    /// True if the packet has payload above its transport header.
    pub has_payload: bool,
}
