//! Other addresses in place of the true ones, so that a capture can be given away.
//!
//! IPv4 and IPv6 addresses are mapped by CryptoPAn ([`CryptoPan`]): two addresses share as many leading bits after as
//! before, so networks stay networks, and one key gives the same answer in every file. Every address is mapped, private,
//! multicast and broadcast ones too, as published. MAC addresses are mapped the same way under a key of their own.
//!
//! The rule of [`Rewriter`] is a list of what is understood: addresses in it are mapped, and a packet is cut where
//! something begins that is not on the list. Understood are Ethernet, Linux cooked, BSD loopback and raw IP; VLAN tags and MPLS labels;
//! ARP; IPv4 and IPv6 with options, extension and routing headers, also one in the other; TCP, UDP, UDP-Lite, SCTP and
//! DCCP headers; IGMP; ICMP with the packets that it quotes; neighbour discovery and listener messages of ICMPv6. Options
//! that may hold an address are blanked. Payloads are cut, because they are full of addresses, unless they are asked for.
//! Checksums are updated by the difference that the change makes (RFC 1624), so that right ones stay right and wrong
//! ones wrong.
//!
//! What stays: times, lengths, ports, VLAN ids, MPLS labels, sequence numbers, hop counts. Whoever knows some of the
//! traffic can recognise it by these and so learn prefixes (Xu et al. discuss it); CryptoPAn hides addresses, not
//! behaviour.

mod cryptopan;
mod icmp;
mod key;
mod options;
mod rewrite;
mod transport;

pub use cryptopan::CryptoPan;
pub use key::{Key, KeyError};
pub use rewrite::Rewriter;

use base::units::show_count;

/// What is done with MAC addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Macs {
    /// All 48 bits are mapped; equal vendors stay equal.
    #[default]
    All,
    /// The vendor's 24 bits stay, the rest is mapped.
    Vendor,
    /// They stay as they are.
    Keep,
}

/// How packets are anonymised.
#[derive(Clone, Debug)]
pub struct Anonymiser {
    /// The secret.
    pub key: Key,
    /// What is done with MAC addresses.
    pub macs: Macs,
    /// Keep what TCP, UDP and the echo of ICMP carry.
    pub keep_payload: bool,
}

impl Anonymiser {
    /// All that needs no decision: MAC addresses are mapped, payloads are cut.
    pub fn new(key: Key) -> Self {
        Self { key, macs: Macs::default(), keep_payload: false }
    }

    /// What does it, with caches of its own.
    pub fn rewriter(&self) -> Rewriter {
        Rewriter::new(self)
    }
}

/// What was done to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonymisationCounts {
    /// Packets that were gone through.
    pub packets: u64,
    /// Of these, packets whose payload (or padding) was cut.
    pub payload: u64,
    /// Of these, packets that were cut at something that is not understood, or not wholly there.
    pub unknown: u64,
    /// Options that may hold addresses and were blanked.
    pub options: u64,
}

impl AnonymisationCounts {
    /// What people should know, a line for each thing.
    pub fn warnings(&self) -> Vec<String> {
        let said = [
            (self.payload, "packets were cut behind their headers, because payloads hold addresses"),
            (self.unknown, "packets were cut where something begins that is not understood (tunnels, other protocols)"),
            (self.options, "options that may hold addresses were blanked"),
        ];
        let said = said.iter().filter(|(count, _)| *count > 0);
        said.map(|(count, what)| format!("anonymised: {} {what}", show_count(*count))).collect()
    }
}
