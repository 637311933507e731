//! Detection of duplicates: further copies of a packet that one sender sent once.
//!
//! Two equal packets of one sender cannot be distinguished from two copies of one packet by their bytes. The detector
//! therefore relies on an assumption: *no sender sends the same bytes, including an identification other than 0, twice
//! within the window*. The default window of 1 ms contains the copies that mirrors and routers make; retransmissions,
//! polls, BFD packets and keep-alives are further apart. A user who sets a longer window asserts that the assumption
//! holds for this time. RFC 6864 section 4.1 permits any identification in datagrams that are not fragmented, also a
//! constant identification, so a long window can cause false duplicates for senders with a constant identification.
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
//! | [`Class::Switching`] | VLAN tags, link padding | – |
//! | [`Class::Routing`] | type of service, IPv4 checksum, VLAN tags | the TTL is lower; both MAC addresses differ |
//! | [`Class::Nat`] | as routing; port of one side, ICMP query ID, transport checksum | as routing; see below |
//! | [`Class::Proxying`] | all IP fields; fields of TCP (see below) | the address of one side, both MAC addresses |
//! | [`Class::Fragment`] | as routing; length, offset; address and port in a first fragment | as routing; see below |
//!
//! The destination MAC addresses of a routed multicast packet may be equal. On links without MAC addresses, only the
//! class switching exists. In the class NAT, the address of exactly one side differs, and only the port of the same
//! side may differ. A packet of the class fragment is a part of an earlier, longer IPv4 datagram, which contains all
//! captured bytes of the fragment.
//!
//! Kind, VNI or key, and outer addresses of the tunnel around an inner frame must be equal for the class switching, and
//! outer IPv4 identifications that are not 0 must be equal for all classes: otherwise the packet was encapsulated
//! twice. The headers of ERSPAN are not compared, because the mirror writes them. If the headers around an inner IP
//! packet without Ethernet header differ, the class is routing, provided that the inner packet is identified, both MAC
//! addresses differ, and either exactly one of the packets is encapsulated, or the outer TTL is lower in the same
//! tunnel or below other labels.
//!
//! # Chains
//!
//! A packet and its copies of the classes switching and routing are a *chain*. The windows are measured from the first
//! packet of the chain. A *place* is the VLAN tags, and with [`Settings::mirrored_interfaces`] also the interface; VLAN
//! ID 0 counts as untagged. At most [`Settings::copies_max`] copies with the same TTL are reported per chain; the
//! others are counted in [`Counts::over_limit`].
//!
//! # Evidence
//!
//! A packet is *identified* if a field that its sender changes from packet to packet was captured and is not 0: the
//! IPv4 identification, the identification of an IPv6 fragment, or the sequence number of ESP and AH. It is not
//! identified if the window contains a packet that is equal except for the IPv4 identification: its sender repeats the
//! bytes, so that an equal identification can be chance. A TCP segment remains identified if the newest of these
//! packets has the same identification: it is the copy of a retransmission. Equal packets are duplicates of the class
//! switching if
//!
//! 1. they are identified, or
//! 2. the chain has no packet at the place of the new packet, provided that the frame is unicast and all bytes were
//!    captured, or
//! 3. they are TCP segments with two bytes of payload or more, or with FIN, at most
//!    [`Settings::retransmission_window`] (10 µs) and four packets apart, with timestamps in order, because a sender
//!    retransmits after one round trip at the earliest, or
//! 4. they are at most [`Settings::repeat_window`] apart; the default 0 excludes this rule.
//!
//! Equal packets to which none of these rules applies are counted as [`Counts::repeats`]. A packet that equals an
//! earlier packet except for a lower TTL, two different MAC addresses and the fields that may differ is a duplicate of
//! the class routing if it is identified. Without identification, it is a duplicate if it is at most 1 ms from the
//! first packet of the chain, and the chain has no packet at the place of the new packet that is equal to the new
//! packet.
//!
//! The classes NAT and proxying need a *binding*: the addresses and ports before and after the device. Two different
//! packets confirm a binding of NAT, three in order of their sequence numbers a binding of a proxy; these packets are
//! counted as [`Counts::unconfirmed`] and are not reported. A binding has one direction, and a packet is the original
//! of one copy. Packets of NAT are identified or TCP. Segments with RST, with SYN and without payload, or with sequence
//! number 0 are never copies of these classes. Of proxied segments, ports and payload (8 bytes or more) are equal;
//! window, flags, options, and either the sequence or the acknowledgement number may differ.
//!
//! | trap | the rule that prevents the false positive |
//! |---|---|
//! | RTP and DNS packets with equal headers | all bytes are compared, not only headers; the length too |
//! | IPv4 identification 0 (RFC 6864), IPv6 | the packet is not identified; rules 2 to 4 |
//! | IPv4 identifications that wrap or are random | packets with other identifications in the window |
//! | constant IPv4 identification; retransmissions with the same identification | the window of 1 ms |
//! | TCP retransmissions with identification 0, or of IPv6 | rule 3; a changed timestamp option differs |
//! | duplicate acknowledgements, keep-alives, SYN probes | rule 3 needs payload or FIN |
//! | several sends that two mirrors capture | a place is part of a chain once |
//! | a host that sends the same frame in several VLANs (ARP, router solicitation, IGMP) | rule 2: unicast frames only |
//! | different packets with equal captured bytes | rule 2 needs all bytes |
//! | timestamps that are 0, coarse, or set back | rule 3 |
//! | padding of small frames | bytes after the IP packet or the ARP message are not compared |
//! | traceroute: equal probes with increasing TTL | the TTL must decrease, and the MAC addresses must differ |
//! | equal requests, resets and polls of several hosts | bindings |
//! | replication to several tunnel endpoints | tunnel and outer identification must be equal |
//!
//! # False negatives
//!
//! Copies are missed if
//!
//! * the mirror or the router delays them longer than the window;
//! * they have no identification, and the same place, as ARP frames that a mirror copies twice;
//! * their sender repeats the bytes with another identification within the window, and the place is the same (not TCP);
//! * the capture truncated them at different lengths, or the kernel or the NIC merged segments into one of them;
//! * a router changed IP options, or a switch rewrote the type of service;
//! * they were captured before the original, on another interface ([`Counts::reversed`]), unless
//!   [`Settings::unordered_interfaces`] is set;
//! * they are fragments after the first with a changed address;
//! * more than six equal packets are in the window ([`Counts::crowded`]);
//! * the table forgot the packet: [`Counts::overwritten`] counts the records that were overwritten within the window,
//!   [`Counts::evicted`] those that the index evicted.
//!
//! If the last three counts are 0, every duplicate of the definition above was found. [`Detector::reach`] is the time
//! that the table covers at the current rate.
#![forbid(unsafe_code)]

mod bindings;
mod chain;
mod class;
mod compared;
mod counts;
mod datagrams;
mod detector;
mod digest;
mod encapsulation;
mod evidence;
mod fields;
mod identification;
mod prepared;
mod rules;
mod search;
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
    /// The time between the first packet of the chain of copies and this packet; exact to 256 ns if there are copies
    /// between them.
    pub time: Duration,
    /// The number of packets from the first packet of the chain to this packet; 1 if they are neighbours.
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
