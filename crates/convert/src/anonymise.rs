//! Replaces addresses, so that a capture file can be given to other people.
//!
//! IPv4 and IPv6 addresses are mapped by CryptoPAn ([`CryptoPan`]): the longest common prefix of two addresses has the
//! same length after the mapping as before, so the addresses of one network are in one network after the mapping too.
//! With the same key, an address is mapped to the same address in every file. As in the publication, every address is
//! mapped, including private, multicast and broadcast addresses. MAC addresses are mapped in the same way, under a key
//! that is derived from the user's key.
//!
//! [`Rewriter`] has a list of supported protocols. It maps the addresses in their headers, and truncates a packet where
//! any other protocol begins. Supported are Ethernet, Linux cooked, BSD loopback and raw IP; VLAN tags and MPLS labels;
//! ARP; IPv4 and IPv6 with options, extension and routing headers, also in tunnels; TCP, UDP, UDP-Lite, SCTP and DCCP
//! headers; IGMP; ICMP with the packets that it quotes; neighbour discovery and listener messages of ICMPv6. Options
//! that may contain an address are blanked. Payloads are truncated because they often contain addresses, unless the
//! user keeps them. Checksums are updated incrementally (RFC 1624), so that correct checksums stay correct and wrong
//! checksums stay wrong.
//!
//! Not changed: times, lengths, ports, VLAN ids, MPLS labels, sequence numbers, hop counts. An observer who knows some
//! of the traffic can recognise it by these values and so learn prefixes (discussed by Xu et al.). CryptoPAn hides
//! addresses, not the behaviour of hosts.

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

/// The treatment of MAC addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Macs {
    /// All 48 bits of a MAC address are mapped. Addresses with equal vendor prefixes have equal vendor prefixes after
    /// the mapping too.
    #[default]
    All,
    /// The 24 vendor bits of a MAC address are kept, and the other 24 bits are mapped.
    Vendor,
    /// All bits are kept.
    Keep,
}

/// Settings of the anonymisation.
#[derive(Clone, Debug)]
pub struct Anonymiser {
    /// The secret key.
    pub key: Key,
    /// The treatment of MAC addresses.
    pub macs: Macs,
    /// True to keep the payload of TCP, UDP and ICMP echo.
    pub keep_payload: bool,
}

impl Anonymiser {
    /// The defaults: MAC addresses are mapped, payloads are truncated.
    pub fn new(key: Key) -> Self {
        Self { key, macs: Macs::default(), keep_payload: false }
    }

    /// A rewriter with these settings and with its own caches.
    pub fn rewriter(&self) -> Rewriter {
        Rewriter::new(self)
    }
}

/// Counters of anonymised packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonymisationCounts {
    /// Number of packets that were anonymised.
    pub packets: u64,
    /// Number of packets whose payload or padding was removed.
    pub payload: u64,
    /// Number of packets that were truncated at an unsupported or incomplete part.
    pub unknown: u64,
    /// Number of protocol options that were overwritten (blanked) because they may contain addresses.
    pub options: u64,
}

impl AnonymisationCounts {
    /// Warnings for people, one per line.
    pub fn warnings(&self) -> Vec<String> {
        let texts = [
            (self.payload, "packets were truncated after their headers, because payloads may contain addresses"),
            (self.unknown, "packets were truncated at an unsupported or incomplete part (tunnels, other protocols)"),
            (self.options, "protocol options were overwritten, because they may contain addresses"),
        ];
        let texts = texts.iter().filter(|(count, _)| *count > 0);
        texts.map(|(count, text)| format!("anonymised: {} {text}", show_count(*count))).collect()
    }
}
